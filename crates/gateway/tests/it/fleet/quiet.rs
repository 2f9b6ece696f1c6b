//! What health says while etcd does not answer.

use std::thread::sleep;
use std::time::{Duration, Instant};

use ringside_netlab::testing::{expect, measured};

use super::Etcd;
use super::cluster::{Cluster, How, Member};
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::configure;
use super::node::Gateway;
use super::table::PLAIN;

const SECOND: Duration = Duration::from_secs(1);
const SILENT: &str = "etcd has not answered for";
const CUT_OFF: &str = "etcd cannot be reached";

/// As gateways are if they are told nothing else.
const USUAL: How = How {
    tenants: false,
    silence: Duration::from_secs(5),
    ..PLAIN
};

fn put(version: &str) -> Vec<&str> {
    put_neighbor(["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"], Some(version))
}

/// It is noticed before `silence-ms` is over, and a gateway that stood still itself does not say
/// so.
#[test]
fn an_etcd_that_stands_still_is_noticed_within_two_seconds() {
    let etcd = Etcd::start();
    let folder = Folder::new();
    configure(&folder, &etcd.endpoint(), "", "");
    let mut gateway = Daemon::start_in(folder);
    gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
    measured(|| {
        etcd.signal("STOP");
        let began = Instant::now();
        gateway.wait("its complaint", |gateway| gateway.health().contains(SILENT));
        let noticed = began.elapsed();
        let said = gateway.health();
        etcd.signal("CONT");
        gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
        assert!(!said.contains(CUT_OFF) || noticed > 4 * SECOND, "{said}");
        // Up to a second until the next question, one until it is late, and what the client takes.
        expect(noticed < 5 * SECOND / 2, format_args!("noticed after {noticed:?}"))
    });
    measured(|| {
        gateway.signal("STOP");
        sleep(3 * SECOND);
        gateway.signal("CONT");
        let until = Instant::now() + SECOND / 2;
        let mut said = String::new();
        while Instant::now() < until && !said.contains(SILENT) {
            said = gateway.health();
        }
        expect(!said.contains(SILENT), said)
    });
}

/// Changes wait for a quorum: that is said, and nothing of disks.
#[test]
fn a_lost_quorum_is_not_taken_for_a_slow_disk() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut cluster = Cluster::start("ft-quorum", USUAL);
    cluster.wait_well();
    for member in &mut cluster.members[..2] {
        member.kill();
    }
    let daemon = cluster.gateways[0].daemon();
    std::thread::scope(|scope| {
        // It waits for longer than a disk may be silent.
        let change = scope.spawn(|| daemon.ctl(&put("1")));
        let (until, mut named) = (Instant::now() + 12 * SECOND, [false; 2]);
        while Instant::now() < until {
            let said = daemon.health();
            assert!(!said.contains("disk"), "{said}");
            for (named, name) in named.iter_mut().zip([SILENT, CUT_OFF]) {
                *named |= said.contains(name);
            }
            sleep(SECOND / 5);
        }
        assert!(!change.join().unwrap().status.success());
        assert_eq!(named, [true; 2], "{}", daemon.log());
    });
    cluster.members[0].start();
    cluster.members[0].wait();
    cluster.wait_well();
    cluster.gateways[0].daemon().ok(&put("2"));
}

/// Starts a gateway anew that knows these members of etcd.
fn restart_with(gateway: &mut Gateway, urls: &[&str]) {
    gateway.restart_after(|folder| {
        let file = folder.join("gateway.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = text.split_once("endpoints = [").unwrap();
        let (_, after) = rest.split_once(']').unwrap();
        std::fs::write(&file, format!("{before}endpoints = {urls:?}{after}")).unwrap();
    });
}

/// The others elect another leader: gateways that can ask these are held up for no longer than
/// `silence-ms`. One that knows the stopped member alone says so within two seconds.
#[test]
fn a_stopped_leader_is_noticed_by_who_asks_it_and_stops_nobody_else() {
    if !ringside_netlab::testing::is_root() {
        return;
    }
    let mut cluster = Cluster::start("ft-leader", USUAL);
    cluster.wait_well();
    let urls: Vec<String> = cluster.members.iter().map(Member::url).collect();
    let mut version = 0;
    measured(|| {
        let leader = cluster.leader();
        let next = (leader + 1) % urls.len();
        let [alone, others @ ..] = &mut cluster.gateways[..] else {
            unreachable!("three")
        };
        restart_with(alone, &[&urls[leader]]);
        // After two turns it would be the stopped one again.
        for other in others {
            restart_with(other, &[&urls[leader], &urls[next]]);
        }
        cluster.wait_well();
        let term = cluster.term();
        let [alone, others @ ..] = &mut cluster.gateways[..] else {
            unreachable!("three")
        };
        let log_length = |gateway: &mut Gateway| gateway.daemon().log().len();
        let log_lengths: Vec<usize> = others.iter_mut().map(log_length).collect();
        cluster.members[leader].signal("STOP");
        let began = Instant::now();
        let (noticed, said, problems) = std::thread::scope(|scope| {
            let notice = scope.spawn(|| {
                let alone = alone.daemon();
                alone.wait("its complaint", |alone| alone.health().contains(SILENT));
                (began.elapsed(), alone.health())
            });
            let mut problems = String::new();
            for (other, log_length) in others.iter_mut().zip(log_lengths) {
                version += 1;
                let answer = other.daemon().patient_ctl(&put(&version.to_string()));
                let log = &other.daemon().log()[log_length..];
                if !answer.status.success() || log.contains(CUT_OFF) {
                    problems += &format!("{answer:?}: {log}");
                }
            }
            let (noticed, said) = notice.join().unwrap();
            (noticed, said, problems)
        });
        let written = began.elapsed();
        let after = cluster.members.iter().enumerate().filter(|(at, _)| *at != leader);
        let elected = after
            .filter_map(|(_, member)| member.status()?["raftTerm"].as_u64())
            .max();
        cluster.members[leader].signal("CONT");
        cluster.wait_well();
        expect(problems.is_empty(), problems)?;
        assert!(elected > Some(term), "{elected:?} after {term}");
        assert!(!said.contains(CUT_OFF) || noticed > 4 * SECOND, "{said}");
        for gateway in &mut cluster.gateways {
            let known = gateway.daemon().ok(&["get", "neighbor", "42", "10.0.0.7", "--json"]);
            let known: serde_json::Value = serde_json::from_str(&known).unwrap();
            assert_eq!(known["version"], version, "{known}");
        }
        expect(
            noticed < 5 * SECOND / 2 && written < 2 * USUAL.silence,
            format_args!("noticed after {noticed:?}, written after {written:?}"),
        )
    });
}
