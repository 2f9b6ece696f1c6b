//! Senders: rules hold for their addresses, whether or not anybody knows where they live.

use ringside_gateway_core::policy::{Denied, Direction, GroupId, ProfileId, Remote, Rule, RuleId, Service};

use ringside_wire::checksum::Sum;

use super::*;

/// Tenant 3, which is no neighbour.
const STRANGER: u8 = 3;

fn from(last: u8, v6: bool, vni: u32) -> Vec<u8> {
    let ips = [tenant(last, v6), tenant(2, v6)];
    let frame = tenant_udp([A, B], ips, [1000, 2000], 64, b"");
    Sent::new([host(1, false), gateway(false)], Encapsulation::Vxlan, vni, frame).bytes()
}

fn address(last: u8, v6: bool) -> TenantAddress {
    TenantAddress::new(vni(), tenant(last, v6))
}

impl Bed {
    /// What allows everything in one direction.
    pub(super) fn allowing(&self, direction: Direction) -> Option<ProfileId> {
        let group = GroupId(1 + u32::from(direction == Direction::Egress));
        let mut policy = self.policy.write();
        let rule = Rule {
            id: RuleId(group.0.into()),
            direction,
            family: None,
            service: Service::Any,
            remote: Remote::Any,
        };
        policy.put_group(group, vec![rule]).unwrap();
        let profile = policy.profile(&[group]);
        policy.publish();
        Some(profile)
    }

    /// What allows nothing.
    fn nothing(&self) -> Option<ProfileId> {
        let mut policy = self.policy.write();
        let profile = policy.profile(&[]);
        policy.publish();
        Some(profile)
    }

    /// As the control plane does it.
    pub(super) fn bind(&self, last: u8, profile: Option<ProfileId>) {
        for v6 in [false, true] {
            self.bindings.set(address(last, v6), profile);
            let policy = profile.map_or(0, ProfileId::number);
            self.neighbors.write().set_policy(address(last, v6), policy);
        }
    }

    pub(super) fn judge(&mut self, frame: &[u8]) -> Decision {
        self.decider
            .decide(1_000_000_000, 0, true, &mut Roomy::new(frame, 128, 256))
    }
}

#[test]
fn egress_rules_hold_before_a_neighbor_is_known() {
    let mut bed = bed(BY_IPV4, settings());
    bed.bind(STRANGER, bed.nothing());
    for v6 in [false, true] {
        let decision = bed.judge(&from(STRANGER, v6, VNI));
        assert_eq!(decision, Decision::Drop(DropReason::EgressDenied), "{v6}");
    }
    bed.bind(STRANGER, bed.allowing(Direction::Egress));
    for v6 in [false, true] {
        let decision = bed.judge(&from(STRANGER, v6, VNI));
        assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
        let cacheable = bed.decider.cacheable();
        assert!(!matches!(cacheable, Cacheable::Neighbor(_)), "not whoever sends");
    }
    // What began by them ends with them; and so it stays when a neighbour comes and goes.
    bed.bind(STRANGER, bed.nothing());
    let ended = bed.judge(&from(STRANGER, false, VNI));
    assert_eq!(ended, Decision::Drop(DropReason::NoLongerAllowed));
    let neighbor = Neighbor {
        mac: A,
        host: bed.host_b,
        policy: bed.nothing().map_or(0, ProfileId::number),
        version: 1,
    };
    bed.neighbors.write().put(address(STRANGER, false), neighbor);
    let denied = Decision::Drop(DropReason::EgressDenied);
    assert_eq!(bed.judge(&from(STRANGER, false, VNI)), denied);
    bed.neighbors.write().remove(address(STRANGER, false), 1);
    assert_eq!(bed.judge(&from(STRANGER, false, VNI)), denied);
}

#[test]
fn the_rules_that_allow_it_are_named() {
    let mut bed = bed(BY_IPV4, settings());
    let (there, back) = (from(STRANGER, false, VNI), packet(false, B, 64));
    let rules = |bed: &mut Bed, frame: &[u8]| {
        bed.decider.begin(true);
        bed.decider.read(frame);
        bed.decider.look_up().rules(frame)
    };
    assert_eq!(rules(&mut bed, &there), [None; 2]);
    bed.bind(STRANGER, bed.allowing(Direction::Egress));
    assert_eq!(rules(&mut bed, &there), [Some(Ok(RuleId(2))), None]);
    bed.bind(2, bed.allowing(Direction::Ingress));
    assert_eq!(rules(&mut bed, &there), [Some(Ok(RuleId(2))), Some(Ok(RuleId(1)))]);
    bed.bind(2, bed.nothing());
    assert_eq!(
        rules(&mut bed, &there),
        [Some(Ok(RuleId(2))), Some(Err(Denied::Ingress))]
    );
    assert_eq!(rules(&mut bed, &back), [None; 2], "it is no tunnel's packet");
}

#[test]
fn nobody_unknown_sends_where_rules_are_bound() {
    let mut bed = bed(BY_IPV4, settings());
    let stranger = |v6| from(STRANGER, v6, VNI);
    let is_sent = |decision| matches!(decision, Decision::Send { .. });
    assert!(is_sent(bed.judge(&stranger(false))), "no rules in its network");
    // Bound to an address that has nothing to do with it, or to the receiver, whose rules allow it.
    for (last, profile) in [
        (9, bed.nothing()),
        (1, bed.nothing()),
        (2, bed.allowing(Direction::Ingress)),
    ] {
        bed.bind(last, profile);
        for v6 in [false, true] {
            let decision = bed.judge(&stranger(v6));
            assert_eq!(decision, Decision::Drop(DropReason::UnknownSender), "{last}");
        }
        if last != 1 {
            assert!(
                is_sent(bed.judge(&from(1, false, VNI))),
                "known, and nothing is bound to it"
            );
        }
        bed.bind(last, None);
        assert!(is_sent(bed.judge(&stranger(false))));
    }
}

/// In one burst, of a network with rules and one without: what holds in the one is nothing to the other.
#[test]
fn rules_hold_in_their_own_network() {
    const OTHER: u32 = VNI + 1;
    let mut bed = bed(BY_IPV4, settings());
    bed.bind(1, bed.nothing());
    let there = TenantAddress::new(Vni::new(OTHER).unwrap(), tenant(2, true));
    let receiver = Neighbor {
        mac: B,
        host: bed.host_b,
        policy: 0,
        version: 1,
    };
    bed.neighbors.write().put(there, receiver);
    let frames: Vec<_> = [(1, VNI), (STRANGER, OTHER), (STRANGER, VNI), (1, OTHER), (2, VNI)]
        .map(|(last, vni)| from(last, true, vni))
        .into();
    bed.decider.begin(true);
    frames.iter().for_each(|frame| bed.decider.read(frame));
    let mut burst = bed.decider.look_up();
    let decisions: Vec<_> = frames
        .iter()
        .map(|frame| {
            let decision = burst.next(1_000_000_000, 0, &mut Roomy::new(frame, 128, 256));
            (decision, burst.cacheable())
        })
        .collect();
    let goes = |to| (Decision::Send { port: 0 }, Cacheable::Neighbor(to));
    let dropped = |reason| (Decision::Drop(reason), Cacheable::Nothing);
    assert_eq!(
        decisions,
        [
            dropped(DropReason::EgressDenied),
            goes(there),
            dropped(DropReason::UnknownSender),
            goes(there),
            goes(address(2, true)),
        ]
    );
}

/// A worker has looked up what is bound to an address. Then other rules are bound there, and those from before are emptied, or allow anything:
/// its packet is judged by what there is now, which neither refuses what always was allowed nor allows what never was.
#[test]
fn rules_that_are_no_longer_bound_decide_nothing() {
    const RECEIVERS: u8 = 2;
    let allowing = |direction, port| Rule {
        id: RuleId(1),
        direction,
        family: None,
        service: Service::Ports(Protocol::UDP, port..=port),
        remote: Remote::Any,
    };
    let [before, after] = [GroupId(7), GroupId(8)];
    // The port of the packets, or another.
    for (port, then) in [(2000, 1), (1, 2000)] {
        let mut bed = bed(BY_IPV4, settings());
        bed.bind(1, bed.allowing(Direction::Egress));
        let profiles = [before, after].map(|group| {
            let mut policy = bed.policy.write();
            policy
                .put_group(group, vec![allowing(Direction::Ingress, port)])
                .unwrap();
            let profile = policy.profile(&[group]);
            policy.publish();
            Some(profile)
        });
        bed.bind(RECEIVERS, profiles[0]);
        let frame = from(1, false, VNI);
        bed.decider.begin(true);
        bed.decider.read(&frame);
        let mut burst = bed.decider.look_up();
        bed.bindings.set(address(RECEIVERS, false), profiles[1]);
        let bound = profiles[1].map_or(0, ProfileId::number);
        bed.neighbors.write().set_policy(address(RECEIVERS, false), bound);
        let mut policy = bed.policy.write();
        policy
            .put_group(before, vec![allowing(Direction::Ingress, then)])
            .unwrap();
        policy.publish();
        let decision = burst.next(1_000_000_000, 0, &mut Roomy::new(&frame, 128, 256));
        match port {
            2000 => assert!(matches!(decision, Decision::Send { .. }), "{decision:?}"),
            _ => assert_eq!(decision, Decision::Drop(DropReason::IngressDenied)),
        }
    }
}

/// A fragment from tenant 1 to 2.
fn fragment(v6: bool, protocol: Protocol, id: u8, offset: u16, more: bool) -> Vec<u8> {
    let upper = match (protocol, offset) {
        // Ports, and of TCP a header of five words with SYN.
        (Protocol::TCP, 0) => [
            &[4, 0, 8, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 0x02, 1, 0, 0, 0, 0, 0][..],
            &[0; 12],
        ]
        .concat(),
        (_, 0) => [&[4, 0, 8, 0, 0, 64, 0, 0][..], &[0; 24]].concat(),
        _ => vec![0x77; 32],
    };
    let flags = if v6 {
        offset << 3 | u16::from(more)
    } else {
        offset | u16::from(more) << 13
    };
    let [high, low] = flags.to_be_bytes();
    let mut frame = tenant_udp([A, B], [tenant(1, v6), tenant(2, v6)], [0, 0], 64, &upper);
    if v6 {
        frame.splice(54..62, [protocol.0, 0, high, low, 0, 0, 0, id]);
        frame[20] = 44;
    } else {
        frame.drain(34..42);
        let len = u16::try_from(frame.len() - 14).unwrap();
        frame[16..18].copy_from_slice(&len.to_be_bytes());
        (frame[19], frame[20], frame[21], frame[23]) = (id, high, low, protocol.0);
        frame[24..26].fill(0);
        let checksum = Sum::of(&frame[14..34]).finish();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    sent(frame).bytes()
}

/// What docs/gateway.md says of them, sentence by sentence.
#[test]
fn fragments_pass_by_the_policy_that_is_stated() {
    const UDP: Protocol = Protocol::UDP;
    let unknown = Decision::Drop(DropReason::UnknownFragment);
    for v6 in [false, true] {
        let mut bed = bed(BY_IPV4, settings());
        let piece = |id, offset| fragment(v6, UDP, id, offset, offset < 8);
        // One by one, as they are, and in any order, where no rules are bound.
        for offset in [8, 4, 0] {
            let (decision, after) = bed.decide(&piece(1, offset));
            assert!(matches!(decision, Decision::Send { .. }), "{decision:?}");
            let was = sent(Vec::new()).bytes().len();
            assert_eq!(after[was..], piece(1, offset)[was..], "as it came");
        }
        let passes = |decision, bed: &Bed| {
            matches!(decision, Decision::Send { .. }) && bed.decider.cacheable() == Cacheable::Nothing
        };
        bed.bind(1, bed.allowing(Direction::Egress));
        bed.bind(2, bed.allowing(Direction::Ingress));
        // Before its first; then by that, as often as they come, and none of another packet.
        assert_eq!(bed.judge(&piece(1, 4)), unknown);
        assert!(passes(bed.judge(&piece(1, 0)), &bed), "never the fast path's");
        for offset in [4, 8, 4] {
            assert!(passes(bed.judge(&piece(1, offset)), &bed));
        }
        assert_eq!(bed.judge(&piece(2, 4)), unknown);
        assert_eq!(
            bed.judge(&fragment(v6, Protocol(47), 1, 4, true)),
            unknown,
            "another protocol"
        );
        // For 30 seconds.
        let at = |bed: &mut Bed, seconds: u64, frame: &[u8]| {
            let mut frame = Roomy::new(frame, 128, 256);
            bed.decider.decide(seconds * 1_000_000_000, 0, true, &mut frame)
        };
        assert!(passes(at(&mut bed, 31, &piece(1, 4)), &bed), "30 s later");
        assert_eq!(at(&mut bed, 32, &piece(1, 4)), unknown, "31 s later");
        // As long as nothing changes about the rules of the two.
        assert!(passes(at(&mut bed, 40, &piece(3, 0)), &bed));
        bed.bind(2, bed.nothing());
        assert_eq!(at(&mut bed, 41, &piece(3, 4)), unknown);
        // One that is not allowed allows no others.
        assert!(matches!(at(&mut bed, 42, &piece(4, 0)), Decision::Drop(_)));
        assert_eq!(at(&mut bed, 43, &piece(4, 4)), unknown);
        bed.bind(2, bed.allowing(Direction::Ingress));
        // Inside of TCP's header, though its first has passed. What is behind that passes.
        assert!(passes(at(&mut bed, 50, &fragment(v6, Protocol::TCP, 5, 0, true)), &bed));
        for offset in [1, 2] {
            let decision = at(&mut bed, 51, &fragment(v6, Protocol::TCP, 5, offset, true));
            assert_eq!(decision, Decision::Drop(DropReason::InnerMalformed), "{offset}");
        }
        assert!(passes(at(&mut bed, 52, &fragment(v6, Protocol::TCP, 5, 3, true)), &bed));
    }
}

#[test]
fn rules_hold_that_were_bound_since_the_burst_began() {
    let mut bed = bed(BY_IPV4, settings());
    bed.bind(2, bed.allowing(Direction::Ingress));
    // The worker does not know yet that there are rules, and looks up no senders.
    let decide = |bed: &mut Bed, last| bed.decide(&from(last, false, VNI)).0;
    assert!(matches!(decide(&mut bed, 1), Decision::Send { .. }));
    assert_eq!(decide(&mut bed, STRANGER), Decision::Drop(DropReason::UnknownSender));
    bed.bind(1, bed.nothing());
    let v6 = bed.decide(&from(1, true, VNI)).0;
    assert_eq!(v6, Decision::Drop(DropReason::EgressDenied));
}
