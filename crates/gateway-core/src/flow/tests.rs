use proptest::prelude::*;
use ringside_wire::ipv4::Header as V4;
use ringside_wire::ipv6::Header as V6;

use super::*;

fn v4(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv4::HEADER_LEN];
    let header = V4::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), protocol);
    let payload_len = payload.len();
    V4 { payload_len, ..header }.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

fn v6(next: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; ipv6::HEADER_LEN];
    let header = V6::new("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap(), next);
    let payload_len = payload.len();
    V6 { payload_len, ..header }.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

/// An IPv4 packet that is a fragment: its offset in bytes, and whether more follow.
fn piece(mut packet: Vec<u8>, offset: u16, more: bool) -> Vec<u8> {
    packet[4..6].copy_from_slice(&9_u16.to_be_bytes());
    let more = if more { 0x2000 } else { 0 };
    packet[6..8].copy_from_slice(&(more | (offset / 8)).to_be_bytes());
    packet
}

fn syn() -> Vec<u8> {
    let mut bytes = vec![0; tcp::Header::MOST];
    let header = tcp::Header {
        sequence: 7,
        window: 1000,
        window_scale: Some(3),
        ..tcp::Header::new(4000, 80, Flags::SYN)
    };
    header.emit(&mut bytes).unwrap();
    bytes
}

const SYN: Segment = Segment {
    ports: [4000, 80],
    sequence: 7,
    len: 1,
    acknowledgment: 0,
    flags: Flags::SYN,
    window: 1000,
    scale: Some(3),
};

const UDP: [u8; 12] = *b"\x0f\xa0\x00\x35\x00\x0c\0\0data";

#[test]
fn tcp_in_both_families() {
    for packet in [v4(Protocol::TCP, &syn()), v6(Protocol::TCP, &syn())] {
        let flow = Flow::parse(&packet).unwrap();
        assert_eq!((flow.protocol, flow.hops, flow.fragment), (Protocol::TCP, 64, None));
        assert_eq!(flow.upper, Upper::Tcp(SYN));
        assert_eq!((flow.service(), flow.ends()), (Some(80), Some(Ends::Ports([4000, 80]))));
    }
}

#[test]
fn behind_extension_headers() {
    // Hop-by-hop options of 8 bytes, destination options of 16, a fragment header that is none (RFC 6946), UDP.
    let mut headers = vec![60, 0, 1, 4, 0, 0, 0, 0, 44, 1];
    headers.extend_from_slice(&[0; 14]);
    headers.extend_from_slice(&[17, 0, 0, 0, 0, 0, 0, 9]);
    headers.extend_from_slice(&UDP);
    let flow = Flow::parse(&v6(Protocol::HOP_BY_HOP, &headers)).unwrap();
    assert_eq!(flow.protocol, Protocol::UDP);
    assert_eq!((flow.upper, flow.fragment), (Upper::Ports([4000, 53]), None));
}

#[test]
fn ports_of_others() {
    for protocol in [Protocol::SCTP, Protocol::DCCP, Protocol::UDP_LITE] {
        let flow = Flow::parse(&v4(protocol, &UDP)).unwrap();
        assert_eq!(flow.upper, Upper::Ports([4000, 53]), "{protocol}");
        assert!(Flow::parse(&v4(protocol, &UDP[..7])).is_err(), "{protocol} cut short");
    }
    let flow = Flow::parse(&v4(Protocol(47), &[])).unwrap();
    assert_eq!(
        (flow.upper, flow.service(), flow.ends()),
        (Upper::Other, Some(0), Some(Ends::None))
    );
}

#[test]
fn fragments_of_both_families() {
    let first = Flow::parse(&piece(v4(Protocol::UDP, &UDP[..8]), 0, true)).unwrap();
    assert_eq!(first.upper, Upper::Ports([4000, 53]), "although its length says more");
    let piece_of = |first| {
        Some(Piece {
            identification: 9,
            first,
        })
    };
    assert_eq!(first.fragment, piece_of(true));
    let later = Flow::parse(&piece(v4(Protocol::UDP, &UDP), 8, false)).unwrap();
    assert_eq!((later.upper, later.fragment), (Upper::Later, piece_of(false)));
    assert_eq!((later.service(), later.ends()), (None, None));

    let mut bytes = vec![17, 0, 0, 1, 0, 0, 0, 9];
    bytes.extend_from_slice(&UDP);
    let first = Flow::parse(&v6(Protocol::FRAGMENT, &bytes)).unwrap();
    assert_eq!(
        (first.upper, first.fragment),
        (Upper::Ports([4000, 53]), piece_of(true))
    );
    bytes[3] = 8;
    let later = Flow::parse(&v6(Protocol::FRAGMENT, &bytes)).unwrap();
    assert_eq!((later.upper, later.fragment), (Upper::Later, piece_of(false)));
}

#[test]
fn what_is_made_to_get_around_rules() {
    let tiny = piece(v4(Protocol::TCP, &syn()[..8]), 0, true);
    assert!(
        matches!(Flow::parse(&tiny), Err(Error::Truncated { .. })),
        "flags elsewhere"
    );
    for offset in [8, 16] {
        let overlapping = piece(v4(Protocol::TCP, &[0; 16]), offset, true);
        assert!(
            matches!(Flow::parse(&overlapping), Err(Error::Malformed { .. })),
            "other flags"
        );
    }
    assert!(Flow::parse(&piece(v4(Protocol::TCP, &[0; 16]), 24, true)).is_ok());

    let mut mapped = v6(Protocol::UDP, &UDP);
    mapped[24..40].copy_from_slice(&"::ffff:10.0.0.2".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert!(matches!(Flow::parse(&mapped), Err(Error::Malformed { .. })));

    let mut from_many = v4(Protocol::UDP, &UDP);
    from_many[12] = 224;
    assert!(matches!(Flow::parse(&from_many), Err(Error::Malformed { .. })));

    let mut routed = vec![17, 0, 0, 1, 0, 0, 0, 0];
    routed.extend_from_slice(&UDP);
    assert!(matches!(
        Flow::parse(&v6(Protocol::ROUTING, &routed)),
        Err(Error::Unsupported { .. })
    ));
    routed[3] = 0;
    assert!(Flow::parse(&v6(Protocol::ROUTING, &routed)).is_ok(), "no stops left");
}

#[test]
fn questions_and_answers() {
    let query = |asks, kind| Query {
        kind,
        identifier: 0x0102,
        asks,
    };
    for (protocol, message_type, expected) in [
        (Protocol::ICMP, 8, query(true, QueryKind::Echo)),
        (Protocol::ICMP, 0, query(false, QueryKind::Echo)),
        (Protocol::ICMP, 13, query(true, QueryKind::Time)),
        (Protocol::ICMP, 14, query(false, QueryKind::Time)),
        (Protocol::ICMPV6, 128, query(true, QueryKind::Echo)),
        (Protocol::ICMPV6, 129, query(false, QueryKind::Echo)),
    ] {
        let message = [message_type, 0, 0, 0, 1, 2, 0, 0];
        let packet = if protocol == Protocol::ICMP {
            v4(protocol, &message)
        } else {
            v6(protocol, &message)
        };
        let flow = Flow::parse(&packet).unwrap();
        assert_eq!(flow.upper, Upper::Query(expected));
        assert_eq!(flow.service(), Some(u16::from(message_type) << 8));
    }
    let redirect = Flow::parse(&v4(Protocol::ICMP, &[5, 1, 0, 0, 0, 0, 0, 0])).unwrap();
    let expected = Upper::Icmp {
        message_type: 5,
        code: 1,
    };
    assert_eq!(
        (redirect.upper, redirect.service(), redirect.ends()),
        (expected, Some(0x0501), None)
    );
}

#[test]
fn errors_and_what_they_are_about() {
    let error = |quote: &[u8]| {
        let message = [&[3, 1, 0, 0, 0, 0, 0, 0], quote].concat();
        match Flow::parse(&v4(Protocol::ICMP, &message)).unwrap().upper {
            Upper::Error(about) => about.packet,
            other => panic!("{other:?}"),
        }
    };
    let segment = v4(Protocol::TCP, &syn());
    let quoted = error(&segment[..28]).unwrap();
    assert_eq!(quoted.source, IpAddr::from([10, 0, 0, 1]));
    assert_eq!(quoted.ends, Ends::Ports([4000, 80]));
    assert_eq!(quoted.sequence, Some(7));
    assert_eq!(error(&segment[..27]), None, "no eight bytes");
    assert_eq!(error(&piece(segment, 24, false)), None, "a later fragment");
    assert_eq!(error(&v4(Protocol::ICMP, &[3, 1, 0, 0, 0, 0, 0, 0])), None, "an error");
    let ping = error(&v4(Protocol::ICMP, &[8, 0, 0, 0, 1, 2, 0, 0])).unwrap();
    assert!(matches!(ping.ends, Ends::Query(Query { asks: true, .. })));
    assert_eq!(error(&[]), None);
}

proptest! {
    /// Whatever comes, nothing panics, and what is read tells as much as rules need.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..120), version in 4_u8..=6, protocol in 0_usize..9) {
        let protocols = [0, 1, 6, 17, 43, 44, 58, 60, 132];
        if let Some(first) = bytes.first_mut() {
            *first = version << 4 | 5;
        }
        if let [_, _, total_high, total_low, high, low, next, _, _, v4_next, ..] = &mut bytes[..] {
            match version {
                4 => (*total_high, *total_low, *v4_next) = (0, 60, protocols[protocol]),
                _ => (*high, *low, *next) = (0, 60, protocols[protocol]),
            }
        }
        if let Ok(flow) = Flow::parse(&bytes) {
            prop_assert_eq!(flow.source.is_ipv4(), flow.destination.is_ipv4());
            prop_assert_eq!(flow.service().is_none(), flow.upper == Upper::Later);
            prop_assert_eq!(flow.upper == Upper::Later, flow.fragment.is_some_and(|piece| !piece.first));
        }
    }
}
