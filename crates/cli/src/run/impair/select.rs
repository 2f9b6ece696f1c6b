//! Which packets are impaired, and which bit of one is turned.

use std::fmt;
use std::str::FromStr;

use ringside_wire::flow::{ChecksumState, parse_udp};
use ringside_wire::vlan::Network;
use ringside_wire::{EtherType, Protocol, ipv6};

/// `--match`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matching {
    /// All but ARP and IPv6 neighbour discovery: hosts that cannot find each other measure nothing.
    All,
    /// UDP, whole datagrams, from or to this port, or any.
    Udp(Option<u16>),
}

impl Matching {
    pub(super) fn wants(self, frame: &[u8]) -> bool {
        match self {
            Self::All => !is_neighbour(frame),
            Self::Udp(port) => parse_udp(frame)
                .is_ok_and(|udp| port.is_none_or(|port| udp.src.port() == port || udp.dst.port() == port)),
        }
    }
}

impl FromStr for Matching {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "all" => Ok(Self::All),
            None if text == "udp" => Ok(Self::Udp(None)),
            Some(("udp", port)) => match port.parse() {
                Ok(port @ 1..) => Ok(Self::Udp(Some(port))),
                _ => Err(format!("{port:?} is no port from 1 to 65535")),
            },
            _ => Err(format!("{text:?} are no packets; write all, udp or udp:PORT")),
        }
    }
}

impl fmt::Display for Matching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Udp(None) => f.write_str("udp"),
            Self::Udp(Some(port)) => write!(f, "udp:{port}"),
        }
    }
}

/// ARP, or one of the five messages of neighbour discovery (RFC 4861 §4).
fn is_neighbour(frame: &[u8]) -> bool {
    let Ok(network) = Network::parse(frame) else {
        return false;
    };
    if network.ethertype != EtherType::IPV6 {
        return network.ethertype == EtherType::ARP;
    }
    let packet = ipv6::Packet::parse(frame.get(network.offset..).unwrap_or_default());
    let Ok(upper) = packet.and_then(|packet| packet.upper_layer()) else {
        return false;
    };
    upper.protocol == Protocol::ICMPV6 && matches!(upper.bytes, [133..=137, ..])
}

/// Turns one bit: of the UDP payload, which its checksum covers, or where there is none of what follows the Ethernet header and
/// its tags. False when nothing follows.
///
/// One datagram in 65536 has the sum of its pseudo header as its checksum. Damaged, it looks like
/// one whose checksum the sender left to its NIC, and no receiver refuses that: the bit is one of
/// the checksum then.
pub(super) fn turn_a_bit(frame: &mut [u8], number: u64) -> bool {
    let udp = parse_udp(frame).ok().filter(|udp| !udp.payload.is_empty());
    let range = match &udp {
        Some(udp) => udp.payload.clone(),
        None => Network::parse(frame).map_or(frame.len(), |network| network.offset)..frame.len(),
    };
    let Some(bytes) = frame.get_mut(range).filter(|bytes| !bytes.is_empty()) else {
        return false;
    };
    let bit = usize::try_from(number % (bytes.len() as u64 * 8)).unwrap_or(0);
    let (byte, bit) = (bit / 8, 1 << (bit % 8));
    bytes[byte] ^= bit;
    if let Some(udp) = udp.filter(|udp| udp.checksum_state(frame) == ChecksumState::PseudoHeaderOnly) {
        let (checksum, payload) = frame.split_at_mut(udp.payload.start);
        payload[byte] ^= bit;
        // Not to zero, which says that there is none.
        if let [.., high, low] = checksum {
            *low ^= if (*high, *low) == (0, 1) { 2 } else { 1 };
        }
    }
    true
}

#[cfg(test)]
#[path = "select_tests.rs"]
mod tests;
