//! Which gateway has which shard: leases that run out, and moves that are planned by the real plan.

use std::collections::BTreeMap;

use ringside_gateway_core::shard::{Member, MemberId, Shard, plan};

use super::costs::SECOND;
use super::random::place;
use super::server::{Ask, What};
use super::world::{Event, World};

/// Of a lease.
pub(crate) const TTL: u64 = 5 * SECOND;
/// Seconds between two keep-alives, not the same for all gateways.
const EVERY: u64 = 2;
/// Moves of a second that are not urgent.
const MOST: usize = 128;

#[derive(Debug)]
pub(crate) struct Shards {
    /// When each gateway's lease runs out; None: it has none.
    leases: Vec<Option<u64>>,
    draining: Vec<bool>,
    owners: BTreeMap<Shard, MemberId>,
    /// Since when nobody serves a shard.
    unserved: BTreeMap<Shard, u64>,
    changed: bool,
}

impl Shards {
    pub(crate) fn new(gateways: usize) -> Self {
        Self {
            leases: vec![Some(TTL); gateways],
            draining: vec![false; gateways],
            owners: BTreeMap::new(),
            unserved: BTreeMap::new(),
            changed: true,
        }
    }

    fn of(&self, gateway: usize) -> impl Iterator<Item = Shard> {
        let owner = MemberId(gateway as u64);
        (self.owners.iter()).filter_map(move |(shard, of)| (*of == owner).then_some(*shard))
    }

    /// How many a gateway has.
    pub(crate) fn count(&self, gateway: usize) -> usize {
        self.of(gateway).count()
    }

    pub(crate) fn set_draining(&mut self, gateway: usize, draining: bool) {
        self.draining[gateway] = draining;
        self.changed = true;
    }

    /// Nobody serves what a gateway has.
    pub(crate) fn down(world: &mut World, gateway: usize) {
        let lost: Vec<Shard> = world.shards.of(gateway).collect();
        for shard in lost {
            world.shards.unserved.entry(shard).or_insert(world.now);
        }
    }

    /// What a gateway has is to go elsewhere, and no more than that.
    pub(crate) fn hit(world: &mut World, gateway: usize) {
        let count = world.shards.count(gateway) as u64;
        if let Some(phase) = world.measure.phases.last_mut() {
            phase.of_hit += count;
        }
    }

    /// A gateway serves again what it still has.
    pub(crate) fn is_up(world: &mut World, gateway: usize) {
        let back: Vec<Shard> = world.shards.of(gateway).collect();
        for shard in back {
            world.served(shard);
        }
    }

    /// etcd has a gateway's keep-alive.
    pub(crate) fn kept(world: &mut World, gateway: usize) {
        let shards = &mut world.shards;
        shards.changed |= shards.leases[gateway].is_none();
        shards.leases[gateway] = Some(world.now + TTL);
    }

    /// Another leader knows not how old leases are: all begin anew.
    pub(crate) fn elected(&mut self, at: u64) {
        let leases = self.leases.iter_mut().flatten();
        leases.for_each(|lease| *lease = at + TTL);
    }

    /// A keep-alive, after a while.
    pub(crate) fn keep(world: &mut World, gateway: usize, wait: u64) {
        let up: Vec<usize> = world.members.up().collect();
        if up.is_empty() || !world.gateways[gateway].up || world.gateways[gateway].cut {
            return;
        }
        world.measure.asked_otherwise();
        let member = up[world.random.below(up.len())];
        let ask = Ask {
            gateway,
            kind: 0,
            tag: 0,
            what: What::KeepAlive,
        };
        world.after(wait + world.setup.costs.way, Event::Arrive(member, ask));
    }

    /// Keep-alives, leases that have run out, and moves.
    pub(crate) fn second(world: &mut World) {
        let (now, second) = (world.now, world.now / SECOND);
        let up: Vec<usize> = world.members.up().collect();
        for gateway in 0..world.gateways.len() {
            let asks = world.gateways[gateway].up && !world.gateways[gateway].cut && !up.is_empty();
            if asks && (gateway as u64 + second).is_multiple_of(EVERY) {
                let wait = world.random.below(place(SECOND)) as u64;
                Self::keep(world, gateway, wait);
            }
        }
        if world.members.has_quorum(now) {
            world.plan();
        }
    }
}

impl World {
    fn plan(&mut self) {
        let now = self.now;
        for lease in &mut self.shards.leases {
            if lease.is_some_and(|until| until < now) {
                *lease = None;
                self.shards.changed = true;
            }
        }
        if !self.shards.changed {
            return;
        }
        let member = |gateway: usize| {
            self.shards.leases[gateway].is_some().then(|| Member {
                id: MemberId(gateway as u64),
                weight: 1,
                is_synced: self.gateways[gateway].is_following(now),
                is_draining: self.shards.draining[gateway],
            })
        };
        let members: Vec<Member> = (0..self.gateways.len()).filter_map(member).collect();
        let moves = plan(&self.shards.owners, &members, MOST);
        // Whether one is synced may change without a lease.
        self.shards.changed = !moves.is_empty() || members.iter().any(|member| !member.is_synced);
        for made in moves {
            let before = self.shards.owners.insert(made.shard, made.to);
            self.note([u64::from(made.shard.number()), made.to.0, now]);
            if before.is_none() {
                continue;
            }
            if let Some(phase) = self.measure.phases.last_mut() {
                phase.moved += 1;
            }
            let to = usize::try_from(made.to.0).unwrap_or(usize::MAX);
            if self.gateways.get(to).is_some_and(|gateway| gateway.up) {
                self.served(made.shard);
            }
        }
    }

    fn served(&mut self, shard: Shard) {
        if let Some(since) = self.shards.unserved.remove(&shard)
            && let Some(phase) = self.measure.phases.last_mut()
        {
            phase.ownerless = phase.ownerless.max(self.now - since);
        }
    }
}
