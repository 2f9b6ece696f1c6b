//! Hosts that packets are for and that the gateway cannot send to, for health and traces.
//!
//! Either the kernel has no way to the host by an interface of the gateway, or nobody answers for
//! its MAC address. The resolver notes a host when a packet for it comes, and removes it when it is
//! resolved. An entry ends [`ENTRY_TIMEOUT`] after the last packet.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::errno::Errno;
use ringside_gateway_core::decide::PortSettings;

use super::pace::Gate;
use super::ports::Ports;
use super::ways::HostRoute;

/// Longer than the pauses between the packets of a tenant that pings.
pub(super) const ENTRY_TIMEOUT: u64 = 30 * SECOND;
/// Entries, whoever sends packets.
const MAX_ENTRIES: usize = 4096;
/// Problems in words; the rest is a number.
const MAX_PROBLEMS: usize = 8;
/// Log lines at once, and the interval between two in the long run.
const LOG_BURST: u32 = 10;
const LOG_INTERVAL: u64 = 10 * SECOND;
const SECOND: u64 = 1_000_000_000;

/// Why the gateway cannot send to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cause {
    /// None of its routes leads there.
    NoRoute,
    /// A route or a rule of this type refuses it.
    Refused(&'static str),
    /// The kernel was not able to look for a route, for this reason.
    Unknown(String),
    /// The host's address is the gateway's own.
    OwnAddress,
    /// It routes to the host by another interface than the gateway's.
    OtherInterface { by: String, own: String },
    /// The host's neighbours name an interface by a number that none has.
    NoInterface { number: u8, count: usize },
    /// The interface has no address of the host's family.
    NoAddress { interface: String, is_v4: bool },
    /// Nobody answers for the MAC address of the host or the router to it. With a port that was
    /// given (`--port`) the kernel may route by an interface that is not the gateway's.
    NoAnswer {
        hop: IpAddr,
        interface: String,
        routed_by: Option<String>,
    },
}

impl Cause {
    /// Returns why the kernel gives no route.
    pub(super) fn of_route(error: &ringside_nic::Error) -> Self {
        let errno = match error {
            ringside_nic::Error::NoRoute { source, .. } => source.raw_os_error(),
            _ => None,
        };
        match errno.map(Errno::from_raw) {
            Some(Errno::ENETUNREACH) => Self::NoRoute,
            Some(Errno::EINVAL) => Self::Refused("blackhole"),
            Some(Errno::EHOSTUNREACH) => Self::Refused("unreachable"),
            Some(Errno::EACCES) => Self::Refused("prohibit"),
            _ => Self::Unknown(error.to_string()),
        }
    }

    /// Returns whether the kernel may still route to the host as before.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Unknown(_))
    }

    /// Returns what keeps packets of a host from a port, if that does not depend on routes.
    pub(super) fn of_port(ports: &Ports, own: &[PortSettings], number: u8, host: IpAddr) -> Result<(), Self> {
        let count = ports.len();
        if usize::from(number) >= count {
            return Err(Self::NoInterface { number, count });
        }
        let is_v4 = host.is_ipv4();
        match (own.get(usize::from(number))).is_none_or(|port| has_family(port, is_v4)) {
            true => Ok(()),
            false => Err(Self::NoAddress {
                interface: ports.name(number).to_string(),
                is_v4,
            }),
        }
    }

    /// Returns whether this was [`Cause::NoAddress`], and the interface has an address now.
    pub(super) fn is_over(&self, ports: &Ports, own: &[PortSettings]) -> bool {
        let Self::NoAddress { interface, is_v4 } = self else {
            return false;
        };
        let mut named = ports.all().filter(|(_, name, _)| name == interface);
        named.any(|(number, ..)| {
            own.get(usize::from(number))
                .is_some_and(|port| has_family(port, *is_v4))
        })
    }

    /// Returns that nobody answers on the way to a host.
    pub(super) fn no_answer(ports: &Ports, way: &HostRoute) -> Self {
        let (number, hop) = way.place;
        Self::NoAnswer {
            hop,
            interface: ports.name(number).to_string(),
            routed_by: way.routed_by.clone(),
        }
    }

    fn text(&self, host: IpAddr) -> String {
        match self {
            Self::NoRoute => format!("no route to {host}"),
            Self::Refused(kind) => format!("the kernel's route to it is of the type {kind}"),
            Self::Unknown(error) => error.clone(),
            Self::OwnAddress => "it is an address of the gateway itself".to_owned(),
            Self::OtherInterface { by, own } => {
                format!("the kernel routes to it by {by}, which is not in path.interface ({own})")
            }
            Self::NoInterface { number, count } => {
                format!(
                    "its neighbours name the interface number {number} (`--port`), and path.interface \
                     has {count}, from 0"
                )
            }
            Self::NoAddress { interface, is_v4 } => {
                format!(
                    "the interface {interface} has no {} address",
                    if *is_v4 { "IPv4" } else { "IPv6" }
                )
            }
            Self::NoAnswer {
                hop,
                interface,
                routed_by,
            } => {
                let who = match *hop == host {
                    true => "it".to_owned(),
                    false => format!("the router {hop}"),
                };
                let other = routed_by.as_ref().map_or_else(String::new, |by| {
                    format!(", and the kernel routes to it by {by}, which is not in path.interface")
                });
                format!("{who} does not answer for its MAC address on {interface}{other}")
            }
        }
    }

    fn remedy(&self, host: IpAddr) -> String {
        match self {
            Self::NoRoute => format!("add a route: ip route add {host} via ROUTER"),
            Self::Refused(_) => {
                let family = if host.is_ipv4() { "" } else { "-6 " };
                format!(
                    "remove or replace that route or rule: `ip {family}route show match {host}` and \
                     `ip {family}rule` show them"
                )
            }
            Self::Unknown(_) => {
                format!("the gateway tries again with the next packet; see `ip route get {host}`")
            }
            Self::OwnAddress => "put its neighbours with the address of the host that they live on".to_owned(),
            Self::OtherInterface { by, .. } => {
                format!(
                    "correct the route (`ip route get {host}`), add {by} to path.interface and \
                     restart the gateway, or put its neighbours with `--port` if the host is on \
                     the link of an interface there"
                )
            }
            Self::NoInterface { .. } => {
                "put its neighbours with another `--port` or without `--port`, or add the interface to \
                 path.interface and restart the gateway"
                    .to_owned()
            }
            Self::NoAddress { interface, .. } => {
                format!("give it one: ip address add ADDRESS/LENGTH dev {interface}")
            }
            Self::NoAnswer {
                routed_by: Some(by), ..
            } => format!(
                "put its neighbours without `--port` and add {by} to path.interface, or correct the \
                 route (`ip route get {host}`)"
            ),
            Self::NoAnswer { hop, interface, .. } => {
                // The kernel asks from such an address only.
                let needs = match hop.is_ipv6() {
                    true => format!(", and {interface} has an address of fe80::/10"),
                    false => String::new(),
                };
                format!(
                    "check whether {hop} is up and reachable by {interface} \
                     (`ip neighbour show {hop}`, `ip route get {host}`){needs}, or put the host's \
                     neighbours with `--host-mac`"
                )
            }
        }
    }
}

fn has_family(port: &PortSettings, is_v4: bool) -> bool {
    match is_v4 {
        true => port.v4.is_some(),
        false => port.v6.is_some(),
    }
}

#[derive(Debug)]
struct Entry {
    cause: Cause,
    /// CLOCK_MONOTONIC in nanoseconds.
    last: u64,
}

/// The hosts of which this is known at present.
#[derive(Debug)]
pub(super) struct UnresolvedHosts {
    has_entries: AtomicBool,
    entries: Mutex<BTreeMap<IpAddr, Entry>>,
    lines: Mutex<Gate>,
}

impl Default for UnresolvedHosts {
    fn default() -> Self {
        Self {
            has_entries: AtomicBool::new(false),
            entries: Mutex::default(),
            lines: Mutex::new(Gate::new(LOG_INTERVAL, LOG_BURST)),
        }
    }
}

impl UnresolvedHosts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<IpAddr, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_logged(&self, now: u64) -> bool {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.lets_through(now)
    }

    /// Records that packets to a host are lost.
    pub(super) fn record(&self, host: IpAddr, cause: Cause, now: u64) {
        let mut entries = self.lock();
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&host) {
            return;
        }
        let is_new = !entries.contains_key(&host);
        let text = is_new.then(|| cause.text(host));
        entries.insert(host, Entry { cause, last: now });
        self.has_entries.store(true, Ordering::Relaxed);
        drop(entries);
        if let Some(text) = text.filter(|_| self.is_logged(now)) {
            tracing::error!(%host, "packets to a host are lost: {text}");
        }
    }

    /// Removes a host that the gateway can send to.
    pub(super) fn remove(&self, host: IpAddr) {
        if !self.has_entries.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.lock();
        entries.remove(&host);
        self.has_entries.store(!entries.is_empty(), Ordering::Relaxed);
    }

    /// Removes hosts that no packet came for lately, or whose cause `is_over`. The resolver calls
    /// this once a second.
    pub(super) fn expire(&self, now: u64, is_over: impl Fn(&Cause) -> bool) {
        if !self.has_entries.load(Ordering::Relaxed) {
            return;
        }
        let mut entries = self.lock();
        let is_recent = |entry: &Entry| now.saturating_sub(entry.last) < ENTRY_TIMEOUT;
        entries.retain(|_, entry| is_recent(entry) && !is_over(&entry.cause));
        self.has_entries.store(!entries.is_empty(), Ordering::Relaxed);
    }

    /// Returns what is wrong and what to do, for people.
    pub(super) fn problems(&self) -> Vec<String> {
        let entries = self.lock();
        let described = entries.iter().take(MAX_PROBLEMS);
        let mut problems: Vec<String> = described
            .map(|(host, Entry { cause, .. })| {
                let (text, remedy) = (cause.text(*host), cause.remedy(*host));
                format!("packets to host {host} are lost: {text}; {remedy}")
            })
            .collect();
        if let more @ 1.. = entries.len().saturating_sub(MAX_PROBLEMS) {
            problems.push(format!(
                "packets to {more} more hosts are lost for such reasons: `ringside gateway trace \
                 --drops host-unresolved` names them"
            ));
        }
        problems
    }

    /// Returns the host of a packet that is dropped as `host-unresolved`, and the cause if it is known.
    pub(super) fn note(&self, host: IpAddr) -> String {
        let entries = self.lock();
        let why = entries.get(&host).map(|entry| entry.cause.text(host));
        match why {
            Some(why) => format!("; host {host}: {why}"),
            None => format!("; host {host}"),
        }
    }
}
