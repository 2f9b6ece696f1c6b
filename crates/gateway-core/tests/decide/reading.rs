//! What is a tenant's packet, and what is not.

use super::*;

#[test]
fn the_kernels_packets_are_left_alone() {
    let mut bed = bed(BY_IPV4, settings());
    let good = sent(packet(false, B, 64));
    let elsewhere = Sent {
        hosts: [host(1, false), host(2, false)],
        ..good.clone()
    };
    let mut other_port = good.bytes();
    other_port[36..38].copy_from_slice(&53_u16.to_be_bytes());
    let mut later_fragment = good.bytes();
    (later_fragment[20], later_fragment[21]) = (0, 1);
    let arp = tenant_arp(HOST_A_MAC, Ipv4Addr::new(192, 0, 2, 1), GATEWAY.0);
    for frame in [elsewhere.bytes(), other_port, later_fragment, arp, vec![0; 5]] {
        let (decision, after) = bed.decide(&frame);
        assert_eq!((decision, after), (Decision::Kernel, frame));
    }
    let mut first_fragment = good.bytes();
    first_fragment[20] = 0x20;
    bed.dropped(&first_fragment, DropReason::OuterFragment);
}

#[test]
fn tunnels_are_what_their_standards_say() {
    let mut bed = bed(BY_IPV4, settings());
    let vxlan = sent(packet(false, B, 64)).bytes();
    let geneve = Sent {
        encapsulation: Encapsulation::Geneve,
        options: vec![1, 2, 3, 0],
        ..sent(packet(false, B, 64))
    };
    let with = |bytes: &[u8], at: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = value;
        bytes
    };
    bed.dropped(&with(&vxlan, 42, 0xf7), DropReason::VxlanFlags);
    let bytes = geneve.bytes();
    assert!(matches!(bed.decide(&bytes).0, Decision::Send { .. }));
    for (at, value, reason) in [
        (42, 0x41, DropReason::GeneveVersion),
        (43, 0x80, DropReason::GeneveControl),
        (45, 0x59, DropReason::GeneveProtocol),
        (53, 0x01, DropReason::GeneveMalformed),
        (42, 0x3f, DropReason::GeneveMalformed),
        (52, 0x83, DropReason::GeneveCritical),
    ] {
        bed.dropped(&with(&bytes, at, value), reason);
    }
    // One that its receivers know.
    let mut knows = settings();
    knows.underlay.known_options = vec![(0x0102, 0x83)];
    let (decision, _) = self::bed(BY_IPV4, knows).decide(&with(&bytes, 52, 0x83));
    assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
    // Cut short anywhere: never a panic, never sent on.
    for len in 0..vxlan.len() {
        let (decision, _) = bed.decide(&vxlan[..len]);
        assert!(!matches!(decision, Decision::Send { .. }), "{len}");
    }
}
