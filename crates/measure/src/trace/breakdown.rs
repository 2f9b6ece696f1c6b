//! Distributions of the stages of many packets.

use super::{Packet, Place, Point, Stage};
use crate::latency::Latency;

/// Different ways that are told apart: each has a histogram for each of its stages.
const MOST_WAYS: usize = 24;
/// Beyond that packets are told apart only by the points that they cannot do without: there are some such ways more.
const MORE_WAYS: usize = 8;

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
    times: Vec<Latency>,
    whole: Latency,
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

    /// Adds a packet.
    pub fn record(&mut self, packet: &Packet) {
        if packet.disorder_ns > 0 {
            self.disordered += 1;
            self.disorder_ns = self.disorder_ns.max(packet.disorder_ns);
        }
        let mut walk = Walk::of(packet);
        if self.ways.len() >= MOST_WAYS && self.way_of(&walk).is_none() {
            walk = Walk::of(&without_optional(packet));
        }
        let Some(end) = walk.end.filter(|_| !walk.steps.is_empty()) else {
            self.unsorted += 1;
            return;
        };
        let way = match self.way_of(&walk) {
            Some(index) => &mut self.ways[index],
            None if self.ways.len() == MOST_WAYS + MORE_WAYS => {
                self.unsorted += 1;
                return;
            }
            None => {
                self.ways.push(Way::new(walk.steps, end));
                let last = self.ways.len() - 1;
                &mut self.ways[last]
            }
        };
        for (times, ns) in way.times.iter_mut().zip(walk.times) {
            times.record(ns);
        }
        way.places = walk.places;
        way.whole.record(packet.whole_ns());
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
                let times = &way.times[index];
                if around.contains(&step) {
                    remainder.merge(times);
                } else if let Some((_, _, sum)) = all.iter_mut().find(|(other, ..)| other == step) {
                    sum.merge(times);
                } else {
                    all.push((*step, way.places[index], times.clone()));
                }
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
                whole.merge(&way.whole);
            }
        }
        whole
    }

    /// The point where the way ends.
    #[must_use]
    pub fn end(&self) -> Option<Point> {
        self.main().map(|main| main.end.1)
    }

    /// Packets that began or ended elsewhere than nearly all did: lost ones, mostly. They are in no distribution.
    #[must_use]
    pub fn incomplete(&self) -> u64 {
        let all: u64 = self.ways.iter().map(|way| way.whole.samples()).sum();
        all - self.whole().samples() + self.unsorted
    }

    /// How many packets had stamps before their cause, and by how much at the most, in nanoseconds: the clocks of those who took
    /// them agree to that.
    #[must_use]
    pub fn disorder(&self) -> (u64, u64) {
        (self.disordered, self.disorder_ns)
    }

    /// The way of most packets.
    fn main(&self) -> Option<&Way> {
        self.ways.iter().max_by_key(|way| way.whole.samples())
    }
}

impl Way {
    fn new(steps: Vec<Step>, end: (u32, Point)) -> Self {
        Self {
            times: vec![Latency::new(); steps.len()],
            places: Vec::new(),
            whole: Latency::new(),
            steps,
            end,
        }
    }

    fn is_like(&self, main: &Self) -> bool {
        self.end == main.end && self.steps.first() == main.steps.first()
    }

    /// Stages that a packet on this way does not do without.
    fn needed(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().filter(|step| match step.stage {
            Stage::From(point) => !point.is_optional(),
            Stage::Relay | Stage::IntoGuest | Stage::OutOfGuest | Stage::Remainder => true,
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
            let stage = match (from.place.is_guest, to.place.is_guest) {
                (false, true) => Stage::IntoGuest,
                (true, false) => Stage::OutOfGuest,
                _ if is_relayed(from.point, to.point) => Stage::Relay,
                _ => Stage::From(from.point),
            };
            walk.add(Step { hop, stage }, from.place, to.ns - from.ns);
            hop += u32::from(!matches!(stage, Stage::From(_)));
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
    let comes_again = from >= Point::Socket && matches!(to, Point::Raised | Point::SoftIrq);
    is_sent || comes_again
}

#[cfg(test)]
#[path = "breakdown_tests.rs"]
mod tests;
