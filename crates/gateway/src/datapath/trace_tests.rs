use ringside_gateway_core::table::HostId;

use super::*;

/// What is sent on, many times as much as there is room for, pushes nothing out that is dropped.
#[test]
fn what_is_sent_on_takes_no_room_from_what_is_dropped() {
    let sent = Decision::Send {
        port: 0,
        cache: Cacheable::Nothing,
    };
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
    let sent = Decision::Send {
        port: 0,
        cache: Cacheable::Nothing,
    };
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
