//! The fast path's cache of connections.

use std::collections::HashMap;

use anyhow::Result;
use ringside_bpf::gateway::{CachedConnection, ConnectionKey, GatewayProgram, Hand, PolicySlot};
use ringside_gateway_core::conntrack::{Connection, ConnectionId, Conntrack, State};
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::Protocol;

use super::cache::{BATCH, EVICTED, FEW, MOST_EVICTED};
use super::epochs::{Epochs, slot_of};
use crate::model::{CacheCounters, Tables};

/// A full cache is looked through for what can go once in so many nanoseconds.
const EVICT_EVERY: u64 = 1_000_000_000;
/// What had a packet within so many nanoseconds does not make room for others: its next one would bring it back.
const QUIET: u64 = 1_000_000_000;

/// How full the cache is, and what became of what it had no room for. Entries are one direction each.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// May be too many after some were handed over, which does not say whether entries are new: see [`synchronise`].
    pub(super) entries: u64,
    /// Entries that made room for others.
    evicted: u64,
    /// Entries that there was no room for.
    refused: u64,
    /// When it was looked through for room.
    evicted_at: Option<u64>,
    /// Where to look next.
    hand: Hand,
}

impl Handed {
    /// Has the fast path send on packets of these connections, each of which was open in an epoch; of those that were not judged as
    /// they would be now the next packet says it again. Of those that there is no room for, too. No epoch may begin meanwhile.
    pub(super) fn hand_over(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        connections: impl IntoIterator<Item = (ConnectionId, u64)>,
        (epochs, now): (&Epochs, u64),
    ) -> Result<()> {
        let mut entries = Vec::new();
        for (id, epoch) in connections {
            let known = conntrack.find(id);
            let Some(known) = known.filter(|connection| epochs.holds(slot_of(connection.vni), epoch)) else {
                continue;
            };
            if known.handed_over && is_there(program, &known, epoch, now)? {
                continue;
            }
            let Some(connection) = conntrack.hand_over(id) else {
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
            return Ok(());
        }
        let mut done = program.connections().put(&entries)?;
        if done < entries.len() && self.evict(program, conntrack, (epochs, now))? {
            done = program.connections().put(&entries)?;
        }
        self.refused += (entries.len() - done) as u64;
        let capacity = u64::from(program.sizes().connections);
        self.entries = (self.entries + done as u64).min(capacity);
        Ok(())
    }

    /// Looks on through a part of it, and removes what is over; if that is little, also what had no packet for longest. False if it is
    /// not time yet, or nothing went.
    fn evict(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        (epochs, now): (&Epochs, u64),
    ) -> Result<bool> {
        if self
            .evicted_at
            .is_some_and(|last| now.saturating_sub(last) < EVICT_EVERY)
        {
            return Ok(false);
        }
        self.evicted_at = Some(now);
        let all = program.sizes().connections as usize;
        // Both directions of one, at the least.
        let most = (all / EVICTED).max(2);
        let part = most.clamp(BATCH, MOST_EVICTED);
        let (mut gone, mut quiet) = (Vec::new(), Vec::new());
        program.connections().read_on(&mut self.hand, part, |key, value| {
            if !lives(conntrack, epochs, &key, &value) {
                gone.push(key);
            } else if now.saturating_sub(value.seen) >= QUIET {
                quiet.push((value.seen, key));
            }
        })?;
        let more = most.saturating_sub(gone.len());
        if quiet.len() > more {
            quiet.select_nth_unstable_by_key(more, |(seen, _)| *seen);
            quiet.truncate(more);
        }
        self.evicted += quiet.len() as u64;
        gone.extend(quiet.into_iter().map(|(_, key)| key));
        program.connections().remove(&gone)?;
        self.entries = self.entries.saturating_sub(gone.len() as u64);
        Ok(!gone.is_empty())
    }

    /// What it has counted; of few entries exactly.
    pub(super) fn counters(&mut self, program: &GatewayProgram) -> CacheCounters {
        if self.entries <= FEW {
            let mut entries = 0;
            // A map that cannot be read is told of elsewhere.
            if program.connections().for_each(|_, _| entries += 1).is_ok() {
                self.entries = entries;
            }
        }
        CacheCounters {
            entries: self.entries,
            capacity: program.sizes().connections.into(),
            evicted: self.evicted,
            refused: self.refused,
        }
    }
}

/// True if the fast path has a connection already as it was in this epoch, in both directions: its last packets came to workers before
/// that, or are those that are theirs for good. Read and not written, because that spares a packet that goes through meanwhile.
fn is_there(program: &GatewayProgram, connection: &Connection, epoch: u64, now: u64) -> Result<bool> {
    for key in keys(connection) {
        let is_its = |value: CachedConnection| {
            let quiet = now.saturating_sub(value.seen);
            value.name == connection.id.to_bits()
                && value.generation >= epoch
                // With a margin: it is for the next packet.
                && quiet < u64::from(value.idle_ms) * 1_000_000 / 2
        };
        if !program.connections().find(&key)?.is_some_and(is_its) {
            return Ok(false);
        }
    }
    Ok(true)
}

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

/// Tells a connection when the fast path has sent on a packet of it. False if it is over, or may no longer hold.
fn lives(conntrack: &Conntrack, epochs: &Epochs, key: &ConnectionKey, value: &CachedConnection) -> bool {
    let id = ConnectionId::from_bits(value.name);
    epochs.holds(PolicySlot::of(key.vni), value.generation)
        && conntrack.find(id).is_some_and(|connection| connection.handed_over)
        && conntrack.touch(id, value.seen)
}

/// Tells the connections what the fast path has sent on, and removes from there what is over, or may no longer hold. How many entries
/// there are.
pub(super) fn synchronise(program: &GatewayProgram, conntrack: &Conntrack, epochs: &Epochs) -> Result<u64> {
    let (mut over, mut entries) = (Vec::new(), 0);
    program.connections().for_each(|key, value| {
        if lives(conntrack, epochs, &key, &value) {
            entries += 1;
        } else {
            over.push(key);
        }
    })?;
    program.connections().remove(&over)?;
    Ok(entries)
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

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
