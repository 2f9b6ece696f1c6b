use ringside_gateway_core::table::HostId;

use super::*;

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
