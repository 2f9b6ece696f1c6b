//! How many packets of one direction a worker has handled, and from when to when.

use std::sync::atomic::{AtomicU64, Ordering};

use ringside_measure::rate::Span;

/// Packets of one direction. One worker adds to it once a burst, and the main thread reads it.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    packets: AtomicU64,
    first_packets: AtomicU64,
    first_ns: AtomicU64,
    last_ns: AtomicU64,
}

impl Flow {
    /// Adds a burst that has just passed. Only one thread may call it.
    #[inline]
    pub(super) fn add(&self, packets: u64, now_ns: u64) {
        let before = self.packets();
        if before == 0 {
            self.first_packets.store(packets, Ordering::Relaxed);
            self.first_ns.store(now_ns, Ordering::Relaxed);
        }
        self.last_ns.store(now_ns, Ordering::Relaxed);
        self.packets.store(before + packets, Ordering::Relaxed);
    }

    /// Returns the number of packets until now.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Returns the time between the first and the last burst; `None` before the first. Complete
    /// only after the worker has ended.
    pub(super) fn span(&self) -> Option<Span> {
        (self.packets() != 0).then(|| Span {
            first_ns: self.first_ns.load(Ordering::Relaxed),
            first_packets: self.first_packets.load(Ordering::Relaxed),
            last_ns: self.last_ns.load(Ordering::Relaxed),
        })
    }
}
