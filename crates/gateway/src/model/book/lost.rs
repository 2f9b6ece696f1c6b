//! Ports that etcd lacks though no gateway has deleted them: somebody removed or overwrote their
//! key past all gateways.
//!
//! A gateway that deletes a port leaves a tombstone in its key, and forgets that days later. So a
//! port that is there and is followed by neither a port nor a tombstone was not deleted. An address
//! without a port may do anything: the port holds on as it was known until a gateway puts or
//! deletes it. What a watch showed to be lost is put back into etcd, for gateways that have never
//! known it ([`crate::fleet::write`]). After a list nobody knows: the tombstone may have come and
//! gone between the last revision that was known and the list.

use ringside_gateway_core::TenantAddress;

use super::{Book, Bound, Made, Other};
use crate::fleet::item::Item;
use crate::fleet::key::Key;
use crate::fleet::value::Entry;
use crate::object::{Change, Neighbor, Object, Port, Statement};

/// How the content of a key became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// By a watch, which misses no revision.
    Watch,
    /// By a list: revisions before it may be missing.
    List,
}

/// Returns what stands for a port that could not be read ([`Item::DamagedPorts`]): it allows
/// nothing. No gateway writes one into etcd: there it would be a port for all others, also at an
/// address that never had one.
pub(super) const fn placeholder(address: TenantAddress) -> Port {
    Port {
        address,
        groups: Vec::new(),
        version: 0,
    }
}

/// Returns whether a port looks like a [`placeholder`]. A port with groups may have version 0, too,
/// and so may one without, which etcd has then.
pub(super) const fn is_placeholder(port: &Port) -> bool {
    port.version == 0 && port.groups.is_empty()
}

impl Book {
    /// Whether a port holds though its key says nothing of it any more, and notes that.
    pub(super) fn holds_lost(
        &mut self,
        address: TenantAddress,
        entry: Option<&Entry<Port>>,
        bound: Option<Bound>,
        source: Source,
    ) -> bool {
        let is_lost = match (entry.map(|entry| &entry.statement), bound) {
            (_, None) => false,
            // Nobody can be reached there, and it is not known that there ever was a port.
            (None, Some(bound)) => !bound.is_placeholder || self.has_neighbor(address),
            // Written by an older gateway that could not read it. Another port is known.
            (Some(Statement::Put(port)), Some(_)) => is_placeholder(port),
            (Some(Statement::Delete(..)), Some(_)) => false,
        };
        if is_lost {
            *self.lost.entry(address).or_default() |= source == Source::Watch;
        } else {
            self.lost.remove(&address);
        }
        is_lost
    }

    /// Notes that etcd has what is known of an address: a port there is no placeholder.
    pub(super) fn found_port(&mut self, address: TenantAddress) {
        self.lost.remove(&address);
        if let Some(bound) = self.ports.get_mut(&address) {
            bound.is_placeholder = false;
        }
    }

    fn has_placeholder(&self, address: TenantAddress) -> bool {
        self.ports.get(&address).is_some_and(|bound| bound.is_placeholder)
    }

    fn has_neighbor(&self, address: TenantAddress) -> bool {
        self.tables.neighbors.reader().find(address).is_some()
    }

    /// Number of lost ports, and some of them.
    pub(in crate::model) fn lost(&self, most: usize) -> (usize, Vec<TenantAddress>) {
        let mut some: Vec<TenantAddress> = self.lost.keys().copied().take(most).collect();
        some.sort_unstable();
        (self.lost.len(), some)
    }

    /// What puts ports back that are lost for sure, up to so many.
    pub(in crate::model) fn restoration(&self, most: usize) -> Vec<Change> {
        let is_sure = self.lost.iter().filter(|(_, is_sure)| **is_sure);
        let known = is_sure.filter(|(address, _)| !self.has_placeholder(**address));
        let mut others = known.take(most).map(|(address, _)| Other::Port(*address));
        let known = self.known_of(&mut others, usize::MAX).into_iter();
        known.filter_map(Made::into_change).collect()
    }

    /// After a list: forgets ports that may have been deleted while nobody told, of addresses that
    /// have no neighbour.
    pub(in crate::model) fn forget_unreachable_lost(&mut self) -> Vec<Made> {
        let unsure = self.lost.iter().filter(|(_, is_sure)| !**is_sure);
        let gone: Vec<TenantAddress> = unsure.map(|(address, _)| *address).collect();
        let gone: Vec<TenantAddress> = gone
            .into_iter()
            .filter(|address| !self.has_neighbor(*address))
            .collect();
        if gone.is_empty() {
            return Vec::new();
        }
        let tables = std::sync::Arc::clone(&self.tables);
        let mut policy = tables.policy.write();
        let mut made = Vec::new();
        for address in &gone {
            self.lost.remove(address);
            if let Some(Bound { version, .. }) = self.ports.get(address).copied() {
                self.bind(&mut policy, *address, None);
                made.push(Made::Forgotten(
                    Change::Port(Statement::Delete(*address, version)),
                    true,
                ));
            }
        }
        let applied = self.bound(policy, gone.into_iter().collect());
        self.tell(&applied);
        made
    }

    /// Returns what is known of all objects of a key that cannot be read, without placeholders.
    pub(in crate::model) fn known_item(&self, key: Key) -> Item {
        match key {
            Key::Group(id) => {
                let group = std::iter::once(Other::Group(id));
                Item::Group(id, self.known_entries(group).pop())
            }
            Key::Ports(block) => {
                let is_known = |address: &TenantAddress| !self.has_placeholder(*address);
                let addresses = block.addresses().into_iter().filter(is_known);
                Item::Ports(block, self.known_entries(addresses.map(Other::Port)))
            }
            Key::Neighbors(block) => {
                let deleted = block.addresses().into_iter().map(Other::Neighbor);
                let mut entries = self.known_entries(deleted);
                entries.extend(
                    block
                        .addresses()
                        .into_iter()
                        .filter_map(|address| self.known_neighbor(address)),
                );
                entries.sort_by_key(|entry: &Entry<Neighbor>| entry.statement.key());
                Item::Neighbors(block, entries)
            }
        }
    }

    fn known_entries<O: Object>(&self, mut others: impl Iterator<Item = Other>) -> Vec<Entry<O>> {
        let entry = |made| match made {
            Made::Said(change, deleted) => {
                let statement = O::of(&change)?.clone();
                Some(Entry { statement, deleted })
            }
            Made::Forgotten(..) => None,
        };
        self.known_of(&mut others, usize::MAX)
            .into_iter()
            .filter_map(entry)
            .collect()
    }

    fn known_neighbor(&self, address: TenantAddress) -> Option<Entry<Neighbor>> {
        let known = self.tables.neighbors.reader().find(address)?;
        let host = self.tables.hosts.reader().given(known.host)?;
        let neighbor = Neighbor {
            address,
            mac: known.mac,
            host,
            version: known.version,
        };
        let statement = Statement::Put(neighbor);
        Some(Entry { statement, deleted: 0 })
    }
}
