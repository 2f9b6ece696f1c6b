//! Security groups: what they allow goes, and nothing else; changes hold for connections that live.

use std::net::{IpAddr, TcpStream, UdpSocket};
use std::time::Duration;

use ringside_netlab::testing::bound;
use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant};
use crate::peers::uninterrupted;
use crate::peers::{MOMENT, answered, chat, connect, exchange_during, is_cut_off, unanswered};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => only_what_is_allowed_goes, what_is_allowed_goes_the_fast_way, errors_about_what_is_allowed_come_back,
        a_rule_that_goes_ends_what_it_allowed, members_come_and_go, a_drained_gateway_begins_nothing, who_is_not_known_may_not_send,
        a_change_elsewhere_is_nothing_to_who_is_connected, rules_name_families_and_prefixes,
        a_network_has_as_many_connections_as_it_may_have, a_flood_that_nobody_answers_takes_the_fast_way_from_nobody;
    generic = crate::tenants::GENERIC => only_what_is_allowed_goes, what_is_allowed_goes_the_fast_way, errors_about_what_is_allowed_come_back,
        a_rule_that_goes_ends_what_it_allowed;
    two_ports = crate::tenants::TWO_PORTS => only_what_is_allowed_goes, what_is_allowed_goes_the_fast_way, a_rule_that_goes_ends_what_it_allowed;
    two_ports_slow = crate::tenants::TWO_PORTS_SLOW => only_what_is_allowed_goes;
    slow = crate::tenants::SLOW => only_what_is_allowed_goes, rules_name_families_and_prefixes, a_rule_that_goes_ends_what_it_allowed,
        errors_about_what_is_allowed_come_back, members_come_and_go, who_is_not_known_may_not_send;
}

const OPEN: u16 = 7000;
const CLOSED: u16 = 7001;

/// A TCP rule for the open port.
const TCP: &str = "{id: 1, direction: ingress, protocol: tcp, ports: 7000}";

/// Two hosts, and groups bound to the tenants of network 42: by host, from 1.
fn bed(tag: &str, kind: Kind, groups: &str, ports: [&str; 2]) -> Bed {
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(Family::V4); 2]);
    let bound = bind(&bed, ports);
    bed.ringside().apply(&format!("groups:\n{groups}{bound}"));
    bed
}

/// Both tenants of network 42 may do anything, by rules.
pub(crate) fn allow_all(bed: &mut Bed) {
    let bound = bind(bed, ["[1]", "[1]"]);
    let all = group(1, &["{id: 1, direction: egress}", "{id: 2, direction: ingress}"]);
    bed.ringside().apply(&format!("groups:\n{all}{bound}"));
}

/// Nothing of what they send is allowed, or was.
pub(crate) fn allow_nothing(bed: &mut Bed) {
    bed.ringside().apply(&format!("groups:\n{}", group(1, &[])));
}

fn bind(bed: &Bed, ports: [&str; 2]) -> String {
    let mut text = "ports:\n".to_owned();
    for (host, groups) in (1..).zip(ports) {
        for family in FAMILIES.map(|family| bed.at(host).address(family)) {
            text.push_str(&format!("  - {{vni: 42, ip: \"{family}\", groups: {groups}}}\n"));
        }
    }
    text
}

fn group(id: u32, rules: &[&str]) -> String {
    format!("  - {{id: {id}, rules: [{}]}}\n", rules.join(", "))
}

pub(crate) fn only_what_is_allowed_goes(kind: Kind) {
    // The one that asks may do anything; the one that is asked says nothing by itself.
    let anything = ["{id: 1, direction: egress}", "{id: 2, direction: ingress}"];
    let groups = group(1, &[TCP]) + &group(2, &anything);
    let mut bed = bed("allowed", kind, &groups, ["[2]", "[1]"]);
    for inner in FAMILIES {
        let (client, server) = (bed.at(1), bed.at(2));
        let (asked, asker) = (server.address(inner), client.address(inner));
        // Allowed, with its answers.
        let streams = connect(client, (server, asked), OPEN);
        for _ in 0..20 {
            chat(&streams).expect("goes both ways");
        }
        // Another port, another protocol; and nothing that the other one begins.
        assert!(is_cut_off(client, (server, asked), CLOSED), "{inner:?}");
        unanswered(client, asked);
        assert!(is_cut_off(server, (client, asker), OPEN), "{inner:?}");
        unanswered(server, asker);
        // Where no groups are bound nothing is asked.
        let free = [&bed.tenants[0][1], &bed.tenants[1][1]];
        answered(free[0], free[1].address(inner));
        chat(&streams).expect("still goes");
    }
    // A connection attempt and three echoes, in both families. Each has one reason.
    for reason in ["ingress-denied", "egress-denied"] {
        bed.ringside().wait_until(|gateway| gateway.dropped(reason) >= 8);
    }
}

fn what_is_allowed_goes_the_fast_way(kind: Kind) {
    let groups = group(1, &[TCP]) + &group(2, &["{id: 1, direction: egress}"]);
    let mut bed = bed("fast-allowed", kind, &groups, ["[2]", "[1]"]);
    for inner in FAMILIES {
        let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(inner)), OPEN);
        // Its first packets go through a worker, which hands it over.
        chat(&streams).expect("goes");
        let goes_fast = |bed: &mut Bed| {
            let before = bed.ringside().forwarded("fast");
            chat(&streams).expect("goes");
            bed.ringside().forwarded("fast") > before
        };
        assert!(
            wait_until(PATIENCE, || goes_fast(&mut bed)),
            "{}",
            bed.ringside().statistics()
        );
        // While neither end has said that it is done: from then on workers look after it.
        exchange_during(&streams, || {
            let (fast, slow) = (bed.ringside().forwarded("fast"), bed.ringside().forwarded("slow"));
            bed.ringside()
                .wait_until(|gateway| gateway.forwarded("fast") >= fast + 10_000);
            let slow = bed.ringside().forwarded("slow") - slow;
            assert!(slow < 1000, "{slow} of more than 10000 packets went through workers");
        });
    }
}

fn errors_about_what_is_allowed_come_back(kind: Kind) {
    let udp = "{id: 1, direction: ingress, protocol: udp, ports: 9}";
    let anything = "{id: 1, direction: egress}";
    let groups = group(1, &[udp]) + &group(2, &[anything]);
    let bed = bed("related", kind, &groups, ["[2]", "[1]"]);
    for inner in FAMILIES {
        let (client, server) = (bed.at(1), bed.at(2));
        let socket = client
            .ns
            .run(|| UdpSocket::bind((client.address(inner), 0)))
            .expect("UDP socket");
        socket.connect((server.address(inner), 9)).expect("connects");
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("time-out");
        // Nobody has the port. The receiver's kernel limits how often it says so.
        let refused = || {
            _ = socket.send(b"anybody?");
            let error = socket.recv(&mut [0; 16]).expect_err("nobody answers");
            error.kind() == std::io::ErrorKind::ConnectionRefused
        };
        assert!(wait_until(PATIENCE, refused), "{inner:?}");
    }
}

fn a_rule_that_goes_ends_what_it_allowed(kind: Kind) {
    // ICMP of both families.
    let others = [1, 58].map(|protocol| format!("{{id: {protocol}0, direction: ingress, protocol: {protocol}}}"));
    let [all, without] = [&[TCP, &others[0], &others[1]][..], &[&others[0], &others[1]]].map(|rules| group(1, rules));
    let mut bed = bed("rule-goes", kind, &all, ["[3]", "[1]"]);
    bed.ringside()
        .apply(&format!("groups:\n{}", group(3, &["{id: 1, direction: egress}"])));
    for inner in FAMILIES {
        let to = bed.at(2).address(inner);
        let streams = connect(bed.at(1), (bed.at(2), to), OPEN);
        for _ in 0..20 {
            chat(&streams).expect("goes");
        }
        let before = bed.ringside().dropped("no-longer-allowed");
        bed.ringside().apply(&format!("groups:\n{without}"));
        // From the answer on nothing of it goes.
        set_patience(&streams, MOMENT);
        assert!(chat(&streams).is_err());
        bed.ringside()
            .wait_until(|gateway| gateway.dropped("no-longer-allowed") > before);
        answered(bed.at(1), to);
        // With the rule it goes on, as soon as its sender tries again: the word that was under way comes first.
        bed.ringside().apply(&format!("groups:\n{all}"));
        set_patience(&streams, PATIENCE);
        let mut word = [0; 4];
        std::io::Read::read_exact(&mut &streams[1], &mut word).expect("goes on");
        chat(&streams).expect("goes on");
    }
}

/// Whatever carries it: here hosts that are reached over IPv6.
fn rules_name_families_and_prefixes(kind: Kind) {
    let mut bed = Bed::new("prefixes", kind, &[Place::vxlan(Family::V6); 2]);
    let bound = bind(&bed, ["[2]", "[1]"]);
    let sender = group(2, &["{id: 1, direction: egress}"]);
    for (rule, are_allowed) in [
        ("ether-type: ipv4", [true, false]),
        ("ether-type: ipv6", [false, true]),
        ("remote-prefix: 10.0.0.0/24", [true, false]),
        ("remote-prefix: 10.0.0.1/32", [true, false]),
        ("remote-prefix: 10.0.0.2/31", [false, false]),
        ("remote-prefix: \"fd00::/64\"", [false, true]),
        ("remote-prefix: \"fd00:0:0:1::/64\"", [false, false]),
    ] {
        let receiver = group(1, &[&format!("{{id: 1, direction: ingress, {rule}}}")]);
        bed.ringside().apply(&format!("groups:\n{receiver}{sender}{bound}"));
        for (inner, is_allowed) in FAMILIES.into_iter().zip(are_allowed) {
            let to = bed.at(2).address(inner);
            match is_allowed {
                true => answered(bed.at(1), to),
                false => unanswered(bed.at(1), to),
            };
        }
    }
}

fn set_patience(streams: &[TcpStream; 2], time: Duration) {
    for stream in streams {
        stream.set_read_timeout(Some(time)).expect("time-out");
    }
}

fn members_come_and_go(kind: Kind) {
    // From members of group 2 only.
    let rule = "{id: 1, direction: ingress, remote-group: 2}";
    let groups =
        group(1, &[rule]) + &group(2, &["{id: 1, direction: egress}"]) + &group(3, &["{id: 1, direction: egress}"]);
    let mut bed = bed("members", kind, &groups, ["[3]", "[1]"]);
    for inner in FAMILIES {
        let to = bed.at(2).address(inner);
        unanswered(bed.at(1), to);
        let members = bind(&bed, ["[2]", "[1]"]);
        bed.ringside().apply(&members);
        answered(bed.at(1), to);
        let streams = connect(bed.at(1), (bed.at(2), to), OPEN);
        chat(&streams).expect("goes");
        let members = bind(&bed, ["[3]", "[1]"]);
        bed.ringside().apply(&members);
        set_patience(&streams, MOMENT);
        assert!(chat(&streams).is_err());
        unanswered(bed.at(1), to);
    }
}

/// Rules of another network change all the time, its first and its last ones come and go: what is connected stays in the fast path.
/// A change of its own has a worker look once.
fn a_change_elsewhere_is_nothing_to_who_is_connected(kind: Kind) {
    const CHANGES: u32 = 20;
    let groups = group(1, &[TCP]) + &group(2, &["{id: 1, direction: egress}"]);
    let mut bed = bed("elsewhere", kind, &groups, ["[2]", "[1]"]);
    let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), OPEN);
    let port = |groups| format!("ports:\n  - {{vni: 43, ip: \"10.0.0.2\", groups: {groups}}}\n");
    let other = |number: u32| {
        let rule = format!("{{id: 1, direction: ingress, protocol: tcp, ports: {}}}", 1000 + number);
        format!("groups:\n{}", group(4, &[&rule]))
    };
    bed.ringside().apply(&(other(0) + &port("[4]")));
    exchange_during(&streams, || {
        let handed_up = |bed: &mut Bed| {
            let cause = &bed.ringside().statistics()["handed-up-packets"]["policed"];
            cause.as_u64().unwrap_or(0)
        };
        let goes_fast = |bed: &mut Bed| {
            let (fast, policed) = (bed.ringside().forwarded("fast"), handed_up(bed));
            bed.ringside()
                .wait_until(|gateway| gateway.forwarded("fast") >= fast + 1000);
            handed_up(bed) == policed
        };
        assert!(wait_until(PATIENCE, || goes_fast(&mut bed)));
        let (fast, policed) = (bed.ringside().forwarded("fast"), handed_up(&mut bed));
        for number in 1..=CHANGES {
            bed.ringside().apply(&other(number));
            if number % 2 == 0 {
                bed.ringside().apply(&port("[4]"));
            } else {
                bed.ringside().daemon().ok(&["delete", "port", "43", "10.0.0.2"]);
            }
        }
        let (fast, others) = (bed.ringside().forwarded("fast") - fast, handed_up(&mut bed) - policed);
        assert!(fast > 1000, "{fast}");
        assert_eq!(others, 0, "of {fast} packets");
        // The same rule, and another one.
        let own = group(1, &[TCP, "{id: 2, direction: ingress, protocol: icmp}"]);
        bed.ringside().apply(&format!("groups:\n{own}"));
        bed.ringside()
            .wait_until(|gateway| gateway.statistics()["handed-up-packets"]["policed"].as_u64() > Some(policed));
        assert!(wait_until(PATIENCE, || goes_fast(&mut bed)));
    });
}

/// An address that a tenant takes for itself: in a network where rules are bound to any address it may not send, to nobody.
fn who_is_not_known_may_not_send(kind: Kind) {
    let own: [(IpAddr, u8); 2] = [
        ([10, 0, 0, 77].into(), 24),
        ([0xfd00, 0, 0, 0, 0, 0, 0, 0x77].into(), 64),
    ];
    // Rules of the third host alone: neither who sends here nor who is sent to has any.
    let places = [
        Place::vxlan(Family::V4),
        Place::vxlan(Family::V6),
        Place::vxlan(Family::V4),
    ];
    let mut bed = Bed::new("unknown", kind, &places);
    let ports = "ports:\n  - {vni: 42, ip: \"10.0.0.3\", groups: [1]}\n";
    bed.ringside().apply(&format!("groups:\n{}{ports}", group(1, &[TCP])));
    for (network, (address, prefix)) in [(0, own[0]), (0, own[1]), (1, own[0]), (1, own[1])] {
        let [from, to] = [0, 1].map(|host| &bed.tenants[host][network]);
        let there = to.address(if address.is_ipv4() { Family::V4 } else { Family::V6 });
        // Both ends know each other, and what is known of them is in the cache.
        answered(from, there);
        from.device().add_address(address, prefix).expect("address");
        let bind = |tenant: &Tenant, own| tenant.ns.run(|| bound(|| UdpSocket::bind((own, 9))));
        let (sender, receiver) = (bind(from, address), bind(to, there));
        receiver.set_read_timeout(Some(PATIENCE)).expect("time-out");
        let before = bed.ringside().dropped("unknown-sender");
        sender.send_to(b"who am I?", (there, 9)).expect("sent");
        if network == 1 {
            // No rules in this one.
            uninterrupted(|| receiver.recv(&mut [0; 16])).expect("comes");
            continue;
        }
        bed.ringside()
            .wait_until(|gateway| gateway.dropped("unknown-sender") == before + 1);
        receiver.set_nonblocking(true).expect("set");
        assert!(receiver.recv(&mut [0; 16]).is_err(), "{address} is heard");
        // As a neighbour it is known, and nothing is bound to it.
        let mut card = bed.at(1).card;
        match address {
            IpAddr::V4(address) => card.v4 = address,
            IpAddr::V6(address) => card.v6 = address,
        }
        bed.ringside().learn(&[card]);
        receiver.set_nonblocking(false).expect("set");
        sender.send_to(b"who am I?", (there, 9)).expect("sent");
        uninterrupted(|| receiver.recv(&mut [0; 16])).expect("comes");
    }
}

/// Networks have limits of their own, which change while the gateway runs; what is connected stays so.
fn a_network_has_as_many_connections_as_it_may_have(kind: Kind) {
    let groups = group(1, &["{id: 1, direction: ingress}"]) + &group(2, &["{id: 1, direction: egress}"]);
    let mut bed = bed("limited", kind, &groups, ["[2]", "[1]"]);
    bed.ringside().reload("tenants = { 42 = 2, 43 = 0 }");
    let to = bed.at(2).address(Family::V4);
    let mut connected: Vec<_> = (0..2)
        .map(|number| connect(bed.at(1), (bed.at(2), to), OPEN + number))
        .collect();
    connected.iter().for_each(|streams| chat(streams).expect("goes"));
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), OPEN + 2));
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("tenant-connections") > 0);
    bed.ringside().reload("tenants = { 42 = 3 }");
    connected.push(connect(bed.at(1), (bed.at(2), to), OPEN + 2));
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), OPEN + 3));
    bed.ringside().reload("tenants = { 42 = 1 }");
    for streams in &connected {
        chat(streams).expect("goes on");
    }
    // As all others.
    bed.ringside().reload("");
    connected.push(connect(bed.at(1), (bed.at(2), to), OPEN + 3));
    connected.iter().for_each(|streams| chat(streams).expect("goes"));
}

fn a_drained_gateway_begins_nothing(kind: Kind) {
    let groups = group(1, &[TCP]) + &group(2, &["{id: 1, direction: egress}"]);
    let mut bed = bed("drained", kind, &groups, ["[2]", "[1]"]);
    let to = bed.at(2).address(Family::V4);
    let streams = connect(bed.at(1), (bed.at(2), to), OPEN);
    chat(&streams).expect("goes");
    bed.ringside().daemon().ok(&["drain"]);
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), OPEN));
    bed.ringside().wait_until(|gateway| gateway.dropped("draining") > 0);
    for _ in 0..20 {
        chat(&streams).expect("goes on");
    }
    bed.ringside().daemon().ok(&["drain", "--off"]);
    drop(streams);
    chat(&connect(bed.at(1), (bed.at(2), to), OPEN)).expect("begins");
}

/// Two datagrams each from more ports than there is room for: what is connected, or connects
/// afterwards, goes the fast way.
fn a_flood_that_nobody_answers_takes_the_fast_way_from_nobody(kind: Kind) {
    const CONNECTED: u16 = 20;
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let how = Ringside {
        cached_connections: 32,
        ..how
    };
    let mut bed = Bed::new("flood", Kind::Ringside(how), &[Place::vxlan(Family::V4); 2]);
    allow_all(&mut bed);
    let to = bed.at(2).address(Family::V4);
    let open = |bed: &Bed, number| connect(bed.at(1), (bed.at(2), to), OPEN + number);
    let mut connected: Vec<_> = (0..CONNECTED).map(|number| open(&bed, number)).collect();
    let all_go_fast = |bed: &mut Bed, connected: &[[TcpStream; 2]]| {
        let before = bed.ringside().forwarded("slow");
        connected.iter().for_each(|streams| chat(streams).expect("goes"));
        bed.ringside().forwarded("slow") == before
    };
    assert!(wait_until(PATIENCE, || all_go_fast(&mut bed, &connected)));
    let receiver = bed.at(2).ns.run(|| bound(|| UdpSocket::bind((to, 9))));
    let began = bed.ringside().sent_on();
    for _ in 0..4 {
        for port in 20_000..20_200 {
            let own = (bed.at(1).address(Family::V4), port);
            let sender = bed.at(1).ns.run(|| bound(|| UdpSocket::bind(own)));
            for _ in 0..2 {
                sender.send_to(b"nobody answers", (to, 9)).expect("sent");
            }
        }
    }
    bed.ringside().wait_until(|gateway| gateway.sent_on() >= began + 1000);
    drop(receiver);
    assert!(all_go_fast(&mut bed, &connected), "{}", bed.ringside().statistics());
    connected.extend((CONNECTED..CONNECTED + 8).map(|number| open(&bed, number)));
    assert!(
        wait_until(PATIENCE, || all_go_fast(&mut bed, &connected)),
        "{}",
        bed.ringside().statistics()
    );
}
