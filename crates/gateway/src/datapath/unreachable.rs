//! Hosts that do not get what the gateway sends them: what ICMP errors say, for health, statistics
//! and traces.
//!
//! A host that expects another encapsulation, or listens at another UDP port, answers "port
//! unreachable"; routers and firewalls on the way have other answers. Nothing else shows that such
//! packets are lost, for the gateway has sent them.
//!
//! A message counts if the gateway sends such packets at present: the host is known, and the
//! tenant's address to which the quoted packet goes lives there. A message that quotes too little
//! for that counts if the host alone is known. An entry ends [`ENTRY_TIMEOUT`] after the last
//! message, and at once when the tenant's address lives elsewhere or its host takes another
//! encapsulation. Linux answers a sender about once a second, so the number of messages is not that
//! of the lost packets.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ringside_gateway_core::packet::OUTER;
use ringside_gateway_core::table::{Encapsulation, Host, HostId, HostReader, NeighborReader};
use ringside_gateway_core::underlay_error::{Tunnelled, Unreachable};
use ringside_gateway_core::{TenantAddress, Underlay};

use super::pace::Gate;
use crate::model::{Tables, UnreachableHost};

/// Longer than the pauses between the packets of a tenant that pings.
const ENTRY_TIMEOUT: u64 = 30 * SECOND;
/// Entries, whoever sends messages.
const MAX_ENTRIES: usize = 256;
/// Problems in words; the rest is a number.
const MAX_PROBLEMS: usize = 8;
/// Log lines at once, and the interval between two in the long run.
const LOG_BURST: u32 = 10;
const LOG_INTERVAL: u64 = 10 * SECOND;
const SECOND: u64 = 1_000_000_000;

type Key = (IpAddr, Encapsulation);

#[derive(Debug, Clone, Copy)]
struct Entry {
    cause: Unreachable,
    from: IpAddr,
    /// The receiver of the packet that was quoted last.
    receiver: Option<TenantAddress>,
    messages: u64,
    last: u64,
}

/// What is known at present. One thread writes ([`Tracker`]), others read.
#[derive(Debug, Default)]
pub(super) struct UnreachableHosts {
    messages: [AtomicU64; Unreachable::ALL.len()],
    /// Messages about packets that the gateway does not send at present.
    ignored: AtomicU64,
    has_entries: AtomicBool,
    entries: Mutex<BTreeMap<Key, Entry>>,
}

impl UnreachableHosts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many messages came, by cause.
    pub(super) fn messages(&self) -> Vec<(&'static str, u64)> {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let causes = Unreachable::ALL.iter().zip(&self.messages);
        causes
            .map(|(cause, count)| (cause.name(), of(count)))
            .chain([("ignored", of(&self.ignored))])
            .collect()
    }

    /// Returns the hosts that do not get packets.
    pub(super) fn hosts(&self, underlay: &Underlay) -> Vec<UnreachableHost> {
        let shown = |(&(host, encapsulation), entry): (&Key, &Entry)| UnreachableHost {
            host,
            encapsulation,
            udp_port: underlay.port(encapsulation),
            cause: entry.cause.name(),
            from: entry.from,
            messages: entry.messages,
        };
        self.lock().iter().map(shown).collect()
    }

    /// Returns what is wrong and what to check, for people.
    pub(super) fn problems(&self, underlay: &Underlay, now: u64) -> Vec<String> {
        let entries = self.lock();
        let described = entries.iter().take(MAX_PROBLEMS);
        let mut problems: Vec<String> = described
            .map(|(key, entry)| {
                let seconds = now.saturating_sub(entry.last) / SECOND;
                let times = format!("{} ICMP messages, the last {seconds} s ago", entry.messages);
                format!(
                    "{} ({times}); {}",
                    what(*key, entry, underlay),
                    remedy(*key, entry.cause, underlay)
                )
            })
            .collect();
        if let more @ 1.. = entries.len().saturating_sub(MAX_PROBLEMS) {
            problems.push(format!(
                "packets to {more} more hosts are lost, as ICMP errors say: see unreachable-hosts in \
                 `ringside gateway stats --json`"
            ));
        }
        problems
    }

    /// Returns what happens to a packet that is sent to a host, if it is lost there.
    fn note(&self, key: Key) -> Option<String> {
        let entries = self.lock();
        let Entry { cause, from, .. } = entries.get(&key)?;
        Some(format!("; lost there: {from} answers {}", cause.name()))
    }
}

fn what((host, encapsulation): Key, entry: &Entry, underlay: &Underlay) -> String {
    let Entry { from, cause, .. } = entry;
    format!(
        "packets to host {host} ({encapsulation}, UDP port {}) are lost: {from} answers {}",
        underlay.port(encapsulation),
        cause.name(),
    )
}

fn remedy((host, encapsulation): Key, cause: Unreachable, underlay: &Underlay) -> String {
    let (name, port) = (encapsulation.name(), underlay.port(encapsulation));
    match cause {
        Unreachable::Port => format!(
            "check the encapsulation of its neighbours (`--encapsulation`), whether its tunnel device \
             is up and has this port \
             (`ip -d link show type {name}` there), and path.{name}-port here"
        ),
        Unreachable::Protocol => "check whether a host with tunnels has this address: it takes no UDP".to_owned(),
        Unreachable::Host => "check whether the host is up and has this address".to_owned(),
        Unreachable::Network => format!("check the routes there and here: `ip route get {host}`"),
        Unreachable::Prohibited => format!("a firewall there has to let UDP port {port} through"),
        Unreachable::HopLimit => format!("check the routes for a loop: `traceroute {host}`"),
    }
}

/// Keeps [`UnreachableHosts`] true. Times are CLOCK_MONOTONIC in nanoseconds.
pub(super) struct Tracker<'a> {
    known: &'a UnreachableHosts,
    sent: Sent,
    lines: Gate,
}

/// Looks up what the gateway sends at present.
pub(super) struct Sent {
    hosts: HostReader,
    neighbors: NeighborReader,
}

impl Sent {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            hosts: tables.hosts.reader(),
            neighbors: tables.neighbors.reader(),
        }
    }

    fn host_of(&mut self, receiver: TenantAddress) -> Option<Host> {
        let neighbor = self.neighbors.find(receiver)?;
        self.hosts.find(neighbor.host)
    }

    /// Returns whether packets to a tenant's address are sent to this host in this encapsulation.
    fn goes_to(&mut self, receiver: TenantAddress, key: Key) -> bool {
        self.host_of(receiver).is_some_and(|host| takes(&host, key))
    }

    /// Returns the host that a packet is for, of which these bytes came, from the Ethernet header
    /// on.
    pub(super) fn host(&mut self, frame: &[u8], underlay: &Underlay) -> Option<IpAddr> {
        let packet = Tunnelled::parse(frame.get(OUTER..)?, underlay)?;
        self.host_of(packet.receiver?).map(|host| host.ip)
    }

    /// Returns what to add to the trace of a packet that was sent on, of which these bytes came,
    /// from the Ethernet header on.
    pub(super) fn note(&mut self, known: &UnreachableHosts, frame: &[u8], underlay: &Underlay) -> Option<String> {
        if !known.has_entries.load(Ordering::Relaxed) {
            return None;
        }
        let packet = Tunnelled::parse(frame.get(OUTER..)?, underlay)?;
        let host = self.host_of(packet.receiver?)?;
        known.note((host.ip, host.encapsulation.unwrap_or(packet.encapsulation)))
    }
}

fn takes(host: &Host, (ip, encapsulation): Key) -> bool {
    host.ip == ip && host.encapsulation.is_none_or(|only| only == encapsulation)
}

impl<'a> Tracker<'a> {
    pub(super) fn new(known: &'a UnreachableHosts, tables: &Tables) -> Self {
        Self {
            known,
            sent: Sent::new(tables),
            lines: Gate::new(LOG_INTERVAL, LOG_BURST),
        }
    }

    /// Records a message. `ids` are the numbers of the hosts that have the address the packet went
    /// to.
    pub(super) fn record(
        &mut self,
        ids: &[HostId],
        packet: &Tunnelled,
        (cause, from): (Unreachable, IpAddr),
        now: u64,
    ) {
        let key = (packet.host, packet.encapsulation);
        let hosts = &mut self.sent.hosts;
        let is_sent = ids
            .iter()
            .any(|id| hosts.find(*id).is_some_and(|host| takes(&host, key)))
            && packet.receiver.is_none_or(|receiver| self.sent.goes_to(receiver, key));
        if !is_sent {
            self.known.ignored.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.known.messages[cause as usize].fetch_add(1, Ordering::Relaxed);
        let mut entries = self.known.lock();
        let is_full = entries.len() >= MAX_ENTRIES;
        let messages = match entries.get(&key) {
            Some(entry) => entry.messages,
            None if is_full => return,
            None => 0,
        };
        let entry = Entry {
            cause,
            from,
            receiver: packet.receiver,
            messages: messages + 1,
            last: now,
        };
        entries.insert(key, entry);
        self.known.has_entries.store(true, Ordering::Relaxed);
        drop(entries);
        if messages == 0 && self.lines.lets_through(now) {
            let (host, encapsulation) = key;
            let cause = cause.name();
            tracing::error!(%host, %encapsulation, %from, cause, "an ICMP error: packets to a host are lost");
        }
    }

    /// Removes entries that no longer hold. To be called now and then.
    pub(super) fn expire(&mut self, now: u64) {
        if !self.known.has_entries.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.known.lock();
        entries.retain(|key, entry| {
            let holds = now.saturating_sub(entry.last) < ENTRY_TIMEOUT
                && entry.receiver.is_none_or(|receiver| self.sent.goes_to(receiver, *key));
            if !holds && self.lines.lets_through(now) {
                let (host, encapsulation) = *key;
                let messages = entry.messages;
                tracing::info!(%host, %encapsulation, messages, "no more ICMP errors about packets to a host");
            }
            holds
        });
        self.known.has_entries.store(!entries.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "unreachable_tests.rs"]
mod tests;
