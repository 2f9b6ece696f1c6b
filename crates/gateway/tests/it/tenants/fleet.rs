//! A gateway whose truth is in etcd, while that is away.

use std::io::Write as _;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ringside_netlab::testing::{Off, expect, measured};

use crate::bed::{Bed, Family, Kind, Place};
use crate::common::Folder;
use crate::peers::{AtEnd, answered, chat, connect, exchange_during, is_cut_off, ping};
use crate::ringside::{Gateway, Ringside};
use crate::tenants::kills::{Flow, Talk};
use crate::tenants::on;
use crate::tenants::streams::lost_by_kernel;

on! {
    fast = crate::tenants::FAST => without_etcd_packets_go_on,
        for_too_long_without_etcd_nothing_goes_on,
        a_port_whose_key_is_removed_or_damaged_is_not_open;
}

fn without_etcd_packets_go_on(kind: Kind) {
    measured(|| outage(kind, Duration::from_secs(3)));
}

#[test]
#[ignore = "takes more than a minute: make test-fleet"]
fn without_etcd_for_a_minute_packets_go_on() {
    measured(|| outage(crate::tenants::FAST, Duration::from_secs(60)));
}

/// Where an operator says so: neither what the fast path does alone nor what workers do; and all of it again when etcd is back.
fn for_too_long_without_etcd_nothing_goes_on(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside {
        fleet: true,
        // Longer than a busy machine is late with what it hears of etcd.
        stale: 5,
        ..how
    });
    let mut bed = Bed::new("too-old", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    let known = connect(bed.at(1), (bed.at(2), to), 7000);
    chat(&known).expect("goes");
    bed.ringside().set_etcd(false);
    let is_said = |problems: &[String]| problems.concat().contains("store.etcd.forward-stale-seconds");
    bed.ringside().wait_until(|gateway| is_said(&gateway.problems()));
    let dropped = bed.ringside().dropped("stale");
    let done = ping(bed.at(1), to, "-c 3 -i 0.2 -W 1");
    assert!(done.out.contains(" 0 received"), "{done:#?}");
    bed.ringside()
        .wait_until(|gateway| gateway.dropped("stale") >= dropped + 3);
    bed.ringside().set_etcd(true);
    bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
    answered(bed.at(1), to);
    chat(&known).expect("goes on");
    chat(&connect(bed.at(1), (bed.at(2), to), 7001)).expect("goes");
}

/// Somebody removes or damages the key of ports past all gateways: what their rules forbid stays
/// forbidden, also by a gateway that has never known them, until a gateway puts or deletes them.
fn a_port_whose_key_is_removed_or_damaged_is_not_open(kind: Kind) {
    const KEY: &str = "/ringside/gateway/v1/ports/00002a/0a00000";
    const OPEN: u16 = 7000;
    const CLOSED: u16 = 80;
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { fleet: true, ..how });
    let mut bed = Bed::new("no-port", kind, &[Place::vxlan(Family::V4); 2]);
    // All ports of the network are in this key, and the rules with them: without it nobody asks for
    // any.
    let allowed = "{id: 1, direction: ingress, protocol: tcp, ports: 7000}";
    let rules = format!("{allowed}, {{id: 2, direction: egress}}");
    let ports = [1, 2].map(|host| format!("  - {{vni: 42, ip: 10.0.0.{host}, groups: [1]}}\n"));
    let objects = format!("groups:\n  - {{id: 1, rules: [{rules}]}}\nports:\n{}", ports.concat());
    bed.ringside().apply(&objects);
    let to = bed.at(2).address(Family::V4);
    let only_what_rules_allow = |bed: &mut Bed| {
        let denied = bed.ringside().dropped("ingress-denied");
        assert!(
            is_cut_off(bed.at(1), (bed.at(2), to), CLOSED),
            "{}",
            bed.ringside().daemon().health()
        );
        chat(&connect(bed.at(1), (bed.at(2), to), OPEN)).expect("goes");
        bed.ringside()
            .wait_until(|gateway| gateway.dropped("ingress-denied") > denied);
    };
    let is_ok = |gateway: &Gateway| gateway.problems().is_empty();
    only_what_rules_allow(&mut bed);
    let key = bed.ringside().etcdctl(&["get", KEY, "--hex"]);
    bed.ringside().etcdctl(&["del", KEY]);
    only_what_rules_allow(&mut bed);
    bed.ringside()
        .wait_until(|gateway| gateway.etcdctl(&["get", KEY, "--hex"]) == key);
    bed.ringside().wait_until(is_ok);
    // One that begins with nothing.
    let anew = |bed: &mut Bed| {
        drop(bed.ringside().end(true));
        bed.ringside().start_in(Folder::new());
    };
    anew(&mut bed);
    only_what_rules_allow(&mut bed);
    // Who knows them goes by them; who does not lets nothing pass.
    bed.ringside().etcdctl(&["put", KEY, "damaged"]);
    bed.ringside().wait_until(|gateway| !is_ok(gateway));
    only_what_rules_allow(&mut bed);
    anew(&mut bed);
    for port in [OPEN, CLOSED] {
        assert!(is_cut_off(bed.at(1), (bed.at(2), to), port), "{port}");
    }
    let said = bed.ringside().problems().concat();
    assert!(
        said.contains("ports of network 42, 10.0.0.0 to 10.0.0.15") && said.contains("gateway put"),
        "{said}"
    );
    // Also when the key is removed, instead of what health advises; and as it advises.
    bed.ringside().etcdctl(&["del", KEY]);
    for port in [OPEN, CLOSED] {
        assert!(is_cut_off(bed.at(1), (bed.at(2), to), port), "{port}");
    }
    assert!(!is_ok(bed.ringside()), "what it does not know it does not write");
    bed.ringside().etcdctl(&["put", KEY, "damaged"]);
    bed.ringside().wait_until(|gateway| !is_ok(gateway));
    for host in ["10.0.0.1", "10.0.0.2"] {
        let put = ["put", "port", "42", host, "--groups", "1"];
        bed.ringside().daemon().ok(&put);
    }
    bed.ringside().wait_until(is_ok);
    only_what_rules_allow(&mut bed);
    anew(&mut bed);
    only_what_rules_allow(&mut bed);
    // A gateway that deletes it opens it.
    bed.ringside().daemon().ok(&["delete", "port", "42", "10.0.0.2"]);
    chat(&connect(bed.at(1), (bed.at(2), to), CLOSED)).expect("goes");
}

fn outage(kind: Kind, least: Duration) -> Result<(), Off> {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside {
        fleet: true,
        pinned: true,
        ..how
    });
    let mut bed = Bed::new("fleet", kind, &[Place::vxlan(Family::V4); 2]);
    let rules = "{id: 1, direction: ingress, protocol: tcp}, {id: 2, direction: ingress, protocol: udp}, {id: 3, direction: egress}";
    let ports = [1, 2].map(|host| format!("  - {{vni: 42, ip: 10.0.0.{host}, groups: [1]}}\n"));
    bed.ringside().apply(&format!(
        "groups:\n  - {{id: 1, rules: [{rules}]}}\nports:\n{}",
        ports.concat()
    ));
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    let flow = Flow::new(bed.at(1), bed.at(2), 9000);
    let put = "put neighbor 7 10.1.0.1 --mac 02:00:00:00:00:01 --host 192.0.2.1 --version 3";
    let put: Vec<&str> = put.split(' ').collect();
    let mut few = Ok(());
    exchange_during(&busy, || {
        let before = lost_by_kernel(&bed);
        let over = AtomicBool::new(false);
        let talk = std::thread::scope(|scope| {
            let at_end = AtEnd(&over);
            let talk = scope.spawn(|| flow.run(&over));
            let gone = Instant::now();
            bed.ringside().set_etcd(false);
            bed.ringside()
                .wait_until(|gateway| gateway.problems().concat().contains("etcd cannot be reached"));
            let said = bed.ringside().daemon().fails(&put);
            assert!(said.contains("etcd cannot be reached"), "{said}");
            // Workers, who decide about new connections, go on as well.
            chat(&connect(bed.at(1), (bed.at(2), to), 7001)).expect("goes");
            std::thread::sleep(least.saturating_sub(gone.elapsed()));
            drop(at_end);
            talk.join().expect("no panic")
        });
        few = note(least, &talk, lost_by_kernel(&bed) - before);
        // And a gateway that is killed knows what it knew.
        let folder = bed.ringside().end(false);
        bed.ringside().start_in(folder);
        chat(&connect(bed.at(2), (bed.at(1), bed.at(1).address(Family::V4)), 7002)).expect("goes");
        bed.ringside().set_etcd(true);
        bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
        bed.ringside().daemon().ok(&put);
        chat(&connect(bed.at(1), (bed.at(2), to), 7003)).expect("goes");
    });
    few
}

/// The file that `RINGSIDE_FAULTS` names gets this line.
pub(crate) fn tell(line: &str) {
    eprint!("{line}");
    if let Some(path) = std::env::var_os("RINGSIDE_FAULTS") {
        let file = std::fs::File::options().append(true).create(true).open(path);
        file.expect("a file").write_all(line.as_bytes()).expect("a line");
    }
}

/// Tells what tenants had while all of etcd was gone: all of it, but for what the kernel had no room for.
fn note(gone: Duration, talk: &Talk, without_room: u64) -> Result<(), Off> {
    let lost = talk.sent - talk.answered;
    tell(&format!(
        "tenants_without_etcd: all of etcd is gone for {} s, between tenants: {lost} of {} datagrams lost (beside bulk, {without_room} of \
         whose packets found no room in the kernel's queues), the longest wait for an answer {} ms\n",
        gone.as_secs(),
        talk.sent,
        talk.longest.as_millis()
    ));
    assert!(
        talk.sent > 100 && lost <= without_room,
        "{talk:?}, {without_room} by the kernel's queues, of this test's bulk and of others"
    );
    expect(
        lost <= talk.sent / 1000,
        format_args!("more than 0.1 % is lost: {talk:?}"),
    )
}
