//! Checksums of tenants' packets.

use std::net::IpAddr;

use ringside_wire::udp::{self, ChecksumState};
use ringside_wire::{Error, Protocol, icmp, ipv4, ipv6, tcp};

/// Returns true if no checksum of a tenant's IP packet is wrong: of the IPv4 header, and of TCP, UDP or ICMP.
///
/// A checksum that the sender's kernel left to a NIC is not wrong, and neither is a datagram without
/// one. Of a fragment only the IPv4 header is read, because its checksum covers the others, too.
pub(crate) fn is_intact(packet: &[u8]) -> bool {
    let is_intact = match packet.first().map(|byte| byte >> 4) {
        Some(6) => is_intact_v6(packet),
        _ => is_intact_v4(packet),
    };
    is_intact.unwrap_or(false)
}

fn is_intact_v4(packet: &[u8]) -> Result<bool, Error> {
    let packet = ipv4::Packet::parse(packet)?;
    let [src, dst] = [packet.src(), packet.dst()].map(IpAddr::V4);
    let is_upper_intact = || is_upper_intact(packet.protocol(), src, dst, packet.payload());
    Ok(packet.verify_checksum() && (packet.is_fragment() || is_upper_intact()?))
}

fn is_intact_v6(packet: &[u8]) -> Result<bool, Error> {
    let packet = ipv6::Packet::parse(packet)?;
    let [src, dst] = [packet.src(), packet.dst()].map(IpAddr::V6);
    let upper = packet.upper_layer()?;
    let is_whole = upper.fragment.is_none_or(|fragment| fragment.is_atomic());
    Ok(!is_whole || is_upper_intact(upper.protocol, src, dst, upper.bytes)?)
}

fn is_upper_intact(protocol: Protocol, src: IpAddr, dst: IpAddr, bytes: &[u8]) -> Result<bool, Error> {
    Ok(match (protocol, src, dst) {
        (Protocol::TCP, ..) => is_right(tcp::Segment::parse(bytes)?.checksum_state(src, dst)),
        (Protocol::UDP, ..) => {
            let datagram = udp::Datagram::parse(bytes)?;
            // Also over IPv6, where tunnels may do without one (RFC 6935).
            datagram.checksum() == 0 || is_right(datagram.checksum_state(src, dst))
        }
        (Protocol::ICMP, IpAddr::V4(_), _) => icmp::verify_v4(bytes),
        (Protocol::ICMPV6, IpAddr::V6(src), IpAddr::V6(dst)) => icmp::verify_v6(bytes, src, dst),
        _ => true,
    })
}

fn is_right(state: ChecksumState) -> bool {
    matches!(state, ChecksumState::Valid | ChecksumState::PseudoHeaderOnly)
}
