use proptest::prelude::*;

use super::*;

/// 192.168.0.1 → 192.168.0.199, UDP, total length 115, DF, checksum 0xb861.
const HEADER: [u8; 20] = [
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8, 0x00,
    0xc7,
];

#[test]
fn reads_a_known_header() {
    let mut bytes = [0u8; 120];
    bytes[..20].copy_from_slice(&HEADER);
    let packet = Packet::parse(&bytes).unwrap();
    assert!(packet.verify_checksum());
    assert_eq!(packet.checksum(), 0xb861);
    assert_eq!(packet.src(), Ipv4Addr::new(192, 168, 0, 1));
    assert_eq!(packet.dst(), Ipv4Addr::new(192, 168, 0, 199));
    assert_eq!((packet.header_len(), packet.total_len()), (20, 115));
    assert_eq!(packet.payload().len(), 95);
    assert_eq!((packet.ttl(), packet.protocol()), (64, Protocol::UDP));
    assert!(packet.dont_fragment() && !packet.is_fragment());

    bytes[8] -= 1;
    assert!(!Packet::parse(&bytes).unwrap().verify_checksum());
}

#[test]
fn options_are_a_part_of_the_header() {
    let mut bytes = [0u8; 48];
    bytes[..20].copy_from_slice(&HEADER);
    (bytes[0], bytes[3]) = (0x46, 34);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!((packet.header_len(), packet.total_len()), (24, 34));
    assert_eq!(packet.payload().len(), 10);
}

/// RFC 791 §3.1: DF is bit 14, MF bit 13, and the offset below counts eights of bytes.
#[test]
fn fragments_are_told_by_flag_and_offset() {
    for (word, more, offset, is_fragment) in [
        (0x0000_u16, false, 0, false),
        (0x4000, false, 0, false),
        (0x2000, true, 0, true),
        (0x0001, false, 8, true),
        (0x3fff, true, 65_528, true),
    ] {
        let mut bytes = [0u8; 120];
        bytes[..20].copy_from_slice(&HEADER);
        bytes[6..8].copy_from_slice(&word.to_be_bytes());
        let packet = Packet::parse(&bytes).unwrap();
        let found = (packet.more_fragments(), packet.fragment_offset(), packet.is_fragment());
        assert_eq!(found, (more, offset, is_fragment), "{word:#x}");
    }
}

#[test]
fn writes_the_known_header() {
    let header = Header {
        payload_len: 95,
        ..Header::new(
            Ipv4Addr::new(192, 168, 0, 1),
            Ipv4Addr::new(192, 168, 0, 199),
            Protocol::UDP,
        )
    };
    let mut out = [0xffu8; 20];
    header.emit(&mut out).unwrap();
    assert_eq!(out, HEADER);
}

#[test]
fn options_and_fragments() {
    let mut bytes = [0u8; 32];
    bytes[..20].copy_from_slice(&HEADER);
    bytes[0] = 0x46;
    bytes[3] = 28;
    bytes[6..8].copy_from_slice(&0x2003u16.to_be_bytes());
    bytes[20..24].copy_from_slice(&[1, 1, 1, 0]);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.options(), [1, 1, 1, 0]);
    assert_eq!(packet.payload().len(), 4);
    assert!(packet.more_fragments() && packet.is_fragment() && !packet.dont_fragment());
    assert_eq!(packet.fragment_offset(), 24);
    bytes[6] = 0; // the last fragment has no flag, only an offset
    assert!(Packet::parse(&bytes).unwrap().is_fragment());
}

#[test]
fn lengths_that_lie() {
    let mut bytes = [0u8; 115];
    bytes[..20].copy_from_slice(&HEADER);
    assert!(matches!(
        Packet::parse(&bytes[..114]),
        Err(Error::Truncated {
            need: 115,
            have: 114,
            ..
        })
    ));
    assert!(matches!(
        Packet::parse(&bytes[..19]),
        Err(Error::Truncated { need: 20, have: 19, .. })
    ));
    bytes[0] = 0x44;
    assert!(matches!(
        Packet::parse(&bytes),
        Err(Error::Malformed {
            field: "header length",
            value: 4,
            ..
        })
    ));
    bytes[0] = 0x65;
    assert!(matches!(
        Packet::parse(&bytes),
        Err(Error::Malformed {
            field: "version",
            value: 6,
            ..
        })
    ));
    bytes[0] = 0x4f;
    bytes[3] = 59;
    assert!(matches!(
        Packet::parse(&bytes),
        Err(Error::Malformed {
            field: "total length",
            value: 59,
            ..
        })
    ));
}

#[test]
fn payload_longer_than_its_field() {
    let mut header = Header::new(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, Protocol::UDP);
    let mut out = [0u8; 20];
    header.payload_len = 65_515;
    header.emit(&mut out).unwrap();
    for payload_len in [65_516, usize::MAX] {
        header.payload_len = payload_len;
        assert!(matches!(
            header.emit(&mut out),
            Err(Error::TooLong { most: 65_515, .. })
        ));
    }
}

proptest! {
    #[test]
    fn emit_then_parse(
        src: [u8; 4], dst: [u8; 4], protocol: u8, ttl: u8, tos: u8, identification: u16,
        dont_fragment: bool, payload_len in 0usize..200,
    ) {
        let header = Header {
            src: src.into(), dst: dst.into(), protocol: Protocol(protocol),
            ttl, tos, identification, dont_fragment, payload_len,
        };
        let mut bytes = [0u8; 256];
        header.emit(&mut bytes).unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        prop_assert!(packet.verify_checksum());
        prop_assert_eq!(packet.header(), header);
    }

    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), version: bool) {
        if version && let Some(first) = bytes.first_mut() {
            *first = 0x40 | (*first & 0x0f);
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            prop_assert!(packet.total_len() <= bytes.len());
            let _ = packet.verify_checksum();
            let _ = packet.header();
        }
    }
}
