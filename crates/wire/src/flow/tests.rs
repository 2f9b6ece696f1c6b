use std::string::ToString as _;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::checksum::{Sum, pseudo_v6};

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

fn flow(src: &str, dst: &str) -> UdpFlow {
    UdpFlow {
        src_mac: A,
        dst_mac: B,
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        ttl: 7,
    }
}

fn frame(flow: &UdpFlow, payload: &[u8]) -> Vec<u8> {
    let mut frame = std::vec![0; flow.header_len()];
    frame.extend_from_slice(payload);
    let len = flow.write(&mut frame, payload.len()).unwrap();
    assert_eq!(len, frame.len());
    frame
}

/// Puts `tags` behind the MAC addresses.
fn tagged(frame: &[u8], tags: &[u8]) -> Vec<u8> {
    [&frame[..12], tags, &frame[12..]].concat()
}

#[test]
fn a_whole_frame_by_hand() {
    let frame = frame(&flow("10.0.0.1:1", "10.0.0.2:2"), b"data");
    // IP: 4500+0020+4000+0711+0a00+0001+0a00+0002 = 0xa034 -> complement 0x5fcb
    // UDP: 0a00+1+0a00+2+11+c + 1+2+c + 6461+7461 = 0xecf1 -> complement 0x130e
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, // Ethernet
        0x45, 0, 0, 32, 0, 0, 0x40, 0, 7, 17, 0x5f, 0xcb, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
        0, 1, 0, 2, 0, 12, 0x13, 0x0e, // UDP
        b'd', b'a', b't', b'a',
    ];
    assert_eq!(frame, expected);
}

#[test]
fn tags_and_padding_are_stepped_over() {
    let mut frame = tagged(
        &frame(&flow("10.0.0.1:1", "10.0.0.2:2"), b"data"),
        &[0x88, 0xa8, 0, 5, 0x81, 0, 0x60, 6],
    );
    frame.resize(64, 0xff);
    let packet = parse_udp(&frame).unwrap();
    assert_eq!(packet.payload, 50..54);
    assert_eq!(packet.vlan.unwrap().id(), 5);
    assert_eq!(packet.checksum_state(&frame), ChecksumState::Valid);
    reflect_udp(&mut frame).unwrap();
    let back = parse_udp(&frame).unwrap();
    assert_eq!((back.src_mac, back.dst_mac), (B, A));
    assert_eq!((back.src, back.dst), (packet.dst, packet.src));
    assert_eq!(back.checksum_state(&frame), ChecksumState::Valid);
}

#[test]
fn extension_headers_are_stepped_over() {
    let flow = flow("[2001:db8::1]:1", "[2001:db8::2]:2");
    let mut frame = frame(&flow, b"data");
    frame.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]); // destination options: padding
    frame[20] = 60;
    frame[19] += 8;
    let packet = parse_udp(&frame).unwrap();
    assert_eq!(packet.payload, 70..74);
    assert_eq!(packet.checksum_state(&frame), ChecksumState::Valid);
}

#[test]
fn what_is_no_whole_udp_is_refused() {
    let good = frame(&flow("10.0.0.1:1", "10.0.0.2:2"), b"data");
    for (at, value, field) in [
        (12, 0x09, "ethertype"),
        (23, 6, "IP protocol"),
        (20, 0x20, "IPv4 fragment offset"),
    ] {
        let mut frame = good.clone();
        frame[at] = value;
        let before = frame.clone();
        match reflect_udp(&mut frame) {
            Err(Error::Unsupported { field: found, .. }) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
        assert_eq!(frame, before);
    }
}

#[test]
fn v6_pieces_and_stopovers_are_refused() {
    let whole = frame(&flow("[2001:db8::1]:1", "[2001:db8::2]:2"), b"data");
    let with_header = |kind: u8, header: [u8; 8]| {
        let mut frame = whole.clone();
        frame.splice(54..54, header);
        frame[20] = kind;
        frame[19] += 8;
        parse_udp(&frame)
    };
    let first_fragment = with_header(44, [17, 0, 0, 1, 0, 0, 0, 9]);
    let stops_left = with_header(43, [17, 0, 4, 1, 0, 0, 0, 0]);
    for refused in [first_fragment, stops_left] {
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
    }
    assert!(with_header(44, [17, 0, 0, 0, 0, 0, 0, 9]).is_ok(), "atomic");
    assert!(with_header(43, [17, 0, 4, 0, 0, 0, 0, 0]).is_ok(), "no stop left");
}

#[test]
fn a_checksum_left_to_the_nic_is_completed() {
    let flow = flow("10.0.0.1:1", "10.0.0.2:2");
    let whole = frame(&flow, b"data");
    let mut partial = whole.clone();
    partial[40..42].copy_from_slice(&[0x14, 0x20]); // as in the tests of `udp`
    let packet = parse_udp(&partial).unwrap();
    assert_eq!(packet.checksum_state(&partial), ChecksumState::PseudoHeaderOnly);
    complete_udp_checksum(&mut partial).unwrap();
    assert_eq!(partial, whole);
}

#[test]
fn bad_flows() {
    let mixed = flow("10.0.0.1:1", "[::1]:2");
    assert_eq!(mixed.write(&mut [0; 100], 4), Err(Error::FamilyMismatch));
    let flow = flow("10.0.0.1:1", "10.0.0.2:2");
    assert_eq!(
        flow.write(&mut [0; 45], 4),
        Err(Error::NoRoom {
            layer: LAYER,
            need: 46,
            have: 45
        })
    );
    let mut big = std::vec![0; 70_000];
    assert!(matches!(flow.write(&mut big, 65_508), Err(Error::TooLong { .. })));
    assert_eq!(flow.write(&mut big, 65_507), Ok(65_549));
    assert!(flow.write(&mut big, usize::MAX).is_err());
}

#[test]
fn another_frame_gives_an_error_and_no_panic() {
    let good = frame(&flow("[::1]:1", "[::2]:2"), b"data");
    let packet = parse_udp(&good).unwrap();
    for len in 0..62 {
        let mut short = good[..len].to_vec();
        let _ = packet.reflect(&mut short);
        let _ = packet.patch_checksum(&mut short, 1, 2);
        assert!(packet.fill_checksum(&mut short).is_err());
        assert_eq!(packet.checksum_state(&short), ChecksumState::Invalid);
    }
}

/// An echo request between the flow's addresses, checksums right.
fn echo_request(flow: &UdpFlow, data: &[u8]) -> Vec<u8> {
    let v6 = flow.dst.is_ipv6();
    let mut frame = frame(flow, data);
    let at = flow.header_len() - 8;
    frame[at..at + 8].copy_from_slice(&[if v6 { 128 } else { 8 }, 0, 0, 0, 0, 1, 0, 2]);
    let sum = match (flow.src.ip(), flow.dst.ip()) {
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            frame[20] = Protocol::ICMPV6.0;
            let len = u32::try_from(data.len() + 8).unwrap();
            pseudo_v6(src, dst, Protocol::ICMPV6, len)
        }
        _ => {
            frame[23] = Protocol::ICMP.0;
            frame[24..26].fill(0);
            let header = Sum::of(&frame[14..34]).finish().to_be_bytes();
            frame[24..26].copy_from_slice(&header);
            Sum::ZERO
        }
    };
    let checksum = sum.bytes(&frame[at..]).finish().to_be_bytes();
    frame[at + 2..at + 4].copy_from_slice(&checksum);
    frame
}

#[test]
fn echo_is_answered_v4() {
    let mut frame = echo_request(&flow("10.0.0.1:0", "10.0.0.2:0"), b"odd");
    frame.resize(60, 0xee); // padding must not enter the checksum
    assert!(reflect_icmp_echo(&mut frame, |_| true));
    assert_eq!(macs(&frame).unwrap(), (B, A));
    let packet = ipv4::Packet::parse(&frame[14..]).unwrap();
    assert!(packet.verify_checksum());
    assert_eq!(packet.src().octets(), [10, 0, 0, 2]);
    assert_eq!(packet.ttl(), 64);
    assert!(crate::icmp::verify_v4(packet.payload()));
    let echo = crate::icmp::Echo::parse_v4(packet.payload()).unwrap();
    assert_eq!(echo.kind, crate::icmp::EchoKind::Reply);
    assert_eq!(echo.data, b"odd");
    assert!(!reflect_icmp_echo(&mut frame, |_| true), "a reply is not answered");
}

#[test]
fn echo_is_answered_v6_behind_a_tag() {
    let request = echo_request(&flow("[fe80::1]:0", "[fe80::2]:0"), b"data");
    let mut frame = tagged(&request, &[0x81, 0, 0, 9]);
    assert!(reflect_icmp_echo(&mut frame, |_| true));
    let packet = ipv6::Packet::parse(&frame[18..]).unwrap();
    assert_eq!(packet.hop_limit(), 64);
    assert_eq!(IpAddr::from(packet.dst()), "fe80::1".parse::<IpAddr>().unwrap());
    assert!(crate::icmp::verify_v6(packet.payload(), packet.src(), packet.dst()));
}

#[test]
fn echo_that_belongs_to_the_kernel() {
    let group_v4 = echo_request(&flow("10.0.0.1:0", "224.0.0.1:0"), b"");
    let group_v6 = echo_request(&flow("[fe80::1]:0", "[ff02::1]:0"), b"");
    let nobody = echo_request(&flow("0.0.0.0:0", "10.0.0.2:0"), b"");
    let mut broadcast = echo_request(&flow("10.0.0.1:0", "10.0.0.2:0"), b"");
    broadcast[..6].fill(0xff);
    let mut from_group = echo_request(&flow("10.0.0.1:0", "10.0.0.2:0"), b"");
    from_group[6] |= 1;
    let mut options = echo_request(&flow("10.0.0.1:0", "10.0.0.2:0"), b"");
    options.splice(34..34, [1, 1, 1, 0]);
    options[14] = 0x46;
    options[17] += 4;
    let udp = frame(&flow("10.0.0.1:0", "10.0.0.2:0"), b"");
    for mut frame in [group_v4, group_v6, nobody, broadcast, from_group, options, udp] {
        let before = frame.clone();
        assert!(!reflect_icmp_echo(&mut frame, |_| true));
        assert_eq!(frame, before);
    }
}

#[test]
fn echo_to_somebody_else() {
    for (src, dst) in [("10.0.0.1:0", "10.0.0.2:0"), ("[fe80::1]:0", "[fe80::2]:0")] {
        let flow = flow(src, dst);
        let mut frame = echo_request(&flow, b"data");
        let before = frame.clone();
        assert!(!reflect_icmp_echo(&mut frame, |ours| ours == flow.src.ip()));
        assert_eq!(frame, before);
        assert!(reflect_icmp_echo(&mut frame, |ours| ours == flow.dst.ip()));
    }
}

fn flows() -> impl Strategy<Value = UdpFlow> {
    let sockets = prop_oneof![
        any::<([u8; 4], [u8; 4], u16, u16)>()
            .prop_map(|(a, b, p, q)| (SocketAddr::new(a.into(), p), SocketAddr::new(b.into(), q))),
        any::<([u8; 16], [u8; 16], u16, u16)>()
            .prop_map(|(a, b, p, q)| (SocketAddr::new(a.into(), p), SocketAddr::new(b.into(), q))),
    ];
    (any::<([u8; 6], [u8; 6], u8)>(), sockets).prop_map(|((a, b, ttl), (src, dst))| UdpFlow {
        src_mac: MacAddr(a),
        dst_mac: MacAddr(b),
        src,
        dst,
        ttl,
    })
}

proptest! {
    #[test]
    fn write_then_parse(flow in flows(), payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut frame = frame(&flow, &payload);
        let packet = parse_udp(&frame).unwrap();
        prop_assert_eq!((packet.src_mac, packet.dst_mac), (flow.src_mac, flow.dst_mac));
        prop_assert_eq!((packet.src, packet.dst), (flow.src, flow.dst));
        prop_assert_eq!(&frame[packet.payload.clone()], &payload[..]);
        prop_assert_eq!(packet.checksum_state(&frame), ChecksumState::Valid);

        // A reflected frame is, bit for bit, the one that the other side would have written.
        reflect_udp(&mut frame).unwrap();
        prop_assert_eq!(frame, super::tests::frame(&flow.reversed(), &payload));
    }

    #[test]
    fn a_changed_word_is_patched(
        flow in flows(), payload in proptest::collection::vec(any::<u8>(), 2..100),
        at in any::<prop::sample::Index>(), new: u16,
    ) {
        let mut before = frame(&flow, &payload);
        let packet = parse_udp(&before).unwrap();
        let at = at.index(payload.len() - 1) & !1;
        let mut changed = payload.clone();
        changed[at..at + 2].copy_from_slice(&new.to_be_bytes());
        let old = u16::from_be_bytes([payload[at], payload[at + 1]]);
        before[packet.payload.clone()].copy_from_slice(&changed);
        packet.patch_checksum(&mut before, old, new).unwrap();
        prop_assert_eq!(before, frame(&flow, &changed));
    }

    #[test]
    fn damaged_frames_never_panic(
        flow in flows(), payload in proptest::collection::vec(any::<u8>(), 0..40),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(), echo: bool,
    ) {
        let mut bytes = if echo { echo_request(&flow, &payload) } else { frame(&flow, &payload) };
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        let len = bytes.len();
        if let Ok(packet) = parse_udp(&bytes) {
            prop_assert!(packet.payload.end <= len);
            let _ = packet.checksum_state(&bytes);
        }
        let _ = reflect_udp(&mut bytes);
        let _ = complete_udp_checksum(&mut bytes);
        let _ = reflect_icmp_echo(&mut bytes, |_| true);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = parse_udp(&bytes);
        let _ = reflect_udp(&mut bytes);
        let _ = reflect_icmp_echo(&mut bytes, |_| true);
    }
}

/// Of UDP, and of TCP with the same bytes around its checksum.
#[test]
fn a_checksum_that_was_left_to_a_nic_is_completed() {
    for (src, dst) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
        for payload in [&b"data"[..], b"odd", &[0x5a; 1001]] {
            let whole = frame(&flow(src, dst), payload);
            let packet = parse_udp(&whole).unwrap();
            let at = packet.payload.start - 2;
            let mut left = whole.clone();
            assert_eq!(complete_checksum(&mut left), Ok(false), "it is whole");
            let pseudo = pseudo(&flow(src, dst), Protocol::UDP, 8 + payload.len());
            left[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
            assert_eq!(packet.checksum_state(&left), ChecksumState::PseudoHeaderOnly);
            left.extend([0xff; 7]); // padding
            assert_eq!(complete_checksum(&mut left), Ok(true));
            assert_eq!(left[..whole.len()], whole);
            left[at] ^= 1;
            let wrong = left.clone();
            assert_eq!(complete_checksum(&mut left), Ok(false), "a wrong one is no partial one");
            left[at..at + 2].fill(0);
            assert_eq!(complete_checksum(&mut left), Ok(false), "none was wanted");
            assert_eq!(left[at + 2..], wrong[at + 2..]);
        }
    }
}

#[test]
fn of_tcp_too() {
    for (src, dst) in [("10.0.0.1:1", "10.0.0.2:2"), ("[fd00::1]:1", "[fd00::2]:2")] {
        let flow = flow(src, dst);
        let mut frame = frame(&flow, &[7; 33]);
        // 41 bytes of what looks like a TCP segment.
        let (ip, at) = (flow.header_len() - 8, flow.header_len() - 8 + 16);
        if flow.dst.is_ipv4() {
            let old = u16::from_be_bytes([frame[22], frame[23]]);
            frame[23] = Protocol::TCP.0;
            let new = u16::from_be_bytes([frame[22], frame[23]]);
            let sum = u16::from_be_bytes([frame[24], frame[25]]);
            frame[24..26].copy_from_slice(&crate::checksum::update(sum, old, new).to_be_bytes());
        } else {
            frame[20] = Protocol::TCP.0;
        }
        let pseudo = pseudo(&flow, Protocol::TCP, 41);
        frame[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        assert_eq!(complete_checksum(&mut frame), Ok(true));
        assert_eq!(pseudo.bytes(&frame[ip..]).fold(), 0xffff);
        assert_eq!(complete_checksum(&mut frame), Ok(false));
        let cut = frame.len() - 1;
        assert!(complete_checksum(&mut frame[..cut]).is_err());
    }
    assert!(complete_checksum(&mut [0; 60]).is_err());
}

/// RFC 768: a UDP checksum that is computed as zero is sent as all ones. RFC 9293 has no such rule for TCP.
#[test]
fn a_completed_checksum_of_zero_is_all_ones_in_udp_alone() {
    for protocol in [Protocol::UDP, Protocol::TCP] {
        let flow = flow("[fd00::1]:1", "[fd00::2]:2");
        let mut frame = frame(&flow, &[0; 32]);
        let ip = flow.header_len() - 8;
        frame[20] = protocol.0;
        let at = ip + if protocol == Protocol::UDP { 6 } else { 16 };
        let pseudo = pseudo(&flow, protocol, 40);
        // The last word of the payload has the sum end up at 0xffff.
        frame[at..at + 2].fill(0);
        let missing = pseudo.bytes(&frame[ip..]).finish();
        let end = frame.len();
        frame[end - 2..].copy_from_slice(&missing.to_be_bytes());
        frame[at..at + 2].copy_from_slice(&pseudo.fold().to_be_bytes());
        assert_eq!(complete_checksum(&mut frame), Ok(true));
        let expected = if protocol == Protocol::UDP { [0xff; 2] } else { [0; 2] };
        assert_eq!(frame[at..at + 2], expected, "{protocol}");
    }
}

#[test]
fn a_tcp_header_that_ends_before_its_checksum_is_truncated() {
    let mut frame = frame(&flow("[fd00::1]:1", "[fd00::2]:2"), &[0; 9]);
    frame[20] = Protocol::TCP.0;
    assert_eq!(
        complete_checksum(&mut frame),
        Err(Error::Truncated {
            layer: "TCP header",
            need: 18,
            have: 17
        })
    );
}

#[test]
fn hops_are_those_of_the_flow() {
    for (addresses, at) in [(["10.0.0.1:1", "10.0.0.2:2"], 22), (["[fd00::1]:1", "[fd00::2]:2"], 21)] {
        let frame = frame(&flow(addresses[0], addresses[1]), b"data");
        assert_eq!(frame[at], 7, "{addresses:?}");
    }
}

fn pseudo(flow: &UdpFlow, protocol: Protocol, len: usize) -> Sum {
    let len = u16::try_from(len).unwrap();
    match (flow.src.ip(), flow.dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => crate::checksum::pseudo_v4(src, dst, protocol, len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, protocol, len.into()),
        _ => unreachable!("one family"),
    }
}

#[test]
fn shows_mapped_addresses_as_ipv4() {
    let shown = |text: &str| canonical(text.parse().unwrap()).to_string();
    assert_eq!(shown("[::ffff:192.0.2.1]:5000"), "192.0.2.1:5000");
    for same in ["192.0.2.1:5000", "[2001:db8::1]:5000", "[fe80::1%3]:5000"] {
        assert_eq!(shown(same), same);
    }
}
