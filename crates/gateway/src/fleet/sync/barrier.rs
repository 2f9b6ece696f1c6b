//! Before it knows what the others know, nobody takes anything from them.

use super::State;

/// Says when a gateway's tables have what the fleet knew when it began to follow it, or did so anew.
#[derive(Debug, Clone, Copy, Default)]
pub struct Barrier {
    revision: Option<u64>,
    said: Option<bool>,
}

impl Barrier {
    /// Whether they have, if that is news. `complete`: [`Sync::complete`](super::Sync::complete); `applied`: the revision that the
    /// tables have.
    pub fn look(&mut self, state: &State, complete: Option<u64>, applied: u64) -> Option<bool> {
        let has_all = match (state, complete) {
            (State::Following, Some(revision)) => (applied >= *self.revision.get_or_insert(revision)).then_some(true),
            (State::Rejected(_), _) => Some(false),
            // What was compacted meanwhile is missing until all is listed.
            (State::Behind, None) => {
                self.revision = None;
                self.said.is_some().then_some(false)
            }
            (State::Following | State::Behind | State::CutOff(_), _) => None,
        };
        let news = has_all.filter(|has_all| self.said != Some(*has_all));
        self.said = news.or(self.said);
        news
    }
}
