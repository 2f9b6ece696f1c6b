//! A gateway whose own disk hangs: nothing is answered by it, neither an error nor an end.

use std::time::{Duration, Instant};

use super::Etcd;
use super::basics::sees;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port, put_neighbor};
use super::common::disk::{FOR_EVER, SlowDisk, kill};
use super::common::etcd::{IMPATIENT, configure, gateway};
use super::members::{member, shares};
use super::metrics::Metrics;

fn put<'a>(ip: &'a str, version: &'a str) -> Vec<&'a str> {
    put_neighbor(["42", ip, "02:00:00:00:00:07", "192.0.2.1"], Some(version))
}

#[test]
fn a_gateway_whose_disk_hangs_follows_answers_and_starts_again() {
    let (etcd, disk, port) = (Etcd::start(), SlowDisk::new(), free_port());
    let folder = Folder::new();
    let more = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
    configure(&folder, &etcd.endpoint(), IMPATIENT, &more);
    let mut one = disk.start(folder);
    let other = gateway(&etcd);
    one.ok(&put("10.0.0.1", "1"));
    one.ok(&["get", "neighbor", "42", "10.0.0.1"]);
    disk.set_delay(FOR_EVER);
    // The first answer waits for the disk a moment, later ones do not.
    one.ok(&put("10.0.0.2", "1"));
    for number in 1..=50 {
        let ip = format!("10.0.1.{number}");
        one.ok(&put(&ip, "1"));
        other.ok(&put(&ip, "2"));
    }
    one.wait("its complaint", |one| {
        one.health().contains("its disk has not answered for")
    });
    // More batches than there is room for anywhere.
    let newest = etcd.revision();
    one.wait("what etcd has", |_| {
        Metrics::of(port).count("fleet_applied_revision") >= newest
    });
    one.wait("a proof of it", |_| Metrics::of(port).get("fleet_lag_seconds") < 2.0);
    let is_newer = one.refuses(&put("10.0.1.7", "1"));
    assert!(is_newer.contains("something newer"), "{is_newer}");
    // It dies with what it had to write, and begins with what etcd has.
    let mut one = Daemon::start_in(kill(one));
    for ip in ["10.0.0.1", "10.0.0.2", "10.0.1.50"] {
        sees(&mut one, &["get", "neighbor", "42", ip], "192.0.2.1");
    }
    assert_eq!(
        one.ok(&["list", "neighbors", "--json"]),
        other.ok(&["list", "neighbors", "--json"])
    );
    one.wait("health", |one| one.ctl(&["health"]).status.success());
}

/// It is asked to end: others have its shards at once, it says what it leaves undone, and does not wait for the disk for ever.
#[test]
fn a_gateway_whose_disk_hangs_ends_when_it_is_asked_to() {
    let (etcd, disk) = (Etcd::start(), SlowDisk::new());
    let mut other = member(&etcd, "other", 100, "");
    other.wait("all shards", |other| shares(other) == [("other".to_owned(), 1024)]);
    let folder = Folder::new();
    let fleet = "[fleet]\nname = \"one\"\naddresses = [\"192.0.2.1\"]\nlease-seconds = 300";
    configure(&folder, &etcd.endpoint(), IMPATIENT, fleet);
    let mut one = disk.start(folder);
    other.wait("shares for both", |other| {
        shares(other).iter().all(|(_, shards)| (300..700).contains(shards))
    });
    one.ok(&put("10.0.0.1", "1"));
    disk.set_delay(FOR_EVER);
    one.ok(&put("10.0.0.2", "1"));
    let began = Instant::now();
    one.signal("TERM");
    other.wait("its shards", |other| shares(other) == [("other".to_owned(), 1024)]);
    one.wait("its end", |one| one.child.try_wait().unwrap().is_some());
    // Far less than its lease and the disk take: five seconds for the disk, and some for what else is to be done.
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let log = one.log();
    let said = log
        .lines()
        .filter(|line| line.contains("is older than what was known"))
        .count();
    assert!(
        said == 1 && log.contains("KiB were not written") && log.contains("ended"),
        "{log}"
    );
    // As after a kill.
    disk.set_delay(Duration::ZERO);
    let mut one = Daemon::start_in(one.kill());
    sees(&mut one, &["get", "neighbor", "42", "10.0.0.2"], "192.0.2.1");
    assert_eq!(
        one.ok(&["list", "neighbors", "--json"]),
        other.ok(&["list", "neighbors", "--json"])
    );
}
