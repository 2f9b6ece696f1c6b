//! The fast path's cache of neighbours: as full as it can be, and never older than the tables.

use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Result;
use ringside_bpf::gateway::{CachedNeighbor, GatewayConfig, GatewayProgram, NeighborKey, Tunnel};
use ringside_gateway_core::TenantAddress;
use ringside_gateway_core::decide::Cacheable;
use ringside_gateway_core::table::{Encapsulation, HostId, HostReader, Neighbor, NeighborReader};

use super::worker::Shared;
use crate::model::Tables;

/// Entries that are put with one call.
const BATCH: usize = 4096;

/// The program, what it goes by, and how full its cache is.
#[derive(Debug)]
pub(super) struct Cache {
    program: GatewayProgram,
    config: GatewayConfig,
    hosts: HostReader,
    neighbors: NeighborReader,
    entries: u64,
}

impl Cache {
    /// Fills the cache by the tables, then has the program go by these settings.
    pub(super) fn new(program: GatewayProgram, config: GatewayConfig, tables: &Tables) -> Result<Self> {
        let mut cache = Self {
            program,
            config,
            hosts: tables.hosts.reader(),
            neighbors: tables.neighbors.reader(),
            entries: 0,
        };
        let mut batch = Vec::with_capacity(BATCH);
        let mut failed = None;
        tables.neighbors.for_each(|address, neighbor| {
            batch.push((address, Some(neighbor)));
            if batch.len() == BATCH && failed.is_none() {
                failed = cache.apply(&batch).err();
                batch.clear();
            }
        });
        cache.apply(&batch)?;
        if let Some(error) = failed {
            return Err(error);
        }
        cache.program.configure(&cache.config)?;
        Ok(cache)
    }

    pub(super) fn program(&self) -> &GatewayProgram {
        &self.program
    }

    pub(super) fn entries(&self) -> u64 {
        self.entries
    }

    /// Makes known what has changed. What there is no room for is not in the cache: workers know it.
    pub(super) fn apply(&mut self, changes: &[(TenantAddress, Option<Neighbor>)]) -> Result<()> {
        let (mut put, mut gone) = (Vec::with_capacity(changes.len()), Vec::new());
        for (address, neighbor) in changes {
            let key = NeighborKey {
                vni: address.vni.number(),
                ip: address.ip,
            };
            match neighbor.and_then(|neighbor| cached(&mut self.hosts, &neighbor)) {
                Some(value) => put.push((key, value)),
                // Gone, or nobody knows yet how its host is reached.
                None => gone.push(key),
            }
        }
        // First what is no longer so: it makes room.
        self.program.remove_neighbors(&gone)?;
        let had_room = self.program.put_neighbors(&put)?;
        if had_room < put.len() {
            // Which ones were left out nobody says: none of them may be there as it was.
            let keys: Vec<NeighborKey> = put.iter().map(|(key, _)| *key).collect();
            self.program.remove_neighbors(&keys)?;
            self.program.put_neighbors(&put)?;
        }
        self.entries = (self.entries + had_room as u64).min(self.program.sizes().neighbors.into());
        Ok(())
    }

    /// New rules: connections that older ones have allowed go to a worker from now on.
    pub(super) fn policy(&mut self, generation: u64, has_policy: bool) -> Result<()> {
        (self.config.generation, self.config.has_policy) = (generation, has_policy);
        Ok(self.program.configure(&self.config)?)
    }

    /// Puts addresses there as they are now.
    fn refresh(&mut self, addresses: &[TenantAddress]) -> Result<()> {
        let mut found = vec![None; addresses.len()];
        self.neighbors.look_up(addresses, &mut found);
        let now: Vec<_> = addresses.iter().copied().zip(found).collect();
        self.apply(&now)
    }
}

/// What the program has to know; None as long as the host's MAC address is not known.
fn cached(hosts: &mut HostReader, neighbor: &Neighbor) -> Option<CachedNeighbor> {
    let host = hosts.find(neighbor.host)?;
    Some(CachedNeighbor {
        host: host.ip,
        host_mac: host.mac?.0,
        mac: neighbor.mac.0,
        port: host.port,
        tunnel: host.encapsulation.map(|speaks| match speaks {
            Encapsulation::Vxlan => Tunnel::Vxlan,
            Encapsulation::Geneve => Tunnel::Geneve,
        }),
        policed: neighbor.policy != 0,
        used: false,
    })
}

/// Puts into the cache what workers have found, until the end.
pub(super) fn keep(shared: &Shared, cache: &Mutex<Cache>, tables: &Tables, resolved: &Receiver<HostId>) {
    let mut addresses = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        while let Some(found) = shared.cacheable.pop() {
            if let Cacheable::Neighbor(address) = found {
                addresses.push(address);
            }
            if addresses.len() == BATCH {
                break;
            }
        }
        let hosts: Vec<HostId> = resolved.try_iter().collect();
        if !hosts.is_empty() {
            tables.neighbors.for_each(|address, neighbor| {
                if hosts.contains(&neighbor.host) {
                    addresses.push(address);
                }
            });
        }
        if addresses.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        addresses.sort_unstable();
        addresses.dedup();
        // The tables are read under the lock: what is put is never older than what `changed` put before.
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = cache.refresh(&addresses) {
            tracing::warn!(%error, "the fast path's cache cannot be filled");
        }
        addresses.clear();
    }
}
