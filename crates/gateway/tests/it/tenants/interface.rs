//! What happens to the gateway's interface while it runs: it is seen, told once, counted, and the gateway goes on as far as it can.

use std::time::Duration;

use ringside_netlab::{End, wait_until};
use ringside_nic::Channels;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place};
use crate::peers::{answered, answered_with, chat, connect, ping};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::datagrams::Flow;
use crate::tenants::on;
use crate::tenants::scraped::{Metrics, OFFERED};

on! {
    fast = crate::tenants::FAST => it_goes_and_another_of_its_name_comes, its_addresses_change;
    slow = crate::tenants::SLOW => longer_packets_come;
    two_ports = crate::tenants::TWO_PORTS => one_of_two_goes, one_of_two_is_down;
    two_queues = crate::tenants::TWO_QUEUES => it_goes_and_another_of_its_name_comes, it_gets_another_queue;
}

/// Waits until health tells of something.
fn wait_for_problem(bed: &mut Bed, part: &str) {
    bed.ringside().wait_until(|gateway| {
        let problems = gateway.problems();
        problems.iter().any(|problem| problem.contains(part))
    });
}

fn wait_for_health(bed: &mut Bed) {
    bed.ringside().wait_until(|gateway| gateway.problems().is_empty());
}

/// How often the log has it.
fn logged(bed: &mut Bed, part: &str) -> usize {
    let log = bed.ringside().daemon().log();
    log.lines().filter(|line| line.contains(part)).count()
}

fn it_goes_and_another_of_its_name_comes(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    // With a name for the link that is gone, and without.
    let pinned = how.cache.is_none();
    let mut bed = Bed::new(
        "gone",
        Kind::Ringside(Ringside { pinned, ..how }),
        &[Place::vxlan(Family::V4); 2],
    );
    let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000);
    for _ in 0..20 {
        chat(&streams).expect("goes");
    }
    let times = if pinned { 2 } else { 1 };
    for time in 1..=times {
        let changes = |log: &str| log.matches("an interface has changed").count();
        // That there are no sockets.
        let none = |log: &str| log.matches("memory_mib=0 umems=0").count();
        let log = bed.ringside().daemon().log();
        let (changes_before, none_before) = (changes(&log), none(&log));
        if time == 1 {
            bed.unplug(0);
        } else {
            // The other end of the pair is taken away, and this one with it.
            let peer = bed.uplinks[0].b.clone();
            peer.run(|| peer.interface.delete()).expect("deleted");
        }
        wait_for_problem(&mut bed, "the interface eth0 is gone: it forwards nothing until");
        // What it is told meanwhile holds afterwards.
        let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
        bed.ringside().learn(&cards);
        // Long enough for what is done every second to complain.
        bed.ringside().wait_until(|gateway| {
            let log = gateway.daemon().log();
            log.matches("the workers have ended").count() == time
                && changes(&log) > changes_before
                && none(&log) > none_before
        });
        let mut log_of = |time| {
            std::thread::sleep(Duration::from_millis(time));
            bed.ringside().daemon().log()
        };
        // The last line of that may be a moment behind.
        let mut before = String::new();
        let is_over = || std::mem::replace(&mut before, log_of(1000)) == before;
        assert!(wait_until(PATIENCE, is_over), "{before}");
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(bed.ringside().daemon().log(), before, "told once");
        bed.plug(0);
        wait_for_health(&mut bed);
        chat(&streams).expect("goes on");
        // New ones are decided about by workers.
        let more = connect(bed.at(2), (bed.at(1), bed.at(1).address(Family::V6)), 7001);
        chat(&more).expect("goes");
        let gateway = bed.ringside();
        assert_eq!(
            (gateway.events("gone"), gateway.events("back")),
            (time as u64, time as u64)
        );
    }
}

fn its_addresses_change(kind: Kind) {
    let mut bed = Bed::new("changes", kind, &[Place::vxlan(Family::V4); 2]);
    let to = bed.at(2).address(Family::V4);
    answered(bed.at(1), to);
    let gateway = bed.uplinks[0].a.clone();
    let ip = |words: &str| crate::bed::ip(&gateway.ns, words);
    // A veth takes no longer packets than it sends, so that nobody has to be told.
    gateway.run(|| gateway.interface.set_mtu(1400)).expect("MTU");
    bed.ringside().wait_until(|gateway| gateway.events("changed") == 1);
    answered_with(bed.at(1), to, "-M do -s 1300");
    // Another MAC address, of which hosts learn as they learn of any.
    gateway
        .run(|| gateway.interface.set_mac([2, 0, 0, 9, 9, 9]))
        .expect("MAC address");
    bed.ringside().wait_until(|gateway| gateway.events("changed") == 2);
    for host in &bed.hosts {
        host.ip("neighbour flush dev eth0");
    }
    answered(bed.at(1), to);
    // More of them than there is room for: those that there were hold.
    for number in 1..=16 {
        ip(&format!("address add 10.77.0.{}/24 dev eth0", 100 + number));
    }
    wait_for_problem(&mut bed, "17 own IPv4 addresses: 16 are the most");
    answered(bed.at(1), to);
    for number in 1..=16 {
        ip(&format!("address del 10.77.0.{}/24 dev eth0", 100 + number));
    }
    wait_for_health(&mut bed);
    // None: nothing is for the gateway any more.
    ip("-4 address flush dev eth0");
    ip("-6 address flush dev eth0");
    wait_for_problem(
        &mut bed,
        "the interface eth0 has no address that hosts could send to; give it one",
    );
    let done = ping(bed.at(1), to, "-c 1 -W 0.5");
    assert!(done.out.contains(" 0 received"), "{done:#?}");
    ip(&format!("address add {}/24 dev eth0", gateway.ipv4));
    wait_for_health(&mut bed);
    answered(bed.at(1), to);
    // Without an address there is no way to hosts either, if a packet came for them meanwhile.
    let of_hosts = logged(&mut bed, "packets to a host are lost");
    assert_eq!(logged(&mut bed, "ERROR"), 2 + of_hosts, "once each");
}

/// Sockets have frames for what came when they were opened.
fn longer_packets_come(kind: Kind) {
    let mut bed = Bed::new("longer", kind, &[Place::vxlan(Family::V4); 2]);
    answered_with(bed.at(1), bed.at(2).address(Family::V4), "-M do -s 1400");
    let wires = bed.hosts.iter().map(|host| &host.wire).chain(&bed.uplinks);
    for end in wires.flat_map(|wire| wire.ends()) {
        end.run(|| end.interface.set_mtu(3000)).expect("MTU");
    }
    for tenant in bed.tenants() {
        tenant.ns.run(|| tenant.interface().set_mtu(2950)).expect("MTU");
    }
    bed.ringside().wait_until(|gateway| gateway.events("reopened") == 1);
    for inner in FAMILIES {
        answered_with(bed.at(1), bed.at(2).address(inner), "-M do -s 2800");
    }
    wait_for_health(&mut bed);
}

fn it_gets_another_queue(kind: Kind) {
    let places = [Place::vxlan(Family::V4); 2];
    let bed = Bed::without_gateway("queue", kind, &places);
    let [gateway, switch] = bed.uplinks[0].ends().map(Clone::clone);
    // What one end sends by, the other has to receive by.
    let set = |end: &End, set: fn(&mut Channels, u32), count| {
        end.run(|| {
            let mut channels = end.interface.channels().expect("channels");
            set(&mut channels, count);
            end.interface.set_channels(channels).expect("set");
        });
    };
    set(&switch, |channels, count| channels.tx = count, 1);
    set(&gateway, |channels, count| channels.rx = count, 1);
    let cards: Vec<_> = bed.tenants().map(|tenant| tenant.card).collect();
    let mut bed = bed.with(kind, &cards);
    answered(bed.at(1), bed.at(2).address(Family::V4));
    assert_eq!(bed.ringside().workers(), ["eth0 queue 0"]);
    set(&gateway, |channels, count| channels.rx = count, 2);
    set(&switch, |channels, count| channels.tx = count, 2);
    // Half of the CPUs have a worker each, unless there is but one queue.
    let all = |bed: &mut Bed| bed.ringside().workers().join(" ");
    assert!(
        wait_until(PATIENCE, || all(&mut bed).contains('1')),
        "{}",
        all(&mut bed)
    );
    for number in 0..16 {
        // Of different flows some come on each.
        let streams = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000 + number);
        chat(&streams).expect("goes");
    }
    wait_for_health(&mut bed);
}

/// What needs only the other one goes on.
fn one_of_two_goes(kind: Kind) {
    // The first and the third host are at the first interface.
    let mut bed = Bed::new("one-of-two", kind, &[Place::vxlan(Family::V4); 3]);
    let across = connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), 7000);
    let beside = connect(bed.at(1), (bed.at(3), bed.at(3).address(Family::V4)), 7001);
    for both in [&across, &beside] {
        chat(both).expect("goes");
    }
    bed.unplug(1);
    wait_for_problem(&mut bed, "the interface eth1 is gone");
    chat(&beside).expect("goes on");
    let new = connect(bed.at(3), (bed.at(1), bed.at(1).address(Family::V6)), 7002);
    chat(&new).expect("goes");
    let done = ping(bed.at(1), bed.at(2).address(Family::V4), "-c 1 -W 0.5");
    assert!(done.out.contains(" 0 received"), "{done:#?}");
    bed.plug(1);
    wait_for_health(&mut bed);
    for both in [&across, &beside] {
        chat(both).expect("goes on");
    }
}

/// The other one goes on, though there is always something that a worker has to send to the one that is down; so it does when the daemon is
/// started anew meanwhile. Of what came by the fast path nothing is lost without a word.
fn one_of_two_is_down(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    // By the fast path and workers, and by workers alone.
    for fast in [true, false] {
        let kind = Kind::Ringside(Ringside {
            fast,
            more: OFFERED,
            ..how
        });
        let mut bed = Bed::new("one-of-two-down", kind, &[Place::vxlan(Family::V4); 3]);
        let to = bed.at(2).address(Family::V4);
        let across = connect(bed.at(1), (bed.at(2), to), 7000);
        let beside = connect(bed.at(1), (bed.at(3), bed.at(3).address(Family::V4)), 7001);
        for both in [&across, &beside] {
            chat(both).expect("goes");
        }
        let down = bed.uplinks[1].a.clone();
        let flow = Flow::new((bed.at(1), bed.at(2)), Family::V4, 9000);
        let goes_on = |bed: &mut Bed, port| {
            bed.ringside()
                .wait_until(|gateway| gateway.workers() == ["eth0 queue 0"]);
            (0..20).for_each(|_| chat(&beside).expect("goes on"));
            let new = connect(bed.at(3), (bed.at(1), bed.at(1).address(Family::V6)), port);
            chat(&new).expect("goes");
        };
        flow.run_during(|| {
            assert!(wait_until(PATIENCE, || flow.arrived().len() > 20));
            for time in 0..3 {
                down.set_up(false).expect("down");
                wait_for_problem(&mut bed, "the interface eth1 is down");
                goes_on(&mut bed, 7010 + time);
                if time == 2 {
                    break;
                }
                down.set_up(true).expect("up");
                wait_for_health(&mut bed);
                let before = flow.arrived().len();
                assert!(wait_until(PATIENCE, || flow.arrived().len() > before + 20));
            }
        });
        let is_told = || {
            let told = Metrics::of(&bed.uplinks[0].a.ns);
            ["fast", "slow"].iter().all(|path| told.adds_up(path)) && told.is_all_got()
        };
        assert!(wait_until(PATIENCE, is_told), "{:?}", Metrics::of(&bed.uplinks[0].a.ns));
        assert!(bed.ringside().dropped("transmit-failed") + bed.ringside().dropped("transmit-lost") > 0);

        let folder = bed.ringside().end(true);
        bed.ringside().start_in(folder);
        wait_for_problem(&mut bed, "the interface eth1 is down");
        goes_on(&mut bed, 7020);
        down.set_up(true).expect("up");
        wait_for_health(&mut bed);
        for both in [&across, &beside] {
            chat(both).expect("goes on");
        }
    }
}
