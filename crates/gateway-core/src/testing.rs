//! Packets for tests: tenants' in each encapsulation, as hosts send them.

pub mod corpus;
pub mod hostile;
pub mod pcapng;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ringside_wire::checksum::{Sum, pseudo_v4, pseudo_v6};
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, geneve, icmp, ipv4, ipv6, udp, vxlan};

use crate::table::Encapsulation;

/// What a host sends to the gateway.
#[derive(Debug, Clone)]
pub struct Sent {
    /// MAC addresses, from and to.
    pub macs: [MacAddr; 2],
    /// Addresses, from and to.
    pub hosts: [IpAddr; 2],
    /// The UDP port that it comes from.
    pub source_port: u16,
    /// The outer packet has a UDP checksum.
    pub checksum: bool,
    /// Time to live.
    pub ttl: u8,
    /// What it is sent in.
    pub encapsulation: Encapsulation,
    /// Geneve options, whole words.
    pub options: Vec<u8>,
    /// The tenant's network.
    pub vni: u32,
    /// The tenant's frame.
    pub frame: Vec<u8>,
}

impl Sent {
    /// A tenant's frame from a host to the gateway.
    #[must_use]
    pub fn new(hosts: [IpAddr; 2], encapsulation: Encapsulation, vni: u32, frame: Vec<u8>) -> Self {
        Self {
            macs: [MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 1, 0xfe])],
            hosts,
            source_port: 50_000,
            checksum: hosts[0].is_ipv6(),
            ttl: 64,
            encapsulation,
            options: Vec::new(),
            vni,
            frame,
        }
    }

    /// As bytes.
    ///
    /// # Panics
    /// If the hosts' families differ, or it is longer than IP can be.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let (ethertype, ip_len) = match self.hosts[0] {
            IpAddr::V4(_) => (EtherType::IPV4, ipv4::HEADER_LEN),
            IpAddr::V6(_) => (EtherType::IPV6, ipv6::HEADER_LEN),
        };
        let options_len = match self.encapsulation {
            Encapsulation::Vxlan => 0,
            Encapsulation::Geneve => self.options.len(),
        };
        let tunnel_len = vxlan::HEADER_LEN + options_len;
        let datagram_len = udp::HEADER_LEN + tunnel_len + self.frame.len();
        let (at, tunnel) = (ethernet::HEADER_LEN, ethernet::HEADER_LEN + ip_len + udp::HEADER_LEN);
        let mut bytes = vec![0; at + ip_len + datagram_len];
        let [src, dst] = self.macs;
        ethernet::Header { dst, src, ethertype }.emit(&mut bytes).expect("room");
        emit_ip(&mut bytes[at..], self.hosts, Protocol::UDP, self.ttl, datagram_len);
        let (port, header) = match self.encapsulation {
            Encapsulation::Vxlan => (vxlan::PORT, vxlan::Header { vni: self.vni }.emit(&mut bytes[tunnel..])),
            Encapsulation::Geneve => (
                geneve::PORT,
                geneve::Header { vni: self.vni }.emit(&mut bytes[tunnel..]),
            ),
        };
        header.expect("room");
        if options_len > 0 {
            bytes[tunnel] = u8::try_from(options_len / 4).expect("63 words");
            let critical = self.options[2] & 0x80 != 0;
            bytes[tunnel + 1] = if critical { 0x40 } else { 0 };
            bytes[tunnel + 8..tunnel + 8 + options_len].copy_from_slice(&self.options);
        }
        bytes[tunnel + tunnel_len..].copy_from_slice(&self.frame);
        let datagram = &mut bytes[at + ip_len..];
        let header = udp::Header {
            src_port: self.source_port,
            dst_port: port,
            payload_len: datagram_len - udp::HEADER_LEN,
        };
        header.emit(datagram).expect("room");
        if self.checksum {
            udp::fill_checksum(datagram, self.hosts[0], self.hosts[1]).expect("one family");
        }
        bytes
    }
}

fn emit_ip(bytes: &mut [u8], [src, dst]: [IpAddr; 2], protocol: Protocol, ttl: u8, payload_len: usize) {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => ipv4::Header {
            ttl,
            payload_len,
            dont_fragment: true,
            ..ipv4::Header::new(src, dst, protocol)
        }
        .emit(bytes),
        (IpAddr::V6(src), IpAddr::V6(dst)) => ipv6::Header {
            hop_limit: ttl,
            payload_len,
            ..ipv6::Header::new(src, dst, protocol)
        }
        .emit(bytes),
        _ => panic!("{src} and {dst} are not of one family"),
    }
    .expect("room");
}

fn frame(macs: [MacAddr; 2], ethertype: EtherType, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; ethernet::HEADER_LEN + len];
    let [src, dst] = macs;
    ethernet::Header { dst, src, ethertype }.emit(&mut bytes).expect("room");
    bytes
}

/// A tenant's UDP packet, with its checksum.
///
/// # Panics
/// If the addresses' families differ.
#[must_use]
pub fn tenant_udp(macs: [MacAddr; 2], ips: [IpAddr; 2], ports: [u16; 2], ttl: u8, payload: &[u8]) -> Vec<u8> {
    let (ethertype, ip_len) = match ips[0] {
        IpAddr::V4(_) => (EtherType::IPV4, ipv4::HEADER_LEN),
        IpAddr::V6(_) => (EtherType::IPV6, ipv6::HEADER_LEN),
    };
    let len = udp::HEADER_LEN + payload.len();
    let mut bytes = frame(macs, ethertype, ip_len + len);
    emit_ip(&mut bytes[ethernet::HEADER_LEN..], ips, Protocol::UDP, ttl, len);
    let datagram = &mut bytes[ethernet::HEADER_LEN + ip_len..];
    datagram[udp::HEADER_LEN..].copy_from_slice(payload);
    let header = udp::Header {
        src_port: ports[0],
        dst_port: ports[1],
        payload_len: payload.len(),
    };
    header.emit(datagram).expect("room");
    udp::fill_checksum(datagram, ips[0], ips[1]).expect("one family");
    bytes
}

/// A tenant's IP packet with this upper layer, whose checksum is written if it is TCP, UDP or ICMP.
///
/// # Panics
/// If the addresses' families differ, or the upper layer has no room for its checksum.
#[must_use]
pub fn tenant_ip(macs: [MacAddr; 2], ips: [IpAddr; 2], protocol: Protocol, upper: &[u8]) -> Vec<u8> {
    let (ethertype, ip_len) = match ips[0] {
        IpAddr::V4(_) => (EtherType::IPV4, ipv4::HEADER_LEN),
        IpAddr::V6(_) => (EtherType::IPV6, ipv6::HEADER_LEN),
    };
    let mut bytes = frame(macs, ethertype, ip_len + upper.len());
    emit_ip(&mut bytes[ethernet::HEADER_LEN..], ips, protocol, 64, upper.len());
    let upper_at = ethernet::HEADER_LEN + ip_len;
    bytes[upper_at..].copy_from_slice(upper);
    if let Some(at) = checksum_at(protocol) {
        bytes[upper_at + at..upper_at + at + 2].fill(0);
        let whole = pseudo(ips, protocol, upper.len()).bytes(&bytes[upper_at..]);
        bytes[upper_at + at..upper_at + at + 2].copy_from_slice(&whole.finish().to_be_bytes());
    }
    bytes
}

/// Where a protocol's checksum is.
fn checksum_at(protocol: Protocol) -> Option<usize> {
    match protocol {
        Protocol::TCP => Some(16),
        Protocol::UDP => Some(6),
        Protocol::ICMP | Protocol::ICMPV6 => Some(2),
        _ => None,
    }
}

/// The sum of what a checksum covers in front of the upper layer: nothing for ICMP over IPv4.
///
/// # Panics
/// If the addresses' families differ, or it is longer than IP can be.
pub fn pseudo(ips: [IpAddr; 2], protocol: Protocol, len: usize) -> Sum {
    let len = u16::try_from(len).expect("short");
    match ips {
        [IpAddr::V4(_), _] if protocol == Protocol::ICMP => Sum::ZERO,
        [IpAddr::V4(src), IpAddr::V4(dst)] => pseudo_v4(src, dst, protocol, len),
        [IpAddr::V6(src), IpAddr::V6(dst)] => pseudo_v6(src, dst, protocol, len.into()),
        [src, dst] => panic!("{src} and {dst} are not of one family"),
    }
}

/// A tenant's ARP request.
///
/// # Panics
/// Never.
#[must_use]
pub fn tenant_arp(mac: MacAddr, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let mut bytes = frame([mac, MacAddr::BROADCAST], EtherType::ARP, arp::PACKET_LEN);
    let request = arp::Packet {
        operation: arp::Operation::Request,
        sender_mac: mac,
        sender_ip: sender,
        target_mac: MacAddr::ZERO,
        target_ip: target,
    };
    request.emit(&mut bytes[ethernet::HEADER_LEN..]).expect("room");
    bytes
}

/// A tenant's neighbour solicitation; from nobody (`::`) for duplicate address detection, then without its MAC address.
///
/// # Panics
/// Never.
#[must_use]
pub fn tenant_solicitation(mac: MacAddr, sender: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let [.., a, b, c] = target.octets();
    let group = Ipv6Addr::from(u128::from_be_bytes([
        0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c,
    ]));
    let dst = MacAddr([0x33, 0x33, 0xff, a, b, c]);
    let mut message = vec![icmp::v6::NEIGHBOR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    message.extend(target.octets());
    if !sender.is_unspecified() {
        message.extend([1, 1]);
        message.extend(mac.0);
    }
    let len = u32::try_from(message.len()).expect("short");
    let sum = pseudo_v6(sender, group, Protocol::ICMPV6, len);
    let checksum = sum.bytes(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let mut bytes = frame([mac, dst], EtherType::IPV6, ipv6::HEADER_LEN + message.len());
    let ips = [sender.into(), group.into()];
    emit_ip(
        &mut bytes[ethernet::HEADER_LEN..],
        ips,
        Protocol::ICMPV6,
        255,
        message.len(),
    );
    bytes[ethernet::HEADER_LEN + ipv6::HEADER_LEN..].copy_from_slice(&message);
    bytes
}

/// Puts a VLAN tag into a tenant's frame.
#[must_use]
pub fn tagged(frame: &[u8], tag: u16) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    bytes.extend(EtherType::VLAN.0.to_be_bytes());
    bytes.extend(tag.to_be_bytes());
    bytes.extend(&frame[12..]);
    bytes
}
