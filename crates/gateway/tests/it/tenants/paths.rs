//! Which way packets go, and what becomes of those whose host is not known yet.

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place, Tenant, ip};
use crate::peers::{answered, chat, connect, exchange, ping, unanswered, wait_for_answer};
use crate::process::{PATIENCE, Running};
use crate::ringside::Ringside;
use crate::tenants::on;

on! {
    fast = crate::tenants::FAST => what_is_known_goes_the_fast_way, a_host_that_nobody_finds_gets_nothing,
        packets_wait_for_their_host, out_of_service_and_back;
    generic = crate::tenants::GENERIC => what_is_known_goes_the_fast_way;
    two_ports = crate::tenants::TWO_PORTS => what_is_known_goes_the_fast_way, another_route_is_taken;
    two_ports_slow = crate::tenants::TWO_PORTS_SLOW => workers_carry_what_the_cache_has_no_room_for, packets_wait_for_their_host,
        another_route_is_taken;
    slow = crate::tenants::SLOW => workers_carry_what_the_cache_has_no_room_for, packets_wait_for_their_host,
        what_workers_have_no_room_for_is_counted;
}

fn what_is_known_goes_the_fast_way(kind: Kind) {
    let mut bed = Bed::new("fast-way", kind, &[Place::vxlan(Family::V4); 2]);
    for inner in FAMILIES {
        let to = bed.at(2).address(inner);
        let streams = connect(bed.at(1), (bed.at(2), to), 7000);
        // As soon as both are in the cache.
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, &streams, 1)));
        assert!(chats_fast(&mut bed, &streams, 100));
    }
}

/// Chats `count` times. True if only the fast path forwarded packets meanwhile.
pub(super) fn chats_fast(bed: &mut Bed, streams: &[TcpStream; 2], count: u64) -> bool {
    let (fast, slow) = (bed.ringside().forwarded("fast"), bed.ringside().forwarded("slow"));
    (0..count).for_each(|_| chat(streams).expect("goes"));
    // A word each way is at least two packets.
    let fast = bed.ringside().forwarded("fast") >= fast + 2 * count;
    fast && bed.ringside().forwarded("slow") == slow
}

fn workers_carry_what_the_cache_has_no_room_for(kind: Kind) {
    let mut bed = Bed::new("slow-way", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    let before = bed.ringside().forwarded("slow");
    let mut port = 7000;
    // The one that there is room for changes with who is busy: then less is the workers'.
    let mut is_carried = || {
        port += 1;
        let streams = connect(bed.at(1), (bed.at(2), to), port);
        exchange(&streams, 8 << 20);
        // Segments of one way at least: 8 MiB in packets of up to 1398 bytes.
        bed.ringside().forwarded("slow") >= before + 6000
    };
    assert!(wait_until(PATIENCE, &mut is_carried));
}

/// An address of the underlay that nobody has.
const NOWHERE: &str = "10.77.0.99";

fn a_host_that_nobody_finds_gets_nothing(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { patience: 1500, ..how });
    let mut bed = Bed::new("nowhere", kind, &[Place::vxlan(Family::V4); 2]);
    wait_for_answer(bed.at(1), bed.at(2).address(Family::V4));
    answered(bed.at(1), bed.at(2).address(Family::V4));
    let mut card = bed.at(2).card;
    card.v4 = [10, 0, 0, 50].into();
    card.v6 = "fd00::50".parse().expect("an address");
    card.host = NOWHERE.parse().expect("an address");
    bed.ringside().learn(&[card]);
    let before = bed.ringside().sent_on();
    unanswered(bed.at(1), card.v4.into());
    // The question was answered, for the tenant is known; the packets were not sent on, and have a reason.
    assert_eq!(bed.at(1).neighbour(card.v4.into()), Some(card.mac));
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("host-unresolved") >= 3);
    // Some more, for health says it of who does not answer for two seconds.
    for _ in 0..3 {
        unanswered(bed.at(1), card.v4.into());
    }
    let problem = format!("packets to host {NOWHERE} are lost: it does not answer for its MAC");
    bed.ringside()
        .wait_until(|gateway| gateway.problems().iter().any(|found| found.starts_with(&problem)));
    assert_eq!(bed.ringside().sent_on(), before);
    answered(bed.at(1), bed.at(2).address(Family::V4));
}

fn packets_wait_for_their_host(kind: Kind) {
    let bed = Bed::without_gateway("waits", kind, &[Place::vxlan(Family::V4); 2]);
    // Says nothing about itself at first.
    bed.hosts[1].set_silent(true);
    let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
    let bed = bed.with(kind, &cards);
    let words = format!("ping -n -c 1 -W 20 {}", bed.at(2).address(Family::V4));
    let waiting = Running::new(bed.at(1).command(&words));
    std::thread::sleep(Duration::from_millis(100));
    bed.hosts[1].set_silent(false);
    let done = waiting.end();
    assert!(done.out.contains("1 received"), "{done:#?}");
}

/// A host behind a router, and then behind another one, by the other interface.
fn another_route_is_taken(kind: Kind) {
    let mut bed = Bed::new("route", kind, &[Place::vxlan(Family::V4); 2]);
    let gateway = bed.uplinks[0].a.ns.clone();
    let route = |via: &str| ip(&gateway, &format!("route replace {BEHIND} via {via}"));
    // Both hosts take packets to that address, but the tenant is at the second.
    for host in &bed.hosts {
        host.ip(&format!("address add {BEHIND} dev lo"));
    }
    let to = bed.at(2).address(Family::V4);
    route("10.77.0.1");
    let mut card = bed.at(2).card;
    card.host = BEHIND.parse().expect("an address");
    bed.ringside().learn(&[card]);
    unanswered(bed.at(1), to);
    route("10.77.1.2");
    let back = || ping(bed.at(1), to, "-c 1 -W 0.2").out.contains(" 1 received");
    assert!(wait_until(PATIENCE, back));
    answered(bed.at(1), to);
}

/// A daemon that stands still: what comes meanwhile waits for it, as much as there is room for, and the rest has a reason.
fn what_workers_have_no_room_for_is_counted(kind: Kind) {
    const PACKETS: u64 = 20_000;
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let how = Ringside { fast: false, ..how };
    let mut bed = Bed::new("no-room", Kind::Ringside(how), &[Place::vxlan(Family::V4); 2]);
    let to = (bed.at(2).address(Family::V4), 9);
    answered(bed.at(1), to.0);
    let bind = |tenant: &Tenant, port| {
        let bound = tenant.ns.run(|| UdpSocket::bind(("0.0.0.0", port)));
        bound.expect("UDP socket")
    };
    // Nobody is told that nobody listens.
    let _receiver = bind(bed.at(2), to.1);
    let sender = bind(bed.at(1), 0);
    let (sent_on, busy) = (bed.ringside().sent_on(), bed.ringside().dropped("worker-busy"));
    bed.ringside().daemon().signal("STOP");
    for _ in 0..PACKETS {
        sender.send_to(b"?", to).expect("sent");
    }
    bed.ringside().daemon().signal("CONT");
    bed.ringside().wait_until(|gateway| {
        let busy = gateway.dropped("worker-busy") - busy;
        busy > 0 && gateway.sent_on() - sent_on + busy >= PACKETS
    });
}

const BEHIND: &str = "10.88.0.9";

fn out_of_service_and_back(kind: Kind) {
    let mut bed = Bed::new("drain", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    bed.ringside().daemon().ok(&["drain"]);
    assert!(!bed.ringside().daemon().ctl(&["health"]).status.success());
    bed.ringside().daemon().ok(&["drain", "--off"]);
    answered(bed.at(1), to);
    bed.ringside().daemon().ok(&["health"]);
}
