//! The time by which what was deleted grows old: seconds that count up from a beginning, whatever becomes of the wall clock.
//!
//! Who forgets by the wall clock forgets everything when that jumps ahead, and a late statement brings back what was deleted. So
//! the wall clock is asked once, by the first gateway that has something to remember; from then on time is that in which a gateway
//! runs. It stays behind the wall clock by the time in which none did, and what is deleted is remembered for that much longer.

use std::time::{Duration, Instant};

/// Seconds since 1970, more or less: see the module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Steady {
    began: i64,
    since: Instant,
}

impl Steady {
    /// It is so late now.
    pub(crate) fn at(now: i64) -> Self {
        Self {
            began: now,
            since: Instant::now(),
        }
    }

    /// What time it is.
    pub(crate) fn now(&self) -> i64 {
        let passed = i64::try_from(self.since.elapsed().as_secs()).unwrap_or(i64::MAX);
        self.began.saturating_add(passed)
    }
}

/// Between two looks for what is old enough to be forgotten: a minute, or less where little is remembered.
pub(crate) fn forget_every(age: Duration) -> Duration {
    (age / 4).clamp(Duration::from_secs(1), Duration::from_secs(60))
}
