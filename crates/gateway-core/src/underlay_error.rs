//! What hosts, and routers on the way to them, say by ICMP about packets that the gateway has sent.
//!
//! Anybody may send such a message. It counts if the packet that it quotes can have been the
//! gateway's: one from the address of a port to the UDP port of VXLAN or Geneve. What else can be
//! held against it is in the quote's tenant part ([`Tunnelled`]), and is the caller's to look up.

use std::net::IpAddr;
use std::num::NonZeroU16;

use ringside_wire::icmp::{ErrorKind, ErrorMessage, Quoted, v6, verify_v4};
use ringside_wire::{EtherType, Protocol, geneve, ipv4, udp, vlan, vxlan};

use crate::decide::Settings;
use crate::table::Encapsulation;
use crate::{TenantAddress, Underlay, Vni};

/// No way is believed to take less: what each host has to put together (RFC 791), and what each
/// link of IPv6 takes (RFC 8200).
const LEAST_V4: u16 = 576;
const LEAST_V6: u16 = 1280;

/// No message makes less of the way to such a host: bytes of an IP packet.
#[must_use]
pub const fn least(host: IpAddr) -> NonZeroU16 {
    let least = if host.is_ipv4() { LEAST_V4 } else { LEAST_V6 };
    NonZeroU16::new(least).expect("both are more than nothing")
}

/// An ICMP error about a packet of the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnderlayError {
    /// What happened to the packet.
    pub kind: UnderlayErrorKind,
    /// The packet.
    pub packet: Tunnelled,
}

/// What happened to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnderlayErrorKind {
    /// It was too long for the next link, which takes IP packets of this many bytes.
    TooBig(NonZeroU16),
    /// It was not delivered.
    Unreachable(Unreachable),
}

/// Why a packet was not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Unreachable {
    /// No socket or tunnel endpoint of the host has the UDP port.
    Port,
    /// The host does not take UDP.
    Protocol,
    /// The last router does not find the host.
    Host,
    /// A router has no route.
    Network,
    /// A firewall refuses it.
    Prohibited,
    /// Its hops ran out, as in a routing loop.
    HopLimit,
}

impl Unreachable {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Port,
        Self::Protocol,
        Self::Host,
        Self::Network,
        Self::Prohibited,
        Self::HopLimit,
    ];

    /// The name, as in statistics and labels of metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Port => "port-unreachable",
            Self::Protocol => "protocol-unreachable",
            Self::Host => "host-unreachable",
            Self::Network => "network-unreachable",
            Self::Prohibited => "prohibited",
            Self::HopLimit => "hop-limit-exceeded",
        }
    }

    /// Of a code of "destination unreachable": <https://www.iana.org/assignments/icmp-parameters>.
    const fn of_v4(code: u8) -> Self {
        match code {
            2 => Self::Protocol,
            3 => Self::Port,
            0 | 5 | 6 | 11 => Self::Network,
            9 | 10 | 13..=15 => Self::Prohibited,
            _ => Self::Host,
        }
    }

    /// Of a code of "destination unreachable":
    /// <https://www.iana.org/assignments/icmpv6-parameters>.
    const fn of_v6(code: u8) -> Self {
        match code {
            4 => Self::Port,
            0 | 2 | 6 => Self::Network,
            1 | 5 => Self::Prohibited,
            _ => Self::Host,
        }
    }
}

/// Code of ICMPv6's "parameter problem": unrecognized next header.
const NEXT_HEADER: u8 = 1;
/// Code of "time exceeded", of both families: the hops of a packet ran out.
const IN_TRANSIT: u8 = 0;

/// A packet in a tunnel, of which only the first bytes need to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunnelled {
    /// Its sender.
    pub from: IpAddr,
    /// The host that it was sent to.
    pub host: IpAddr,
    /// What it was sent in.
    pub encapsulation: Encapsulation,
    /// The receiver of the tenant's IP packet. None if that is cut off, and for what is no IP
    /// packet.
    pub receiver: Option<TenantAddress>,
}

impl Tunnelled {
    /// Parses the start of an outer IP packet. None if it is sent to neither of the tunnels' UDP
    /// ports.
    #[must_use]
    pub fn parse(packet: &[u8], underlay: &Underlay) -> Option<Self> {
        let outer = parse_start(packet)?;
        if outer.protocol != Protocol::UDP || outer.fragment_offset != 0 {
            return None;
        }
        let port = u16::from_be_bytes(*outer.upper.get(2..)?.first_chunk()?);
        let encapsulation = match port {
            port if port == underlay.vxlan_port => Encapsulation::Vxlan,
            port if port == underlay.geneve_port => Encapsulation::Geneve,
            _ => return None,
        };
        let tunnel = outer.upper.get(udp::HEADER_LEN..).unwrap_or_default();
        Some(Self {
            from: outer.src,
            host: outer.dst,
            encapsulation,
            receiver: receiver(tunnel, encapsulation),
        })
    }
}

fn parse_start(packet: &[u8]) -> Option<Quoted<'_>> {
    match packet.first()? >> 4 {
        4 => Quoted::parse_v4(packet).ok(),
        _ => Quoted::parse_v6(packet).ok(),
    }
}

fn receiver(tunnel: &[u8], encapsulation: Encapsulation) -> Option<TenantAddress> {
    let (vni, frame) = match encapsulation {
        Encapsulation::Vxlan => {
            let packet = vxlan::Packet::parse(tunnel).ok()?;
            (packet.vni(), packet.frame())
        }
        Encapsulation::Geneve => {
            let packet = geneve::Packet::parse(tunnel).ok()?;
            (packet.vni(), packet.payload())
        }
    };
    let network = vlan::Network::parse(frame).ok()?;
    let packet = frame.get(network.offset..)?;
    let is_ip = matches!(network.ethertype, EtherType::IPV4 | EtherType::IPV6);
    let inner = parse_start(packet).filter(|_| is_ip)?;
    Some(TenantAddress::new(Vni::new(vni)?, inner.dst))
}

impl UnderlayError {
    /// Parses a message. None if it cannot be about a packet of the gateway.
    ///
    /// `message` is an IP packet if it is of IPv4, and an ICMPv6 message otherwise, as raw sockets have it.
    #[must_use]
    pub fn parse(message: &[u8], is_v4: bool, settings: &Settings) -> Option<Self> {
        let error = if is_v4 {
            let packet = ipv4::Packet::parse(message).ok()?;
            ErrorMessage::parse_v4(packet.payload())
                .ok()
                .filter(|_| verify_v4(packet.payload()))?
        } else {
            ErrorMessage::parse_v6(message).ok()?
        };
        let is_v4_quoted = error.quote.first().is_some_and(|first| first >> 4 == 4);
        let packet = Tunnelled::parse(error.quote, &settings.underlay).filter(|_| is_v4_quoted == is_v4)?;
        let is_ours = settings.ports.iter().any(|port| match packet.from {
            IpAddr::V4(ip) => port.v4 == Some(ip),
            IpAddr::V6(ip) => port.v6 == Some(ip),
        });
        let kind = match error.kind {
            ErrorKind::TooBig { mtu } => {
                // More than 65,535 bytes is no limit to anything.
                let mtu = u16::try_from(mtu).ok().and_then(NonZeroU16::new)?;
                UnderlayErrorKind::TooBig(Some(mtu).filter(|mtu| *mtu >= least(packet.host))?)
            }
            ErrorKind::Unreachable if is_v4 => UnderlayErrorKind::Unreachable(Unreachable::of_v4(error.code)),
            ErrorKind::Unreachable => UnderlayErrorKind::Unreachable(Unreachable::of_v6(error.code)),
            ErrorKind::ParameterProblem if error.message_type == v6::PARAMETER_PROBLEM && error.code == NEXT_HEADER => {
                UnderlayErrorKind::Unreachable(Unreachable::Protocol)
            }
            ErrorKind::TimeExceeded if error.code == IN_TRANSIT => {
                UnderlayErrorKind::Unreachable(Unreachable::HopLimit)
            }
            ErrorKind::ParameterProblem | ErrorKind::TimeExceeded => return None,
        };
        is_ours.then_some(Self { kind, packet })
    }
}

#[cfg(test)]
#[path = "underlay_error/tests.rs"]
mod tests;
