//! Time, and all that happens in it: one event after the other, in an order that the seed decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use ringside_gateway::fleet::chance::{Chance, mixed};
use ringside_gateway::fleet::sync::{Action, Input, Timing};

use super::costs::{Costs, MILLISECOND, PAGE, SECOND};
use super::gateway::{Gateway, Heard, LIST, PULSE, WATCH, nanoseconds};
use super::log::{Log, name_of};
use super::measure::Measure;
use super::scenario::Director;
use super::seats::{News, Question, Seats};
use super::server::{Ask, Members, Packet, What, failed};
use super::writers::{Part, Writers};

/// A place in a list.
pub(crate) fn place(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// What is to be simulated.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) gateways: usize,
    pub(crate) neighbors: u64,
    /// Changes a second.
    pub(crate) churn: u64,
    pub(crate) seed: u64,
    pub(crate) timing: Timing,
    /// After how long with another member of etcd the first one is asked again.
    pub(crate) balance: Duration,
    /// How long an answer may take.
    pub(crate) request: u64,
    /// Between two compactions, and how much of the history they leave.
    pub(crate) compaction: u64,
    /// Pages are asked for as they once were: among all keys, and always of the same size.
    pub(crate) walks_all: bool,
    /// What etcd's database may hold.
    pub(crate) quota: u64,
    /// What is told within this time is told together.
    pub(crate) grain: u64,
    /// The longest that a fault is waited for to be over.
    pub(crate) patience: u64,
    /// Each step is told when it begins, with the time that it has taken to come to it.
    pub(crate) told_since: Option<std::time::Instant>,
    pub(crate) costs: Costs,
}

impl Setup {
    pub(crate) const fn keys(&self) -> u64 {
        self.neighbors.div_ceil(super::costs::OF_KEY)
    }

    /// So many that a page has at least four of them.
    pub(crate) fn cells(&self) -> u32 {
        let cells = (4 * self.keys()).div_ceil(PAGE).max(64).min(self.keys());
        u32::try_from(cells).unwrap_or(u32::MAX)
    }

    /// Networks that a cell stands for, of 64 keys each: a thousand neighbours.
    pub(crate) fn networks_of_cell(&self) -> u32 {
        u32::try_from(self.of_cell().div_ceil(64)).unwrap_or(u32::MAX)
    }

    /// Pages of a list of all keys.
    pub(crate) fn pages(&self) -> u32 {
        u32::try_from(self.keys().div_ceil(PAGE)).unwrap_or(u32::MAX)
    }

    /// Keys that a cell stands for.
    pub(crate) fn of_cell(&self) -> u64 {
        self.keys().div_ceil(u64::from(self.cells()))
    }
}

#[derive(Debug)]
pub(crate) enum Event {
    Wake(usize),
    Arrive(usize, Ask),
    /// Of a member, in the life of which it was begun.
    CpuDone(usize, u64, Ask),
    WireDone(usize, u64, Packet),
    Deliver(usize, Heard),
    /// No answer has come.
    Late(usize, usize, u64),
    /// Watches are told what there is.
    Grain,
    Cycle(usize),
    Propose(Part),
    /// The log is on the disks.
    Flushed(u64, Vec<Part>),
    Apply(Part),
    Compact,
    /// A member without leader ends its watches.
    Leaderless(usize, u64),
    Direct,
    Second,
    /// What a gateway has to do as a member.
    Sit(usize),
    News(usize, News),
    Unanswered(usize, u64),
    Written(usize, usize, u64, Question),
    TellSeats,
    /// The connection of a watch.
    Torn(usize, u64),
    Expire,
}

/// Everything.
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) setup: Setup,
    pub(crate) log: Log,
    pub(crate) gateways: Vec<Gateway>,
    pub(crate) members: Members,
    pub(crate) writers: Writers,
    pub(crate) seats: Seats,
    pub(crate) measure: Measure,
    pub(crate) random: Chance,
    /// Of all that has happened.
    pub(crate) digest: u64,
    pub(crate) events: u64,
    /// Of cells' keys, behind their kind.
    pub(crate) names: Vec<Vec<u8>>,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: BTreeMap<u64, Event>,
    next: u64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        let mut random = Chance::new(setup.seed);
        let (cells, networks) = (setup.cells(), setup.networks_of_cell());
        let gateways = (0..setup.gateways)
            .map(|_| Gateway::new((setup.timing, setup.pages()), random.draw(), cells, networks))
            .collect();
        let mut world = Self {
            now: 0,
            log: Log::new(cells, networks),
            names: (0..cells).map(|cell| name_of(cell, networks)).collect(),
            gateways,
            members: Members::new(&setup),
            writers: Writers::new(&setup),
            seats: Seats::new(setup.gateways),
            measure: Measure::new(&setup),
            random,
            digest: 0,
            events: 0,
            queue: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            setup,
        };
        for gateway in 0..world.gateways.len() {
            world.at(0, Event::Wake(gateway));
            Seats::start(&mut world, gateway);
        }
        for writer in 0..world.writers.len() {
            world.at(SECOND, Event::Cycle(writer));
        }
        world.at(world.setup.compaction, Event::Compact);
        world.at(world.setup.grain, Event::Grain);
        world.at(SECOND, Event::Second);
        world.at(SECOND / 2, Event::Expire);
        world
    }

    pub(crate) fn at(&mut self, at: u64, event: Event) {
        self.queue.push(Reverse((at.max(self.now), self.next)));
        self.waiting.insert(self.next, event);
        self.next += 1;
    }

    pub(crate) fn after(&mut self, wait: u64, event: Event) {
        self.at(self.now + wait, event);
    }

    /// Puts numbers into the digest of all that has happened.
    pub(crate) fn note(&mut self, numbers: [u64; 3]) {
        for number in numbers {
            self.digest = mixed(self.digest.rotate_left(5) ^ number);
        }
    }

    /// Until the director has nothing more to do.
    pub(crate) fn run(&mut self, director: &mut Director) {
        self.at(0, Event::Direct);
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let Some(event) = self.waiting.remove(&number) else {
                continue;
            };
            self.now = at;
            self.events += 1;
            match event {
                Event::Direct => {
                    if director.step(self) {
                        return;
                    }
                    self.after(100 * MILLISECOND, Event::Direct);
                }
                event => self.take(event),
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Wake(gateway) => {
                if self.gateways[gateway].wake == self.now {
                    self.turn(gateway);
                }
            }
            Event::Arrive(member, ask) => self.arrive(member, ask),
            Event::CpuDone(member, life, ask) => {
                if self.members.is_life(member, life) {
                    self.members.all[member].cpu.done();
                    self.answer(member, ask);
                    self.work(member);
                }
            }
            Event::WireDone(member, life, packet) => {
                if self.members.is_life(member, life) {
                    self.members.all[member].wire.done();
                    self.sent(packet);
                    self.work(member);
                }
            }
            Event::Deliver(gateway, heard) => {
                if !self.gateways[gateway].cut {
                    self.hear(gateway, heard);
                }
            }
            Event::Late(gateway, kind, tag) => self.late(gateway, kind, tag),
            Event::Grain => {
                self.tell_watches();
                self.after(self.setup.grain, Event::Grain);
            }
            Event::Cycle(writer) => self.cycle(writer),
            Event::Propose(part) => self.propose(part),
            Event::Flushed(term, parts) => self.flushed(term, parts),
            Event::Apply(part) => self.apply(part),
            Event::Compact => {
                let until = self.log.before(self.now.saturating_sub(self.setup.compaction));
                self.compact(until);
                self.after(self.setup.compaction, Event::Compact);
            }
            Event::Leaderless(member, since) => self.leaderless(member, since),
            Event::Direct => {}
            Event::Second => {
                self.second();
                self.after(SECOND, Event::Second);
            }
            Event::Sit(gateway) => self.sit_at(gateway),
            Event::News(gateway, news) => self.hear_news(gateway, news),
            Event::Unanswered(gateway, tag) => self.unanswered(gateway, tag),
            Event::Written(member, gateway, tag, question) => self.member_written(member, gateway, tag, &question),
            Event::TellSeats => self.tell_seats_now(),
            Event::Torn(gateway, listens) => Seats::torn(self, gateway, listens),
            Event::Expire => Seats::expire(self),
        }
    }

    pub(crate) fn compact(&mut self, until: u64) {
        if self.members.has_quorum(self.now) {
            self.measure.compacted(&self.log, until);
            self.log.compacted = self.log.compacted.max(until);
        }
    }

    /// What a gateway has to do now.
    pub(crate) fn turn(&mut self, number: usize) {
        let of_cell = self.setup.of_cell();
        let before = self.gateways[number].applied.0;
        while self.gateways[number].up {
            let (gateway, log) = (&mut self.gateways[number], &self.log);
            let Some(action) = gateway.turn(self.now, &self.setup.costs, log, of_cell) else {
                let wake = gateway.wake;
                if gateway.noted != wake {
                    gateway.noted = wake;
                    self.at(wake, Event::Wake(number));
                }
                break;
            };
            self.act(number, action);
        }
        let gateway = &mut self.gateways[number];
        let (told, at) = gateway.applied;
        if told > before {
            if gateway.present {
                self.measure.told(before, told, at);
            } else if let Some((since, revision)) = gateway.healed
                && told >= revision
            {
                gateway.healed = None;
                gateway.present = true;
                self.measure.caught_up(told, at - since);
            }
            self.note([number as u64, told, at]);
            self.look_at_tables(number);
        }
    }

    fn act(&mut self, number: usize, action: Action) {
        let gateway = &mut self.gateways[number];
        let (kind, what) = match action {
            Action::List(pages) => (LIST, What::List(pages)),
            Action::Pulse => (PULSE, What::Pulse),
            Action::Watch(from) => {
                // One that goes on and tells nothing: perhaps another member does.
                if gateway.stream.take().is_some() {
                    gateway.turn_from(gateway.turns(), self.now);
                }
                (WATCH, What::Watch(from))
            }
            Action::Unwatch => {
                gateway.stream = None;
                gateway.tags[WATCH] += 1;
                return;
            }
            Action::Progress => {
                if let Some(stream) = &mut gateway.stream {
                    stream.asks_progress = true;
                }
                return;
            }
            Action::Tell(_) => return,
        };
        gateway.tags[kind] += 1;
        gateway.asked[kind] = gateway.turns();
        let tag = gateway.tags[kind];
        self.note([number as u64, kind as u64, tag]);
        self.measure.asked(&what);
        let ask = Ask {
            gateway: number,
            kind,
            tag,
            what,
        };
        self.ask(ask);
        let request = self.setup.request;
        let patience = match kind {
            PULSE => request.min(nanoseconds(self.setup.timing.silence) / 2),
            _ => request,
        };
        self.after(patience, Event::Late(number, kind, tag));
    }

    /// Sends it to the member that its gateway asks now, unless nothing gets there.
    pub(crate) fn ask(&mut self, ask: Ask) {
        let gateway = &self.gateways[ask.gateway];
        if !gateway.cut {
            let member = gateway.member(self.members.all.len());
            if gateway.cut_from != Some(member) {
                self.after(self.setup.costs.way, Event::Arrive(member, ask));
            }
        }
    }

    /// No answer by now.
    fn late(&mut self, number: usize, kind: usize, tag: u64) {
        let gateway = &mut self.gateways[number];
        if gateway.tags[kind] != tag || gateway.answered[kind] == tag || !gateway.up {
            return;
        }
        self.measure.late(kind);
        self.fail(number, kind, tag, "no answer");
    }

    /// Ends what was asked without what was asked for.
    pub(crate) fn fail(&mut self, number: usize, kind: usize, tag: u64, why: &str) {
        let input = failed(kind, why);
        let heard = Heard {
            kind,
            tag,
            input,
            keys: 0,
        };
        self.hear(number, heard);
    }

    fn hear(&mut self, number: usize, heard: Heard) {
        let gateway = &mut self.gateways[number];
        if !gateway.up || gateway.tags[heard.kind] != heard.tag {
            return;
        }
        gateway.answered[heard.kind] = heard.tag;
        let (all, now) = (self.members.all.len(), self.now);
        if heard.is_refusal() {
            gateway.turn_from(gateway.asked[heard.kind], now);
        } else if matches!(heard.input, Input::Pulse(_))
            && gateway.turns_back(all, now, self.setup.balance)
            && gateway.stream.take().is_some()
        {
            gateway.inbox.push_back(Heard {
                kind: WATCH,
                tag: gateway.tags[WATCH],
                input: failed(WATCH, "another connection is to be used"),
                keys: 0,
            });
        }
        gateway.inbox.push_back(heard);
        self.turn(number);
    }

    fn second(&mut self) {
        let now = self.now;
        let cut_off = (self.gateways.iter())
            .filter(|gateway| gateway.up && gateway.present && !gateway.is_following(now))
            .count();
        self.measure
            .second(cut_off as u64, self.writers.waiting(), &self.members, &self.setup);
        (0..self.gateways.len()).for_each(|gateway| self.look_at_tables(gateway));
    }
}
