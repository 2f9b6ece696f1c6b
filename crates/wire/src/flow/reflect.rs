//! Frames sent back to where they came from.

use core::net::IpAddr;

use super::macs;
use super::receive::{Upper, parse_udp, swap_addresses};
use crate::checksum::update;
use crate::vlan::Network;
use crate::{Error, Protocol, ethernet, icmp};

/// TTL of our echo replies: what Linux starts with (`net.ipv4.ip_default_ttl`,
/// `net.ipv6.conf.*.hop_limit`). RFC 1122 §3.2.1.7 has replies start afresh instead of going on
/// with what the request had left.
const REPLY_TTL: u8 = 64;

/// Sends a UDP frame back: swaps MAC addresses, IP addresses and ports in place.
///
/// Checksums are as right as before. One that was left to a NIC
/// ([`ChecksumState::PseudoHeaderOnly`](super::ChecksumState)) is still incomplete, so where frames
/// come from a veth peer with TX checksum offload, call [`complete_udp_checksum`] too.
///
/// # Errors
/// Those of [`parse_udp`]; the frame is then unchanged.
pub fn reflect_udp(frame: &mut [u8]) -> Result<(), Error> {
    parse_udp(frame)?.reflect(frame)
}

/// Computes the UDP checksum of a frame and writes it there.
///
/// # Errors
/// Those of [`parse_udp`]; the frame is then unchanged.
pub fn complete_udp_checksum(frame: &mut [u8]) -> Result<(), Error> {
    parse_udp(frame)?.fill_checksum(frame)
}

/// Answers an ICMP or ICMPv6 echo request in place. True when the frame now is the reply.
///
/// False, and nothing changed, for everything else; also for what better goes to the kernel:
/// requests to or from group addresses, with IPv4 options, fragments, and requests to an address
/// that is not `ours`.
///
/// Checksums are updated, not made new: a request that was damaged gives a reply that is seen to
/// be damaged. The TTL becomes 64.
#[must_use = "false means that the frame was not answered"]
pub fn reflect_icmp_echo(frame: &mut [u8], ours: impl FnOnce(IpAddr) -> bool) -> bool {
    try_reflect_icmp_echo(frame, ours).is_some()
}

fn try_reflect_icmp_echo(frame: &mut [u8], ours: impl FnOnce(IpAddr) -> bool) -> Option<()> {
    let (src_mac, dst_mac) = macs(frame).ok()?;
    let network = Network::parse(frame).ok()?;
    let upper = Upper::find(frame, &network).ok()?;
    let (at, len, family) = (upper.offset, upper.bytes.len(), upper.dst);
    // A reply from a group address would be a lie, and one to a group a storm.
    let one_to_one =
        !src_mac.is_multicast() && !dst_mac.is_multicast() && is_one_host(upper.src) && is_one_host(upper.dst);
    if !one_to_one || upper.has_options || !ours(upper.dst) {
        return None;
    }
    let protocol = upper.protocol;
    let message = frame.get_mut(at..at + len)?;
    match (family, protocol) {
        (IpAddr::V4(_), Protocol::ICMP) => icmp::request_to_reply_v4(message).ok()?,
        (IpAddr::V6(_), Protocol::ICMPV6) => icmp::request_to_reply_v6(message).ok()?,
        _ => return None,
    }
    // From here on nothing fails: every range was part of what has been parsed.
    swap_addresses(frame, network.offset, family).ok()?;
    ethernet::swap_macs(frame).ok()?;
    let ip = frame.get_mut(network.offset..)?;
    match (family, ip) {
        (IpAddr::V4(_), [_, _, _, _, _, _, _, _, ttl, protocol, high, low, ..]) => {
            let old = u16::from_be_bytes([*ttl, *protocol]);
            *ttl = REPLY_TTL;
            let new = u16::from_be_bytes([*ttl, *protocol]);
            [*high, *low] = update(u16::from_be_bytes([*high, *low]), old, new).to_be_bytes();
        }
        (IpAddr::V6(_), [_, _, _, _, _, _, _, hop_limit, ..]) => *hop_limit = REPLY_TTL,
        _ => {}
    }
    Some(())
}

/// Neither a group, nor everybody, nor nobody. (A subnet's own broadcast address cannot be told
/// without its mask, but comes with a broadcast MAC address.)
fn is_one_host(ip: IpAddr) -> bool {
    let everybody = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
    !(ip.is_multicast() || ip.is_unspecified() || everybody)
}
