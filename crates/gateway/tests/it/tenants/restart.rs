//! The daemon goes and comes back, and no connection is lost.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_bpf::testing::of_another_version;
use ringside_netlab::wait_until;

use crate::bed::{Bed, FAMILIES, Family, Kind, Place};
use crate::peers::uninterrupted;
use crate::peers::{AtEnd, answered, chat, connect, exchange_during, is_cut_off, unanswered};
use crate::process::{PATIENCE, Running};
use crate::ringside::Ringside;
use crate::tenants::datagrams::Flow;
use crate::tenants::groups::allow_all;
use crate::tenants::on;
use crate::tenants::paths::chats_fast;
use crate::tenants::streams::lost_by_kernel;

on! {
    fast = crate::tenants::FAST => a_daemon_that_ends_is_not_missed, a_daemon_that_is_killed_is_not_missed,
        a_daemon_that_is_killed_is_not_missed_over_ipv6, connections_under_rules_are_kept, connections_under_rules_are_kept_over_ipv6,
        what_nobody_answers_is_not_missed, what_nobody_answers_is_not_missed_over_ipv6,
        maps_of_other_sizes_are_not_noticed, a_program_that_nobody_owns_does_nothing, maps_of_another_version_are_made_anew;
    two_ports = crate::tenants::TWO_PORTS => a_daemon_that_is_killed_is_not_missed;
    slow = crate::tenants::SLOW => a_daemon_that_is_killed_is_not_missed;
    workers = crate::tenants::WORKERS => a_daemon_that_is_killed_is_not_missed, a_daemon_that_is_killed_is_not_missed_over_ipv6,
        connections_under_rules_are_kept_over_ipv6;
    generic = crate::tenants::GENERIC => a_daemon_that_is_killed_is_not_missed, a_daemon_that_is_killed_is_not_missed_over_ipv6;
}

/// How long there is no daemon.
const DOWN: Duration = Duration::from_secs(1);

fn a_daemon_that_ends_is_not_missed(kind: Kind) {
    restart("ends", kind, Family::V4, true);
}

pub(crate) fn a_daemon_that_is_killed_is_not_missed(kind: Kind) {
    restart("killed", kind, Family::V4, false);
}

/// Inside and out.
fn a_daemon_that_is_killed_is_not_missed_over_ipv6(kind: Kind) {
    restart("killed-v6", kind, Family::V6, false);
}

pub(crate) fn connections_under_rules_are_kept(kind: Kind) {
    kept_under_rules("kept", kind, Family::V4);
}

fn connections_under_rules_are_kept_over_ipv6(kind: Kind) {
    kept_under_rules("kept-v6", kind, Family::V6);
}

/// Rules allow them in one direction only: what is known of a connection has to be known to the next daemon. Without a fast path nothing is
/// kept of it, and it is picked up as it goes on.
fn kept_under_rules(tag: &str, kind: Kind, family: Family) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(family); 2]);
    allow_one_way(&mut bed);
    let to = bed.at(2).address(family);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), to), port));
    for _ in 0..20 {
        chat(&idle).expect("goes");
    }
    exchange_during(&busy, || {
        let folder = bed.ringside().end(false);
        std::thread::sleep(DOWN);
        bed.ringside().start_in(folder);
    });
    chat(&idle).expect("goes on");
    // The rules are kept, too.
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), 7002));
}

fn what_nobody_answers_is_not_missed(kind: Kind) {
    no_answer_is_missed("unanswered", kind, Family::V4);
}

fn what_nobody_answers_is_not_missed_over_ipv6(kind: Kind) {
    no_answer_is_missed("unanswered-v6", kind, Family::V6);
}

/// Datagrams that nobody answers, and echoes, under rules: the daemon is killed and comes back.
fn no_answer_is_missed(tag: &str, kind: Kind, inner: Family) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(Family::V4); 2]);
    allow_all(&mut bed);
    let to = bed.at(2).address(inner);
    answered(bed.at(1), to);
    let (from, receiver) = (bed.at(1), bed.at(2));
    let flow = Flow::one_way((from, receiver), inner, 9000);
    let echoes = Running::new(from.command(&format!("ping -n -i 0.01 -w 10 {to}")));
    let mut gone = 0;
    let by_kernel = lost_by_kernel(&bed);
    flow.run_during(|| {
        // Both of them.
        let goes_fast = || {
            let (fast, slow) = (bed.ringside().forwarded("fast"), bed.ringside().forwarded("slow"));
            std::thread::sleep(Duration::from_millis(200));
            bed.ringside().forwarded("fast") > fast + 20 && bed.ringside().forwarded("slow") == slow
        };
        assert!(wait_until(PATIENCE, goes_fast), "{}", bed.ringside().statistics());
        let before = flow.sent();
        let folder = bed.ringside().end(false);
        std::thread::sleep(3 * DOWN);
        gone = flow.sent() - before;
        bed.ringside().start_in(folder);
    });
    let done = echoes.end();
    assert!(gone > 100, "{gone} were sent while it was away");
    flow.all_came_but(lost_by_kernel(&bed) - by_kernel);
    assert!(done.out.contains(" 0% packet loss"), "{done:#?}");
}

/// In network 42 the first tenant may begin connections to two ports of the second, and nothing else.
fn allow_one_way(bed: &mut Bed) {
    let tcp = "{id: 1, direction: ingress, protocol: tcp, ports: 7000-7001}";
    let groups =
        format!("groups:\n  - {{id: 1, rules: [{tcp}]}}\n  - {{id: 2, rules: [{{id: 1, direction: egress}}]}}\n");
    let mut ports = "ports:\n".to_owned();
    for (host, group) in [(1, 2), (2, 1)] {
        for address in FAMILIES.map(|family| bed.at(host).address(family)) {
            ports.push_str(&format!("  - {{vni: 42, ip: \"{address}\", groups: [{group}]}}\n"));
        }
    }
    bed.ringside().apply(&(groups + &ports));
}

/// Another configuration has other sizes: the maps are made anew beside those that go on, and what is open goes on, under rules and
/// without. What is not allowed, or another network's, never comes.
fn maps_of_other_sizes_are_not_noticed(kind: Kind) {
    const DENIED: u16 = 7002;
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let how = Ringside { pinned: true, ..how };
    let mut bed = Bed::new("sizes", Kind::Ringside(how), &[Place::vxlan(Family::V4); 2]);
    allow_one_way(&mut bed);
    let of = |network: usize, port| {
        let [from, to] = [&bed.tenants[0][network], &bed.tenants[1][network]];
        connect(from, (to, to.address(Family::V4)), port)
    };
    let (busy, [client, server], free) = (of(0, 7000), of(0, 7001), of(1, 7000));
    // The one speaks first to whom rules allow nothing else: it has to be known that this is an answer.
    let idle = [server, client];
    // So many that the fast path knows of them.
    let words = || {
        for open in [&idle, &free].repeat(20) {
            chat(open).expect("goes on");
        }
    };
    words();
    // Somebody tries all the time.
    let to = bed.at(2).card.v4;
    let listens = |network: usize| {
        let socket = (bed.tenants[1][network].ns).run(|| UdpSocket::bind((to, DENIED)));
        let socket = socket.expect("UDP socket");
        socket.set_nonblocking(true).expect("set");
        socket
    };
    let nobody_hears = [listens(0), listens(1)];
    let tries = bed
        .at(1)
        .ns
        .run(|| UdpSocket::bind((bed.at(1).card.v4, 0)))
        .expect("UDP socket");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let at_end = AtEnd(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                _ = tries.send_to(b"may I?", (to, DENIED));
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        exchange_during(&busy, || {
            for (neighbors, connections, kindly) in [(2048, 4096, false), (2048, 8192, true)] {
                let folder = bed.ringside().end(kindly);
                let how = Ringside {
                    cache: Some(neighbors),
                    cached_connections: connections,
                    ..how
                };
                bed.ringside().start_as(how, folder);
                let log = bed.ringside().daemon().log();
                assert!(
                    log.contains("other sizes: the maps are made anew") && log.contains("adopted=false"),
                    "{log}"
                );
                words();
                (bed.ringside()).wait_until(|gateway| gateway.dropped("ingress-denied") > 0);
            }
        });
        drop(at_end);
    });
    // The fast path takes part again.
    for open in [&idle, &free] {
        let goes_fast = || {
            let before = bed.ringside().forwarded("fast");
            chat(open).expect("goes");
            bed.ringside().forwarded("fast") > before
        };
        assert!(wait_until(PATIENCE, goes_fast), "{}", bed.ringside().statistics());
    }
    for socket in nobody_hears {
        let heard = socket.recv(&mut [0; 16]);
        assert!(
            heard.is_err_and(|error| error.kind() == ErrorKind::WouldBlock),
            "what is not allowed came"
        );
    }
    assert!(is_cut_off(bed.at(1), (bed.at(2), to.into()), DENIED));
}

/// An upgrade to a version whose maps are others, when nothing is known of what is open: it is picked up as it goes on, by rules in one
/// direction only, too, and by whichever side says something first. Where there are no rules no packet is missed.
fn maps_of_another_version_are_made_anew(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new("version", kind, &[Place::vxlan(Family::V4); 2]);
    allow_one_way(&mut bed);
    let to = bed.at(2).address(Family::V4);
    let busy = connect(bed.at(1), (bed.at(2), to), 7000);
    let [client, server] = connect(bed.at(1), (bed.at(2), to), 7001);
    let [client_waits, server_waits] = [[&client, &server], [&server, &client]];
    for [mut from, mut to] in [client_waits, server_waits] {
        from.write_all(b"word").expect("taken");
        to.read_exact(&mut [0; 4]).expect("comes");
    }
    let (from, to_free) = (&bed.tenants[0][1], &bed.tenants[1][1]);
    answered(from, to_free.address(Family::V4));
    let free = Flow::new((from, to_free), Family::V4, 9000);
    let by_kernel = lost_by_kernel(&bed);
    let upgrade = || {
        let folder = bed.ringside().end(true);
        of_another_version(&bed.ringside().pins().join("maps")).expect("forged");
        bed.ringside().start_in(folder);
        let log = bed.ringside().daemon().log();
        assert!(
            log.contains("the maps are made anew") && log.contains("adopted=false"),
            "{log}"
        );
    };
    free.run_during(|| exchange_during(&busy, upgrade));
    free.all_came_but(lost_by_kernel(&bed) - by_kernel);
    // Who was connected to answers, and who asked has nothing to say.
    for [mut from, mut to] in [server_waits, client_waits] {
        from.write_all(b"word").expect("taken");
        to.read_exact(&mut [0; 4]).expect("comes");
    }
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), 7002));
}

/// The daemon is gone for longer than `unowned-seconds`: then nothing is sent on, also of open connections, and nobody is answered.
fn a_program_that_nobody_owns_does_nothing(kind: Kind) {
    const MOMENT: Duration = Duration::from_secs(1);
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let how = Ringside {
        pinned: true,
        more: "unowned-seconds = 8",
        ..how
    };
    let mut bed = Bed::new("unowned", Kind::Ringside(how), &[Place::vxlan(Family::V4); 2]);
    allow_one_way(&mut bed);
    let to = bed.at(2).address(Family::V4);
    let open = |bed: &Bed, network: usize| connect(&bed.tenants[0][network], (&bed.tenants[1][network], to), 7000);
    let both = [open(&bed, 0), open(&bed, 1)];
    // The daemon adds connections to the fast path's cache a moment after their packets.
    for open in &both {
        assert!(wait_until(PATIENCE, || chats_fast(&mut bed, open, 1)));
    }
    // Of the network without rules, where echoes go by the fast path, too. It has to ask who has the address.
    let forget = |bed: &Bed| {
        Running::new(bed.tenants[0][1].command("ip neigh flush all"))
            .end()
            .good()
    };
    let folder = bed.ringside().end(false);
    let killed = Instant::now();
    forget(&bed);
    answered(&bed.tenants[0][1], to);
    for (network, open) in both.iter().enumerate() {
        let done = chat(open);
        assert!(
            done.is_ok(),
            "network {network}, {:?} after the end: {done:?}",
            killed.elapsed()
        );
    }
    assert!(killed.elapsed() < 7 * MOMENT, "too slow to say: {:?}", killed.elapsed());
    std::thread::sleep((9 * MOMENT).saturating_sub(killed.elapsed()));
    unanswered(&bed.tenants[0][1], to);
    forget(&bed);
    unanswered(&bed.tenants[0][1], to);
    let known = Running::new(bed.tenants[0][1].command("ip neigh")).end().good().out;
    assert!(!known.contains("lladdr"), "{known}");
    for [from, to] in &both {
        (&*from).write_all(b"word").expect("taken");
        to.set_read_timeout(Some(MOMENT)).expect("set");
        let error = uninterrupted(|| (&*to).read(&mut [0; 4])).expect_err("nothing comes");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        to.set_read_timeout(Some(PATIENCE)).expect("set");
    }
    bed.ringside().start_in(folder);
    for [_, to] in &both {
        (&*to).read_exact(&mut [0; 4]).expect("what was said meanwhile comes");
    }
    answered(&bed.tenants[0][1], to);
}

/// Hosts and connections of one family.
fn restart(tag: &str, kind: Kind, family: Family, kindly: bool) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(family); 2]);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), bed.at(2).address(family)), port));
    chat(&idle).expect("goes");
    if kind.path() == "fast" {
        // Both families of both tenants of both hosts.
        bed.ringside()
            .wait_until(|gateway| gateway.statistics()["cache-entries"].as_u64() >= Some(8));
    }
    exchange_during(&busy, || {
        let folder = bed.ringside().end(kindly);
        let begin = Instant::now();
        if kind.path() == "fast" {
            // Nobody but the fast path is there, and that is enough for all that it knows: no time is lost.
            for _ in 0..100 {
                chat(&idle).expect("goes on without the daemon");
            }
            // A question is answered, too: of the other family nobody has asked yet.
            let other = FAMILIES.into_iter().find(|other| *other != family);
            answered(bed.at(2), bed.at(1).address(other.expect("two")));
        }
        std::thread::sleep(DOWN.saturating_sub(begin.elapsed()));
        bed.ringside().start_in(folder);
    });
    chat(&idle).expect("goes on");
    bed.ringside().daemon().ok(&["health"]);
}
