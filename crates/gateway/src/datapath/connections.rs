//! The fast path's cache of connections.

use std::collections::HashMap;

use anyhow::Result;
use ringside_bpf::gateway::{CachedConnection, ConnectionKey, GatewayProgram, PolicySlot};
use ringside_gateway_core::conntrack::{Connection, ConnectionId, Conntrack, State};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::Protocol;

use super::epochs::{Epochs, slot_of};
use crate::model::Tables;

/// Both directions: that of its first packet, and the other.
fn keys(connection: &Connection) -> [ConnectionKey; 2] {
    let key = ConnectionKey {
        vni: connection.vni.number(),
        source: connection.source,
        destination: connection.destination,
        ports: connection.ports,
        protocol: connection.protocol.0,
    };
    [key, reversed(key)]
}

fn reversed(key: ConnectionKey) -> ConnectionKey {
    let [source, destination] = key.ports;
    ConnectionKey {
        source: key.destination,
        destination: key.source,
        ports: [destination, source],
        ..key
    }
}

/// Has the fast path send on packets of these connections, each of which was open in an epoch; of those that were not judged as they
/// would be now the next packet says it again. How many directions there was no room for. No epoch may begin meanwhile.
pub(super) fn hand_over(
    program: &GatewayProgram,
    conntrack: &Conntrack,
    connections: impl IntoIterator<Item = (ConnectionId, u64)>,
    epochs: &Epochs,
) -> Result<usize> {
    let mut entries = Vec::new();
    for (id, epoch) in connections {
        // The program knows no other protocols.
        let is_known = |connection: &Connection| {
            matches!(connection.protocol, Protocol::TCP | Protocol::UDP) && epochs.holds(slot_of(connection.vni), epoch)
        };
        let known = conntrack.find(id).filter(is_known);
        let Some(connection) = known.and_then(|_| conntrack.hand_over(id)) else {
            continue;
        };
        let idle = conntrack.timeout(connection.state) / 1_000_000;
        for (key, reply) in keys(&connection).into_iter().zip([false, true]) {
            let value = CachedConnection {
                generation: epoch,
                seen: connection.seen,
                idle_ms: u32::try_from(idle).unwrap_or(u32::MAX),
                reply,
                name: id.to_bits(),
            };
            entries.push((key, value));
        }
    }
    if entries.is_empty() {
        return Ok(0);
    }
    Ok(entries.len() - program.connections().put(&entries)?)
}

/// Takes connections back from the fast path.
pub(super) fn let_go(
    program: &GatewayProgram,
    conntrack: &Conntrack,
    connections: impl IntoIterator<Item = ConnectionId>,
) -> Result<()> {
    let ended = connections.into_iter().filter_map(|id| conntrack.find(id));
    let keys: Vec<ConnectionKey> = ended.flat_map(|connection| keys(&connection)).collect();
    if !keys.is_empty() {
        program.connections().remove(&keys)?;
    }
    Ok(())
}

/// Tells the connections what the fast path has sent on, and removes from there what is over, or may no longer hold.
pub(super) fn synchronise(program: &GatewayProgram, conntrack: &Conntrack, epochs: &Epochs) -> Result<()> {
    let mut over = Vec::new();
    program.connections().for_each(|key, value| {
        let id = ConnectionId::from_bits(value.name);
        let lives = epochs.holds(PolicySlot::of(key.vni), value.generation)
            && conntrack.find(id).is_some_and(|connection| connection.handed_over)
            && conntrack.touch(id, value.seen);
        if !lives {
            over.push(key);
        }
    })?;
    Ok(program.connections().remove(&over)?)
}

/// Takes up the connections that the gateway had before it was started anew: those that the fast path knows. How many.
pub(super) fn restore(program: &GatewayProgram, tables: &Tables, now: u64) -> Result<usize> {
    let mut began: HashMap<ConnectionKey, u64> = HashMap::new();
    program.connections().for_each(|key, value| {
        let is_over = now.saturating_sub(value.seen) > u64::from(value.idle_ms) * 1_000_000;
        if !is_over {
            let key = if value.reply { reversed(key) } else { key };
            let seen = began.entry(key).or_default();
            *seen = value.seen.max(*seen);
        }
    })?;
    let mut bindings = tables.bindings.reader();
    let mut restored = 0;
    for (key, seen) in began {
        let Some(vni) = Vni::new(key.vni) else { continue };
        let mut profile = |ip| bindings.profile(TenantAddress::new(vni, ip));
        let protocol = Protocol(key.protocol);
        let connection = Connection {
            vni,
            source: key.source,
            destination: key.destination,
            protocol,
            ports: key.ports,
            state: if protocol == Protocol::TCP {
                State::Established
            } else {
                State::UdpReplied
            },
            seen,
            profiles: [profile(key.source), profile(key.destination)],
            generation: 0,
            handed_over: false,
            id: ConnectionId::from_bits(0),
        };
        restored += usize::from(tables.conntrack.restore(now, &connection));
    }
    Ok(restored)
}
