//! The one thread that writes the store. What it has written another one applies, in the same order: see [`super::applier`].

use std::iter;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::applier::Done;
use super::{Answer, Health, Job, ModelOptions, Repaired, Steady, Timings, WriteError, forget_every};
use crate::object::Change;
use crate::store::{Store, StoreError};

/// Changes that go into one transaction. More make the answer to the first one late and save nothing.
const AT_ONCE: usize = 65_536;

#[derive(Debug)]
pub(super) struct Writer {
    pub(super) store: Store,
    /// The time by which what was deleted grows old.
    pub(super) clock: Steady,
    pub(super) options: ModelOptions,
    pub(super) health: Arc<Health>,
    pub(super) timings: Timings,
    pub(super) done: mpsc::Sender<Done>,
}

impl Writer {
    /// Until nobody can ask any more.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Job>) {
        let mut forgotten = Instant::now();
        while let Some(first) = queue.blocking_recv() {
            let mut jobs: Vec<(Vec<Change>, Answer)> = Vec::new();
            let (mut ticks, mut repaired) = (Vec::new(), Vec::new());
            let mut size = 0;
            let waiting = iter::from_fn(|| queue.try_recv().ok());
            for job in iter::once(first).chain(waiting) {
                match job {
                    Job::Write { changes, answer } => {
                        size += changes.len();
                        jobs.push((changes, answer));
                    }
                    Job::Tick(answer) => ticks.push(answer),
                    Job::Repaired(answer) => repaired.push(answer),
                    Job::Options(options) => self.options = options,
                }
                if size >= AT_ONCE {
                    break;
                }
            }
            if !jobs.is_empty() {
                self.write(jobs);
            } else if !ticks.is_empty() {
                self.tidy(&mut forgotten);
            }
            for answer in repaired {
                self.repaired(answer);
            }
            if !ticks.is_empty() {
                self.tell(Done::Tick(ticks));
            }
        }
        if let Err(error) = self.store.rest() {
            tracing::warn!(%error, "the store's log stays as it is, and is read at the next start");
        }
    }

    fn write(&mut self, mut jobs: Vec<(Vec<Change>, Answer)>) {
        let (now, began) = (self.clock.now(), Instant::now());
        let mut all: Vec<&mut Change> = jobs.iter_mut().flat_map(|(changes, _)| changes).collect();
        let is_open = all.iter().any(|change| change.is_open());
        let filled = if is_open { self.store.fill_in(&mut all) } else { Ok(()) };
        let all = jobs.iter().flat_map(|(changes, _)| changes);
        match filled.and_then(|()| self.store.commit(all, now)) {
            Ok(revision) => {
                self.timings.commit.observe(began.elapsed().as_secs_f64());
                self.can_write(revision);
                self.tell(Done::Committed { revision, now, jobs });
            }
            Err(error) => {
                let error = self.cannot_write(&error);
                // Who asked and went away does not need to know.
                jobs.into_iter()
                    .for_each(|(_, answer)| _ = answer.send(Err(error.clone())));
            }
        }
    }

    fn repaired(&mut self, answer: oneshot::Sender<Result<Repaired, WriteError>>) {
        match self.store.repaired() {
            Ok(()) => {
                let missing = self.health.repaired();
                tracing::info!(lines = missing.len(), "it is said that nothing is missing any more");
                self.tell(Done::Repaired { missing, answer });
            }
            // Who asked and went away does not need to know.
            Err(error) => _ = answer.send(Err(self.cannot_write(&error))),
        }
    }

    /// Waits for the other thread if that is behind.
    fn tell(&self, done: Done) {
        // If that has panicked nobody is answered any more, ticks neither, and the daemon ends.
        _ = self.done.blocking_send(done);
    }

    fn can_write(&self, revision: u64) {
        if self.health.can_write(revision, self.store.bytes()) {
            tracing::info!("the store can be written again");
        }
    }

    fn cannot_write(&self, error: &StoreError) -> WriteError {
        let reason: Arc<str> = error.to_string().into();
        if self.health.cannot_write(Arc::clone(&reason)) {
            tracing::error!(%error, "nothing can be changed; packets go on");
        }
        match error.is_open() {
            true => WriteError::Unknown(reason),
            false => WriteError::ReadOnly(reason),
        }
    }

    /// What is to be done now and then, when nobody waits.
    fn tidy(&mut self, forgotten: &mut Instant) {
        if self.health.read_only().is_some() {
            match self.store.probe() {
                Ok(revision) => self.can_write(revision),
                Err(error) => {
                    self.cannot_write(&error);
                    return;
                }
            }
        }
        let age = self.options.tombstones;
        if forgotten.elapsed() >= forget_every(age) {
            *forgotten = Instant::now();
            self.forget(age);
        }
        if let Err(error) = self.store.rest() {
            // It only takes room; whether changes can be written shows when there are some.
            tracing::warn!(%error, "the store's log could not be written back");
        }
        self.health.set_bytes(self.store.bytes());
    }

    /// Forgets what was deleted so long ago.
    fn forget(&mut self, age: Duration) {
        let now = self.clock.now();
        let before = now.saturating_sub(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
        // Both, or neither: what only one of them knew would be taken by the other.
        match self.store.forget(before) {
            Ok(_) => self.tell(Done::Forgotten(before)),
            Err(error) => _ = self.cannot_write(&error),
        }
        if let Err(error) = self.store.set_clock(now) {
            self.cannot_write(&error);
        }
    }
}
