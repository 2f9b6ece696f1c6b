//! The receiver's side of a schedule: what each class's packets tell by when they come.

use crate::latency::{Jitter, JitterEstimator, Latency};
use crate::probe::{Clock, Kind, Probe};
use crate::schedule::{Class, Schedule, StreamPart};
use crate::sequence::{Arrival, Arrivals};

/// Numbers of a class that are remembered, to tell a double from a late one.
const WINDOW: usize = 1 << 16;

/// A packet that came.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Its probe, whose times are of CLOCK_TAI.
    pub probe: Probe,
    /// Its stream's part.
    pub part: StreamPart,
    /// Priority of its VLAN tag; `None` where it has no tag, or nobody tells it.
    pub pcp: Option<u8>,
    /// When it came, in nanoseconds of CLOCK_TAI.
    pub at_ns: u64,
}

/// In place of a priority that nobody tells.
const NO_PCP: u64 = 8;

impl Received {
    /// As numbers that can be kept: session, number, intended and sending time, what the stream's part says, priority of the tag, and when
    /// it came.
    #[must_use]
    pub fn row(&self) -> [u64; 7] {
        [
            self.probe.session.into(),
            self.probe.sequence,
            self.probe.intended_ns,
            self.probe.sent_ns,
            u64::from(self.part.skipped) << 24 | u64::from(self.part.number) << 8 | u64::from(self.part.pcp),
            self.pcp.map_or(NO_PCP, u64::from),
            self.at_ns,
        ]
    }

    /// The packet of such a row; `None` if these are no numbers of one.
    #[must_use]
    pub fn of_row(&[session, sequence, intended_ns, sent_ns, part, pcp, at_ns]: &[u64; 7]) -> Option<Self> {
        Some(Self {
            probe: Probe {
                kind: Kind::Request,
                clock: Clock::Tai,
                session: session.try_into().ok()?,
                sequence,
                intended_ns,
                sent_ns,
            },
            part: StreamPart {
                pcp: (part & 0xff).try_into().ok()?,
                number: (part >> 8 & 0xffff).try_into().ok()?,
                skipped: (part >> 24).try_into().ok()?,
            },
            pcp: match pcp {
                NO_PCP => None,
                pcp => Some(u8::try_from(pcp).ok().filter(|pcp| *pcp < 8)?),
            },
            at_ns,
        })
    }
}

/// By how much the fastest of some packets came after it was due, in nanoseconds; less than zero where the two clocks say so. `None`
/// without packets.
///
/// Taken off all of them, times are left that one clock is enough for: by how much a packet was slower than the fastest.
#[must_use]
pub fn fastest_ns<'p>(packets: impl IntoIterator<Item = &'p Received>) -> Option<i64> {
    let late = |packet: &Received| {
        let late = i128::from(packet.at_ns) - i128::from(packet.probe.intended_ns);
        i64::try_from(late).ok()
    };
    packets.into_iter().filter_map(late).min()
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Counted for its class, in its window.
    InWindow,
    /// Counted for its class, before its window began.
    Early,
    /// Counted for its class, when its window was over.
    Late,
    /// Of the class, but no first arrival: a double, or too old to tell.
    Again,
    /// Another talker's.
    OtherSession,
    /// Of a class that the schedule does not have, or due at a time that is not in the class's window: the talker has another
    /// schedule.
    OtherSchedule,
}

/// Packets outside of their window.
#[derive(Debug, Clone, Default)]
pub struct WindowMisses {
    /// How many.
    pub packets: u64,
    /// By how much at the most, in nanoseconds.
    pub most_ns: u64,
    sum_ns: u128,
}

impl WindowMisses {
    fn note(&mut self, ns: u64) {
        self.packets += 1;
        self.most_ns = self.most_ns.max(ns);
        self.sum_ns += u128::from(ns);
    }

    /// By how much on average, in nanoseconds.
    #[must_use]
    pub fn mean_ns(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.sum_ns as f64 / self.packets as f64)
    }
}

/// What is known of a class.
#[derive(Debug, Clone)]
pub struct Stream {
    arrivals: Arrivals,
    /// The first number that came: what was sent before it listened is not lost.
    first: Option<u64>,
    /// What the talker had skipped by that packet, and by the one with the highest number.
    skipped: [u32; 2],
    last_ns: Option<u64>,
    /// From the intended time to the arrival.
    pub latency: Latency,
    /// From the real sending to the arrival.
    pub path: Latency,
    /// From one arrival to the next.
    pub gap: Latency,
    jitter: JitterEstimator,
    /// Came before their window.
    pub early: WindowMisses,
    /// Came after it.
    pub late: WindowMisses,
    /// Came twice.
    pub duplicated: u64,
    /// Came after one with a higher number.
    pub reordered: u64,
    /// By how many numbers at the most.
    pub longest_reordering: u64,
    /// Their VLAN tag's priority is another one than they were sent with.
    pub changed_pcp: u64,
    /// They had no VLAN tag, or nobody told it.
    pub untold_pcp: u64,
    /// They came before they were due or sent, by the clocks: no time is taken of them.
    pub impossible: u64,
    /// Came so late that nobody knows whether they came before.
    pub too_old: u64,
}

impl Stream {
    fn new() -> Self {
        Self {
            arrivals: Arrivals::new(WINDOW),
            first: None,
            skipped: [0; 2],
            last_ns: None,
            latency: Latency::new(),
            path: Latency::new(),
            gap: Latency::new(),
            jitter: JitterEstimator::new(),
            early: WindowMisses::default(),
            late: WindowMisses::default(),
            duplicated: 0,
            reordered: 0,
            longest_reordering: 0,
            changed_pcp: 0,
            untold_pcp: 0,
            impossible: 0,
            too_old: 0,
        }
    }

    /// Packets that came, each once.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.arrivals.received()
    }

    /// Packets that would have come by the highest number. What is lost behind it nobody knows.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.arrivals.expected()
    }

    /// Returns how many of them the talker has not sent, as it says itself: it was too late for
    /// them.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        let [first, last] = self.skipped;
        u64::from(last.wrapping_sub(first)).min(self.expected().saturating_sub(self.received()))
    }

    /// Returns how many of them were sent and did not come.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.expected().saturating_sub(self.received() + self.skipped())
    }

    /// Jitter of the times from the intended time to the arrival.
    #[must_use]
    pub fn jitter(&self) -> Option<Jitter> {
        self.jitter.jitter()
    }
}

/// Takes packets, and counts and times them by class.
#[derive(Debug, Clone)]
pub struct Listener {
    schedule: Schedule,
    path_ns: u64,
    session: Option<u32>,
    streams: Vec<Stream>,
    other_session: u64,
    other_schedule: u64,
}

impl Listener {
    /// Windows are taken to be `path_ns` later here than at the talker: what the path is known to take. Listens to one session, or to
    /// the first that it hears.
    #[must_use]
    pub fn new(schedule: Schedule, path_ns: u64, session: Option<u32>) -> Self {
        let streams = schedule.classes().iter().map(|_| Stream::new()).collect();
        Self {
            schedule,
            path_ns,
            session,
            streams,
            other_session: 0,
            other_schedule: 0,
        }
    }

    /// A packet came.
    pub fn record(&mut self, packet: &Received) -> Verdict {
        let index = self.schedule.class_of(packet.part.pcp);
        let class = index.and_then(|index| self.schedule.classes().get(index)).copied();
        let (Some(index), Some(class)) = (index, class) else {
            self.other_schedule += 1;
            return Verdict::OtherSchedule;
        };
        let Some(open_ns) = self.window_of(&class, packet.probe.intended_ns) else {
            self.other_schedule += 1;
            return Verdict::OtherSchedule;
        };
        if *self.session.get_or_insert(packet.probe.session) != packet.probe.session {
            self.other_session += 1;
            return Verdict::OtherSession;
        }
        let path_ns = self.path_ns;
        let stream = &mut self.streams[index];
        match packet.pcp {
            Some(pcp) if pcp != packet.part.pcp => stream.changed_pcp += 1,
            Some(_) => {}
            None => stream.untold_pcp += 1,
        }
        let first = *stream.first.get_or_insert_with(|| {
            stream.skipped = [packet.part.skipped; 2];
            packet.probe.sequence
        });
        let Some(number) = packet.probe.sequence.checked_sub(first) else {
            stream.too_old += 1;
            return Verdict::Again;
        };
        match stream.arrivals.on_received(number) {
            Arrival::InOrder => stream.skipped[1] = packet.part.skipped,
            Arrival::Reordered { distance } => {
                stream.reordered += 1;
                stream.longest_reordering = stream.longest_reordering.max(distance);
            }
            Arrival::Duplicate => {
                stream.duplicated += 1;
                return Verdict::Again;
            }
            Arrival::Late | Arrival::Unexpected => {
                stream.too_old += 1;
                return Verdict::Again;
            }
        }
        stream.time(packet);
        let open_ns = open_ns.saturating_add(path_ns);
        let over_ns = open_ns.saturating_add(class.window_ns);
        if packet.at_ns < open_ns {
            stream.early.note(open_ns - packet.at_ns);
            Verdict::Early
        } else if packet.at_ns > over_ns {
            stream.late.note(packet.at_ns - over_ns);
            Verdict::Late
        } else {
            Verdict::InWindow
        }
    }

    /// When the window opened that a packet was due in; `None` if its time is in no window of its class.
    fn window_of(&self, class: &Class, intended_ns: u64) -> Option<u64> {
        let within = (intended_ns % self.schedule.cycle_ns()).checked_sub(class.offset_ns)?;
        (within < class.window_ns).then(|| intended_ns - within)
    }

    /// The schedule.
    #[must_use]
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// What is known of each class, in the order of the schedule's.
    #[must_use]
    pub fn streams(&self) -> &[Stream] {
        &self.streams
    }

    /// The session that it listens to.
    #[must_use]
    pub fn session(&self) -> Option<u32> {
        self.session
    }

    /// Packets of other sessions.
    #[must_use]
    pub fn other_session(&self) -> u64 {
        self.other_session
    }

    /// Packets of another schedule.
    #[must_use]
    pub fn other_schedule(&self) -> u64 {
        self.other_schedule
    }
}

impl Stream {
    fn time(&mut self, packet: &Received) {
        if let Some(gap) = self.last_ns.and_then(|last| packet.at_ns.checked_sub(last)) {
            self.gap.record(gap);
        }
        self.last_ns = Some(packet.at_ns);
        let since = |ns: u64| packet.at_ns.checked_sub(ns);
        match since(packet.probe.intended_ns).zip(since(packet.probe.sent_ns)) {
            Some((latency, path)) => {
                self.latency.record(latency);
                self.path.record(path);
                self.jitter.record(latency);
            }
            None => self.impossible += 1,
        }
    }
}
