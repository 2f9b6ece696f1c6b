//! The clock of all measurements of the tool: CLOCK_MONOTONIC, in nanoseconds.

use ringside_nic::clock::{self, Monotonic, Timestamp};

/// Now, in nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    Timestamp::<Monotonic>::now().as_nanos()
}

/// The same for a packet's way: half the price, within some hundred nanoseconds of CLOCK_MONOTONIC. What one thread
/// measures by one of these is a difference of two of its readings.
pub(crate) struct FastClock(clock::FastClock);

impl FastClock {
    /// Takes two milliseconds.
    pub(crate) fn new() -> Self {
        Self(clock::FastClock::new())
    }

    #[inline]
    pub(crate) fn now_ns(&mut self) -> u64 {
        self.0.now().as_nanos()
    }

    /// How far its times may be from CLOCK_MONOTONIC.
    pub(crate) fn bound_ns(&self) -> u64 {
        self.0.bound_ns()
    }

    /// Not before all loads in front of it are done.
    #[inline]
    pub(crate) fn now_in_order_ns(&mut self) -> u64 {
        self.0.now_in_order().as_nanos()
    }
}

impl Drop for FastClock {
    fn drop(&mut self) {
        if let Some(reason) = self.0.lost() {
            crate::validity::counter_lost(reason);
        }
    }
}
