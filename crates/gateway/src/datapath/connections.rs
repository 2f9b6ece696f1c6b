//! The fast path's cache of connections: an entry for both directions.
//!
//! Those that anybody can make any number of ([`State::is_brief`]: datagrams without an answer, and
//! echoes) have a part of it at the most, and are the first to make room for others.

use std::time::{Duration, Instant};

use anyhow::Result;
use ringside_bpf::gateway::{
    Amendment, Cache, CachedConnection, ConnectionKey, GatewayProgram, Hand, PolicySlot, TcpNumbers,
};
use ringside_gateway_core::conntrack::{Connection, ConnectionId, Conntrack, State};
use ringside_gateway_core::decide::Cacheable;
use ringside_gateway_core::{TenantAddress, Vni};
use ringside_wire::Protocol;

use super::cache::{BATCH, EVICTED, FEW, MOST_EVICTED};
use super::epochs::{Epochs, slot_of};
use super::pace::may_carry;
use super::settling::{Followed, SETTLED, Settling, sides};
use super::worker;
use crate::model::{CacheCounters, Tables};

/// A full cache is looked through for what can go once in so many nanoseconds.
const EVICT_EVERY: u64 = 1_000_000_000;
/// What had a packet within so many nanoseconds does not make room for others: its next one would bring it back.
const QUIET: u64 = 1_000_000_000;

/// Connections of TCP that are handed over at once.
const AT_ONCE: usize = 32;
/// How long that may take: a worker sends on less meanwhile than numbers may be ahead.
const MOST_UNFOLLOWED: Duration = Duration::from_millis(10);
/// The part of the cache that brief connections may have.
const BRIEF_PART: u32 = 8;

/// Returns how many brief connections a cache of this size may have.
pub(super) const fn most_brief(capacity: u32) -> u32 {
    capacity / BRIEF_PART
}

/// The cache, as workers have it, too.
pub(super) type CachedConnections = Cache<ConnectionKey, CachedConnection>;

/// How full the cache is, and what became of what it had no room for.
#[derive(Debug, Default)]
pub(super) struct Handed {
    /// Connections are handed over with the numbers of TCP that the fast path checks.
    pub(super) check_windows: bool,
    /// What was put in an earlier one was put by the process before.
    pub(super) first_epoch: u64,
    /// Connections that were handed over with numbers which are about to settle.
    pub(super) settling: Settling,
    /// May be too many after some were handed over, which does not say whether entries are new: see [`synchronise`].
    pub(super) entries: u64,
    /// Entries that made room for others.
    evicted: u64,
    /// Entries that there was no room for.
    refused: u64,
    /// Entries that the kernel refused for another reason, such as too little memory.
    pub(super) failed: u64,
    /// When it was looked through for room.
    evicted_at: Option<u64>,
    /// Where to look next.
    hand: Hand,
    /// The same, for brief ones that are quiet.
    brief_hand: Hand,
}

impl Handed {
    /// Has the fast path send on packets of these connections, each of which was open in an epoch; of those that were not judged as
    /// they would be now the next packet says it again. Of those that there is no room for, too. No epoch may begin meanwhile.
    /// An error of some holds up none of the others; the first is returned.
    pub(super) fn hand_over(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        connections: impl IntoIterator<Item = (ConnectionId, u64)>,
        (epochs, now): (&Epochs, u64),
    ) -> Result<()> {
        let connections: Vec<_> = connections.into_iter().collect();
        let mut done = Ok(());
        for some in connections.chunks(AT_ONCE) {
            done = done.and(self.hand_over_some(program, conntrack, some, (epochs, now)));
        }
        done
    }

    /// The same of a few: until they are put, workers send on packets whose numbers nobody follows.
    /// An error of one holds up none of the others; the first is returned.
    fn hand_over_some(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        connections: &[(ConnectionId, u64)],
        at: (&Epochs, u64),
    ) -> Result<()> {
        let begun = Instant::now();
        let (mut entries, mut brief) = (Vec::new(), Vec::new());
        let mut done = Ok(());
        for connection in connections {
            match self.mark(program, conntrack, *connection, at) {
                Ok(Some(entry)) if is_brief(&entry.0, &entry.1) => brief.push(entry),
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => {}
                Err(error) => done = done.and(Err(error)),
            }
        }
        done = done.and(self.put_brief(program, conntrack, &brief));
        if entries.is_empty() {
            return done;
        }
        done = done.and(self.put_with_room(program, conntrack, &entries, at));
        if begun.elapsed() > MOST_UNFOLLOWED {
            // Too much may have gone by meanwhile.
            for (key, value) in entries.iter().filter(|(_, value)| value.numbers.is_some()) {
                let forgotten = program.amend(key, value.name, Amendment::Forget);
                done = done.and(forgotten.map(drop).map_err(Into::into));
            }
        }
        // A worker may have let one go before it was there.
        let is_over = |value: &CachedConnection| {
            let known = conntrack.find(ConnectionId::from_bits(value.name));
            known.is_none_or(|known| !known.handed_over)
        };
        let over: Vec<_> = entries
            .iter()
            .filter(|(_, value)| is_over(value))
            .map(|(key, _)| *key)
            .collect();
        done.and(program.connections().remove(&over).map_err(Into::into))
    }

    /// Marks a connection as handed over, and returns what is to be put. None if it may not be, or
    /// the program has it: then it is allowed again there, and its numbers go on.
    fn mark(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        (id, epoch): (ConnectionId, u64),
        (epochs, now): (&Epochs, u64),
    ) -> Result<Option<(ConnectionKey, CachedConnection)>> {
        let known = conntrack.find(id);
        let Some(known) = known.filter(|known| epochs.holds(slot_of(known.vni), epoch)) else {
            return Ok(None);
        };
        let (key, from_higher) = key(&known);
        let before = match known.handed_over {
            true => program.connections().find(&key)?,
            false => None,
        };
        let is_there = before.is_some_and(|before| is_valid(&before, &known, epoch, now));
        if is_there || (known.state.is_brief() && !may_carry(conntrack, known.state)) {
            return Ok(None);
        }
        let handed = match self.check_windows && self.settling.has_room() {
            true => conntrack.hand_over_with_numbers(id),
            false => conntrack.hand_over(id).map(|connection| (connection, None)),
        };
        let Some((connection, said)) = handed else {
            return Ok(None);
        };
        let idle = conntrack.timeout(connection.state) / 1_000_000;
        let idle_ms = u32::try_from(idle).unwrap_or(u32::MAX);
        // The process before had another name for it. Another one of these ends has ended.
        let (name, first_epoch) = (id.to_bits(), self.first_epoch);
        let is_its = |it: &CachedConnection| it.name == name || it.generation < first_epoch;
        if connection.protocol == Protocol::TCP
            && let Some(before) = before.filter(is_its)
        {
            let renewal = Amendment::Renew {
                name: id.to_bits(),
                generation: epoch,
                seen: connection.seen,
                idle_ms,
            };
            if program.amend(&key, before.name, renewal)? {
                return Ok(None);
            }
        }
        let numbers = said.map(|said| TcpNumbers {
            since: epochs.latest(),
            settled: false,
            sides: sides(said, from_higher),
        });
        if let Some(said) = said {
            let followed = Followed {
                key,
                id,
                from_higher,
                said,
            };
            self.settling.follow(worker::now() + SETTLED, followed);
        }
        let value = CachedConnection {
            generation: epoch,
            seen: connection.seen,
            idle_ms,
            from_higher,
            one_way: connection.state.is_one_way(),
            numbers,
            name: id.to_bits(),
        };
        Ok(Some((key, value)))
    }

    /// Puts connections, if need be in place of others that are over or quiet. Packets change the
    /// numbers of an entry as soon as it is there, so none is put twice.
    fn put_with_room(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        entries: &[(ConnectionKey, CachedConnection)],
        at: (&Epochs, u64),
    ) -> Result<()> {
        let mut refused = self.put(program, entries)?;
        if !refused.is_empty() && self.evict(program, conntrack, at)? {
            let others: Vec<_> = refused.iter().map(|number| entries[*number]).collect();
            refused = self.put(program, &others)?;
        }
        self.refused += refused.len() as u64;
        Ok(())
    }

    /// Puts connections, and returns for which there was no room. Counts those that are there, and
    /// those that the kernel refuses for another reason: their next packet hands them over again.
    fn put(&mut self, program: &GatewayProgram, entries: &[(ConnectionKey, CachedConnection)]) -> Result<Vec<usize>> {
        let put = program.connections().put_once(entries);
        match &put {
            Ok(refused) => self.count(program, entries.len() - refused.len()),
            Err(_) => {
                let is_there = |(key, value): &&(ConnectionKey, CachedConnection)| {
                    let found = program.connections().find(key).ok().flatten();
                    // One in its place may be older: the state that it had before, for one.
                    let facts = |it: &CachedConnection| (it.name, it.generation, it.idle_ms, it.one_way);
                    found.is_some_and(|it| facts(&it) == facts(value))
                };
                let there = entries.iter().filter(is_there).count();
                self.failed += (entries.len() - there) as u64;
                self.count(program, there);
            }
        }
        Ok(put?)
    }

    /// Puts brief connections where there is room. They take it from nobody.
    fn put_brief(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        entries: &[(ConnectionKey, CachedConnection)],
    ) -> Result<()> {
        let mut failed = None;
        for entry in entries {
            let put = self.put(program, &[*entry]);
            if !put.as_ref().is_ok_and(Vec::is_empty) {
                conntrack.take_back(ConnectionId::from_bits(entry.1.name));
            }
            match put {
                Ok(refused) => self.refused += refused.len() as u64,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn count(&mut self, program: &GatewayProgram, put: usize) {
        let capacity = u64::from(program.sizes().connections);
        self.entries = (self.entries + put as u64).min(capacity);
    }

    /// Looks on through a part of the cache when brief connections have nearly all the room that they
    /// may have, and takes back those that had no packet lately. To be called every second or so.
    pub(super) fn relieve(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        (epochs, now): (&Epochs, u64),
    ) -> Result<()> {
        let (brief, most) = conntrack.brief();
        if brief < most - most / 8 {
            return Ok(());
        }
        let part = part_of(program.sizes().connections as usize);
        let mut gone = Vec::new();
        program
            .connections()
            .read_on(&mut self.brief_hand, part, |key, value| {
                let is_quiet = now.saturating_sub(value.seen) >= QUIET;
                if is_quiet && is_brief(&key, &value) && lives(conntrack, epochs, &key, &value) {
                    gone.push((key, value.name));
                }
            })?;
        self.take_back(program, conntrack, gone)
    }

    /// Removes connections that live from the cache.
    fn take_back(
        &mut self,
        program: &GatewayProgram,
        conntrack: &Conntrack,
        connections: Vec<(ConnectionKey, u64)>,
    ) -> Result<()> {
        self.evicted += connections.len() as u64;
        self.entries = self.entries.saturating_sub(connections.len() as u64);
        let mut keys = Vec::with_capacity(connections.len());
        for (key, name) in connections {
            conntrack.take_back(ConnectionId::from_bits(name));
            keys.push(key);
        }
        Ok(program.connections().remove(&keys)?)
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
        let most = (all / EVICTED).max(1);
        let (mut gone, mut quiet) = (Vec::new(), Vec::new());
        program
            .connections()
            .read_on(&mut self.hand, part_of(all), |key, value| {
                let is_brief = is_brief(&key, &value);
                if !lives(conntrack, epochs, &key, &value) {
                    gone.push(key);
                } else if is_brief || now.saturating_sub(value.seen) >= QUIET {
                    quiet.push((!is_brief, value.seen, key, value.name));
                }
            })?;
        let more = most.saturating_sub(gone.len());
        if quiet.len() > more {
            quiet.select_nth_unstable_by_key(more, |(lasts, seen, ..)| (*lasts, *seen));
            quiet.truncate(more);
        }
        let is_room = !gone.is_empty() || !quiet.is_empty();
        self.entries = self.entries.saturating_sub(gone.len() as u64);
        program.connections().remove(&gone)?;
        let quiet = quiet.into_iter().map(|(.., key, name)| (key, name)).collect();
        self.take_back(program, conntrack, quiet)?;
        Ok(is_room)
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
            failed: self.failed,
        }
    }
}

/// Entries of a cache that are looked through at a time.
fn part_of(capacity: usize) -> usize {
    (capacity / EVICTED).clamp(BATCH, MOST_EVICTED)
}

/// True if a connection is one of those that may have a part of the cache only.
fn is_brief(key: &ConnectionKey, value: &CachedConnection) -> bool {
    state_of(key, value).is_brief()
}

/// What a connection is, as far as the cache says it.
fn state_of(key: &ConnectionKey, value: &CachedConnection) -> State {
    match (Protocol(key.protocol()), value.one_way) {
        (Protocol::TCP, _) => State::Established,
        (Protocol::ICMP | Protocol::ICMPV6, true) => State::IcmpUnreplied,
        (Protocol::ICMP | Protocol::ICMPV6, false) => State::IcmpReplied,
        (_, true) => State::UdpUnreplied,
        (_, false) => State::UdpReplied,
    }
}

/// True if what the fast path has of a connection is as it was in this epoch: its last packets came
/// to workers before that, or are those that are theirs for good. It is not put then, which spares
/// a packet that goes through meanwhile.
fn is_valid(value: &CachedConnection, connection: &Connection, epoch: u64, now: u64) -> bool {
    let quiet = now.saturating_sub(value.seen);
    value.name == connection.id.to_bits()
        && value.generation >= epoch
        && value.one_way == connection.state.is_one_way()
        // With a margin: it is for the next packet.
        && quiet < u64::from(value.idle_ms) * 1_000_000 / 2
}

/// Its key, and whether its first packet came from the higher end.
fn key(connection: &Connection) -> (ConnectionKey, bool) {
    let [source, destination] = connection.ports;
    ConnectionKey::new(
        connection.vni.number(),
        connection.protocol.0,
        (connection.source, source),
        (connection.destination, destination),
    )
}

/// Takes a connection back from the fast path that has ended or, in its place, one before it.
/// Another one may begin with the packet that ended it, so this cannot wait for the keeper.
pub(super) fn let_go(connections: &CachedConnections, conntrack: &Conntrack, found: Cacheable) {
    if let Cacheable::Ended(ended) = found
        && let Some(connection) = conntrack.find(ended)
        && let Err(error) = connections.remove(&[key(&connection).0])
    {
        tracing::warn!(%error, "the fast path has a connection that has ended");
    }
}

/// Tells a connection when the fast path has sent on a packet of it. False if it is over, or may no longer hold.
fn lives(conntrack: &Conntrack, epochs: &Epochs, key: &ConnectionKey, value: &CachedConnection) -> bool {
    let id = ConnectionId::from_bits(value.name);
    epochs.holds(PolicySlot::of(key.vni()), value.generation)
        && conntrack.find(id).is_some_and(|connection| connection.handed_over)
        && conntrack.touch(id, value.seen)
}

/// Tells the connections what the fast path has sent on, and removes from there what is over, or may no longer hold. How many entries
/// there are.
pub(super) fn synchronise(program: &GatewayProgram, conntrack: &Conntrack, epochs: &Epochs) -> Result<u64> {
    let lingering = conntrack.lingering();
    let (mut over, mut entries) = (Vec::new(), 0);
    program.connections().for_each(|key, value| {
        if lives(conntrack, epochs, &key, &value) {
            entries += 1;
        } else {
            over.push(key);
        }
    })?;
    program.connections().remove(&over)?;
    conntrack.let_go(lingering);
    Ok(entries)
}

/// Takes up the connections that the gateway had before it was started anew: those that the
/// fast path knows, whose cache was adopted, or is that of a program before. How many.
pub(super) fn restore(program: &GatewayProgram, tables: &Tables, is_adopted: bool, now: u64) -> Result<usize> {
    let mut known = Vec::new();
    program.connections().for_each(|key, value| {
        if now.saturating_sub(value.seen) <= u64::from(value.idle_ms) * 1_000_000 {
            known.push((key, value));
        }
    })?;
    if is_adopted {
        // There may be no room for all.
        tables.conntrack.expect_lingering();
    }
    let mut bindings = tables.bindings.reader();
    let mut restored = 0;
    for (key, value) in known {
        let Some(vni) = Vni::new(key.vni()) else { continue };
        let mut profile = |ip| bindings.profile(TenantAddress::new(vni, ip));
        let [lower, higher] = key.ends();
        let [(source, port), (destination, other)] = if value.from_higher {
            [higher, lower]
        } else {
            [lower, higher]
        };
        let connection = Connection {
            vni,
            source,
            destination,
            protocol: Protocol(key.protocol()),
            ports: [port, other],
            state: state_of(&key, &value),
            seen: value.seen,
            profiles: [profile(source), profile(destination)],
            generation: 0,
            handed_over: is_adopted && Protocol(key.protocol()) == Protocol::TCP,
            id: ConnectionId::from_bits(0),
        };
        restored += usize::from(tables.conntrack.restore(now, &connection));
    }
    Ok(restored)
}

/// Has the program check no numbers of these connections that it has already: of all, or of those
/// that workers of the process before may know more of.
pub(super) fn forget_numbers(program: &GatewayProgram, unsettled_only: bool) -> Result<()> {
    let mut unchecked = Vec::new();
    program.connections().for_each(|key, value| {
        if value
            .numbers
            .is_some_and(|numbers| !(unsettled_only && numbers.settled))
        {
            unchecked.push((key, value.name));
        }
    })?;
    for (key, name) in unchecked {
        program.amend(&key, name, Amendment::Forget)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "connections_tests.rs"]
mod tests;
