use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::{Error, MacAddr};

fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

#[test]
fn echo_by_hand() {
    // 0x0800 + 1 + 2 + 0x4142 = 0x4945 -> complement 0xb6ba; as a reply 0x4145 -> 0xbeba.
    let mut message = *b"\x08\x00\xb6\xba\x00\x01\x00\x02AB";
    assert!(verify_v4(&message));
    let echo = Echo::parse_v4(&message).unwrap();
    assert_eq!(
        echo,
        Echo {
            kind: EchoKind::Request,
            identifier: 1,
            sequence: 2,
            data: b"AB"
        }
    );
    request_to_reply_v4(&mut message).unwrap();
    assert_eq!(message, *b"\x00\x00\xbe\xba\x00\x01\x00\x02AB");
    // A reply is no request: a second turn is refused and changes nothing.
    assert!(request_to_reply_v4(&mut message).is_err());
    assert_eq!(message[2..4], [0xbe, 0xba]);
}

#[test]
fn a_reply_of_zeros_has_a_right_checksum() {
    let mut message = [8, 0, 0xf7, 0xff, 0, 0, 0, 0];
    assert!(verify_v4(&message));
    request_to_reply_v4(&mut message).unwrap();
    assert_eq!(message, [0, 0, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(verify_v4(&message));
}

#[test]
fn other_types_and_codes() {
    assert!(matches!(
        Echo::parse_v4(&[128, 0, 0, 0, 0, 0, 0, 0]),
        Err(Error::Unsupported { value: 0x8000, .. })
    ));
    assert!(matches!(
        Echo::parse_v6(&[128, 1, 0, 0, 0, 0, 0, 0]),
        Err(Error::Unsupported { value: 0x8001, .. })
    ));
    assert!(matches!(
        Echo::parse_v6(&[128; 7]),
        Err(Error::Truncated { need: 8, have: 7, .. })
    ));
    assert!(!verify_v4(&[0xff, 0xff]));
    let neighbor: Vec<u8> = (0..=255).filter(|t| v6::is_neighbor_discovery(*t)).collect();
    assert_eq!(neighbor, [133, 134, 135, 136, 137]);
}

/// A solicitation of fe80::2 by 02:00:00:00:00:01, a nonce option before the source's address.
fn solicitation() -> [u8; 40] {
    let mut message = [0u8; 40];
    message[0] = 135;
    message[8..24].copy_from_slice(&ip("fe80::2").octets());
    message[24..32].copy_from_slice(&[14, 1, 9, 9, 9, 9, 9, 9]);
    message[32..40].copy_from_slice(&[1, 1, 2, 0, 0, 0, 0, 1]);
    message
}

#[test]
fn solicitation_is_read() {
    let message = solicitation();
    assert_eq!(
        NeighborSolicitation::parse(&message),
        Ok(NeighborSolicitation {
            target: ip("fe80::2"),
            source_mac: Some(MacAddr([2, 0, 0, 0, 0, 1]))
        })
    );
    // Duplicate address detection carries no source.
    let probe = NeighborSolicitation::parse(&message[..24]).unwrap();
    assert_eq!(probe.source_mac, None);
}

#[test]
fn solicitation_that_lies() {
    for (at, value) in [(1, 1), (8, 0xff), (25, 0)] {
        let mut message = solicitation();
        message[at] = value;
        assert!(
            matches!(NeighborSolicitation::parse(&message), Err(Error::Malformed { .. })),
            "{at}"
        );
    }
    let mut message = solicitation();
    message[33] = 2;
    assert!(matches!(
        NeighborSolicitation::parse(&message),
        Err(Error::Truncated { need: 16, have: 8, .. })
    ));
    message[0] = 136;
    assert!(matches!(
        NeighborSolicitation::parse(&message),
        Err(Error::Unsupported { value: 136, .. })
    ));
}

#[test]
fn advertisement_by_hand() {
    let advertisement = NeighborAdvertisement {
        target: ip("fe80::2"),
        target_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        router: false,
        solicited: true,
        override_cache: true,
    };
    let (src, dst) = (ip("fe80::2"), ip("fe80::1"));
    let mut out = [0u8; 32];
    advertisement.emit(&mut out, src, dst).unwrap();
    // fe80 + 2 + fe80 + 1 + 32 + 58 + 8800 + 6000 + fe80 + 2 + 0201 + 0200 + 2
    // = 0x3e7e2 -> 0xe7e5 -> complement 0x181a
    assert_eq!(out[..8], [136, 0, 0x18, 0x1a, 0x60, 0, 0, 0]);
    assert_eq!(out[24..], [2, 1, 2, 0, 0, 0, 0, 2]);
    assert!(verify_v6(&out, src, dst));
    assert!(!verify_v6(&out, src, src));
}

/// UDP 10.0.0.1:1000 → 10.0.0.2:53, in a header with one word of options.
const QUOTE: [u8; 32] =
    *b"\x46\0\x01\0\0\0\0\0\x40\x11\0\0\x0a\0\0\x01\x0a\0\0\x02\x01\x01\x01\0\x03\xe8\0\x35\0\xe8\0\0";

#[test]
fn errors_by_hand() {
    let mut message = std::vec![3, 4, 0, 0, 0, 0, 0x05, 0x78];
    message.extend_from_slice(&QUOTE);
    let error = ErrorMessage::parse_v4(&message).unwrap();
    assert_eq!(error.kind, ErrorKind::TooBig { mtu: 1400 });
    assert_eq!((error.message_type, error.code), (3, 4));
    let quoted = Quoted::parse_v4(error.quote).unwrap();
    assert_eq!(
        quoted,
        Quoted {
            src: "10.0.0.1".parse().unwrap(),
            dst: "10.0.0.2".parse().unwrap(),
            protocol: Protocol::UDP,
            fragment_offset: 0,
            upper: &QUOTE[24..],
        }
    );

    let mut quote = std::vec![0x60, 0, 0, 0, 0x05, 0xdc, 44, 1];
    quote.extend_from_slice(&ip("fd00::1").octets());
    quote.extend_from_slice(&ip("fd00::2").octets());
    quote.extend_from_slice(&[17, 0, 0x01, 0x01, 0, 0, 0, 9]); // the fragment 256 of number 9
    let mut message = std::vec![2, 0, 0, 0, 0, 1, 0, 0];
    message.extend_from_slice(&quote);
    let error = ErrorMessage::parse_v6(&message).unwrap();
    assert_eq!(error.kind, ErrorKind::TooBig { mtu: 65_536 });
    let quoted = Quoted::parse_v6(error.quote).unwrap();
    assert_eq!((quoted.protocol, quoted.fragment_offset), (Protocol::UDP, 256));
    assert!(quoted.upper.is_empty());
}

/// The types of RFC 792 and RFC 4443 §2.1.
#[test]
fn each_type_of_error_has_its_kind() {
    use ErrorKind::{ParameterProblem, TimeExceeded, TooBig, Unreachable};
    for (message_type, kind) in [(3, Unreachable), (11, TimeExceeded), (12, ParameterProblem)] {
        let message = [message_type, 0, 0, 0, 0, 0, 0, 0];
        let error = ErrorMessage::parse_v4(&message).unwrap();
        assert_eq!(error.kind, kind, "type {message_type}");
    }
    for (message_type, kind) in [
        (1, Unreachable),
        (2, TooBig { mtu: 1280 }),
        (3, TimeExceeded),
        (4, ParameterProblem),
    ] {
        let message = [message_type, 0, 0, 0, 0, 0, 5, 0];
        let error = ErrorMessage::parse_v6(&message).unwrap();
        assert_eq!(error.kind, kind, "type {message_type}");
    }
}

/// A header without options, of the fragment that begins with byte 1480.
#[test]
fn a_quoted_fragment_says_where_it_belongs() {
    let mut quote = QUOTE;
    quote[0] = 0x45;
    quote[6..8].copy_from_slice(&(0x2000_u16 | (1480 / 8)).to_be_bytes());
    let quoted = Quoted::parse_v4(&quote).unwrap();
    assert_eq!(quoted.fragment_offset, 1480);
    assert_eq!(quoted.upper, &QUOTE[20..]);
}

#[test]
fn a_router_advertises_itself_as_one() {
    for (router, solicited, override_cache, flags) in [
        (true, false, false, 0x80),
        (false, true, false, 0x40),
        (false, false, true, 0x20),
        (true, true, true, 0xe0),
    ] {
        let advertisement = NeighborAdvertisement {
            target: ip("fe80::2"),
            target_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            router,
            solicited,
            override_cache,
        };
        let mut out = [0u8; 32];
        advertisement.emit(&mut out, ip("fe80::2"), ip("fe80::1")).unwrap();
        assert_eq!(out[4], flags);
    }
}

#[test]
fn errors_that_are_none() {
    let kinds = |message: [u8; 8]| {
        let [v4, v6] = [ErrorMessage::parse_v4(&message), ErrorMessage::parse_v6(&message)];
        (v4.ok().map(|error| error.kind), v6.ok().map(|error| error.kind))
    };
    assert_eq!(kinds([5, 0, 0, 0, 0, 0, 0, 0]), (None, None), "a redirect");
    assert_eq!(kinds([8, 0, 0, 0, 0, 0, 0, 0]), (None, None), "an echo");
    assert_eq!(
        kinds([3, 1, 0, 0, 0, 0, 0, 0]),
        (Some(ErrorKind::Unreachable), Some(ErrorKind::TimeExceeded))
    );
    for (at, value) in [(0, 0x66), (0, 0x44)] {
        let mut quote = QUOTE;
        quote[at] = value;
        assert!(matches!(Quoted::parse_v4(&quote), Err(Error::Malformed { .. })));
    }
    assert!(matches!(
        Quoted::parse_v4(&QUOTE[..19]),
        Err(Error::Truncated { need: 20, .. })
    ));
    assert!(matches!(
        Quoted::parse_v4(&QUOTE[..23]),
        Err(Error::Truncated { need: 24, .. })
    ));
    assert!(matches!(
        Quoted::parse_v6(&[0x45; 60]),
        Err(Error::Malformed {
            field: "version",
            value: 4,
            ..
        })
    ));
}

proptest! {
    #[test]
    fn reply_has_the_checksum_of_a_recomputation(
        identifier: u16, sequence: u16, data in proptest::collection::vec(any::<u8>(), 0..64),
        src: [u8; 16], dst: [u8; 16],
    ) {
        let (src, dst) = (Ipv6Addr::from(src), Ipv6Addr::from(dst));
        let build = |message_type: u8, v6: bool| {
            let mut message = std::vec![message_type, 0, 0, 0];
            message.extend_from_slice(&identifier.to_be_bytes());
            message.extend_from_slice(&sequence.to_be_bytes());
            message.extend_from_slice(&data);
            let pseudo = if v6 {
                pseudo_v6(src, dst, Protocol::ICMPV6, u32::try_from(message.len()).unwrap())
            } else {
                Sum::ZERO
            };
            let checksum = pseudo.bytes(&message).finish();
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            message
        };
        let mut message = build(128, true);
        prop_assert!(verify_v6(&message, src, dst));
        request_to_reply_v6(&mut message).unwrap();
        prop_assert_eq!(message, build(129, true));

        let mut message = build(8, false);
        request_to_reply_v4(&mut message).unwrap();
        prop_assert!(verify_v4(&message));
        prop_assert_eq!(Echo::parse_v4(&message).unwrap().data, &data[..]);
    }

    #[test]
    fn never_panics(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), first in 126u8..140) {
        if let Some(byte) = bytes.first_mut() {
            *byte = first;
        }
        let _ = Echo::parse_v4(&bytes);
        let _ = Echo::parse_v6(&bytes);
        let _ = NeighborSolicitation::parse(&bytes);
        let _ = ErrorMessage::parse_v4(&bytes);
        let _ = ErrorMessage::parse_v6(&bytes);
        let _ = Quoted::parse_v4(&bytes);
        let _ = Quoted::parse_v6(&bytes);
        let _ = request_to_reply_v6(&mut bytes);
        let _ = verify_v4(&bytes);
        let _ = verify_v6(&bytes, Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST);
    }
}
