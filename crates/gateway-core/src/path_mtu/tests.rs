use std::net::{Ipv4Addr, Ipv6Addr};

use ringside_wire::checksum::Sum;
use ringside_wire::{MacAddr, ipv6};

use super::*;
use crate::Underlay;
use crate::decide::PortSettings;

const OURS: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
);
const HOST: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(198, 51, 100, 7),
    Ipv6Addr::new(0x2001, 0xdb8, 7, 0, 0, 0, 0, 7),
);

fn settings() -> Settings {
    Settings {
        underlay: Underlay::at(&[OURS.0.into(), OURS.1.into()]),
        ports: vec![PortSettings {
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            v4: Some(OURS.0),
            v6: Some(OURS.1),
            mtu: 1500,
        }],
        source_check: false,
        derive_source_port: false,
        ttl: 64,
        errors_per_second: 1000,
    }
}

/// What a router says, of a packet from `from` to [`HOST`], with its first eight bytes behind the IP header.
fn of_v4(mtu: u16, from: Ipv4Addr, protocol: Protocol, udp_port: u16) -> Vec<u8> {
    let quoted = ipv4::Header {
        payload_len: 1480,
        ..ipv4::Header::new(from, HOST.0, protocol)
    };
    let mut message = vec![0; 8 + 28];
    message[..2].copy_from_slice(&[3, 4]);
    message[6..8].copy_from_slice(&mtu.to_be_bytes());
    quoted.emit(&mut message[8..28]).unwrap();
    message[30..32].copy_from_slice(&udp_port.to_be_bytes());
    let checksum = Sum::of(&message).finish();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    let router = ipv4::Header {
        payload_len: message.len(),
        ..ipv4::Header::new(Ipv4Addr::new(203, 0, 113, 1), OURS.0, Protocol::ICMP)
    };
    let mut packet = vec![0; 20];
    router.emit(&mut packet).unwrap();
    packet.extend(message);
    packet
}

fn of_v6(mtu: u32, from: Ipv6Addr, protocol: Protocol, udp_port: u16) -> Vec<u8> {
    let quoted = ipv6::Header {
        payload_len: 1460,
        ..ipv6::Header::new(from, HOST.1, protocol)
    };
    let mut message = vec![0; 8 + 48];
    message[0] = 2;
    message[4..8].copy_from_slice(&mtu.to_be_bytes());
    quoted.emit(&mut message[8..48]).unwrap();
    message[50..52].copy_from_slice(&udp_port.to_be_bytes());
    message
}

#[test]
fn what_a_router_says_of_our_packets_is_taken() {
    for port in [4789, 6081] {
        for mtu in [576, 1400, 1499] {
            let said = too_big(&of_v4(mtu, OURS.0, Protocol::UDP, port), true, &settings());
            assert_eq!(said, Some((HOST.0.into(), NonZeroU16::new(mtu).unwrap())));
        }
        for mtu in [1280, 1400, 65535] {
            let said = too_big(&of_v6(mtu.into(), OURS.1, Protocol::UDP, port), false, &settings());
            assert_eq!(said, Some((HOST.1.into(), NonZeroU16::new(mtu).unwrap())));
        }
    }
}

#[test]
fn what_cannot_be_about_our_packets_is_not() {
    let (v4, v6) = (
        of_v4(1400, OURS.0, Protocol::UDP, 4789),
        of_v6(1400, OURS.1, Protocol::UDP, 4789),
    );
    let damaged = |at: usize| {
        let mut message = v4.clone();
        message[at] ^= 1;
        message
    };
    let refused = [
        // Too little, and nothing: routers of before 1990.
        of_v4(575, OURS.0, Protocol::UDP, 4789),
        of_v4(0, OURS.0, Protocol::UDP, 4789),
        of_v4(1400, HOST.0, Protocol::UDP, 4789),
        of_v4(1400, OURS.0, Protocol::TCP, 4789),
        of_v4(1400, OURS.0, Protocol::UDP, 53),
        // Another code, and a checksum that is not right.
        damaged(21),
        damaged(35),
    ];
    for message in &refused {
        assert_eq!(too_big(message, true, &settings()), None, "{message:02x?}");
    }
    for message in [
        of_v6(1279, OURS.1, Protocol::UDP, 4789),
        of_v6(65536, OURS.1, Protocol::UDP, 4789),
        of_v6(1400, HOST.1, Protocol::UDP, 4789),
        of_v6(1400, OURS.1, Protocol::TCP, 4789),
        of_v6(1400, OURS.1, Protocol::UDP, 53),
    ] {
        assert_eq!(too_big(&message, false, &settings()), None, "{message:02x?}");
    }
    // Cut anywhere before the ports are there; and the one family's as the other's.
    for len in 0..52 {
        assert_eq!(too_big(&v4[..len.min(51)], true, &settings()), None, "{len}");
        assert_eq!(too_big(&v6[..len.min(51)], false, &settings()), None, "{len}");
    }
    assert_eq!(too_big(&v4, false, &settings()), None);
    assert_eq!(too_big(&v6, true, &settings()), None);
}
