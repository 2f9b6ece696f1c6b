//! What the gateway says itself: answers to ARP and neighbour solicitations, and ICMP errors to senders.
//!
//! Each is made in place of the packet that caused it and goes back to the host that sent that.

use std::net::{Ipv4Addr, Ipv6Addr};

use ringside_wire::checksum::{Sum, pseudo_v6};
use ringside_wire::icmp::{self, NeighborAdvertisement, NeighborSolicitation};
use ringside_wire::{MacAddr, Protocol, arp, ipv4, ipv6};

use crate::rewrite::{Route, tos, word, wrap};
use crate::{Buffer, DropReason, Packet};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: MacAddr = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
/// "The ICMP datagram SHOULD contain as much of the original datagram as possible without the length of the ICMP
/// datagram exceeding 576 bytes", RFC 1812 §4.3.2.3.
const MOST_V4: usize = 576;
/// "… without the ICMPv6 packet exceeding the minimum IPv6 MTU", RFC 4443 §2.4 (c), nor with the headers around it: the way back to the
/// sender's host may take no more either.
const MOST_V6: usize = 1280 - 100;
const ERROR_HEADER_LEN: usize = 8;
/// Time to live of what the gateway sends in a tenant's network.
const TTL: u8 = 64;

/// Turns a question for an address into its answer: it is at `mac`.
///
/// # Errors
/// [`DropReason::NoRoom`]; the packet may be half edited.
pub fn i_have(frame: &mut impl Buffer, packet: &Packet, route: &Route, mac: MacAddr) -> Result<(), DropReason> {
    let asker = packet.inner_source(frame.bytes());
    let network = usize::from(packet.network);
    let is_v6 = frame.bytes().get(network).is_some_and(|byte| byte >> 4 == 6);
    let (end, to) = if is_v6 {
        advertise(frame, network, mac, asker).ok_or(DropReason::NoRoom)?
    } else {
        let bytes = frame.bytes_mut().get_mut(network..).unwrap_or_default();
        let asked = arp::Packet::parse(bytes).map_err(|_| DropReason::InnerMalformed)?;
        asked.reply(mac).emit(bytes).map_err(|_| DropReason::NoRoom)?;
        (usize::from(packet.end), asker)
    };
    send_back(frame, packet, route, mac, to, end)
}

/// Writes the advertisement over the solicitation. Where it ends, and whom it is for.
fn advertise(frame: &mut impl Buffer, network: usize, mac: MacAddr, asker: MacAddr) -> Option<(usize, MacAddr)> {
    let ip = ipv6::Packet::parse(frame.bytes().get(network..)?).ok()?;
    let target = NeighborSolicitation::parse(ip.payload()).ok()?.target;
    // Who has no address yet asks whether it may have this one: everybody is told that it is taken.
    let (to, to_mac) = match ip.src() {
        src if src.is_unspecified() => (ALL_NODES, ALL_NODES_MAC),
        src => (src, asker),
    };
    let message = network + ipv6::HEADER_LEN;
    let end = message + NeighborAdvertisement::LEN;
    if !frame.set_len(end) {
        return None;
    }
    let header = ipv6::Header {
        // RFC 4861 §7.1.2: or else it is not believed.
        hop_limit: u8::MAX,
        payload_len: NeighborAdvertisement::LEN,
        ..ipv6::Header::new(target, to, Protocol::ICMPV6)
    };
    header.emit(frame.bytes_mut().get_mut(network..)?).ok()?;
    let advertisement = NeighborAdvertisement {
        target,
        target_mac: mac,
        router: false,
        solicited: to != ALL_NODES,
        override_cache: true,
    };
    advertisement
        .emit(frame.bytes_mut().get_mut(message..)?, target, to)
        .ok()?;
    Some((end, to_mac))
}

/// What is wrong with a packet, for its sender to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is longer than this many bytes of IP packet, which is the most that goes through.
    TooBig(u16),
    /// Its time to live is over.
    TimeExceeded,
}

/// Whether the sender of a tenant's packet may be told what is wrong with it: see [`complain`].
pub(crate) fn may_be_told(frame: &[u8], packet: &Packet) -> bool {
    error_about(frame, packet).is_some()
}

/// The IP header of an error about a packet, if there may be one, and how long the packet is.
fn error_about(frame: &[u8], packet: &Packet) -> Option<(Header, usize)> {
    if packet.inner_source(frame).is_multicast() {
        return None;
    }
    let tenant = frame.get(usize::from(packet.network)..usize::from(packet.end))?;
    if tenant.first()? >> 4 == 4 {
        let ip = ipv4::Packet::parse(tenant).ok()?;
        let (src, dst) = allowed_v4(&ip)?;
        let header = ipv4::Header {
            ttl: TTL,
            ..ipv4::Header::new(dst, src, Protocol::ICMP)
        };
        Some((Header::V4(header), ip.total_len()))
    } else {
        let ip = ipv6::Packet::parse(tenant).ok()?;
        let (src, dst) = allowed_v6(&ip)?;
        let header = ipv6::Header {
            hop_limit: TTL,
            ..ipv6::Header::new(dst, src, Protocol::ICMPV6)
        };
        Some((Header::V6(header), ip.total_len()))
    }
}

/// Turns a tenant's packet into the ICMP error that its sender gets, in the name of the packet's receiver, as Linux' own
/// tunnels do. None if RFC 1122 §3.2.2 or RFC 4443 §2.4 (e) do not allow one: for an ICMP error, a later fragment, and a
/// sender that is not one host, by its IP address or its MAC. The frame is what it was then.
pub fn complain(frame: &mut impl Buffer, packet: &Packet, route: &Route, trouble: Trouble) -> Option<()> {
    let network = usize::from(packet.network);
    let (to, from) = (
        packet.inner_source(frame.bytes()),
        packet.inner_destination(frame.bytes()),
    );
    let (header, total) = error_about(frame.bytes(), packet)?;
    let tenant = frame.bytes().get(network..usize::from(packet.end))?;
    let len = total.min(header.most() - header.len() - ERROR_HEADER_LEN);
    let mut quoted = [0; MOST_V6];
    quoted[..len].copy_from_slice(&tenant[..len]);
    let message = network + header.len();
    let end = message + ERROR_HEADER_LEN + len;
    if !frame.set_len(end) {
        return None;
    }
    header.emit(end - message, frame.bytes_mut().get_mut(network..)?)?;
    let out = frame.bytes_mut().get_mut(message..end)?;
    let (first, rest) = out.split_at_mut(ERROR_HEADER_LEN);
    first.copy_from_slice(&header.error(trouble));
    rest.copy_from_slice(&quoted[..len]);
    let checksum = header.pseudo(u32::try_from(out.len()).ok()?).bytes(out).finish();
    out[2..4].copy_from_slice(&checksum.to_be_bytes());
    send_back(frame, packet, route, from, to, end).ok()
}

/// The header of an error, of either family.
enum Header {
    V4(ipv4::Header),
    V6(ipv6::Header),
}

impl Header {
    const fn len(&self) -> usize {
        match self {
            Self::V4(_) => ipv4::HEADER_LEN,
            Self::V6(_) => ipv6::HEADER_LEN,
        }
    }

    /// How long an error may be, this header included.
    const fn most(&self) -> usize {
        match self {
            Self::V4(_) => MOST_V4,
            Self::V6(_) => MOST_V6,
        }
    }

    /// In front of a message of this length.
    fn emit(&self, payload_len: usize, bytes: &mut [u8]) -> Option<()> {
        let emitted = match *self {
            Self::V4(header) => ipv4::Header { payload_len, ..header }.emit(bytes),
            Self::V6(header) => ipv6::Header { payload_len, ..header }.emit(bytes),
        };
        emitted.ok()
    }

    /// Type, code, checksum to be filled in, and what the type asks for.
    fn error(&self, trouble: Trouble) -> [u8; ERROR_HEADER_LEN] {
        let (kind, code, mtu) = match (self, trouble) {
            (Self::V4(_), Trouble::TooBig(mtu)) => {
                (icmp::v4::DESTINATION_UNREACHABLE, icmp::v4::FRAGMENTATION_NEEDED, mtu)
            }
            (Self::V4(_), Trouble::TimeExceeded) => (icmp::v4::TIME_EXCEEDED, 0, 0),
            (Self::V6(_), Trouble::TooBig(mtu)) => (icmp::v6::PACKET_TOO_BIG, 0, mtu),
            (Self::V6(_), Trouble::TimeExceeded) => (icmp::v6::TIME_EXCEEDED, 0, 0),
        };
        let [high, low] = mtu.to_be_bytes();
        [kind, code, 0, 0, 0, 0, high, low]
    }

    /// What the checksum covers besides the message.
    fn pseudo(&self, len: u32) -> Sum {
        match self {
            Self::V4(_) => Sum::ZERO,
            Self::V6(header) => pseudo_v6(header.src, header.dst, Protocol::ICMPV6, len),
        }
    }
}

fn allowed_v4(ip: &ipv4::Packet<'_>) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let src = ip.src();
    let is_one_host = !(src.is_multicast() || src.is_broadcast() || src.is_unspecified() || src.is_loopback());
    let is_error =
        ip.protocol() == Protocol::ICMP && ip.payload().first().is_none_or(|kind| !matches!(kind, 0 | 8 | 13..=18));
    (is_one_host && !is_error && ip.fragment_offset() == 0).then(|| (src, ip.dst()))
}

fn allowed_v6(ip: &ipv6::Packet<'_>) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let src = ip.src();
    let is_one_host = !(src.is_multicast() || src.is_unspecified());
    let upper = ip.upper_layer().ok()?;
    // Errors have types below 128.
    let is_error = upper.protocol == Protocol::ICMPV6 && upper.bytes.first().is_none_or(|&kind| kind < 128);
    let is_later = upper.fragment.is_some_and(|fragment| fragment.offset > 0);
    (is_one_host && !is_error && !is_later).then(|| (src, ip.dst()))
}

/// Gives a tenant's frame, which ends at `end`, its addresses, and new outer headers back to where it came from.
fn send_back(
    frame: &mut impl Buffer,
    packet: &Packet,
    route: &Route,
    from: MacAddr,
    to: MacAddr,
    end: usize,
) -> Result<(), DropReason> {
    let inner = usize::from(packet.inner);
    let bytes = frame.bytes_mut();
    bytes[inner..inner + 6].copy_from_slice(&to.0);
    bytes[inner + 6..inner + 12].copy_from_slice(&from.0);
    let tos = tos(bytes, packet);
    let source_port = word(bytes, usize::from(packet.udp));
    let end = u16::try_from(end).map_err(|_| DropReason::NoRoom)?;
    wrap(frame, &Packet { end, ..*packet }, route, source_port, tos, false)
}
