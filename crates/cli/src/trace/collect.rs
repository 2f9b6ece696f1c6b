//! Reads what the kernel tells, and puts it together with what the application tells.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use ringside_bpf::{TraceDisturber, TraceEvent, TraceReader};
use ringside_measure::trace::{
    Breakdown, Correlator, Disturber, DisturberKind, Event, Heard, Id, Packet, Place, Point, Scheduled, Slowest,
    Timeline, Vcpus,
};

use super::flight::Flight;
use super::steal::Steal;
use super::tasks::TaskNames;

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
    /// What it stops at.
    pub(super) flight: Flight,
    /// What tracing programs have told since it began, of packets and of CPUs.
    pub(super) told: u64,
    names: TaskNames,
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
            flight: Flight::at(bound),
            told: 0,
            names: TaskNames::of_recorder(),
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
        self.told += (events.len() + disturbers.len()) as u64;
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
            self.timeline.add(named(disturber, &self.idle_states, &mut self.names));
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
                    if kept.len() >= CLOCK_PACKETS {
                        self.flight.look_at(&here, &self.timeline);
                    }
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
            if counts && self.flight.recorded.is_none() {
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
        self.flight.look_at(packet, &self.timeline);
    }
}

/// With its name. `idle`: those of idle states.
pub(super) fn named(disturber: TraceDisturber, idle: &HashMap<u32, String>, tasks: &mut TaskNames) -> Disturber {
    let known = |names: &[&str]| names.get(disturber.id as usize).map(|name| (*name).to_owned());
    let (kind, name) = match disturber.kind {
        0 => (
            DisturberKind::Interrupt,
            Some(format!("{} {}", disturber.id, disturber.name)),
        ),
        1 => (DisturberKind::Vector, known(&VECTORS)),
        2 => (DisturberKind::SoftInterrupt, known(&SOFT_INTERRUPTS)),
        3 => (DisturberKind::Task, Some(tasks.of(disturber.id, disturber.name))),
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
        measured_ns: back.measured_ns,
    })
}
