//! Packets by address, port and protocol.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnet::IpNet;

/// `IPPROTO_TCP` and `IPPROTO_UDP`.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

/// Packets by destination, source, port and protocol: [`Filter::Match`](super::Filter::Match).
///
/// Conditions of one kind are alternatives, and a packet has to meet each kind that is given:
/// destination, source, and protocol. Protocols are TCP and UDP by destination port, and ICMP. A
/// kind without a condition does not matter.
///
/// Only the first fragment of a packet has ports. Later fragments match where no protocol is asked
/// for.
///
/// ```
/// use std::net::IpAddr;
///
/// use ringside_bpf::{Filter, PacketMatch};
///
/// // All that a TCP/IP stack in user space needs that has this address.
/// let own: IpAddr = "192.0.2.10".parse()?;
/// let filter = Filter::Match(PacketMatch::new().dst(own)?.arp());
/// assert_eq!(filter.to_string(), "dst:192.0.2.10,arp");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PacketMatch {
    pub(crate) dst: Prefixes,
    pub(crate) src: Prefixes,
    pub(crate) ports: List<PortRange, { PacketMatch::MAX_PORTS }>,
    pub(crate) icmp: bool,
    pub(crate) arp: bool,
}

pub(crate) type Prefixes = List<IpNet, { PacketMatch::MAX_PREFIXES }>;

/// Destination ports of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PortRange {
    pub(crate) protocol: u8,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// A condition that a [`PacketMatch`] cannot have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatchError {
    /// A condition that is there already.
    #[error("{0} is given twice")]
    Duplicate(String),
    /// More conditions of a kind than the program has room for.
    #[error("more than {max} {kind}")]
    TooMany {
        /// Which kind.
        kind: &'static str,
        /// The maximum.
        max: usize,
    },
    /// A range that begins with port 0, or ends before it begins.
    #[error("{0} are no ports: these go from 1 to 65535, in a range the smaller one first")]
    Ports(String),
    /// A prefix whose address has bits behind the prefix length.
    #[error("{0} has bits behind the prefix length; write {network}", network = .0.trunc())]
    Prefix(IpNet),
}

impl PacketMatch {
    /// Maximum number of destination prefixes, and of source prefixes.
    pub const MAX_PREFIXES: usize = 16;
    /// Maximum number of ports and port ranges.
    pub const MAX_PORTS: usize = 16;

    /// Returns a match without a condition. It needs at least one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an address, or a prefix, that packets may be sent to.
    ///
    /// # Errors
    ///
    /// [`MatchError`] if it is there already, or there are 16, or a prefix has bits behind its
    /// length.
    pub fn dst(mut self, prefix: impl Into<IpNet>) -> Result<Self, MatchError> {
        self.dst.add(network(prefix)?, "destinations (dst)")?;
        Ok(self)
    }

    /// Adds an address, or a prefix, that packets may come from.
    ///
    /// # Errors
    ///
    /// As [`dst`](Self::dst).
    pub fn src(mut self, prefix: impl Into<IpNet>) -> Result<Self, MatchError> {
        self.src.add(network(prefix)?, "sources (src)")?;
        Ok(self)
    }

    /// Adds TCP to these destination ports: `80..=80`.
    ///
    /// # Errors
    ///
    /// [`MatchError`] for port 0, an empty range, one that is there already, or more than 16 with
    /// those of UDP.
    pub fn tcp(self, ports: RangeInclusive<u16>) -> Result<Self, MatchError> {
        self.port(TCP, ports)
    }

    /// Adds UDP to these destination ports, as [`tcp`](Self::tcp).
    ///
    /// # Errors
    ///
    /// As [`tcp`](Self::tcp).
    pub fn udp(self, ports: RangeInclusive<u16>) -> Result<Self, MatchError> {
        self.port(UDP, ports)
    }

    fn port(mut self, protocol: u8, ports: RangeInclusive<u16>) -> Result<Self, MatchError> {
        let (first, last) = (*ports.start(), *ports.end());
        let range = PortRange { protocol, first, last };
        if first == 0 || first > last {
            return Err(MatchError::Ports(range.to_string()));
        }
        self.ports.add(range, "ports (tcp and udp together)")?;
        Ok(self)
    }

    /// Adds ICMP over IPv4 and ICMPv6, except neighbour discovery: echo requests, and the errors
    /// that a TCP/IP stack finds the path MTU by.
    #[must_use]
    pub fn icmp(mut self) -> Self {
        self.icmp = true;
        self
    }

    /// Adds ARP and IPv6 neighbour discovery about the destinations, so that a TCP/IP stack in user
    /// space can answer for these addresses and find its neighbours. Sources and ports do not
    /// matter for these packets.
    ///
    /// The sockets get
    ///
    /// - ARP requests and replies whose target address is among the destinations,
    /// - neighbour discovery (ICMPv6 types 133 to 137) sent to one of them,
    /// - neighbour solicitations and advertisements sent to a group whose target is one of them.
    ///
    /// The kernel gets all others, so that the host finds its own neighbours, and answers for its
    /// own addresses, as before. Router advertisements to all nodes are among these: the stack has
    /// to know its routers, or to solicit them from its address.
    ///
    /// The destinations must not be addresses of the host: it would not be reached any more.
    /// `ringside-xsk` refuses that.
    #[must_use]
    pub fn arp(mut self) -> Self {
        self.arp = true;
        self
    }

    /// Returns the destination that has this address, if [`arp`](Self::arp) takes its ARP or
    /// neighbour discovery away from the kernel.
    pub fn arp_for(&self, address: IpAddr) -> Option<IpNet> {
        let mut destinations = self.dst.iter().filter(|_| self.arp);
        destinations.find(|prefix| prefix.contains(&address))
    }

    /// Returns the reason why nothing can match.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let allows = |prefixes: &Prefixes, is_v4| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.addr().is_ipv4() == is_v4)
        };
        if self.arp && self.dst.is_empty() {
            return Err("arp needs the addresses that it is for: add dst:ADDRESS");
        }
        if self.dst.is_empty() && self.src.is_empty() && self.ports.is_empty() && !self.icmp {
            return Err("it has no condition");
        }
        if ![true, false]
            .into_iter()
            .any(|is_v4| allows(&self.dst, is_v4) && allows(&self.src, is_v4))
        {
            return Err("no packet has an IPv4 address and an IPv6 address, as dst and src ask for");
        }
        Ok(())
    }

    pub(super) fn takes_tcp(&self, source: IpAddr, destination: SocketAddr) -> bool {
        let allows = |prefixes: &Prefixes, address| {
            prefixes.is_empty() || prefixes.iter().any(|prefix| prefix.contains(&address))
        };
        let port = destination.port();
        let has_port = |range: PortRange| {
            let ports = range.first..=range.last;
            range.protocol == TCP && ports.contains(&port)
        };
        let any_protocol = self.ports.is_empty() && !self.icmp;
        allows(&self.dst, destination.ip())
            && allows(&self.src, source)
            && (any_protocol || self.ports.iter().any(has_port))
    }
}

fn network(prefix: impl Into<IpNet>) -> Result<IpNet, MatchError> {
    let prefix = prefix.into();
    if prefix.trunc() == prefix {
        Ok(prefix)
    } else {
        Err(MatchError::Prefix(prefix))
    }
}

/// A single address is written without its length.
fn text(prefix: IpNet) -> String {
    if prefix.prefix_len() == prefix.max_prefix_len() {
        prefix.addr().to_string()
    } else {
        prefix.to_string()
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.protocol == TCP { "tcp" } else { "udp" };
        write!(f, "{name}:{}", self.first)?;
        if self.last != self.first {
            write!(f, "-{}", self.last)?;
        }
        Ok(())
    }
}

impl fmt::Display for PacketMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dst = self.dst.iter().map(|prefix| format!("dst:{}", text(prefix)));
        let src = self.src.iter().map(|prefix| format!("src:{}", text(prefix)));
        let ports = self.ports.iter().map(|range| range.to_string());
        let words = [(self.icmp, "icmp"), (self.arp, "arp")];
        let words = words.into_iter().filter(|(is_set, _)| *is_set);
        let words = words.map(|(_, word)| word.to_owned());
        let terms: Vec<String> = dst.chain(src).chain(ports).chain(words).collect();
        f.write_str(&terms.join(","))
    }
}

/// A list in the value itself, so that a filter is `Copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct List<T, const N: usize>([Option<T>; N]);

impl<T: Copy, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self([None; N])
    }
}

impl<T: Copy + PartialEq + fmt::Display, const N: usize> List<T, N> {
    fn add(&mut self, item: T, kind: &'static str) -> Result<(), MatchError> {
        if self.iter().any(|other| other == item) {
            return Err(MatchError::Duplicate(item.to_string()));
        }
        let free = self.0.iter_mut().find(|slot| slot.is_none());
        *free.ok_or(MatchError::TooMany { kind, max: N })? = Some(item);
        Ok(())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = T> {
        self.0.iter().map_while(|slot| *slot)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}
