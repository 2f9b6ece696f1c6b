//! What etcd holds of the fleet's members: their keys under leases, and the one map. Fault is found with each map that must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringside_gateway::fleet::shards::{Changed, Entry, Listed, Map, MapEntry, Outcome, Proposal, Record, Registration};
use ringside_gateway_core::shard::{MemberId, Planner, Shard};

use super::gateway::{broken, nanoseconds};
use super::world::place;

#[derive(Debug)]
struct Key {
    value: Vec<u8>,
    revision: u64,
    lease: i64,
}

#[derive(Debug)]
struct Lease {
    until: u64,
    lives: u64,
}

/// A shard that has another owner.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moved {
    pub(crate) shard: Shard,
    pub(crate) from: Option<MemberId>,
    pub(crate) to: MemberId,
}

/// See the module. Its revisions are its own: nothing else is counted by them.
#[derive(Debug)]
pub(crate) struct Registry {
    keys: BTreeMap<MemberId, Key>,
    leases: BTreeMap<i64, Lease>,
    last_lease: i64,
    map: Option<MapEntry>,
    owners: Map,
    /// The change at place n is revision n + 1.
    log: Vec<Changed>,
    planner: Planner,
    /// As of which revision nothing had to move.
    rested: Option<(u64, bool)>,
}

fn bytes_of(value: Option<&Vec<u8>>) -> u64 {
    // The key's name and what etcd says of it.
    value.map_or(0, Vec::len) as u64 + 80
}

impl Registry {
    pub(crate) fn new() -> Self {
        Self {
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            map: None,
            owners: Map::default(),
            log: Vec::new(),
            planner: Planner::new(),
            rested: None,
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.log.len() as u64
    }

    pub(crate) const fn owners(&self) -> &Map {
        &self.owners
    }

    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.keys.contains_key(&id)
    }

    /// Changes behind a revision, up to another one.
    pub(crate) fn changes(&self, after: u64, upto: u64) -> &[Changed] {
        self.log.get(place(after)..place(upto)).unwrap_or_default()
    }

    /// How large those are.
    pub(crate) fn bytes(&self, after: u64, upto: u64) -> u64 {
        let of = |changed: &Changed| match changed {
            Changed::Member(entry) => bytes_of(entry.value.as_ref()),
            Changed::Map(map) => bytes_of(map.value.as_ref()),
        };
        self.changes(after, upto).iter().map(of).sum()
    }

    /// Members, and how large a list of everything is.
    pub(crate) fn size(&self) -> (u64, u64) {
        let members = self.keys.values().map(|key| bytes_of(Some(&key.value))).sum::<u64>();
        let map = self.map.iter().map(|map| bytes_of(map.value.as_ref())).sum::<u64>();
        (self.keys.len() as u64, members + map)
    }

    /// Whether every shard is where the plan has it.
    pub(crate) fn is_at_rest(&mut self) -> bool {
        let revision = self.revision();
        if let Some((of, rests)) = self.rested
            && of == revision
        {
            return rests;
        }
        let is_right =
            |(shard, owner): (Shard, Option<MemberId>)| owner.is_some() && self.planner.target(shard, owner).is_none();
        let rests = self.owners.iter().all(is_right);
        self.rested = Some((revision, rests));
        rests
    }

    pub(crate) fn grant(&mut self, now: u64, lives: Duration) -> i64 {
        self.last_lease += 1;
        let lives = nanoseconds(lives);
        let until = now + lives;
        self.leases.insert(self.last_lease, Lease { until, lives });
        self.last_lease
    }

    /// How long it lives on; zero: it is over.
    pub(crate) fn keep(&mut self, now: u64, id: i64) -> Duration {
        self.leases.get_mut(&id).map_or(Duration::ZERO, |lease| {
            lease.until = now + lease.lives;
            Duration::from_nanos(lease.lives)
        })
    }

    /// Another leader knows not how old leases are: all begin anew.
    pub(crate) fn elected(&mut self, at: u64) {
        let leases = self.leases.values_mut();
        leases.for_each(|lease| lease.until = at + lease.lives);
    }

    /// Leases that have run out, and their keys, go.
    pub(crate) fn expire(&mut self, now: u64) {
        let over = self.leases.iter().filter(|(_, lease)| lease.until <= now);
        let over: BTreeSet<i64> = over.map(|(id, _)| *id).collect();
        self.end(&over);
    }

    pub(crate) fn revoke(&mut self, id: i64) {
        self.end(&BTreeSet::from([id]));
    }

    fn end(&mut self, over: &BTreeSet<i64>) {
        if over.is_empty() {
            return;
        }
        self.leases.retain(|id, _| !over.contains(id));
        let gone = self.keys.iter().filter(|(_, key)| over.contains(&key.lease));
        let gone: Vec<MemberId> = gone.map(|(id, _)| *id).collect();
        for id in gone {
            self.keys.remove(&id);
            self.planner.remove(id);
            let revision = self.revision() + 1;
            self.log.push(Changed::Member(Entry {
                id,
                value: None,
                revision,
                lease: 0,
            }));
        }
    }

    pub(crate) fn list(&self) -> Listed {
        let entry = |(id, key): (&MemberId, &Key)| Entry {
            id: *id,
            value: Some(key.value.clone()),
            revision: key.revision,
            lease: key.lease,
        };
        Listed {
            revision: self.revision(),
            members: self.keys.iter().map(entry).collect(),
            map: self.map.clone(),
        }
    }

    fn revision_of(&self, id: MemberId) -> u64 {
        self.keys.get(&id).map_or(0, |key| key.revision)
    }

    /// An error: there is no such lease.
    pub(crate) fn register(&mut self, said: &Registration) -> Result<Option<u64>, String> {
        if (said.expected).is_some_and(|expected| expected != self.revision_of(said.id)) {
            return Ok(None);
        }
        if !self.leases.contains_key(&said.lease) {
            return Err("requested lease not found".to_owned());
        }
        let revision = self.revision() + 1;
        match Record::decode(&said.value) {
            Ok(record) => self.planner.put(record.member()),
            Err(why) => broken(&why),
        }
        let (value, lease) = (said.value.clone(), said.lease);
        self.log.push(Changed::Member(Entry {
            id: said.id,
            value: Some(value.clone()),
            revision,
            lease,
        }));
        let key = Key { value, revision, lease };
        self.keys.insert(said.id, key);
        Ok(Some(revision))
    }

    /// Makes it if everything is so, and says what has moved.
    pub(crate) fn propose(&mut self, proposer: MemberId, proposal: &Proposal) -> (Outcome, Vec<Moved>) {
        let holds = self.map.as_ref().map_or(0, |map| map.revision) == proposal.revision
            && (proposal.present.iter()).all(|(id, revision)| self.revision_of(*id) == *revision)
            && proposal.absent.iter().all(|(id, _)| !self.has(*id));
        if proposal.present.len() + proposal.absent.len() > 127 {
            broken("a transaction compares more than etcd takes");
        }
        if !holds {
            return (Outcome::Otherwise(self.map.clone()), Vec::new());
        }
        let after = match Map::decode(&proposal.map) {
            Ok(after) if after.generation == self.owners.generation + 1 => after,
            _ => broken("a map that is not the next one"),
        };
        let mut moves = Vec::new();
        for ((shard, from), (_, to)) in self.owners.iter().zip(after.iter()) {
            if from == to {
                continue;
            }
            let Some(to) = to.filter(|to| self.has(*to)) else {
                broken("a shard goes to nobody, or to one that does not live")
            };
            let ready = |member: &ringside_gateway_core::shard::Member| member.is_synced && !member.is_draining;
            let lives = from.filter(|from| self.has(*from));
            if lives.is_some_and(|from| from != proposer) {
                broken("a shard is taken from one that lives");
            }
            if lives.is_some() && !self.planner.member(to).is_some_and(ready) {
                broken("a shard is given to one that is not ready");
            }
            moves.push(Moved { shard, from, to });
        }
        let revision = self.revision() + 1;
        let map = MapEntry {
            value: Some(proposal.map.clone()),
            revision,
        };
        self.log.push(Changed::Map(map.clone()));
        (self.map, self.owners) = (Some(map), after);
        (Outcome::Made(revision), moves)
    }
}
