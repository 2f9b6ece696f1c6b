//! What works, and what does not.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::fleet::Status;

const STALLED: &str = "the store's disk has not answered for seconds: changes wait for it, packets go on; look at the disk, or the network to it";
const STALLED_BY_ETCD: &str = "changes have waited for etcd for seconds, which answers questions: \
                               packets go on; look at the disks of its members";

/// What works, and what does not.
#[derive(Debug)]
pub struct Health {
    began: Instant,
    /// Since the start.
    problems: Mutex<Vec<String>>,
    /// What the store has lost, until somebody says that it is there again.
    missing: Mutex<Vec<String>>,
    /// Why the store cannot be written.
    read_only: Mutex<Option<Arc<str>>>,
    /// The store's thread has not answered for seconds.
    stalled: AtomicBool,
    revision: AtomicU64,
    store_bytes: AtomicU64,
    fleet: Option<Arc<Status>>,
}

impl Health {
    pub(super) fn new(problems: Vec<String>, revision: u64, store_bytes: u64) -> Self {
        problems.iter().for_each(|problem| tracing::error!("{problem}"));
        Self {
            began: Instant::now(),
            problems: Mutex::new(problems),
            missing: Mutex::default(),
            read_only: Mutex::new(None),
            stalled: AtomicBool::new(false),
            revision: AtomicU64::new(revision),
            store_bytes: AtomicU64::new(store_bytes),
            fleet: None,
        }
    }

    /// Of one whose store has lost this.
    pub(super) fn lacking(self, missing: Vec<String>) -> Self {
        missing.iter().for_each(|line| tracing::error!("{line}"));
        Self {
            missing: Mutex::new(missing),
            ..self
        }
    }

    /// Nothing is missing any more. Says what was.
    pub(super) fn repaired(&self) -> Vec<String> {
        std::mem::take(&mut *self.missing.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Of a gateway whose truth is in etcd.
    pub(super) fn of_fleet(self, status: Arc<Status>) -> Self {
        Self {
            fleet: Some(status),
            ..self
        }
    }

    /// How it fares with its fleet's state, if it has a fleet.
    #[must_use]
    pub fn fleet(&self) -> Option<&Status> {
        self.fleet.as_deref()
    }

    /// The same, for who lives longer.
    pub(crate) fn fleet_status(&self) -> Option<Arc<Status>> {
        self.fleet.clone()
    }

    /// Adds something that needs attention until the next start.
    pub fn add_problem(&self, problem: String) {
        self.problems
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(problem);
    }

    /// Everything that needs attention, for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone();
        problems.extend_from_slice(&self.missing.lock().unwrap_or_else(PoisonError::into_inner));
        problems.extend(self.fleet().into_iter().flat_map(Status::problems));
        problems.extend(
            self.read_only()
                .map(|reason| format!("nothing can be changed now: {reason}")),
        );
        let stalled = match self.fleet() {
            None => Some(STALLED),
            // The copy's disk is another thread's, of which `Backlog` says what is wrong.
            Some(fleet) => {
                let is_said = fleet.refusal().is_some() || fleet.holds_up().is_some();
                (!is_said).then_some(STALLED_BY_ETCD)
            }
        };
        problems.extend(stalled.filter(|_| self.is_stalled()).map(str::to_owned));
        problems
    }

    /// Why nothing can be changed now; None if it can.
    #[must_use]
    pub fn read_only(&self) -> Option<Arc<str>> {
        if let Some(fleet) = self.fleet() {
            return fleet.refusal();
        }
        self.read_only.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says whether the store's thread has not answered for seconds.
    pub fn set_stalled(&self, stalled: bool) {
        if self.stalled.swap(stalled, Ordering::Relaxed) != stalled {
            let what = if self.fleet.is_some() {
                "etcd"
            } else {
                "the store's disk"
            };
            tracing::warn!(stalled, "changes wait for {what}, or not any more");
        }
    }

    /// True while the store's thread has not answered for seconds.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// How long it has been running.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    /// Transactions of the store, since it was made.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// Bytes of the store's files.
    #[must_use]
    pub fn store_bytes(&self) -> u64 {
        self.store_bytes.load(Ordering::Relaxed)
    }

    /// True if that is news.
    pub(super) fn can_write(&self, revision: u64, bytes: u64) -> bool {
        self.revision.store(revision, Ordering::Relaxed);
        self.set_bytes(bytes);
        let mut read_only = self.read_only.lock().unwrap_or_else(PoisonError::into_inner);
        read_only.take().is_some()
    }

    pub(super) fn set_bytes(&self, bytes: u64) {
        self.store_bytes.store(bytes, Ordering::Relaxed);
    }

    /// True if that is news.
    pub(super) fn cannot_write(&self, reason: Arc<str>) -> bool {
        let mut read_only = self.read_only.lock().unwrap_or_else(PoisonError::into_inner);
        read_only.replace(reason).is_none()
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
mod tests;
