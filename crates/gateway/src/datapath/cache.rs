//! The fast path's caches: as full as they can be, and never older than the tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use ringside_bpf::gateway::{CachedNeighbor, GatewayConfig, GatewayProgram, NeighborKey, Sampling, TableHand, Tunnel};
use ringside_gateway_core::table::{Encapsulation, HostId, HostReader, Neighbor, NeighborReader};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::MacAddr;

use crate::model::{Foreign, Tables};

/// Entries that are put with one call.
pub(super) const BATCH: usize = 4096;
/// A full cache is looked through for what can go once in so long.
const EVICT_EVERY: Duration = Duration::from_secs(1);
/// This part of it at a time.
const EVICTED: usize = 16;
/// But not more entries, for a tenth of a second or so: changes wait meanwhile.
const MOST_EVICTED: usize = 1 << 17;

/// What becomes of addresses for which a full cache has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// Others make room that were not used: packets come for these.
    Made,
    /// They stay outside: nobody has asked for them yet.
    Kept,
}

/// The program, what it goes by, and how full its cache of neighbours is.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) program: Arc<GatewayProgram>,
    pub(super) config: GatewayConfig,
    /// False: it stays empty.
    is_used: bool,
    /// There is no other than the first.
    one_port: bool,
    hosts: HostReader,
    neighbors: NeighborReader,
    /// Networks that are other gateways'.
    foreign: Arc<Foreign>,
    /// As many changes of these have been looked at, through all that there is.
    marked: u64,
    /// How far it has been looked through for the number of changes that is to be reached.
    marking: Option<(u64, TableHand)>,
    /// Packets of these networks as the program had counted them the last time.
    foreign_packets: u64,
    evicted_at: Option<Instant>,
    /// Where to look next for what can go.
    hand: TableHand,
    /// Entries that made room for others.
    pub(super) evicted: u64,
    /// Entries that there was no room for.
    pub(super) refused: u64,
}

impl Cache {
    pub(super) fn new(program: Arc<GatewayProgram>, config: GatewayConfig, tables: &Tables, is_used: bool) -> Self {
        Self {
            program,
            one_port: config.ports.len() == 1,
            config,
            is_used,
            hosts: tables.hosts.reader(),
            neighbors: tables.neighbors.reader(),
            marked: tables.foreign.changes(),
            foreign: Arc::clone(&tables.foreign),
            marking: None,
            foreign_packets: 0,
            evicted_at: None,
            hand: TableHand::default(),
            evicted: 0,
            refused: 0,
        }
    }

    /// Removes what the process before has left and what is no longer so, and takes up from it what the MAC addresses of hosts
    /// are: those hosts.
    pub(super) fn adopt(&mut self, tables: &Tables) -> Result<Vec<HostId>> {
        let (mut gone, mut marked, mut resolved) = (Vec::new(), Vec::new(), Vec::new());
        let program = Arc::clone(&self.program);
        self.foreign_packets = program.foreign()?.packets;
        program.neighbors().for_each(|key, value| {
            let address = Vni::new(key.vni).map(|vni| TenantAddress::new(vni, key.ip));
            let known = address.and_then(|address| self.neighbors.find(address));
            let now = known.and_then(|known| {
                let host = self.hosts.find(known.host)?;
                let is_its = host.ip == value.host && host.port.is_none_or(|port| port == value.port);
                let is_open = host.mac.is_none() || (host.port.is_none() && !self.one_port);
                if is_its && is_open {
                    let found = (MacAddr(value.host_mac), value.port);
                    tables.hosts.resolve(known.host, Some(found));
                    resolved.push(known.host);
                }
                self.cached(address?.vni, &known)
            });
            // Whose its network is does not take it out.
            let foreign = now.is_some_and(|now| now.foreign);
            let (had, value) = (value.foreign, CachedNeighbor { foreign, ..value });
            // A change may have come to the disk and not to the map.
            if !self.is_used || now != Some(CachedNeighbor { used: true, ..value }) {
                gone.push(key);
            } else if had != foreign {
                marked.push((key, value));
            }
        });
        program.neighbors().remove(&gone);
        program.neighbors().put(&marked);
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
                Some(value) => put.push((key_of(*address), value)),
                // Gone, or nobody knows yet how its host is reached.
                None => gone.push(key_of(*address)),
            }
        }
        // First what is no longer so: it makes room. An address may come twice, the last time as it is now.
        self.program.neighbors().remove(&gone);
        // What is in it is replaced, however full it is; only others are refused.
        let mut done = self.program.neighbors().put(&put);
        if done < put.len() && room == Room::Made && self.evict() {
            done = self.program.neighbors().put(&put);
        }
        self.refused += (put.len() - done) as u64;
    }

    /// Looks on through a part of it, and removes what was not used since the last time round. False if it is not time yet.
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
        self.program.neighbors().remove(&unused);
        self.program.neighbors().put(&used);
        self.evicted_at = Some(Instant::now());
        self.evicted += unused.len() as u64;
        true
    }

    /// Connections that were handed over before have to be judged again from now on.
    pub(super) fn outdate(&mut self, epoch: u64, has_policy: bool) -> Result<()> {
        (self.config.generation, self.config.has_policy) = (epoch, has_policy);
        self.configure()
    }

    /// Which packets the program shows.
    pub(super) fn sample(&mut self, sampling: Option<Sampling>) -> Result<()> {
        self.config.sampling = sampling;
        self.configure()
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

    /// Marks what is of other gateways' networks, and takes the mark from what is not, a part at a time, after networks have changed
    /// hands. True: there is more to be looked through.
    pub(super) fn mark(&mut self) -> bool {
        let changes = self.foreign.changes();
        if !self.is_used || (self.marking.is_none() && self.marked == changes) {
            return false;
        }
        // What changes meanwhile is looked at in another round.
        let (reached, mut hand) = self.marking.take().unwrap_or((changes, TableHand::default()));
        let mut other = Vec::new();
        self.program.neighbors().read_on(&mut hand, BATCH, |key, value| {
            let foreign = Vni::new(key.vni).is_some_and(|vni| self.foreign.is(vni));
            if foreign != value.foreign {
                other.push((key, CachedNeighbor { foreign, ..value }));
            }
        });
        self.program.neighbors().put(&other);
        if hand.is_new() {
            self.marked = reached;
        } else {
            self.marking = Some((reached, hand));
        }
        self.marking.is_some() || self.marked != self.foreign.changes()
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

    /// What the program has to know; None as long as nobody knows how its host is reached.
    fn cached(&mut self, vni: Vni, neighbor: &Neighbor) -> Option<CachedNeighbor> {
        let host = self.hosts.find(neighbor.host)?;
        Some(CachedNeighbor {
            host: host.ip,
            host_mac: host.mac?.0,
            mac: neighbor.mac.0,
            port: host.port.or(self.one_port.then_some(0))?,
            tunnel: host.encapsulation.map(|speaks| match speaks {
                Encapsulation::Vxlan => Tunnel::Vxlan,
                Encapsulation::Geneve => Tunnel::Geneve,
            }),
            policed: neighbor.policy != 0,
            foreign: self.foreign.is(vni),
            // What has just come is not the first to go, and its first packets need not write that it is used.
            used: true,
        })
    }

    /// True if not all that is known is in it, or was not: then ends of connections have to come back, senders too.
    pub(super) fn lacks_some(&self) -> bool {
        self.evicted > 0 || self.entries() >= self.program.sizes().neighbors.into()
    }
}

fn key_of(address: TenantAddress) -> NeighborKey {
    NeighborKey {
        vni: address.vni.number(),
        ip: address.ip,
    }
}
