//! reflect.bpf.c on named packets, and on a veth.

use crate::common;
use crate::common::packets::*;
use crate::common::{Pair, pin, privileged};
use ringside_bpf::{
    Error, Generator, GeneratorOptions, Neighbours, ProbeMarks, Reflect, Reflector, Sink, Verdict, XdpMode, dry_run,
};
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};

/// Magic, then version 1; kinds as in the probe protocol.
const MARKS: ProbeMarks = ProbeMarks {
    magic: 0x5253_4450_0100_0000,
    magic_len: 5,
    kind_offset: 5,
    request: 1,
    reply: 2,
};

/// Magic, version, kind and something of `length` bytes in all.
fn probe(kind: u8, length: usize) -> Vec<u8> {
    let mut payload = b"RSDP\x01".to_vec();
    payload.push(kind);
    payload.extend((6..length).map(|i| u8::try_from(i % 251).unwrap()));
    payload
}

fn frame4(payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT, payload)))
}

fn frame6(payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV6, &ipv6(UDP, &udp(PORT, payload)))
}

/// The frame as it should come back, the checksum apart.
fn answered(frame: &[u8], kind_offset: usize) -> Vec<u8> {
    let mut reply = frame.to_vec();
    reply[..6].copy_from_slice(&frame[6..12]);
    reply[6..12].copy_from_slice(&frame[..6]);
    let (addresses, length, ports) = if frame[12..14] == ETH_IPV4.to_be_bytes() {
        (26, 4, 34)
    } else {
        (22, 16, 54)
    };
    for (start, length) in [(addresses, length), (ports, 2)] {
        let middle = start + length;
        reply[start..middle].copy_from_slice(&frame[middle..middle + length]);
        reply[middle..middle + length].copy_from_slice(&frame[start..middle]);
    }
    reply[ports + 8 + kind_offset] = 2;
    reply
}

#[test]
fn macs_are_swapped_and_nothing_else() {
    if !privileged() {
        return;
    }
    let reflector = Reflector::load(Reflect::Macs).unwrap();
    for frame in [frame4(b"x"), frame6(b"x"), ethernet(&[], ETH_EXPERIMENT, &[7; 60])] {
        let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
        assert_eq!(verdict, Verdict::Tx);
        assert_eq!(sent, [&LEFT[..], &RIGHT, &frame[12..]].concat());
    }
    let traffic = reflector.traffic().unwrap();
    assert_eq!((traffic.packets, traffic.passed), (3, 0));
}

#[test]
fn neighbours_and_groups_go_up() {
    if !privileged() {
        return;
    }
    for reflect in [Reflect::Macs, Reflect::Probes(MARKS)] {
        let reflector = Reflector::load(reflect).unwrap();
        let mut group = frame4(&probe(1, 40));
        group[0] = 0x33;
        for frame in [
            ethernet(&[], ETH_ARP, &[0; 28]),
            ethernet(&[], ETH_IPV6, &ipv6(ICMPV6, &icmpv6(135))),
            group,
        ] {
            let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
            assert_eq!((verdict, sent), (Verdict::Pass, frame));
        }
        assert_eq!(reflector.traffic().unwrap().passed, 3);
    }
}

#[test]
fn a_request_becomes_a_reply_with_a_right_checksum() {
    if !privileged() {
        return;
    }
    // An even and an odd place of the kind byte are different halves of a checksum's word.
    for kind_offset in [5u8, 6] {
        let marks = ProbeMarks { kind_offset, ..MARKS };
        let reflector = Reflector::load(Reflect::Probes(marks)).unwrap();
        for length in [8, 33, 64, 1400] {
            let mut payload = probe(1, length);
            payload[usize::from(kind_offset)] = 1;
            for mut frame in [frame4(&payload), frame6(&payload)] {
                complete_checksum(&mut frame);
                let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
                assert_eq!(verdict, Verdict::Tx);
                assert!(checksum_is_right(&sent), "{length} bytes, kind at {kind_offset}");
                let mut expected = answered(&frame, kind_offset.into());
                complete_checksum(&mut expected);
                assert_eq!(sent, expected);
            }
        }
    }
}

/// RFC 1624 has a corner where the sum is 0, which would mean that there is none.
#[test]
fn every_value_of_the_checksum_survives() {
    if !privileged() {
        return;
    }
    let reflector = Reflector::load(Reflect::Probes(MARKS)).unwrap();
    for salt in 0..=u16::MAX {
        // Around the values where the reply's checksum is 0 or 0xffff, and here and there.
        let mut payload = probe(1, 40);
        payload[8..10].copy_from_slice(&salt.to_be_bytes());
        let mut frame = frame6(&payload);
        complete_checksum(&mut frame);
        let check = u16::from_be_bytes([frame[60], frame[61]]);
        if (4..0xfffb).contains(&check) && salt % 997 != 0 {
            continue;
        }
        let (_, sent) = dry_run(&reflector, &frame).unwrap();
        assert!(checksum_is_right(&sent), "{check:#06x}");
        assert_ne!(sent[60..62], [0, 0]);
    }
}

#[test]
fn no_checksum_stays_none_over_ipv4() {
    if !privileged() {
        return;
    }
    let reflector = Reflector::load(Reflect::Probes(MARKS)).unwrap();
    let frame = frame4(&probe(1, 40));
    let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
    assert_eq!((verdict, sent), (Verdict::Tx, answered(&frame, 5)));
}

/// As a veth delivers it when the sender left the checksum to its device.
#[test]
fn a_checksum_left_to_the_device_is_completed() {
    if !privileged() {
        return;
    }
    let reflector = Reflector::load(Reflect::Probes(MARKS)).unwrap();
    for length in [8, 33, 1400] {
        for mut frame in [frame4(&probe(1, length)), frame6(&probe(1, length))] {
            let check = frame.len() - length - 2;
            let partial = pseudo_sum(&frame).to_be_bytes();
            frame[check..check + 2].copy_from_slice(&partial);
            assert!(!checksum_is_right(&frame));
            let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
            assert_eq!(verdict, Verdict::Tx);
            assert!(checksum_is_right(&sent), "{length} bytes");
        }
    }
}

/// The marks are those of the protocol that `ringside ping` speaks.
#[test]
fn a_probe_of_the_protocol_comes_back_as_its_reply() {
    if !privileged() {
        return;
    }
    let request = Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session: 7,
        sequence: 11,
        intended_ns: 13,
        sent_ns: 17,
    };
    let mut payload = [0; HEADER_LEN];
    request.encode(&mut payload).unwrap();
    let reflector = Reflector::load(Reflect::Probes(MARKS)).unwrap();
    let (verdict, sent) = dry_run(&reflector, &frame4(&payload)).unwrap();
    assert_eq!(verdict, Verdict::Tx);
    let reply = Probe {
        kind: Kind::Reply,
        ..request
    };
    assert_eq!(Probe::decode(&sent[42..]).unwrap(), reply);
}

#[test]
fn what_is_no_request_goes_up_as_it_is() {
    if !privileged() {
        return;
    }
    let reflector = Reflector::load(Reflect::Probes(MARKS)).unwrap();
    let mut magic = probe(1, 40);
    magic[3] ^= 1;
    for frame in [
        frame4(&probe(2, 40)),
        frame4(&probe(0, 40)),
        frame4(&magic),
        frame4(&probe(1, 7)),
        ethernet(&[], ETH_IPV4, &ipv4(TCP, &udp(PORT, &probe(1, 40)))),
        ethernet(&[], ETH_EXPERIMENT, &[0; 60]),
    ] {
        let (verdict, sent) = dry_run(&reflector, &frame).unwrap();
        assert_eq!((verdict, sent), (Verdict::Pass, frame));
    }
    assert_eq!(reflector.traffic().unwrap().packets, 0);
}

#[test]
fn marks_that_no_probe_has_are_refused() {
    for marks in [
        ProbeMarks { magic_len: 0, ..MARKS },
        ProbeMarks { magic_len: 9, ..MARKS },
        ProbeMarks {
            kind_offset: 3,
            ..MARKS
        },
        ProbeMarks {
            kind_offset: 64,
            ..MARKS
        },
    ] {
        let refused = Reflector::load(Reflect::Probes(marks));
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{marks:?}");
    }
}

/// Out of the left device, back from the right one, into the left one's sink: none is lost
/// unaccounted, and the ones that return have their addresses swapped.
#[test]
fn frames_come_back_over_a_veth() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let reflector = Reflector::load(Reflect::Macs).unwrap();
    let sink = Sink::load(Neighbours::Pass).unwrap();
    let _right = pair
        .right
        .enter(|index| reflector.attach(index, XdpMode::Native).unwrap());
    let frame = frame4(&[0; 22]);
    pair.left.enter(|index| {
        let _left = sink.attach(index, XdpMode::Native).unwrap();
        pin(0);
        let mut generator = Generator::new(index, &frame, GeneratorOptions::default()).unwrap();
        let sent = generator.run(200_000).unwrap();
        let reflected = common::settled(|| reflector.traffic().unwrap());
        let returned = common::settled(|| sink.traffic().unwrap());
        assert_eq!(reflected.packets, sent.transmitted);
        assert_eq!(reflected.bytes, sent.transmitted * 64);
        // Either end's ring may be full; a veth tells so in the statistics of the sending end.
        let lost = pair.right.enter(|_| common::tx_dropped());
        assert_eq!(returned.packets + lost, reflected.packets);
        assert!(returned.packets > 0);
    });
}
