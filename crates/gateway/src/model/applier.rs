//! From what is on the disk to tables, data path, watchers and answers, while the writer commits what came next.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tokio::sync::{broadcast, mpsc, oneshot};

use super::book::{Applied, Book, Made};
use super::copy::Copy;
use super::watch::{self, Published};
use super::{Answer, DataPath, Outcome, Tables, Timings};
use crate::fleet::Status;
use crate::fleet::sync::{Mark, Tell};
use crate::object::Change;

/// What the writer has done with the store, or etcd tells, in the same order.
#[derive(Debug)]
pub(crate) enum Done {
    /// It was committed.
    Committed {
        revision: u64,
        now: i64,
        jobs: Vec<(Vec<Change>, Answer)>,
    },
    /// What was deleted before this time was forgotten.
    Forgotten(i64),
    /// This is so in etcd, and what is known with it belongs to this.
    Told { tell: Tell, mark: Option<Mark> },
    /// Nothing, a second later.
    Tick(Vec<oneshot::Sender<()>>),
}

#[derive(Debug)]
pub(super) struct Applier {
    pub(super) book: Book,
    pub(super) timings: Timings,
    pub(super) path: Arc<dyn DataPath>,
    pub(super) watchers: broadcast::Sender<Arc<Published>>,
    pub(super) fleet: Option<OfFleet>,
}

/// What a gateway of a fleet has besides.
#[derive(Debug)]
pub(super) struct OfFleet {
    pub(super) status: Arc<Status>,
    pub(super) copy: std::sync::mpsc::SyncSender<Copy>,
    /// The last revision that the tables had.
    pub(super) revision: u64,
}

impl Applier {
    /// Until the writer ends.
    pub(super) fn run(mut self, mut done: mpsc::Receiver<Done>) {
        while let Some(done) = done.blocking_recv() {
            self.take(done);
        }
    }

    pub(super) fn take(&mut self, done: Done) {
        match done {
            Done::Told { tell, mark } => self.told(tell, mark),
            Done::Committed { revision, now, jobs } => {
                self.book.set_now(now);
                for (changes, answer) in jobs {
                    self.apply(revision, changes, answer);
                }
            }
            Done::Forgotten(before) => self.book.forget(before),
            Done::Tick(answers) => {
                if let Some(generation) = self.book.tidy(Instant::now()) {
                    self.path.policy_changed(generation);
                }
                // Who asked and went away does not need to know.
                answers.into_iter().for_each(|answer| _ = answer.send(()));
            }
        }
    }

    fn told(&mut self, tell: Tell, mark: Option<Mark>) {
        let Some(fleet) = &mut self.fleet else { return };
        let began = Instant::now();
        let (mut made, mut mark_of_copy) = (Vec::new(), None);
        let mut mirrored = None;
        match tell {
            Tell::Begin => mark_of_copy = mark,
            Tell::Revision(revision) => {
                fleet.revision = revision;
                fleet.status.applied.store(revision, Ordering::Relaxed);
                mark_of_copy = mark;
            }
            Tell::Items { items, compare } => mirrored = Some((self.book.mirror(&items), compare)),
            Tell::Sweep { keep, compare } => mirrored = Some((self.book.sweep(|key| keep.contains(&key)), compare)),
        }
        if let Some(((applied, all), compare)) = mirrored {
            tell_path(&*self.path, &applied);
            if compare && !all.is_empty() {
                fleet.status.diverged.fetch_add(all.len() as u64, Ordering::Relaxed);
                tracing::error!(
                    objects = all.len(),
                    "the tables were other than etcd, and were put right"
                );
            }
            if !all.is_empty() {
                self.timings.program.observe(began.elapsed().as_secs_f64());
            }
            made = all;
        }
        if self.watchers.receiver_count() > 0 {
            let changes: Vec<Change> = made.iter().cloned().filter_map(Made::into_change).collect();
            let outcomes = vec![Outcome::Replaced; changes.len()];
            watch::publish(&self.watchers, fleet.revision, changes, &outcomes);
        }
        if !made.is_empty() || mark_of_copy.is_some() {
            // If that thread has panicked nobody is answered any more, and the daemon ends.
            let copy = Copy {
                made,
                mark: mark_of_copy,
            };
            _ = fleet.copy.send(copy);
        }
    }

    fn apply(&mut self, revision: u64, changes: Vec<Change>, answer: Answer) {
        let began = Instant::now();
        let applied = self.book.apply(&changes);
        tell_path(&*self.path, &applied);
        self.timings.program.observe(began.elapsed().as_secs_f64());
        watch::publish(&self.watchers, revision, changes, &applied.outcomes);
        // Who asked and went away does not need to know.
        _ = answer.send(Ok(applied.outcomes));
    }
}

/// Tells the data path what has changed.
fn tell_path(path: &dyn DataPath, applied: &Applied) {
    if let Some(generation) = applied.generation {
        path.policy_changed(generation);
    }
    if !applied.changed.is_empty() {
        path.changed(&applied.changed);
    }
}

/// Tables and a data path that are told what changes, without a store: nothing of it outlives the process.
///
/// It does what the program does with a change that is on the disk, on the caller's thread, and shows what that costs.
#[derive(Debug)]
pub struct Unstored {
    book: Book,
    path: Arc<dyn DataPath>,
}

impl Unstored {
    /// With tables that nobody else changes.
    #[must_use]
    pub fn new(tables: Arc<Tables>, path: Arc<dyn DataPath>) -> Self {
        Self {
            book: Book::new(tables),
            path,
        }
    }

    /// Applies changes, in order, and says what became of each once they are in tables and data path.
    pub fn apply(&mut self, changes: &[Change]) -> Vec<Outcome> {
        let applied = self.book.apply(changes);
        tell_path(&*self.path, &applied);
        applied.outcomes
    }
}
