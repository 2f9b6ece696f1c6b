//! ICMP errors where rules are bound, made by hand: those about a connection that is allowed pass, whatever they say and whoever says it,
//! and others are dropped.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use ringside_netlab::wait_until;
use ringside_wire::checksum::{Sum, pseudo_v6};
use ringside_wire::ethernet::{self, EtherType};
use ringside_wire::flow::UdpFlow;
use ringside_wire::icmp::{v4, v6};
use ringside_wire::{MacAddr, Protocol, ipv4, ipv6};

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant, Tunnel};
use crate::peers::{MOMENT, answered};
use crate::process::PATIENCE;
use crate::tenants::on;
use crate::vtep::{Vtep, in_vxlan};

on! {
    fast = crate::tenants::FAST => those_about_what_is_allowed_pass;
    workers = crate::tenants::WORKERS => those_about_what_is_allowed_pass;
    generic = crate::tenants::GENERIC => those_about_what_is_allowed_pass;
}

const OPEN: u16 = 9;
/// Nothing is let in but this, and what is about it.
const RULE: &str = "{id: 1, direction: ingress, protocol: udp, ports: 9}";
/// Somebody between the two, without rules.
const ROUTER: ([u8; 6], [&str; 2]) = ([2, 0, 0, 9, 9, 9], ["10.0.0.50", "fd00::50"]);

/// Type, code, and the word that depends on them.
type What = (u8, u8, u32);

/// Too big, time exceeded, and what else there is.
fn kinds(family: Family) -> [What; 5] {
    match family {
        Family::V4 => [
            (v4::DESTINATION_UNREACHABLE, v4::FRAGMENTATION_NEEDED, 1300),
            (v4::TIME_EXCEEDED, 0, 0),
            (v4::DESTINATION_UNREACHABLE, 3, 0),
            (v4::DESTINATION_UNREACHABLE, 1, 0),
            (v4::PARAMETER_PROBLEM, 0, 20 << 24),
        ],
        Family::V6 => [
            (v6::PACKET_TOO_BIG, 0, 1300),
            (v6::TIME_EXCEEDED, 0, 0),
            (v6::DESTINATION_UNREACHABLE, 4, 0),
            (v6::DESTINATION_UNREACHABLE, 0, 0),
            (v6::PARAMETER_PROBLEM, 0, 6),
        ],
    }
}

fn those_about_what_is_allowed_pass(kind: Kind) {
    let mut bed = Bed::new("errors", kind, &[Place::new(Family::V4, Tunnel::UserVxlan); 2]);
    let mut router = bed.at(2).card;
    let [v4, v6] = ROUTER.1;
    router.mac = ROUTER.0;
    router.v4 = v4.parse().expect("an address");
    router.v6 = v6.parse().expect("an address");
    bed.ringside().learn(&[router]);
    for family in FAMILIES {
        answered(bed.at(1), bed.at(2).address(family));
    }
    for family in FAMILIES {
        bed.ringside().apply(&rules(RULE));
        let question = datagram(bed.at(1), (bed.at(2), family), OPEN);
        // Somebody takes it, so that no kernel complains.
        let to = SocketAddr::from((bed.at(2).address(family), OPEN));
        let _receiver = bed.at(2).ns.run(|| UdpSocket::bind(to)).expect("UDP socket");
        send(&bed, 0, &question);
        assert!(comes(bed.hosts[1].vtep(), &question), "{family:?}");
        others_are_dropped(&mut bed, family);
        about_it_pass(&bed, family, &question);
        what_is_about_is_judged_again(&mut bed, family, &question);
    }
}

fn about_it_pass(bed: &Bed, family: Family, question: &[u8]) {
    let (client, server) = (bed.at(1), bed.at(2));
    let [v4, v6] = ROUTER.1;
    let router = if family == Family::V4 { v4 } else { v6 };
    for by in [
        (server.card.mac, server.address(family)),
        (ROUTER.0, router.parse().expect("an address")),
    ] {
        for what in kinds(family) {
            let error = error(by, (client, family), what, question);
            send(bed, 1, &error);
            assert!(comes(bed.hosts[0].vtep(), &error), "{what:?} by {by:?}");
        }
    }
}

/// About what was never sent: to another port, the other way, and of other ends.
fn others_are_dropped(bed: &mut Bed, family: Family) {
    let (client, server) = (bed.at(1), bed.at(2));
    let others = [
        datagram(client, (server, family), OPEN + 1),
        datagram(server, (client, family), OPEN),
        datagram(client, (client, family), OPEN),
    ];
    let by = (server.card.mac, server.address(family));
    let of = |what| others.iter().map(move |other| error(by, (client, family), what, other));
    let errors: Vec<_> = kinds(family).into_iter().flat_map(of).collect();
    let before = bed.ringside().dropped_by("slow", "unrelated");
    for error in &errors {
        send(bed, 1, error);
    }
    let all = before + errors.len() as u64;
    bed.ringside()
        .wait_until(|gateway| gateway.dropped_by("slow", "unrelated") == all);
    nothing_came(bed, &errors);
}

/// The rule goes, and with it what is about what it allowed.
fn what_is_about_is_judged_again(bed: &mut Bed, family: Family, question: &[u8]) {
    bed.ringside()
        .apply(&rules("{id: 2, direction: ingress, protocol: tcp}"));
    let before = bed.ringside().dropped_by("slow", "no-longer-allowed");
    let (client, server) = (bed.at(1), bed.at(2));
    let by = (server.card.mac, server.address(family));
    let error = error(by, (client, family), kinds(family)[0], question);
    send(bed, 1, &error);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped_by("slow", "no-longer-allowed") == before + 1);
    nothing_came(bed, &[error]);
}

/// The one that asks may do anything, the other one what this says.
fn rules(ingress: &str) -> String {
    let mut text = format!(
        "groups:\n  - {{id: 1, rules: [{ingress}]}}\n  - {{id: 2, rules: [{{id: 1, direction: egress}}]}}\nports:\n"
    );
    for (host, group) in [(1, 2), (2, 1)] {
        for address in [format!("10.0.0.{host}"), format!("fd00::{host}")] {
            text.push_str(&format!("  - {{vni: 42, ip: \"{address}\", groups: [{group}]}}\n"));
        }
    }
    text
}

fn send(bed: &Bed, host: usize, frame: &[u8]) {
    bed.hosts[host].vtep().send(&in_vxlan(42, frame));
}

fn comes(vtep: &Vtep, frame: &[u8]) -> bool {
    wait_until(PATIENCE, || vtep.take_received().iter().any(|one| one.frame == frame))
}

/// What was counted as dropped is not under way.
fn nothing_came(bed: &Bed, frames: &[Vec<u8>]) {
    std::thread::sleep(MOMENT);
    let came = bed.hosts[0].vtep().take_received();
    assert!(!came.iter().any(|one| frames.contains(&one.frame)), "{came:02x?}");
}

fn datagram(from: &Tenant, (to, family): (&Tenant, Family), port: u16) -> Vec<u8> {
    let flow = UdpFlow {
        src_mac: MacAddr(from.card.mac),
        dst_mac: MacAddr(to.card.mac),
        src: (from.address(family), 5000).into(),
        dst: (to.address(family), port).into(),
        ttl: 64,
    };
    let mut frame = vec![0x5a; flow.header_len() + 40];
    flow.write(&mut frame, 40).expect("room");
    frame
}

/// About a frame, to a tenant.
fn error((mac, by): ([u8; 6], IpAddr), (to, family): (&Tenant, Family), what: What, about: &[u8]) -> Vec<u8> {
    let (kind, code, word) = what;
    let quoted = &about[ethernet::HEADER_LEN..];
    let mut message = [&[kind, code, 0, 0], &word.to_be_bytes()[..], quoted].concat();
    let len = message.len();
    let (sum, header, ethertype) = match (by, to.address(family)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut header = vec![0; ipv4::HEADER_LEN];
            let ip = ipv4::Header::new(src, dst, Protocol::ICMP);
            ipv4::Header { payload_len: len, ..ip }.emit(&mut header).expect("room");
            (Sum::ZERO, header, EtherType::IPV4)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let mut header = vec![0; ipv6::HEADER_LEN];
            let ip = ipv6::Header::new(src, dst, Protocol::ICMPV6);
            ipv6::Header { payload_len: len, ..ip }.emit(&mut header).expect("room");
            let pseudo = pseudo_v6(src, dst, Protocol::ICMPV6, u32::try_from(len).expect("short"));
            (pseudo, header, EtherType::IPV6)
        }
        ends => panic!("of two families: {ends:?}"),
    };
    let checksum = sum.bytes(&message).finish().to_be_bytes();
    message[2..4].copy_from_slice(&checksum);
    let mut ethernet = [0; ethernet::HEADER_LEN];
    let (src, dst) = (MacAddr(mac), MacAddr(to.card.mac));
    (ethernet::Header { dst, src, ethertype })
        .emit(&mut ethernet)
        .expect("room");
    [&ethernet[..], &header, &message].concat()
}
