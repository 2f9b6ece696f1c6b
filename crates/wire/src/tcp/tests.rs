use std::format;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

/// 40000 → 443, SYN, sequence 0x01020304, window 64240; MSS, SACK permitted, time stamps, nothing, window scale 7.
const SYN: [u8; 40] = *b"\x9c\x40\x01\xbb\x01\x02\x03\x04\0\0\0\0\xa0\x02\xfa\xf0\xab\xcd\0\0\
    \x02\x04\x05\xb4\x04\x02\x08\x0a\0\0\0\x01\0\0\0\0\x01\x03\x03\x07";

#[test]
fn a_syn_by_hand() {
    let segment = Segment::parse(&SYN).unwrap();
    assert_eq!((segment.src_port(), segment.dst_port()), (40_000, 443));
    assert_eq!((segment.sequence(), segment.acknowledgment()), (0x0102_0304, 0));
    assert_eq!((segment.flags(), segment.window()), (Flags::SYN, 64_240));
    assert_eq!((segment.header_len(), segment.checksum()), (40, 0xabcd));
    assert_eq!(
        segment.options(),
        Options {
            window_scale: Some(7),
            sack_permitted: true
        }
    );
}

#[test]
fn what_takes_sequence_numbers() {
    for (flags, payload, numbers) in [
        (Flags::SYN, 0, 1),
        (Flags::ACK, 0, 0),
        (Flags::ACK | Flags::PSH, 5, 5),
        (Flags::FIN | Flags::ACK, 5, 6),
        (Flags::SYN | Flags::FIN, 0, 2),
    ] {
        let mut bytes = [0; HEADER_LEN + 5];
        let len = Header::new(1, 2, flags).emit(&mut bytes).unwrap();
        let segment = Segment::parse(&bytes[..len + payload]).unwrap();
        assert_eq!(segment.payload().len(), payload);
        assert_eq!(segment.sequence_len(), numbers, "{flags:?}");
    }
}

#[test]
fn checksum_states_are_told_apart() {
    let [a, b, c]: [IpAddr; 3] = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|ip| ip.parse().unwrap());
    // Nothing of the pseudo header's sum by chance: 0x0a00 + 1 + 0x0a00 + 2 + 6 + 47.
    let left = 0x1438u16;
    let mut bytes = [&SYN[..], b"odd len"].concat();
    let state = |bytes: &[u8], src, dst| Segment::parse(bytes).unwrap().checksum_state(src, dst);
    assert_eq!(state(&bytes, a, b), ChecksumState::Invalid);
    bytes[16..18].copy_from_slice(&left.to_be_bytes());
    assert_eq!(state(&bytes, a, b), ChecksumState::PseudoHeaderOnly);
    // Completed, as a NIC does it.
    let complete = Sum::of(&bytes).finish();
    bytes[16..18].copy_from_slice(&complete.to_be_bytes());
    assert_eq!(state(&bytes, a, b), ChecksumState::Valid);
    for at in [0, 16, 30, 46] {
        bytes[at] ^= 1;
        assert_eq!(state(&bytes, a, b), ChecksumState::Invalid, "byte {at}");
        bytes[at] ^= 1;
    }
    assert_eq!(state(&bytes, a, c), ChecksumState::Invalid, "of two families");
    assert_eq!(
        state(&bytes, a, "10.0.0.3".parse().unwrap()),
        ChecksumState::Invalid,
        "to somebody else"
    );
}

/// RFC 9293 §3.2: nothing counts behind the end of the options, whatever the bytes there look like.
#[test]
fn the_end_of_options_ends_them() {
    for (first, scale) in [([1, 1], Some(7)), ([0, 2], None)] {
        let mut bytes = [0; HEADER_LEN + 8];
        Header::new(1, 2, Flags::SYN).emit(&mut bytes).unwrap();
        bytes[12] = 7 << 4;
        bytes[HEADER_LEN..].copy_from_slice(&[first[0], first[1], 3, 3, 7, 1, 1, 1]);
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!(segment.options().window_scale, scale, "{first:?}");
    }
}

#[test]
fn flags_are_named() {
    assert_eq!(format!("{:?}", Flags::SYN | Flags::ACK), "SYN|ACK");
    assert_eq!(format!("{:?}", Flags(0)), "none");
    assert_eq!(Flags::FIN | Flags::FIN | Flags::ACK, Flags(0x11));
    assert_eq!(Flags(0xff).of_state(), Flags(0x17));
    assert!(!Flags::SYN.has(Flags::SYN | Flags::ACK));
}

#[test]
fn lengths_that_lie() {
    assert!(matches!(
        Segment::parse(&SYN[..19]),
        Err(Error::Truncated { need: 20, have: 19, .. })
    ));
    assert!(matches!(
        Segment::parse(&SYN[..39]),
        Err(Error::Truncated { need: 40, have: 39, .. })
    ));
    let mut bytes = SYN;
    bytes[12] = 4 << 4;
    assert!(matches!(Segment::parse(&bytes), Err(Error::Malformed { value: 4, .. })));
    assert!(matches!(
        Header::new(1, 2, Flags::SYN).emit(&mut [0; 19]),
        Err(Error::NoRoom { need: 20, .. })
    ));
}

#[test]
fn options_that_lie() {
    let with = |options: &[u8]| {
        let mut bytes = SYN;
        bytes[20..].fill(OPTION_END);
        bytes[20..20 + options.len()].copy_from_slice(options);
        Segment::parse(&bytes).unwrap().options()
    };
    let scale = |window_scale| Options {
        window_scale,
        ..Options::default()
    };
    assert_eq!(with(&[3, 3, 200]), scale(Some(MAX_WINDOW_SCALE)), "as RFC 7323 asks");
    assert_eq!(with(&[3, 0, 7]), scale(None), "no length");
    assert_eq!(with(&[3, 1, 7]), scale(None), "a length inside the option's head");
    assert_eq!(with(&[3, 4, 7, 7]), scale(None), "another length");
    assert_eq!(with(&[0, 3, 3, 7]), scale(None), "behind the end");
    assert_eq!(with(&[254, 17, 3, 3, 7]), scale(None), "inside another");
    let mut all = [1; 20];
    all[19] = 3;
    assert_eq!(with(&all), scale(None), "a kind alone at the end");
}

proptest! {
    #[test]
    fn emit_then_parse(
        src_port: u16, dst_port: u16, sequence: u32, acknowledgment: u32, flags: u8, window: u16,
        window_scale in proptest::option::of(0..=MAX_WINDOW_SCALE), payload in proptest::collection::vec(any::<u8>(), 0..50),
    ) {
        let header = Header { src_port, dst_port, sequence, acknowledgment, flags: Flags(flags), window, window_scale };
        let mut bytes: Vec<u8> = std::vec![0xee; Header::MOST];
        let len = header.emit(&mut bytes).unwrap();
        bytes.truncate(len);
        bytes.extend_from_slice(&payload);
        let segment = Segment::parse(&bytes).unwrap();
        let again = Header {
            src_port: segment.src_port(),
            dst_port: segment.dst_port(),
            sequence: segment.sequence(),
            acknowledgment: segment.acknowledgment(),
            flags: segment.flags(),
            window: segment.window(),
            window_scale: segment.options().window_scale,
        };
        prop_assert_eq!(again, header);
        prop_assert_eq!(segment.payload(), &payload[..]);
    }

    #[test]
    fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(segment) = Segment::parse(&bytes) {
            let _ = segment.options();
            prop_assert_eq!(segment.header_len() + segment.payload().len(), bytes.len());
        }
    }
}
