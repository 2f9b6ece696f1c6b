//! Whether what etcd says is believed: whose state it is, and that it does not go back.
//!
//! Somebody may remove the key that says whose state it is, or write another value, and put it
//! back. Changes of that key alone, each in a revision of its own, are passed over then: the watch
//! goes on from where it was, and tells what else was changed meanwhile. What was changed together
//! with it is never believed: somebody removed everything.

use std::time::Duration;

use super::{Action, FLEET, Mark, Pair, Phase, Pulse, Sync};
use crate::fleet::FleetName;

/// Why nothing is believed.
#[derive(Debug)]
pub(super) struct Rejection {
    /// For people.
    pub(super) why: String,
    /// It ends when the key has the known value again, in this revision or a later one. An answer
    /// may be older than the change that the watch has seen.
    until_restored: Option<u64>,
}

impl Sync {
    /// Sets what all keys in etcd begin with, for commands in messages.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self
    }

    /// Nothing is believed any more.
    pub(super) fn reject(&mut self, why: String) {
        self.reject_for(Rejection {
            why: format!("{why}. If etcd is right, stop this gateway, remove the file store.path, and start it"),
            until_restored: None,
        });
    }

    /// Rejects etcd's state until the key that says whose state it is has the known value again. A
    /// gateway without its copy would not know that value. `found`: what it held at a revision.
    fn reject_until_restored(&mut self, found: Option<&FleetName>, revision: u64) {
        let holds = |found: &FleetName| format!("holds {}", found.shown());
        let what = found.map_or_else(|| "is gone".to_owned(), holds);
        let Some(Mark { fleet: known, .. }) = &self.mark else {
            return;
        };
        if known.check().is_err() {
            return self.reject(format!(
                "its key {FLEET}, which says whose state this is, {what}, and this gateway's copy \
                 has {}, which is no fleet's name",
                known.shown()
            ));
        }
        self.reject_for(Rejection {
            why: format!(
                "its key {FLEET}, which says whose state this is, {what}. To go on, put it back: \
                 etcdctl put {}{FLEET} \"{known}\"",
                self.prefix
            ),
            until_restored: Some(revision),
        });
    }

    fn reject_for(&mut self, rejection: Rejection) {
        self.act(Action::Unwatch);
        self.comparison = None;
        self.phase = Phase::Rejected(rejection);
    }

    /// Goes on if the key has the known value again, and nothing else speaks against that.
    pub(super) fn pulse_while_rejected(&mut self, now: Duration, pulse: Result<Pulse, String>) {
        let Phase::Rejected(rejection) = &self.phase else {
            return;
        };
        let Some(since) = rejection.until_restored else {
            _ = self.note(pulse);
            return;
        };
        let is_restored = |pulse: &Pulse| {
            let mark = self.mark.as_ref();
            mark.is_some_and(|mark| (mark.cluster, Some(&mark.fleet)) == (pulse.cluster, pulse.fleet.as_ref()))
        };
        match &pulse {
            Ok(found) if (self.known()..since).contains(&found.revision) => _ = self.note(pulse),
            Ok(found) => {
                if is_restored(found) && found.revision >= since {
                    tracing::info!("etcd's key {FLEET} has the known value again: it is believed");
                    self.restored = found.revision;
                    self.phase = Phase::Greeting;
                }
                self.pulse(now, pulse);
            }
            Err(_) => _ = self.note(pulse),
        }
    }

    /// Rejects etcd's state if changes show that it is not the known one. Returns whether it did.
    pub(super) fn reject_if_other_fleet(&mut self, pairs: &[Pair]) -> bool {
        let known = self.mark.as_ref().map(|mark| &mark.fleet);
        let name = |pair: &Pair| pair.value.as_deref().map(FleetName::read);
        let is_other = |pair: &&Pair| pair.key == FLEET.as_bytes() && name(pair).as_ref() != known;
        let is_alone = |one: &Pair| {
            !pairs
                .iter()
                .any(|pair| pair.revision == one.revision && pair.key != one.key)
        };
        let mut others = pairs.iter().filter(is_other);
        let Some(last) = others.clone().next_back() else {
            return false;
        };
        if !others.clone().all(is_alone) {
            self.reject(format!(
                "its key {FLEET}, which says whose state this is, was changed or removed together \
                 with others"
            ));
            return true;
        }
        let is_past = others.all(|pair| pair.revision <= self.restored);
        if !is_past {
            self.reject_until_restored(name(last).as_ref(), last.revision);
        }
        !is_past
    }

    /// Passes an answer on. Fails where this gateway does not know whose state it is, and the
    /// answer has no name of a fleet: one that took what is there would begin another fleet.
    fn check_fleet(&self, pulse: Pulse) -> Result<Pulse, String> {
        match (&self.mark, &pulse.fleet) {
            (Some(_), _) => {}
            (None, Some(fleet)) => fleet.check().map_err(|why| {
                format!(
                    "{why}. `ringside gateway health` at a gateway that runs shows the fleet's \
                     name; if there is none, see docs/fleet.md"
                )
            })?,
            (None, None) => {
                return Err(format!("its key {FLEET}, which says whose state this is, is gone"));
            }
        }
        Ok(pulse)
    }

    pub(super) fn pulse(&mut self, now: Duration, pulse: Result<Pulse, String>) {
        let before = self.heart.answered.map_or(0, |(_, revision)| revision);
        let was_away = self.heart.error.is_some();
        let pulse = pulse.and_then(|pulse| self.check_fleet(pulse));
        let Some((pulse, told)) = self.note(pulse) else { return };
        // What was told after the question may well be newer than the answer.
        let least = told.max(before);
        if pulse.revision < least {
            return self.reject(format!(
                "its revision went back from {least} to {}: it was restored from a backup, or is another one",
                pulse.revision
            ));
        }
        match (&self.mark, pulse.fleet) {
            (Some(mark), Some(_)) if mark.cluster != pulse.cluster => {
                return self.reject("another cluster answers than the one whose state is known".to_owned());
            }
            (Some(mark), Some(fleet)) if mark.fleet == fleet => {}
            (Some(_), found) => return self.reject_until_restored(found.as_ref(), pulse.revision),
            (None, found) => {
                self.mark = found.map(|fleet| Mark {
                    cluster: pulse.cluster,
                    fleet,
                    revision: None,
                    has_unread: false,
                });
            }
        }
        // What is changed now waits for the watch.
        if let Phase::Watching(watch) = &mut self.phase
            && was_away
        {
            watch.begin = watch.begin.map(|begin| begin.min(now));
        }
        match &self.phase {
            Phase::Greeting if self.told > 0 => self.watch(now),
            Phase::Greeting => self.list(now, self.told, None),
            Phase::Watching(watch) if watch.begin.is_none() => self.act(Action::Progress),
            _ => {}
        }
        // Nothing may have changed since it was told.
        if self.told >= pulse.revision {
            self.prove(now, self.told);
        }
    }
}
