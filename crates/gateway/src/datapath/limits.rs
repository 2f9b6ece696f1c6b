//! How long a packet may be that gets to a host: what the kernel's routes say, and what routers on the way say of packets that were too
//! long for them. The kernel itself makes nothing of those messages, because the packets are no socket's of this host.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ringside_gateway_core::decide::Settings;
use ringside_gateway_core::path_mtu::too_big;
use ringside_gateway_core::table::{HostId, HostReader, Hosts};
use ringside_nic::TooBigMessages;

/// So long a router is believed, as RFC 1191 §6.3 advises: then a packet that is too long has to ask anew.
const BELIEVED: Duration = Duration::from_secs(600);
/// Messages that are read at a time. Of those that find no room in the socket's buffer meanwhile the next packet brings another.
const MOST: usize = 64;
/// The fast path's cache is looked through for neighbours of limited hosts not more often: workers know them at once.
const BETWEEN_PASSES: Duration = Duration::from_secs(1);
/// Longer than what routers quote: at most 1280 bytes with IPv6, and 576 with IPv4 (RFC 1812).
const ROOM: usize = 2048;

/// What was heard, for statistics.
#[derive(Debug, Default)]
pub(super) struct LimitCounters {
    /// Messages about something that cannot be reached, or not by a packet of that length.
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
    until: Instant,
}

/// Keeps true what the table of hosts has of the ways to them.
#[derive(Debug)]
pub(super) struct Limits {
    hosts: HostReader,
    counters: Arc<LimitCounters>,
    /// Numbers by addresses, of the first so many hosts.
    numbers: HashMap<IpAddr, Vec<HostId>>,
    numbered: u32,
    /// What routes of the kernel say, where they say something.
    routes: HashMap<HostId, NonZeroU16>,
    heard: HashMap<IpAddr, Heard>,
    /// Hosts whose neighbours the fast path has not been told of yet, and when it was told last.
    changed: Vec<HostId>,
    told: Option<Instant>,
}

impl Limits {
    /// What the table has already is from the process before, and believed as if it had just been said.
    pub(super) fn new(table: &Hosts, counters: Arc<LimitCounters>, now: Instant) -> Self {
        let mut limits = Self {
            hosts: table.reader(),
            counters,
            numbers: HashMap::new(),
            numbered: 0,
            routes: HashMap::new(),
            heard: HashMap::new(),
            changed: Vec::new(),
            told: None,
        };
        limits.number(table);
        let known: Vec<_> = limits.numbers.iter().map(|(&ip, ids)| (ip, ids.clone())).collect();
        for (ip, ids) in known {
            let least = ids.iter().filter_map(|id| limits.hosts.mtu(*id)).min();
            if let Some(mtu) = least {
                limits.believe(ip, mtu, now);
                ids.iter().for_each(|id| limits.set(table, *id));
                // That process may have ended before it had told all of them.
                limits.changed.extend(ids);
            }
        }
        limits.count();
        limits
    }

    /// Finds the numbers of hosts that are new.
    fn number(&mut self, table: &Hosts) {
        while let Some(host) = self.hosts.find(HostId(self.numbered)) {
            let id = HostId(self.numbered);
            self.numbered += 1;
            self.numbers.entry(host.ip).or_default().push(id);
            if self.heard.contains_key(&host.ip) {
                self.set(table, id);
            }
        }
    }

    fn believe(&mut self, ip: IpAddr, mtu: NonZeroU16, now: Instant) {
        let until = now + BELIEVED;
        self.heard.insert(ip, Heard { mtu, until });
    }

    /// What holds of a host goes into the table.
    fn set(&mut self, table: &Hosts, id: HostId) {
        let Some(host) = self.hosts.find(id) else { return };
        let heard = self.heard.get(&host.ip).map(|heard| heard.mtu);
        let mtu = self.routes.get(&id).copied().into_iter().chain(heard).min();
        if self.hosts.mtu(id) != mtu {
            table.limit(id, mtu);
            self.changed.push(id);
        }
    }

    /// What the kernel's route to a host says, if it says something.
    pub(super) fn route(&mut self, table: &Hosts, id: HostId, mtu: Option<NonZeroU16>) {
        let before = match mtu {
            Some(mtu) => self.routes.insert(id, mtu),
            None => self.routes.remove(&id),
        };
        if before != mtu {
            self.set(table, id);
            self.count();
        }
    }

    /// A message that has come. `message` as [`too_big`] takes it.
    fn hear(&mut self, table: &Hosts, (message, is_v4): (&[u8], bool), settings: &Settings, now: Instant) {
        self.counters.heard.fetch_add(1, Ordering::Relaxed);
        let Some((ip, mtu)) = too_big(message, is_v4, settings) else {
            return;
        };
        self.number(table);
        let ids = self.numbers.get(&ip).cloned().unwrap_or_default();
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
        tracing::info!(host = %ip, bytes = mtu, "a router on the way to a host takes no more");
        self.counters.taken.fetch_add(1, Ordering::Relaxed);
        self.believe(ip, mtu, now);
        ids.iter().for_each(|id| self.set(table, *id));
        self.count();
    }

    /// What routers have said since the last time.
    pub(super) fn listen(&mut self, table: &Hosts, listeners: &[TooBigMessages], settings: &Settings, now: Instant) {
        let mut room = [0; ROOM];
        for listener in listeners {
            for _ in 0..MOST {
                match listener.next(&mut room) {
                    Ok(Some(message)) => self.hear(table, (message, listener.is_v4()), settings, now),
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "what routers say cannot be read");
                        break;
                    }
                }
            }
        }
    }

    /// What was said long ago does not hold any more: to be called now and then.
    pub(super) fn forget(&mut self, table: &Hosts, now: Instant) {
        self.number(table);
        let old = self.heard.iter().filter(|(_, heard)| heard.until <= now);
        let old: Vec<IpAddr> = old.map(|(ip, _)| *ip).collect();
        for ip in &old {
            self.heard.remove(ip);
            let ids = self.numbers.get(ip).cloned().unwrap_or_default();
            ids.iter().for_each(|id| self.set(table, *id));
        }
        self.counters.forgotten.fetch_add(old.len() as u64, Ordering::Relaxed);
        if !old.is_empty() {
            self.count();
        }
    }

    fn count(&self) {
        let heard = self.heard.keys().filter_map(|ip| self.numbers.get(ip)).flatten();
        let both = heard.filter(|id| self.routes.contains_key(id)).count();
        let heard = self.heard.keys().filter_map(|ip| self.numbers.get(ip));
        let all = heard.map(Vec::len).sum::<usize>() + self.routes.len() - both;
        self.counters.limited.store(all as u64, Ordering::Relaxed);
    }

    /// Hosts whose neighbours the fast path has to be told of now.
    pub(super) fn changed(&mut self, now: Instant) -> Vec<HostId> {
        let is_time = self.told.is_none_or(|told| now.duration_since(told) >= BETWEEN_PASSES);
        if self.changed.is_empty() || !is_time {
            return Vec::new();
        }
        self.told = Some(now);
        std::mem::take(&mut self.changed)
    }
}

/// Where routers are heard from now on. Without it packets that are too long for them get lost.
pub(super) fn listeners() -> Vec<TooBigMessages> {
    let families = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()];
    let open = |family: IpAddr| match TooBigMessages::open(family) {
        Ok(listener) => Some(listener),
        // A host without IPv6 has no routers of it.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) => None,
        Err(error) => {
            let family = if family.is_ipv4() { "IPv4" } else { "IPv6" };
            tracing::warn!(%error, family, "routers that say that a packet is too long for them are not heard");
            None
        }
    };
    families.into_iter().filter_map(open).collect()
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
