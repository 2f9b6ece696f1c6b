//! Whether packets come and go: a gateway that no packet reaches gives its shards to others, though etcd hears of it as before.
//!
//! ```text
//!   there ──gone for `without_link`──▶ given up ──there for [`BACK`] times as long──▶ there
//! ```
//! It comes back later than it goes: each move of a shard costs connections, and a link that has failed may fail again.

use std::time::Duration;

/// Times [`super::Timing::without_link`] that a link has to be there before shards come back.
const BACK: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Link {
    /// Whether it is there, and since when; None: nothing was heard of it.
    told: Option<(bool, Duration)>,
    is_given_up: bool,
}

impl Link {
    pub(super) fn tell(&mut self, now: Duration, is_there: bool) {
        match self.told {
            Some((before, _)) if before == is_there => {}
            // Who begins without one has had none for long enough.
            None => (self.told, self.is_given_up) = (Some((is_there, now)), !is_there),
            Some(_) => self.told = Some((is_there, now)),
        }
    }

    /// When something is decided, if nothing is heard before. `patience` is None if a link does not matter.
    pub(super) fn due(&self, patience: Option<Duration>) -> Option<Duration> {
        let (is_there, since) = self.told.filter(|(is_there, _)| *is_there == self.is_given_up)?;
        Some(since + patience? * if is_there { BACK } else { 1 })
    }

    /// True while there has been none for so long that shards are others'.
    pub(super) fn is_given_up(&mut self, now: Duration, patience: Option<Duration>) -> bool {
        if self.due(patience).is_some_and(|due| due <= now) {
            self.is_given_up = !self.is_given_up;
        }
        self.is_given_up && patience.is_some()
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
