use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// 152.1.51.27:1087 → 152.14.94.75:13 with four bytes of payload.
#[test]
fn checksum_by_hand_v4() {
    let mut bytes = *b"\x04\x3f\x00\x0d\x00\x0c\x00\x00Test";
    fill_checksum(&mut bytes, ip("152.1.51.27"), ip("152.14.94.75")).unwrap();
    // 0x9801 + 0x331b + 0x980e + 0x5e4b + 0x0011 + 0x000c = 0x1c192
    // + 0x043f + 0x000d + 0x000c + 0x5465 + 0x7374 = 0x28dc3 -> 0x8dc5 -> complement 0x723a
    assert_eq!(bytes[6..8], [0x72, 0x3a]);
}

#[test]
fn checksum_by_hand_v6() {
    let mut bytes = *b"\x00\x01\x00\x02\x00\x09\x00\x00\xff"; // odd length
    fill_checksum(&mut bytes, ip("::1"), ip("::2")).unwrap();
    // 1 + 2 + 9 + 17 + 1 + 2 + 9 + 0xff00 = 0xff29 -> complement 0x00d6
    assert_eq!(bytes[6..8], [0x00, 0xd6]);
}

#[test]
fn zero_is_sent_as_all_ones() {
    // 1 + 1 + 17 + 10 + 10 = 39: a payload word of 0xffff - 39 brings the sum to 0xffff.
    let mut bytes = [0, 0, 0, 0, 0, 10, 0, 0, 0xff, 0xd8];
    fill_checksum(&mut bytes, ip("0.0.0.1"), ip("0.0.0.1")).unwrap();
    assert_eq!(bytes[6..8], [0xff, 0xff]);
    assert_eq!(
        checksum_state(&bytes, ip("0.0.0.1"), ip("0.0.0.1")),
        ChecksumState::Valid
    );
}

#[test]
fn zero_received() {
    let bytes = [0, 1, 0, 2, 0, 8, 0, 0];
    assert_eq!(
        checksum_state(&bytes, ip("10.0.0.1"), ip("10.0.0.2")),
        ChecksumState::Absent
    );
    assert_eq!(checksum_state(&bytes, ip("::1"), ip("::2")), ChecksumState::Invalid);
    assert_eq!(update_checksum(0, 1, 2), 0);
}

#[test]
fn pseudo_header_only_is_told_apart() {
    // 0x0a00 + 0x0001 + 0x0a00 + 0x0002 + 17 + 12 = 0x1420
    let mut bytes = *b"\x00\x01\x00\x02\x00\x0c\x14\x20data";
    let (src, dst) = (ip("10.0.0.1"), ip("10.0.0.2"));
    assert_eq!(checksum_state(&bytes, src, dst), ChecksumState::PseudoHeaderOnly);
    bytes[7] ^= 1;
    assert_eq!(checksum_state(&bytes, src, dst), ChecksumState::Invalid);
    fill_checksum(&mut bytes, src, dst).unwrap();
    assert_eq!(checksum_state(&bytes, src, dst), ChecksumState::Valid);
}

#[test]
fn lengths_that_lie() {
    assert!(matches!(
        Datagram::parse(&[0; 7]),
        Err(Error::Truncated { need: 8, have: 7, .. })
    ));
    assert!(matches!(
        Datagram::parse(&[0, 1, 0, 2, 0, 7, 0, 0]),
        Err(Error::Malformed { value: 7, .. })
    ));
    assert!(matches!(
        Datagram::parse(&[0, 1, 0, 2, 0, 9, 0, 0]),
        Err(Error::Truncated { need: 9, have: 8, .. })
    ));
    let header = Header {
        src_port: 0,
        dst_port: 0,
        payload_len: 65_528,
    };
    assert!(matches!(
        header.emit(&mut [0; 8]),
        Err(Error::TooLong { most: 65_527, .. })
    ));
    assert_eq!(
        fill_checksum(&mut [0, 1, 0, 2, 0, 8, 0, 0], ip("::1"), ip("10.0.0.1")),
        Err(Error::FamilyMismatch)
    );
}

fn addresses() -> impl Strategy<Value = (IpAddr, IpAddr)> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
}

proptest! {
    #[test]
    fn emit_then_parse_with_any_payload(
        src_port: u16, dst_port: u16, (src, dst) in addresses(),
        payload in proptest::collection::vec(any::<u8>(), 0..100),
        padding in 0usize..4,
    ) {
        let header = Header { src_port, dst_port, payload_len: payload.len() };
        let mut bytes: Vec<u8> = std::vec![0; HEADER_LEN];
        header.emit(&mut bytes).unwrap();
        bytes.extend_from_slice(&payload);
        bytes.resize(bytes.len() + padding, 0xee);
        fill_checksum(&mut bytes, src, dst).unwrap();
        let datagram = Datagram::parse(&bytes).unwrap();
        prop_assert_eq!(datagram.header(), header);
        prop_assert_eq!(datagram.payload(), &payload[..]);
        prop_assert_ne!(datagram.checksum(), 0);
        prop_assert_eq!(datagram.checksum_state(src, dst), ChecksumState::Valid);
    }

    #[test]
    fn patched_is_recomputed(
        (src, dst) in addresses(),
        mut payload in proptest::collection::vec(any::<u8>(), 2..100),
        at in any::<prop::sample::Index>(), new: u16,
    ) {
        let mut bytes: Vec<u8> = std::vec![0; HEADER_LEN];
        Header { src_port: 1, dst_port: 2, payload_len: payload.len() }.emit(&mut bytes).unwrap();
        bytes.append(&mut payload);
        fill_checksum(&mut bytes, src, dst).unwrap();
        let at = HEADER_LEN + (at.index(bytes.len() - HEADER_LEN - 1) & !1);
        let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
        patch_checksum(&mut bytes, old, new).unwrap();
        let mut again = bytes.clone();
        fill_checksum(&mut again, src, dst).unwrap();
        prop_assert_eq!(bytes, again);
    }

    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), (src, dst) in addresses()) {
        let _ = checksum_state(&bytes, src, dst);
        let _ = fill_checksum(&mut bytes, src, dst);
        let _ = patch_checksum(&mut bytes, 1, 2);
    }
}
