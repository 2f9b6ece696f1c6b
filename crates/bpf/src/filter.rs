//! Which packets are steered into sockets.

mod packets;

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Serialize;

pub use self::packets::{MatchError, PacketMatch};

/// Which packets a [`XskProgram`](crate::XskProgram) steers into sockets. The kernel's stack keeps
/// the others.
///
/// ARP and IPv6 neighbour discovery (ICMPv6 types 133 to 137) go to the kernel, except with
/// [`Wire`](Self::Wire) and [`PacketMatch::arp`]. Packets that contradict themselves in what the
/// filter has to look at go to the kernel, too. Up to two VLAN tags, up to four IPv6 extension
/// headers and the options of IPv4 are skipped.
///
/// Written as `all`, `none`, `udp:PORT`, `echo:PORT`, `ethertype:0xHEX` or `wire`; or as terms with
/// commas: `dst:ADDRESS`, `src:ADDRESS`, `tcp:PORT`, `udp:PORT`, `icmp` and `arp`, where an address
/// may be a prefix and a port a range (`8000-8099`). The README of `ringside-xsk` has a table of
/// what reaches the sockets.
///
/// ```
/// use ringside_bpf::Filter;
///
/// assert_eq!("udp:4789".parse(), Ok(Filter::UdpPort(4789)));
/// assert_eq!(Filter::EtherType(0x88f7).to_string(), "ethertype:0x88f7");
/// // A web server with an address of its own in user space. The host keeps its other addresses.
/// let server: Filter = "dst:192.0.2.10,dst:2001:db8::10,tcp:80,tcp:443,icmp,arp".parse()?;
/// assert!(matches!(server, Filter::Match(_)));
/// # Ok::<(), ringside_bpf::ParseFilterError>(())
/// ```
#[expect(
    clippy::large_enum_variant,
    reason = "a filter is `Copy`, and handled once for each program"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Filter {
    /// Everything.
    #[default]
    All,
    /// Nothing: the program only counts.
    None,
    /// UDP over IPv4 or IPv6 to this destination port. Of a fragmented datagram only the first
    /// fragment has a port, and only it is steered.
    UdpPort(u16),
    /// What an echo server answers: UDP to this destination port as above, and ICMP and ICMPv6 echo requests that are
    /// whole and without IPv6 extension headers.
    Echo(u16),
    /// Frames of this type, either in the Ethernet header or behind the VLAN tags.
    EtherType(u16),
    /// Every frame, as it is, ARP and IPv6 neighbour discovery included: for a wire between two interfaces, whose ends are
    /// others. The host itself is not reached through the interface meanwhile.
    Wire,
    /// Packets by address, port and protocol, and ARP and neighbour discovery about an address that
    /// is not the host's.
    Match(PacketMatch),
}

/// The smallest EtherType; below it the field is the length of an IEEE 802.3 frame.
const ETH_P_802_3_MIN: u16 = 0x0600;
/// Steered only with [`Filter::Wire`] and [`PacketMatch::arp`]: the host needs it to stay
/// reachable.
const ETH_P_ARP: u16 = 0x0806;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

impl Filter {
    /// What is wrong with a filter that can never match.
    pub(crate) fn check(self) -> Result<(), &'static str> {
        match self {
            Self::UdpPort(0) | Self::Echo(0) => Err("0 is no UDP port to receive on"),
            Self::EtherType(ETH_P_ARP) => Err("the host needs ARP to stay reachable; \
                 dst:ADDRESS,arp takes what is about an address that is not the host's"),
            Self::EtherType(0..ETH_P_802_3_MIN) => Err("an EtherType is 0x0600 or more"),
            Self::Match(packets) => packets.check(),
            _ => Ok(()),
        }
    }

    /// Returns whether TCP packets from `source` to `destination` are steered into sockets.
    pub fn takes_tcp(&self, source: IpAddr, destination: SocketAddr) -> bool {
        match self {
            Self::All | Self::Wire => true,
            Self::EtherType(ETH_P_IP) => destination.is_ipv4(),
            Self::EtherType(ETH_P_IPV6) => destination.is_ipv6(),
            Self::Match(packets) => packets.takes_tcp(source, destination),
            Self::None | Self::UdpPort(_) | Self::Echo(_) | Self::EtherType(_) => false,
        }
    }

    /// The two constants of steer.h: kind and value. Those of match.h are set by [`crate::xsk`].
    pub(crate) fn constants(self) -> (u32, u32) {
        match self {
            Self::All => (0, 0),
            Self::None => (1, 0),
            Self::UdpPort(port) => (2, port.into()),
            Self::EtherType(kind) => (3, kind.into()),
            Self::Echo(port) => (4, port.into()),
            Self::Wire => (5, 0),
            Self::Match(_) => (6, 0),
        }
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::UdpPort(port) => write!(f, "udp:{port}"),
            Self::Echo(port) => write!(f, "echo:{port}"),
            Self::Wire => f.write_str("wire"),
            Self::Match(packets) => packets.fmt(f),
            Self::EtherType(kind) => write!(f, "ethertype:{kind:#06x}"),
        }
    }
}

/// A text that names no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no filter: {why}; write all, none, wire, echo:PORT, ethertype:0xHEX, or terms \
     with commas of dst:ADDRESS, src:ADDRESS, tcp:PORT, udp:PORT, icmp and arp, where an address \
     may be a prefix and a port a range"
)]
pub struct ParseFilterError {
    text: String,
    why: Cow<'static, str>,
}

impl FromStr for Filter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why| ParseFilterError {
            text: text.to_owned(),
            why,
        };
        let filter = parse(text).map_err(error)?;
        filter.check().map_err(|why| error(why.into()))?;
        Ok(filter)
    }
}

fn parse(text: &str) -> Result<Filter, Cow<'static, str>> {
    Ok(match text.split_once(':') {
        _ if text.contains(',') => {
            let mut terms = text.split(',');
            Filter::Match(terms.try_fold(PacketMatch::new(), add_term)?)
        }
        None if text == "all" => Filter::All,
        None if text == "none" => Filter::None,
        None if text == "wire" => Filter::Wire,
        Some(("echo", port)) => Filter::Echo(parse_port(port)?),
        Some(("udp", port)) if !port.contains('-') => Filter::UdpPort(parse_port(port)?),
        Some(("ethertype", kind)) => Filter::EtherType(
            kind.strip_prefix("0x")
                .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                .ok_or("the type is no hexadecimal number up to 0xffff")?,
        ),
        _ => Filter::Match(add_term(PacketMatch::new(), text)?),
    })
}

fn add_term(packets: PacketMatch, term: &str) -> Result<PacketMatch, Cow<'static, str>> {
    let (kind, value) = match term.split_once(':') {
        Some((kind, value)) => (kind, Some(value)),
        None => (term, None),
    };
    let added = match (kind, value) {
        ("dst", Some(prefix)) => packets.dst(parse_prefix(prefix)?),
        ("src", Some(prefix)) => packets.src(parse_prefix(prefix)?),
        ("tcp", Some(ports)) => packets.tcp(parse_ports(ports)?),
        ("udp", Some(ports)) => packets.udp(parse_ports(ports)?),
        ("icmp", None) if !packets.icmp => Ok(packets.icmp()),
        ("arp", None) if !packets.arp => Ok(packets.arp()),
        ("icmp" | "arp", None) => Err(MatchError::Duplicate(term.to_owned())),
        ("icmp" | "arp", Some(_)) => return Err(format!("{kind} has no value").into()),
        ("dst" | "src", None) => {
            return Err(format!("{kind} needs an address, such as {kind}:192.0.2.1").into());
        }
        ("tcp" | "udp", None) => return Err(format!("{kind} needs a port: {kind}:80").into()),
        ("all" | "none" | "wire" | "echo" | "ethertype", _) => {
            return Err(format!("{kind} cannot be combined with others").into());
        }
        _ => return Err(format!("unknown name `{kind}`").into()),
    };
    added.map_err(|error| error.to_string().into())
}

fn parse_prefix(text: &str) -> Result<IpNet, Cow<'static, str>> {
    const EXAMPLES: &str = "192.0.2.1 or prefix such as 2001:db8::/32";
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| address())
        .map_err(|_| format!("`{text}` is no address such as {EXAMPLES}").into())
}

fn parse_port(text: &str) -> Result<u16, Cow<'static, str>> {
    text.parse().map_err(|_| "the port is no number from 1 to 65535".into())
}

fn parse_ports(text: &str) -> Result<RangeInclusive<u16>, Cow<'static, str>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Ok(parse_port(first)?..=parse_port(last)?)
}

impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
