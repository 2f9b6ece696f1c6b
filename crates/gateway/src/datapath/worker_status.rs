//! How a worker fares, for health, statistics and the keeper of caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::counters::WorkerCounters;
use super::settling::SETTLED;
use super::sockets::Share;
use super::worker::now;

/// A worker that has not come round for so long is stuck.
pub(super) const STUCK: Duration = Duration::from_secs(10);

/// What a worker says of itself.
#[derive(Debug)]
pub(super) struct WorkerStatus {
    /// Empty while it does not run.
    pub(super) name: ArcSwap<String>,
    pub(super) counters: WorkerCounters,
    /// When it came round last, CLOCK_MONOTONIC in nanoseconds; later than any time while it does not run.
    pub(super) seen: AtomicU64,
    /// Its busy time when it was measured last, and how much of the time before that was.
    busy: AtomicU64,
    pub(super) permille: AtomicU16,
}

impl WorkerStatus {
    pub(super) fn new() -> Self {
        Self {
            name: ArcSwap::default(),
            counters: WorkerCounters::default(),
            seen: u64::MAX.into(),
            busy: AtomicU64::new(0),
            permille: AtomicU16::new(0),
        }
    }

    /// It runs from now on. It is called by its queues.
    pub(super) fn begin(&self, share: &Share) {
        let of_port = |(_, port): &(u8, ringside_xsk::Port)| {
            let queues: Vec<String> = port.queues().iter().map(|queue| queue.id().to_string()).collect();
            format!("{} queue {}", port.interface().name(), queues.join(","))
        };
        let name = share.iter().map(of_port).collect::<Vec<_>>().join(", ");
        self.name.store(Arc::new(name));
        self.seen.store(now(), Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.name.store(Arc::default());
        self.seen.store(u64::MAX, Ordering::Relaxed);
    }

    pub(super) fn is_stuck(&self) -> bool {
        let since = now().saturating_sub(self.seen.load(Ordering::Relaxed));
        u128::from(since) >= STUCK.as_nanos()
    }

    /// It has not come round for so long that it may have packets that are nearly a second old.
    pub(super) fn is_held_up(&self, now: u64) -> bool {
        now.saturating_sub(self.seen.load(Ordering::Relaxed)) >= SETTLED / 2
    }

    pub(super) fn measure(&self, since: Duration) {
        let busy = self.counters.read().busy;
        let more = u128::from(busy - self.busy.swap(busy, Ordering::Relaxed));
        let permille = (more * 1000 / since.as_nanos().max(1)).min(1000);
        self.permille
            .store(u16::try_from(permille).unwrap_or(1000), Ordering::Relaxed);
    }
}
