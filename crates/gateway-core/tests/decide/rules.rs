//! Senders: rules hold for their addresses, whether or not anybody knows where they live.

use ringside_gateway_core::policy::{Denied, Direction, GroupId, ProfileId, Remote, Rule, RuleId, Service};

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
    fn allowing(&self, direction: Direction) -> Option<ProfileId> {
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
    fn bind(&self, last: u8, profile: Option<ProfileId>) {
        for v6 in [false, true] {
            self.bindings.set(address(last, v6), profile);
            let policy = profile.map_or(0, ProfileId::number);
            self.neighbors.write().set_policy(address(last, v6), policy);
        }
    }

    fn judge(&mut self, frame: &[u8]) -> Decision {
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
        let Decision::Send { cache, .. } = decision else {
            panic!("{decision:?}");
        };
        assert!(!matches!(cache, Cacheable::Neighbor(_)), "not whoever sends");
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
