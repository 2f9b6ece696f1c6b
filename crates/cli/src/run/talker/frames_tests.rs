use std::net::SocketAddr;

use ringside_wire::MacAddr;
use ringside_wire::flow::{ChecksumState, parse_udp};

use super::*;

fn frames(addresses: [&str; 2], vlan: u16) -> Frames {
    let [src, dst] = addresses.map(|text| text.parse::<SocketAddr>().unwrap());
    let flow = UdpFlow {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        src,
        dst,
        ttl: 64,
    };
    let classes = ["5:0us:100us:200:2", "3:200us:300us:131"].map(|text| text.parse().unwrap());
    let schedule = Schedule::new(1_000_000, classes.to_vec()).unwrap();
    Frames::new(flow, 9, &schedule, vlan, schedule.slots()).unwrap()
}

#[test]
fn a_frame_is_tagged_and_whole() {
    for addresses in [
        ["192.0.2.1:5", "192.0.2.2:29620"],
        ["[2001:db8::1]:5", "[2001:db8::2]:29620"],
    ] {
        let mut frames = frames(addresses, 10);
        for (slot, pcp, len) in [(0, 5, 200), (2, 3, 131), (1, 5, 200)] {
            let which = frames.which(slot, 4, 7_000_000).unwrap();
            let frame = frames.write(which, 6_999_999, which.sequence - 3).unwrap();
            assert_eq!(frame.len(), len);
            let packet = parse_udp(frame).unwrap();
            let tag = packet.vlan.unwrap();
            assert_eq!((tag.priority(), tag.id(), tag.drop_eligible()), (pcp, 10, false));
            assert_eq!(
                (packet.src_mac, packet.dst_mac),
                (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]))
            );
            assert_eq!(packet.checksum_state(frame), ChecksumState::Valid);
            let payload = &frame[packet.payload.clone()];
            let probe = Probe::decode(payload).unwrap();
            assert_eq!((probe.session, probe.clock, probe.sent_ns), (9, Clock::Tai, 6_999_999));
            assert_eq!((probe.sequence, probe.intended_ns), (which.sequence, which.intended_ns));
            let part = StreamPart::decode(payload).unwrap();
            assert_eq!((part.pcp, part.skipped), (pcp, 3));
        }
    }
}

#[test]
fn numbers_go_with_the_schedule() {
    let frames = frames(["192.0.2.1:5", "192.0.2.2:29620"], 0);
    let which = |slot, cycle| {
        let which = frames.which(slot, cycle, 7_000_000).unwrap();
        (which.class, which.sequence, which.intended_ns)
    };
    assert_eq!(which(0, 0), (0, 0, 7_000_000));
    assert_eq!(which(1, 0), (0, 1, 7_050_000));
    assert_eq!(which(2, 0), (1, 0, 7_200_000));
    assert_eq!(which(1, 10), (0, 21, 7_050_000));
    assert_eq!(frames.which(3, 0, 0), None);
    assert_eq!(frames.due(None), [0, 0]);
    assert_eq!(frames.due(Some((0, 0))), [1, 0]);
    assert_eq!(frames.due(Some((9, 1))), [20, 9]);
    assert_eq!(frames.due(Some((9, 2))), [20, 10]);
}

#[test]
fn ipv6_needs_more_room() {
    let schedule = Schedule::new(1_000_000, vec!["5:0us:100us:100".parse().unwrap()]).unwrap();
    let flow = UdpFlow {
        src: "[2001:db8::1]:5".parse().unwrap(),
        dst: "[2001:db8::2]:5".parse().unwrap(),
        ..frames(["192.0.2.1:5", "192.0.2.2:29620"], 0).flow
    };
    let error = Frames::new(flow, 9, &schedule, 0, schedule.slots())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("it takes 114"), "{error}");
}
