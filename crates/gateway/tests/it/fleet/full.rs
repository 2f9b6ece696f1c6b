//! etcd whose database is full: what goes on, what is refused, and that all of it is back by itself when there is room again.

use std::time::{Duration, Instant};

use super::Etcd;
use super::common::daemon::{Daemon, free_port, put_neighbor};
use super::common::metrics::scrape;
use super::members::{member, shares};

/// What is said about it everywhere.
const SAID: &str = "etcd's database is full (alarm NOSPACE)";

fn put(version: &str) -> Vec<&str> {
    put_neighbor(["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"], Some(version))
}

/// Writes into etcd until that takes no more.
fn fill(etcd: &Etcd) {
    let large = "x".repeat(100_000);
    let filled = (0..100).any(|number| etcd.try_ctl(&["put", &format!("/filler/{number}"), &large]).is_none());
    assert!(filled, "it takes everything");
}

/// As an operator does it.
fn make_room(etcd: &Etcd) {
    etcd.ctl(&["del", "--prefix", "/filler/"]);
    etcd.compact();
    etcd.ctl(&["defrag"]);
    etcd.ctl(&["alarm", "disarm"]);
}

#[test]
fn a_full_etcd_takes_no_change_keeps_leases_and_is_back_by_itself() {
    let etcd = Etcd::with(
        "http",
        |_| vec!["--quota-backend-bytes".to_owned(), (2 << 20).to_string()],
        || std::process::Command::new("setpriv"),
    );
    let port = free_port();
    let lease = "lease-seconds = 5";
    let metrics = format!("{lease}\n[metrics]\nlisten = \"127.0.0.1:{port}\"");
    let mut one = member(&etcd, "one", 100, &metrics);
    let mut two = member(&etcd, "two", 100, lease);
    let all = |gateway: &mut Daemon, count: usize| {
        gateway.wait("a share for each", |gateway| {
            let shares = shares(gateway);
            shares.len() == count && shares.iter().all(|(_, share)| *share > 1024 / 2 / count as u64)
        });
    };
    all(&mut one, 2);
    one.ok(&put("1"));
    assert!(
        scrape(port).contains("ringside_gateway_fleet_etcd_full 0"),
        "{}",
        scrape(port)
    );
    fill(&etcd);
    let full = Instant::now();
    let logged = [&one, &two].map(|gateway| gateway.log().len());
    let refused = one.refuses(&put("2"));
    assert!(
        refused.contains(SAID) && refused.contains("etcdctl alarm disarm"),
        "{refused}"
    );
    assert_eq!(refused.matches("full").count(), 1, "one sentence: {refused}");
    // Also where nobody asked for a change.
    for gateway in [&mut one, &mut two] {
        gateway.wait("its complaint", |gateway| gateway.health().contains(SAID));
    }
    one.wait("its metrics", |_| {
        let shown = scrape(port);
        let used = shown
            .lines()
            .find(|line| line.contains("etcd_database_bytes{what=\"used\"}"));
        let used = used.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        let is_full = shown.contains("ringside_gateway_fleet_etcd_full 1");
        is_full && used.is_some_and(|used| used > 1_000_000.0)
    });
    // What is known is told, and one that comes now waits at the door.
    assert!(two.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"));
    let mut three = member(&etcd, "three", 100, lease);
    three.wait("its complaint", |three| {
        three
            .health()
            .contains("the fleet could not be joined yet: etcd's database")
    });
    // Leases, of five seconds, live on.
    let before = shares(&one);
    std::thread::sleep(Duration::from_secs(6).saturating_sub(full.elapsed()));
    assert_eq!((shares(&one), shares(&two)), (before.clone(), before));
    for (gateway, logged) in [&one, &two].into_iter().zip(logged) {
        assert!(
            gateway.ok(&["fleet"]).contains("this gateway (*): member"),
            "{}",
            gateway.ok(&["fleet"])
        );
        let log = gateway.log();
        assert!(!log[logged..].contains("lease has run out"), "{log}");
    }
    make_room(&etcd);
    for gateway in [&mut one, &mut two, &mut three] {
        gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
    }
    one.ok(&put("2"));
    all(&mut one, 3);
    assert!(
        scrape(port).contains("ringside_gateway_fleet_etcd_full 0"),
        "{}",
        scrape(port)
    );
}
