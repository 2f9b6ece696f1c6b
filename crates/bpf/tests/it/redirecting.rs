//! redirect.bpf.c on named packets. On interfaces it is tried by crates/netlab.

use crate::common::packets::*;
use crate::common::privileged;
use ringside_bpf::{Error, Redirected, Redirector, Verdict, dry_run};

/// There is one in every network namespace.
const LOOPBACK: u32 = 1;

fn redirector(which: Redirected) -> Redirector {
    let redirector = Redirector::load(which).unwrap();
    redirector.send_to(LOOPBACK).unwrap();
    redirector
}

fn frame4(port: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(port, payload)))
}

fn frame6(port: u16, payload: &[u8]) -> Vec<u8> {
    ethernet(&[], ETH_IPV6, &ipv6(UDP, &udp(port, payload)))
}

/// With the pseudo-header's sum alone, as a sender leaves it to its device.
fn left_to_the_device(mut frame: Vec<u8>) -> Vec<u8> {
    let start = if frame[12..14] == ETH_IPV4.to_be_bytes() {
        34
    } else {
        54
    };
    let partial = pseudo_sum(&frame).to_be_bytes();
    frame[start + 6..start + 8].copy_from_slice(&partial);
    frame
}

#[test]
fn without_a_target_packets_pass() {
    if !privileged() {
        return;
    }
    let redirector = Redirector::load(Redirected::All).unwrap();
    let frame = frame4(PORT, b"x");
    assert_eq!(dry_run(&redirector, &frame).unwrap(), (Verdict::Pass, frame));
    assert!(matches!(redirector.send_to(u32::MAX), Err(Error::Map { .. })));
}

#[test]
fn all_packets_leave_as_they_came() {
    if !privileged() {
        return;
    }
    let redirector = redirector(Redirected::All);
    let mut whole = [frame4(PORT, b"something"), frame6(PORT, b"something")];
    whole.iter_mut().for_each(|frame| complete_checksum(frame));
    let [whole4, whole6] = whole;
    let frames = [
        whole4,
        whole6,
        // No checksum at all, a wrong one, and what has none of these headers.
        frame4(PORT, b"none"),
        ethernet(&[VLAN], ETH_IPV4, &ipv4(UDP, &udp(PORT, b"tagged"))),
        ethernet(&[], ETH_IPV4, &ipv4(TCP, &[7; 60])),
        ethernet(&[], ETH_ARP, &[7; 28]),
        ethernet(&[], ETH_EXPERIMENT, &[7; 1500]),
        ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], 0x2000, &udp(PORT, &[1; 64]))),
    ];
    for frame in &frames {
        let (verdict, sent) = dry_run(&redirector, frame).unwrap();
        assert_eq!((verdict, &sent), (Verdict::Redirect, frame));
    }
    let traffic = redirector.traffic().unwrap();
    assert_eq!((traffic.packets, traffic.passed), (frames.len() as u64, 0));
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(traffic.bytes, bytes as u64);
}

#[test]
fn checksums_left_to_the_device_are_completed() {
    if !privileged() {
        return;
    }
    let redirector = redirector(Redirected::All);
    for length in [0, 1, 8, 33, 1400] {
        let payload: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
        for frame in [frame4(PORT, &payload), frame6(PORT, &payload)].map(left_to_the_device) {
            let (verdict, sent) = dry_run(&redirector, &frame).unwrap();
            assert_eq!(verdict, Verdict::Redirect);
            assert!(checksum_is_right(&sent), "{length} bytes");
            let mut expected = frame;
            complete_checksum(&mut expected);
            assert_eq!(sent, expected);
        }
    }
}

/// TCP's is at another place, and behind IPv4's options the whole header is.
#[test]
fn tcp_and_options_are_no_obstacle() {
    if !privileged() {
        return;
    }
    let redirector = redirector(Redirected::All);
    for options in [&[][..], &[1; 8]] {
        let mut segment: Vec<u8> = (0..61).collect();
        let length = u16::try_from(segment.len()).unwrap().to_be_bytes();
        let pseudo = [&[10, 77, 0, 1, 10, 77, 0, 2, 0, TCP][..], &length].concat();
        segment[16..18].copy_from_slice(&sum(&pseudo).to_be_bytes());
        let frame = ethernet(&[], ETH_IPV4, &ipv4_with(TCP, options, 0, &segment));
        let (_, sent) = dry_run(&redirector, &frame).unwrap();
        let start = 34 + options.len();
        assert_eq!(sum(&[&pseudo, &sent[start..]].concat()), 0xffff);
        assert_eq!(
            [&sent[..start + 16], &sent[start + 18..]],
            [&frame[..start + 16], &frame[start + 18..]]
        );
    }
}

#[test]
fn an_express_lane_takes_what_it_is_for() {
    if !privileged() {
        return;
    }
    // The tag's second byte is 7, its first has the priority in its upper three bits.
    let tagged = |priority: u8| {
        let mut frame = ethernet(&[VLAN], ETH_IPV4, &ipv4(UDP, &udp(PORT, b"x")));
        frame[14] = priority << 5;
        frame
    };
    let others = [
        ethernet(&[], ETH_ARP, &[7; 28]),
        ethernet(&[], ETH_EXPERIMENT, &[7; 60]),
        vec![0; 14],
    ];
    let by_priority = redirector(Redirected::Priority(5));
    for priority in 0..8 {
        let expected = if priority >= 5 {
            Verdict::Redirect
        } else {
            Verdict::Pass
        };
        assert_eq!(
            dry_run(&by_priority, &tagged(priority)).unwrap().0,
            expected,
            "{priority}"
        );
    }
    let by_port = redirector(Redirected::Udp(PORT));
    for frame in [frame4(PORT, b"x"), frame6(PORT, b"x"), tagged(0)] {
        assert_eq!(dry_run(&by_port, &frame).unwrap().0, Verdict::Redirect);
    }
    let partial = left_to_the_device(frame4(PORT + 1, b"as it was"));
    for frame in others.into_iter().chain([partial]) {
        for redirector in [&by_priority, &by_port] {
            assert_eq!(dry_run(redirector, &frame).unwrap(), (Verdict::Pass, frame.clone()));
        }
    }
    let traffic = by_port.traffic().unwrap();
    assert_eq!((traffic.packets, traffic.passed), (3, 4));
}

#[test]
fn lanes_that_no_packet_takes_are_refused() {
    for which in [Redirected::Priority(0), Redirected::Priority(8), Redirected::Udp(0)] {
        assert!(
            matches!(Redirector::load(which), Err(Error::Invalid { .. })),
            "{which:?}"
        );
    }
}
