//! Whether what etcd says is believed: whose state it is, and that it does not go back.
//!
//! Somebody may remove the key that says whose state it is, or write another value, and put it
//! back. Changes of that key alone, each in a revision of its own, are passed over then: the watch
//! goes on from where it was, and tells what else was changed meanwhile. What was changed together
//! with it is never believed: somebody removed everything.

use std::time::Duration;

use super::{Action, FLEET, Mark, Pair, Phase, Pulse, Sync};

/// Why nothing is believed.
#[derive(Debug)]
pub(super) struct Rejection {
    /// For people.
    pub(super) why: String,
    /// It ends when the key has the known value again.
    is_until_restored: bool,
}

impl Sync {
    /// Nothing is believed any more.
    pub(super) fn reject(&mut self, why: String) {
        self.reject_for(Rejection {
            why: format!("{why}. If etcd is right, stop this gateway, remove the file store.path, and start it"),
            is_until_restored: false,
        });
    }

    /// Rejects etcd's state until the key that says whose state it is has the known value again. A
    /// gateway without its copy would not know that value.
    fn reject_until_restored(&mut self, what: &str) {
        let known = self.mark.as_ref().map(|mark| String::from_utf8_lossy(&mark.fleet));
        let known = known.unwrap_or_default();
        self.reject_for(Rejection {
            why: format!(
                "its key {FLEET}, which says whose state this is, {what}. To go on, put it back: \
                 etcdctl put PREFIX{FLEET} \"{known}\""
            ),
            is_until_restored: true,
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
        if !rejection.is_until_restored {
            _ = self.note(pulse);
            return;
        }
        let is_restored = |pulse: &Pulse| {
            let mark = self.mark.as_ref();
            mark.is_some_and(|mark| (mark.cluster, Some(&mark.fleet)) == (pulse.cluster, pulse.fleet.as_ref()))
        };
        match &pulse {
            Ok(found) if found.revision < self.known() => self.pulse(now, pulse),
            Ok(found) if is_restored(found) => {
                tracing::info!("etcd's key {FLEET} has the known value again; its state is believed again");
                self.restored = found.revision;
                self.phase = Phase::Greeting;
                self.pulse(now, pulse);
            }
            _ => _ = self.note(pulse),
        }
    }

    /// Returns whether changes show that it is not the known state, which is rejected then.
    pub(super) fn is_others(&mut self, pairs: &[Pair]) -> bool {
        let known = self.mark.as_ref().map(|mark| &mark.fleet);
        let is_other = |pair: &&Pair| pair.key == FLEET.as_bytes() && pair.value.as_ref() != known;
        let is_alone = |one: &Pair| {
            !pairs
                .iter()
                .any(|pair| pair.revision == one.revision && pair.key != one.key)
        };
        let mut others = pairs.iter().filter(is_other).peekable();
        if others.peek().is_none() {
            return false;
        }
        if !others.clone().all(is_alone) {
            self.reject(format!(
                "its key {FLEET}, which says whose state this is, was changed or removed together \
                 with others"
            ));
            return true;
        }
        let is_past = others.all(|pair| pair.revision <= self.restored);
        if !is_past {
            self.reject_until_restored("was changed or removed");
        }
        !is_past
    }

    pub(super) fn pulse(&mut self, now: Duration, pulse: Result<Pulse, String>) {
        let before = self.heart.answered.map_or(0, |(_, revision)| revision);
        let was_away = self.heart.error.is_some();
        let Some((pulse, told)) = self.note(pulse) else { return };
        // What was told after the question may well be newer than the answer.
        let least = told.max(before);
        if pulse.revision < least {
            return self.reject(format!(
                "its revision went back from {least} to {}: it was restored from a backup, or is another one",
                pulse.revision
            ));
        }
        let Some(fleet) = pulse.fleet else {
            return self.reject_until_restored("is gone");
        };
        match &self.mark {
            Some(mark) if mark.cluster != pulse.cluster => {
                return self.reject("another cluster answers than the one whose state is known".to_owned());
            }
            Some(mark) if mark.fleet != fleet => return self.reject_until_restored("says that it is another one's"),
            Some(_) => {}
            None => {
                self.mark = Some(Mark {
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
