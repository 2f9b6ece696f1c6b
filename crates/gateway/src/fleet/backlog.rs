//! What waits to be written into the copy of etcd's state, and whether its disk answers.
//!
//! The copy is for a start without etcd and for lists; the truth is in etcd, and packets go by the tables. So nobody waits for a disk that hangs
//! or is slow: who has answers to give waits a moment, who has more to be written not at all. When too much waits the copy is **given up**: what
//! waits is forgotten, and what is on the disk stays as it was, as of an earlier revision of etcd. When the disk does something again, the copy is
//! **made anew**, out of the tables, in one transaction; until its end lists show what was there before.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of memory that may wait, and one more batch: a million neighbours, or a few hundred of the largest security groups.
const MOST: usize = 128 << 20;
/// A disk that has done nothing for so long hangs: answers do not wait for it any more.
pub(crate) const HANGS: Duration = Duration::from_secs(2);
/// How long the end of the program waits for the disk.
pub(crate) const LAST: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct Backlog {
    most: usize,
    waiting: Mutex<Waiting>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    /// Since when the disk has to do the next thing; None: nothing waits.
    since: Option<Instant>,
    state: State,
    /// How often the copy was given up.
    given_up: u64,
    /// What the disk has said last, if it was no good.
    error: Option<String>,
    /// Nothing more will be written.
    is_over: bool,
}

/// How the copy is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// What is put is written.
    #[default]
    Kept,
    /// It is forgotten, until the disk does something again.
    GivenUp,
    /// The disk does something again: all that there is is to be put.
    Wanted,
    /// All that there is is being put, and what changes meanwhile.
    Anew,
}

impl Default for Backlog {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl Backlog {
    /// With room for so many bytes.
    pub(crate) fn with_room(most: usize) -> Self {
        Self {
            most,
            waiting: Mutex::default(),
            done: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes more wait. False: they need not be kept, for the copy is given up.
    pub(crate) fn put(&self, bytes: usize) -> bool {
        let mut waiting = self.lock();
        if waiting.bytes > self.most {
            waiting.overflow();
        }
        let is_kept = matches!(waiting.state, State::Kept | State::Anew);
        if is_kept {
            waiting.bytes += bytes;
            waiting.since.get_or_insert_with(Instant::now);
        }
        is_kept
    }

    /// So much of what was put does not wait any more: the disk has it, or it was forgotten.
    pub(crate) fn taken(&self, bytes: usize) {
        let mut waiting = self.lock();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.since = (waiting.bytes > 0).then(Instant::now);
        self.done.notify_all();
    }

    /// The disk has so much, and nothing is wrong with it. True if that is news.
    pub(crate) fn written(&self, bytes: usize) -> bool {
        let was_wrong = self.lock().error.take().is_some();
        self.taken(bytes);
        was_wrong
    }

    /// Something could not be written. True if that is news.
    pub(crate) fn failed(&self, why: String) -> bool {
        let mut waiting = self.lock();
        waiting.since = waiting.since.map(|_| Instant::now());
        let is_news = waiting.error.replace(why).is_none();
        if waiting.bytes > self.most {
            waiting.overflow();
        }
        is_news
    }

    /// What is written into the copy anew cannot be brought to its end.
    pub(crate) fn give_up(&self) {
        self.lock().give_up();
    }

    /// Nothing is to be kept.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.lock().state, State::GivenUp | State::Wanted)
    }

    /// The disk can be tried again.
    pub(crate) fn want_all(&self) {
        let mut waiting = self.lock();
        if waiting.state == State::GivenUp {
            waiting.state = State::Wanted;
        }
    }

    /// Whether all that there is is to be put, and from now on again what changes.
    pub(crate) fn begin_anew(&self) -> bool {
        let mut waiting = self.lock();
        let is_wanted = waiting.state == State::Wanted;
        if is_wanted {
            waiting.state = State::Anew;
        }
        is_wanted
    }

    /// Whether a part of all that there is may be put: what changes meanwhile is to have room, too. None: all of it is given up again.
    pub(crate) fn has_room(&self) -> Option<bool> {
        let waiting = self.lock();
        (waiting.state == State::Anew).then_some(waiting.bytes <= self.most / 4)
    }

    /// Bytes of memory of a part of all that there is, if that can be parted: so that what changes meanwhile has room beside it.
    pub(crate) const fn part(&self) -> usize {
        self.most / 8
    }

    /// The copy has all that there is.
    pub(crate) fn is_whole(&self) {
        let mut waiting = self.lock();
        if waiting.state == State::Anew {
            waiting.state = State::Kept;
        }
    }

    /// How long an answer may wait until the copy has what it is about.
    pub(crate) fn patience(&self) -> Duration {
        let waiting = self.lock();
        match waiting.since {
            _ if waiting.state != State::Kept => Duration::ZERO,
            Some(since) => HANGS.saturating_sub(since.elapsed()),
            None => HANGS,
        }
    }

    /// Waits until the copy has what was put, for [`HANGS`] at most.
    pub(crate) fn wait_until_written(&self) {
        let waiting = self.lock();
        let is_behind = |waiting: &mut Waiting| waiting.state == State::Kept && waiting.bytes > 0;
        drop(self.done.wait_timeout_while(waiting, HANGS, is_behind));
    }

    /// How often the copy was given up, and bytes that wait.
    pub(crate) fn counts(&self) -> (u64, usize) {
        let waiting = self.lock();
        (waiting.given_up, waiting.bytes)
    }

    /// What needs attention, for people.
    pub(crate) fn problem(&self) -> Option<String> {
        let waiting = self.lock();
        let why = match (waiting.why(), waiting.state) {
            (Some(why), _) => why,
            (None, State::Kept) => return None,
            (None, _) => "its disk was too slow for what there was to write".to_owned(),
        };
        let when = match waiting.state {
            State::Kept => "it is brought up to date when it can be written",
            State::GivenUp | State::Wanted => "it was given up, and is made anew when it can be written",
            State::Anew => "it was given up, and is being made anew",
        };
        Some(format!(
            "the copy of etcd's state is not up to date: lists are old; {when}: {why}"
        ))
    }

    /// Nothing more will be written.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.done.notify_all();
    }

    /// Waits until nothing more will be written, for a few seconds at the most: the program ends.
    ///
    /// # Errors
    /// What was not written and why, for people.
    pub(crate) fn wait_for_end(&self) -> Result<(), String> {
        let waiting = self.lock();
        let waited = self.done.wait_timeout_while(waiting, LAST, |waiting| !waiting.is_over);
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match (waiting.state, waiting.bytes) {
            (State::Kept, 0) => Ok(()),
            (State::Kept, bytes) => Err(format!(
                "{} KiB were not written: {}",
                bytes.div_ceil(1024),
                waiting.last()
            )),
            (..) => Err(format!("it was given up before: {}", waiting.last())),
        }
    }
}

impl Waiting {
    /// True if that is news.
    fn give_up(&mut self) -> bool {
        let is_news = matches!(self.state, State::Kept | State::Anew);
        if is_news {
            self.state = State::GivenUp;
            self.given_up += 1;
        }
        is_news
    }

    fn overflow(&mut self) {
        if self.give_up() {
            tracing::error!(
                bytes = self.bytes,
                "the copy of etcd's state is given up, for too much waits for its disk; it is made anew when that can be written"
            );
        }
    }

    /// What is wrong with the disk.
    fn why(&self) -> Option<String> {
        let hangs = self.since.map(|since| since.elapsed()).filter(|time| *time >= HANGS);
        match (&self.error, hangs) {
            (Some(error), _) => Some(error.clone()),
            (None, Some(time)) => Some(format!("its disk has not answered for {} s", time.as_secs())),
            (None, None) => None,
        }
    }

    fn last(&self) -> String {
        self.why().unwrap_or_else(|| "its disk is slow".to_owned())
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
