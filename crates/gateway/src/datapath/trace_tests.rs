use ringside_gateway_core::table::{Encapsulation, HostId};
use ringside_gateway_core::testing::{Sent, tagged};
use ringside_wire::{EtherType, MacAddr, Protocol, ethernet};

use super::*;

/// What is sent on, many times as much as there is room for, pushes nothing out that is dropped.
#[test]
fn what_is_sent_on_takes_no_room_from_what_is_dropped() {
    let sent = Decision::Send { port: 0 };
    let (wanted, other) = (DropReason::IngressDenied, DropReason::NoNeighbor);
    let told = |drops| {
        let (tell, told) = crossbeam_channel::bounded(WAITING);
        let wants = Wanted {
            filter: TraceFilter {
                drops,
                ..TraceFilter::default()
            },
            tell,
            ports: Ports::by_name(&[]).expect("none"),
            is_fast: true,
            lost: AtomicU64::new(0),
        };
        let shown = wants.take(None, &[0; 60], 60).expect("any");
        let dropped = [
            Decision::Drop(wanted),
            Decision::Complain(other),
            Decision::Kernel,
            Decision::Wait(HostId(1)),
        ];
        for decision in std::iter::repeat_n(sent, 2 * WAITING).chain(dropped) {
            wants.tell(&shown, 0, (0, 0), decision, &[]);
        }
        let decisions: Vec<String> = told.try_iter().map(|traced| traced.decision).collect();
        (decisions, wants.lost.into_inner())
    };
    let all = [
        "dropped: ingress-denied",
        "dropped: no-neighbor; its sender is told by ICMP",
        "dropped: not-ours",
    ];
    assert_eq!(told(Some(Drops::Any)), (all.map(String::from).to_vec(), 0));
    assert_eq!(told(Some(Drops::For(wanted))), (vec![all[0].to_owned()], 0));
    assert_eq!(told(Some(Drops::For(other))), (vec![all[1].to_owned()], 0));
    let (decisions, lost) = told(None);
    assert_eq!((decisions.len(), lost), (WAITING, WAITING as u64 + 4));
}

#[test]
fn rules_are_named_where_something_is_sent_on() {
    let sent = Decision::Send { port: 0 };
    let (three, seven) = (Some(Ok(RuleId(3))), Some(Ok(RuleId(7))));
    assert_eq!(by_rules(sent, [None; 2]), "");
    assert_eq!(by_rules(sent, [three, None]), "; egress rule 3 allows it");
    assert_eq!(by_rules(sent, [None, seven]), "; ingress rule 7 allows it");
    assert_eq!(
        by_rules(Decision::Wait(HostId(1)), [three, seven]),
        "; egress rule 3 and ingress rule 7 allow it"
    );
    // An answer: no rule of its own.
    let denied = Some(Err(Denied::Egress));
    assert_eq!(by_rules(sent, [denied, seven]), "; its connection is allowed");
    for decision in [
        Decision::Drop(DropReason::EgressDenied),
        Decision::Answer,
        Decision::Kernel,
    ] {
        assert_eq!(by_rules(decision, [denied, seven]), "");
    }
}

#[test]
fn what_a_sender_is_told_is_shown() {
    let (mut v4, mut v6) = (vec![0; 14 + 20 + 8], vec![0; 14 + 40 + 8]);
    for (frame, ethertype) in [(&mut v4, EtherType::IPV4), (&mut v6, EtherType::IPV6)] {
        let header = ethernet::Header {
            dst: MacAddr([2; 6]),
            src: MacAddr([4; 6]),
            ethertype,
        };
        header.emit(frame).expect("room");
    }
    let (a, b) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
    let header = ipv4::Header {
        payload_len: 8,
        ..ipv4::Header::new(a, b, Protocol::ICMP)
    };
    header.emit(&mut v4[14..]).expect("room");
    v4[34..].copy_from_slice(&[3, 4, 0, 0, 0, 0, 0x05, 0x46]);
    let header = ipv6::Header {
        payload_len: 8,
        ..ipv6::Header::new(a.to_ipv6_mapped(), b.to_ipv6_mapped(), Protocol::ICMPV6)
    };
    header.emit(&mut v6[14..]).expect("room");
    v6[54..].copy_from_slice(&[2, 0, 0, 0, 0, 0, 0x05, 0x46]);
    let hosts: [[IpAddr; 2]; 2] = [
        [[192, 0, 2, 1].into(), [192, 0, 2, 2].into()],
        [[0xfd; 16].into(), [0xfc; 16].into()],
    ];
    for (hosts, encapsulation, frame) in [
        (hosts[0], Encapsulation::Vxlan, v4.clone()),
        (hosts[1], Encapsulation::Geneve, tagged(&v4, 5)),
        (hosts[0], Encapsulation::Geneve, v6.clone()),
        (hosts[1], Encapsulation::Vxlan, v6.clone()),
    ] {
        let mut sent = Sent::new(hosts, encapsulation, 42, frame);
        if encapsulation == Encapsulation::Geneve {
            sent.options = vec![1, 2, 3, 1, 9, 9, 9, 9];
        }
        let said = by_worker(
            Decision::Complain(DropReason::TooBig),
            Cacheable::Nothing,
            &sent.bytes(),
        );
        assert_eq!(
            said,
            "dropped: too-big; its sender is told by ICMP: no more than 1350 bytes go there"
        );
        for len in 0..sent.bytes().len() {
            assert_eq!(told_mtu(&sent.bytes()[..len]), None, "{len}");
        }
    }
    v4[34] = 11;
    let expired = Sent::new(hosts[0], Encapsulation::Vxlan, 42, v4).bytes();
    let said = by_worker(Decision::Complain(DropReason::InnerTtl), Cacheable::Nothing, &expired);
    assert_eq!(said, "dropped: inner-ttl; its sender is told by ICMP");
}
