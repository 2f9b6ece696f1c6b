//! What is allowed, denied, an answer, an error, a fragment; and what becomes of it when rules change.

use super::bench::{CLIENT, SERVER, client, echo, error_about, packet, rule, server, turned, udp};
use super::*;

fn dns() -> Vec<Rule> {
    let service = Service::Ports(Protocol::UDP, 53..=53);
    vec![rule(Direction::Ingress, service, Remote::Any)]
}

const DENIED_IN: Refused = Refused::Denied(Denied::Ingress);
const DENIED_OUT: Refused = Refused::Denied(Denied::Egress);
const NO_LONGER: Refused = Refused::NoLongerAllowed(Denied::Ingress);

#[test]
fn without_groups_all_passes_and_nothing_is_remembered() {
    let mut bench = Bench::open(few());
    (bench.client, bench.server) = (None, None);
    assert!(bench.pass(&udp(1, 2)));
    let piece = Piece {
        identification: 1,
        first: false,
    };
    let later = Flow {
        fragment: Some(piece),
        ..packet(Protocol::UDP, Upper::Later)
    };
    assert!(
        !bench.pass(&later),
        "passes, but not by the fast path, which does not know its ports"
    );
    assert_eq!(bench.len(), 0);
}

#[test]
fn answers_pass_and_nothing_else_does() {
    let mut bench = Bench::new(few(), dns());
    bench.refuse(&turned(udp(5000, 53)), DENIED_OUT);
    bench.refuse(&udp(5000, 54), DENIED_IN);
    assert!(!bench.pass(&udp(5000, 53)), "not answered yet");
    assert_eq!(bench.state(), State::UdpUnreplied);
    assert!(bench.pass(&turned(udp(5000, 53))));
    assert!(bench.pass(&udp(5000, 53)));
    assert_eq!(bench.state(), State::UdpReplied);
    bench.refuse(&turned(udp(5001, 53)), DENIED_OUT);
    bench.vni = Vni::new(8).unwrap();
    bench.refuse(&turned(udp(5000, 53)), DENIED_OUT);
}

#[test]
fn a_question_is_forgotten() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.wait(30);
    bench.pass(&udp(5000, 53));
    bench.wait(31);
    bench.refuse(&turned(udp(5000, 53)), DENIED_OUT);
    bench.pass(&udp(5000, 53));
    bench.pass(&turned(udp(5000, 53)));
    bench.wait(120);
    bench.pass(&turned(udp(5000, 53)));
    bench.wait(121);
    bench.refuse(&turned(udp(5000, 53)), DENIED_OUT);
    assert_eq!(bench.firewall.conntrack().counts().timed_out, 2);
}

#[test]
fn pings() {
    let ping = Service::Icmp(Some((8, None)));
    let mut bench = Bench::new(few(), vec![rule(Direction::Ingress, ping, Remote::Any)]);
    bench.refuse(&turned(echo(1, false)), Refused::NoConnection);
    assert!(!bench.pass(&echo(1, true)));
    assert!(!bench.pass(&turned(echo(1, false))));
    assert_eq!(bench.state(), State::IcmpReplied);
    // The server asks under the same number: that is its own question, which it may not ask.
    bench.refuse(&turned(echo(1, true)), DENIED_OUT);
    bench.refuse(&turned(echo(2, false)), Refused::NoConnection);
    // The one number that stands for the answering side.
    bench.pass(&echo(8, true));
    bench.refuse(&turned(echo(8, true)), DENIED_OUT);
    bench.pass(&turned(echo(8, false)));
}

#[test]
fn other_protocols() {
    let mut bench = Bench::open(few());
    let gre = packet(Protocol(47), Upper::Other);
    bench.refuse(&turned(gre), DENIED_OUT);
    assert!(!bench.pass(&gre));
    assert!(bench.pass(&turned(gre)));
    assert_eq!(bench.state(), State::OtherReplied);
    // One that is not one of a connection is allowed by rules each time, and leaves nothing.
    let message_type = 5;
    let redirect = packet(Protocol::ICMP, Upper::Icmp { message_type, code: 0 });
    assert!(!bench.pass(&redirect));
    bench.refuse(&turned(redirect), DENIED_OUT);
    assert_eq!(bench.len(), 1);
    let oneself = Flow {
        source: server(),
        ..gre
    };
    bench.refuse(&oneself, Refused::SameEnds);
}

#[test]
fn finding_neighbours_needs_no_rule() {
    let mut bench = Bench::new(few(), Vec::new());
    let advertisement = |hops, message_type| Flow {
        source: "fd00::1".parse().unwrap(),
        destination: "fd00::2".parse().unwrap(),
        hops,
        ..packet(Protocol::ICMPV6, Upper::Icmp { message_type, code: 0 })
    };
    let (vni, server) = (bench.vni, bench.server);
    let mut judge = |flow| bench.firewall.judge(0, vni, &flow, None, server);
    assert!(judge(advertisement(255, 136)).is_ok());
    assert_eq!(judge(advertisement(254, 136)), Err(DENIED_IN), "from behind a router");
    assert_eq!(
        judge(advertisement(255, 134)),
        Err(DENIED_IN),
        "who wants to be a router"
    );
}

#[test]
fn errors_about_what_was_sent() {
    let mut bench = Bench::new(few(), dns());
    let question = udp(5000, 53);
    let error = error_about(&question);
    bench.refuse(&error, Refused::Unrelated);
    bench.pass(&question);
    assert!(!bench.pass(&error));
    assert_eq!(bench.state(), State::UdpUnreplied, "an error is no answer");
    bench.pass(&error_about(&turned(question)));
    bench.refuse(&error_about(&udp(5000, 54)), Refused::Unrelated);
    let to_another = Flow {
        destination: server(),
        ..error
    };
    bench.refuse(&to_another, Refused::Unrelated);
    let unknown = About {
        message_type: 3,
        code: 1,
        packet: None,
    };
    let unknown = Flow {
        upper: Upper::Error(unknown),
        ..error
    };
    bench.refuse(&unknown, Refused::Unrelated);
    bench.wait(31);
    bench.refuse(&error, Refused::Unrelated);
    // Errors keep nothing alive.
    bench.pass(&question);
    bench.wait(20);
    bench.pass(&error);
    bench.wait(20);
    bench.refuse(&error, Refused::Unrelated);
}

#[test]
fn fragments_pass_by_what_was_decided_about_the_first() {
    let mut bench = Bench::new(few(), dns());
    let piece = |identification, first| Flow {
        fragment: Some(Piece { identification, first }),
        upper: if first { Upper::Ports([5000, 53]) } else { Upper::Later },
        ..udp(0, 0)
    };
    bench.refuse(&piece(1, false), Refused::UnknownFragment);
    assert!(!bench.pass(&piece(1, true)));
    assert!(!bench.pass(&piece(1, false)));
    assert!(!bench.pass(&piece(1, false)), "any number of them");
    bench.refuse(&piece(2, false), Refused::UnknownFragment);
    bench.refuse(&turned(piece(1, false)), Refused::UnknownFragment);
    bench.pass(&turned(udp(5000, 53)));
    assert!(
        !bench.pass(&piece(2, true)),
        "established, and yet not by the fast path"
    );
    bench.wait(31);
    bench.refuse(&piece(1, false), Refused::UnknownFragment);
    bench.pass(&piece(1, true));
    bench.put_group(SERVER, Vec::new());
    bench.refuse(&piece(1, false), Refused::UnknownFragment);
    bench.put_group(SERVER, dns());
    let other_ports = Flow {
        upper: Upper::Ports([5000, 54]),
        ..piece(3, true)
    };
    bench.refuse(&other_ports, DENIED_IN);
    bench.refuse(&piece(3, false), Refused::UnknownFragment);
}

/// An error passes by the rules that hold now for who sends it, too, if that is the other end of its connection.
#[test]
fn errors_are_judged_by_the_rules_of_who_sends_them() {
    let mut bench = Bench::new(few(), dns());
    let question = udp(5000, 53);
    bench.pass(&question);
    let error = Flow {
        source: server(),
        ..error_about(&question)
    };
    bench.pass(&error);
    let mut writer = bench.policy.write();
    let nothing = writer.profile(&[]);
    writer.publish();
    bench.server = Some(nothing);
    bench.refuse(&error, NO_LONGER);
}

/// However many there are, the newest is remembered, and 4096 in all.
#[test]
fn fragments_of_so_many_packets_are_remembered() {
    const PACKETS: u32 = 60_000;
    let mut bench = Bench::new(few(), dns());
    let piece = |identification, first| Flow {
        fragment: Some(Piece { identification, first }),
        upper: if first { Upper::Ports([5000, 53]) } else { Upper::Later },
        ..udp(0, 0)
    };
    for identification in 0..PACKETS {
        bench.now += 1;
        bench.pass(&piece(identification, true));
        bench.pass(&piece(identification, false));
    }
    let mut known: Vec<u32> = (0..PACKETS).collect();
    known.retain(|identification| bench.judge(&piece(*identification, false)).is_ok());
    assert_eq!(known.len(), 4096);
    // Of each place the last four: none of them is old.
    assert!(known[0] > PACKETS / 2, "{}", known[0]);
}

#[test]
fn a_rule_removed_ends_the_connection_whoever_speaks_next() {
    for from_client in [true, false] {
        let mut bench = Bench::new(few(), dns());
        let (question, answer) = (udp(5000, 53), turned(udp(5000, 53)));
        bench.pass(&question);
        bench.pass(&answer);
        bench.put_group(SERVER, Vec::new());
        bench.refuse(if from_client { &question } else { &answer }, NO_LONGER);
        assert_eq!(bench.len(), 0);
        assert_eq!(bench.firewall.conntrack().counts().no_longer_allowed, 1);
        bench.refuse(&question, DENIED_IN);
        bench.refuse(&answer, DENIED_OUT);
        bench.put_group(SERVER, dns());
        bench.refuse(&answer, DENIED_OUT);
        bench.pass(&question);
        bench.pass(&answer);
    }
}

#[test]
fn a_rule_of_the_other_side_removed() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.pass(&turned(udp(5000, 53)));
    bench.put_group(CLIENT, Vec::new());
    bench.refuse(&turned(udp(5000, 53)), Refused::NoLongerAllowed(Denied::Egress));
}

#[test]
fn a_change_that_still_allows_it_is_not_noticed() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.pass(&turned(udp(5000, 53)));
    bench.put_group(SERVER, vec![rule(Direction::Ingress, Service::Any, Remote::Any)]);
    assert!(bench.pass(&turned(udp(5000, 53))));
    bench.put_group(SERVER, dns());
    assert!(bench.pass(&udp(5000, 53)));
    let mut generations = Vec::new();
    let conntrack = bench.firewall.conntrack();
    conntrack.for_each(|connection| generations.push(connection.generation));
    assert_eq!(generations, [bench.policy.generation()]);
}

#[test]
fn another_profile_of_an_address_counts_like_other_rules() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.pass(&turned(udp(5000, 53)));
    let mut writer = bench.policy.write();
    let nothing = Some(writer.profile(&[]));
    let both = Some(writer.profile(&[CLIENT, SERVER]));
    writer.publish();
    bench.server = both;
    assert!(bench.pass(&turned(udp(5000, 53))));
    let mut profiles = Vec::new();
    let conntrack = bench.firewall.conntrack();
    conntrack.for_each(|connection| profiles.push(connection.profiles));
    assert_eq!(profiles, [[bench.client, both]]);
    bench.server = nothing;
    bench.refuse(&turned(udp(5000, 53)), NO_LONGER);
    // And none at all: nothing is denied, and nothing tracked, if the other side has none either.
    bench.server = None;
    bench.pass(&udp(5000, 53));
    assert_eq!(bench.len(), 1);
    bench.client = None;
    assert!(bench.pass(&udp(5001, 53)));
    assert_eq!(bench.len(), 1);
}

#[test]
fn an_error_ends_what_is_no_longer_allowed() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.put_group(SERVER, Vec::new());
    bench.refuse(&error_about(&udp(5000, 53)), NO_LONGER);
    assert_eq!(bench.len(), 0);
}

#[test]
fn members_of_a_group_come_and_go() {
    let from_members = rule(Direction::Ingress, Service::Any, Remote::Group(CLIENT));
    let mut bench = Bench::new(few(), vec![from_members]);
    assert!(!bench.pass(&udp(1, 2)));
    assert!(bench.pass(&turned(udp(1, 2))));
    let mut writer = bench.policy.write();
    let other = GroupId(3);
    let all_out = rule(Direction::Egress, Service::Any, Remote::Any);
    writer.put_group(other, vec![all_out]).unwrap();
    let outsider = Some(writer.profile(&[other]));
    let member = Some(writer.profile(&[other, CLIENT]));
    writer.publish();
    bench.client = member;
    assert!(bench.pass(&udp(1, 2)));
    bench.client = outsider;
    bench.refuse(&turned(udp(1, 2)), NO_LONGER);
}

#[test]
fn what_is_told_of_a_connection_is_enough_to_restore_it() {
    let mut bench = Bench::new(few(), dns());
    bench.pass(&udp(5000, 53));
    bench.pass(&turned(udp(5000, 53)));
    let mut told = Vec::new();
    let conntrack = bench.firewall.conntrack();
    conntrack.for_each(|connection| told.push(*connection));
    let [connection] = told[..] else { panic!("{told:?}") };
    assert_eq!((connection.source, connection.destination), (client(), server()));
    assert_eq!((connection.ports, connection.vni), ([5000, 53], bench.vni));
    assert_eq!(connection.profiles, [bench.client, bench.server]);
    assert_eq!((connection.seen, connection.handed_over), (bench.now, false));

    let mut after = Bench::new(few(), dns());
    assert!(after.firewall.conntrack().restore(after.now, &connection));
    let twice = after.firewall.conntrack().restore(after.now, &connection);
    assert!(!twice, "it is there already");
    assert!(after.pass(&turned(udp(5000, 53))));
    assert_eq!(after.len(), 1);
    let mut denying = Bench::new(few(), Vec::new());
    assert!(denying.firewall.conntrack().restore(denying.now, &connection));
    denying.refuse(&turned(udp(5000, 53)), NO_LONGER);
}

/// Another gateway had it meanwhile, and gives it back.
#[test]
fn one_that_was_elsewhere_meanwhile_counts_no_numbers() {
    let segment = |flags: Flags, sequence, acknowledgment, len| {
        let ports = [4000, 80];
        let (window, scale) = (1000, None);
        packet(
            Protocol::TCP,
            Upper::Tcp(Segment {
                ports,
                sequence,
                len,
                acknowledgment,
                flags,
                window,
                scale,
            }),
        )
    };
    let syn_ack = Flags(Flags::SYN.0 | Flags::ACK.0);
    let mut bench = Bench::open(few());
    bench.pass(&segment(Flags::SYN, 0, 0, 1));
    bench.pass(&turned(segment(syn_ack, 0, 1, 1)));
    assert!(bench.pass(&segment(Flags::ACK, 1, 1, 0)));
    let much_later = segment(Flags::ACK, 1_000_000, 2_000_000, 10);
    bench.refuse(&much_later, Refused::OutOfWindow);
    let mut told = Vec::new();
    bench.firewall.conntrack().for_each(|connection| told.push(*connection));
    assert!(!bench.firewall.conntrack().restore(bench.now, &told[0]), "it is there");
    assert!(bench.pass(&much_later));
    assert_eq!((bench.len(), bench.state()), (1, State::Established));
}
