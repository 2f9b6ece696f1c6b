use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use proptest::prelude::*;
use ringside_wire::Protocol;

use super::*;

fn subject(source: &str, destination: &str, protocol: Protocol, service: u16) -> Subject {
    Subject {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol,
        service,
    }
}

/// Allows one thing in one direction.
pub(crate) fn rule(direction: Direction, service: Service, remote: Remote) -> Rule {
    Rule {
        id: RuleId(1),
        direction,
        family: None,
        service,
        remote,
    }
}

fn tcp(ports: RangeInclusive<u16>) -> Service {
    Service::Ports(Protocol::TCP, ports)
}

#[test]
fn both_sides_have_to_allow_it() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let [out, into, none] = [[GroupId(1)], [GroupId(2)], [GroupId(3)]].map(|groups| Some(writer.profile(&groups)));
    let web = |direction| vec![rule(direction, tcp(80..=80), Remote::Any)];
    writer.put_group(GroupId(1), web(Direction::Egress)).unwrap();
    writer.put_group(GroupId(2), web(Direction::Ingress)).unwrap();
    writer.publish();
    let mut reader = policy.reader();
    let rules = reader.load();
    let subject = subject("10.0.0.1", "10.0.0.2", Protocol::TCP, 80);
    for (source, destination, expected) in [
        (None, None, Ok(())),
        (out, None, Ok(())),
        (None, into, Ok(())),
        (out, into, Ok(())),
        (into, None, Err(Denied::Egress)),
        (None, out, Err(Denied::Ingress)),
        (out, none, Err(Denied::Ingress)),
        (none, into, Err(Denied::Egress)),
        (ProfileId::new(99), into, Err(Denied::UnknownProfile)),
    ] {
        assert_eq!(
            rules.judge(&subject, source, destination),
            expected,
            "{source:?} {destination:?}"
        );
    }
}

#[test]
fn a_group_as_the_other_side() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let database = Some(writer.profile(&[GroupId(1)]));
    let web = Some(writer.profile(&[GroupId(3), GroupId(2)]));
    let others = Some(writer.profile(&[GroupId(3)]));
    let from_web = rule(Direction::Ingress, tcp(5432..=5432), Remote::Group(GroupId(2)));
    writer.put_group(GroupId(1), vec![from_web]).unwrap();
    let all_out = vec![rule(Direction::Egress, Service::Any, Remote::Any)];
    writer.put_group(GroupId(3), all_out).unwrap();
    writer.publish();
    let mut reader = policy.reader();
    let subject = subject("fd00::1", "fd00::2", Protocol::TCP, 5432);
    let rules = reader.load();
    assert_eq!(rules.judge(&subject, web, database), Ok(()));
    assert_eq!(rules.judge(&subject, others, database), Err(Denied::Ingress));
    assert_eq!(rules.judge(&subject, None, database), Err(Denied::Ingress));
}

#[test]
fn a_set_of_groups_has_one_number() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let one = writer.profile(&[GroupId(2), GroupId(1), GroupId(2)]);
    assert_eq!(writer.profile(&[GroupId(1), GroupId(2)]), one);
    assert_ne!(writer.profile(&[GroupId(1)]), one);
    assert_eq!(writer.groups_of(one), Some(&[GroupId(1), GroupId(2)][..]));
    assert!(writer.remove_profile(one));
    assert!(!writer.remove_profile(one));
    // Never the same number again: an address that still has it must not get the rules of another set.
    assert_ne!(writer.profile(&[GroupId(1), GroupId(2)]), one);
}

/// What is bound to two addresses changes together, and the rules of it: at no moment is one of them looked up as it was and judged with the other as it is.
#[test]
fn what_is_bound_to_several_addresses_turns_at_once() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let [from, to, next] = [1, 2, 3].map(|group| writer.profile(&[GroupId(group)]));
    let allow = |direction, remote| vec![rule(direction, tcp(80..=80), remote)];
    let ingress = |group| allow(Direction::Ingress, Remote::Group(GroupId(group)));
    writer
        .put_group(GroupId(1), allow(Direction::Egress, Remote::Any))
        .unwrap();
    writer.put_group(GroupId(2), ingress(1)).unwrap();
    let before = writer.publish();
    let subject = subject("10.0.0.1", "10.0.0.2", Protocol::TCP, 80);
    let mut reader = policy.reader();
    let mut judge = |[from, to]: [Option<ProfileId>; 2]| {
        let rules = reader.load();
        (rules.generation(), rules.judge(&subject, from, to))
    };
    assert_eq!(judge([Some(from), Some(to)]), (before, Ok(())));

    let mut writer = policy.write();
    writer.remove_group(GroupId(1));
    writer
        .put_group(GroupId(3), allow(Direction::Egress, Remote::Any))
        .unwrap();
    writer.put_group(GroupId(2), ingress(3)).unwrap();
    // Who gets it has the same profile, and who sends another one; and somebody has none from now on, or may do nothing more.
    let turn = writer.turn(Side::Profile(from), Side::Profile(next));
    assert_eq!(writer.turn(Side::Profile(from), Side::Profile(next)), turn);
    let opens = writer.turn(Side::Closed, Side::Open);
    let closes = writer.turn(Side::Open, Side::Closed);
    let mut calls = 0;
    let after = writer.publish_and_bind(|bind| {
        calls += 1;
        let is_turned = match bind {
            Bind::Turns => false,
            Bind::Profiles => true,
        };
        let (generation, judged) = judge([Some(turn), Some(to)]);
        assert_eq!((judged, generation > before), (Ok(()), is_turned));
        let of = |which: ProfileId, judge: &mut dyn FnMut([Option<ProfileId>; 2]) -> (u64, Result<(), Denied>)| {
            [[Some(which), None], [None, Some(which)]].map(|ends| judge(ends).1.is_ok())
        };
        assert_eq!(of(opens, &mut judge), [is_turned; 2]);
        assert_eq!(of(closes, &mut judge), [!is_turned; 2]);
        let known = if is_turned { next } else { from };
        assert_eq!(judge([Some(known), Some(to)]).1, Ok(()));
    });
    assert_eq!(calls, 2);
    let (generation, judged) = judge([Some(next), Some(to)]);
    assert_eq!((generation, judged), (after, Ok(())));
    // Turns are over; whoever has found one sees that there is another generation.
    assert_eq!(judge([Some(turn), Some(to)]).1, Err(Denied::UnknownProfile));
    let mut writer = policy.write();
    let mut bound = Vec::new();
    writer.put_group(GroupId(2), Vec::new()).unwrap();
    let last = writer.publish_and_bind(|bind| bound.push(bind));
    assert_eq!((bound, last), (vec![Bind::Profiles], after + 1));
}

#[test]
fn nothing_holds_that_could_be_otherwise_and_all_else_does() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let [a, b] = [[GroupId(1)], [GroupId(2)]].map(|groups| Some(writer.profile(&groups)));
    let all = vec![rule(Direction::Ingress, Service::Any, Remote::Any)];
    writer.put_group(GroupId(1), all.clone()).unwrap();
    writer.put_group(GroupId(2), all.clone()).unwrap();
    let first = writer.publish();

    // The same again, and a new profile: nobody's packets are judged otherwise.
    let mut writer = policy.write();
    writer.put_group(GroupId(1), all).unwrap();
    let c = Some(writer.profile(&[GroupId(3)]));
    writer.put_group(GroupId(3), Vec::new()).unwrap();
    assert_eq!(writer.changed(), []);
    assert_eq!(writer.publish(), first);
    let mut reader = policy.reader();
    assert!(reader.load().holds(first, a, c));

    let mut writer = policy.write();
    writer.put_group(GroupId(2), Vec::new()).unwrap();
    assert_eq!(Some(writer.changed()), b.map(|b| vec![b]));
    let second = writer.publish();
    assert!(second > first);
    assert!(reader.load().holds(first, a, None), "not touched");
    assert!(!reader.load().holds(first, a, b));
    assert!(reader.load().holds(second, a, b));

    let mut writer = policy.write();
    assert!(writer.remove_group(GroupId(1)) && !writer.remove_group(GroupId(1)));
    assert_eq!(Some(writer.changed()), a.map(|a| vec![a]));
    drop(writer);
    assert_eq!(policy.generation(), second, "what is not published has never been");

    let mut writer = policy.write();
    assert!(writer.remove_profile(a.unwrap()));
    let third = writer.publish();
    assert!(!reader.load().holds(second, None, a));
    assert!(reader.load().holds(third, None, c));
    let subject = subject("10.0.0.1", "10.0.0.2", Protocol::UDP, 1);
    assert_eq!(reader.load().judge(&subject, None, a), Err(Denied::UnknownProfile));
}

#[test]
fn icmp_is_that_of_the_family() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let ping = Some(writer.profile(&[GroupId(1)]));
    let types = [Service::Icmp(Some((8, None))), Service::Icmp(Some((128, Some(0))))];
    let rules = types.map(|service| rule(Direction::Ingress, service, Remote::Any));
    writer.put_group(GroupId(1), rules.to_vec()).unwrap();
    writer.publish();
    let mut reader = policy.reader();
    let rules = reader.load();
    let allowed = |from: &str, to: &str, protocol, service| {
        rules.judge(&subject(from, to, protocol, service), None, ping).is_ok()
    };
    assert!(allowed("10.0.0.1", "10.0.0.2", Protocol::ICMP, 0x0800));
    assert!(allowed("10.0.0.1", "10.0.0.2", Protocol::ICMP, 0x0807), "any code");
    assert!(allowed("fd00::1", "fd00::2", Protocol::ICMPV6, 0x8000));
    assert!(!allowed("fd00::1", "fd00::2", Protocol::ICMPV6, 0x8001), "another code");
    assert!(
        !allowed("fd00::1", "fd00::2", Protocol::ICMP, 0x0800),
        "IPv4's ICMP in IPv6"
    );
    assert!(!allowed("10.0.0.1", "10.0.0.2", Protocol::ICMP, 0x0700));
}

#[test]
fn rules_without_sense_are_refused() {
    let policy = Policy::new();
    let mut writer = policy.write();
    let refused = |rule: Rule, writer: &mut PolicyWriter<'_>| {
        let text = writer.put_group(GroupId(1), vec![rule]).unwrap_err().to_string();
        assert!(writer.group(GroupId(1)).is_none());
        text
    };
    let gre = Service::Ports(Protocol(47), 1..=2);
    let text = refused(rule(Direction::Ingress, gre, Remote::Any), &mut writer);
    assert_eq!(
        text,
        "rule 1: protocol 47 has no ports; leave them out, or name TCP, UDP, UDP-Lite, SCTP or DCCP"
    );
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let text = refused(rule(Direction::Ingress, tcp(80..=79), Remote::Any), &mut writer);
    assert_eq!(text, "rule 1: the ports 80 to 79 are none; give the lower one first");
    let other = Rule {
        family: Some(Family::V6),
        ..rule(
            Direction::Ingress,
            Service::Any,
            Remote::Prefix("10.0.0.0/8".parse().unwrap()),
        )
    };
    assert_eq!(
        refused(other, &mut writer),
        "rule 1: the prefix 10.0.0.0/8 is not of the rule's ether type; change one of them"
    );
}

// What the bits come to, against rules that are read one after the other.

/// Few addresses, ports and groups, and those at the ends of their ranges, so that rules and packets meet.
fn addresses() -> impl Strategy<Value = IpAddr> {
    let v4 = prop::sample::select(vec![
        0_u32,
        1,
        0x0a00_0000,
        0x0a00_0001,
        0x0a00_00ff,
        0x0a00_0100,
        u32::MAX - 1,
        u32::MAX,
    ]);
    let low = prop::sample::select(vec![0_u128, 1, 0xff, 0x100, 1 << 64, u128::MAX >> 8]);
    prop_oneof![
        v4.prop_map(|ip| Ipv4Addr::from(ip).into()),
        low.prop_map(|low| Ipv6Addr::from(0xfd << 120 | low).into()),
    ]
}

fn services() -> impl Strategy<Value = u16> {
    prop_oneof![
        Just(0),
        Just(u16::MAX),
        0..12_u16,
        Just(0x0800),
        Just(0x0801),
        Just(0x8000)
    ]
}

fn protocols() -> impl Strategy<Value = Protocol> {
    prop::sample::select(vec![
        Protocol::TCP,
        Protocol::UDP,
        Protocol::ICMP,
        Protocol::ICMPV6,
        Protocol(47),
    ])
}

fn some_rules() -> impl Strategy<Value = Rule> {
    let service = prop_oneof![
        Just(Service::Any),
        protocols().prop_map(Service::Protocol),
        (any::<bool>(), services(), services()).prop_map(|(udp, a, b)| {
            let protocol = if udp { Protocol::UDP } else { Protocol::TCP };
            Service::Ports(protocol, a.min(b)..=a.max(b))
        }),
        prop::option::of((prop::sample::select(vec![8_u8, 128]), prop::option::of(0..2_u8))).prop_map(Service::Icmp),
    ];
    let prefix = (addresses(), 0..=128_u8).prop_map(|(ip, len)| {
        let len = len.min(if ip.is_ipv4() { 32 } else { 128 });
        Remote::Prefix(ipnet::IpNet::new(ip, len).unwrap())
    });
    let remote = prop_oneof![
        Just(Remote::Any),
        prefix,
        (0..4_u32).prop_map(|group| Remote::Group(GroupId(group)))
    ];
    (
        any::<u64>(),
        any::<bool>(),
        prop::option::of(any::<bool>()),
        service,
        remote,
    )
        .prop_map(|(id, out, v6, service, remote)| {
            let family = v6.map(|v6| if v6 { Family::V6 } else { Family::V4 });
            let direction = if out { Direction::Egress } else { Direction::Ingress };
            Rule {
                id: RuleId(id),
                direction,
                family,
                service,
                remote,
            }
        })
        .prop_filter("a rule with sense", |rule| rule.check().is_ok())
}

/// One rule, one packet, as an operator reads it.
pub(crate) fn meets(rule: &Rule, direction: Direction, subject: &Subject, remote_groups: &[u32]) -> bool {
    let v6 = subject.source.is_ipv6();
    let other = if direction == Direction::Ingress {
        subject.source
    } else {
        subject.destination
    };
    let family = match rule.family {
        None => true,
        Some(Family::V4) => !v6,
        Some(Family::V6) => v6,
    };
    let icmp = subject.protocol.0 == if v6 { 58 } else { 1 };
    let service = match &rule.service {
        Service::Any => true,
        Service::Protocol(protocol) => *protocol == subject.protocol,
        Service::Ports(protocol, ports) => *protocol == subject.protocol && ports.contains(&subject.service),
        Service::Icmp(None) => icmp,
        Service::Icmp(Some((kind, code))) => {
            icmp && u16::from(*kind) == subject.service >> 8
                && code.is_none_or(|code| u16::from(code) == subject.service & 0xff)
        }
    };
    let remote = match rule.remote {
        Remote::Any => true,
        Remote::Prefix(prefix) => prefix.contains(&other),
        Remote::Group(GroupId(group)) => remote_groups.contains(&group),
    };
    rule.direction == direction && family && service && remote
}

proptest! {
    #[test]
    fn it_allows_what_one_of_its_rules_does(
        groups in prop::collection::vec(prop::collection::vec(some_rules(), 0..60), 4),
        asked in prop::collection::vec((addresses(), addresses(), protocols(), services()), 1..60),
        own in prop::sample::subsequence(vec![0_u32, 1, 2, 3], 0..4),
        remote in prop::option::of(prop::sample::subsequence(vec![0_u32, 1, 2, 3], 0..4)),
    ) {
        let policy = Policy::new();
        let mut writer = policy.write();
        let ids = |groups: &[u32]| groups.iter().map(|group| GroupId(*group)).collect::<Vec<_>>();
        let profile = writer.profile(&ids(&own));
        let remote_profile = remote.as_ref().map(|groups| writer.profile(&ids(groups)));
        for (group, rules) in (0..).zip(&groups) {
            writer.put_group(GroupId(group), rules.clone()).unwrap();
        }
        writer.publish();
        let mut reader = policy.reader();
        let remote_groups = remote.unwrap_or_default();
        for (source, destination, protocol, service) in asked {
            if source.is_ipv4() != destination.is_ipv4() {
                continue;
            }
            let subject = Subject { source, destination, protocol, service };
            for direction in [Direction::Ingress, Direction::Egress] {
                let by: Vec<_> = own
                    .iter()
                    .flat_map(|group| &groups[*group as usize])
                    .filter(|rule| meets(rule, direction, &subject, &remote_groups))
                    .map(|rule| rule.id)
                    .collect();
                match reader.load().allows(profile, direction, &subject, remote_profile) {
                    Ok(rule) => prop_assert!(by.contains(&rule), "{rule:?} does not allow {subject:?}"),
                    Err(_) => prop_assert!(by.is_empty(), "{by:?} allow {subject:?}"),
                }
            }
        }
    }
}
