//! Reads what the kernel tells, and puts it together with what the application tells.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use ringside_bpf::{TraceDisturber, TraceEvent, TraceReader};
use ringside_measure::schema::{FlightRecord, RecordedEvent, RecordedPoint};
use ringside_measure::trace::{
    Breakdown, Correlator, Disturber, DisturberKind, Event, Heard, Id, Packet, Place, Point, Scheduled, Slowest,
    Timeline, Vcpus,
};

use super::steal::Steal;
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

/// A request and its answer, as this host saw them.
pub(super) struct Asked {
    pub(super) there: Packet,
    pub(super) back: Packet,
}

/// Packets that are kept before one of them may be the last: another clock is known by them.
const CLOCK_PACKETS: usize = 20;

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
    /// Requests and answers are told apart, and kept: others know more of them.
    kept: Option<Vec<Asked>>,
    /// Numbers of virtual CPUs by their threads, and what is done with these.
    threads: HashMap<u32, u32>,
    vcpus: Vcpus,
    bound: Option<u64>,
    /// A packet that exceeded the bound.
    pub(super) recorded: Option<FlightRecord>,
    idle_states: HashMap<u32, String>,
    steal: Option<Steal>,
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
            kept: None,
            threads: HashMap::new(),
            vcpus: Vcpus::new(),
            bound: bound.map(nanos),
            recorded: None,
            idle_states: idle_states(),
            steal: Steal::watch(),
        }
    }

    /// One that keeps requests and answers; of the slowest, and of one that takes longer than the bound, it knows what this host's CPUs did.
    pub(super) fn keeping(reader: TraceReader, bound: Option<Duration>) -> Self {
        Self {
            kept: Some(Vec::new()),
            ..Self::new(reader, Correlator::new(), bound)
        }
    }

    /// A virtual CPU of the guest that packets are kept of has such a thread, which is watched.
    pub(super) fn watch(&mut self, vcpu: u32, thread: u32) {
        self.threads.insert(thread, vcpu);
        self.vcpus.watch(vcpu);
    }

    /// What was done with them.
    pub(super) fn take_vcpus(&mut self) -> Vcpus {
        std::mem::take(&mut self.vcpus)
    }

    /// What was kept.
    pub(super) fn take_kept(&mut self) -> Vec<Asked> {
        self.kept.replace(Vec::new()).unwrap_or_default()
    }

    /// Takes what the kernel has told so far.
    pub(super) fn read(&mut self) -> Result<()> {
        let (events, disturbers) = self.reader.read()?;
        for event in events.iter().map(Seen::from) {
            if let Some((what, thread)) = event.scheduled() {
                if let Some(vcpu) = self.threads.get(&thread) {
                    self.vcpus.changed(*vcpu, event.ns, what, event.cpu);
                }
                continue;
            }
            let is_of_reader = matches!(event.point(), Some(Point::Waking | Point::Running));
            if let Some(receiver) = self.receiver.filter(|_| is_of_reader)
                && event.extra[0] != u64::from(receiver)
            {
                continue;
            }
            event.tell(&mut self.correlator, self.kept.is_some());
        }
        // Where what CPUs do is looked at.
        if let Some(steal) = self.steal.as_mut().filter(|_| !disturbers.is_empty()) {
            steal.look().into_iter().for_each(|taken| self.timeline.add(taken));
        }
        for disturber in disturbers {
            self.timeline.add(named(disturber, &self.idle_states));
        }
        Ok(())
    }

    /// The application has a packet of which the kernel has told all. Not `counts`: it is forgotten.
    pub(super) fn heard(&mut self, id: Id, heard: Heard, counts: bool) {
        if let Some(kept) = &mut self.kept {
            let back = self.correlator.heard(answer_of(id), heard);
            let there = self.correlator.over(id);
            if counts {
                let here = here(&there, &back);
                kept.push(Asked { there, back });
                if let Some(here) = here {
                    self.slowest.record(&here, &self.timeline, &self.own);
                    self.look_at(&here);
                }
            }
            return;
        }
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
        // The slowest are those of the figures.
        if self.breakdown.record(packet) {
            self.slowest.record(packet, &self.timeline, &self.own);
        }
        self.look_at(packet);
    }

    /// Whether it is the one to stop at.
    fn look_at(&mut self, packet: &Packet) {
        let is_enough = self.kept.as_ref().is_none_or(|kept| kept.len() >= CLOCK_PACKETS);
        if let Some(bound_ns) = self.bound.filter(|bound| packet.whole_ns() > *bound && is_enough)
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
}

/// With its name. `idle`: those of idle states.
pub(super) fn named(disturber: TraceDisturber, idle: &HashMap<u32, String>) -> Disturber {
    let known = |names: &[&str]| names.get(disturber.id as usize).map(|name| (*name).to_owned());
    let (kind, name) = match disturber.kind {
        0 => (
            DisturberKind::Interrupt,
            Some(format!("{} {}", disturber.id, disturber.name)),
        ),
        1 => (DisturberKind::Vector, known(&VECTORS)),
        2 => (DisturberKind::SoftInterrupt, known(&SOFT_INTERRUPTS)),
        3 => (DisturberKind::Task, Some(disturber.name)),
        _ => (DisturberKind::Idle, idle.get(&disturber.id).cloned()),
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

/// What is told of a point, here or in a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    ns: u64,
    sequence: u64,
    extra: [u64; 2],
    session: u32,
    namespace: u32,
    interface: u32,
    cpu: u32,
    point: u8,
    kind: u8,
}

impl From<&TraceEvent> for Seen {
    fn from(event: &TraceEvent) -> Self {
        Self {
            ns: event.ns,
            sequence: event.sequence,
            extra: event.extra,
            session: event.session,
            namespace: event.namespace,
            interface: event.interface,
            cpu: event.cpu.into(),
            point: event.point,
            kind: event.kind,
        }
    }
}

impl Seen {
    /// As it is written into a file.
    pub(super) fn row(&self) -> [u64; 10] {
        let [first, second] = self.extra;
        [
            self.ns,
            self.sequence,
            first,
            second,
            self.session.into(),
            self.namespace.into(),
            self.interface.into(),
            self.cpu.into(),
            self.point.into(),
            self.kind.into(),
        ]
    }

    /// From a file; `None` where a number is none that stands there.
    pub(super) fn of_row(row: &[u64; 10]) -> Option<Self> {
        let [
            ns,
            sequence,
            first,
            second,
            session,
            namespace,
            interface,
            cpu,
            point,
            kind,
        ] = *row;
        let word = |value: u64| u32::try_from(value).ok();
        Some(Self {
            ns,
            sequence,
            extra: [first, second],
            session: word(session)?,
            namespace: word(namespace)?,
            interface: word(interface)?,
            cpu: word(cpu)?,
            point: u8::try_from(point).ok()?,
            kind: u8::try_from(kind).ok()?,
        })
    }

    fn point(&self) -> Option<Point> {
        Point::ALL.get(usize::from(self.point)).copied()
    }

    /// What was done with a task that is watched, and with which.
    fn scheduled(&self) -> Option<(Scheduled, u32)> {
        let what = match self.point {
            TraceEvent::TASK_WOKEN => Scheduled::Woken,
            TraceEvent::TASK_ON => Scheduled::On,
            TraceEvent::TASK_OFF => Scheduled::Off,
            _ => return None,
        };
        Some((what, u32::try_from(self.extra[0]).ok()?))
    }

    /// The task that was woken for a packet.
    pub(super) fn reader(&self) -> Option<u32> {
        let is_of_reader = matches!(self.point(), Some(Point::Waking | Point::Running));
        is_of_reader.then(|| u32::try_from(self.extra[0]).ok()).flatten()
    }

    /// Hands it on. `apart`: an answer is another packet than its request.
    pub(super) fn tell(&self, correlator: &mut Correlator, apart: bool) {
        let Some(point) = self.point() else { return };
        let passed = self.passed(point, apart);
        match (self.kind, point) {
            (0, Point::Copy) => correlator.taken(self.extra[0], self.ns, passed.place),
            (0, Point::Ready) if self.sequence == 0 => correlator.other(self.extra[0], self.extra[1]),
            (0, _) => correlator.unnamed(&passed),
            _ => correlator.passed(&passed),
        }
    }

    fn passed(&self, point: Point, apart: bool) -> Event {
        let before = match point {
            Point::Ready | Point::Waking | Point::Running | Point::Copy => [0; 2],
            _ => self.extra,
        };
        let id = Id {
            session: self.session,
            sequence: self.sequence,
        };
        Event {
            id: if apart && self.kind == REPLY { answer_of(id) } else { id },
            point,
            ns: self.ns,
            place: Place {
                cpu: self.cpu,
                interface: self.interface,
                namespace: self.namespace,
                is_guest: false,
            },
            before: before.map(|ns| (ns != 0).then_some(ns)),
            socket: (point == Point::Ready).then_some(self.extra[0]),
            task: self.reader(),
        }
    }
}

/// The kind of an event that is about an answer.
const REPLY: u8 = 2;

/// What the answer to a packet is called where it is told apart.
pub(super) fn answer_of(id: Id) -> Id {
    Id {
        session: id.session ^ (1 << 31),
        ..id
    }
}

/// What the kernel calls its idle states; without cpuidle there is one, in which a CPU halts.
pub(super) fn idle_states() -> HashMap<u32, String> {
    let read = |state: u32| {
        let name = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cpuidle/state{state}/name")).ok()?;
        Some((state, name.trim().to_owned()))
    };
    (0..16).map_while(read).collect()
}
/// This host's part of a packet that was asked and answered, as one; `None` where one of the ways was not seen.
fn here(there: &Packet, back: &Packet) -> Option<Packet> {
    let is_seen = !there.stamps.is_empty() && !back.stamps.is_empty();
    is_seen.then(|| Packet {
        id: there.id,
        stamps: there.stamps.iter().chain(&back.stamps).copied().collect(),
        disorder_ns: there.disorder_ns.max(back.disorder_ns),
    })
}
