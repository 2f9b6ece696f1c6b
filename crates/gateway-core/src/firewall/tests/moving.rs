//! Two gateways while a network goes from one to the other: of each connection the packets of one host come to the one, and those of the
//! other to the other.

use proptest::prelude::*;

use super::bench::{client, echo, rule, server, turned, udp};
use super::tcp::{ACK, SYN, SYN_ACK, from_client, from_server};
use super::*;
use crate::shard::Shard;

const FIN_ACK: Flags = Flags(Flags::FIN.0 | Flags::ACK.0);
const RST: Flags = Flags::RST;

fn rules() -> Vec<Rule> {
    let allow = |service| rule(Direction::Ingress, service, Remote::Any);
    vec![
        allow(Service::Ports(Protocol::TCP, 80..=80)),
        allow(Service::Ports(Protocol::UDP, 53..=53)),
        allow(Service::Icmp(Some((8, None)))),
    ]
}

/// Both, until ten seconds from now.
fn gateways(limits: &Limits) -> [Bench; 2] {
    [(), ()].map(|()| {
        let bench = Bench::new(limits.clone(), rules());
        let until = bench.now + 10 * SECOND;
        let conntrack = bench.firewall.conntrack();
        conntrack.changes_hands(Shard::of(bench.vni), until);
        bench
    })
}

/// A whole connection, both sides of which take their turns.
fn connection() -> Vec<Flow> {
    vec![
        from_client(SYN, 0, 0, 0),
        from_server(SYN_ACK, 0, 1, 0),
        from_client(ACK, 1, 1, 0),
        from_client(ACK, 1, 1, 100),
        from_server(ACK, 1, 101, 0),
        from_server(ACK, 1, 101, 200),
        from_client(ACK, 101, 201, 0),
        from_client(FIN_ACK, 101, 201, 0),
        from_server(FIN_ACK, 201, 102, 0),
        from_client(ACK, 102, 202, 0),
    ]
}

#[test]
fn each_sees_one_side() {
    for at in 0..connection().len() {
        // From each point on the network changes hands.
        let mut both = gateways(&few());
        for (before, flow) in connection().iter().enumerate() {
            let gateway = usize::from(before >= at && flow.source == client());
            let judged = both[gateway].judge(flow);
            assert!(judged.is_ok(), "{at}: {before}: {judged:?}: {flow:?}");
        }
    }
    // UDP, and ping: the answer comes to the one that has not seen the question.
    for question in [udp(5000, 53), echo(7, true)] {
        let answer = match question.upper {
            Upper::Query(query) => {
                let mut answer = turned(question);
                answer.upper = Upper::Query(Query { asks: false, ..query });
                answer
            }
            _ => turned(question),
        };
        let mut both = gateways(&few());
        both[1].pass(&question);
        assert!(!both[0].pass(&answer), "one side alone is not for the fast path");
        assert!(!both[0].pass(&answer));
        // Nor for longer than the network moves.
        both[0].wait(10);
        assert!(both[0].judge(&answer).is_err());
        let mut both = gateways(&few());
        both[0].pass(&answer);
        both[0].pass(&question);
        both[0].wait(10);
        both[0].pass(&answer);
    }
}

#[test]
fn nothing_else_passes_for_it() {
    let [mut one, _] = gateways(&few());
    for (flow, why) in [
        (turned(udp(5000, 54)), Refused::Denied(Denied::Egress)),
        (turned(udp(53, 5000)), Refused::Denied(Denied::Egress)),
        (turned(echo(7, true)), Refused::Denied(Denied::Egress)),
        (from_server(SYN, 0, 0, 0), Refused::Denied(Denied::Egress)),
        (from_server(RST, 0, 0, 0), Refused::NoConnection),
    ] {
        one.refuse(&flow, why);
    }
    // When it is over, and where such is not allowed, all is as ever.
    let answers = [
        (turned(udp(5000, 53)), Refused::Denied(Denied::Egress)),
        (turned(echo(7, false)), Refused::NoConnection),
        (from_server(SYN_ACK, 0, 1, 0), Refused::NoConnection),
    ];
    one.wait(10);
    answers.iter().for_each(|(flow, why)| one.refuse(flow, *why));
    let strict = Limits {
        pick_up: false,
        ..few()
    };
    let [mut one, _] = gateways(&strict);
    answers.iter().for_each(|(flow, why)| one.refuse(flow, *why));
    one.pass(&from_client(SYN, 0, 0, 0));
    one.refuse(&from_client(ACK, 1, 1, 0), Refused::OutOfState);
    // Of the other network that is in no hurry, too.
    let mut bench = Bench::new(few(), rules());
    let other = (1..)
        .filter_map(Vni::new)
        .find(|vni| Shard::of(*vni) != Shard::of(bench.vni));
    bench
        .firewall
        .conntrack()
        .changes_hands(Shard::of(other.unwrap()), u64::MAX);
    answers.iter().for_each(|(flow, why)| bench.refuse(flow, *why));
}

#[test]
fn rules_that_change_end_it() {
    let [mut one, _] = gateways(&few());
    assert_eq!(server(), turned(udp(5000, 53)).source);
    one.pass(&turned(udp(5000, 53)));
    one.put_group(super::bench::SERVER, Vec::new());
    one.refuse(&turned(udp(5000, 53)), Refused::NoLongerAllowed(Denied::Ingress));
    one.refuse(&turned(udp(5000, 53)), Refused::Denied(Denied::Egress));
}

proptest! {
    /// Whichever of the two each packet comes to, it passes.
    #[test]
    fn whichever_way_packets_go(ways in prop::collection::vec(0_usize..2, 10)) {
        let mut both = gateways(&few());
        for (flow, way) in connection().iter().zip(&ways) {
            let judged = both[*way].judge(flow);
            prop_assert!(judged.is_ok(), "{ways:?}: {judged:?}: {flow:?}");
        }
    }
}
