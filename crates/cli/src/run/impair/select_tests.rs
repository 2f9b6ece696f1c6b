use ringside_wire::flow::UdpFlow;
use ringside_wire::{EtherType, MacAddr, ethernet};

use super::*;

fn udp(payload: &[u8]) -> Vec<u8> {
    let flow = UdpFlow {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: "192.0.2.1:1000".parse().unwrap(),
        dst: "192.0.2.2:2000".parse().unwrap(),
        ttl: 64,
    };
    let mut frame = vec![0; flow.header_len()];
    frame.extend_from_slice(payload);
    flow.write(&mut frame, payload.len()).unwrap();
    frame
}

fn of_type(ethertype: EtherType, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; ethernet::HEADER_LEN];
    let header = ethernet::Header {
        dst: MacAddr::BROADCAST,
        src: MacAddr::ZERO,
        ethertype,
    };
    header.emit(&mut frame).unwrap();
    frame.extend_from_slice(rest);
    frame
}

fn icmpv6(kind: u8) -> Vec<u8> {
    let mut ip = vec![0; 40];
    (ip[0], ip[5], ip[6]) = (0x60, 8, 58);
    ip.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    of_type(EtherType::IPV6, &ip)
}

#[test]
fn hosts_find_each_other_whatever_is_lost() {
    let all = Matching::All;
    assert!(!all.wants(&of_type(EtherType::ARP, &[0; 28])));
    // Behind a VLAN tag, too.
    assert!(!all.wants(&of_type(EtherType::VLAN, &[0, 5, 8, 6, 0, 0])));
    for kind in 0..=255 {
        assert_eq!(all.wants(&icmpv6(kind)), !(133..=137).contains(&kind), "{kind}");
    }
    for frame in [
        udp(b"data"),
        of_type(EtherType(0x88cc), b"LLDP"),
        vec![0; 14],
        vec![0; 3],
    ] {
        assert!(all.wants(&frame));
    }
}

#[test]
fn udp_by_port_on_either_side() {
    let frame = udp(b"data");
    for (text, wanted) in [
        ("udp", true),
        ("udp:1000", true),
        ("udp:2000", true),
        ("udp:3000", false),
    ] {
        let matching: Matching = text.parse().unwrap();
        assert_eq!(matching.wants(&frame), wanted, "{text}");
        assert!(!matching.wants(&icmpv6(128)));
        assert_eq!(matching.to_string(), text);
    }
}

#[test]
fn a_turned_bit_is_found_by_the_checksum() {
    for number in (0..4096).chain([u64::MAX]) {
        let mut frame = udp(b"payload");
        let before = frame.clone();
        assert!(turn_a_bit(&mut frame, number));
        let changed: u32 = before.iter().zip(&frame).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(changed, 1);
        let udp = parse_udp(&frame).unwrap();
        assert_eq!(udp.checksum_state(&frame), ChecksumState::Invalid, "{number}");
    }
    // Whatever the right checksum is: also where it is the sum of the pseudo header.
    for payload in 0..=u16::MAX {
        let mut frame = udp(&payload.to_be_bytes());
        assert!(turn_a_bit(&mut frame, payload.into()));
        let udp = parse_udp(&frame).unwrap();
        assert_eq!(udp.checksum_state(&frame), ChecksumState::Invalid, "{payload}");
    }
    let mut other = of_type(EtherType(0x88b5), &[0]);
    assert!(turn_a_bit(&mut other, 13));
    assert_eq!(other[14], 1 << 5);
    assert!(!turn_a_bit(&mut other[..14], 13));
}
