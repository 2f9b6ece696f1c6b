//! One way to a guest or another machine, whose clock is another one: it is brought to this machine's by the probes themselves ([`ringside_measure::mapping`]).
//!
//! None came to the guest before it was sent, and no answer came back before it had left. What these leave open is the uncertainty, which
//! is about half of the shortest round trip: where that is more than was asked for, there are no times.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ringside_measure::latency::RttRecorder;
use ringside_measure::mapping::{Bounds, Mapping};
use ringside_measure::probe::FarStamps;
use ringside_measure::schema::LabClock;

use super::bed::Bed;
use super::plan::Plan;
use crate::clock::now_ns;
use crate::report::units;

/// A round trip with the far end's times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) intended_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) stamps: FarStamps,
    pub(super) heard_ns: u64,
}

/// The times there, on this machine's clock.
///
/// # Errors
/// When the other clock is not known as well as was asked for.
pub(super) fn times(trips: &[Trip], most: Duration) -> Result<(RttRecorder, Mapping)> {
    let mut bounds = Bounds::new();
    for trip in trips {
        bounds.there(trip.sent_ns, trip.stamps.came_ns);
        bounds.back(trip.stamps.left_ns, trip.heard_ns);
    }
    let mapping = bounds.fit().context("no answer had the other end's times")?;
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let written = |ns: u64| units::time(ns as f64);
    if mapping.contradiction_ns() > 0 {
        bail!(
            "one way is not to be had: the other clock does not run evenly, for what it showed contradicts itself by {}",
            written(mapping.contradiction_ns())
        );
    }
    if u128::from(mapping.uncertainty_ns()) > most.as_nanos() {
        bail!(
            "one way is not to be had: the other clock is known to {} in either direction, and uncertainty = \"{}us\" is asked for",
            written(mapping.uncertainty_ns()),
            most.as_micros()
        );
    }
    let mut times = RttRecorder::new();
    for trip in trips {
        times.record(trip.intended_ns, trip.sent_ns, mapping.here(trip.stamps.came_ns));
    }
    Ok((times, mapping))
}

/// For the result, with what a guest itself answers to some questions.
pub(super) fn clock(mapping: &Mapping, plan: &Plan, bed: &Bed, guest: Option<usize>) -> LabClock {
    let ask = |guest| Ok::<_, anyhow::Error>(bed.machine(plan, guest)?.clock_offset()?);
    let asked = guest.and_then(|guest| ask(guest).ok());
    let now = now_ns();
    LabClock {
        offset_ns: mapping.offset_ns(now),
        rate_ppm: mapping.rate_ppm(),
        uncertainty_ns: mapping.uncertainty_ns(),
        contradiction_ns: mapping.contradiction_ns(),
        bounds: mapping.bounds() as u64,
        asked_uncertainty_ns: asked.as_ref().map(|asked| asked.uncertainty_ns()),
        asked_apart_ns: asked.map(|asked| asked.delta_ns().abs_diff(mapping.offset_ns(now))),
    }
}

#[cfg(test)]
#[path = "one_way_tests.rs"]
mod tests;
