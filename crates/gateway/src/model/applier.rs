//! From what is on the disk to tables, data path, watchers and answers, while the writer commits what came next.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use tokio::sync::{broadcast, oneshot};

use super::book::{Applied, Book};
use super::watch::{self, Published};
use super::{Answer, DataPath, Outcome, Tables, Timings};
use crate::object::Change;

/// What the writer has done with the store, in the same order.
#[derive(Debug)]
pub(super) enum Done {
    /// It was committed.
    Committed {
        revision: u64,
        now: i64,
        jobs: Vec<(Vec<Change>, Answer)>,
    },
    /// What was deleted before this time was forgotten.
    Forgotten(i64),
    /// Nothing, a second later.
    Tick(Vec<oneshot::Sender<()>>),
}

#[derive(Debug)]
pub(super) struct Applier {
    pub(super) book: Book,
    pub(super) timings: Timings,
    pub(super) path: Arc<dyn DataPath>,
    pub(super) watchers: broadcast::Sender<Arc<Published>>,
}

impl Applier {
    /// Until the writer ends.
    pub(super) fn run(mut self, done: &Receiver<Done>) {
        for done in done {
            match done {
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
    }

    fn apply(&mut self, revision: u64, changes: Vec<Change>, answer: Answer) {
        let began = Instant::now();
        let applied = self.book.apply(&changes);
        tell(&*self.path, &applied);
        self.timings.program.observe(began.elapsed().as_secs_f64());
        watch::publish(&self.watchers, revision, changes, &applied.outcomes);
        // Who asked and went away does not need to know.
        _ = answer.send(Ok(applied.outcomes));
    }
}

/// Tells the data path what has changed.
fn tell(path: &dyn DataPath, applied: &Applied) {
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
        tell(&*self.path, &applied);
        applied.outcomes
    }
}
