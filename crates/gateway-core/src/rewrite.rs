//! From the packet that came to the packet that goes.
//!
//! A packet that leaves in what it came in (the usual case) is edited in place: outer addresses and time to live, and the
//! inner destination's MAC address. The outer UDP checksum follows these edits if there is one (RFC 1624), without a look
//! at the payload: a packet that was damaged on its way stays damaged. One that leaves in something else gets new
//! headers, if those that it came with are right: a time to live of one less, as in place, and a checksum that is made anew over IPv6, and is
//! absent over IPv4 (RFC 7348 §5, RFC 8926 §3.3).

use std::net::IpAddr;

use ringside_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use ringside_wire::udp::ChecksumState;
use ringside_wire::{EtherType, MacAddr, Protocol, ethernet, geneve, ipv4, ipv6, udp, vxlan};

use crate::packet::OUTER;
use crate::table::Encapsulation;
use crate::{Buffer, DropReason, Packet};

/// Where a packet goes, and as whose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The gateway's MAC and IP address on the port that it leaves by.
    pub from: (MacAddr, IpAddr),
    /// The MAC and IP address of the host.
    pub to: (MacAddr, IpAddr),
    /// What the host speaks.
    pub encapsulation: Encapsulation,
    /// UDP port of that.
    pub port: u16,
    /// UDP port that it leaves from, which tells the network's flows apart; None keeps what its sender chose.
    pub source_port: Option<u16>,
    /// Time to live of a packet that is made here. One that is sent on has what is left of its own.
    pub ttl: u8,
}

/// Sends a tenant's packet on: `mac` is the receiver's in the tenant's network.
///
/// The tenant's own time to live goes down only if the packet was addressed to a router, which is to say to another MAC
/// address than the receiver's.
///
/// # Errors
/// The reason why it cannot be sent on. With [`DropReason::NoRoom`] the packet may be half edited, else it is what it was.
pub fn forward(frame: &mut impl Buffer, packet: &Packet, route: &Route, mac: MacAddr) -> Result<(), DropReason> {
    let outer_ttl = outer_ttl(frame.bytes(), packet);
    if outer_ttl <= 1 {
        return Err(DropReason::OuterTtl);
    }
    let stays = leaves_in_place(packet, route);
    // Nobody behind the gateway could tell any more.
    if !stays && is_damaged(frame.bytes(), packet) {
        return Err(DropReason::OuterDamaged);
    }
    let routed = packet.inner_destination(frame.bytes()) != mac;
    // As sums, what the edits of the tenant's part change in the outer checksum.
    let mut change = Change::default();
    let inner = usize::from(packet.inner);
    if routed {
        route_on(frame.bytes_mut(), packet, &mut change)?;
        change.replace(frame.bytes_mut(), inner, &mac.0);
    }
    if stays {
        // Padding, or whatever else is behind it, is nobody's, and may be more than the port takes.
        let end = OUTER + outer_len(frame.bytes(), packet);
        if frame.bytes().len() != end && !frame.set_len(end) {
            return Err(DropReason::NoRoom);
        }
        in_place(frame.bytes_mut(), packet, route, change);
        Ok(())
    } else {
        let tos = tos(frame.bytes(), packet);
        let source_port = route.source_port.unwrap_or_else(|| {
            let at = usize::from(packet.udp);
            word(frame.bytes(), at)
        });
        let route = &Route {
            ttl: outer_ttl - 1,
            ..*route
        };
        wrap(frame, packet, route, source_port, tos, tunnel_stays(packet, route))
    }
}

/// True if its outer IPv4 header or its outer UDP checksum, if it has one, is wrong. Reads all of it.
fn is_damaged(frame: &[u8], packet: &Packet) -> bool {
    let (udp, end) = (usize::from(packet.udp), usize::from(packet.end));
    let (Some(ip), Some(datagram)) = (frame.get(OUTER..), frame.get(udp..end)) else {
        return true;
    };
    let is_right = |ip: ipv4::Packet<'_>| ip.verify_checksum();
    let is_header_wrong = packet.from.is_ipv4() && !ipv4::Packet::parse(ip).is_ok_and(is_right);
    let has_checksum = word(datagram, 6) != 0;
    let is_wrong = || udp::checksum_state(datagram, packet.from, packet.to) == ChecksumState::Invalid;
    is_header_wrong || has_checksum && is_wrong()
}

/// True if it leaves with the headers that it came with.
pub(crate) fn leaves_in_place(packet: &Packet, route: &Route) -> bool {
    packet.encapsulation == route.encapsulation && packet.from.is_ipv4() == route.to.1.is_ipv4()
}

/// True if the tunnel's header goes on as it came: that of Geneve has options.
fn tunnel_stays(packet: &Packet, route: &Route) -> bool {
    [packet.encapsulation, route.encapsulation] == [Encapsulation::Geneve; 2]
}

/// Length of what leaves in front of the tenant's frame, behind the Ethernet header.
pub(crate) fn headers_len(packet: &Packet, route: &Route) -> usize {
    const { assert!(vxlan::HEADER_LEN == geneve::HEADER_LEN) };
    let datagram = match tunnel_stays(packet, route) {
        true => usize::from(packet.inner - packet.udp),
        false => udp::HEADER_LEN + vxlan::HEADER_LEN,
    };
    match leaves_in_place(packet, route) {
        true => usize::from(packet.inner) - OUTER,
        false => ip_len(route) + datagram,
    }
}

/// Length of the outer IP header.
fn ip_len(route: &Route) -> usize {
    match route.to.1 {
        IpAddr::V4(_) => ipv4::HEADER_LEN,
        IpAddr::V6(_) => ipv6::HEADER_LEN,
    }
}

/// Sums of what was replaced, and of what took its place.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Change {
    old: Sum,
    new: Sum,
}

impl Change {
    /// Replaces bytes of an even number at an even distance from the start of what the checksum covers.
    pub(crate) fn replace(&mut self, frame: &mut [u8], at: usize, with: &[u8]) {
        if let Some(place) = frame.get_mut(at..at + with.len()) {
            self.old = self.old.bytes(place);
            self.new = self.new.bytes(with);
            place.copy_from_slice(with);
        }
    }

    /// Both.
    fn and(self, other: Self) -> Self {
        Self {
            old: self.old.and(other.old),
            new: self.new.and(other.new),
        }
    }

    /// The checksum after the change, RFC 1624 equation 3.
    pub(crate) fn apply(self, checksum: u16) -> u16 {
        // -m is ~m, and the sum of complements is the complement of the sum.
        Sum::ZERO.word(!checksum).word(!self.old.fold()).and(self.new).finish()
    }
}

/// Takes one from the tenant's time to live.
fn route_on(frame: &mut [u8], packet: &Packet, change: &mut Change) -> Result<(), DropReason> {
    let at = usize::from(packet.network);
    let is_v4 = frame.get(at).is_some_and(|byte| byte >> 4 == 4);
    let ttl_at = if is_v4 { at + 8 } else { at + 7 };
    let ttl = frame.get(ttl_at).copied().unwrap_or_default();
    if ttl <= 1 {
        return Err(DropReason::InnerTtl);
    }
    if is_v4 {
        let mut header = Change::default();
        let protocol = frame[at + 9];
        header.replace(frame, at + 8, &[ttl - 1, protocol]);
        let checksum = header.apply(word(frame, at + 10));
        header.replace(frame, at + 10, &checksum.to_be_bytes());
        *change = change.and(header);
    } else {
        // The hop limit is the lower half of its word.
        let next = frame[at + 6];
        change.replace(frame, at + 6, &[next, ttl - 1]);
    }
    Ok(())
}

/// Edits the outer headers of a packet that leaves in what it came in.
fn in_place(frame: &mut [u8], packet: &Packet, route: &Route, mut change: Change) {
    frame[..6].copy_from_slice(&route.to.0.0);
    frame[6..12].copy_from_slice(&route.from.0.0);
    match (route.from.1, route.to.1) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut addresses = Change::default();
            for (at, address) in [(OUTER + 12, from), (OUTER + 16, to)] {
                addresses.replace(frame, at, &address.octets());
            }
            let mut header = addresses;
            let (ttl, protocol) = (frame[OUTER + 8], frame[OUTER + 9]);
            header.replace(frame, OUTER + 8, &[ttl - 1, protocol]);
            let checksum = header.apply(word(frame, OUTER + 10));
            frame[OUTER + 10..OUTER + 12].copy_from_slice(&checksum.to_be_bytes());
            // The pseudo header has the addresses, and nothing else that changed here.
            change = change.and(addresses);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            frame[OUTER + 7] -= 1;
            for (at, address) in [(OUTER + 8, from), (OUTER + 24, to)] {
                change.replace(frame, at, &address.octets());
            }
        }
        // Both are of the port that it leaves by.
        _ => return,
    }
    let udp = usize::from(packet.udp);
    if let Some(port) = route.source_port {
        change.replace(frame, udp, &port.to_be_bytes());
    }
    change.replace(frame, udp + 2, &route.port.to_be_bytes());
    let checksum = word(frame, udp + 6);
    if checksum != 0 {
        let checksum = match change.apply(checksum) {
            0 => 0xffff,
            checksum => checksum,
        };
        frame[udp + 6..udp + 8].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Puts new headers before the tenant's frame, in place of those that are there; `tunnel_stays`: but for the tunnel's.
pub(crate) fn wrap(
    frame: &mut impl Buffer,
    packet: &Packet,
    route: &Route,
    source_port: u16,
    tos: u8,
    tunnel_stays: bool,
) -> Result<(), DropReason> {
    let datagram = OUTER + ip_len(route) + udp::HEADER_LEN;
    let (stays, headers, vni) = match tunnel_stays {
        true => (usize::from(packet.udp) + udp::HEADER_LEN, datagram, None),
        false => (
            packet.inner.into(),
            datagram + vxlan::HEADER_LEN,
            Some(packet.vni.number()),
        ),
    };
    let front = isize::try_from(headers).unwrap_or(0) - isize::try_from(stays).unwrap_or(0);
    if !frame.move_front(front) || !frame.set_len(headers + usize::from(packet.end) - stays) {
        return Err(DropReason::NoRoom);
    }
    write_headers(frame.bytes_mut(), vni, route, source_port, tos).ok_or(DropReason::NoRoom)
}

/// Writes outer headers before what stands behind them already: the tenant's frame or, without a `vni`, the tunnel's header. None if there
/// is no room for them.
fn write_headers(frame: &mut [u8], vni: Option<u32>, route: &Route, source_port: u16, tos: u8) -> Option<()> {
    let ethertype = match route.to.1 {
        IpAddr::V4(_) => EtherType::IPV4,
        IpAddr::V6(_) => EtherType::IPV6,
    };
    let ethernet = ethernet::Header {
        dst: route.to.0,
        src: route.from.0,
        ethertype,
    };
    ethernet.emit(frame).ok()?;
    let datagram_at = OUTER + ip_len(route);
    let datagram_len = frame.len().checked_sub(datagram_at)?;
    let ip = frame.get_mut(OUTER..)?;
    match (route.from.1, route.to.1) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4::Header {
            ttl: route.ttl,
            tos,
            dont_fragment: true,
            payload_len: datagram_len,
            ..ipv4::Header::new(from, to, Protocol::UDP)
        }
        .emit(ip)
        .ok()?,
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6::Header {
            hop_limit: route.ttl,
            traffic_class: tos,
            payload_len: datagram_len,
            ..ipv6::Header::new(from, to, Protocol::UDP)
        }
        .emit(ip)
        .ok()?,
        _ => return None,
    }
    let datagram = frame.get_mut(datagram_at..)?;
    let header = udp::Header {
        src_port: source_port,
        dst_port: route.port,
        payload_len: datagram_len.checked_sub(udp::HEADER_LEN)?,
    };
    header.emit(datagram).ok()?;
    let tunnel = datagram.get_mut(udp::HEADER_LEN..)?;
    match (vni, route.encapsulation) {
        (Some(vni), Encapsulation::Vxlan) => vxlan::Header { vni }.emit(tunnel).ok()?,
        (Some(vni), Encapsulation::Geneve) => geneve::Header { vni }.emit(tunnel).ok()?,
        (None, _) => {}
    }
    if route.to.1.is_ipv6() {
        udp::fill_checksum(datagram, route.from.1, route.to.1).ok()?;
    }
    Some(())
}

/// Completes what is left of an outer checksum that the sender's kernel left to its NIC: only the pseudo header's sum.
/// True if it was one.
pub(crate) fn complete_outer(frame: &mut [u8], packet: &Packet) -> bool {
    let (udp, end) = (usize::from(packet.udp), usize::from(packet.end));
    let Some(datagram) = frame.get_mut(udp..end) else {
        return false;
    };
    let checksum = word(datagram, 6);
    let Ok(len) = u16::try_from(datagram.len()) else {
        return false;
    };
    let pseudo = match (packet.from, packet.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => pseudo_v4(from, to, Protocol::UDP, len),
        (IpAddr::V6(from), IpAddr::V6(to)) => pseudo_v6(from, to, Protocol::UDP, u32::from(len)),
        _ => return false,
    };
    if checksum == 0 || checksum != pseudo.fold() {
        return false;
    }
    udp::fill_checksum(datagram, packet.from, packet.to).is_ok()
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u16 {
    bytes
        .get(at..)
        .and_then(<[u8]>::first_chunk)
        .map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// Length of the outer IP packet as it says, which is as long as the datagram in it, or longer.
pub(crate) fn outer_len(frame: &[u8], packet: &Packet) -> usize {
    match packet.from {
        IpAddr::V4(_) => word(frame, OUTER + 2).into(),
        IpAddr::V6(_) => ipv6::HEADER_LEN + usize::from(word(frame, OUTER + 4)),
    }
}

fn outer_ttl(frame: &[u8], packet: &Packet) -> u8 {
    let at = if packet.from.is_ipv4() { OUTER + 8 } else { OUTER + 7 };
    frame.get(at).copied().unwrap_or_default()
}

/// Differentiated services and congestion notification of the outer header.
pub(crate) fn tos(frame: &[u8], packet: &Packet) -> u8 {
    match packet.from {
        IpAddr::V4(_) => frame.get(OUTER + 1).copied().unwrap_or_default(),
        IpAddr::V6(_) => u8::try_from(word(frame, OUTER) >> 4 & 0xff).unwrap_or_default(),
    }
}

/// Tells flows of tenants apart, as RFC 7348 §5 asks: in the range of ephemeral ports.
pub(crate) fn source_port(packet: &Packet, frame: &[u8]) -> u16 {
    let network = usize::from(packet.network);
    let byte = |at: usize| frame.get(network + at).copied().unwrap_or_default();
    let has_ports = |protocol| [Protocol::TCP, Protocol::UDP].contains(&Protocol(protocol));
    // Addresses and, of a packet that has some and is in one piece, ports: for spreading, a sum that mixes is enough. What stands there
    // else changes within a flow: an ICMP checksum, or payload.
    let (addresses, end, has_ports) = match byte(0) >> 4 {
        4 => {
            let is_whole = word(frame, network + 6) & 0x3fff == 0;
            (12, 20, byte(0) == 0x45 && is_whole && has_ports(byte(9)))
        }
        _ => (8, 40, has_ports(byte(6))),
    };
    let mut hash = u64::from(packet.vni.number());
    let addresses = frame.get(network + addresses..network + end).unwrap_or_default();
    let words = addresses.as_chunks::<4>().0;
    let ports = frame.get(network + end..).filter(|_| has_ports);
    let ports = ports.and_then(<[u8]>::first_chunk::<4>);
    for word in words.iter().chain(ports) {
        hash = (hash ^ u64::from(u32::from_be_bytes(*word))).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^= hash >> 29;
    }
    let [.., high, low] = hash.to_be_bytes();
    0xc000 | u16::from_be_bytes([high, low])
}
