//! Which packets are steered into sockets.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// Which packets a [`XskProgram`](crate::XskProgram) steers into sockets.
///
/// ARP and IPv6 neighbour discovery (ICMPv6 types 133 to 137) always go to the kernel, and so do
/// packets that contradict themselves in what the filter has to look at. Up to two VLAN tags are
/// looked through. The exception is [`Wire`](Self::Wire).
///
/// Written as `all`, `none`, `udp:PORT`, `echo:PORT`, `ethertype:0xHEX` or `wire`:
///
/// ```
/// use ringside_bpf::Filter;
///
/// assert_eq!("udp:4789".parse(), Ok(Filter::UdpPort(4789)));
/// assert_eq!(Filter::EtherType(0x88f7).to_string(), "ethertype:0x88f7");
/// ```
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
}

/// The smallest EtherType; below it the field is the length of an IEEE 802.3 frame.
const ETH_P_802_3_MIN: u16 = 0x0600;
/// Never steered: the host needs it to stay reachable.
const ETH_P_ARP: u16 = 0x0806;

impl Filter {
    /// What is wrong with a filter that can never match.
    pub(crate) fn check(self) -> Result<(), &'static str> {
        match self {
            Self::UdpPort(0) | Self::Echo(0) => Err("0 is no UDP port to receive on"),
            Self::EtherType(ETH_P_ARP) => Err("ARP is never steered into sockets, the host needs it to stay reachable"),
            Self::EtherType(0..ETH_P_802_3_MIN) => Err("an EtherType is 0x0600 or more"),
            _ => Ok(()),
        }
    }

    /// The two constants of xsk.bpf.c: kind and value.
    pub(crate) fn constants(self) -> (u32, u32) {
        match self {
            Self::All => (0, 0),
            Self::None => (1, 0),
            Self::UdpPort(port) => (2, port.into()),
            Self::EtherType(kind) => (3, kind.into()),
            Self::Echo(port) => (4, port.into()),
            Self::Wire => (5, 0),
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
            Self::EtherType(kind) => write!(f, "ethertype:{kind:#06x}"),
        }
    }
}

/// A text that names no filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no filter: {why}; write all, none, udp:PORT, echo:PORT, ethertype:0xHEX or wire")]
pub struct ParseFilterError {
    text: String,
    why: &'static str,
}

impl FromStr for Filter {
    type Err = ParseFilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |why| ParseFilterError {
            text: text.to_owned(),
            why,
        };
        let filter = match text.split_once(':') {
            None if text == "all" => Self::All,
            None if text == "none" => Self::None,
            None if text == "wire" => Self::Wire,
            None => return Err(error("unknown name")),
            Some((kind @ ("udp" | "echo"), port)) => {
                let port = port
                    .parse()
                    .map_err(|_| error("the port is no number from 1 to 65535"))?;
                if kind == "udp" {
                    Self::UdpPort(port)
                } else {
                    Self::Echo(port)
                }
            }
            Some(("ethertype", kind)) => Self::EtherType(
                kind.strip_prefix("0x")
                    .and_then(|digits| u16::from_str_radix(digits, 16).ok())
                    .ok_or_else(|| error("the type is no hexadecimal number up to 0xffff"))?,
            ),
            Some(_) => return Err(error("unknown name")),
        };
        filter.check().map_err(error)?;
        Ok(filter)
    }
}

impl Serialize for Filter {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
