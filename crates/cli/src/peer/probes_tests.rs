use std::net::SocketAddr;

use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_wire::MacAddr;
use ringside_wire::flow::{ChecksumState, UdpFlow, parse_udp};

use super::{answer_in_place, payload, write_probe, write_tagged};

fn flow() -> UdpFlow {
    let address = |host: u8| SocketAddr::from(([198, 18, 0, host], 29_620));
    UdpFlow {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src: address(1),
        dst: address(2),
        ttl: 64,
    }
}

fn request() -> Probe {
    Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session: 5,
        sequence: 7,
        intended_ns: 1,
        sent_ns: 2,
    }
}

#[test]
fn a_request_comes_back_as_its_reply_with_a_right_checksum() {
    let mut bytes = [0; HEADER_LEN];
    request().encode(&mut bytes).unwrap();
    let mut frame = [0xa5; 42 + HEADER_LEN + 9];
    write_probe(&flow(), &mut frame, &bytes).unwrap();
    assert!(answer_in_place(&mut frame));

    let parsed = parse_udp(&frame).unwrap();
    assert_eq!((parsed.src, parsed.dst), (flow().dst, flow().src));
    assert_eq!((parsed.src_mac, parsed.dst_mac), (flow().dst_mac, flow().src_mac));
    assert_eq!(parsed.checksum_state(&frame), ChecksumState::Valid);
    let reply = Probe::decode(payload(&frame).unwrap()).unwrap();
    assert_eq!(
        reply,
        Probe {
            kind: Kind::Reply,
            ..request()
        }
    );

    let before = frame;
    assert!(!answer_in_place(&mut frame), "a reply is not answered");
    assert_eq!(frame, before);
}

#[test]
fn a_frame_without_room_is_refused() {
    let mut frame = [0; 42 + HEADER_LEN - 1];
    assert!(write_probe(&flow(), &mut frame, &[0; HEADER_LEN]).is_err());
}

#[test]
fn a_request_with_a_priority_is_the_same_behind_its_tag() {
    let mut bytes = [0; HEADER_LEN];
    request().encode(&mut bytes).unwrap();
    let mut plain = [0; 42 + HEADER_LEN + 4];
    write_probe(&flow(), &mut plain, &bytes).unwrap();
    let mut tagged = [0; 42 + HEADER_LEN + 8];
    write_tagged(&flow(), &mut tagged, &bytes, Some(5)).unwrap();
    assert_eq!(tagged[..12], plain[..12]);
    assert_eq!(tagged[12..16], [0x81, 0, 0xa0, 0]);
    assert_eq!(tagged[16..], plain[12..]);
    let parsed = parse_udp(&tagged).unwrap();
    assert_eq!(parsed.vlan.map(|tag| tag.0), Some(5 << 13));
    assert!(answer_in_place(&mut tagged));
    let reply = parse_udp(&tagged).unwrap();
    assert_eq!((reply.dst, reply.vlan.map(|tag| tag.0)), (flow().src, Some(5 << 13)));
    assert_eq!(reply.checksum_state(&tagged), ChecksumState::Valid);
    let mut same = [0; 42 + HEADER_LEN + 4];
    write_tagged(&flow(), &mut same, &bytes, None).unwrap();
    assert_eq!(same, plain);
    assert!(write_tagged(&flow(), &mut [0; 42], &bytes, Some(5)).is_err());
}
