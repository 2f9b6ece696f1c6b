//! The common start of a run's schedules: when all threads and counters are set up.
//!
//! ```text
//!   worker      pinned ── arrives ── wait() ──────┐
//!   worker      pinned ── arrives ── wait() ──────┼── start: the same time for all
//!   main thread counts faults ── arrives ── wait()┘
//! ```

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::clock::now_ns;
use crate::stop::Stop;

/// How often a waiting thread looks for the others.
const LOOK: Duration = Duration::from_micros(50);

/// Time from the last arrival to the start, in which all waiting threads wake up.
const LEAD: Duration = Duration::from_millis(1);

/// The threads of a run that are not set up yet, and the start once all are.
pub(super) struct Start {
    missing: AtomicUsize,
    at_ns: OnceLock<u64>,
}

impl Start {
    /// Makes a start that so many threads have to arrive at.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            missing: AtomicUsize::new(threads),
            at_ns: OnceLock::new(),
        }
    }

    /// Notes that a thread is set up.
    pub(super) fn arrive(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
    }

    /// Waits until all threads have arrived, and for the start itself. Returns its time, in
    /// nanoseconds of CLOCK_MONOTONIC, which is the same for all. Returns at once if the run ends.
    pub(super) fn wait(&self, stop: &Stop) -> u64 {
        while self.missing.load(Ordering::Acquire) != 0 {
            if stop.is_set() {
                return now_ns();
            }
            std::thread::sleep(LOOK);
        }
        let lead_ns = super::nanos(LEAD);
        let at_ns = *self.at_ns.get_or_init(|| now_ns() + lead_ns);
        while now_ns() < at_ns && !stop.is_set() {
            std::hint::spin_loop();
        }
        at_ns
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
