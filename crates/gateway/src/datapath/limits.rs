//! How long a packet may be that gets to a host: what the kernel's routes say, and what routers on the way say of packets that were too
//! long for them ([`super::icmp`]).
//!
//! # What a message costs
//! Anybody may send them, and what is said may change again and again. Workers obey the least that was said at once, which is a word of
//! the host's. The fast path has it with each neighbour, and to tell it is a look through all of them, for all hosts that have changed:
//! once a second at the most, and no more than once in ten seconds for long. A host whose way has become narrower [`TOLD`] times within
//! ten minutes is told a last time: what may get too long some day is left to workers from then on, and whatever is said of it costs no look.
//! That ends ten minutes after the last time.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ringside_gateway_core::decide::Settings;
use ringside_gateway_core::table::{HostId, HostReader, Hosts, Limit};
use ringside_gateway_core::underlay_error::least;

use super::nanoseconds;
use super::pace::Gate;

/// So long a router is believed, as RFC 1191 §6.3 advises: then a packet that is too long has to ask anew.
const BELIEVED: u64 = 600 * SECOND;
/// The fast path's cache is looked through for neighbours of limited hosts not more often, and no more often for long than [`SPARING`]
/// says: workers know them at once.
const BETWEEN_PASSES: u64 = SECOND;
/// So are lines of the log.
const SPARING: (Duration, u32) = (Duration::from_secs(10), 10);
/// So often within [`BELIEVED`] the fast path is told exactly what gets to a host.
const TOLD: u8 = 3;
const SECOND: u64 = 1_000_000_000;

/// What was heard, for statistics.
#[derive(Debug, Default)]
pub(super) struct LimitCounters {
    /// Messages that a packet of the gateway was too long.
    heard: AtomicU64,
    /// Those that have made a way to a host narrower.
    taken: AtomicU64,
    /// Such ways that are tried anew.
    forgotten: AtomicU64,
    /// Hosts to which the way is narrower than the port, as far as is known.
    limited: AtomicU64,
}

impl LimitCounters {
    pub(super) fn events(&self) -> Vec<(&'static str, u64)> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        vec![
            ("heard", of(&self.heard)),
            ("taken", of(&self.taken)),
            ("forgotten", of(&self.forgotten)),
        ]
    }

    pub(super) fn limited(&self) -> u64 {
        self.limited.load(Ordering::Relaxed)
    }
}

/// What a router has said.
#[derive(Debug, Clone, Copy)]
struct Heard {
    mtu: NonZeroU16,
    until: u64,
}

/// How often the way to a host has become narrower of late.
#[derive(Debug, Clone, Copy, Default)]
struct Narrowed {
    /// Times that the fast path was told so.
    told: u8,
    /// Until then it is remembered.
    until: u64,
}

/// Keeps true what the table of hosts has of the ways to them. Times are CLOCK_MONOTONIC in nanoseconds.
#[derive(Debug)]
pub(super) struct Limits {
    hosts: HostReader,
    counters: Arc<LimitCounters>,
    /// Numbers by addresses, of the first so many hosts: some 100 bytes of each host that there ever was, for a host that comes back has its
    /// number still.
    numbers: HashMap<IpAddr, Vec<HostId>>,
    numbered: u32,
    /// What routes of the kernel say, where they say something.
    routes: HashMap<HostId, NonZeroU16>,
    heard: HashMap<IpAddr, Heard>,
    /// Hosts whose neighbours the fast path has not been told of yet, and when it was told last.
    changed: HashSet<HostId>,
    /// Those whose neighbours it may not have been told of by the process before.
    inherited: Vec<HostId>,
    narrowed: HashMap<HostId, Narrowed>,
    told: Option<u64>,
    passes: Gate,
    lines: Gate,
    /// Lines that were left out.
    unsaid: u64,
}

impl Limits {
    /// What the table has already is from the process before: what a router has said, until when that was to be believed, and what a
    /// route said, which holds until [`Self::route`] says what it says now.
    pub(super) fn new(table: &Hosts, counters: Arc<LimitCounters>) -> Self {
        let (every, at_once) = SPARING;
        let sparing = Gate::new(nanoseconds(every), at_once);
        let mut limits = Self {
            hosts: table.reader(),
            counters,
            numbers: HashMap::new(),
            numbered: 0,
            routes: HashMap::new(),
            heard: HashMap::new(),
            changed: HashSet::new(),
            inherited: Vec::new(),
            narrowed: HashMap::new(),
            told: None,
            passes: sparing,
            lines: sparing,
            unsaid: 0,
        };
        for id in (0..).map(HostId) {
            let Some(host) = limits.hosts.find(id) else { break };
            let limit = limits.hosts.limit(id);
            let Some(mtu) = limit.mtu else { continue };
            limits.inherited.push(id);
            match limit.until {
                Some(until) => {
                    let until = u64::from(until.get()) * SECOND;
                    let heard = limits.heard.entry(host.ip).or_insert(Heard { mtu, until });
                    heard.mtu = heard.mtu.min(mtu);
                }
                None => _ = limits.routes.insert(id, mtu),
            }
        }
        let limited = limits.inherited.len() as u64;
        limits.counters.limited.store(limited, Ordering::Relaxed);
        limits.number(table, 0);
        limits
    }

    /// Finds the numbers of hosts that are new.
    fn number(&mut self, table: &Hosts, now: u64) {
        while let Some(host) = self.hosts.find(HostId(self.numbered)) {
            let id = HostId(self.numbered);
            self.numbered += 1;
            self.numbers.entry(host.ip).or_default().push(id);
            if self.heard.contains_key(&host.ip) {
                self.set(table, id, now);
            }
        }
    }

    /// Returns the numbers of the hosts that have this address.
    pub(super) fn numbers(&mut self, table: &Hosts, ip: IpAddr, now: u64) -> &[HostId] {
        self.number(table, now);
        self.numbers.get(&ip).map_or(&[], Vec::as_slice)
    }

    /// What holds of a host, and if that is because of a router: until when.
    fn holds(&mut self, id: HostId) -> Option<(NonZeroU16, Option<NonZeroU32>)> {
        let heard = self.hosts.find(id).and_then(|host| self.heard.get(&host.ip));
        let heard = heard.map(|heard| (heard.mtu, NonZeroU32::new(seconds_of(heard.until))));
        let route = self.routes.get(&id).map(|&mtu| (mtu, None));
        // The router's if they say the same: what a route says is asked for again.
        heard.into_iter().chain(route).min_by_key(|(mtu, _)| *mtu)
    }

    /// What the fast path is to be told of a host.
    fn tellable(&mut self, id: HostId) -> Option<(NonZeroU16, Option<NonZeroU32>)> {
        let holds = self.holds(id);
        let is_unsteady = self.narrowed.get(&id).is_some_and(|narrowed| narrowed.told > TOLD);
        match self.hosts.find(id) {
            Some(host) if is_unsteady => {
                let (mtu, until) = holds.unwrap_or((NonZeroU16::MAX, None));
                Some((mtu.min(least(host.ip)), until))
            }
            _ => holds,
        }
    }

    /// What holds of a host goes into the table.
    fn set(&mut self, table: &Hosts, id: HostId, now: u64) {
        let before = self.hosts.limit(id);
        let mtu = self.holds(id).map(|(mtu, _)| mtu);
        if before.mtu != mtu {
            table.limit(id, Limit { mtu, ..before });
            let limited = &self.counters.limited;
            match (before.mtu, mtu) {
                (None, Some(_)) => _ = limited.fetch_add(1, Ordering::Relaxed),
                (Some(_), None) => _ = limited.fetch_sub(1, Ordering::Relaxed),
                _ => {}
            }
        }
        if is_narrower(mtu, before.mtu) {
            self.narrowed.entry(id).or_default().until = now + BELIEVED;
        }
        self.compare(id);
    }

    /// The fast path is told in its turn, if there is something to tell.
    fn compare(&mut self, id: HostId) {
        let known = self.hosts.limit(id);
        let is_same = match self.tellable(id) {
            // Until when may be later than it knows: that is only for the next process.
            Some((mtu, until)) => known.told == Some(mtu) && known.until.is_some() == until.is_some(),
            None => known.told.is_none(),
        };
        if is_same {
            self.changed.remove(&id);
        } else {
            self.changed.insert(id);
        }
    }

    /// What the kernel's route to a host says, if it says something.
    pub(super) fn route(&mut self, table: &Hosts, id: HostId, mtu: Option<NonZeroU16>, now: u64) {
        let before = match mtu {
            Some(mtu) => self.routes.insert(id, mtu),
            None => self.routes.remove(&id),
        };
        if before != mtu {
            self.set(table, id, now);
        }
    }

    /// Takes what a router has said of the way to a host.
    pub(super) fn hear(&mut self, table: &Hosts, (ip, mtu): (IpAddr, NonZeroU16), settings: &Settings, now: u64) {
        self.counters.heard.fetch_add(1, Ordering::Relaxed);
        let ids = self.numbers(table, ip, now).to_vec();
        // A way never gets wider by being asked for more.
        let is_less = |id: &HostId| {
            let port = self.hosts.find(*id).and_then(|host| settings.port_to(&host));
            let port = port.and_then(|port| settings.ports.get(usize::from(port)));
            let known = self.hosts.mtu(*id).map_or(u16::MAX, NonZeroU16::get);
            port.is_some_and(|port| mtu.get() < known.min(port.mtu))
        };
        if !ids.iter().any(is_less) {
            return;
        }
        self.say(ip, mtu, now);
        self.counters.taken.fetch_add(1, Ordering::Relaxed);
        let until = now + BELIEVED;
        self.heard.insert(ip, Heard { mtu, until });
        ids.iter().for_each(|id| self.set(table, *id, now));
    }

    /// A line of the log, or one less.
    fn say(&mut self, host: IpAddr, bytes: NonZeroU16, now: u64) {
        if self.lines.lets_through(now) {
            let unsaid = std::mem::take(&mut self.unsaid);
            tracing::info!(%host, bytes, unsaid, "a router on the way to a host takes no more");
        } else {
            self.unsaid += 1;
        }
    }

    /// What was said long ago does not hold any more: to be called now and then.
    pub(super) fn forget(&mut self, table: &Hosts, now: u64) {
        self.number(table, now);
        let old = self.heard.iter().filter(|(_, heard)| heard.until <= now);
        let old: Vec<IpAddr> = old.map(|(ip, _)| *ip).collect();
        for ip in &old {
            self.heard.remove(ip);
            let ids = self.numbers.get(ip).cloned().unwrap_or_default();
            ids.iter().for_each(|id| self.set(table, *id, now));
        }
        self.counters.forgotten.fetch_add(old.len() as u64, Ordering::Relaxed);
        let steady = self.narrowed.extract_if(|_, narrowed| narrowed.until <= now);
        let steady: Vec<HostId> = steady.map(|(id, _)| id).collect();
        steady.into_iter().for_each(|id| self.compare(id));
    }

    /// Hosts whose neighbours the fast path has to be told of now.
    pub(super) fn changed(&mut self, table: &Hosts, now: u64) -> Vec<HostId> {
        let is_time = self.told.is_none_or(|told| now.saturating_sub(told) >= BETWEEN_PASSES);
        self.changed.extend(self.inherited.drain(..));
        if self.changed.is_empty() || !is_time || !self.passes.lets_through(now) {
            return Vec::new();
        }
        self.told = Some(now);
        let changed: Vec<HostId> = self.changed.drain().collect();
        for &id in &changed {
            let before = self.hosts.limit(id);
            let mtu = self.holds(id).map(|(mtu, _)| mtu);
            if is_narrower(mtu, before.told)
                && let Some(narrowed) = self.narrowed.get_mut(&id)
            {
                narrowed.told = narrowed.told.saturating_add(1);
            }
            let (told, until) = self.tellable(id).unzip();
            let until = until.flatten();
            table.limit(id, Limit { told, until, ..before });
        }
        changed
    }
}

fn is_narrower(mtu: Option<NonZeroU16>, than: Option<NonZeroU16>) -> bool {
    mtu.is_some_and(|mtu| than.is_none_or(|than| mtu < than))
}

/// Of nanoseconds of CLOCK_MONOTONIC, as entries of the cache have it.
pub(super) fn seconds_of(time: u64) -> u32 {
    u32::try_from(time / SECOND).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
