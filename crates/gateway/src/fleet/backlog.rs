//! What waits to be written into the copy of etcd's state, and whether its disk answers.
//!
//! The copy is for a start without etcd and for lists; the truth is in etcd, and packets go by the tables. So nobody waits for a disk that
//! hangs: who has answers to give waits a moment, who has more to be written until so much waits that the copy is given up.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Objects that wait at the most.
const MOST: usize = 1_000_000;
/// A disk that has done nothing for so long hangs: answers do not wait for it any more.
pub(crate) const HANGS: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Mutex<Waiting>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Objects, and one for each time that something was put.
    size: usize,
    /// Since when the disk has to do the next thing; None: nothing waits.
    since: Option<Instant>,
    /// Too much has waited: what is on the disk is not brought up to date before the next start.
    is_lost: bool,
    /// What the disk has said last, if it was no good.
    error: Option<String>,
}

impl Backlog {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many objects more wait. As long as the disk goes on this waits until there is room for them. False: they need not be kept, for
    /// the copy is lost.
    pub(crate) fn put(&self, objects: usize) -> bool {
        let mut waiting = self.lock();
        while waiting.size > MOST && !waiting.is_lost {
            let hangs = waiting
                .since
                .map_or(HANGS, |since| HANGS.saturating_sub(since.elapsed()));
            if hangs.is_zero() {
                waiting.lose();
                break;
            }
            let woken = self.done.wait_timeout(waiting, hangs);
            (waiting, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
        if !waiting.is_lost {
            waiting.size += objects + 1;
            waiting.since.get_or_insert_with(Instant::now);
        }
        !waiting.is_lost
    }

    /// The disk has been asked to write what was put so many times, with so many objects, and it was.
    pub(crate) fn written(&self, objects: usize, puts: usize) {
        let mut waiting = self.lock();
        waiting.size = waiting.size.saturating_sub(objects + puts);
        waiting.since = (waiting.size > 0).then(Instant::now);
        waiting.error = None;
        self.done.notify_all();
    }

    /// It could not be written, and is tried again. True: it need not be, for the copy is lost.
    pub(crate) fn failed(&self, why: String) -> bool {
        let mut waiting = self.lock();
        waiting.since = Some(Instant::now());
        waiting.error = Some(why);
        if waiting.size > MOST {
            waiting.lose();
        }
        self.done.notify_all();
        waiting.is_lost
    }

    /// How long an answer may wait until the copy has what it is about.
    pub(crate) fn patience(&self) -> Duration {
        let waiting = self.lock();
        match waiting.since {
            _ if waiting.is_lost => Duration::ZERO,
            Some(since) => HANGS.saturating_sub(since.elapsed()),
            None => HANGS,
        }
    }

    /// What needs attention, for people.
    pub(crate) fn problem(&self) -> Option<String> {
        let waiting = self.lock();
        let hangs = waiting.since.map(|since| since.elapsed()).filter(|time| *time >= HANGS);
        let why = match (&waiting.error, hangs) {
            (Some(error), _) => error.clone(),
            (None, Some(time)) => format!("its disk has not answered for {} s", time.as_secs()),
            (None, None) if waiting.is_lost => "its disk did not take what there was to write".to_owned(),
            (None, None) => return None,
        };
        let when = match waiting.is_lost {
            true => "at the next start",
            false => "when it can be written",
        };
        Some(format!(
            "the copy of etcd's state is not up to date: lists are old; it is brought up to date {when}: {why}"
        ))
    }
}

impl Waiting {
    fn lose(&mut self) {
        self.is_lost = true;
        tracing::error!(
            "the copy of etcd's state is not brought up to date before the next start: too much waits for its disk"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_do_not_wait_for_a_disk_that_hangs() {
        let backlog = Backlog::default();
        assert_eq!((backlog.patience(), backlog.problem()), (HANGS, None));
        assert!(backlog.put(1));
        std::thread::sleep(HANGS + Duration::from_millis(1));
        assert_eq!(backlog.patience(), Duration::ZERO);
        assert!(backlog.problem().unwrap().contains("has not answered for 2 s"));
        backlog.written(1, 1);
        assert_eq!((backlog.patience(), backlog.problem()), (HANGS, None));
    }

    /// Who has more than there is room for waits for a disk that goes on, and gives up one that does not.
    #[test]
    fn a_disk_that_goes_on_is_waited_for() {
        let backlog = Backlog::default();
        assert!(backlog.put(MOST));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| backlog.put(MOST));
            std::thread::sleep(HANGS / 2);
            assert!(!next.is_finished());
            backlog.written(MOST, 1);
            assert!(next.join().unwrap());
        });
        assert!(!backlog.put(1), "it hangs");
        assert!(!backlog.put(1));
        assert_eq!(backlog.patience(), Duration::ZERO);
        backlog.written(MOST, 1);
        let problem = backlog.problem().unwrap();
        assert!(
            problem.contains("at the next start") && problem.contains("did not take"),
            "{problem}"
        );
    }

    #[test]
    fn a_disk_that_fails_answers() {
        let backlog = Backlog::default();
        assert!(backlog.put(7));
        assert!(!backlog.failed("it is full".to_owned()));
        assert!(backlog.patience() > HANGS / 2);
        let problem = backlog.problem().unwrap();
        assert!(problem.contains("when it can be written: it is full"), "{problem}");
        assert!(backlog.put(MOST));
        assert!(backlog.failed("it is full".to_owned()), "too much waits");
        assert!(backlog.problem().unwrap().contains("at the next start: it is full"));
    }
}
