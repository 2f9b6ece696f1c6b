use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn packet(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut bytes = std::vec![0u8; HEADER_LEN];
    Header {
        payload_len: payload.len(),
        ..Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, next_header)
    }
    .emit(&mut bytes)
    .unwrap();
    bytes.extend_from_slice(payload);
    bytes
}

#[test]
fn the_total_length_is_header_and_payload() {
    let bytes = packet(Protocol::UDP, &[0; 9]);
    assert_eq!(Packet::parse(&bytes).unwrap().total_len(), 49);
}

/// The first fragment has what comes behind the fragment header, and another has not (RFC 8200 §4.5).
#[test]
fn only_the_first_fragment_is_followed() {
    let options = [17, 0, 1, 4, 0, 0, 0, 0];
    for (offset, protocol) in [(0, Protocol::UDP), (8, Protocol::DESTINATION_OPTIONS)] {
        let fragment = [60, 0, 0, offset | 1, 0, 0, 0, 9];
        let bytes = packet(Protocol::FRAGMENT, &[&fragment[..], &options, &[0; 8]].concat());
        let upper = Packet::parse(&bytes).unwrap().upper_layer().unwrap();
        assert_eq!(upper.protocol, protocol, "offset {offset}");
        assert_eq!(upper.fragment.unwrap().offset, usize::from(offset));
    }
}

#[test]
fn writes_and_reads_a_known_header() {
    let header = Header {
        src: "2001:db8::1".parse().unwrap(),
        dst: "ff02::1:ff00:2".parse().unwrap(),
        next_header: Protocol::ICMPV6,
        hop_limit: 255,
        traffic_class: 0xb8,
        flow_label: 0x12345,
        payload_len: 2,
    };
    let mut bytes = [0u8; 43];
    header.emit(&mut bytes).unwrap();
    assert_eq!(bytes[..8], [0x6b, 0x81, 0x23, 0x45, 0, 2, 58, 255]);
    assert_eq!(bytes[8..12], [0x20, 0x01, 0x0d, 0xb8]);
    assert_eq!(bytes[36..40], [0xff, 0, 0, 2]);
    let packet = Packet::parse(&bytes).unwrap();
    assert_eq!(packet.header(), header);
    assert_eq!(packet.payload(), [0, 0]);
}

#[test]
fn lengths_that_lie() {
    let bytes = packet(Protocol::UDP, &[0; 8]);
    assert!(matches!(
        Packet::parse(&bytes[..47]),
        Err(Error::Truncated { need: 48, have: 47, .. })
    ));
    assert!(matches!(
        Packet::parse(&bytes[..39]),
        Err(Error::Truncated { need: 40, have: 39, .. })
    ));
    let mut other = bytes.clone();
    other[0] = 0x45;
    assert!(matches!(Packet::parse(&other), Err(Error::Malformed { value: 4, .. })));
}

#[test]
fn walks_every_kind_of_extension_header() {
    let mut payload = std::vec![43, 1]; // hop-by-hop of 16 bytes, then routing
    payload.extend_from_slice(&[0; 14]);
    payload.extend_from_slice(&[60, 0, 4, 0, 0, 0, 0, 0]); // routing, no stop left
    payload.extend_from_slice(&[44, 0, 0, 0, 0, 0, 0, 0]); // destination options
    payload.extend_from_slice(&[17, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef]); // atomic fragment
    payload.extend_from_slice(b"upper");
    let bytes = packet(Protocol::HOP_BY_HOP, &payload);
    let upper = Packet::parse(&bytes).unwrap().upper_layer().unwrap();
    assert_eq!(
        (upper.protocol, upper.offset, upper.bytes),
        (Protocol::UDP, 80, &b"upper"[..])
    );
    let fragment = upper.fragment.unwrap();
    assert!(fragment.is_atomic() && !upper.has_stops_left);
    assert_eq!(fragment.identification, 0xdead_beef);
}

#[test]
fn routing_with_stops_left() {
    let mut payload = std::vec![17, 0, 4, 2, 0, 0, 0, 0];
    payload.extend_from_slice(&[0; 8]);
    let bytes = packet(Protocol::ROUTING, &payload);
    let upper = Packet::parse(&bytes).unwrap().upper_layer().unwrap();
    assert!(upper.has_stops_left);
    assert_eq!(upper.protocol, Protocol::UDP);
}

#[test]
fn a_later_fragment_ends_the_walk() {
    // Offset 8, more to come; its "next header" names what the first fragment began with.
    let payload = [60, 0, 0, 9, 0, 0, 0, 7, 0xff];
    let bytes = packet(Protocol::FRAGMENT, &payload);
    let upper = Packet::parse(&bytes).unwrap().upper_layer().unwrap();
    assert_eq!(
        upper.fragment,
        Some(Fragment {
            offset: 8,
            more: true,
            identification: 7
        })
    );
    assert_eq!(
        (upper.protocol, upper.bytes),
        (Protocol::DESTINATION_OPTIONS, &[0xff][..])
    );
}

#[test]
fn eight_headers_pass_and_nine_do_not() {
    for (count, passes) in [(8, true), (9, false)] {
        let mut payload = Vec::new();
        for i in 1..=count {
            payload.extend_from_slice(&[if i == count { 17 } else { 60 }, 0, 0, 0, 0, 0, 0, 0]);
        }
        let bytes = packet(Protocol::DESTINATION_OPTIONS, &payload);
        let upper = Packet::parse(&bytes).unwrap().upper_layer();
        assert_eq!(upper.is_ok(), passes, "{count}");
    }
}

#[test]
fn extension_header_cut_short() {
    let bytes = packet(Protocol::HOP_BY_HOP, &[17, 1, 0, 0, 0, 0, 0, 0]);
    assert!(matches!(
        Packet::parse(&bytes).unwrap().upper_layer(),
        Err(Error::Truncated { need: 16, have: 8, .. })
    ));
}

proptest! {
    #[test]
    fn emit_then_parse(
        src: [u8; 16], dst: [u8; 16], next_header: u8, hop_limit: u8, traffic_class: u8,
        flow_label in 0u32..1 << 20, payload_len in 0usize..100,
    ) {
        let header = Header {
            src: src.into(), dst: dst.into(), next_header: Protocol(next_header),
            hop_limit, traffic_class, flow_label, payload_len,
        };
        let mut bytes = [0u8; 140];
        header.emit(&mut bytes).unwrap();
        prop_assert_eq!(Packet::parse(&bytes).unwrap().header(), header);
    }

    #[test]
    fn never_panics(first in prop::sample::select(std::vec![0u8, 43, 44, 60]),
                    payload in proptest::collection::vec(prop_oneof![any::<u8>(),
                        prop::sample::select(std::vec![0u8, 43, 44, 60])], 0..200)) {
        let bytes = packet(Protocol(first), &payload);
        if let Ok(upper) = Packet::parse(&bytes).unwrap().upper_layer() {
            prop_assert_eq!(&bytes[upper.offset..], upper.bytes);
        }
        let _ = Packet::parse(&payload);
    }
}
