//! What must hold of a packet that was edited to be sent, read as its receiver would.

use std::net::IpAddr;

use ringside_wire::udp::{self, ChecksumState};
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, flow, geneve, icmp, ipv4, ipv6, vlan, vxlan};

use super::read_ips;
use crate::decide::Settings;
use crate::packet::OUTER;
use crate::table::{Encapsulation, Host};
use crate::{Content, DropReason, Packet};

/// A packet as it came, and what it is now.
pub(super) struct Case<'a> {
    pub(super) before: &'a [u8],
    pub(super) after: &'a [u8],
    pub(super) packet: &'a Packet,
    pub(super) settings: &'a Settings,
}

/// The outer headers of a frame, and what is in them.
struct Got<'a> {
    macs: [MacAddr; 2],
    ips: [IpAddr; 2],
    ttl: u8,
    tos: u8,
    /// Of IPv4's header; true over IPv6.
    header_is_right: bool,
    udp: ChecksumState,
    has_udp_checksum: bool,
    encapsulation: Encapsulation,
    vni: u32,
    options: &'a [u8],
    inner: &'a [u8],
    /// Of the IP packet that carries the datagram and no more.
    len: usize,
    /// Of the IP packet as it says.
    total: usize,
}

fn read<'a>(frame: &'a [u8], settings: &Settings) -> Got<'a> {
    let ethernet = ethernet::Frame::parse(frame).expect("Ethernet");
    let (ips, ttl, tos, header_is_right, payload, header_len): (_, _, _, _, &[u8], _) =
        if ethernet.ethertype() == EtherType::IPV4 {
            let ip = ipv4::Packet::parse(ethernet.payload()).expect("IPv4");
            let ips: [IpAddr; 2] = [ip.src().into(), ip.dst().into()];
            assert_eq!((ip.protocol(), ip.is_fragment()), (Protocol::UDP, false));
            (
                ips,
                ip.ttl(),
                ip.tos(),
                ip.verify_checksum(),
                ip.payload(),
                ip.header_len(),
            )
        } else {
            let ip = ipv6::Packet::parse(ethernet.payload()).expect("IPv6");
            let ips: [IpAddr; 2] = [ip.src().into(), ip.dst().into()];
            assert_eq!(ip.next_header(), Protocol::UDP);
            (
                ips,
                ip.hop_limit(),
                ip.traffic_class(),
                true,
                ip.payload(),
                ipv6::HEADER_LEN,
            )
        };
    let datagram = udp::Datagram::parse(payload).expect("UDP");
    let (encapsulation, vni, options, inner) = if datagram.dst_port() == settings.underlay.vxlan_port {
        let packet = vxlan::Packet::parse(datagram.payload()).expect("VXLAN");
        (Encapsulation::Vxlan, packet.vni(), &[][..], packet.frame())
    } else {
        assert_eq!(datagram.dst_port(), settings.underlay.geneve_port);
        let packet = geneve::Packet::parse(datagram.payload()).expect("Geneve");
        (
            Encapsulation::Geneve,
            packet.vni(),
            packet.options_bytes(),
            packet.payload(),
        )
    };
    Got {
        macs: [ethernet.src(), ethernet.dst()],
        ips,
        ttl,
        tos,
        header_is_right,
        udp: datagram.checksum_state(ips[0], ips[1]),
        has_udp_checksum: datagram.checksum() != 0,
        encapsulation,
        vni,
        options,
        inner,
        len: header_len + udp::HEADER_LEN + datagram.payload().len(),
        total: header_len + payload.len(),
    }
}

impl Case<'_> {
    pub(super) fn outer_ttl(&self, frame: &[u8]) -> u8 {
        frame[OUTER + if self.packet.from.is_ipv4() { 8 } else { 7 }]
    }

    pub(super) fn inner_ttl(&self) -> u8 {
        let network = usize::from(self.packet.network);
        self.before[network + if self.before[network] >> 4 == 4 { 8 } else { 7 }]
    }

    fn encapsulation_to(&self, host: &Host) -> Encapsulation {
        host.encapsulation.unwrap_or(self.packet.encapsulation)
    }

    fn leaves_as_it_came(&self, host: &Host) -> bool {
        self.encapsulation_to(host) == self.packet.encapsulation && host.ip.is_ipv4() == self.packet.from.is_ipv4()
    }

    /// Length of the outer IP packet with headers for this host.
    fn len_to(&self, host: &Host) -> usize {
        let (inner, end) = (usize::from(self.packet.inner), usize::from(self.packet.end));
        if self.leaves_as_it_came(host) {
            // With whatever is behind its datagram.
            return read(self.before, self.settings).total;
        }
        end - inner + if host.ip.is_ipv4() { 20 } else { 40 } + 8 + 8 + self.options_to(host).len()
    }

    /// Options stay where it is Geneve and goes on as such.
    fn options_to(&self, host: &Host) -> &[u8] {
        match (self.packet.encapsulation, self.encapsulation_to(host)) {
            (Encapsulation::Geneve, Encapsulation::Geneve) => read(self.before, self.settings).options,
            _ => &[],
        }
    }

    /// What of that is before the tenant's IP packet.
    fn headers_to(&self, host: &Host) -> usize {
        let packet = self.packet;
        if self.leaves_as_it_came(host) {
            return usize::from(packet.network) - OUTER;
        }
        self.len_to(host) - usize::from(packet.end - packet.network)
    }

    pub(super) fn is_too_big(&self, host: &Host) -> bool {
        let port = self.settings.port_to(host).expect("the host is resolved");
        self.len_to(host) > usize::from(self.settings.ports[usize::from(port)].mtu)
    }

    /// It goes to this host, and is the same packet for the tenant.
    pub(super) fn is_sent_on(&self, port: u8, host: &Host, receiver: MacAddr) {
        let (was, got) = (read(self.before, self.settings), read(self.after, self.settings));
        assert_eq!(Some(port), self.settings.port_to(host));
        let port = &self.settings.ports[usize::from(port)];
        let own = match host.ip {
            IpAddr::V4(_) => port.v4.map(IpAddr::V4),
            IpAddr::V6(_) => port.v6.map(IpAddr::V6),
        };
        assert_eq!(got.macs, [port.mac, host.mac.expect("resolved")]);
        assert_eq!(got.ips, [own.expect("the port has such an address"), host.ip]);
        assert_eq!(
            (got.encapsulation, got.vni),
            (self.encapsulation_to(host), self.packet.vni.number())
        );
        assert_eq!(got.total, self.len_to(host), "{:?}", self.packet);
        assert_eq!(self.after.len(), OUTER + got.total, "nothing behind it");
        assert!(!self.is_too_big(host), "{:?}", self.packet);
        assert!(self.outer_ttl(self.before) > 1);
        assert_eq!(got.tos, was.tos);
        let (expected, was_left) = self.expected(was.udp, receiver);
        assert_eq!(got.inner, expected, "{:?}", self.packet);
        if self.leaves_as_it_came(host) {
            assert_eq!((got.ttl, got.len), (was.ttl - 1, was.len));
            assert_eq!((got.options, got.header_is_right), (was.options, was.header_is_right));
            assert_eq!(got.has_udp_checksum, was.has_udp_checksum);
            match was.udp {
                ChecksumState::PseudoHeaderOnly => assert_eq!(got.udp, ChecksumState::Valid),
                // The sender's kernel made it for what the inner one was to be.
                _ if was_left => {}
                // Of a wrong one can become what one looks like that was left.
                ChecksumState::Invalid => assert_ne!(got.udp, ChecksumState::Valid),
                right => assert_eq!(got.udp, right),
            }
        } else {
            let udp = if host.ip.is_ipv4() {
                ChecksumState::Absent
            } else {
                ChecksumState::Valid
            };
            assert!(!self.is_damaged(), "{:?}", self.packet);
            assert_eq!((got.ttl, got.udp), (was.ttl - 1, udp));
            assert_eq!(got.options, self.options_to(host));
            assert!(got.header_is_right);
            assert_eq!(got.total, got.len, "nothing behind it");
        }
    }

    /// It would leave with new headers, and those that it came with are wrong, also when a checksum is made that was left to a NIC.
    pub(super) fn is_made_right(&self, host: &Host) -> bool {
        !self.leaves_as_it_came(host) && self.is_damaged()
    }

    fn is_damaged(&self) -> bool {
        let was = read(self.before, self.settings);
        let mut whole = self.before.to_vec();
        if was.udp != ChecksumState::PseudoHeaderOnly {
            _ = flow::complete_checksum(&mut whole[usize::from(self.packet.inner)..usize::from(self.packet.end)]);
        }
        let is_wrong = read(&whole, self.settings).udp == ChecksumState::Invalid;
        !was.header_is_right || (was.has_udp_checksum && is_wrong)
    }

    /// The tenant's frame as it should go on; and whether a checksum in it had been left to a NIC.
    fn expected(&self, outer: ChecksumState, receiver: MacAddr) -> (Vec<u8>, bool) {
        let packet = self.packet;
        let mut inner = self.before[usize::from(packet.inner)..usize::from(packet.end)].to_vec();
        // Only one of the two can have been left.
        let was_left = outer != ChecksumState::PseudoHeaderOnly && flow::complete_checksum(&mut inner) == Ok(true);
        if packet.inner_destination(self.before) == receiver {
            return (inner, was_left);
        }
        inner[..6].copy_from_slice(&receiver.0);
        let at = usize::from(packet.network - packet.inner);
        if inner[at] >> 4 == 4 {
            let was_right = ipv4::Packet::parse(&inner[at..]).is_ok_and(|ip| ip.verify_checksum());
            inner[at + 8] -= 1;
            let checksum = usize::from(packet.network) + 10;
            // As long as it leaves in the same headers, and otherwise from its end.
            let from_end = usize::from(packet.end) - checksum;
            let got = read(self.after, self.settings).inner;
            let made = &got[got.len() - from_end..][..2];
            inner[at + 10..at + 12].copy_from_slice(made);
            let is_right = ipv4::Packet::parse(&inner[at..]).is_ok_and(|ip| ip.verify_checksum());
            assert_eq!(is_right, was_right, "the inner IPv4 checksum of {packet:?}");
        } else {
            inner[at + 7] -= 1;
        }
        (inner, was_left)
    }

    /// What goes back has new headers, all of them right, and goes to who sent the packet.
    fn comes_back(&self) -> Got<'_> {
        let got = read(self.after, self.settings);
        let sender = self.before[6..12].first_chunk().copied().expect("six");
        assert_eq!(got.macs, [self.settings.ports[0].mac, MacAddr(sender)]);
        assert_eq!(got.ips, [self.packet.to, self.packet.from]);
        assert_eq!(
            (got.encapsulation, got.vni),
            (self.packet.encapsulation, self.packet.vni.number())
        );
        assert!(got.header_is_right && got.options.is_empty());
        let udp = if self.packet.from.is_ipv4() {
            ChecksumState::Absent
        } else {
            ChecksumState::Valid
        };
        assert_eq!((got.ttl, got.udp), (self.settings.ttl, udp));
        assert_eq!(self.after.len(), OUTER + got.len, "nothing behind it");
        got
    }

    /// It says that what was asked for is at this address.
    pub(super) fn is_answer(&self, mac: MacAddr) {
        let Content::WhoHas { asker, target } = self.packet.content else {
            panic!("no question: {:?}", self.packet);
        };
        let inner = self.comes_back().inner;
        let ethernet = ethernet::Frame::parse(inner).expect("Ethernet");
        let asked_by = self.packet.inner_source(self.before);
        assert_eq!(ethernet.src(), mac);
        let network = vlan::Network::parse(inner).expect("whole");
        let bytes = &inner[network.offset..];
        let IpAddr::V6(target) = target else {
            let answer = arp::Packet::parse(bytes).expect("ARP");
            assert_eq!((answer.operation, answer.sender_mac), (arp::Operation::Reply, mac));
            assert_eq!([IpAddr::V4(answer.sender_ip), answer.target_ip.into()], [target, asker]);
            return assert_eq!(ethernet.dst(), asked_by);
        };
        let ip = ipv6::Packet::parse(bytes).expect("IPv6");
        assert_eq!((ip.src(), ip.hop_limit()), (target, 255));
        assert!(icmp::verify_v6(ip.payload(), ip.src(), ip.dst()));
        assert_eq!((ip.payload()[0], &ip.payload()[8..24]), (136, &target.octets()[..]));
        assert_eq!((&ip.payload()[24..26], &ip.payload()[26..]), (&[2, 1][..], &mac.0[..]));
        assert_eq!(ip.dst().is_multicast(), asker.is_unspecified());
        assert!(ip.dst().is_multicast() || (IpAddr::V6(ip.dst()), ethernet.dst()) == (asker, asked_by));
    }

    /// It is an error about the packet, to its sender, that says why.
    pub(super) fn is_complaint(&self, reason: DropReason, host: &Host) {
        let Content::Ip { src, dst } = self.packet.content else {
            panic!("no IP: {:?}", self.packet);
        };
        let inner = self.comes_back().inner;
        let network = usize::from(self.packet.network - self.packet.inner);
        let bytes = &inner[network..];
        let (src_at, v4) = if src.is_ipv4() { (12, true) } else { (8, false) };
        assert_eq!(read_ips(bytes, src_at, v4), [dst, src], "in the name of the receiver");
        assert_eq!(&inner[..6], &self.before[usize::from(self.packet.inner) + 6..][..6]);
        let (message, most) = if v4 {
            let ip = ipv4::Packet::parse(bytes).expect("IPv4");
            assert!(ip.verify_checksum() && icmp::verify_v4(ip.payload()));
            assert_eq!(ip.total_len(), bytes.len());
            (ip.payload(), 576)
        } else {
            let ip = ipv6::Packet::parse(bytes).expect("IPv6");
            assert!(icmp::verify_v6(ip.payload(), ip.src(), ip.dst()));
            assert_eq!(ip.total_len(), bytes.len());
            (ip.payload(), 1280)
        };
        assert!(bytes.len() <= most, "{} bytes", bytes.len());
        let mtu = usize::from(u16::from_be_bytes([message[6], message[7]]));
        match reason {
            DropReason::TooBig => {
                let port = self.settings.port_to(host).expect("resolved");
                let goes = usize::from(self.settings.ports[usize::from(port)].mtu);
                assert!(self.is_too_big(host));
                assert_eq!(mtu, goes.saturating_sub(self.headers_to(host)), "what goes through");
                assert_eq!(message[..2], if v4 { [3, 4] } else { [2, 0] });
            }
            DropReason::InnerTtl => {
                assert!(self.inner_ttl() <= 1 && mtu == 0);
                assert_eq!(message[..2], if v4 { [11, 0] } else { [3, 0] });
            }
            other => panic!("{other} is not complained about"),
        }
        self.quotes(&message[8..]);
    }

    /// As it came, or with the checksum that its sender had left.
    fn quotes(&self, quoted: &[u8]) {
        let packet = self.packet;
        let mut inner = self.before[usize::from(packet.inner)..usize::from(packet.end)].to_vec();
        let at = usize::from(packet.network - packet.inner);
        let as_it_came = inner[at..].starts_with(quoted);
        _ = flow::complete_checksum(&mut inner);
        assert!(as_it_came || inner[at..].starts_with(quoted), "{packet:?}");
    }
}
