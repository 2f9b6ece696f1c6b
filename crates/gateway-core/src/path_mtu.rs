//! What routers on the way to a host say about packets of the gateway that were too long for them.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ringside_wire::icmp::{ErrorKind, ErrorMessage, Quoted, verify_v4};
use ringside_wire::{Protocol, ipv4};

use crate::decide::Settings;

/// No way is believed to take less: what each host has to put together (RFC 791), and what each link of IPv6 takes (RFC 8200).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// No message makes less of the way to such a host: bytes of an IP packet.
#[must_use]
pub const fn least(host: IpAddr) -> NonZeroU16 {
    let least = if host.is_ipv4() { LEAST_V4 } else { LEAST_V6 };
    NonZeroU16::new(least).expect("both are more than nothing")
}

/// The host, and the longest IP packet in bytes that gets there, if a message that has come says so about a packet that can have been
/// the gateway's: one from its own address of a port to one of the tunnels' UDP ports. Whether there is such a host is the caller's
/// to look up.
///
/// `message` is an IP packet if it is of IPv4, and an ICMPv6 message otherwise, as raw sockets have it.
#[must_use]
pub fn too_big(message: &[u8], is_v4: bool, settings: &Settings) -> Option<(IpAddr, NonZeroU16)> {
    let (error, quoted) = if is_v4 {
        let packet = ipv4::Packet::parse(message).ok()?;
        let message = packet.payload();
        let error = ErrorMessage::parse_v4(message).ok().filter(|_| verify_v4(message))?;
        (error, Quoted::parse_v4(error.quote).ok()?)
    } else {
        let error = ErrorMessage::parse_v6(message).ok()?;
        (error, Quoted::parse_v6(error.quote).ok()?)
    };
    let ErrorKind::TooBig { mtu } = error.kind else {
        return None;
    };
    let is_ours = settings.ports.iter().any(|port| match quoted.src {
        IpAddr::V4(ip) => port.v4 == Some(ip),
        IpAddr::V6(ip) => port.v6 == Some(ip),
    });
    let to = quoted
        .upper
        .get(2..4)?
        .first_chunk()
        .map(|port| u16::from_be_bytes(*port))?;
    let tunnels = [settings.underlay.vxlan_port, settings.underlay.geneve_port];
    let is_tunnel = quoted.protocol == Protocol::UDP && quoted.fragment_offset == 0 && tunnels.contains(&to);
    // More than 65,535 bytes is no limit to anything.
    let mtu = u16::try_from(mtu).ok().and_then(NonZeroU16::new)?;
    let is_believable = mtu >= least(quoted.dst);
    (is_ours && is_tunnel && is_believable).then_some((quoted.dst, mtu))
}

#[cfg(test)]
#[path = "path_mtu/tests.rs"]
mod tests;
