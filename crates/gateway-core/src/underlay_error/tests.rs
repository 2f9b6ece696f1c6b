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

/// What a router says, of a packet from `from` to [`HOST`], with its first eight bytes behind the
/// IP header.
fn of_v4(mtu: u16, from: Ipv4Addr, protocol: Protocol, udp_port: u16) -> Vec<u8> {
    message_v4([3, 4], mtu, &quoted_v4(from, protocol, udp_port, &[]))
}

fn quoted_v4(from: Ipv4Addr, protocol: Protocol, udp_port: u16, tunnel: &[u8]) -> Vec<u8> {
    let header = ipv4::Header {
        payload_len: 1480,
        ..ipv4::Header::new(from, HOST.0, protocol)
    };
    let mut quoted = vec![0; 28];
    header.emit(&mut quoted[..20]).unwrap();
    quoted[22..24].copy_from_slice(&udp_port.to_be_bytes());
    quoted.extend(tunnel);
    quoted
}

fn message_v4(type_and_code: [u8; 2], mtu: u16, quoted: &[u8]) -> Vec<u8> {
    let mut message = vec![0; 8];
    message[..2].copy_from_slice(&type_and_code);
    message[6..8].copy_from_slice(&mtu.to_be_bytes());
    message.extend(quoted);
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
    message_v6([2, 0], mtu, (from, protocol, udp_port))
}

fn message_v6(type_and_code: [u8; 2], mtu: u32, (from, protocol, udp_port): (Ipv6Addr, Protocol, u16)) -> Vec<u8> {
    let quoted = ipv6::Header {
        payload_len: 1460,
        ..ipv6::Header::new(from, HOST.1, protocol)
    };
    let mut message = vec![0; 8 + 48];
    message[..2].copy_from_slice(&type_and_code);
    message[4..8].copy_from_slice(&mtu.to_be_bytes());
    quoted.emit(&mut message[8..48]).unwrap();
    message[50..52].copy_from_slice(&udp_port.to_be_bytes());
    message
}

fn too_big(message: &[u8], is_v4: bool, settings: &Settings) -> Option<(IpAddr, NonZeroU16)> {
    match UnderlayError::parse(message, is_v4, settings)? {
        UnderlayError {
            kind: UnderlayErrorKind::TooBig(mtu),
            packet,
        } => Some((packet.host, mtu)),
        _ => None,
    }
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
        // A checksum that is not right.
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

#[test]
fn codes_have_causes() {
    use Unreachable::{HopLimit, Host, Network, Port, Prohibited, Protocol as NoUdp};
    let quoted = quoted_v4(OURS.0, Protocol::UDP, 4789, &[]);
    let v4 = |type_and_code| (message_v4(type_and_code, 0, &quoted), true);
    let v6 = |type_and_code| (message_v6(type_and_code, 0, (OURS.1, Protocol::UDP, 6081)), false);
    for ((message, is_v4), expected) in [
        (v4([3, 0]), Some(Network)),
        (v4([3, 1]), Some(Host)),
        (v4([3, 2]), Some(NoUdp)),
        (v4([3, 3]), Some(Port)),
        (v4([3, 7]), Some(Host)),
        (v4([3, 9]), Some(Prohibited)),
        (v4([3, 10]), Some(Prohibited)),
        (v4([3, 13]), Some(Prohibited)),
        (v4([11, 0]), Some(HopLimit)),
        // Fragments that did not come, a parameter problem, a redirect.
        (v4([11, 1]), None),
        (v4([12, 1]), None),
        (v4([5, 1]), None),
        (v6([1, 0]), Some(Network)),
        (v6([1, 1]), Some(Prohibited)),
        (v6([1, 3]), Some(Host)),
        (v6([1, 4]), Some(Port)),
        (v6([3, 0]), Some(HopLimit)),
        (v6([4, 1]), Some(NoUdp)),
        (v6([4, 0]), None),
        (v6([3, 1]), None),
    ] {
        let cause = UnderlayError::parse(&message, is_v4, &settings()).map(|error| error.kind);
        let expected = expected.map(UnderlayErrorKind::Unreachable);
        assert_eq!(cause, expected, "{message:02x?}");
    }
}

#[test]
fn reads_the_receiver_as_far_as_it_is_quoted() {
    let receiver = Ipv4Addr::new(10, 0, 0, 2);
    let mut inner = vec![0; 20];
    let header = ipv4::Header {
        payload_len: 1000,
        ..ipv4::Header::new(Ipv4Addr::new(10, 0, 0, 1), receiver, Protocol::TCP)
    };
    header.emit(&mut inner).unwrap();
    let vxlan = [8, 0, 0, 0, 0, 0, 42, 0];
    // An option of four bytes without a body.
    let geneve = [1, 0, 0x65, 0x58, 0, 0, 42, 0, 1, 2, 3, 0];
    let tag = [0x81, 0, 0, 7];
    for (port, tunnel, encapsulation) in [
        (4789, &vxlan[..], Encapsulation::Vxlan),
        (6081, &geneve[..], Encapsulation::Geneve),
    ] {
        for tag in [&[][..], &tag[..]] {
            let bytes = [tunnel, &[2; 12], tag, &[8, 0], &inner].concat();
            let quoted = quoted_v4(OURS.0, Protocol::UDP, port, &bytes);
            let whole = quoted.len();
            for len in 28..=whole {
                let message = message_v4([3, 3], 0, &quoted[..len]);
                let packet = UnderlayError::parse(&message, true, &settings()).expect("ours").packet;
                let known = (len == whole).then(|| TenantAddress::new(Vni::new(42).unwrap(), receiver.into()));
                let expected = Tunnelled {
                    from: OURS.0.into(),
                    host: HOST.0.into(),
                    encapsulation,
                    receiver: known,
                };
                assert_eq!(packet, expected, "{len} of {whole}");
            }
        }
    }
}
