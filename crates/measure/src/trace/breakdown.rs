//! Distributions of the stages of many packets.

use super::{Packet, Place, Point, Stage};
use crate::latency::Latency;

/// Different ways of many packets that are told apart: each has a histogram for each of its stages.
const MOST_WAYS: usize = 24;
/// Beyond that packets are told apart only by the points that they cannot do without: there are some such ways more.
const MORE_WAYS: usize = 8;
/// Ways of few packets: under load they are many.
const RARE_WAYS: usize = 1024;
/// More packets than so many are no few.
const FEW: usize = 64;

/// How long a stage took.
#[derive(Debug, Clone)]
pub struct StageTimes {
    /// From which transmission on, counted from 0.
    pub hop: u32,
    /// What it is.
    pub stage: Stage,
    /// Where it began, of the packet that was the last.
    pub place: Place,
    /// Its times, of the packets that had it.
    pub latency: Latency,
}

/// A stage within the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    hop: u32,
    stage: Stage,
}

/// Packets that passed the same points.
#[derive(Debug)]
struct Way {
    steps: Vec<Step>,
    end: (u32, Point),
    places: Vec<Place>,
    times: Times,
    packets: u64,
    measured: Measured,
}

/// What packets took as their applications measured it, beside what their stamps say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Packets of which it is known.
    pub packets: u64,
    /// All of their times, in nanoseconds.
    pub sum_ns: u64,
    /// The same by their stamps, from the first to the last.
    pub whole_ns: u64,
    /// By how much the two differ of a packet at the most.
    pub apart_ns: u64,
}

impl Measured {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.sum_ns += other.sum_ns;
        self.whole_ns += other.whole_ns;
        self.apart_ns = self.apart_ns.max(other.apart_ns);
    }
}

/// How long the steps of a way took, and all of them.
#[derive(Debug)]
enum Times {
    /// Of each packet: a histogram takes much room.
    Few(Vec<(Vec<u64>, u64)>),
    Many(Vec<Latency>, Box<Latency>),
}

/// The stages of packets that took about the same way.
///
/// Most packets pass the same points: that is the way. Those that do without points that depend on what else goes on
/// ([`Point::is_optional`]) are on it, too. Packets that lack others are counted with the time around these as
/// [`Stage::Remainder`]; those that begin or end elsewhere are [`incomplete`](Self::incomplete).
#[derive(Debug, Default)]
pub struct Breakdown {
    ways: Vec<Way>,
    unsorted: u64,
    disordered: u64,
    disorder_ns: u64,
}

impl Breakdown {
    /// Of no packet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a packet. False if it will be in no distribution, whatever comes: its way is one of more than can be told apart.
    pub fn record(&mut self, packet: &Packet) -> bool {
        if packet.disorder_ns > 0 {
            self.disordered += 1;
            self.disorder_ns = self.disorder_ns.max(packet.disorder_ns);
        }
        let walk = Walk::of(packet);
        let room = self.room(&walk, MOST_WAYS);
        let (walk, room) = match room {
            Some(_) => (walk, room),
            None => {
                let walk = Walk::of(&without_optional(packet));
                let room = self.room(&walk, MOST_WAYS + MORE_WAYS);
                (walk, room)
            }
        };
        match room {
            Some(index) => self.ways[index].record(walk, packet),
            None => self.unsorted += 1,
        }
        room.is_some()
    }

    /// The way of a packet, if there is still room for its times.
    fn room(&mut self, walk: &Walk, most: usize) -> Option<usize> {
        let end = walk.end.filter(|_| !walk.steps.is_empty())?;
        let found = self.way_of(walk);
        let index = match found {
            Some(index) => index,
            None if self.ways.len() >= RARE_WAYS => return None,
            None => {
                self.ways.push(Way::new(walk.steps.clone(), end));
                self.ways.len() - 1
            }
        };
        if self.ways[index].is_full() {
            let many = self.ways.iter().filter(|way| matches!(way.times, Times::Many(..)));
            if many.count() >= most {
                return None;
            }
            self.ways[index].widen();
        }
        Some(index)
    }

    fn way_of(&self, walk: &Walk) -> Option<usize> {
        let same = |way: &Way| Some(way.end) == walk.end && way.steps == walk.steps;
        self.ways.iter().position(same)
    }

    /// The stages of the way, in its order, the remainder last; it is there even if no packet has one.
    #[must_use]
    pub fn stages(&self) -> Vec<StageTimes> {
        let Some(main) = self.main() else { return Vec::new() };
        let mut all: Vec<(Step, Place, Latency)> = Vec::new();
        let mut remainder = Latency::new();
        let order = self.order(main);
        let rank = |step: &Step| order.iter().position(|other| other == step);
        for way in self.ways.iter().filter(|way| way.is_like(main)) {
            let missing = main.needed().filter(|step| !way.steps.contains(step));
            let before = |missing: &Step| way.steps.iter().rfind(|step| rank(step) < rank(missing));
            let around: Vec<&Step> = missing.filter_map(before).collect();
            for (index, step) in way.steps.iter().enumerate() {
                let sum = if around.contains(&step) {
                    &mut remainder
                } else if let Some(at) = all.iter().position(|(other, ..)| other == step) {
                    &mut all[at].2
                } else {
                    all.push((*step, way.places[index], Latency::new()));
                    let last = all.len() - 1;
                    &mut all[last].2
                };
                way.add_to(sum, Some(index));
            }
        }
        all.sort_by_key(|(step, ..)| rank(step));
        let of = |(step, place, latency): (Step, Place, Latency)| StageTimes {
            hop: step.hop,
            stage: step.stage,
            place,
            latency,
        };
        let rest = Step {
            hop: main.end.0,
            stage: Stage::Remainder,
        };
        let rest = (rest, Place::default(), remainder);
        all.into_iter().chain([rest]).map(of).collect()
    }

    /// All stages in the order of time: those of the way, and each other one behind what came before it.
    fn order(&self, main: &Way) -> Vec<Step> {
        let mut order = main.steps.clone();
        for way in self.ways.iter().filter(|way| way.is_like(main)) {
            let mut at = 0;
            for step in &way.steps {
                match order.iter().position(|other| other == step) {
                    Some(index) => at = index + 1,
                    None => {
                        order.insert(at, *step);
                        at += 1;
                    }
                }
            }
        }
        order
    }

    /// From the first point to the last one.
    #[must_use]
    pub fn whole(&self) -> Latency {
        let mut whole = Latency::new();
        if let Some(main) = self.main() {
            for way in self.ways.iter().filter(|way| way.is_like(main)) {
                way.add_to(&mut whole, None);
            }
        }
        whole
    }

    /// The same as the applications measured it: what does not come from the stages' own stamps.
    #[must_use]
    pub fn measured(&self) -> Measured {
        let mut all = Measured::default();
        if let Some(main) = self.main() {
            let ways = self.ways.iter().filter(|way| way.is_like(main));
            ways.for_each(|way| all.add(way.measured));
        }
        all
    }

    /// The point where the way ends.
    #[must_use]
    pub fn end(&self) -> Option<Point> {
        self.main().map(|main| main.end.1)
    }

    /// Packets that began or ended elsewhere than nearly all did: lost ones, mostly. They are in no distribution.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        let Some(main) = self.main() else { return self.unsorted };
        let others = self.ways.iter().filter(|way| !way.is_like(main));
        others.map(|way| way.packets).sum::<u64>() + self.unsorted
    }

    /// Whether a packet began and ended as nearly all did that were recorded: if it was, and there was room for it
    /// ([`record`](Self::record)), it is in the distributions.
    #[must_use]
    pub fn is_complete(&self, packet: &Packet) -> bool {
        let walk = Walk::of(packet);
        let of = |main: &Way| walk.end == Some(main.end) && walk.steps.first() == main.steps.first();
        self.main().is_some_and(of)
    }

    /// How many packets had stamps before their cause, and by how much at the most, in nanoseconds: the clocks of those who took
    /// them agree to that.
    #[must_use]
    pub fn disorder(&self) -> (u64, u64) {
        (self.disordered, self.disorder_ns)
    }

    /// The way of most packets.
    fn main(&self) -> Option<&Way> {
        self.ways.iter().max_by_key(|way| way.packets)
    }
}

impl Way {
    fn new(steps: Vec<Step>, end: (u32, Point)) -> Self {
        Self {
            times: Times::Few(Vec::new()),
            places: Vec::new(),
            packets: 0,
            measured: Measured::default(),
            steps,
            end,
        }
    }

    fn record(&mut self, walk: Walk, packet: &Packet) {
        let whole_ns = packet.whole_ns();
        if let Some(sum_ns) = packet.measured_ns {
            self.measured.add(Measured {
                packets: 1,
                sum_ns,
                whole_ns,
                apart_ns: sum_ns.abs_diff(whole_ns),
            });
        }
        self.packets += 1;
        self.places = walk.places;
        match &mut self.times {
            Times::Few(few) => few.push((walk.times, whole_ns)),
            Times::Many(times, whole) => {
                times
                    .iter_mut()
                    .zip(walk.times)
                    .for_each(|(times, ns)| times.record(ns));
                whole.record(whole_ns);
            }
        }
    }

    fn is_full(&self) -> bool {
        matches!(&self.times, Times::Few(few) if few.len() >= FEW)
    }

    fn widen(&mut self) {
        let of = |step: Option<usize>| {
            let mut times = Latency::new();
            self.add_to(&mut times, step);
            times
        };
        let times = (0..self.steps.len()).map(|index| of(Some(index))).collect();
        self.times = Times::Many(times, Box::new(of(None)));
    }

    /// The times of a step; `None`: of all.
    fn add_to(&self, sum: &mut Latency, step: Option<usize>) {
        match (&self.times, step) {
            (Times::Few(few), Some(step)) => few.iter().for_each(|(times, _)| sum.record(times[step])),
            (Times::Few(few), None) => few.iter().for_each(|(_, whole)| sum.record(*whole)),
            (Times::Many(times, _), Some(step)) => sum.merge(&times[step]),
            (Times::Many(_, whole), None) => sum.merge(whole),
        }
    }

    fn is_like(&self, main: &Self) -> bool {
        self.end == main.end && self.steps.first() == main.steps.first()
    }

    /// Stages that a packet on this way does not do without.
    fn needed(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| match step.stage {
            Stage::From(point) => !point.is_optional(),
            // One or the other is what leads into a guest: who does without does not end there.
            Stage::IntoGuest => false,
            Stage::Relay | Stage::OutOfGuest | Stage::Remainder => true,
        })
    }
}

/// Their time is in the stages before, as it is of packets that do without.
fn without_optional(packet: &Packet) -> Packet {
    let stamps = packet.stamps.iter().copied();
    Packet {
        stamps: stamps.filter(|stamp| !stamp.point.is_optional()).collect(),
        ..packet.clone()
    }
}

/// The stages of one packet.
struct Walk {
    steps: Vec<Step>,
    places: Vec<Place>,
    times: Vec<u64>,
    end: Option<(u32, Point)>,
}

impl Walk {
    fn of(packet: &Packet) -> Self {
        let mut walk = Self {
            steps: Vec::new(),
            places: Vec::new(),
            times: Vec::new(),
            end: None,
        };
        let mut hop = 0;
        for pair in packet.stamps.windows(2) {
            let [from, to] = pair else { continue };
            let crosses = from.place.is_guest != to.place.is_guest;
            let stage = match (from.place.is_guest, to.place.is_guest) {
                _ if from.point.is_of_vcpu() => Stage::From(from.point),
                // That is looked at when the host has it.
                _ if to.point == Point::Awake => continue,
                (false, true) => Stage::IntoGuest,
                (true, false) => Stage::OutOfGuest,
                _ if to.point.is_of_vcpu() => Stage::IntoGuest,
                _ if is_relayed(from.point, to.point) => Stage::Relay,
                _ => Stage::From(from.point),
            };
            walk.add(Step { hop, stage }, from.place, to.ns - from.ns);
            hop += u32::from(crosses || stage == Stage::Relay);
        }
        walk.end = packet.stamps.last().map(|last| (hop, last.point));
        walk
    }

    /// A point that is passed twice, say by an interface on top of another, is one stage.
    fn add(&mut self, step: Step, place: Place, ns: u64) {
        match self.steps.iter().position(|other| *other == step) {
            Some(index) => self.times[index] += ns,
            None => {
                self.steps.push(step);
                self.places.push(place);
                self.times.push(ns);
            }
        }
    }
}

/// Whether a packet that had come was sent again in between: its sending is seen, or else that it comes again.
fn is_relayed(from: Point, to: Point) -> bool {
    let is_sent = !from.is_sending() && to.is_sending();
    let was_there = (Point::Socket..=Point::Application).contains(&from);
    // A forwarder's XDP sockets put it in a TAP device's ring, too.
    let comes_again = matches!(to, Point::Raised | Point::SoftIrq | Point::Backlog | Point::Ring);
    is_sent || was_there && comes_again
}

#[cfg(test)]
#[path = "breakdown_tests.rs"]
mod tests;
