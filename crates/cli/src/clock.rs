//! The clock of all measurements of the tool: CLOCK_MONOTONIC, in nanoseconds, by vDSO.

use rustix::time::{ClockId, clock_gettime};

/// Now, in nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
