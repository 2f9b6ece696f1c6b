//! The fast path's cache of neighbours: as full as it can be, and never older than the tables.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringside_bpf::gateway::{
    CachedNeighbor, GatewayConfig, GatewayProgram, NeighborKey, PolicySince, Sampling, TableHand, Tunnel,
};
use ringside_gateway_core::table::{BindingReader, Encapsulation, HostId, HostReader, Limit, Neighbor, NeighborReader};
use ringside_gateway_core::{Neighbors, TenantAddress, Vni};
use ringside_wire::MacAddr;

use super::connections::{Handed, most_brief};
use super::epochs::{Epochs, Policed, slot_of};
use super::limits::seconds_of;
use super::now;
use crate::model::{Foreign, Tables};

/// Entries that are put with one call.
pub(super) const BATCH: usize = 4096;
/// Entries that are put with one call where many follow: changes wait meanwhile.
pub(super) const FOLLOWED: usize = 1024;
/// A full cache is looked through for what can go once in so long.
const EVICT_EVERY: Duration = Duration::from_secs(1);
/// This part of it at a time.
pub(super) const EVICTED: usize = 16;
/// But not more entries, for a tenth of a second or so: changes wait meanwhile.
pub(super) const MOST_EVICTED: usize = 1 << 17;
/// So many entries are counted within ten milliseconds.
pub(super) const FEW: u64 = 1 << 16;

/// What becomes of addresses for which a full cache has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Others make room that were not used: packets come for these.
    Made,
    /// They stay outside: nobody has asked for them yet.
    Kept,
}

/// Position in the table of neighbours, whose addresses are read part by part and without a lock.
#[derive(Debug, Default)]
pub(super) struct AddressCursor {
    part: usize,
    found: Vec<TenantAddress>,
}

impl AddressCursor {
    /// Returns whether all neighbours were looked at, and all that were found were taken.
    pub(super) fn is_done(&self) -> bool {
        self.part == Neighbors::PARTS && self.found.is_empty()
    }

    /// Returns up to [`FOLLOWED`] addresses of neighbours that pass the filter: these are put
    /// within less than a millisecond. Reads the next part of the table only when none are left.
    pub(super) fn next(&mut self, neighbors: &Neighbors, is_wanted: impl Fn(&Neighbor) -> bool) -> Vec<TenantAddress> {
        if self.found.is_empty() {
            neighbors.for_each_of(self.part, |address, neighbor| {
                if is_wanted(&neighbor) {
                    self.found.push(address);
                }
            });
            self.part += 1;
        }
        self.found.split_off(self.found.len().saturating_sub(FOLLOWED))
    }
}

/// Hosts whose MAC addresses are others than they were, and how far their neighbours were looked
/// for.
#[derive(Debug)]
pub(super) struct Moved {
    hosts: Vec<HostId>,
    cursor: AddressCursor,
}

impl Moved {
    /// Nothing has been looked for yet.
    pub(super) fn new(hosts: impl Iterator<Item = HostId>) -> Self {
        let mut hosts: Vec<HostId> = hosts.collect();
        hosts.sort_unstable();
        hosts.dedup();
        Self {
            hosts,
            cursor: AddressCursor::default(),
        }
    }

    /// All neighbours were looked at, and those that were found were taken.
    pub(super) fn is_done(&self) -> bool {
        self.cursor.is_done()
    }

    /// Some that have to be put there as they are now: see [`AddressCursor::next`].
    pub(super) fn next(&mut self, neighbors: &Neighbors) -> Vec<TenantAddress> {
        let is_of_these = |neighbor: &Neighbor| self.hosts.binary_search(&neighbor.host).is_ok();
        self.cursor.next(neighbors, is_of_these)
    }
}

/// The program, what it goes by, and how full its cache of neighbours is.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) program: Arc<GatewayProgram>,
    pub(super) config: GatewayConfig,
    /// False: it stays empty.
    pub(super) is_used: bool,
    /// There is no other than the first.
    one_port: bool,
    hosts: HostReader,
    pub(super) neighbors: NeighborReader,
    /// Networks that are other gateways'.
    foreign: Arc<Foreign>,
    bindings: BindingReader,
    /// Networks with rules.
    policed: Policed,
    /// Networks that have entries, and some that had.
    pub(super) known: HashSet<u32>,
    /// As many changes of the two kinds of networks have been looked at, through all that there is.
    pub(super) marked: u64,
    /// When it is as many as that, packets may go the straight lane again.
    open_at: u64,
    /// How far it has been looked through for the number of changes that is to be reached.
    pub(super) marking: Option<(u64, TableHand)>,
    /// Packets of these networks as the program had counted them the last time.
    foreign_packets: u64,
    /// A program whose table gets every change as well, while the cache grows.
    pub(super) other: Option<Arc<GatewayProgram>>,
    evicted_at: Option<Instant>,
    /// Where to look next for what can go.
    hand: TableHand,
    /// Entries that made room for others.
    pub(super) evicted: u64,
    /// Entries that there was no room for.
    pub(super) refused: u64,
    /// Entries that were other than the tables.
    pub(super) diverged: u64,
    /// The cache of connections.
    pub(super) handed: Handed,
}

impl Cache {
    pub(super) fn new(program: Arc<GatewayProgram>, config: GatewayConfig, tables: &Tables, is_used: bool) -> Self {
        let mut cache = Self {
            program,
            one_port: config.ports.len() == 1,
            config,
            is_used,
            hosts: tables.hosts.reader(),
            neighbors: tables.neighbors.reader(),
            marked: 0,
            open_at: 0,
            foreign: Arc::clone(&tables.foreign),
            bindings: tables.bindings.reader(),
            policed: Policed::of(tables.bindings.networks()),
            known: HashSet::new(),
            marking: None,
            foreign_packets: 0,
            other: None,
            evicted_at: None,
            hand: TableHand::default(),
            evicted: 0,
            refused: 0,
            diverged: 0,
            handed: Handed::default(),
        };
        cache.marked = cache.changes();
        let connections = if is_used { cache.program.sizes().connections } else { 0 };
        tables.conntrack.limit_brief(most_brief(connections));
        cache
    }

    /// Removes what the process before has left and what is no longer so, and takes up from it what the MAC addresses of hosts
    /// are (of those hosts that it returns), and what the ways to them take: what a router has said as long as that is believed, and
    /// what a route said until the resolver has asked for it.
    pub(super) fn adopt(&mut self, tables: &Tables) -> Result<Vec<HostId>> {
        let (mut gone, mut others, mut resolved) = (Vec::new(), Vec::new(), Vec::new());
        let program = Arc::clone(&self.program);
        self.foreign_packets = program.foreign()?.packets;
        let seconds = seconds_of(now());
        program.neighbors().for_each(|key, value| {
            let address = Vni::new(key.vni).map(|vni| TenantAddress::new(vni, key.ip));
            let known = address.and_then(|address| self.neighbors.find(address));
            let now = known.and_then(|known| {
                let host = self.hosts.find(known.host)?;
                let is_its = host.ip == value.host && host.port.is_none_or(|port| port == value.port);
                let is_open = host.mac.is_none() || (host.port.is_none() && !self.one_port);
                // Routes are asked for no others.
                let holds = value.mtu_until.map_or(is_open, |until| until.get() > seconds);
                // That process may have ended before it had told all entries.
                let is_less = value
                    .mtu
                    .is_some_and(|mtu| self.hosts.mtu(known.host).is_none_or(|other| mtu < other));
                if is_its && holds && is_less {
                    let until = value.mtu_until;
                    let limit = Limit {
                        until,
                        ..Limit::of(value.mtu)
                    };
                    tables.hosts.limit(known.host, limit);
                }
                if is_its && is_open {
                    let found = (MacAddr(value.host_mac), value.port);
                    tables.hosts.resolve(known.host, Some(found));
                    resolved.push(known.host);
                }
                self.cached(address?.vni, &known)
            });
            // What its network is does not take it out.
            let marks = now.map_or((false, false), |now| (now.foreign, now.guarded));
            let (had, value) = ((value.foreign, value.guarded), marked(value, marks));
            // A change may have come to the disk and not to the map.
            if !self.is_used || now != Some(CachedNeighbor { used: true, ..value }) {
                gone.push(key);
            } else {
                self.known.insert(key.vni);
                if had != marks {
                    others.push((key, value));
                }
            }
        });
        program.neighbors().remove(&gone);
        program.neighbors().put(&others);
        Ok(resolved)
    }

    /// Puts in all that there is room for.
    pub(super) fn fill(&mut self, tables: &Tables) {
        let program = Arc::clone(&self.program);
        let room = if self.is_used {
            self.program.sizes().neighbors as usize
        } else {
            0
        };
        let mut batch = Vec::with_capacity(BATCH);
        let mut put = 0;
        tables.neighbors.for_each(|address, neighbor| {
            if put + batch.len() == room {
                return;
            }
            if let Some(value) = self.cached(address.vni, &neighbor) {
                self.known.insert(address.vni.number());
                batch.push((key_of(address), value));
            }
            if batch.len() == BATCH {
                put += program.neighbors().put(&batch);
                batch.clear();
            }
        });
        program.neighbors().put(&batch);
    }

    /// Makes known what has changed. What there is no room for is not in the cache: workers know it.
    fn apply(&mut self, changes: &[(TenantAddress, Option<Neighbor>)], room: Room) {
        let (mut put, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for (address, neighbor) in changes {
            match neighbor.and_then(|neighbor| self.cached(address.vni, &neighbor)) {
                Some(value) => {
                    self.known.insert(address.vni.number());
                    put.push((key_of(*address), value));
                }
                // Gone, or nobody knows yet how its host is reached.
                None => gone.push(key_of(*address)),
            }
        }
        // First what is no longer so: it makes room. An address may come twice, the last time as it is now.
        self.remove(&gone);
        // What is in it is replaced, however full it is; only others are refused.
        let mut done = self.program.neighbors().put(&put);
        if let Some(other) = &self.other {
            other.neighbors().put(&put);
        }
        if done < put.len() && room == Room::Made && self.evict() {
            done = self.program.neighbors().put(&put);
        }
        self.refused += (put.len() - done) as u64;
    }

    /// Removes entries, from a larger table that is being filled as well.
    pub(super) fn remove(&self, keys: &[NeighborKey]) {
        for program in std::iter::once(&self.program).chain(&self.other) {
            program.neighbors().remove(keys);
        }
    }

    /// Looks on through a part of it, and removes what was not used since the last time round.
    /// False if it is not time yet. A table that grows keeps what is removed here.
    fn evict(&mut self) -> bool {
        if self.evicted_at.is_some_and(|last| last.elapsed() < EVICT_EVERY) {
            return false;
        }
        let all = self.program.sizes().neighbors as usize;
        let most = (all / EVICTED).max(1);
        let part = most.clamp(BATCH, MOST_EVICTED);
        let (mut unused, mut used) = (Vec::new(), Vec::new());
        self.program.neighbors().read_on(&mut self.hand, part, |key, value| {
            if value.used {
                used.push((key, CachedNeighbor { used: false, ..value }));
            } else if unused.len() < most {
                unused.push(key);
            }
        });
        // What was moved may have come twice.
        self.evicted += self.program.neighbors().remove(&unused) as u64;
        self.program.neighbors().put(&used);
        self.evicted_at = Some(Instant::now());
        true
    }

    /// Connections of these networks that were handed over before have to be judged again from now on; where rules are bound now
    /// and were not before, senders count.
    pub(super) fn police(&mut self, networks: &[Vni], epochs: &Epochs) -> Result<()> {
        let epoch = epochs.begin(networks.iter().copied().map(slot_of));
        let mut is_to_be_marked = false;
        // Of networks that have rules again. Nobody followed their connections meanwhile.
        let mut unfollowed = HashSet::new();
        for &vni in networks {
            let is_policed = self.bindings.is_policed(vni);
            if self.policed.set(vni, is_policed) && is_policed {
                is_to_be_marked |= self.known.contains(&vni.number());
                unfollowed.insert(slot_of(vni));
            }
        }
        let mut since = Vec::with_capacity(networks.len());
        for &vni in networks {
            let slot = slot_of(vni);
            let now = if !self.policed.has_slot(slot) {
                PolicySince::NONE
            } else if unfollowed.contains(&slot) {
                PolicySince::first(epoch)
            } else {
                let before = self.program.policies().find(&slot)?;
                before.unwrap_or(PolicySince::NONE).then(epoch)
            };
            since.push((slot, now));
        }
        self.program.policies().put(&since)?;
        if is_to_be_marked {
            // All entries of a network may be a million, and are marked one after the other: see `mark`. Meanwhile all packets go
            // the way that asks for their senders.
            self.open_at = self.changes();
            self.config.marking = true;
            self.configure()?;
        }
        Ok(())
    }

    /// Says in which of all networks rules are bound. What the process before has let through goes on until the next
    /// [`Self::configure`].
    pub(super) fn police_all(&self) -> Result<()> {
        let mut others = Vec::new();
        self.program
            .policies()
            .for_each(|slot, before| match (self.policed.has_slot(slot), before.since) {
                (true, 0) => others.push((slot, PolicySince::first(self.config.generation))),
                (false, 1..) => others.push((slot, PolicySince::NONE)),
                _ => {}
            })?;
        self.program.policies().put(&others)?;
        Ok(())
    }

    /// Which packets the program shows.
    pub(super) fn sample(&mut self, sampling: Option<Sampling>) -> Result<()> {
        self.config.sampling = sampling;
        self.configure()
    }

    /// Whether tenants' packets are dropped because what is known is too old. What a worker has in its hands is not held up.
    pub(super) fn set_stale(&mut self, is_stale: bool) -> Result<()> {
        let before = std::mem::replace(&mut self.config.stale, is_stale);
        if before == is_stale {
            return Ok(());
        }
        // Else it is tried again.
        self.configure().inspect_err(|_| self.config.stale = before)
    }

    pub(super) fn configure(&self) -> Result<()> {
        Ok(self.program.configure(&self.config)?)
    }

    /// Puts addresses there as they are now.
    pub(super) fn refresh(&mut self, addresses: &[TenantAddress], room: Room) {
        if !self.is_used {
            return;
        }
        let mut found = vec![None; addresses.len()];
        self.neighbors.look_up(addresses, &mut found);
        let now: Vec<_> = addresses.iter().copied().zip(found).collect();
        self.apply(&now, room);
    }

    /// Changes of what entries are marked by.
    fn changes(&self) -> u64 {
        self.foreign.changes() + self.policed.changes()
    }

    /// Marks what is of other gateways' networks, or of networks with rules, and takes the mark from what is not, a part at a time,
    /// after networks have changed hands, or the first or the last rules there. True: there is more to be looked through.
    pub(super) fn mark(&mut self) -> Result<bool> {
        let changes = self.changes();
        let is_done = self.marking.is_none() && self.marked == changes && !self.config.marking;
        // While the cache grows, packets may meet either table; all of the larger one is looked
        // through afterwards.
        if !self.is_used || is_done || self.other.is_some() {
            return Ok(false);
        }
        // What changes meanwhile is looked at in another round.
        let (reached, mut hand) = self.marking.take().unwrap_or((changes, TableHand::default()));
        let mut other = Vec::new();
        self.program.neighbors().read_on(&mut hand, BATCH, |key, value| {
            let Some(vni) = Vni::new(key.vni) else { return };
            let marks = (self.foreign.is(vni), self.policed.has(vni));
            if marks != (value.foreign, value.guarded) {
                other.push((key, marked(value, marks)));
            }
        });
        self.program.neighbors().put(&other);
        if hand.is_new() {
            self.marked = reached;
            if self.config.marking && self.marked >= self.open_at {
                self.config.marking = false;
                // Else it is tried again.
                self.configure().inspect_err(|_| self.config.marking = true)?;
            }
        } else {
            self.marking = Some((reached, hand));
        }
        Ok(self.marking.is_some() || self.marked != self.changes())
    }

    /// Takes up what the program has counted of other gateways' networks.
    pub(super) fn count_foreign(&mut self) -> Result<()> {
        let packets = self.program.foreign()?.packets;
        let before = std::mem::replace(&mut self.foreign_packets, packets);
        self.foreign.count(packets.saturating_sub(before));
        Ok(())
    }

    /// Entries that are there.
    pub(super) fn entries(&self) -> u64 {
        self.program.neighbors().len() as u64
    }

    /// What the program has to know of an address now.
    pub(super) fn known(&mut self, address: TenantAddress) -> Option<CachedNeighbor> {
        let neighbor = self.neighbors.find(address)?;
        self.cached(address.vni, &neighbor)
    }

    /// True if what the way to an address takes is less than entries were told, which they are in their turn.
    pub(super) fn waits_for_its_limit(&mut self, address: TenantAddress) -> bool {
        let neighbor = self.neighbors.find(address);
        let limit = neighbor.map_or(Limit::default(), |neighbor| self.hosts.limit(neighbor.host));
        (limit.mtu).is_some_and(|mtu| limit.told.is_none_or(|told| mtu < told))
    }

    /// What the program has to know; None as long as nobody knows how its host is reached.
    pub(super) fn cached(&mut self, vni: Vni, neighbor: &Neighbor) -> Option<CachedNeighbor> {
        let host = self.hosts.find(neighbor.host)?;
        let port = host.port.or(self.one_port.then_some(0))?;
        let ours = self.config.ports.get(usize::from(port)).and_then(Option::as_ref);
        let takes = ours.map_or(u16::MAX, |port| port.mtu);
        let limit = self.hosts.limit(neighbor.host);
        // What is not told yet holds of what comes meanwhile, too.
        let mtu = limit.mtu.into_iter().chain(limit.told).min();
        Some(CachedNeighbor {
            host: host.ip,
            host_mac: host.mac?.0,
            mac: neighbor.mac.0,
            port,
            tunnel: host.encapsulation.map(|speaks| match speaks {
                Encapsulation::Vxlan => Tunnel::Vxlan,
                Encapsulation::Geneve => Tunnel::Geneve,
            }),
            policed: neighbor.policy != 0,
            foreign: self.foreign.is(vni),
            guarded: self.policed.has(vni),
            // A way that takes as much as its port does is none that the straight lane has to stay away from.
            mtu: mtu.filter(|way| way.get() < takes),
            mtu_until: mtu.and(limit.until),
            // What has just come is not the first to go, and its first packets need not write that it is used.
            used: true,
        })
    }

    /// True if not all that is known is in it, or was not: then ends of connections have to come back, senders too.
    pub(super) fn lacks_some(&self) -> bool {
        self.evicted > 0 || self.entries() >= self.program.sizes().neighbors.into()
    }
}

/// With these marks: of another gateway's network, of a network with rules.
pub(super) fn marked(value: CachedNeighbor, (foreign, guarded): (bool, bool)) -> CachedNeighbor {
    CachedNeighbor {
        foreign,
        guarded,
        ..value
    }
}

pub(super) fn key_of(address: TenantAddress) -> NeighborKey {
    NeighborKey {
        vni: address.vni.number(),
        ip: address.ip,
    }
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
