//! Writes the server's receive and transmit times into probes.

use ringside_measure::probe::{Clock, FarStamps, Probe};

use crate::clock::{FastClock, now_ns};
use crate::run::echo::Reply;

/// Writes `stamps` into a probe that requests them.
pub(super) fn stamp(probe: &Probe, payload: &mut [u8], stamps: impl FnOnce() -> FarStamps) -> Reply {
    if probe.clock != Clock::Monotonic || !FarStamps::are_wanted(payload) {
        return Reply::AsItIs;
    }
    stamps().give(payload);
    Reply::Changed
}

/// Returns both times in `CLOCK_MONOTONIC`. `came_ns` is the arrival by `clock`.
pub(super) fn by_monotonic(came_ns: u64, clock: &mut FastClock) -> FarStamps {
    translate(came_ns, || clock.now_ns(), now_ns)
}

/// Maximum number of attempts to read both clocks without preemption in between.
const MAX_READINGS: u32 = 3;
/// Two readings of the other clock this close together need no further attempt.
const CLOSE_NS: u64 = 1_000;

/// Reads `CLOCK_MONOTONIC` between two readings of the other clock and returns the closest pair.
/// Preemption between the readings would shift the arrival by its duration.
fn translate(came_ns: u64, mut other: impl FnMut() -> u64, mut monotonic: impl FnMut() -> u64) -> FarStamps {
    let (mut closest_ns, mut left_ns, mut since_came) = (u64::MAX, 0, 0);
    let mut before = other();
    for _ in 0..MAX_READINGS {
        let now_ns = monotonic();
        let after = other();
        let apart_ns = after.saturating_sub(before);
        if apart_ns < closest_ns {
            let middle = before.saturating_sub(came_ns) + apart_ns / 2;
            (closest_ns, left_ns, since_came) = (apart_ns, now_ns, middle);
        }
        if closest_ns <= CLOSE_NS {
            break;
        }
        before = after;
    }
    FarStamps {
        came_ns: left_ns.saturating_sub(since_came),
        left_ns,
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
