//! Members and map, as they were heard of.

use std::collections::{BTreeMap, BTreeSet};

use ringside_gateway_core::shard::{MemberId, Move, Planner, Shard};

use super::map::Map;
use super::record::Record;
use super::terms::{Changed, Entry, Listed, MapEntry};

/// A member, as its key was heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// What it says.
    pub record: Record,
    /// When its key was changed last.
    pub revision: u64,
    /// With which it goes.
    pub lease: i64,
}

/// See the module.
#[derive(Debug)]
pub struct View {
    peers: BTreeMap<MemberId, Peer>,
    /// Keys that somebody has overwritten, and when they were changed last: they say nothing of a
    /// member, and go with no lease.
    overwritten: BTreeMap<MemberId, u64>,
    planner: Planner,
    map: Map,
    /// When the map was changed last; 0: there is none.
    map_revision: u64,
    /// Why the map cannot be read; the last good one holds.
    damage: Option<String>,
    me: MemberId,
    /// Moves of shards of this member's.
    mine: Vec<Move>,
    /// The owner of some shard is gone.
    has_orphans: bool,
    /// No owner is gone since that was looked at.
    is_looked_at: bool,
}

impl View {
    pub(super) fn new(me: MemberId) -> Self {
        Self {
            me,
            mine: Vec::new(),
            has_orphans: true,
            is_looked_at: false,
            peers: BTreeMap::new(),
            overwritten: BTreeMap::new(),
            planner: Planner::new(),
            map: Map::default(),
            map_revision: 0,
            damage: None,
        }
    }

    /// Members that live, as far as is known.
    pub fn peers(&self) -> impl Iterator<Item = (MemberId, &Peer)> {
        self.peers.iter().map(|(id, peer)| (*id, peer))
    }

    /// One of them.
    #[must_use]
    pub fn peer(&self, id: MemberId) -> Option<&Peer> {
        self.peers.get(&id)
    }

    /// When the key of a member that is none was changed last; 0: it is not there.
    pub(super) fn revision_of_absent(&self, id: MemberId) -> u64 {
        self.overwritten.get(&id).copied().unwrap_or(0)
    }

    /// Who owns what.
    #[must_use]
    pub const fn map(&self) -> &Map {
        &self.map
    }

    /// When etcd's map was changed last; 0: there is none.
    #[must_use]
    pub const fn map_revision(&self) -> u64 {
        self.map_revision
    }

    /// Why etcd's map cannot be read; the last good one holds.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The move that a shard has to make.
    pub(super) fn target(&self, shard: Shard) -> Option<Move> {
        self.planner.target(shard, self.map.owner(shard))
    }

    /// The owner of some shard is gone.
    pub(super) const fn has_orphans(&self) -> bool {
        self.has_orphans
    }

    /// Of the owners of shards several are gone, and as many as are left.
    pub(super) fn are_most_gone(&self) -> bool {
        let owners: BTreeSet<MemberId> = self.map.iter().filter_map(|(_, owner)| owner).collect();
        let gone = owners.iter().filter(|owner| !self.peers.contains_key(owner)).count();
        gone > 1 && 2 * gone >= owners.len()
    }

    /// The key of an owner of shards was overwritten: if that gateway lives it writes it again.
    pub(super) fn is_an_owner_overwritten(&self) -> bool {
        let is_owner = |id| self.map.iter().any(|(_, owner)| owner == Some(id));
        self.overwritten.keys().copied().any(is_owner)
    }

    /// Number of shards whose owner is gone, or that have none.
    pub(super) fn orphans(&self) -> usize {
        let is_gone = |owner: Option<MemberId>| owner.is_none_or(|owner| !self.peers.contains_key(&owner));
        self.map.iter().filter(|(_, owner)| is_gone(*owner)).count()
    }

    /// Shards of this member's that are to be others'.
    pub(super) fn mine(&self) -> &[Move] {
        &self.mine
    }

    /// Of the living members that have a shard to give away, how many are before this one by name.
    pub(super) fn givers_before_me(&self) -> usize {
        let moves = self.map.iter().filter_map(|(shard, _)| self.target(shard));
        let givers: BTreeSet<MemberId> = moves.filter(|one| !one.is_urgent).filter_map(|one| one.from).collect();
        givers.range(..self.me).count()
    }

    /// Finds out what has to move, once something has changed: who asks does so more often.
    fn refresh(&mut self) {
        let owners = self.map.iter();
        let own = owners
            .filter(|(_, owner)| *owner == Some(self.me))
            .map(|(shard, _)| shard);
        self.mine = own.filter_map(|shard| self.target(shard)).collect();
        // With a thousand members that is a thousand look-ups, and members change more often than they go.
        if std::mem::replace(&mut self.is_looked_at, true) && !self.has_orphans {
            return;
        }
        let mut last = None;
        self.has_orphans = self.map.iter().any(|(_, owner)| {
            // Most have the same owner as one before.
            let is_known = owner.is_some() && owner == last;
            last = owner;
            !is_known && owner.is_none_or(|owner| !self.peers.contains_key(&owner))
        });
    }

    /// How many members look after shards without an owner before this one does.
    pub(super) fn rank(&self, me: MemberId) -> usize {
        let order = |id: MemberId, peer: &Peer| (!peer.record.synced, peer.record.draining, id);
        let Some(own) = self.peers.get(&me).map(|peer| order(me, peer)) else {
            return self.peers.len();
        };
        self.peers.iter().filter(|(id, peer)| order(**id, peer) < own).count()
    }

    pub(super) fn list(&mut self, listed: Listed) {
        let there: BTreeSet<MemberId> = listed.members.iter().map(|entry| entry.id).collect();
        // One that has come since then is known by its own answer.
        let known = self.peers.iter().map(|(id, peer)| (*id, peer.revision));
        let known = known.chain(self.overwritten.iter().map(|(id, revision)| (*id, *revision)));
        let gone = known.filter(|(id, revision)| *revision <= listed.revision && !there.contains(id));
        let gone: Vec<MemberId> = gone.map(|(id, _)| id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
        listed.members.into_iter().for_each(|entry| self.enter(entry));
        match listed.map {
            Some(map) => self.take_map(map),
            None if self.map_revision <= listed.revision => self.map_revision = 0,
            None => {}
        }
        self.refresh();
    }

    pub(super) fn change(&mut self, changed: impl IntoIterator<Item = Changed>) {
        for changed in changed {
            match changed {
                Changed::Member(entry) => self.enter(entry),
                Changed::Map(map) => self.take_map(map),
            }
        }
        self.refresh();
    }

    /// What cannot be read is no member: nobody could be sent to it. Nor is what goes with no
    /// lease: it would stay when its gateway is gone.
    fn enter(&mut self, entry: Entry) {
        let known = self.peers.get(&entry.id).map(|peer| peer.revision);
        if known.unwrap_or(0).max(self.revision_of_absent(entry.id)) > entry.revision {
            return;
        }
        let Some(value) = entry.value else {
            return self.remove(entry.id);
        };
        let record = Record::decode(&value).ok();
        let Some(record) = record.filter(|record| record.id() == entry.id && entry.lease != 0) else {
            self.remove(entry.id);
            self.overwritten.insert(entry.id, entry.revision);
            return;
        };
        self.overwritten.remove(&entry.id);
        self.planner.put(record.member());
        let peer = Peer {
            record,
            revision: entry.revision,
            lease: entry.lease,
        };
        self.peers.insert(entry.id, peer);
    }

    fn remove(&mut self, id: MemberId) {
        self.planner.remove(id);
        self.overwritten.remove(&id);
        self.is_looked_at &= self.peers.remove(&id).is_none();
    }

    fn take_map(&mut self, map: MapEntry) {
        if map.revision < self.map_revision {
            return;
        }
        let Some(value) = map.value else {
            // It is made anew from what is known.
            self.map_revision = 0;
            return;
        };
        self.map_revision = map.revision;
        match Map::decode(&value) {
            Ok(map) => {
                self.map = map;
                self.is_looked_at = false;
                self.damage = None;
            }
            Err(why) => self.damage = Some(why),
        }
    }
}
