//! How much memory the data path takes: sizes of its maps, and a line of the log.

use std::ops::RangeInclusive;

use anyhow::Result;
use ringside_bpf::gateway::{GatewayProgram, Sizes};

use super::PathOptions;
use super::ports::Ports;
use super::sockets::{self, Share};
use crate::model::Tables;

const MIB: u64 = 1 << 20;

/// Returns the sizes of new maps where so many neighbours are known, and the room for neighbours of
/// maps that are taken over as they are: for all of them, and not for many more.
pub(super) fn sizes(options: &PathOptions, known: usize, ports: &Ports) -> Result<(Sizes, RangeInclusive<u32>)> {
    // As many as they may have some day.
    let queues = ports
        .iter()
        .map(|(_, interface)| Ok(interface.rx_queues()?.max(interface.state()?.num_rx_queues)));
    let queues: Vec<u32> = queues.collect::<Result<_>>()?;
    let bounds = &options.cached_neighbors;
    let room = |times: u32| {
        let neighbors = u32::try_from(known).unwrap_or(u32::MAX).saturating_mul(times);
        neighbors.min(*bounds.end()).max(*bounds.start())
    };
    let sizes = Sizes {
        neighbors: room(2),
        connections: options.cached_connections,
        queues: queues.into_iter().max().unwrap_or(1),
        sample_bytes: 1 << 20,
    };
    Ok((sizes, room(1)..=room(4)))
}

/// Logs how much memory the parts take at the start. What grows later: both caches and the tables,
/// that of connections up to `max_connections_mib`.
pub(super) fn log(program: &GatewayProgram, tables: &Tables, shares: &[Share]) {
    let maps = program.memory().unwrap_or_else(|error| {
        tracing::debug!(%error, "the memory of maps is not known");
        Vec::new()
    });
    let sum = |is_it: &dyn Fn(&str) -> bool| {
        maps.iter()
            .filter(|(name, _)| is_it(name))
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
    };
    let [neighbors, connections] = ["neighbors", "connections"].map(|map| sum(&|name| name == map));
    let policy = tables.policy.memory() + tables.bindings.memory();
    tracing::info!(
        cached_neighbors_mib = neighbors / MIB,
        cached_connections_mib = connections / MIB,
        other_maps_mib = (sum(&|_| true) - neighbors - connections) / MIB,
        connections_mib = tables.conntrack.memory() as u64 / MIB,
        max_connections_mib = tables.conntrack.max_memory() as u64 / MIB,
        neighbors_mib = tables.neighbors.memory() as u64 / MIB,
        policy_mib = policy as u64 / MIB,
        frames_mib = sockets::frame_bytes(shares) / MIB,
        "memory"
    );
}
