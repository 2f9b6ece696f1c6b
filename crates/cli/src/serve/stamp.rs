//! The far end's times in a probe that asks for them.

use ringside_measure::probe::{Clock, FarStamps, Probe};

use crate::clock::{FastClock, now_ns};
use crate::run::echo::Reply;

/// Writes this end's times into a probe that asks for them.
pub(super) fn stamp(probe: &Probe, payload: &mut [u8], stamps: impl FnOnce() -> FarStamps) -> Reply {
    if probe.clock != Clock::Monotonic || !FarStamps::are_wanted(payload) {
        return Reply::AsItIs;
    }
    stamps().give(payload);
    Reply::Changed
}

/// Both times by `CLOCK_MONOTONIC`, of a packet that came at `came_ns` of another clock.
pub(super) fn by_monotonic(came_ns: u64, clock: &mut FastClock) -> FarStamps {
    translate(came_ns, || clock.now_ns(), now_ns)
}

/// How often both clocks are read.
const READINGS: u32 = 3;

/// `CLOCK_MONOTONIC` is read between two readings of the other clock. Where the thread had to wait
/// between the two, the answer would be wrong by as much: the closest pair counts.
fn translate(came_ns: u64, mut other: impl FnMut() -> u64, mut monotonic: impl FnMut() -> u64) -> FarStamps {
    let mut before = other();
    let readings = (0..READINGS).map(|_| {
        let left_ns = monotonic();
        let after = other();
        let apart = after.saturating_sub(before);
        let since_came = before.saturating_sub(came_ns) + apart / 2;
        before = after;
        (apart, left_ns, since_came)
    });
    let (_, left_ns, since_came) = readings.min_by_key(|&(apart, ..)| apart).unwrap_or_default();
    FarStamps {
        came_ns: left_ns.saturating_sub(since_came),
        left_ns,
    }
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
