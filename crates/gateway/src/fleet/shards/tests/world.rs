//! Gateways around an etcd that exists in memory: answers are late or lost, gateways are stopped, cut off, killed and started anew.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::*;

pub(super) const STEP: Duration = Duration::from_millis(10);
const LATE: Duration = Duration::from_millis(1000);

pub(super) fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

pub(super) fn timing() -> Timing {
    Timing {
        lease: Duration::from_secs(2),
        list: Duration::from_secs(5),
        hand_over: Duration::from_secs(1),
        ..Timing::default()
    }
}

#[derive(Debug)]
struct Key {
    value: Vec<u8>,
    revision: u64,
    lease: i64,
    since: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Etcd {
    revision: u64,
    members: BTreeMap<MemberId, Key>,
    map: Option<(u64, Vec<u8>)>,
    leases: BTreeMap<i64, Duration>,
    last_lease: i64,
    log: Vec<(u64, Changed)>,
    /// No quorum: nothing is answered, and no lease runs out.
    pub(super) is_away: bool,
    /// When a member's key went.
    gone: BTreeMap<MemberId, Duration>,
    /// Moves of shards, and the longest time between a key that went and the move.
    pub(super) moved: u64,
    pub(super) slowest: Duration,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) shards: Option<Shards>,
    pub(super) record: Record,
    inbox: VecDeque<(Duration, Input)>,
    /// Where the watch is; None: there is none.
    watch: Option<usize>,
    paused: Duration,
    pub(super) is_cut: bool,
    hands_over: bool,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) now: Duration,
    pub(super) etcd: Etcd,
    pub(super) nodes: Vec<Node>,
    random: u64,
    /// Of a hundred requests so many are lost, or their answers.
    pub(super) lossy: u64,
}

impl Etcd {
    fn decoded(&self) -> Map {
        self.map
            .as_ref()
            .map_or_else(Map::default, |(_, map)| Map::decode(map).unwrap())
    }

    pub(super) fn map(&self) -> Map {
        self.decoded()
    }

    pub(super) fn record(&self, id: MemberId) -> Option<Record> {
        self.members.get(&id).and_then(|key| Record::decode(&key.value).ok())
    }

    fn tick(&mut self, now: Duration) {
        if self.is_away {
            // A new leader gives every lease its whole time.
            for until in self.leases.values_mut() {
                *until = now + timing().lease;
            }
            return;
        }
        let over: Vec<i64> = self
            .leases
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(id, _)| *id)
            .collect();
        for lease in over {
            self.leases.remove(&lease);
            let gone: Vec<MemberId> = self
                .members
                .iter()
                .filter(|(_, key)| key.lease == lease)
                .map(|(id, _)| *id)
                .collect();
            for id in gone {
                self.revision += 1;
                self.members.remove(&id);
                self.gone.insert(id, now);
                let entry = Entry {
                    id,
                    value: None,
                    revision: self.revision,
                    lease: 0,
                };
                self.log.push((self.revision, Changed::Member(entry)));
            }
        }
    }

    /// As an old leader does that goes on (<https://github.com/etcd-io/etcd/issues/15247>): leases that others have kept are over.
    pub(super) fn end_all_leases(&mut self, now: Duration) {
        self.leases.values_mut().for_each(|until| *until = now);
        self.tick(now);
    }

    /// As `etcdctl put` of a member's key does: whatever it puts goes with no lease.
    pub(super) fn overwrite(&mut self, id: MemberId, value: &[u8]) {
        self.revision += 1;
        let key = self.members.get_mut(&id).expect("it is a member");
        (key.value, key.revision, key.lease) = (value.to_vec(), self.revision, 0);
        let entry = Entry {
            id,
            value: Some(value.to_vec()),
            revision: self.revision,
            lease: 0,
        };
        self.log.push((self.revision, Changed::Member(entry)));
    }

    fn map_entry(&self) -> Option<MapEntry> {
        self.map.as_ref().map(|(revision, map)| MapEntry {
            value: Some(map.clone()),
            revision: *revision,
        })
    }

    fn list(&self) -> Listed {
        let entry = |(id, key): (&MemberId, &Key)| Entry {
            id: *id,
            value: Some(key.value.clone()),
            revision: key.revision,
            lease: key.lease,
        };
        Listed {
            revision: self.revision,
            members: self.members.iter().map(entry).collect(),
            map: self.map_entry(),
        }
    }

    fn register(&mut self, now: Duration, registration: Registration) -> Option<u64> {
        let Registration {
            id,
            lease,
            value,
            expected,
        } = registration;
        let known = self.members.get(&id).map_or(0, |key| key.revision);
        if expected.is_some_and(|expected| expected != known) || !self.leases.contains_key(&lease) {
            return None;
        }
        self.revision += 1;
        let revision = self.revision;
        let was_synced = self.record(id).is_some_and(|record| record.synced);
        let since = if was_synced { self.members[&id].since } else { now };
        let key = Key {
            value: value.clone(),
            revision,
            lease,
            since,
        };
        self.members.insert(id, key);
        self.gone.remove(&id);
        let entry = Entry {
            id,
            value: Some(value),
            revision,
            lease,
        };
        self.log.push((revision, Changed::Member(entry)));
        Some(revision)
    }

    /// Makes it or not, and finds fault with what must not be.
    fn propose(&mut self, now: Duration, proposer: MemberId, proposal: Proposal) -> Outcome {
        let is = |id: &MemberId| self.members.get(id).map_or(0, |key| key.revision);
        let holds = self.map.as_ref().map_or(0, |(revision, _)| *revision) == proposal.revision
            && proposal.present.iter().all(|(id, revision)| is(id) == *revision)
            && proposal.absent.iter().all(|(id, revision)| is(id) == *revision);
        assert!(
            1 + proposal.present.len() + proposal.absent.len() <= 128,
            "more than etcd takes"
        );
        if !holds {
            return Outcome::Otherwise(self.map_entry());
        }
        let (before, after) = (self.decoded(), Map::decode(&proposal.map).unwrap());
        assert_eq!(after.generation, before.generation + 1);
        let lasting = |key: &Key| {
            let record = Record::decode(&key.value);
            record.is_ok_and(|record| record.synced && !record.draining) && key.since + timing().lease + LATE < now
        };
        let has_synced = self.members.values().any(lasting);
        let mut slowest = Duration::ZERO;
        for ((shard, from), (_, to)) in before.iter().zip(after.iter()) {
            if from == to {
                continue;
            }
            let to = to.expect("no shard is taken from everybody");
            let record = self.record(to).expect("a shard goes to who lives");
            let lives = from.is_some_and(|from| self.members.get(&from).is_some_and(|key| key.lease != 0));
            assert!(
                !lives || from == Some(proposer),
                "{shard:?} is taken from one that lives"
            );
            assert!(
                !lives || (record.synced && !record.draining),
                "{shard:?} goes to one that is not ready"
            );
            assert!(!has_synced || record.synced, "{shard:?} goes to one that is not synced");
            if let Some(gone) = from.and_then(|from| self.gone.get(&from)) {
                slowest = slowest.max(now.saturating_sub(*gone));
            }
            self.moved += 1;
        }
        self.slowest = self.slowest.max(slowest);
        self.revision += 1;
        self.map = Some((self.revision, proposal.map));
        let entry = self.map_entry().unwrap();
        self.log.push((self.revision, Changed::Map(entry)));
        Outcome::Made(self.revision)
    }
}

pub(super) fn record(number: usize, weight: u32) -> Record {
    Record {
        name: format!("gateway-{number}"),
        run: 0,
        weight,
        addresses: Vec::new(),
        api: None,
        synced: false,
        draining: false,
        cut_off: false,
    }
}

impl World {
    pub(super) fn new(seed: u64, weights: &[u32]) -> Self {
        let node = |(number, weight): (usize, &u32)| Node {
            shards: None,
            record: record(number, *weight),
            inbox: VecDeque::new(),
            watch: None,
            paused: Duration::ZERO,
            is_cut: false,
            hands_over: true,
        };
        Self {
            now: Duration::ZERO,
            etcd: Etcd::default(),
            nodes: weights.iter().enumerate().map(node).collect(),
            random: seed,
            lossy: 0,
        }
    }

    pub(super) fn draw(&mut self, most: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % most.max(1)
    }

    pub(super) fn id(&self, node: usize) -> MemberId {
        self.nodes[node].record.id()
    }

    /// A new run, which knows nothing yet.
    pub(super) fn start(&mut self, node: usize) {
        let seed = self.draw(u64::MAX);
        let one = &mut self.nodes[node];
        one.record.run += 1;
        one.record.synced = false;
        one.record.draining = false;
        one.shards = Some(Shards::new(one.record.clone(), timing(), seed));
        one.inbox.clear();
        one.watch = None;
        one.paused = self.now;
    }

    pub(super) fn sync(&mut self, node: usize, synced: bool) {
        self.tell(node, Input::Synced(synced));
    }

    pub(super) fn drain(&mut self, node: usize, drain: bool) {
        self.tell(node, Input::Drain(drain));
    }

    pub(super) fn link(&mut self, node: usize, is_there: bool) {
        self.tell(node, Input::Link(is_there));
    }

    fn tell(&mut self, node: usize, input: Input) {
        let now = self.now;
        if let Some(shards) = &mut self.nodes[node].shards {
            shards.handle(now, input);
        }
    }

    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].shards = None;
    }

    pub(super) fn pause(&mut self, node: usize, time: Duration) {
        self.nodes[node].paused = self.now + time;
    }

    pub(super) fn fails_to_hand_over(&mut self, node: usize, fails: bool) {
        self.nodes[node].hands_over = !fails;
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            self.etcd.tick(self.now);
            for node in 0..self.nodes.len() {
                self.step(node);
            }
        }
    }

    /// Runs until something holds.
    pub(super) fn run_until(&mut self, most: Duration, mut holds: impl FnMut(&Self) -> bool) -> Duration {
        let began = self.now;
        while !holds(self) {
            assert!(self.now - began < most, "not within {most:?}");
            self.run(5 * STEP);
        }
        self.now - began
    }

    fn step(&mut self, node: usize) {
        if self.nodes[node].shards.is_none() || self.nodes[node].paused > self.now {
            return;
        }
        self.watched(node);
        let now = self.now;
        let one = &mut self.nodes[node];
        let Some(shards) = &mut one.shards else { return };
        let due = one.inbox.iter().filter(|(at, _)| *at <= now).count();
        one.inbox.make_contiguous().sort_by_key(|(at, _)| *at);
        one.inbox.drain(..due).for_each(|(_, input)| shards.handle(now, input));
        let mut actions = Vec::new();
        while let Some(action) = shards.poll(now) {
            actions.push(action);
            assert!(actions.len() < 100, "it does not come to rest: {actions:?}");
        }
        assert!(shards.wake() > now, "it would be woken without an end");
        actions.into_iter().for_each(|action| self.act(node, action));
    }

    fn watched(&mut self, node: usize) {
        let Some(from) = self.nodes[node].watch else { return };
        if self.nodes[node].is_cut || self.etcd.is_away {
            // It is noticed at some time.
            if self.draw(100) == 0 {
                self.nodes[node].watch = None;
                self.tell(node, Input::Ended("cut off".to_owned()));
            }
            return;
        }
        let changed: Vec<Changed> = self.etcd.log[from..]
            .iter()
            .map(|(_, changed)| changed.clone())
            .collect();
        if !changed.is_empty() && self.draw(3) > 0 {
            self.nodes[node].watch = Some(self.etcd.log.len());
            self.tell(node, Input::Changed(changed));
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        let (now, id) = (self.now, self.id(node));
        match action {
            Action::Watch(from) => {
                self.nodes[node].watch = Some(self.etcd.log.partition_point(|(revision, _)| *revision < from));
                return;
            }
            Action::Unwatch => {
                self.nodes[node].watch = None;
                return;
            }
            Action::HandOver { to, .. } => {
                let result = match self.nodes[node].hands_over {
                    true => Ok(true),
                    false => Err("it does not answer".to_owned()),
                };
                let at = now + milliseconds(10 + self.draw(50));
                self.nodes[node].inbox.push_back((at, Input::HandedOver(to, result)));
                return;
            }
            _ => {}
        }
        let is_lost = self.nodes[node].is_cut || self.etcd.is_away || self.draw(100) < self.lossy;
        let etcd = &mut self.etcd;
        let failed = || "no answer".to_owned();
        let within = match action {
            Action::Keep(_, within) => within,
            _ => LATE,
        };
        let failure = match &action {
            Action::Grant(_) => Input::Granted(Err(failed())),
            Action::Keep(..) => Input::Kept(Err(failed())),
            Action::Register(_) => Input::Registered(Err(failed())),
            Action::List => Input::Listed(Err(failed())),
            _ => Input::Proposed(Err(failed())),
        };
        let answer = match action {
            _ if is_lost => None,
            Action::Grant(time) => {
                etcd.last_lease += 1;
                etcd.leases.insert(etcd.last_lease, now + time);
                Some(Input::Granted(Ok((etcd.last_lease, time))))
            }
            Action::Keep(lease, _) => Some(Input::Kept(Ok(match etcd.leases.get_mut(&lease) {
                Some(until) => {
                    *until = now + timing().lease;
                    timing().lease
                }
                None => Duration::ZERO,
            }))),
            Action::Register(registration) => Some(Input::Registered(Ok(etcd.register(now, registration)))),
            Action::List => Some(Input::Listed(Ok(etcd.list()))),
            Action::Propose(proposal) => Some(Input::Proposed(Ok(etcd.propose(now, id, proposal)))),
            Action::HandOver { .. } | Action::Watch(_) | Action::Unwatch => unreachable!(),
        };
        // It was done, and nobody hears of it.
        let is_lost = self.draw(100) < self.lossy;
        let input = match answer.filter(|_| !is_lost) {
            Some(input) => (now + milliseconds(self.draw(40)), input),
            None => (now + within, failure),
        };
        self.nodes[node].inbox.push_back(input);
    }
}
