//! One-way times take two clocks, and a reason to believe that they can be compared.
//!
//! Questions about the time over the control connection alone are none: they know the difference to half of a round trip, which is
//! about what a one-way time is. They are good for checking: what is told of the clocks must not contradict what was seen.

use anyhow::{Result, bail};
use ringside_measure::control::ClockFacts;
use ringside_measure::latency::RttRecorder;
use ringside_measure::probe::{Clock, FarStamps, Probe};
use ringside_measure::schema::{ClockBasis, ClockOffset, LatencyKind, LatencyResult};
use ringside_nic::clock::{Discipline, Far as FarClock, Monotonic, Offset, Realtime, Timestamp, identity};

use super::far::{Far, TimeAsked};

/// Questions about the time; the quickest answer counts.
const QUESTIONS: u64 = 16;

/// How far the far `CLOCK_MONOTONIC` is ahead of this one, and how well that is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    basis: ClockBasis,
    offset_ns: i64,
    uncertainty_ns: u64,
    seen: Offset<Monotonic, FarClock>,
}

/// What is known of this host's clocks.
pub(super) fn own() -> ClockFacts {
    let discipline = Discipline::read().ok();
    ClockFacts {
        identity: identity().unwrap_or_default(),
        is_synchronised: discipline.is_some_and(|discipline| discipline.is_synchronised),
        most_error_ns: discipline.map_or(0, |discipline| discipline.most_error_ns),
    }
}

/// Returns whether an end with these clocks is on this machine.
pub(super) fn is_here(far: &ClockFacts) -> bool {
    !far.identity.is_empty() && identity().is_ok_and(|own| own == far.identity)
}

impl Clocks {
    /// Compares the clocks now.
    ///
    /// # Errors
    /// Says why one-way times would mean nothing, and what to do.
    pub(crate) fn compare(far: &Far) -> Result<Self> {
        let answers: Vec<TimeAsked> = (0..QUESTIONS).filter_map(|number| far.ask_time(number)).collect();
        let quickest = answers.iter().filter_map(|asked| Some((seen(asked)?, asked)));
        let Some((seen, asked)) = quickest.min_by_key(|(seen, _)| seen.uncertainty_ns()) else {
            bail!("--one-way: the far end does not tell what time it is");
        };
        // Of both, what CLOCK_REALTIME shows more than CLOCK_MONOTONIC.
        let own_real = Offset::<Monotonic, Realtime>::measure();
        let far_real = i128::from(asked.far_realtime_ns) - i128::from(asked.left_ns);
        let by_realtime = i64::try_from(i128::from(own_real.delta_ns()) - far_real).ok();
        judge(&own(), &far.ready.clock, by_realtime, own_real.uncertainty_ns(), seen)
    }

    /// With what was found when the run was over: what has changed between the two may have been anywhere in between.
    pub(crate) fn and_then(self, later: &Self) -> Self {
        let moved = self.offset_ns.abs_diff(later.offset_ns);
        let (basis, seen) = match later.seen.uncertainty_ns() < self.seen.uncertainty_ns() {
            true => (self.basis, later.seen),
            false => (self.basis, self.seen),
        };
        Self {
            basis,
            seen,
            uncertainty_ns: self.uncertainty_ns.max(later.uncertainty_ns).saturating_add(moved),
            ..self
        }
    }

    /// For the result; `reading_ns` is how well this end reads its own clock.
    pub(crate) fn record(&self, reading_ns: u64) -> ClockOffset {
        ClockOffset {
            basis: self.basis,
            offset_ns: self.offset_ns,
            uncertainty_ns: self.uncertainty_ns.saturating_add(reading_ns),
            seen_offset_ns: self.seen.delta_ns(),
            seen_uncertainty_ns: self.seen.uncertainty_ns(),
        }
    }
}

/// The far clock was read somewhere between the question and the answer, less the time that the answer took there.
fn seen(asked: &TimeAsked) -> Option<Offset<Monotonic, FarClock>> {
    let there = asked.left_ns.checked_sub(asked.came_ns)?;
    Offset::bracketed(
        Timestamp::from_nanos(asked.asked_ns),
        Timestamp::from_nanos(asked.came_ns),
        Timestamp::from_nanos(asked.heard_ns.checked_sub(there)?),
    )
}

/// Whether the clocks can be compared, and by what. `by_realtime` is how far the far CLOCK_MONOTONIC is ahead if both
/// CLOCK_REALTIME are the same.
fn judge(
    near: &ClockFacts,
    far: &ClockFacts,
    by_realtime: Option<i64>,
    reading_ns: u64,
    seen: Offset<Monotonic, FarClock>,
) -> Result<Clocks> {
    let contradicts = |offset_ns: i64, uncertainty_ns: u64| {
        seen.delta_ns().abs_diff(offset_ns) > seen.uncertainty_ns().saturating_add(uncertainty_ns)
    };
    // A copy of a running virtual machine has the identity of its original, and another clock.
    if !near.identity.is_empty() && near.identity == far.identity && !contradicts(0, 0) {
        return Ok(Clocks {
            basis: ClockBasis::SameKernel,
            offset_ns: 0,
            uncertainty_ns: 0,
            seen,
        });
    }
    let advice = format!(
        "Over the control connection the far clock is seen {} ns ahead, give or take {} ns, half of a round trip: as much as one-way \
         times themselves. Have both hosts' clocks disciplined (chrony; ptp4l and phc2sys for less than a microsecond), or leave --one-way \
         out: round trips take one clock",
        seen.delta_ns(),
        seen.uncertainty_ns()
    );
    let unsynchronised = match (near.is_synchronised, far.is_synchronised) {
        (true, true) => None,
        (false, true) => Some("this host's"),
        (true, false) => Some("the far end's"),
        (false, false) => Some("either host's"),
    };
    if let Some(whose) = unsynchronised {
        bail!("--one-way: the kernel does not count {whose} clock as synchronised. {advice}");
    }
    let uncertainty_ns = near
        .most_error_ns
        .saturating_add(far.most_error_ns)
        .saturating_add(reading_ns);
    let Some(offset_ns) = by_realtime.filter(|&offset| !contradicts(offset, uncertainty_ns)) else {
        bail!(
            "--one-way: both kernels say that their clocks are synchronised, within {uncertainty_ns} ns together, but that is not so. {advice}"
        );
    };
    Ok(Clocks {
        basis: ClockBasis::Synchronised,
        offset_ns,
        uncertainty_ns,
        seen,
    })
}

/// Times there and back, packet by packet.
#[derive(Debug)]
pub(crate) struct OneWay {
    clocks: Clocks,
    is_scheduled: bool,
    there: RttRecorder,
    back: RttRecorder,
}

impl OneWay {
    /// Begins with a comparison of the clocks. `is_scheduled`: probes have times at which they are
    /// due.
    pub(crate) fn new(clocks: Clocks, is_scheduled: bool) -> Self {
        Self {
            clocks,
            is_scheduled,
            there: RttRecorder::new(),
            back: RttRecorder::new(),
        }
    }

    /// Takes an answer, heard now. Without the far end's stamps it is none of these.
    pub(crate) fn record(&mut self, payload: &[u8], probe: &Probe, heard_ns: u64) {
        let Some(stamps) = FarStamps::read(payload) else { return };
        let by_own = |far_ns: u64| {
            let own = i128::from(far_ns) - i128::from(self.clocks.offset_ns);
            u64::try_from(own).unwrap_or(0)
        };
        let (came_ns, left_ns) = (by_own(stamps.came_ns), by_own(stamps.left_ns));
        self.there.record(probe.intended_ns, probe.sent_ns, came_ns);
        self.back.record(left_ns, left_ns, heard_ns);
    }

    /// Clocks, there, and back. `later` is the comparison at the end, if it could be made.
    pub(crate) fn results(
        &self,
        later: Option<&Clocks>,
        reading_ns: u64,
    ) -> (ClockOffset, LatencyResult, LatencyResult) {
        let clocks = later.map_or(self.clocks, |later| self.clocks.and_then(later));
        let one_way = |recorder| LatencyResult {
            kind: LatencyKind::OneWay,
            ..LatencyResult::round_trip(recorder, Clock::Monotonic)
        };
        let there = match self.is_scheduled {
            true => one_way(&self.there),
            false => one_way(&self.there).without_schedule(),
        };
        // Answers are sent when probes come.
        let back = one_way(&self.back).without_schedule();
        (clocks.record(reading_ns), there, back)
    }
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
