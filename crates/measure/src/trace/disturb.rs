//! What else CPUs did while the slowest packets were on their way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::{Packet, Point};

/// One packet in so many is a slow one.
const ONE_SLOW_IN: u64 = 1000;
/// Slow packets whose surroundings are kept at the most.
const MOST_SLOW: usize = 1000;
/// One packet in so many is looked at for comparison.
const ONE_USUAL_IN: u64 = 16;
/// Disturbers that are remembered for each CPU.
const REMEMBERED: usize = 1 << 17;

/// What kind of thing had a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DisturberKind {
    /// The handler of a device's interrupt.
    Interrupt,
    /// An interrupt that is no device's: timer, calls from other CPUs.
    Vector,
    /// A soft interrupt.
    SoftInterrupt,
    /// A task.
    Task,
    /// Nobody: the CPU slept. Of a packet it takes the time from its reader's wake-up until that CPU is awake.
    Idle,
    /// The hypervisor, which gave the CPU to others meanwhile; known as well as its counter's ticks ([`Stolen`]).
    Steal,
}

impl DisturberKind {
    /// In words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Interrupt => "interrupt",
            Self::Vector => "CPU interrupt",
            Self::SoftInterrupt => "soft interrupt",
            Self::Task => "task",
            Self::Idle => "idle state",
            Self::Steal => "steal",
        }
    }
}

/// Something that had a CPU for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disturber {
    /// What kind of thing.
    pub kind: DisturberKind,
    /// Its name: `NET_TX`, `stress-ng-cpu`, `virtio0-input.0`, `C1`.
    pub name: String,
    /// Its number: a task's, an interrupt's.
    pub id: u32,
    /// On this CPU.
    pub cpu: u32,
    /// Since then, in nanoseconds.
    pub from_ns: u64,
    /// Until then.
    pub to_ns: u64,
}

impl Disturber {
    /// How much of a time it had its CPU, in nanoseconds.
    fn within(&self, from_ns: u64, to_ns: u64) -> u64 {
        self.to_ns.min(to_ns).saturating_sub(self.from_ns.max(from_ns))
    }
}

/// What had which CPU when, for the last while.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: HashMap<u32, VecDeque<Disturber>>,
    /// What hypervisors took: told later than what ended after it.
    stolen: HashMap<u32, VecDeque<Disturber>>,
}

impl Timeline {
    /// One that knows of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds something, when it is over.
    pub fn add(&mut self, disturber: Disturber) {
        let all = match disturber.kind {
            DisturberKind::Steal => &mut self.stolen,
            _ => &mut self.cpus,
        };
        let cpu = all.entry(disturber.cpu).or_default();
        cpu.push_back(disturber);
        if cpu.len() > REMEMBERED {
            cpu.pop_front();
        }
    }

    /// Forgets what was over before a time.
    pub fn forget(&mut self, before_ns: u64) {
        for cpu in self.cpus.values_mut().chain(self.stolen.values_mut()) {
            while cpu.front().is_some_and(|disturber| disturber.to_ns < before_ns) {
                cpu.pop_front();
            }
        }
    }

    /// What went on on these CPUs in a time, each by its beginning.
    #[must_use]
    pub fn during(&self, cpus: &[u32], from_ns: u64, to_ns: u64) -> Vec<&Disturber> {
        let mut found: Vec<&Disturber> = cpus
            .iter()
            .flat_map(|cpu| [self.cpus.get(cpu), self.stolen.get(cpu)])
            .flatten()
            .flat_map(|all| {
                // In the order of their ends, for that is when they are told.
                let first = all.partition_point(|disturber| disturber.to_ns < from_ns);
                all.iter().skip(first)
            })
            .filter(|disturber| disturber.within(from_ns, to_ns) > 0)
            .collect();
        found.sort_by_key(|disturber| (disturber.from_ns, Reverse(disturber.to_ns)));
        found
    }
}

/// What a hypervisor takes of CPUs, by readings of the counters that the kernel has of it (`steal` in `/proc/stat`).
///
/// ```
/// use ringside_measure::trace::{DisturberKind, Stolen};
///
/// let mut stolen = Stolen::new(10_000_000);
/// assert_eq!(stolen.read(5_000_000, [(0, 7), (1, 3)]), []); // since boot
/// let [taken] = &stolen.read(40_000_000, [(0, 7), (1, 5)])[..] else { panic!() };
/// assert_eq!((taken.kind, taken.cpu), (DisturberKind::Steal, 1));
/// assert_eq!((taken.from_ns, taken.to_ns), (20_000_000, 40_000_000)); // two ticks
/// ```
#[derive(Debug)]
pub struct Stolen {
    tick_ns: u64,
    /// Of each CPU its counter, and since when that is known to be so.
    seen: HashMap<u32, (u64, u64)>,
}

impl Stolen {
    /// Of counters with such ticks, in nanoseconds.
    #[must_use]
    pub fn new(tick_ns: u64) -> Self {
        Self {
            tick_ns,
            seen: HashMap::new(),
        }
    }

    /// Takes a reading: CPUs with their counters, in ticks since boot. What was taken since the last one is told as if it had been taken
    /// last: ticks tell how much it was, and when to a tick.
    pub fn read(&mut self, now_ns: u64, cpus: impl IntoIterator<Item = (u32, u64)>) -> Vec<Disturber> {
        let mut taken = Vec::new();
        for (cpu, ticks) in cpus {
            let Some((before, since_ns)) = self.seen.get(&cpu).copied() else {
                self.seen.insert(cpu, (ticks, now_ns));
                continue;
            };
            // Of a CPU that was away and has come back the counter may begin anew.
            let Some(more) = ticks.checked_sub(before).filter(|more| *more > 0) else {
                if ticks < before {
                    self.seen.insert(cpu, (ticks, now_ns));
                }
                continue;
            };
            self.seen.insert(cpu, (ticks, now_ns));
            let from_ns = now_ns.saturating_sub(more.saturating_mul(self.tick_ns));
            taken.push(Disturber {
                kind: DisturberKind::Steal,
                name: "by the hypervisor".to_owned(),
                id: 0,
                cpu,
                from_ns: from_ns.max(since_ns),
                to_ns: now_ns,
            });
        }
        taken
    }
}

/// What something took of the CPUs of packets while they were on their way.
type Taken = HashMap<(DisturberKind, String), u64>;

/// One of the slowest packets.
#[derive(Debug, Clone)]
pub struct SlowPacket {
    /// What is known of it.
    pub packet: Packet,
    taken: Taken,
}

/// Something that went on during the slowest packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Culprit {
    /// What kind of thing.
    pub kind: DisturberKind,
    /// Its name.
    pub name: String,
    /// In how many of the slowest packets, in percent.
    pub slow_percent: f64,
    /// In how many of the others, in percent.
    pub usual_percent: f64,
    /// Time that it had of a slow packet's CPUs while that was on its way, on average over all of the slowest, in nanoseconds.
    pub slow_mean_ns: f64,
    /// The same of the others.
    pub usual_mean_ns: f64,
}

impl Culprit {
    /// What it was, in words.
    #[must_use]
    pub fn kind_name(&self) -> &'static str {
        match self.kind {
            DisturberKind::Idle => "exit from idle state",
            kind => kind.name(),
        }
    }

    /// What it took more of a slow packet than of another one.
    #[must_use]
    pub fn more_ns(&self) -> f64 {
        self.slow_mean_ns - self.usual_mean_ns
    }
}

/// Keeps the slowest packets of a run, with what went on on their CPUs, and what usually goes on for comparison.
#[derive(Debug, Default)]
pub struct Slowest {
    heap: BinaryHeap<Reverse<Slow>>,
    packets: u64,
    usual: HashMap<(DisturberKind, String), (u64, u64)>,
    usual_packets: u64,
}

/// By its time.
#[derive(Debug)]
struct Slow(u64, SlowPacket);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Slow {}

impl PartialOrd for Slow {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slow {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.cmp(&other.0)
    }
}

impl Slowest {
    /// Of no packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Looks at a packet. What is `own`, by its number, is the path itself and no disturber: the sender's and the receiver's
    /// threads.
    pub fn record(&mut self, packet: &Packet, timeline: &Timeline, own: &[u32]) {
        self.packets += 1;
        let is_usual = self.packets.is_multiple_of(ONE_USUAL_IN);
        let ns = packet.whole_ns();
        let room = self.heap.len() < MOST_SLOW;
        let is_slow = room || self.heap.peek().is_some_and(|Reverse(least)| ns > least.0);
        if !is_usual && !is_slow {
            return;
        }
        let taken = taken(packet, timeline, own);
        if is_usual {
            self.usual_packets += 1;
            for (what, ns) in &taken {
                let sum = self.usual.entry(what.clone()).or_default();
                sum.0 += 1;
                sum.1 += ns;
            }
        }
        if is_slow {
            if !room {
                self.heap.pop();
            }
            let packet = packet.clone();
            self.heap.push(Reverse(Slow(ns, SlowPacket { packet, taken })));
        }
    }

    /// Leaves out packets that turn out to be in no figure: of all of them so many are left.
    pub fn only(&mut self, packets: u64, is_in: impl Fn(&Packet) -> bool) {
        self.packets = packets;
        self.heap.retain(|Reverse(slow)| is_in(&slow.1.packet));
    }

    /// One in a thousand, and the slowest one in any case.
    fn wanted(&self) -> usize {
        let share = usize::try_from(self.packets.div_ceil(ONE_SLOW_IN)).unwrap_or(MOST_SLOW);
        share.clamp(1, MOST_SLOW)
    }

    /// Packets that the slowest are compared with: one of 16.
    #[must_use]
    pub fn usual_packets(&self) -> u64 {
        self.usual_packets
    }

    /// The slowest 0.1 % of the packets, the slowest of them first: one at least, 1000 at the most.
    #[must_use]
    pub fn packets(&self) -> Vec<&SlowPacket> {
        let mut slow: Vec<&Slow> = self.heap.iter().map(|Reverse(slow)| slow).collect();
        slow.sort_by_key(|slow| Reverse(slow.0));
        slow.into_iter().take(self.wanted()).map(|slow| &slow.1).collect()
    }

    /// What took more time of the CPUs of the slowest packets than of the others, most first. Nothing where there is nothing to
    /// compare with.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "times and counts of less than 2^53")]
    pub fn culprits(&self) -> Vec<Culprit> {
        let slow = self.packets();
        if slow.is_empty() || self.usual_packets == 0 {
            return Vec::new();
        }
        let mut sums: HashMap<&(DisturberKind, String), (u64, u64)> = HashMap::new();
        for (what, ns) in slow.iter().flat_map(|packet| &packet.taken) {
            let sum = sums.entry(what).or_default();
            sum.0 += 1;
            sum.1 += ns;
        }
        let (count, usual_count) = (slow.len() as f64, self.usual_packets as f64);
        let mut culprits: Vec<Culprit> = sums
            .into_iter()
            .map(|(what, (packets, ns))| {
                let usual = self.usual.get(what).copied().unwrap_or_default();
                Culprit {
                    kind: what.0,
                    name: what.1.clone(),
                    slow_percent: packets as f64 * 100.0 / count,
                    usual_percent: usual.0 as f64 * 100.0 / usual_count,
                    slow_mean_ns: ns as f64 / count,
                    usual_mean_ns: usual.1 as f64 / usual_count,
                }
            })
            .filter(|culprit| culprit.more_ns() > 0.0)
            .collect();
        culprits.sort_by(|a, b| b.more_ns().total_cmp(&a.more_ns()));
        culprits
    }
}

/// The CPUs that a packet was on, each once.
fn cpus(packet: &Packet) -> Vec<u32> {
    let mut cpus: Vec<u32> = packet.stamps.iter().map(|stamp| stamp.place.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

fn taken(packet: &Packet, timeline: &Timeline, own: &[u32]) -> Taken {
    let mut taken = Taken::new();
    let (Some(first), Some(last)) = (packet.stamps.first(), packet.stamps.last()) else {
        return taken;
    };
    for disturber in timeline.during(&cpus(packet), first.ns, last.ns) {
        let ns = match disturber.kind {
            DisturberKind::Task if own.contains(&disturber.id) => continue,
            DisturberKind::Idle => of_wake_ups(packet, disturber),
            _ => disturber.within(first.ns, last.ns),
        };
        if ns > 0 {
            let what = (disturber.kind, disturber.name.clone());
            *taken.entry(what).or_default() += ns;
        }
    }
    taken
}

/// How long a CPU slept on when readers of the packet were to run there. Before that it slept because there was nothing to do.
fn of_wake_ups(packet: &Packet, idle: &Disturber) -> u64 {
    let (mut woken, mut sum) = (None, 0);
    for stamp in &packet.stamps {
        match stamp.point {
            Point::Waking => woken = Some(stamp.ns),
            Point::Running if stamp.place.cpu == idle.cpu => {
                sum += woken.take().map_or(0, |from| idle.within(from, stamp.ns));
            }
            Point::Running => woken = None,
            _ => {}
        }
    }
    sum
}

#[cfg(test)]
#[path = "disturb_tests.rs"]
mod tests;
