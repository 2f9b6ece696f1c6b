//! What becomes of packets: read back with the views of `ringside-wire`, as a host would.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ringside_gateway_core::conntrack::{Conntrack, Limits};
use ringside_gateway_core::decide::{Cacheable, Decider, Decision, PortSettings, Settings};
use ringside_gateway_core::policy::Policy;
use ringside_gateway_core::table::{Encapsulation, Host, HostId, Neighbor};
use ringside_gateway_core::testing::{Sent, tagged, tenant_arp, tenant_solicitation, tenant_udp};
use ringside_gateway_core::{Buffer, DropReason, Firewall, Hosts, Neighbors, Roomy, TenantAddress, Underlay, Vni};
use ringside_wire::udp::ChecksumState;
use ringside_wire::{EtherType, MacAddr, Protocol, arp, ethernet, geneve, icmp, ipv4, ipv6, udp, vlan, vxlan};

const GATEWAY: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 2, 254),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xfe),
);
const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 0xfe]);
const HOST_A_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);
const HOST_B_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 2]);
const A: MacAddr = MacAddr([2, 0xaa, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0xbb, 0, 0, 0, 2]);
const ROUTER: MacAddr = MacAddr([2, 0xff, 0, 0, 0, 0xff]);
const VNI: u32 = 0x01_02_03;

fn vni() -> Vni {
    Vni::new(VNI).unwrap()
}

fn host(last: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(192, 0, 2, last).into(),
        true => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

fn gateway(v6: bool) -> IpAddr {
    if v6 { GATEWAY.1.into() } else { GATEWAY.0.into() }
}

fn tenant(last: u8, v6: bool) -> IpAddr {
    match v6 {
        false => Ipv4Addr::new(10, 0, 0, last).into(),
        true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into(),
    }
}

/// Tenants 1 (with host 1) and 2 (with host 2), in both families; host 2 is reached as is said.
struct Bed {
    hosts: Hosts,
    host_b: HostId,
    decider: Decider,
    /// The tables of the decider's readers.
    _neighbors: Neighbors,
}

#[derive(Clone, Copy)]
struct Way {
    v6: bool,
    mac: Option<MacAddr>,
    encapsulation: Option<Encapsulation>,
}

const BY_IPV4: Way = Way {
    v6: false,
    mac: Some(HOST_B_MAC),
    encapsulation: None,
};

fn settings() -> Settings {
    let port = PortSettings {
        mac: GATEWAY_MAC,
        v4: Some(GATEWAY.0),
        v6: Some(GATEWAY.1),
        mtu: 1500,
    };
    Settings {
        underlay: Underlay::at(&[GATEWAY.0.into(), GATEWAY.1.into()]),
        ports: vec![port],
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 1000,
    }
}

fn bed(way: Way, settings: Settings) -> Bed {
    let (neighbors, hosts) = (Neighbors::new(), Hosts::new());
    let a = |v6| Host {
        ip: host(1, v6),
        mac: Some(HOST_A_MAC),
        port: 0,
        encapsulation: None,
    };
    let b = Host {
        ip: host(2, way.v6),
        mac: way.mac,
        port: 0,
        encapsulation: way.encapsulation,
    };
    let host_a = hosts.intern(a(false));
    let host_b = hosts.intern(b);
    for v6 in [false, true] {
        for (last, mac, host) in [(1, A, host_a), (2, B, host_b)] {
            let neighbor = Neighbor {
                mac,
                host,
                policy: 0,
                version: 1,
            };
            neighbors
                .write()
                .put(TenantAddress::new(vni(), tenant(last, v6)), neighbor);
        }
    }
    let connections = Limits {
        connections: 100,
        ..Limits::default()
    };
    let firewall = Firewall::new(&Policy::new(), Arc::new(Conntrack::new(connections)));
    let decider = Decider::new(Arc::new(settings), neighbors.reader(), hosts.reader(), firewall, 32);
    Bed {
        hosts,
        host_b,
        decider,
        _neighbors: neighbors,
    }
}

impl Bed {
    fn decide(&mut self, frame: &[u8]) -> (Decision, Vec<u8>) {
        let mut frame = Roomy::new(frame, 128, 256);
        let decision = self.decider.decide(1_000_000_000, 0, false, &mut frame);
        (decision, frame.bytes().to_vec())
    }

    fn dropped(&mut self, frame: &[u8], reason: DropReason) {
        let (decision, _) = self.decide(frame);
        assert_eq!(decision, Decision::Drop(reason));
    }
}

/// A frame that a host gets.
struct Got {
    macs: [MacAddr; 2],
    hosts: [IpAddr; 2],
    ttl: u8,
    tos: u8,
    ports: [u16; 2],
    checksum: ChecksumState,
    tunnel: Vec<u8>,
}

fn read(frame: &[u8]) -> Got {
    let ethernet = ethernet::Frame::parse(frame).unwrap();
    let (hosts, ttl, tos, payload): ([IpAddr; 2], _, _, _) = match ethernet.ethertype() {
        EtherType::IPV4 => {
            let ip = ipv4::Packet::parse(ethernet.payload()).unwrap();
            assert!(ip.verify_checksum(), "the outer IPv4 checksum");
            assert_eq!(ip.protocol(), Protocol::UDP);
            assert_eq!(ip.total_len(), ethernet.payload().len());
            ([ip.src().into(), ip.dst().into()], ip.ttl(), ip.tos(), ip.payload())
        }
        _ => {
            let ip = ipv6::Packet::parse(ethernet.payload()).unwrap();
            assert_eq!(ip.next_header(), Protocol::UDP);
            assert_eq!(ip.total_len(), ethernet.payload().len());
            (
                [ip.src().into(), ip.dst().into()],
                ip.hop_limit(),
                ip.traffic_class(),
                ip.payload(),
            )
        }
    };
    let datagram = udp::Datagram::parse(payload).unwrap();
    Got {
        macs: [ethernet.src(), ethernet.dst()],
        hosts,
        ttl,
        tos,
        ports: [datagram.src_port(), datagram.dst_port()],
        checksum: datagram.checksum_state(hosts[0], hosts[1]),
        tunnel: datagram.payload().to_vec(),
    }
}

impl Got {
    /// The tenant's frame and the Geneve options.
    fn inner(&self) -> (Encapsulation, u32, &[u8], &[u8]) {
        if self.ports[1] == vxlan::PORT {
            let packet = vxlan::Packet::parse(&self.tunnel).unwrap();
            (Encapsulation::Vxlan, packet.vni(), packet.frame(), &[])
        } else {
            let packet = geneve::Packet::parse(&self.tunnel).unwrap();
            assert_eq!(packet.protocol(), EtherType::TRANSPARENT_ETHERNET);
            (
                Encapsulation::Geneve,
                packet.vni(),
                packet.payload(),
                packet.options_bytes(),
            )
        }
    }
}

fn packet(v6: bool, to_mac: MacAddr, ttl: u8) -> Vec<u8> {
    let ips = [tenant(1, v6), tenant(2, v6)];
    tenant_udp(
        [A, to_mac],
        ips,
        [1000, 2000],
        ttl,
        b"some thirty-three bytes of payload",
    )
}

fn check_tenant_udp(frame: &[u8], v6: bool, macs: [MacAddr; 2], ttl: u8) {
    let ethernet = ethernet::Frame::parse(frame).unwrap();
    assert_eq!([ethernet.src(), ethernet.dst()], macs);
    let network = vlan::Network::parse(frame).unwrap();
    let bytes = &frame[network.offset..];
    let (payload, left) = if v6 {
        let ip = ipv6::Packet::parse(bytes).unwrap();
        (ip.payload(), ip.hop_limit())
    } else {
        let ip = ipv4::Packet::parse(bytes).unwrap();
        assert!(ip.verify_checksum(), "the inner IPv4 checksum");
        (ip.payload(), ip.ttl())
    };
    assert_eq!(left, ttl);
    let state = udp::checksum_state(payload, tenant(1, v6), tenant(2, v6));
    assert_eq!(state, ChecksumState::Valid, "the tenant's own");
}

/// Every encapsulation and family, outside and inside, from every one to every one, with and without a VLAN tag, an outer
/// checksum and Geneve options, to the receiver's MAC address and to a router's.
#[test]
fn packets_are_sent_on_to_where_their_receiver_lives() {
    use Encapsulation::{Geneve, Vxlan};
    let booleans = [false, true];
    let options = [0x01, 0x02, 0x03, 0x01, 9, 9, 9, 9];
    for came in [Vxlan, Geneve] {
        for goes in [None, Some(Vxlan), Some(Geneve)] {
            for (from_v6, to_v6) in booleans.into_iter().flat_map(|from| booleans.map(|to| (from, to))) {
                for (inner_v6, routed) in booleans.into_iter().flat_map(|v6| booleans.map(|routed| (v6, routed))) {
                    for (tag, checksum) in booleans.into_iter().flat_map(|tag| booleans.map(|sum| (tag, sum))) {
                        let mut frame = packet(inner_v6, if routed { ROUTER } else { B }, 64);
                        if tag {
                            frame = tagged(&frame, 0xa02a);
                        }
                        let sent = Sent {
                            checksum: checksum || from_v6,
                            options: options.to_vec(),
                            ..Sent::new([host(1, from_v6), gateway(from_v6)], came, VNI, frame)
                        };
                        let way = Way {
                            v6: to_v6,
                            encapsulation: goes,
                            ..BY_IPV4
                        };
                        let what = format!("{came:?} {goes:?} {from_v6} {to_v6} {inner_v6} {routed} {tag} {checksum}");
                        let (decision, bytes) = bed(way, settings()).decide(&sent.bytes());
                        let cache = Cacheable::Neighbor(TenantAddress::new(vni(), tenant(2, inner_v6)));
                        assert_eq!(decision, Decision::Send { port: 0, cache }, "{what}");
                        let got = read(&bytes);
                        assert_eq!(got.macs, [GATEWAY_MAC, HOST_B_MAC], "{what}");
                        assert_eq!(got.hosts, [gateway(to_v6), host(2, to_v6)], "{what}");
                        let in_place = goes.is_none_or(|goes| goes == came) && from_v6 == to_v6;
                        assert_eq!(got.ttl, if in_place { 63 } else { 64 }, "{what}");
                        assert_eq!(got.ports[0], 50_000, "{what}");
                        let expected = match (to_v6, in_place && checksum) {
                            (false, false) => ChecksumState::Absent,
                            _ => ChecksumState::Valid,
                        };
                        assert_eq!(got.checksum, expected, "{what}");
                        let (encapsulation, vni, inner, kept) = got.inner();
                        assert_eq!((encapsulation, vni), (goes.unwrap_or(came), VNI), "{what}");
                        let keeps = in_place && came == Geneve;
                        assert_eq!(kept, if keeps { &options[..] } else { &[] }, "{what}");
                        assert_eq!(vlan::Network::parse(inner).unwrap().outer.is_some(), tag, "{what}");
                        check_tenant_udp(inner, inner_v6, [A, B], if routed { 63 } else { 64 });
                    }
                }
            }
        }
    }
}

fn sent(frame: Vec<u8>) -> Sent {
    Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, VNI, frame)
}

#[test]
fn nobody_unknown_is_sent_anything() {
    let mut bed = bed(BY_IPV4, settings());
    let to = |ip| tenant_udp([A, B], [tenant(1, false), ip], [1, 2], 64, b"x");
    bed.dropped(&sent(to(tenant(3, false))).bytes(), DropReason::NoNeighbor);
    let elsewhere = Sent {
        vni: VNI + 1,
        ..sent(to(tenant(2, false)))
    };
    bed.dropped(&elsewhere.bytes(), DropReason::NoNeighbor);
    bed.dropped(
        &sent(tenant_arp(A, Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 3))).bytes(),
        DropReason::NoNeighbor,
    );
    let many = [Ipv4Addr::new(224, 0, 0, 9), Ipv4Addr::BROADCAST];
    for ip in many {
        bed.dropped(&sent(to(ip.into())).bytes(), DropReason::InnerMulticast);
    }
}

#[test]
fn a_host_without_a_mac_address_is_waited_for() {
    let mut bed = bed(Way { mac: None, ..BY_IPV4 }, settings());
    let bytes = sent(packet(false, B, 64)).bytes();
    let (decision, after) = bed.decide(&bytes);
    assert_eq!((decision, &after), (Decision::Wait(bed.host_b), &bytes));
    assert!(bed.hosts.resolve(bed.host_b, Some(HOST_B_MAC)));
    let (decision, after) = bed.decide(&bytes);
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    assert_eq!(read(&after).macs[1], HOST_B_MAC);
}

#[test]
fn questions_for_addresses_are_answered() {
    let mut bed = bed(BY_IPV4, settings());
    let (asker, target) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    for tag in [false, true] {
        let request = tenant_arp(A, asker, target);
        let request = if tag { tagged(&request, 7) } else { request };
        let (decision, bytes) = bed.decide(&sent(request).bytes());
        assert_eq!(decision, Decision::Answer);
        let got = read(&bytes);
        assert_eq!((got.macs, got.ttl), ([GATEWAY_MAC, HOST_A_MAC], 64));
        assert_eq!(got.hosts, [gateway(false), host(1, false)]);
        let (_, vni, inner, _) = got.inner();
        let ethernet = ethernet::Frame::parse(inner).unwrap();
        assert_eq!((vni, ethernet.src(), ethernet.dst()), (VNI, B, A));
        let network = vlan::Network::parse(inner).unwrap();
        assert_eq!(network.outer.is_some(), tag);
        let answer = arp::Packet::parse(&inner[network.offset..]).unwrap();
        assert_eq!(answer.operation, arp::Operation::Reply);
        assert_eq!((answer.sender_mac, answer.sender_ip), (B, target));
        assert_eq!((answer.target_mac, answer.target_ip), (A, asker));
    }
    // Who asks for what is its own, to announce it or to find out whether somebody has it, is not told that it is taken.
    let own = [tenant_arp(A, asker, asker), tenant_arp(A, Ipv4Addr::UNSPECIFIED, asker)];
    for request in own {
        bed.dropped(&sent(request).bytes(), DropReason::ArpNotAsked);
    }
    // Who wants what another has is.
    let (decision, _) = bed.decide(&sent(tenant_arp(A, Ipv4Addr::UNSPECIFIED, target)).bytes());
    assert_eq!(decision, Decision::Answer);
}

#[test]
fn solicitations_are_answered() {
    let mut bed = bed(BY_IPV4, settings());
    let address = |last| match tenant(last, true) {
        IpAddr::V6(ip) => ip,
        IpAddr::V4(_) => unreachable!("asked for IPv6"),
    };
    let (asker, target) = (address(1), address(2));
    for nobody in [false, true] {
        let from = if nobody { Ipv6Addr::UNSPECIFIED } else { asker };
        let (decision, bytes) = bed.decide(&sent(tenant_solicitation(A, from, target)).bytes());
        assert_eq!(decision, Decision::Answer);
        let got = read(&bytes);
        let (_, _, inner, _) = got.inner();
        let ethernet = ethernet::Frame::parse(inner).unwrap();
        let all_nodes: (Ipv6Addr, MacAddr) = ("ff02::1".parse().unwrap(), MacAddr([0x33, 0x33, 0, 0, 0, 1]));
        let (to, to_mac) = if nobody { all_nodes } else { (asker, A) };
        assert_eq!((ethernet.src(), ethernet.dst()), (B, to_mac));
        let ip = ipv6::Packet::parse(ethernet.payload()).unwrap();
        assert_eq!((ip.src(), ip.dst(), ip.hop_limit()), (target, to, 255));
        let message = ip.payload();
        assert!(icmp::verify_v6(message, target, to));
        assert_eq!((message[0], &message[8..24]), (136, &target.octets()[..]));
        assert_eq!(message[4], if nobody { 0x20 } else { 0x60 }, "override; solicited");
        assert_eq!(&message[24..], &[2, 1, 2, 0xbb, 0, 0, 0, 2], "its MAC address");
    }
    let own = tenant_solicitation(A, Ipv6Addr::UNSPECIFIED, asker);
    bed.dropped(&sent(own).bytes(), DropReason::DiscoveryNotAsked);
    // From beyond a router, or damaged.
    let mut far = tenant_solicitation(A, asker, target);
    far[14 + 7] = 254;
    bed.dropped(&sent(far).bytes(), DropReason::DiscoveryMalformed);
    let mut damaged = tenant_solicitation(A, asker, target);
    damaged[14 + 40 + 23] ^= 1;
    bed.dropped(&sent(damaged).bytes(), DropReason::DiscoveryMalformed);
}

/// The error's checksums are right and it quotes the packet; what it says.
fn complaint(bytes: &[u8], v6: bool) -> (u8, u8, u16, Vec<u8>) {
    let got = read(bytes);
    assert_eq!(got.hosts, [gateway(false), host(1, false)]);
    let (_, _, inner, _) = got.inner();
    let ethernet = ethernet::Frame::parse(inner).unwrap();
    assert_eq!((ethernet.src(), ethernet.dst()), (ROUTER, A));
    let message = if v6 {
        let ip = ipv6::Packet::parse(ethernet.payload()).unwrap();
        assert_eq!(
            [IpAddr::from(ip.src()), ip.dst().into()],
            [tenant(2, true), tenant(1, true)]
        );
        assert!(icmp::verify_v6(ip.payload(), ip.src(), ip.dst()));
        assert!(ip.total_len() <= 1280);
        ip.payload()
    } else {
        let ip = ipv4::Packet::parse(ethernet.payload()).unwrap();
        assert_eq!(
            [IpAddr::from(ip.src()), ip.dst().into()],
            [tenant(2, false), tenant(1, false)]
        );
        assert!(ip.verify_checksum() && icmp::verify_v4(ip.payload()));
        assert!(ip.total_len() <= 576);
        ip.payload()
    };
    let mtu = u16::from_be_bytes([message[6], message[7]]);
    (message[0], message[1], mtu, message[8..].to_vec())
}

#[test]
fn senders_are_told_what_is_too_big_and_what_took_too_long() {
    for v6 in [false, true] {
        let mut bed = bed(BY_IPV4, settings());
        let ips = [tenant(1, v6), tenant(2, v6)];
        // 1450 is what an MTU of 1500 leaves: 20 + 8 + 8 + 14 are the headers' between.
        let headers = if v6 { 48 } else { 28 };
        let of = |ip_len: usize| tenant_udp([A, ROUTER], ips, [1, 2], 64, &vec![7; ip_len - headers]);
        let (decision, _) = bed.decide(&sent(of(1450)).bytes());
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        let frame = of(1451);
        let (decision, bytes) = bed.decide(&sent(frame.clone()).bytes());
        assert_eq!(decision, Decision::Complain(DropReason::TooBig));
        let (kind, code, mtu, quoted) = complaint(&bytes, v6);
        assert_eq!((kind, code, mtu), if v6 { (2, 0, 1450) } else { (3, 4, 1450) });
        assert_eq!(quoted, frame[14..14 + quoted.len()]);

        // With a tag there is less room; over IPv6 too.
        let (decision, bytes) = bed.decide(&sent(tagged(&of(1447), 5)).bytes());
        assert_eq!(decision, Decision::Complain(DropReason::TooBig), "{bytes:x?}");
        let way = Way { v6: true, ..BY_IPV4 };
        let (decision, _) = self::bed(way, settings()).decide(&sent(of(1431)).bytes());
        assert_eq!(decision, Decision::Complain(DropReason::TooBig));

        let frame = tenant_udp([A, ROUTER], ips, [1, 2], 1, b"too far");
        let (decision, bytes) = bed.decide(&sent(frame.clone()).bytes());
        assert_eq!(decision, Decision::Complain(DropReason::InnerTtl));
        let (kind, code, _, quoted) = complaint(&bytes, v6);
        assert_eq!((kind, code), if v6 { (3, 0) } else { (11, 0) });
        assert_eq!(quoted, frame[14..]);
        // To its neighbour a packet with one hop left goes.
        let frame = tenant_udp([A, B], ips, [1, 2], 1, b"near");
        let (decision, _) = bed.decide(&sent(frame).bytes());
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    }
}

#[test]
fn errors_are_limited_and_never_about_errors() {
    let few = Settings {
        errors_per_second: 2,
        ..settings()
    };
    let mut bed = bed(BY_IPV4, few);
    let ips = [tenant(1, false), tenant(2, false)];
    let bytes = sent(tenant_udp([A, ROUTER], ips, [1, 2], 1, b"x")).bytes();
    let mut told = 0;
    for _ in 0..10 {
        match bed.decide(&bytes).0 {
            Decision::Complain(DropReason::InnerTtl) => told += 1,
            other => assert_eq!(other, Decision::Drop(DropReason::InnerTtl)),
        }
    }
    assert_eq!(told, 2);

    let mut bed = self::bed(BY_IPV4, settings());
    // The same bytes as an ICMP "unreachable".
    let mut frame = tenant_udp([A, ROUTER], ips, [1, 2], 1, b"12345678");
    (frame[14 + 9], frame[34]) = (1, 3);
    bed.dropped(&sent(frame).bytes(), DropReason::InnerTtl);
    // From nobody, and a later fragment.
    let mut frame = tenant_udp([A, ROUTER], [Ipv4Addr::UNSPECIFIED.into(), ips[1]], [1, 2], 1, b"x");
    bed.dropped(&sent(frame.clone()).bytes(), DropReason::InnerTtl);
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    (frame[20], frame[21]) = (0, 9);
    bed.dropped(&sent(frame).bytes(), DropReason::InnerTtl);
}

#[test]
fn a_loop_ends() {
    let mut bed = bed(BY_IPV4, settings());
    let old = Sent {
        ttl: 1,
        ..sent(packet(false, B, 64))
    };
    bed.dropped(&old.bytes(), DropReason::OuterTtl);
}

#[test]
fn senders_are_where_they_live() {
    let checked = Settings {
        source_check: true,
        ..settings()
    };
    let mut bed = bed(BY_IPV4, checked);
    let good = sent(packet(false, B, 64));
    assert!(matches!(bed.decide(&good.bytes()).0, Decision::Send { .. }));
    let from_elsewhere = Sent {
        hosts: [host(9, false), gateway(false)],
        ..good.clone()
    };
    let ips = [tenant(1, false), tenant(2, false)];
    let other_mac = sent(tenant_udp([B, B], ips, [1, 2], 64, b"x"));
    let nobody = sent(tenant_udp([A, B], [tenant(77, false), ips[1]], [1, 2], 64, b"x"));
    for wrong in [from_elsewhere, other_mac, nobody] {
        bed.dropped(&wrong.bytes(), DropReason::WrongSource);
    }
}

/// A checksum that a sender's kernel left to its NIC is whole when the packet goes on (K10), wherever it was left.
#[test]
fn checksums_that_were_left_open_are_completed() {
    for (v6, outer_v6) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut frame = packet(v6, B, 64);
        let whole = frame.clone();
        let at = if v6 { 14 + 40 } else { 14 + 20 };
        let datagram_len = frame.len() - at;
        let pseudo = pseudo(tenant(1, v6), tenant(2, v6), datagram_len);
        frame[at + 6..at + 8].copy_from_slice(&pseudo.to_be_bytes());
        // Linux makes an outer checksum for the inner one as it will be ("local checksum offload").
        let hosts = [host(1, outer_v6), gateway(outer_v6)];
        let way = Way {
            v6: outer_v6,
            ..BY_IPV4
        };
        let mut bytes = Sent::new(hosts, Encapsulation::Vxlan, VNI, whole).bytes();
        let inner = bytes.len() - frame.len();
        bytes[inner..].copy_from_slice(&frame);
        let (decision, after) = bed(way, settings()).decide(&bytes);
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        let got = read(&after);
        check_tenant_udp(got.inner().2, v6, [A, B], 64);
        let expected = if outer_v6 {
            ChecksumState::Valid
        } else {
            ChecksumState::Absent
        };
        assert_eq!(got.checksum, expected);

        // The outer one left open.
        let sent = Sent {
            checksum: true,
            ..Sent::new(hosts, Encapsulation::Vxlan, VNI, packet(v6, ROUTER, 64))
        };
        let mut bytes = sent.bytes();
        let udp = if outer_v6 { 54 } else { 34 };
        let pseudo = self::pseudo(hosts[0], hosts[1], bytes.len() - udp);
        bytes[udp + 6..udp + 8].copy_from_slice(&pseudo.to_be_bytes());
        let (decision, after) = bed(way, settings()).decide(&bytes);
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        assert_eq!(read(&after).checksum, ChecksumState::Valid);
    }
}

/// The pseudo header's sum.
fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> u16 {
    use ringside_wire::checksum::{pseudo_v4, pseudo_v6};
    let len = u16::try_from(len).unwrap();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, Protocol::UDP, len).fold(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, Protocol::UDP, len.into()).fold(),
        _ => panic!("of one family"),
    }
}

#[test]
fn damage_stays_damage() {
    let mut bytes = Sent {
        checksum: true,
        ..sent(packet(false, ROUTER, 64))
    }
    .bytes();
    let last = bytes.len() - 1;
    bytes[last] ^= 0x10;
    let (decision, after) = bed(BY_IPV4, settings()).decide(&bytes);
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    assert_eq!(
        read(&after).checksum,
        ChecksumState::Invalid,
        "not made right by the way"
    );
}

#[test]
fn congestion_and_class_are_kept() {
    for to_v6 in [false, true] {
        let mut bytes = sent(packet(false, B, 64)).bytes();
        bytes[15] = 0xb9;
        let checksum = ringside_wire::checksum::Sum::of(&bytes[14..24])
            .bytes(&bytes[26..34])
            .finish();
        bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
        let way = Way { v6: to_v6, ..BY_IPV4 };
        let (_, after) = bed(way, settings()).decide(&bytes);
        assert_eq!(read(&after).tos, 0xb9);
    }
}

#[test]
fn the_kernels_packets_are_left_alone() {
    let mut bed = bed(BY_IPV4, settings());
    let good = sent(packet(false, B, 64));
    let elsewhere = Sent {
        hosts: [host(1, false), host(2, false)],
        ..good.clone()
    };
    let mut other_port = good.bytes();
    other_port[36..38].copy_from_slice(&53_u16.to_be_bytes());
    let mut later_fragment = good.bytes();
    (later_fragment[20], later_fragment[21]) = (0, 1);
    let arp = tenant_arp(HOST_A_MAC, Ipv4Addr::new(192, 0, 2, 1), GATEWAY.0);
    for frame in [elsewhere.bytes(), other_port, later_fragment, arp, vec![0; 5]] {
        let (decision, after) = bed.decide(&frame);
        assert_eq!((decision, after), (Decision::Kernel, frame));
    }
    let mut first_fragment = good.bytes();
    first_fragment[20] = 0x20;
    bed.dropped(&first_fragment, DropReason::OuterFragment);
}

#[test]
fn tunnels_are_what_their_standards_say() {
    let mut bed = bed(BY_IPV4, settings());
    let vxlan = sent(packet(false, B, 64)).bytes();
    let geneve = Sent {
        encapsulation: Encapsulation::Geneve,
        options: vec![1, 2, 3, 0],
        ..sent(packet(false, B, 64))
    };
    let with = |bytes: &[u8], at: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        bytes
    };
    bed.dropped(&with(&vxlan, 42, 0xf7), DropReason::VxlanFlags);
    let bytes = geneve.bytes();
    assert!(matches!(bed.decide(&bytes).0, Decision::Send { .. }));
    for (at, value, reason) in [
        (42, 0x41, DropReason::GeneveVersion),
        (43, 0x80, DropReason::GeneveControl),
        (45, 0x59, DropReason::GeneveProtocol),
        (53, 0x01, DropReason::GeneveMalformed),
        (42, 0x3f, DropReason::GeneveMalformed),
        (52, 0x83, DropReason::GeneveCritical),
    ] {
        bed.dropped(&with(&bytes, at, value), reason);
    }
    // One that its receivers know.
    let mut knows = settings();
    knows.underlay.known_options = vec![(0x0102, 0x83)];
    let (decision, _) = self::bed(BY_IPV4, knows).decide(&with(&bytes, 52, 0x83));
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    // Cut short anywhere: never a panic, never sent on.
    for len in 0..vxlan.len() {
        let (decision, _) = bed.decide(&vxlan[..len]);
        assert!(!matches!(decision, Decision::Send { .. }), "{len}");
    }
}

#[test]
fn flows_are_told_apart_by_their_source_port() {
    let derived = Settings {
        derive_source_port: true,
        ..settings()
    };
    let mut bed = bed(BY_IPV4, derived);
    let ips = [tenant(1, false), tenant(2, false)];
    let mut seen = std::collections::HashSet::new();
    for port in 0..200 {
        let bytes = sent(tenant_udp([A, B], ips, [port, 80], 64, b"x")).bytes();
        let [first, second] = [bed.decide(&bytes).1, bed.decide(&bytes).1].map(|after| read(&after).ports[0]);
        assert_eq!(first, second, "one flow, one port");
        assert!(first >= 0xc000);
        seen.insert(first);
    }
    assert!(seen.len() > 180, "{}", seen.len());
}
