//! What each gateway is in its fleet: the very machine by which the real one takes part (`fleet::shards`), and what it asks of etcd.

use std::collections::BTreeMap;
use std::time::Duration;

use ringside_gateway::fleet::shards::{Action, Input, Proposal, Record, Registration, Shards, Timing};
use ringside_gateway::fleet::sync::{Barrier, State};
use ringside_gateway_core::shard::{MemberId, Shard};

use super::costs::{MILLISECOND, SECOND};
use super::gateway::{broken, nanoseconds};
use super::registry::{Moved, Registry};
use super::server::{Ask, Packet, What};
use super::world::{Event, World};

/// What changes within this time is told together.
const GRAIN: u64 = 5 * MILLISECOND;
/// From the question for connections to their being at another gateway. Assumed.
const HAND_OVER: u64 = 20 * MILLISECOND;
/// How often etcd looks for leases that have run out. etcd's own.
const EXPIRY: u64 = SECOND / 2;

/// What is asked of etcd.
#[derive(Debug)]
pub(crate) enum Question {
    Grant(Duration),
    Keep(i64),
    Register(Registration),
    List,
    Propose(Proposal),
    Watch(u64),
    /// On a watch that there is, up to this revision.
    Events(u64),
    Revoke(i64),
}

/// Which answer is waited for.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Grant,
    Keep,
    Register,
    List,
    Propose,
    Watch,
    HandOver(MemberId),
}

/// What comes to a gateway.
#[derive(Debug)]
pub(crate) enum News {
    Answer(u64, Input),
    /// Of a watch, behind one revision and up to another.
    Changes(u64, u64, u64),
}

/// A watch, as etcd's member has it.
#[derive(Debug)]
struct Watch {
    member: usize,
    tag: u64,
    told: u64,
    under_way: bool,
}

#[derive(Debug)]
struct Seat {
    /// None: the program does not run.
    shards: Option<Shards>,
    record: Record,
    /// With the turn in which it was.
    asked: BTreeMap<u64, (Kind, u64)>,
    watch: Option<Watch>,
    /// What was sent on its watch is lost.
    is_torn: bool,
    /// Which watch it listens to.
    listens: u64,
    lease: Option<i64>,
    wake: u64,
    noted: u64,
    barrier: Barrier,
}

/// All of them, and etcd's part.
#[derive(Debug)]
pub(crate) struct Seats {
    pub(crate) registry: Registry,
    all: Vec<Seat>,
    by_id: BTreeMap<MemberId, usize>,
    last: u64,
    /// Since when nobody serves a shard.
    unserved: BTreeMap<Shard, u64>,
    tells: bool,
}

impl Seats {
    pub(crate) fn new(gateways: usize) -> Self {
        let seat = |number: usize| Seat {
            shards: None,
            record: Record {
                name: format!("gateway-{number}"),
                run: 0,
                weight: 100,
                addresses: vec![std::net::Ipv4Addr::from(0xc000_0200 + u32::try_from(number).unwrap_or(0)).into()],
                api: Some(format!("https://gateway-{number}.example:7443")),
                synced: false,
                draining: false,
                cut_off: false,
            },
            asked: BTreeMap::new(),
            watch: None,
            is_torn: false,
            listens: 0,
            lease: None,
            wake: u64::MAX,
            noted: 0,
            barrier: Barrier::default(),
        };
        let all: Vec<Seat> = (0..gateways).map(seat).collect();
        Self {
            registry: Registry::new(),
            by_id: (0..)
                .zip(&all)
                .map(|(number, seat)| (seat.record.id(), number))
                .collect(),
            all,
            last: 0,
            unserved: BTreeMap::new(),
            tells: false,
        }
    }

    fn id(&self, gateway: usize) -> MemberId {
        self.all[gateway].record.id()
    }

    /// How many shards a gateway has.
    pub(crate) fn count(&self, gateway: usize) -> usize {
        self.registry.owners().count(self.id(gateway))
    }

    pub(crate) fn is_drained(&self, gateway: usize) -> bool {
        self.all[gateway].shards.as_ref().is_some_and(Shards::is_drained)
    }

    fn of(&self, gateway: usize) -> Vec<Shard> {
        let id = Some(self.id(gateway));
        let owners = self.registry.owners().iter();
        owners
            .filter(|(_, owner)| *owner == id)
            .map(|(shard, _)| shard)
            .collect()
    }

    /// A gateway takes part.
    pub(crate) fn start(world: &mut World, gateway: usize) {
        let seed = world.random.draw();
        let seat = &mut world.seats.all[gateway];
        seat.record.run += 1;
        seat.shards = Some(Shards::new(seat.record.clone(), Timing::default(), seed));
        (seat.barrier, seat.is_torn) = (Barrier::default(), false);
        for shard in world.seats.of(gateway) {
            world.served(shard);
        }
        world.sit(gateway);
    }

    /// It ends; `gently`: it says so.
    pub(crate) fn stop(world: &mut World, gateway: usize, gently: bool) {
        let seat = &mut world.seats.all[gateway];
        let lease = seat.lease.take().filter(|_| gently);
        seat.shards = None;
        seat.asked.clear();
        seat.watch = None;
        seat.listens = 0;
        seat.wake = u64::MAX;
        if let Some(lease) = lease {
            world.inquire(gateway, None, Question::Revoke(lease), SECOND);
        }
        for shard in world.seats.of(gateway) {
            world.seats.unserved.entry(shard).or_insert(world.now);
        }
    }

    /// What a gateway has is to go elsewhere, and no more than that.
    pub(crate) fn hit(world: &mut World, gateway: usize) {
        let count = world.seats.count(gateway) as u64;
        if let Some(phase) = world.measure.phases.last_mut() {
            phase.of_hit += count;
        }
    }

    pub(crate) fn drain(world: &mut World, gateway: usize) {
        world.say(gateway, Input::Drain(true));
    }

    /// Its way to etcd is cut off, or there again.
    pub(crate) fn cut(world: &mut World, gateway: usize, cut: bool) {
        if cut {
            let listens = world.seats.all[gateway].listens;
            world.seats.all[gateway].is_torn = true;
            world.after(5 * SECOND, Event::Torn(gateway, listens));
        } else if std::mem::take(&mut world.seats.all[gateway].is_torn) {
            let listens = world.seats.all[gateway].listens;
            Self::torn(world, gateway, listens);
        }
    }

    /// A watch's connection is found to be lost.
    pub(crate) fn torn(world: &mut World, gateway: usize, listens: u64) {
        let seat = &mut world.seats.all[gateway];
        if seat.listens == listens && listens != 0 {
            (seat.watch, seat.listens) = (None, 0);
            world.say(gateway, Input::Ended("connection lost".to_owned()));
        }
    }

    /// All watches of a member end.
    pub(crate) fn unwatched(world: &mut World, member: usize) {
        for gateway in 0..world.seats.all.len() {
            let watch = world.seats.all[gateway].watch.as_ref();
            if let Some(tag) = watch.filter(|watch| watch.member == member).map(|watch| watch.tag) {
                Self::torn(world, gateway, tag);
            }
        }
    }

    /// Members that live and are not cut off have their keys, and every shard is where it belongs.
    pub(crate) fn are_settled(world: &mut World) -> bool {
        let has_key = |number: usize| {
            let gateway = &world.gateways[number];
            !gateway.up || gateway.cut || world.seats.registry.has(world.seats.id(number))
        };
        (0..world.gateways.len()).all(has_key) && world.seats.registry.is_at_rest()
    }

    /// Leases that have run out.
    pub(crate) fn expire(world: &mut World) {
        if world.members.has_quorum(world.now) {
            let before = world.seats.registry.revision();
            world.seats.registry.expire(world.now);
            if world.seats.registry.revision() > before {
                world.tell_seats();
            }
        }
        world.after(EXPIRY, Event::Expire);
    }
}

impl World {
    fn served(&mut self, shard: Shard) {
        if let Some(since) = self.seats.unserved.remove(&shard)
            && let Some(phase) = self.measure.phases.last_mut()
        {
            phase.ownerless = phase.ownerless.max(self.now - since);
        }
    }

    fn say(&mut self, gateway: usize, input: Input) {
        let now = Duration::from_nanos(self.now);
        let seat = &mut self.seats.all[gateway];
        let Some(shards) = &mut seat.shards else { return };
        if let Input::Granted(Ok((id, _))) = &input {
            seat.lease = Some(*id);
        }
        shards.handle(now, input);
        self.sit(gateway);
    }

    pub(crate) fn sit_at(&mut self, gateway: usize) {
        if self.seats.all[gateway].wake == self.now {
            self.sit(gateway);
        }
    }

    /// What a gateway has to do now as a member.
    fn sit(&mut self, gateway: usize) {
        let now = Duration::from_nanos(self.now);
        while let Some(action) = (self.seats.all[gateway].shards.as_mut()).and_then(|shards| shards.poll(now)) {
            self.do_as_member(gateway, action);
        }
        let seat = &mut self.seats.all[gateway];
        if let Some(shards) = &seat.shards {
            seat.wake = nanoseconds(shards.wake()).max(self.now + MILLISECOND);
            if seat.noted != seat.wake {
                seat.noted = seat.wake;
                let wake = seat.wake;
                self.at(wake, Event::Sit(gateway));
            }
        }
    }

    /// Who may have something has to know what the others know, as of when it began to follow them; as the real one looks at it.
    pub(crate) fn look_at_tables(&mut self, number: usize) {
        let gateway = &self.gateways[number];
        let (revision, at) = gateway.applied;
        let applied = if at <= self.now { revision } else { 0 };
        let (state, complete, up) = (gateway.state(self.now), gateway.sync.complete(), gateway.up);
        if let State::Rejected(why) = &state {
            broken(&format!(
                "a gateway does not believe etcd, which did nothing wrong: {why}"
            ));
        }
        if up && let Some(synced) = self.seats.all[number].barrier.look(&state, complete, applied) {
            self.say(number, Input::Synced(synced));
        }
    }

    fn do_as_member(&mut self, gateway: usize, action: Action) {
        let request = self.setup.request;
        match action {
            Action::Unwatch => {
                let seat = &mut self.seats.all[gateway];
                (seat.watch, seat.listens) = (None, 0);
            }
            Action::HandOver { to, .. } => {
                let tag = self.wait_for(gateway, Kind::HandOver(to));
                let there = self.seats.by_id.get(&to).map(|to| &self.gateways[*to]);
                let result = match there.is_some_and(|to| to.up) {
                    true => Ok(true),
                    false => Err("it does not answer".to_owned()),
                };
                self.after(
                    HAND_OVER,
                    Event::News(gateway, News::Answer(tag, Input::HandedOver(to, result))),
                );
            }
            Action::Grant(lives) => self.inquire(gateway, Some(Kind::Grant), Question::Grant(lives), request),
            Action::Keep(lease, within) => {
                self.inquire(gateway, Some(Kind::Keep), Question::Keep(lease), nanoseconds(within));
            }
            Action::Register(said) => self.inquire(gateway, Some(Kind::Register), Question::Register(said), request),
            Action::List => self.inquire(gateway, Some(Kind::List), Question::List, request),
            Action::Propose(said) => self.inquire(gateway, Some(Kind::Propose), Question::Propose(said), request),
            Action::Watch(from) => self.inquire(gateway, Some(Kind::Watch), Question::Watch(from), request),
        }
    }

    fn wait_for(&mut self, gateway: usize, kind: Kind) -> u64 {
        self.seats.last += 1;
        let turn = self.gateways[gateway].turns();
        self.seats.all[gateway].asked.insert(self.seats.last, (kind, turn));
        self.seats.last
    }

    /// Asks a member; without an answer within a time there is none.
    fn inquire(&mut self, gateway: usize, kind: Option<Kind>, question: Question, within: u64) {
        let tag = kind.map_or(0, |kind| self.wait_for(gateway, kind));
        if matches!(question, Question::Watch(_)) {
            self.seats.all[gateway].listens = tag;
        }
        self.measure.asked_otherwise();
        self.ask(Ask {
            gateway,
            kind: 0,
            tag,
            what: What::Member(question),
        });
        if kind.is_some() {
            self.after(within, Event::Unanswered(gateway, tag));
        }
    }

    /// There is no answer, or it is that there is none.
    pub(crate) fn unanswered(&mut self, gateway: usize, tag: u64) {
        let Some((kind, turn)) = self.seats.all[gateway].asked.remove(&tag) else {
            return;
        };
        // Whoever does not keep a lease is asked nothing more, for now.
        if matches!(kind, Kind::Keep) {
            let now = self.now;
            self.gateways[gateway].turn_from(turn, now);
        }
        let why = "no answer".to_owned();
        let input = match kind {
            Kind::Grant => Input::Granted(Err(why)),
            Kind::Keep => Input::Kept(Err(why)),
            Kind::Register => Input::Registered(Err(why)),
            Kind::List => Input::Listed(Err(why)),
            Kind::Propose => Input::Proposed(Err(why)),
            Kind::HandOver(to) => Input::HandedOver(to, Err(why)),
            Kind::Watch => {
                let seat = &mut self.seats.all[gateway];
                if seat.listens != tag {
                    return;
                }
                (seat.watch, seat.listens) = (None, 0);
                Input::Ended(why)
            }
        };
        self.say(gateway, input);
    }

    /// CPU that a question takes.
    pub(crate) fn member_cost(&self, gateway: usize, question: &Question) -> u64 {
        let costs = &self.setup.costs;
        match question {
            Question::Grant(_) | Question::Revoke(_) => costs.transaction / 2,
            Question::Keep(_) => costs.keep_alive,
            Question::Register(_) => costs.transaction,
            Question::Propose(said) => {
                costs.transaction + (said.present.len() + said.absent.len()) as u64 * costs.page_key
            }
            Question::List => costs.read + self.seats.registry.size().0 * costs.page_key,
            Question::Watch(_) => costs.read,
            Question::Events(upto) => {
                let told = self.seats.all[gateway].watch.as_ref().map_or(*upto, |watch| watch.told);
                // What is large is copied, at about a gigabyte a second: assumed.
                costs.message + (upto - told) * costs.event + self.seats.registry.bytes(told, *upto)
            }
        }
    }

    /// Worked out by a member: what is read is answered, what is written goes to the disks.
    pub(crate) fn member_answer(&mut self, member: usize, gateway: usize, tag: u64, question: Question) {
        let costs = &self.setup.costs;
        match question {
            Question::Keep(lease) => {
                let lives = self.seats.registry.keep(self.now, lease);
                self.reply(member, gateway, 0, Some(News::Answer(tag, Input::Kept(Ok(lives)))));
            }
            Question::List => {
                let (_, bytes) = self.seats.registry.size();
                let listed = self.seats.registry.list();
                self.reply(
                    member,
                    gateway,
                    bytes,
                    Some(News::Answer(tag, Input::Listed(Ok(listed)))),
                );
            }
            Question::Watch(from) => {
                let seat = &mut self.seats.all[gateway];
                if seat.listens == tag && seat.shards.is_some() {
                    seat.asked.remove(&tag);
                    seat.watch = Some(Watch {
                        member,
                        tag,
                        told: from - 1,
                        under_way: false,
                    });
                    self.reply(member, gateway, 0, None);
                    self.tell_seats();
                }
            }
            Question::Events(upto) => {
                let seat = &mut self.seats.all[gateway];
                if let Some(watch) = seat.watch.as_mut().filter(|watch| watch.tag == tag) {
                    let told = std::mem::replace(&mut watch.told, upto);
                    let bytes = self.seats.registry.bytes(told, upto);
                    self.measure.member_events += upto - told;
                    self.reply(member, gateway, bytes, Some(News::Changes(tag, told, upto)));
                }
            }
            written => {
                // The leader's disk and the quickest follower's.
                let time = costs.sync + 2 * costs.way;
                self.after(time, Event::Written(member, gateway, tag, written));
            }
        }
    }

    /// It is on the disks.
    pub(crate) fn member_written(&mut self, member: usize, gateway: usize, tag: u64, question: &Question) {
        let now = self.now;
        if !self.members.has_quorum(now) {
            return;
        }
        let id = self.seats.id(gateway);
        let registry = &mut self.seats.registry;
        let before = registry.revision();
        let input = match question {
            Question::Grant(lives) => Input::Granted(Ok((registry.grant(now, *lives), *lives))),
            Question::Register(said) => Input::Registered(registry.register(said)),
            Question::Revoke(lease) => {
                registry.revoke(*lease);
                self.tell_seats();
                return;
            }
            Question::Propose(said) => {
                let (outcome, moves) = registry.propose(id, said);
                self.moved(&moves);
                Input::Proposed(Ok(outcome))
            }
            _ => return,
        };
        if self.seats.registry.revision() > before {
            self.tell_seats();
        }
        if self.members.all[member].up {
            self.reply(member, gateway, 0, Some(News::Answer(tag, input)));
        }
    }

    fn moved(&mut self, moves: &[Moved]) {
        match moves.is_empty() {
            true => self.measure.map_conflicts += 1,
            false => self.measure.map_writes += 1,
        }
        for moved in moves {
            self.note([u64::from(moved.shard.number()), moved.to.0, self.now]);
            let to = self.seats.by_id.get(&moved.to);
            if to.is_some_and(|to| self.gateways[*to].up) {
                self.served(moved.shard);
            }
            let now = self.now;
            if let Some(phase) = self.measure.phases.last_mut() {
                phase.moved += u64::from(moved.from.is_some());
                phase.moved_last = now;
            }
        }
    }

    fn reply(&mut self, member: usize, gateway: usize, bytes: u64, news: Option<News>) {
        let bytes = bytes + self.setup.costs.answer_bytes;
        self.measure.member_bytes += bytes;
        self.send(member, Packet::of_member(gateway, bytes, news));
    }

    /// Watches are to be told what there is, soon.
    pub(crate) fn tell_seats(&mut self) {
        if !std::mem::replace(&mut self.seats.tells, true) {
            self.after(GRAIN, Event::TellSeats);
        }
    }

    pub(crate) fn tell_seats_now(&mut self) {
        self.seats.tells = false;
        let revision = self.seats.registry.revision();
        for gateway in 0..self.seats.all.len() {
            let Some(watch) = &mut self.seats.all[gateway].watch else {
                continue;
            };
            let member = &self.members.all[watch.member];
            let its = &self.gateways[gateway];
            let reaches = member.up && !member.cut && !its.cut && its.cut_from != Some(watch.member);
            if watch.under_way || watch.told >= revision || !reaches {
                continue;
            }
            watch.under_way = true;
            let ask = Ask {
                gateway,
                kind: 0,
                tag: watch.tag,
                what: What::Member(Question::Events(revision)),
            };
            let member = watch.member;
            self.arrive(member, ask);
        }
    }

    /// An answer has left: the next one may follow.
    pub(crate) fn member_sent(&mut self, gateway: usize, news: News) {
        if let News::Changes(tag, _, upto) = news
            && let Some(watch) = self.seats.all[gateway].watch.as_mut().filter(|watch| watch.tag == tag)
        {
            watch.under_way = false;
            if upto < self.seats.registry.revision() {
                self.tell_seats();
            }
        }
        self.after(self.setup.costs.way, Event::News(gateway, news));
    }

    pub(crate) fn hear_news(&mut self, gateway: usize, news: News) {
        match news {
            // From gateway to gateway, whatever there is of etcd.
            News::Answer(tag, input) => {
                let is_lost = self.gateways[gateway].cut && !matches!(input, Input::HandedOver(..));
                if !is_lost && self.seats.all[gateway].asked.remove(&tag).is_some() {
                    self.say(gateway, input);
                }
            }
            News::Changes(tag, after, upto) => {
                if self.seats.all[gateway].listens == tag && !self.gateways[gateway].cut {
                    let changes = self.seats.registry.changes(after, upto).to_vec();
                    self.say(gateway, Input::Changed(changes));
                }
            }
        }
    }
}
