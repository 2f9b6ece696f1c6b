//! How a worker fares, for health, statistics and the keeper of caches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::counters::WorkerCounters;
use super::settling::SETTLED;
use super::sockets::Share;
use super::worker::now;

/// A worker whose loop has not turned for this time is stuck.
pub(super) const STUCK: Duration = Duration::from_secs(10);

/// What a worker says of itself.
#[derive(Debug)]
pub(super) struct WorkerStatus {
    /// Empty while it does not run.
    pub(super) name: ArcSwap<String>,
    pub(super) counters: WorkerCounters,
    /// Time of its loop's last turn, CLOCK_MONOTONIC in nanoseconds; `u64::MAX` while it does not
    /// run.
    pub(super) seen: AtomicU64,
    /// Its busy time at the last [`WorkerStatus::measure`].
    busy: AtomicU64,
    /// Its busy part of the time between the last two.
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

    /// Notes that it runs. Its queues are its name.
    pub(super) fn begin(&self, share: &Share) {
        let of_port = |(_, port): &(u8, ringside_xsk::Port)| {
            let queues: Vec<String> = port.queues().iter().map(|queue| queue.id().to_string()).collect();
            format!("{} queue {}", port.interface().name(), queues.join(","))
        };
        let name = share.iter().map(of_port).collect::<Vec<_>>().join(", ");
        self.name.store(Arc::new(name));
        self.seen.store(now(), Ordering::Relaxed);
    }

    /// Notes that it has ended.
    pub(super) fn end(&self) {
        self.name.store(Arc::default());
        self.seen.store(u64::MAX, Ordering::Relaxed);
    }

    /// Returns whether its loop has not turned for [`STUCK`].
    pub(super) fn is_stuck(&self) -> bool {
        let since = now().saturating_sub(self.seen.load(Ordering::Relaxed));
        u128::from(since) >= STUCK.as_nanos()
    }

    /// Returns whether its loop has not turned for half of [`SETTLED`]: it may hold packets that
    /// are nearly a second old.
    pub(super) fn is_held_up(&self, now: u64) -> bool {
        now.saturating_sub(self.seen.load(Ordering::Relaxed)) >= SETTLED / 2
    }

    /// Computes its busy part of the time since the last call, `since`.
    pub(super) fn measure(&self, since: Duration) {
        let busy = self.counters.read().busy;
        let more = u128::from(busy - self.busy.swap(busy, Ordering::Relaxed));
        let permille = (more * 1000 / since.as_nanos().max(1)).min(1000);
        self.permille
            .store(u16::try_from(permille).unwrap_or(1000), Ordering::Relaxed);
    }
}
