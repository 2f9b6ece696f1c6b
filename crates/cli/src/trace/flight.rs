//! The flight recorder: what went on around the first packet that took too long.

use std::time::Duration;

use ringside_measure::schema::{FlightRecord, RecordedEvent, RecordedPoint};
use ringside_measure::trace::{Disturber, Packet, Timeline};

use crate::session::nanos;

/// What goes on before a recorded packet is shown, too.
const BEFORE_NS: u64 = 1_000_000;

/// Looks for a packet that takes longer than a bound.
#[derive(Debug, Default)]
pub(super) struct Flight {
    bound_ns: Option<u64>,
    /// The first that did.
    pub(super) recorded: Option<FlightRecord>,
}

impl Flight {
    pub(super) fn at(bound: Option<Duration>) -> Self {
        Self {
            bound_ns: bound.map(nanos),
            recorded: None,
        }
    }

    /// Records it with what went on, if it is the one to stop at.
    pub(super) fn look_at(&mut self, packet: &Packet, timeline: &Timeline) {
        if self.recorded.is_none()
            && let Some(bound_ns) = self.bound_ns.filter(|bound| packet.whole_ns() > *bound)
        {
            self.recorded = Some(record(packet, timeline, bound_ns));
        }
    }
}

fn record(packet: &Packet, timeline: &Timeline, bound_ns: u64) -> FlightRecord {
    let first = packet.stamps.first().map_or(0, |stamp| stamp.ns);
    let since = |ns: u64| ns.cast_signed().wrapping_sub(first.cast_signed());
    let mut cpus: Vec<u32> = packet.stamps.iter().map(|stamp| stamp.place.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let from = first.saturating_sub(BEFORE_NS);
    let during = timeline.during(&cpus, from, first + packet.whole_ns());
    let event = |disturber: &Disturber| RecordedEvent {
        from_ns: since(disturber.from_ns),
        to_ns: since(disturber.to_ns),
        cpu: disturber.cpu,
        kind: disturber.kind,
        name: disturber.name.clone(),
        id: disturber.id,
    };
    FlightRecord {
        bound_ns,
        whole_ns: packet.whole_ns(),
        session: packet.id.session,
        sequence: packet.id.sequence,
        points: packet
            .stamps
            .iter()
            .map(|stamp| RecordedPoint {
                at_ns: stamp.ns - first,
                point: stamp.point,
                cpu: stamp.place.cpu,
            })
            .collect(),
        events: during.into_iter().map(event).collect(),
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
