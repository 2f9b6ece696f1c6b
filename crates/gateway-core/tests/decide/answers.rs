//! Answers to ARP and neighbour solicitations, and ICMP errors.

use super::*;

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
        assert!(
            ip.total_len() <= 1280 && got.tunnel.len() + 48 <= 1280,
            "as long as any way takes"
        );
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

/// Something on the way takes less than the port: by the lane, and by the long way (to which a tag leads).
#[test]
fn a_way_that_takes_less_is_told_by_what_it_takes() {
    for outer_v6 in [false, true] {
        let mut bed = bed(
            Way {
                v6: outer_v6,
                ..BY_IPV4
            },
            settings(),
        );
        let limit = |bed: &Bed, mtu| assert!(bed.hosts.limit(bed.host_b, Limit::of(NonZeroU16::new(mtu))));
        let headers = if outer_v6 { 70 } else { 50 };
        for v6 in [false, true] {
            let of = |ip_len: u16| {
                let payload = vec![7; usize::from(ip_len) - if v6 { 48 } else { 28 }];
                tenant_udp([A, ROUTER], [tenant(1, v6), tenant(2, v6)], [1, 2], 64, &payload)
            };
            // None at all, less than the port, more than the port, which counts then, and none again.
            for (mtu, most) in [
                (0, 1500),
                (1400, 1400),
                (1280, 1280),
                (576, 576),
                (9000, 1500),
                (0, 1500),
            ] {
                limit(&bed, mtu);
                // What no sender goes below is sent on, whatever a router is said to take.
                let least = if v6 { 1280 } else { 552 };
                for tag in [0, 4] {
                    let most = (most - headers - tag).max(least);
                    let in_tags = |frame: Vec<u8>| if tag == 0 { frame } else { tagged(&frame, 5) };
                    let (decision, _) = bed.decide(&sent(in_tags(of(most))).bytes());
                    assert!(matches!(decision, Decision::Send { .. }), "{mtu} {tag}: {decision:?}");
                    let (decision, bytes) = bed.decide(&sent(in_tags(of(most + 1))).bytes());
                    assert_eq!(decision, Decision::Complain(DropReason::TooBig), "{mtu} {tag}");
                    if tag == 0 {
                        assert_eq!(complaint(&bytes, v6).2, most, "{mtu}");
                    }
                }
            }
        }
        assert!(!bed.hosts.limit(HostId(99), Limit::default()));
    }
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
    assert_eq!(bed.decider.take_held_back(), 8);
    assert_eq!(bed.decider.take_held_back(), 0, "since the last time");

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

/// One network's packets that are too long, or too far on their way, take no errors from another's: else who sends many of them would
/// have others never find out what goes through.
#[test]
fn errors_of_one_network_are_none_of_anothers() {
    const FLOOD: u32 = 5000;
    let mut bed = bed(BY_IPV4, settings());
    let b = bed
        .neighbors
        .reader()
        .find(TenantAddress::new(vni(), tenant(2, false)))
        .unwrap();
    let other = Vni::new(VNI + 1).unwrap();
    bed.neighbors
        .write()
        .put(TenantAddress::new(other, tenant(2, false)), b);
    let ips = [tenant(1, false), tenant(2, false)];
    let packet = |vni, frame| Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, vni, frame).bytes();
    let expired = tenant_udp([A, ROUTER], ips, [1, 2], 1, b"x");
    let too_long = tenant_udp([A, B], ips, [1, 2], 64, &vec![0; 1473 - 28]);
    let flood = packet(VNI, expired.clone());
    let told = |decision| u32::from(matches!(decision, Decision::Complain(_)));
    let told_in_flood: u32 = (0..FLOOD).map(|_| told(bed.decide(&flood).0)).sum();
    assert_eq!(told_in_flood, settings().errors_per_second);
    assert_eq!(bed.decider.take_held_back(), u64::from(FLOOD - told_in_flood));
    for (frame, reason) in [(too_long, DropReason::TooBig), (expired, DropReason::InnerTtl)] {
        let (decision, bytes) = bed.decide(&packet(VNI + 1, frame));
        assert_eq!(decision, Decision::Complain(reason), "{bytes:x?}");
    }
    // What nobody may be told of takes nothing either.
    let mut bed = self::bed(BY_IPV4, settings());
    let mut error = tenant_udp([A, ROUTER], ips, [1, 2], 1, b"12345678");
    (error[14 + 9], error[34]) = (1, 3);
    let error = packet(VNI, error);
    (0..FLOOD).for_each(|_| bed.dropped(&error, DropReason::InnerTtl));
    assert_eq!(bed.decider.take_held_back(), 0);
    assert_eq!(bed.decide(&flood).0, Decision::Complain(DropReason::InnerTtl));
}
