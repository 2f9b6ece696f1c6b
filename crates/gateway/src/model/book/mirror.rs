//! Makes the tables hold what the fleet's state says, whatever they held. There are no versions to compare: that was done when it
//! was written, and in the fleet's state an object may begin anew once it is forgotten.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::policy::{GroupId, PolicyWriter};
use ringside_gateway_core::table::{self, NeighborWriter};

use super::{Applied, Book, Source};
use crate::fleet::item::Item;
use crate::fleet::key::{ADDRESSES, Block, Key};
use crate::fleet::value::Entry;
use crate::object::{Change, Group, GroupKey, Neighbor, Object, Port, Statement};

/// Something that is other than it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Made {
    /// This holds now; for what is deleted, since when, in seconds since 1970.
    Said(Change, i64),
    /// Nothing is known of an object any more. A delete in the version in which it was known; and whether it was there.
    Forgotten(Change, bool),
}

/// What something that is known is about, other than a neighbour that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Other {
    Group(GroupId),
    Port(TenantAddress),
    /// That was deleted.
    Neighbor(TenantAddress),
}

impl Made {
    /// For watchers: what they may not know.
    pub(crate) fn into_change(self) -> Option<Change> {
        match self {
            Self::Said(change, _) | Self::Forgotten(change, true) => Some(change),
            Self::Forgotten(_, false) => None,
        }
    }

    /// Bytes of memory that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let (Self::Said(change, _) | Self::Forgotten(change, _)) = self;
        let more = match change {
            Change::Group(statement) => match &**statement {
                Statement::Put(group) => size_of_val(&**statement) + group.name.len() + size_of_val(&*group.rules),
                Statement::Delete(..) => size_of_val(&**statement),
            },
            Change::Port(Statement::Put(port)) => size_of_val(&*port.groups),
            Change::Port(_) | Change::Neighbor(_) => 0,
        };
        size_of::<Self>() + more
    }
}

impl Book {
    /// What all that is known is about, but for neighbours that are there.
    pub(crate) fn others(&self) -> impl Iterator<Item = Other> {
        let gone = &self.gone;
        let groups = self.groups.keys().copied().chain(gone.groups.keys().map(|key| key.0));
        let ports = self.ports.keys().chain(gone.ports.keys());
        (groups.map(Other::Group))
            .chain(ports.copied().map(Other::Port))
            .chain(gone.neighbors.keys().copied().map(Other::Neighbor))
    }

    /// What is known about the next of these, as much of it as takes so many bytes, and one more.
    pub(crate) fn known_of(&self, others: &mut impl Iterator<Item = Other>, most: usize) -> Vec<Made> {
        fn deleted<O: Object>(gone: &HashMap<O::Key, (u64, i64)>, key: O::Key) -> Option<Made>
        where
            O::Key: Hash,
        {
            let (version, when) = *gone.get(&key)?;
            Some(Made::Said(O::into_change(Statement::Delete(key, version)), when))
        }
        let policy = self.tables.policy.write();
        let group = |id: GroupId| {
            let (version, name) = self.groups.get(&id)?;
            let group = Group {
                id,
                name: name.clone(),
                rules: policy.group(id).unwrap_or_default().to_vec(),
                version: *version,
            };
            Some(Made::Said(Group::into_change(Statement::Put(group)), 0))
        };
        let port = |address: TenantAddress| {
            let bound = self.ports.get(&address)?;
            let port = Port {
                address,
                groups: policy.groups_of(bound.profile).unwrap_or_default().to_vec(),
                version: bound.version,
            };
            Some(Made::Said(Change::Port(Statement::Put(port)), 0))
        };
        let (mut all, mut bytes) = (Vec::new(), 0);
        while bytes < most
            && let Some(other) = others.next()
        {
            // One that nobody remembers any more has gone meanwhile, and that was told.
            let known = match other {
                Other::Group(id) => group(id).or_else(|| deleted::<Group>(&self.gone.groups, GroupKey(id))),
                Other::Port(address) => port(address).or_else(|| deleted::<Port>(&self.gone.ports, address)),
                Other::Neighbor(address) => deleted::<Neighbor>(&self.gone.neighbors, address),
            };
            bytes += known.as_ref().map_or(0, Made::bytes);
            all.extend(known);
        }
        all
    }

    /// All neighbours of a part: see `Neighbors::for_each_of`.
    pub(crate) fn all_neighbors(&self, part: usize) -> Vec<Made> {
        let mut hosts = self.tables.hosts.reader();
        let mut all = Vec::new();
        self.tables.neighbors.for_each_of(part, |address, known| {
            let neighbor = hosts.given(known.host).map(|host| Neighbor {
                address,
                mac: known.mac,
                host,
                version: known.version,
            });
            all.extend(neighbor.map(|neighbor| Made::Said(Change::Neighbor(Statement::Put(neighbor)), 0)));
        });
        all
    }

    /// Makes the tables and the data path match these items, and returns what was different. Groups
    /// and ports come before neighbours, as in [`Book::apply`]. A port that is gone without a
    /// tombstone holds: see [`super::lost`].
    pub(crate) fn mirror(&mut self, items: &[Item], source: Source) -> Vec<Made> {
        let mut made = Vec::new();
        let is_neighbors = |item: &Item| matches!(item, Item::Neighbors(..));
        if !items.iter().all(is_neighbors) {
            let applied = self.mirror_policy(items, source, &mut made);
            self.tell(&applied);
        }
        if items.iter().any(is_neighbors) {
            let applied = self.mirror_neighbors(items, &mut made);
            self.tell(&applied);
        }
        made
    }

    /// Makes it so of all groups and ports, at once: nothing is known from now on of those that have other keys than these.
    pub(crate) fn mirror_all_policy(&mut self, mut items: Vec<Item>, keep: &HashSet<Key>) -> Vec<Made> {
        let others = self.others_than(keep);
        items.extend(
            others
                .into_iter()
                .filter(|key| !matches!(key, Key::Neighbors(_)))
                .map(nothing),
        );
        self.mirror(&items, Source::List)
    }

    /// Nothing is known from now on of what has other keys than these: of security groups, ports, and what was deleted.
    pub(crate) fn sweep_policy(&mut self, keep: &HashSet<Key>) -> Vec<Made> {
        self.forget_all(self.others_than(keep))
    }

    fn others_than(&self, keep: &HashSet<Key>) -> BTreeSet<Key> {
        let keys = self.others().map(|other| match other {
            Other::Group(id) => Key::Group(id),
            Other::Port(address) => Key::Ports(Block::of(address).0),
            Other::Neighbor(address) => Key::Neighbors(Block::of(address).0),
        });
        keys.filter(|key| !keep.contains(key)).collect()
    }

    /// The same of neighbours, of a part of them: see `Neighbors::for_each_of`.
    pub(crate) fn sweep_neighbors(&mut self, part: usize, keep: &HashSet<Key>) -> Vec<Made> {
        let mut others = BTreeSet::new();
        self.tables.neighbors.for_each_of(part, |address, _| {
            let key = Key::Neighbors(Block::of(address).0);
            if !keep.contains(&key) {
                others.insert(key);
            }
        });
        self.forget_all(others)
    }

    fn forget_all(&mut self, keys: BTreeSet<Key>) -> Vec<Made> {
        let items: Vec<Item> = keys.into_iter().map(nothing).collect();
        self.mirror(&items, Source::List)
    }

    /// All of it becomes visible at once, in whatever order it was said.
    fn mirror_policy(&mut self, items: &[Item], source: Source, made: &mut Vec<Made>) -> Applied {
        let tables = Arc::clone(&self.tables);
        let mut policy = tables.policy.write();
        let mut bound = BTreeSet::new();
        for item in items {
            match item {
                Item::Group(id, entry) => made.extend(self.mirror_group(&mut policy, *id, entry.as_ref())),
                Item::Ports(block, entries) => each(*block, entries, |address, entry| {
                    let changed = self.mirror_port(&mut policy, address, entry, source);
                    if changed.is_some() {
                        bound.insert(address);
                    }
                    made.extend(changed);
                }),
                Item::DamagedPorts(block) => {
                    for address in (0..ADDRESSES).map(|low| block.address(low)) {
                        if !self.ports.contains_key(&address) {
                            let closed = super::lost::placeholder(address);
                            self.bind(&mut policy, address, Some(&closed));
                            made.push(Made::Said(Change::Port(Statement::Put(closed)), 0));
                            bound.insert(address);
                        }
                    }
                }
                Item::Neighbors(..) => {}
            }
        }
        self.bound(policy, bound)
    }

    fn mirror_group(
        &mut self,
        policy: &mut PolicyWriter<'_>,
        id: GroupId,
        entry: Option<&Entry<Group>>,
    ) -> Option<Made> {
        let known = self.groups.get(&id).map(|(version, _)| *version);
        let key = GroupKey(id);
        let gone = self.gone.groups.get(&key).copied();
        let put = entry.and_then(|entry| match &entry.statement {
            Statement::Put(group) => Some(group),
            Statement::Delete(..) => None,
        });
        let is_same = match put {
            Some(group) => {
                self.groups.get(&id) == Some(&(group.version, group.name.clone()))
                    && policy.group(id) == Some(&*group.rules)
            }
            None => known.is_none() && gone == entry.map(deletion),
        };
        if is_same {
            return None;
        }
        self.set_group(policy, id, put);
        note(&mut self.gone.groups, key, entry);
        Some(made(key, entry, known, gone))
    }

    fn mirror_port(
        &mut self,
        policy: &mut PolicyWriter<'_>,
        address: TenantAddress,
        entry: Option<&Entry<Port>>,
        source: Source,
    ) -> Option<Made> {
        let bound = self.ports.get(&address).copied();
        let gone = self.gone.ports.get(&address).copied();
        let put = entry.and_then(|entry| match &entry.statement {
            Statement::Put(port) => Some(port),
            Statement::Delete(..) => None,
        });
        let is_same = match (put, bound) {
            (Some(port), Some(bound)) => {
                bound.version == port.version && policy.groups_of(bound.profile) == Some(&*port.groups)
            }
            (None, None) => gone == entry.map(deletion),
            _ => false,
        };
        if is_same {
            self.found_port(address);
            return None;
        }
        if self.holds_lost(address, entry, bound, source) {
            return None;
        }
        self.bind(policy, address, put);
        self.found_port(address);
        note(&mut self.gone.ports, address, entry);
        Some(made(address, entry, bound.map(|bound| bound.version), gone))
    }

    fn mirror_neighbors(&mut self, items: &[Item], made: &mut Vec<Made>) -> Applied {
        let mut applied = Applied::default();
        let tables = Arc::clone(&self.tables);
        let mut writer = tables.neighbors.write();
        let mut reader = tables.neighbors.reader();
        for item in items {
            let Item::Neighbors(block, entries) = item else {
                continue;
            };
            let mut found = [None; ADDRESSES as usize];
            reader.look_up(&block.addresses(), &mut found);
            let mut known = found.iter();
            each(*block, entries, |address, entry| {
                let known = known.next().copied().flatten();
                // So it is with most addresses where they are far apart.
                if entry.is_none() && known.is_none() && self.gone.neighbors.is_empty() {
                    return;
                }
                if let Some(change) = self.mirror_neighbor(&mut writer, address, entry, known) {
                    if known.is_some() || matches!(change, Made::Said(Change::Neighbor(Statement::Put(_)), _)) {
                        applied.changed.push(address);
                    }
                    made.push(change);
                }
            });
        }
        applied
    }

    fn mirror_neighbor(
        &mut self,
        writer: &mut NeighborWriter<'_>,
        address: TenantAddress,
        entry: Option<&Entry<Neighbor>>,
        known: Option<table::Neighbor>,
    ) -> Option<Made> {
        let gone = if self.gone.neighbors.is_empty() {
            None
        } else {
            self.gone.neighbors.get(&address).copied()
        };
        let put = entry.and_then(|entry| match &entry.statement {
            Statement::Put(neighbor) => Some(table::Neighbor {
                mac: neighbor.mac,
                host: self.tables.hosts.intern(neighbor.host),
                policy: self.policy_of(address),
                version: neighbor.version,
            }),
            Statement::Delete(..) => None,
        });
        if put == known && (put.is_some() || gone == entry.map(deletion)) {
            return None;
        }
        if let Some(known) = known
            && put.is_none_or(|put| put.version <= known.version)
        {
            writer.remove(address, known.version);
        }
        if let Some(put) = put {
            writer.put(address, put);
        }
        if gone.is_some() || put.is_none() {
            note(&mut self.gone.neighbors, address, entry);
        }
        Some(made(address, entry, known.map(|known| known.version), gone))
    }
}

/// That nothing has this key.
fn nothing(key: Key) -> Item {
    match key {
        Key::Group(id) => Item::Group(id, None),
        Key::Ports(block) => Item::Ports(block, Vec::new()),
        Key::Neighbors(block) => Item::Neighbors(block, Vec::new()),
    }
}

/// Calls for each address of a block, with what is said of it.
fn each<O: Object<Key = TenantAddress>>(
    block: Block,
    entries: &[Entry<O>],
    mut each: impl FnMut(TenantAddress, Option<&Entry<O>>),
) {
    let mut entries = entries.iter().peekable();
    for address in (0..ADDRESSES).map(|low| block.address(low)) {
        each(address, entries.next_if(|entry| entry.statement.key() == address));
    }
}

/// Version and time.
fn deletion<O: Object>(entry: &Entry<O>) -> (u64, i64) {
    (entry.statement.version(), entry.deleted)
}

/// Remembers that an object was deleted, or forgets it.
fn note<O: Object>(gone: &mut HashMap<O::Key, (u64, i64)>, key: O::Key, entry: Option<&Entry<O>>)
where
    O::Key: Hash,
{
    match entry {
        Some(entry) if matches!(entry.statement, Statement::Delete(..)) => _ = gone.insert(key, deletion(entry)),
        _ => _ = gone.remove(&key),
    }
}

fn made<O: Object>(key: O::Key, entry: Option<&Entry<O>>, known: Option<u64>, gone: Option<(u64, i64)>) -> Made {
    match entry {
        Some(entry) => Made::Said(O::into_change(entry.statement.clone()), entry.deleted),
        None => {
            let version = known.or(gone.map(|(version, _)| version)).unwrap_or(0);
            Made::Forgotten(O::into_change(Statement::Delete(key, version)), known.is_some())
        }
    }
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
