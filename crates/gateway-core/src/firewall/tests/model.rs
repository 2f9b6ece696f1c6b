//! The firewall against one that is too slow for anything else: maps, rules read one after the other, and every packet
//! judged anew.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::bench::{echo, error_about, packet, rule, udp};
use super::*;
use crate::policy::Subject;
use crate::policy::tests::meets;

const GRE: Protocol = Protocol(47);

/// One of five addresses, two of them IPv6.
fn address(number: u8) -> IpAddr {
    match number {
        0..=2 => Ipv4Addr::new(10, 0, 0, number).into(),
        _ => Ipv6Addr::from(0xfd00 << 112 | u128::from(number)).into(),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Packet(u32, Flow),
    Wait(u64),
    /// The rules of a group.
    Rules(u32, Vec<Rule>),
    /// The groups of an address; None: not bound to any.
    Bind(u8, Option<Vec<u32>>),
    Sweep,
}

/// What is asked of a conversation: who began it, with whom, in what, by which numbers.
type Conversation = (u32, IpAddr, IpAddr, Protocol, [u16; 2]);

struct Known {
    answered: bool,
    seen: u64,
}

#[derive(Default)]
struct Model {
    groups: HashMap<u32, Vec<Rule>>,
    bound: HashMap<IpAddr, Vec<u32>>,
    known: HashMap<Conversation, Known>,
}

impl Model {
    fn groups_of(&self, ip: IpAddr) -> &[u32] {
        self.bound.get(&ip).map_or(&[], Vec::as_slice)
    }

    fn judge(&self, subject: &Subject) -> Result<(), Denied> {
        let sides = [
            (Direction::Egress, subject.source, subject.destination, Denied::Egress),
            (Direction::Ingress, subject.destination, subject.source, Denied::Ingress),
        ];
        for (direction, own, other, denied) in sides {
            let Some(groups) = self.bound.get(&own) else { continue };
            let mut rules = groups.iter().filter_map(|group| self.groups.get(group)).flatten();
            if !rules.any(|rule| meets(rule, direction, subject, self.groups_of(other))) {
                return Err(denied);
            }
        }
        Ok(())
    }

    /// Who began it with these numbers: what a packet of these numbers belongs to, and whether it answers.
    fn find(
        &mut self,
        now: u64,
        vni: u32,
        ends: [IpAddr; 2],
        protocol: Protocol,
        numbers: Ends,
    ) -> (Conversation, bool) {
        let [source, destination] = ends;
        let asks = |numbers| (vni, source, destination, protocol, numbers);
        let answers = |numbers| (vni, destination, source, protocol, numbers);
        let (forward, back) = match numbers {
            Ends::Ports([a, b]) => (asks([a, b]), answers([b, a])),
            Ends::None => (asks([0, 0]), answers([0, 0])),
            Ends::Query(Query {
                identifier, asks: true, ..
            }) => return (asks([identifier, 8]), false),
            Ends::Query(Query { identifier, .. }) => return (answers([identifier, 8]), true),
        };
        let is_back = self.alive(now, &back);
        if is_back { (back, true) } else { (forward, false) }
    }

    fn alive(&mut self, now: u64, conversation: &Conversation) -> bool {
        let seconds = |answered| match conversation.3 {
            Protocol::UDP => {
                if answered {
                    120
                } else {
                    30
                }
            }
            Protocol::ICMP | Protocol::ICMPV6 => 30,
            _ => 600,
        };
        let over = |known: &Known| now - known.seen > seconds(known.answered) * SECOND;
        if self.known.get(conversation).is_some_and(over) {
            self.known.remove(conversation);
        }
        self.known.contains_key(conversation)
    }

    /// Judges one of a conversation by what its first packet was.
    fn still(&mut self, conversation: Conversation) -> Result<(), Refused> {
        let (_, source, destination, protocol, numbers) = conversation;
        let service = match protocol {
            Protocol::ICMP => 8 << 8,
            Protocol::ICMPV6 => 128 << 8,
            _ => numbers[1],
        };
        let subject = Subject {
            source,
            destination,
            protocol,
            service,
        };
        let judged = self.judge(&subject);
        if judged.is_err() {
            self.known.remove(&conversation);
        }
        judged.map_err(Refused::NoLongerAllowed)
    }

    /// Whether it passes, and whether its conversation is established.
    fn packet(&mut self, now: u64, vni: u32, flow: &Flow) -> Result<bool, Refused> {
        if !self.bound.contains_key(&flow.source) && !self.bound.contains_key(&flow.destination) {
            return Ok(!matches!(flow.upper, Upper::Error(_)));
        }
        if let Upper::Error(About { packet, .. }) = flow.upper {
            let quoted = packet.unwrap();
            let ends = [quoted.source, quoted.destination];
            let (conversation, _) = self.find(now, vni, ends, quoted.protocol, quoted.ends);
            if quoted.source != flow.destination || !self.alive(now, &conversation) {
                return Err(Refused::Unrelated);
            }
            return self.still(conversation).map(|()| false);
        }
        let ends = [flow.source, flow.destination];
        let (conversation, answers) = self.find(now, vni, ends, flow.protocol, flow.ends().unwrap());
        if self.alive(now, &conversation) {
            self.still(conversation)?;
            let known = self.known.get_mut(&conversation).unwrap();
            known.answered |= answers;
            known.seen = now;
            return Ok(known.answered && !matches!(flow.upper, Upper::Query(_)));
        }
        if answers {
            return Err(Refused::NoConnection);
        }
        let subject = Subject {
            source: flow.source,
            destination: flow.destination,
            protocol: flow.protocol,
            service: flow.service().unwrap(),
        };
        self.judge(&subject).map_err(Refused::Denied)?;
        let known = Known {
            answered: false,
            seen: now,
        };
        self.known.insert(conversation, known);
        Ok(false)
    }
}

fn flows() -> impl Strategy<Value = Flow> {
    let ends = prop_oneof![
        3 => (0..3_u8, 1..3_u8).prop_map(|(a, by)| (a, (a + by) % 3)),
        1 => any::<bool>().prop_map(|turned| if turned { (4, 3) } else { (3, 4) }),
    ];
    let kinds = prop_oneof![
        4 => (1..3_u16, 1..3_u16).prop_map(|(from, to)| udp(from, to)),
        2 => (1..3_u16, any::<bool>()).prop_map(|(identifier, asks)| echo(identifier, asks)),
        1 => Just(packet(GRE, Upper::Other)),
    ];
    (ends, kinds, prop::bool::weighted(0.2)).prop_map(|((source, destination), mut flow, error)| {
        (flow.source, flow.destination) = (address(source), address(destination));
        if flow.protocol == Protocol::ICMP && flow.source.is_ipv6() {
            flow.protocol = Protocol::ICMPV6;
        }
        if !error {
            return flow;
        }
        // From whom the packet was for: so the error's ends may have groups, too.
        Flow {
            source: flow.destination,
            ..error_about(&flow)
        }
    })
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let service = prop_oneof![
        2 => Just(Service::Any),
        2 => (1..3_u16).prop_map(|port| Service::Ports(Protocol::UDP, port..=port)),
        1 => Just(Service::Icmp(None)),
        1 => Just(Service::Protocol(GRE)),
    ];
    let remote = prop_oneof![
        3 => Just(Remote::Any),
        1 => (0..3_u32).prop_map(|group| Remote::Group(GroupId(group))),
        1 => (0..5_u8).prop_map(|number| Remote::Prefix(address(number).into())),
    ];
    let direction = prop_oneof![Just(Direction::Ingress), Just(Direction::Egress)];
    let rules = (direction, service, remote).prop_map(|(direction, service, remote)| rule(direction, service, remote));
    prop::collection::vec(rules, 0..5)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let groups = || prop::sample::subsequence(vec![0_u32, 1, 2], 0..3);
    let bind = (0..5_u8, prop::option::weighted(0.7, groups()));
    let step = prop_oneof![
        30 => (0..2_u32, flows()).prop_map(|(vni, flow)| Step::Packet(vni, flow)),
        3 => prop_oneof![Just(1), Just(29), Just(31), Just(119), Just(700)].prop_map(Step::Wait),
        2 => (0..3_u32, rules()).prop_map(|(group, rules)| Step::Rules(group, rules)),
        2 => bind.prop_map(|(number, groups)| Step::Bind(number, groups)),
        1 => Just(Step::Sweep),
    ];
    // Each run begins with rules for everybody, so that not everything is denied.
    let begin = (prop::collection::vec(rules(), 3), prop::collection::vec(groups(), 5));
    (begin, prop::collection::vec(step, 0..250)).prop_map(|((rules, groups), mut steps)| {
        let rules = (0..).zip(rules).map(|(group, rules)| Step::Rules(group, rules));
        let groups = (0..)
            .zip(groups)
            .map(|(number, groups)| Step::Bind(number, Some(groups)));
        steps.splice(0..0, rules.chain(groups));
        steps
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_decides_as_the_slow_one_does(steps in steps()) {
        let policy = Policy::new();
        let mut firewall = Firewall::new(&policy, Arc::new(Conntrack::new(few())));
        let mut profiles: HashMap<IpAddr, ProfileId> = HashMap::new();
        let mut model = Model::default();
        let mut now = 5 * SECOND;
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Packet(vni, flow) => {
                    let expected = model.packet(now, vni, &flow);
                    let [source, destination] = [flow.source, flow.destination].map(|ip| profiles.get(&ip).copied());
                    let judged = firewall.judge(now, Vni::new(vni).unwrap(), &flow, source, destination);
                    prop_assert_eq!(judged.map(|passed| passed.established), expected, "step {}: {:?}", at, flow);
                }
                Step::Wait(seconds) => now += seconds * SECOND,
                Step::Rules(group, rules) => {
                    let mut writer = policy.write();
                    writer.put_group(GroupId(group), rules.clone()).unwrap();
                    writer.publish();
                    model.groups.insert(group, rules);
                }
                Step::Bind(number, groups) => {
                    let ip = address(number);
                    match groups {
                        Some(groups) => {
                            let mut writer = policy.write();
                            let ids: Vec<_> = groups.iter().map(|group| GroupId(*group)).collect();
                            profiles.insert(ip, writer.profile(&ids));
                            writer.publish();
                            model.bound.insert(ip, groups);
                        }
                        None => {
                            profiles.remove(&ip);
                            model.bound.remove(&ip);
                        }
                    }
                }
                Step::Sweep => {
                    firewall.conntrack().sweep(now);
                }
            }
        }
        // What is over may still be there, on both sides.
        firewall.conntrack().sweep(now + 10_000 * SECOND);
        prop_assert!(firewall.conntrack().is_empty());
    }
}
