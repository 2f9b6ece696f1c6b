use std::net::SocketAddr;

use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_wire::MacAddr;
use ringside_wire::flow::{ChecksumState, UdpFlow, parse_udp};

use super::{answer_in_place, payload, write_probe};

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
