//! Packets that go on, and those that do not.

use super::*;

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
                        let mut bed = bed(way, settings());
                        let (decision, bytes) = bed.decide(&sent.bytes());
                        let in_place = goes.is_none_or(|goes| goes == came) && from_v6 == to_v6;
                        let cache = match in_place {
                            true => Cacheable::Neighbor(TenantAddress::new(vni(), tenant(2, inner_v6))),
                            false => Cacheable::Nothing,
                        };
                        let decided = (decision, bed.decider.cacheable());
                        assert_eq!(decided, (Decision::Send { port: 0 }, cache), "{what}");
                        let got = read(&bytes);
                        assert_eq!(got.macs, [GATEWAY_MAC, HOST_B_MAC], "{what}");
                        assert_eq!(got.hosts, [gateway(to_v6), host(2, to_v6)], "{what}");
                        assert_eq!(got.ttl, 63, "{what}");
                        assert_eq!(got.ports[0], 50_000, "{what}");
                        // New headers say that nobody may fragment it, and those that stay say what they said: the same.
                        assert!(to_v6 || bytes[20] & 0x40 != 0, "{what}");
                        let expected = match (to_v6, in_place && checksum) {
                            (false, false) => ChecksumState::Absent,
                            _ => ChecksumState::Valid,
                        };
                        assert_eq!(got.checksum, expected, "{what}");
                        let (encapsulation, vni, inner, kept) = got.inner();
                        assert_eq!((encapsulation, vni), (goes.unwrap_or(came), VNI), "{what}");
                        let keeps = [came, goes.unwrap_or(came)] == [Geneve; 2];
                        assert_eq!(kept, if keeps { &options[..] } else { &[] }, "{what}");
                        assert_eq!(vlan::Network::parse(inner).unwrap().outer.is_some(), tag, "{what}");
                        check_tenant_udp(inner, inner_v6, [A, B], if routed { 63 } else { 64 });
                    }
                }
            }
        }
    }
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
    // To somebody who is known, but by a MAC address of many.
    let ips = [tenant(1, false), tenant(2, false)];
    let to_many = tenant_udp(
        [A, MacAddr([1, 0, 0x5e, 0, 0, 9])],
        ips,
        [1, 2],
        64,
        b"of the lane, but for its MAC",
    );
    bed.dropped(&sent(to_many).bytes(), DropReason::InnerMulticast);
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
    assert!(bed.hosts.resolve(bed.host_b, Some((HOST_B_MAC, 0))));
    let (decision, after) = bed.decide(&bytes);
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    assert_eq!(read(&after).macs[1], HOST_B_MAC);
}

/// Which of several ports leads to a host somebody has to know: the first is not taken for it.
#[test]
fn a_host_without_a_port_is_waited_for() {
    let port = settings().ports[0];
    let two = Settings {
        ports: vec![port, port],
        ..settings()
    };
    let mut bed = bed(BY_IPV4, two);
    let plain = sent(packet(false, B, 64)).bytes();
    let tagged = sent(tagged(&packet(false, B, 64), 5)).bytes();
    for bytes in [&plain, &tagged] {
        assert_eq!(bed.decide(bytes), (Decision::Wait(bed.host_b), bytes.clone()));
    }
    // There are but two.
    assert!(bed.hosts.resolve(bed.host_b, Some((HOST_B_MAC, 2))));
    for bytes in [&plain, &tagged] {
        assert_eq!(bed.decide(bytes), (Decision::Wait(bed.host_b), bytes.clone()));
    }
    assert!(bed.hosts.resolve(bed.host_b, Some((HOST_B_MAC, 1))));
    for bytes in [&plain, &tagged] {
        let (decision, _) = bed.decide(bytes);
        assert!(matches!(decision, Decision::Send { port: 1, .. }), "{decision:?}");
    }
}

/// It would wait in vain, in the place of another packet.
#[test]
fn a_packet_that_leaves_by_a_port_without_an_address_of_its_family_does_not_wait() {
    for mac in [Some(HOST_B_MAC), None] {
        let mut own = settings();
        own.ports[0].v4 = None;
        let mut bed = bed(Way { mac, ..BY_IPV4 }, own);
        let plain = sent(packet(false, B, 64)).bytes();
        let tagged = sent(tagged(&packet(false, B, 64), 5)).bytes();
        for bytes in [&plain, &tagged] {
            assert_eq!(bed.decide(bytes), (Decision::NoAddress(bed.host_b), bytes.clone()));
        }
    }
}

#[test]
fn a_loop_ends() {
    let mut bed = bed(BY_IPV4, settings());
    let old = Sent {
        ttl: 1,
        ..sent(packet(false, B, 64))
    };
    bed.dropped(&old.bytes(), DropReason::OuterTtl);
    // Also one of two gateways each of which gives it new headers.
    for (v6, encapsulation) in [(true, None), (false, Some(Encapsulation::Geneve))] {
        let mut bed = self::bed(
            Way {
                v6,
                encapsulation,
                ..BY_IPV4
            },
            settings(),
        );
        let before = Sent { ttl: 7, ..old.clone() };
        assert_eq!(read(&bed.decide(&before.bytes()).1).ttl, 6);
        bed.dropped(&old.bytes(), DropReason::OuterTtl);
    }
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
pub(super) fn pseudo(src: IpAddr, dst: IpAddr, len: usize) -> u16 {
    use ringside_wire::checksum::{pseudo_v4, pseudo_v6};
    let len = u16::try_from(len).unwrap();
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, Protocol::UDP, len).fold(),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, Protocol::UDP, len.into()).fold(),
        _ => panic!("of one family"),
    }
}

/// What a NIC or a sender has put behind the outer packet goes no further, however long it is: a port sends no more than its MTU.
/// What is within the tenant's frame is the tenant's.
#[test]
fn padding_makes_nothing_longer() {
    for (v6, to_v6) in [(false, false), (true, true), (false, true), (true, false)] {
        let way = Way { v6: to_v6, ..BY_IPV4 };
        let hosts = [host(1, v6), gateway(v6)];
        let mut short = packet(false, B, 64);
        short.extend([0; 4]);
        for frame in [packet(false, B, 64), short, packet(true, ROUTER, 64)] {
            let plain = Sent::new(hosts, Encapsulation::Vxlan, VNI, frame.clone()).bytes();
            let (decision, expected) = bed(way, settings()).decide(&plain);
            assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
            assert_eq!(read(&expected).inner().2.len(), frame.len(), "the tenant's padding");
            for more in [1, 18, 1500, 4000] {
                let padded = [&plain[..], &vec![0xcc; more]].concat();
                let (again, after) = bed(way, settings()).decide(&padded);
                assert_eq!((again, after), (decision, expected.clone()), "{more} bytes behind it");
            }
        }
    }
}

/// The checksum of the outer IPv4 header.
fn make_right(bytes: &mut [u8]) {
    let checksum = ringside_wire::checksum::Sum::of(&bytes[14..24])
        .bytes(&bytes[26..34])
        .finish();
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
}

/// The outer packet says that it is longer than the datagram in it. It stays as long, if it leaves with the same headers, and that
/// has to be within the MTU.
#[test]
fn what_is_behind_the_datagram_counts() {
    for (v6, at) in [(false, 16), (true, 18)] {
        let behind = |more: usize, to_v6| {
            let mut bytes = Sent::new([host(1, v6), gateway(v6)], Encapsulation::Vxlan, VNI, packet(v6, B, 64)).bytes();
            let len = usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])) + more;
            bytes[at..at + 2].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
            bytes.resize(bytes.len() + more, 0xcc);
            if !v6 {
                make_right(&mut bytes);
            }
            let (decision, after) = bed(Way { v6: to_v6, ..BY_IPV4 }, settings()).decide(&bytes);
            (decision, bytes.len(), after)
        };
        let room = 1514
            - Sent::new([host(1, v6), gateway(v6)], Encapsulation::Vxlan, VNI, packet(v6, B, 64))
                .bytes()
                .len();
        let (decision, before, after) = behind(room, v6);
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        assert_eq!((before, after.len()), (1514, 1514));
        let (decision, ..) = behind(room + 1, v6);
        assert_eq!(decision, Decision::Complain(DropReason::TooBig));
        // With other headers it is left out.
        let (decision, _, after) = behind(room + 1, !v6);
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        assert!(after.len() < 200, "{}", after.len());
    }
}

/// Over UDP a checksum of 0 says that there is none: one that comes out as 0 is written as its other form (RFC 768). By the lane and
/// by the long way.
#[test]
fn a_checksum_does_not_become_none() {
    let mut bed = bed(BY_IPV4, settings());
    for frame in [packet(false, ROUTER, 64), tagged(&packet(false, ROUTER, 64), 5)] {
        let mut bytes = sent(frame).bytes();
        let mut became = 0;
        for check in 1..=u16::MAX {
            bytes[40..42].copy_from_slice(&check.to_be_bytes());
            let (decision, after) = bed.decide(&bytes);
            assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
            assert_ne!(after[40..42], [0, 0], "{check:#06x}");
            became += u32::from(after[40..42] == [0xff, 0xff]);
        }
        assert!(became > 0);
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

/// Of new headers nobody could tell that the network's number, or whatever else, was another one.
#[test]
fn damage_does_not_become_right() {
    use Encapsulation::{Geneve, Vxlan};
    for (from_v6, to_v6, encapsulation) in [
        (false, true, None),
        (true, false, None),
        (true, true, Some(Geneve)),
        (false, false, Some(Geneve)),
    ] {
        let way = Way {
            v6: to_v6,
            encapsulation,
            ..BY_IPV4
        };
        let mut bed = bed(way, settings());
        let right = Sent {
            checksum: true,
            ..Sent::new(
                [host(1, from_v6), gateway(from_v6)],
                Vxlan,
                VNI,
                packet(false, ROUTER, 64),
            )
        };
        let right = right.bytes();
        assert!(matches!(bed.decide(&right).0, Decision::Send { .. }));
        let udp = if from_v6 { 54 } else { 34 };
        // A reserved bit of VXLAN, and the last byte of the tenant's; of IPv4 the header's identification, too.
        let mut places = vec![udp + 8 + 7, right.len() - 1];
        places.extend((!from_v6).then_some(18));
        for at in places {
            let mut wrong = right.clone();
            wrong[at] ^= 0x10;
            bed.dropped(&wrong, DropReason::OuterDamaged);
        }
        // One without a checksum has nothing that could be wrong.
        let mut none = right.clone();
        none[udp + 6..udp + 8].fill(0);
        none[udp + 8 + 7] ^= 0x10;
        assert!(matches!(bed.decide(&none).0, Decision::Send { .. }));
    }
}

#[test]
fn congestion_and_class_are_kept() {
    for to_v6 in [false, true] {
        let mut bytes = sent(packet(false, B, 64)).bytes();
        bytes[15] = 0xb9;
        make_right(&mut bytes);
        let way = Way { v6: to_v6, ..BY_IPV4 };
        let (_, after) = bed(way, settings()).decide(&bytes);
        assert_eq!(read(&after).tos, 0xb9);
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
    // Where ports stand else is what changes within a flow: ICMP's checksum, a later fragment's payload. Its addresses tell it apart.
    for v6 in [false, true] {
        let mut port_of = |protocol: Protocol, ports: [u16; 2], fragment: u16| {
            let mut frame = tenant_udp([A, B], [tenant(1, v6), tenant(2, v6)], ports, 64, b"x");
            frame[if v6 { 20 } else { 23 }] = protocol.0;
            if !v6 {
                frame[20..22].copy_from_slice(&fragment.to_be_bytes());
                let sum = ringside_wire::checksum::Sum::of(&frame[14..24]).bytes(&frame[26..34]);
                frame[24..26].copy_from_slice(&sum.finish().to_be_bytes());
            }
            read(&bed.decide(&sent(frame).bytes()).1).ports[0]
        };
        let icmp = if v6 { Protocol::ICMPV6 } else { Protocol::ICMP };
        assert_eq!(port_of(icmp, [0x0800, 1], 0), port_of(icmp, [0x0800, 2], 0));
        assert_ne!(port_of(Protocol::TCP, [7, 1], 0), port_of(Protocol::TCP, [7, 2], 0));
        if !v6 {
            let [first, later] = [0x2000, 0x0008].map(|fragment| port_of(Protocol::UDP, [7, fragment], fragment));
            assert_eq!(first, later);
        }
    }
}
