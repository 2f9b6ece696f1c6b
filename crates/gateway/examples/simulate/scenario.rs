//! What goes wrong, one thing after the other; and how it is seen that it is over.

use super::costs::SECOND;
use super::gateway::Gateway;
use super::seats::Seats;
use super::world::{Event, World};

/// Of all gateways, in hundredths.
type Part = usize;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// All gateways have just started, at the same time, with a copy that is as new as etcd.
    Start,
    /// Changes, and nothing else.
    Nothing,
    /// So many gateways die, and start again with their copies.
    Crash(Part),
    /// So many gateways are cut off from etcd.
    Cut(Part),
    /// One of etcd's members that follow is cut off from the others, and gateways still reach it.
    Minority,
    /// The one that leads is.
    Leader,
    /// The one that leads dies.
    LeaderDies,
    /// One gateway does not reach the member that it asks, nor that one it; all else is well.
    OneWire,
    /// All of etcd is gone.
    Outage,
    /// So many gateways are cut off; what they have to be told is compacted meanwhile.
    Compacted(Part),
    /// So many gateways at a time are emptied, end and start again with their copies, until all have.
    Upgrade(Part),
    /// All gateways start at the same time, without copies.
    Cold,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) fault: Fault,
    /// How long it lasts.
    pub(crate) hold: u64,
}

const fn step(name: &'static str, fault: Fault, seconds: u64) -> Step {
    Step {
        name,
        fault,
        hold: seconds * SECOND,
    }
}

/// All there are.
pub(crate) const ALL: [Step; 9] = [
    step("all start at once", Fault::Start, 60),
    step("changes alone", Fault::Nothing, 60),
    step("1 % of the gateways die", Fault::Crash(1), 30),
    step("10 % cut off for 60 s", Fault::Cut(10), 60),
    step("etcd's member cut off for 60 s", Fault::Minority, 60),
    step("no etcd for 60 s", Fault::Outage, 60),
    step("30 % cut off, compacted", Fault::Compacted(30), 60),
    step("upgrade, 5 % at a time", Fault::Upgrade(5), 0),
    step("all start without copies", Fault::Cold, 0),
];

/// What is the same at any size.
pub(crate) const SMALL: [Step; 3] = [
    step("etcd's leader cut off", Fault::Leader, 20),
    step("etcd's leader dies", Fault::LeaderDies, 20),
    step("one wire cut", Fault::OneWire, 20),
];

#[derive(Debug)]
enum Stage {
    Begin,
    /// Until then.
    Hold(u64),
    Upgrading {
        next: usize,
        stopped: Option<(u64, Vec<usize>)>,
        begun: u64,
    },
    Settle(u64),
    /// So that what follows is not counted with it.
    Rest(u64),
}

/// Goes through steps.
#[derive(Debug)]
pub(crate) struct Director {
    steps: Vec<Step>,
    at: usize,
    stage: Stage,
    hit: Vec<usize>,
    /// The member of etcd that something happened to.
    member: usize,
    /// When all steps were done.
    stopped: Option<u64>,
}

impl Director {
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self {
            steps,
            at: 0,
            stage: Stage::Begin,
            hit: Vec::new(),
            member: 0,
            stopped: None,
        }
    }

    /// True: it is over.
    pub(crate) fn step(&mut self, world: &mut World) -> bool {
        let now = world.now;
        let Some(step) = self.steps.get(self.at).copied() else {
            // In the end nothing changes any more, and all are to have everything.
            world.writers.stopped = true;
            let since = *self.stopped.get_or_insert(now);
            return now >= since + world.setup.patience || (now >= since + 2 * SECOND && world.is_complete());
        };
        match &mut self.stage {
            Stage::Begin => {
                if let Some(begun) = world.setup.told_since {
                    let (passed, simulated) = (begun.elapsed().as_secs(), now / SECOND);
                    eprintln!("simulate: {} (after {passed} s; {simulated} s there)", step.name);
                }
                world.measure.begin(step.name, now, &world.members);
                world.note([0xfa17, self.at as u64, now]);
                self.begin(step, world);
            }
            Stage::Hold(until) => {
                if now >= *until {
                    self.heal(step, world);
                    self.stage = Stage::Settle(now);
                }
            }
            Stage::Upgrading { .. } => self.upgrade(step, world),
            Stage::Settle(since) => {
                let settled = now > *since && world.is_settled();
                if settled || now >= *since + world.setup.patience {
                    let rest = if settled { now + 5 * SECOND } else { now };
                    world.finish(settled);
                    self.stage = Stage::Rest(rest);
                }
            }
            Stage::Rest(until) => {
                if now >= *until {
                    self.at += 1;
                    self.stage = Stage::Begin;
                }
            }
        }
        false
    }

    fn some(&self, part: Part, world: &mut World) -> Vec<usize> {
        let all = world.gateways.len();
        let count = (all * part / 100).max(1);
        let mut numbers: Vec<usize> = (0..all).collect();
        for at in 0..count {
            let other = at + world.random.below(all - at);
            numbers.swap(at, other);
        }
        numbers.truncate(count);
        numbers
    }

    fn begin(&mut self, step: Step, world: &mut World) {
        self.stage = Stage::Hold(world.now + step.hold);
        self.hit = match step.fault {
            Fault::Crash(part) | Fault::Cut(part) | Fault::Compacted(part) => self.some(part, world),
            Fault::Cold => (0..world.gateways.len()).collect(),
            Fault::OneWire => vec![0],
            _ => Vec::new(),
        };
        let all = world.members.all.len();
        self.member = match step.fault {
            Fault::Leader | Fault::LeaderDies => world.members.leader().unwrap_or(0),
            Fault::OneWire => world.gateways[0].member(all),
            _ => all - 1,
        };
        match step.fault {
            Fault::Start | Fault::Nothing => {}
            Fault::Crash(_) | Fault::Cold => {
                for gateway in &self.hit {
                    Seats::hit(world, *gateway);
                    world.stop(*gateway, false);
                }
            }
            Fault::Cut(_) | Fault::Compacted(_) => self.hit.iter().for_each(|gateway| world.cut(*gateway, true)),
            Fault::Minority | Fault::Leader => world.cut_member(self.member, true),
            Fault::LeaderDies => world.member_up(self.member, false),
            Fault::OneWire => world.cut_wire(0, Some(self.member)),
            Fault::Outage => world.outage(true),
            Fault::Upgrade(_) => {
                self.stage = Stage::Upgrading {
                    next: 0,
                    stopped: None,
                    begun: world.now,
                }
            }
        }
    }

    fn heal(&mut self, step: Step, world: &mut World) {
        let hit = std::mem::take(&mut self.hit);
        match step.fault {
            Fault::Start | Fault::Nothing | Fault::Upgrade(_) => {}
            Fault::Crash(_) => hit.iter().for_each(|gateway| world.start(*gateway, true)),
            Fault::Cold => hit.iter().for_each(|gateway| world.start(*gateway, false)),
            Fault::Cut(_) => hit.iter().for_each(|gateway| world.cut(*gateway, false)),
            Fault::Compacted(_) => {
                world.compact(world.log.revision());
                hit.iter().for_each(|gateway| world.cut(*gateway, false));
            }
            Fault::Minority | Fault::Leader => world.cut_member(self.member, false),
            Fault::LeaderDies => world.member_up(self.member, true),
            Fault::OneWire => world.cut_wire(0, None),
            Fault::Outage => world.outage(false),
        }
    }

    fn upgrade(&mut self, step: Step, world: &mut World) {
        let Fault::Upgrade(part) = step.fault else { return };
        let Stage::Upgrading { next, stopped, begun } = &mut self.stage else {
            return;
        };
        let now = world.now;
        let all = world.gateways.len();
        let is_late = now >= *begun + world.setup.patience;
        match stopped {
            // Emptied, or waited for long enough; then it takes five seconds to start again.
            Some((at, some)) if *at == 0 => {
                let empty = some.iter().all(|gateway| world.seats.is_drained(*gateway));
                if empty || is_late {
                    some.iter().for_each(|gateway| world.stop(*gateway, true));
                    *at = now + 5 * SECOND;
                }
            }
            Some((at, some)) => {
                if now >= *at {
                    for gateway in some.iter() {
                        world.start(*gateway, true);
                    }
                    *stopped = None;
                }
            }
            None if *next >= all => {
                if world.is_settled() || is_late {
                    self.stage = Stage::Settle(now);
                }
            }
            None => {
                if world.gateways.iter().all(|gateway| gateway.is_following(now)) || is_late {
                    let some: Vec<usize> = (*next..all).take((all * part / 100).max(1)).collect();
                    for gateway in &some {
                        Seats::hit(world, *gateway);
                        Seats::drain(world, *gateway);
                    }
                    *next += some.len();
                    *begun = now;
                    *stopped = Some((0, some));
                }
            }
        }
    }
}

impl World {
    /// From now on nothing that a gateway does not know counts against it.
    fn away(&mut self, number: usize) {
        let gateway = &mut self.gateways[number];
        if std::mem::take(&mut gateway.present) {
            self.measure.away(gateway.applied.0);
        }
        gateway.healed = None;
    }

    /// From now on it can catch up.
    fn healed(&mut self, number: usize) {
        let revision = self.log.revision();
        let gateway = &mut self.gateways[number];
        gateway.healed = Some((self.now, revision));
        let (told, at) = gateway.applied;
        if told >= revision {
            gateway.healed = None;
            gateway.present = true;
            self.measure.caught_up(told, at.saturating_sub(self.now));
        }
    }

    /// `gently`: it gives up its lease.
    fn stop(&mut self, number: usize, gently: bool) {
        Seats::stop(self, number, gently);
        self.away(number);
        self.count(number);
        self.gateways[number].stop();
    }

    fn start(&mut self, number: usize, copy: bool) {
        let seed = self.random.draw();
        let timing = (self.setup.timing, self.setup.pages());
        self.gateways[number].start(timing, seed, copy, self.now);
        self.healed(number);
        Seats::start(self, number);
        self.turn(number);
    }

    fn cut(&mut self, number: usize, cut: bool) {
        self.gateways[number].cut = cut;
        Seats::cut(self, number, cut);
        if cut {
            Seats::hit(self, number);
            self.away(number);
        } else {
            self.healed(number);
        }
    }

    fn cut_member(&mut self, member: usize, cut: bool) {
        self.members.set_cut(member, cut);
        self.elect();
        if cut {
            // Three times etcd's election timeout of a second, in which it has heard of no leader.
            self.after(3 * SECOND, Event::Leaderless(member, self.members.term));
        } else {
            self.tell_seats();
        }
    }

    /// A member ends, and all its connections with it; or it starts again.
    fn member_up(&mut self, member: usize, up: bool) {
        let lost = self.members.set_up(member, up);
        lost.into_iter().for_each(|part| self.give_back(part));
        Seats::unwatched(self, member);
        self.elect();
        for number in 0..self.gateways.len() {
            let has = self.gateways[number].stream.as_ref();
            if !up && has.is_some_and(|stream| stream.member == member) {
                self.gateways[number].stream = None;
                let tag = self.gateways[number].tags[super::gateway::WATCH];
                self.fail(number, super::gateway::WATCH, tag, "connection reset");
            }
        }
    }

    /// Nothing gets from a gateway to this member, or back.
    fn cut_wire(&mut self, number: usize, member: Option<usize>) {
        self.gateways[number].cut_from = member;
    }

    fn outage(&mut self, gone: bool) {
        for number in 0..self.gateways.len() {
            match gone {
                true => self.away(number),
                false => self.healed(number),
            }
        }
        (0..self.members.all.len()).for_each(|member| self.member_up(member, !gone));
    }

    fn elect(&mut self) {
        let term = self.members.term;
        self.members.elect(self.now, &self.setup.costs);
        if term != self.members.term {
            self.seats.registry.elected(self.now + self.setup.costs.election);
        }
    }

    fn is_complete(&self) -> bool {
        (self.gateways.iter()).all(|gateway| gateway.applied.1 <= self.now && gateway.is_complete(&self.log))
    }

    fn is_settled(&mut self) -> bool {
        let now = self.now;
        let follows =
            |gateway: &Gateway| gateway.present && gateway.is_following(now) && gateway.applied.1 <= now + SECOND;
        self.gateways.iter().all(follows) && Seats::are_settled(self)
    }

    /// What a gateway's machine has counted since the last time.
    fn count(&mut self, number: usize) {
        let gateway = &mut self.gateways[number];
        let counts = gateway.sync.counts();
        let before = std::mem::replace(&mut gateway.counts_before, counts);
        self.measure.divergences += std::mem::take(&mut gateway.divergences);
        if let Some(phase) = self.measure.phases.last_mut() {
            phase.relisted += counts.relisted - before.relisted;
            phase.compared += counts.compared - before.compared;
        }
    }

    fn finish(&mut self, settled: bool) {
        (0..self.gateways.len()).for_each(|number| self.count(number));
        self.measure.end(self.now, settled, &self.members);
    }
}
