//! Reads what the kernel tells, and puts it together with what the application tells.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use ringside_bpf::{TraceDisturber, TraceEvent, TraceReader};
use ringside_measure::schema::{FlightRecord, RecordedEvent, RecordedPoint};
use ringside_measure::trace::{
    Breakdown, Correlator, Disturber, DisturberKind, Event, Heard, Id, Packet, Place, Point, Slowest, Timeline,
};

use crate::session::nanos;

/// What goes on before a recorded packet is shown, too.
const BEFORE_NS: u64 = 1_000_000;
/// For how long what CPUs did is remembered: packets that take longer are told about with the end of it.
const REMEMBERED_NS: u64 = 2_000_000_000;

/// Soft interrupts by their numbers: <https://elixir.bootlin.com/linux/v6.18/source/include/linux/interrupt.h#L553>
const SOFT_INTERRUPTS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];
/// As numbered in trace.bpf.c.
const VECTORS: [&str; 5] = [
    "local timer",
    "reschedule",
    "function call",
    "single function call",
    "irq work",
];

/// Packets, put together.
pub(super) struct Collector {
    reader: TraceReader,
    correlator: Correlator,
    timeline: Timeline,
    pub(super) breakdown: Breakdown,
    pub(super) slowest: Slowest,
    /// Numbers of the tasks that are the path itself.
    pub(super) own: Vec<u32>,
    /// Of them the one that receives, if it is ours.
    pub(super) receiver: Option<u32>,
    bound: Option<u64>,
    /// A packet that exceeded the bound.
    pub(super) recorded: Option<FlightRecord>,
    idle_states: HashMap<u32, String>,
}

impl Collector {
    pub(super) fn new(reader: TraceReader, correlator: Correlator, bound: Option<Duration>) -> Self {
        Self {
            reader,
            correlator,
            timeline: Timeline::new(),
            breakdown: Breakdown::new(),
            slowest: Slowest::new(),
            own: Vec::new(),
            receiver: None,
            bound: bound.map(nanos),
            recorded: None,
            idle_states: idle_states(),
        }
    }

    /// Takes what the kernel has told so far.
    pub(super) fn read(&mut self) -> Result<()> {
        let (events, disturbers) = self.reader.read()?;
        for event in &events {
            let Some(point) = Point::ALL.get(usize::from(event.point)).copied() else {
                continue;
            };
            let is_of_reader = matches!(point, Point::Waking | Point::Running);
            if let Some(receiver) = self.receiver.filter(|_| is_of_reader)
                && event.extra[0] != u64::from(receiver)
            {
                continue;
            }
            let passed = passed(event, point);
            match (event.kind, point) {
                (0, Point::Copy) => self.correlator.taken(event.extra[0], event.ns, passed.place),
                (0, Point::Ready) if event.sequence == 0 => self.correlator.other(event.extra[0]),
                (0, _) => self.correlator.unnamed(&passed),
                _ => self.correlator.passed(&passed),
            }
        }
        for disturber in disturbers {
            let disturber = self.named(disturber);
            self.timeline.add(disturber);
        }
        Ok(())
    }

    /// The application has a packet of which the kernel has told all. Not `counts`: it is forgotten.
    pub(super) fn heard(&mut self, id: Id, heard: Heard, counts: bool) {
        let packet = self.correlator.heard(id, heard);
        if counts {
            self.record(&packet);
        }
    }

    /// Packets about which nothing was told since then are over. Not `counts`: they are forgotten.
    pub(super) fn settle(&mut self, before_ns: u64, counts: bool) {
        for packet in self.correlator.settled(before_ns) {
            if counts && self.recorded.is_none() {
                self.record(&packet);
            }
        }
        self.timeline.forget(before_ns.saturating_sub(REMEMBERED_NS));
    }

    fn record(&mut self, packet: &Packet) {
        self.breakdown.record(packet);
        self.slowest.record(packet, &self.timeline, &self.own);
        if let Some(bound_ns) = self.bound.filter(|bound| packet.whole_ns() > *bound)
            && self.recorded.is_none()
        {
            self.recorded = Some(self.flight(packet, bound_ns));
        }
    }

    fn flight(&self, packet: &Packet, bound_ns: u64) -> FlightRecord {
        let first = packet.stamps.first().map_or(0, |stamp| stamp.ns);
        let since = |ns: u64| ns.cast_signed().wrapping_sub(first.cast_signed());
        let mut cpus: Vec<u32> = packet.stamps.iter().map(|stamp| stamp.place.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let from = first.saturating_sub(BEFORE_NS);
        let during = self.timeline.during(&cpus, from, first + packet.whole_ns());
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

    fn named(&self, disturber: TraceDisturber) -> Disturber {
        let known = |names: &[&str]| names.get(disturber.id as usize).map(|name| (*name).to_owned());
        let (kind, name) = match disturber.kind {
            0 => (
                DisturberKind::Interrupt,
                Some(format!("{} {}", disturber.id, disturber.name)),
            ),
            1 => (DisturberKind::Vector, known(&VECTORS)),
            2 => (DisturberKind::SoftInterrupt, known(&SOFT_INTERRUPTS)),
            3 => (DisturberKind::Task, Some(disturber.name)),
            _ => (DisturberKind::Idle, self.idle_states.get(&disturber.id).cloned()),
        };
        Disturber {
            kind,
            name: name.unwrap_or_else(|| disturber.id.to_string()),
            id: disturber.id,
            cpu: disturber.cpu.into(),
            from_ns: disturber.from_ns,
            to_ns: disturber.to_ns,
        }
    }
}

fn passed(event: &TraceEvent, point: Point) -> Event {
    let before = match point {
        Point::Ready | Point::Waking | Point::Running | Point::Copy => [0; 2],
        _ => event.extra,
    };
    Event {
        id: Id {
            session: event.session,
            sequence: event.sequence,
        },
        point,
        ns: event.ns,
        place: Place {
            cpu: event.cpu.into(),
            interface: event.interface,
            namespace: event.namespace,
        },
        before: before.map(|ns| (ns != 0).then_some(ns)),
        socket: (point == Point::Ready).then_some(event.extra[0]),
    }
}

/// What the kernel calls its idle states; without cpuidle there is one, in which a CPU halts.
fn idle_states() -> HashMap<u32, String> {
    let read = |state: u32| {
        let name = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/name")).ok()?;
        Some((state, name.trim().to_owned()))
    };
    (0..16).map_while(read).collect()
}
