//! From what is on the disk to tables, data path, watchers and answers, while the writer commits what came next.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ringside_gateway_core::table::Neighbors;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::book::{Book, Made, Other, Source};
use super::copy::Copy;
use super::sweep::Sweep;
use super::watch::{Published, publish};
use super::{Answer, DataPath, Outcome, Repaired, Tables, Timings, WriteError};
use crate::fleet::Status;
use crate::fleet::item::Item;
use crate::fleet::key::Key;
use crate::fleet::sync::{Mark, Tell};
use crate::object::Change;

/// Lost ports that are put back in one go; the next tick takes more.
const RESTORED_AT_ONCE: usize = 16_384;

/// What the writer has done with the store, or etcd tells, in the same order.
#[derive(Debug)]
pub(crate) enum Done {
    /// It was committed.
    Committed {
        revision: u64,
        now: i64,
        jobs: Vec<(Vec<Change>, Answer)>,
    },
    /// It was noted that nothing is missing any more, as was told.
    Repaired {
        missing: Vec<String>,
        answer: oneshot::Sender<Result<Repaired, WriteError>>,
    },
    /// What was deleted before this time was forgotten.
    Forgotten(i64),
    /// This is so in etcd, and what is known with it belongs to this.
    Told { tell: Tell, mark: Option<Mark> },
    /// Asks what is known of a key's objects.
    Known(Key, oneshot::Sender<Item>),
    /// Asks for changes that put lost ports back: see `book/lost.rs`.
    Restoration(oneshot::Sender<Vec<Change>>),
    /// Nothing, a second later.
    Tick(Vec<oneshot::Sender<()>>),
}

#[derive(Debug)]
pub(super) struct Applier {
    pub(super) book: Book,
    timings: Timings,
    watchers: broadcast::Sender<Arc<Published>>,
    fleet: Option<OfFleet>,
    /// The end of a list, as long as it is under way.
    pub(super) sweep: Option<Sweep>,
    /// Nothing was known when the list began that is under way: all that is known was listed, and there is nothing to sweep.
    is_new: bool,
    /// All that is known is being told the copy.
    anew: Option<Anew>,
}

/// What is told the copy part by part, in the way of a [`Sweep`].
#[derive(Debug)]
pub(super) struct Anew {
    /// What is no neighbour that is there comes first; what of it was not told yet.
    others: std::vec::IntoIter<Other>,
    /// Parts of neighbours that were told.
    done: usize,
    /// How long the last part took, and for how long others have had the tables since.
    part: Duration,
    waited: Duration,
}

/// What a gateway of a fleet has besides.
#[derive(Debug)]
pub(super) struct OfFleet {
    pub(super) status: Arc<Status>,
    pub(super) copy: std::sync::mpsc::Sender<Copy>,
    /// The revision that the tables have, for answers.
    pub(super) reached: watch::Sender<u64>,
    /// The last revision that the tables had.
    pub(super) revision: u64,
    /// The last mark of what they have.
    pub(super) mark: Option<Mark>,
}

impl Applier {
    /// Where nothing is known yet but what the book has.
    pub(super) fn new(
        book: Book,
        timings: Timings,
        watchers: broadcast::Sender<Arc<Published>>,
        fleet: Option<OfFleet>,
    ) -> Self {
        Self {
            book,
            timings,
            watchers,
            fleet,
            sweep: None,
            is_new: false,
            anew: None,
        }
    }

    /// That of a gateway of a fleet that knows nothing, for tests of what it tells the copy.
    #[cfg(test)]
    pub(super) fn of_fleet(book: Book, status: Arc<Status>, copy: std::sync::mpsc::Sender<Copy>) -> Self {
        let fleet = OfFleet {
            status,
            copy,
            reached: watch::channel(0).0,
            revision: 0,
            mark: None,
        };
        let watchers = broadcast::channel(1).0;
        Self::new(book, Timings::new(), watchers, Some(fleet))
    }

    /// Until the writer ends.
    pub(super) fn run(mut self, mut done: mpsc::Receiver<Done>) {
        loop {
            let next = match self.sweep.is_some() || self.may_tell_a_part() {
                true => done.try_recv(),
                false => done.blocking_recv().ok_or(TryRecvError::Disconnected),
            };
            match next {
                Ok(done) => self.take(done),
                Err(TryRecvError::Empty) if self.sweep.is_some() => self.sweep_a_part(),
                Err(TryRecvError::Empty) => self.tell_a_part(),
                // A list that has no end has no revision on the disk: it is made anew.
                Err(TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Takes one thing; when a sweep is under way, and has waited for as long as a part of it takes, that too.
    pub(super) fn take(&mut self, done: Done) {
        let began = Instant::now();
        self.take_one(done);
        if let Some(sweep) = &mut self.sweep
            && sweep.has_waited(began.elapsed())
        {
            self.sweep_a_part();
        }
        self.look_after_copy(began.elapsed());
    }

    /// Begins to tell the copy all that there is, if it wants that; or goes on, if others have had the tables for as long as a part takes.
    fn look_after_copy(&mut self, took: Duration) {
        let Some(fleet) = &self.fleet else { return };
        if fleet.status.backlog.begin_anew() {
            self.anew = Some(Anew {
                others: self.book.others().collect::<Vec<_>>().into_iter(),
                done: 0,
                part: Duration::ZERO,
                waited: Duration::ZERO,
            });
            self.send_copy(Copy::Anew);
        }
        if let Some(anew) = &mut self.anew {
            anew.waited += took;
            if anew.waited >= anew.part && self.may_tell_a_part() {
                self.tell_a_part();
            }
        }
    }

    /// Whether the copy is told all that there is, and has room for more of it.
    pub(super) fn may_tell_a_part(&mut self) -> bool {
        let Some(fleet) = self.fleet.as_ref().filter(|_| self.anew.is_some()) else {
            return false;
        };
        let has_room = fleet.status.backlog.has_room();
        if has_room.is_none() {
            // It was given up once more.
            self.anew = None;
        }
        has_room == Some(true)
    }

    pub(super) fn tell_a_part(&mut self) {
        let (Some(anew), Some(fleet)) = (&mut self.anew, &self.fleet) else {
            return;
        };
        let began = Instant::now();
        let made = if anew.others.as_slice().is_empty() {
            anew.done += 1;
            self.book.all_neighbors(anew.done - 1)
        } else {
            self.book.known_of(&mut anew.others, fleet.status.backlog.part())
        };
        (anew.part, anew.waited) = (began.elapsed(), Duration::ZERO);
        let is_last = anew.done == Neighbors::PARTS;
        if !made.is_empty() {
            self.send_copy(Copy::Made { made, mark: None });
        }
        if is_last {
            self.anew = None;
            let mark = self.fleet.as_ref().and_then(|fleet| fleet.mark.clone());
            self.send_copy(Copy::Whole(mark));
        }
    }

    fn take_one(&mut self, done: Done) {
        match done {
            Done::Told { tell, mark } => {
                self.told(tell, mark);
                self.report_lost();
            }
            // Who asked and went away does not need to know.
            Done::Known(key, answer) => _ = answer.send(self.book.known_item(key)),
            Done::Restoration(answer) => _ = answer.send(self.book.restoration(RESTORED_AT_ONCE)),
            Done::Committed { revision, now, jobs } => {
                self.book.set_now(now);
                for (changes, answer) in jobs {
                    self.apply(revision, changes, answer);
                }
            }
            Done::Repaired { missing, answer } => {
                let opened = self.book.open();
                // Who asked and went away does not need to know.
                _ = answer.send(Ok(Repaired {
                    missing,
                    opened,
                    keys_written: 0,
                }));
            }
            Done::Forgotten(before) => self.book.forget(before),
            Done::Tick(answers) => {
                self.book.tidy(Instant::now());
                // Who asked and went away does not need to know.
                answers.into_iter().for_each(|answer| _ = answer.send(()));
            }
        }
    }

    fn told(&mut self, tell: Tell, mark: Option<Mark>) {
        match tell {
            Tell::Begin => {
                // It ends with a sweep of its own.
                self.sweep = None;
                self.is_new = self.book.is_empty();
                self.tell_copy(Vec::new(), mark);
            }
            Tell::Revision(revision) => {
                let waits = self.sweep.as_mut().is_some_and(|sweep| sweep.holds_up(revision, &mark));
                if !waits {
                    self.reached(revision, mark);
                }
            }
            Tell::Items { items, compare } => {
                if let Some(sweep) = &mut self.sweep {
                    sweep.keep(items.iter().map(Item::key));
                }
                let began = Instant::now();
                let source = if compare { Source::List } else { Source::Watch };
                let made = self.book.mirror(&items, source);
                let found = if compare { made.len() } else { 0 };
                self.mirrored(began, made);
                self.diverged(found);
            }
            Tell::Policy { items, keep } => {
                let began = Instant::now();
                let made = self.book.mirror_all_policy(items, &keep);
                self.mirrored(began, made);
            }
            Tell::Sweep { keep, compare } => {
                while self.sweep.is_some() {
                    self.sweep_a_part();
                }
                if compare || !self.is_new {
                    self.sweep = Some(Sweep::new(keep, compare));
                }
            }
        }
    }

    /// A part of the sweep that is under way, and what was to wait for its end.
    pub(super) fn sweep_a_part(&mut self) {
        let Some(sweep) = &mut self.sweep else { return };
        let began = Instant::now();
        let made = sweep.part(&mut self.book);
        let end = sweep.end();
        self.mirrored(began, made);
        if let Some(end) = end {
            self.sweep = None;
            self.report_lost();
            self.diverged(end.diverged);
            if let Some((revision, mark)) = end.reached {
                self.reached(revision, mark);
            }
        } else if let Some(sweep) = &mut self.sweep {
            sweep.took(began.elapsed());
        }
    }

    /// The tables have what etcd held at a revision.
    fn reached(&mut self, revision: u64, mark: Option<Mark>) {
        let Some(fleet) = &mut self.fleet else { return };
        fleet.revision = revision;
        fleet.status.applied.store(revision, Ordering::Relaxed);
        fleet.reached.send_replace(revision);
        self.tell_copy(Vec::new(), mark);
    }

    /// A comparison has found that much otherwise.
    fn diverged(&self, objects: usize) {
        let Some(fleet) = self.fleet.as_ref().filter(|_| objects > 0) else {
            return;
        };
        fleet.status.diverged.fetch_add(objects as u64, Ordering::Relaxed);
        tracing::error!(objects, "the tables were other than etcd, and were put right");
    }

    fn report_lost(&self) {
        if let Some(fleet) = &self.fleet {
            fleet.status.set_lost(|most| self.book.lost(most));
        }
    }

    /// Reports changes of the tables to the watchers and the copy.
    fn mirrored(&mut self, began: Instant, made: Vec<Made>) {
        if made.is_empty() {
            return;
        }
        self.timings.program.observe(began.elapsed().as_secs_f64());
        if let Some(fleet) = self.fleet.as_ref().filter(|_| self.watchers.receiver_count() > 0) {
            let changes: Vec<Change> = made.iter().cloned().filter_map(Made::into_change).collect();
            let outcomes = vec![Outcome::Replaced; changes.len()];
            publish(&self.watchers, fleet.revision, changes, &outcomes);
        }
        self.tell_copy(made, None);
    }

    fn tell_copy(&mut self, made: Vec<Made>, mark: Option<Mark>) {
        if let Some(fleet) = &mut self.fleet
            && mark.is_some()
        {
            fleet.mark.clone_from(&mark);
        }
        if !made.is_empty() || mark.is_some() {
            self.send_copy(Copy::Made { made, mark });
        }
    }

    fn send_copy(&self, copy: Copy) {
        if let Some(fleet) = &self.fleet
            && fleet.status.backlog.put(copy.bytes())
        {
            // If that thread has panicked the daemon ends.
            _ = fleet.copy.send(copy);
        }
    }

    fn apply(&mut self, revision: u64, changes: Vec<Change>, answer: Answer) {
        let began = Instant::now();
        let outcomes = self.book.apply(&changes);
        self.timings.program.observe(began.elapsed().as_secs_f64());
        publish(&self.watchers, revision, changes, &outcomes);
        // Who asked and went away does not need to know.
        _ = answer.send(Ok(outcomes));
    }
}

/// Tables and a data path that are told what changes, without a store: nothing of it outlives the process.
///
/// It does what the program does with a change that is on the disk, on the caller's thread, and shows what that costs.
#[derive(Debug)]
pub struct Unstored {
    book: Book,
}

impl Unstored {
    /// With tables that nobody else changes.
    #[must_use]
    pub fn new(tables: Arc<Tables>, path: Arc<dyn DataPath>) -> Self {
        let mut book = Book::new(tables);
        book.set_path(path);
        Self { book }
    }

    /// Applies changes, in order, and says what became of each once they are in tables and data path.
    pub fn apply(&mut self, changes: &[Change]) -> Vec<Outcome> {
        self.book.apply(changes)
    }
}
