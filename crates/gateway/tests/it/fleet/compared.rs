//! Tables that are other than etcd though nothing was told of it: only a comparison finds that.

use std::path::Path;

use rusqlite::Connection;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::gateway;
use super::metrics::{Metrics, Watched};

/// What is put right: see [`compared`].
const OTHERWISE: u64 = 6;

fn put(gateway: &Daemon, ip: &str, host: &str, version: &str) {
    gateway.ok(&put_neighbor(["42", ip, "02:00:00:00:00:07", host], Some(version)));
}

fn apply(gateway: &Daemon, ports: &str, version: u32) {
    let text = format!(
        "groups:\n  - {{id: 1, rules: [{{id: 1, direction: ingress, protocol: tcp, ports: {ports}}}], version: {version}}}\n\
         ports:\n  - {{vni: 42, ip: 10.0.0.7, groups: [{version}], version: {version}}}\n"
    );
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
}

/// All that a gateway answers.
fn answers(gateway: &Daemon) -> [String; 3] {
    ["neighbors", "ports", "groups"].map(|kind| gateway.ok(&["list", kind, "--json"]))
}

/// Puts the objects of an older copy in the place of those of a newer one, which goes on saying that it is as new as it was.
fn put_back(folder: &Folder, older: &Path) {
    let newer = Connection::open(folder.join("store.db")).unwrap();
    newer.execute("ATTACH ?1 AS older", [older.to_str().unwrap()]).unwrap();
    for table in ["neighbors", "ports", "security_groups"] {
        let text = format!("DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM older.{table};");
        newer.execute_batch(&text).unwrap();
    }
}

#[test]
fn a_comparison_finds_counts_and_mends_what_is_otherwise() {
    compared(false);
}

#[test]
#[ignore = "takes up to 25 s: make test-fleet"]
fn the_next_comparison_finds_nothing_more() {
    compared(true);
}

/// The objects of a copy are put back to what they were, its revision is not: etcd has nothing to tell. Then comparisons, one or two.
fn compared(twice: bool) {
    let etcd = Etcd::start();
    let mut one = Watched::start(&etcd, "compare-seconds = 10");
    let two = gateway(&etcd);
    for (ip, host) in [
        ("10.0.0.7", "192.0.2.1"),
        ("10.0.1.7", "192.0.2.1"),
        ("10.0.2.7", "192.0.2.1"),
    ] {
        put(&one.daemon, ip, host, "1");
    }
    apply(&one.daemon, "80", 1);
    // Its answers are of its copy: all of that is there.
    let before = answers(&one.daemon);
    assert!(before.iter().all(|answer| answer.contains("\"version\"")), "{before:?}");
    let older = two.folder.join("older.db");
    let copy = Connection::open(one.daemon.folder.join("store.db")).unwrap();
    copy.execute("VACUUM INTO ?1", [older.to_str().unwrap()]).unwrap();
    drop(copy);
    // A neighbour that has moved, one that was deleted, one of which etcd knows nothing any more, and one that is new; a port and a
    // group that are otherwise.
    put(&one.daemon, "10.0.0.7", "192.0.2.2", "2");
    one.daemon
        .ok(&["delete", "neighbor", "42", "10.0.1.7", "--version", "2"]);
    let key = neighbors_key(&etcd, 2);
    assert_eq!(etcd.ctl(&["del", &key]).trim(), "1", "{key}");
    put(&one.daemon, "10.0.3.7", "192.0.2.2", "1");
    apply(&one.daemon, "443", 2);
    let is_gone = |one: &mut Daemon| !one.ctl(&["get", "neighbor", "42", "10.0.2.7"]).status.success();
    one.daemon.wait("what was removed by hand", is_gone);
    let now = answers(&one.daemon);
    assert_ne!(now, before);
    let mut one = one.restart_after(|folder| put_back(folder, &older));

    let told = one.until("a comparison", |told| {
        told.count("fleet_divergences_total") >= OTHERWISE && told.count("fleet_comparisons_total") >= 1
    });
    assert_eq!(told.count("fleet_divergences_total"), OTHERWISE, "{told:?}");
    let compared = told.count("fleet_comparisons_total");
    assert!(compared >= 1, "{told:?}");
    assert_eq!(
        told.count("fleet_relists_total"),
        0,
        "nothing else has listed it: {told:?}"
    );
    // The tables have two neighbours instead of three; the copy follows.
    assert_eq!(told.count("objects{kind=\"neighbors\"}"), 2, "{told:?}");
    one.daemon.wait("answers as before", |one| answers(one) == now);
    assert_eq!(answers(&two), now, "what another gateway has, which was never touched");
    let said = "were other than etcd";
    let health = one.daemon.ctl(&["health"]);
    let text = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(
        !health.status.success() && text.contains(&format!("{OTHERWISE} objects {said} has them")),
        "{text}"
    );
    assert!(
        one.daemon
            .log()
            .contains(&format!("the tables {said}, and were put right")),
        "{}",
        one.daemon.log()
    );

    if !twice {
        return;
    }
    // The next one looks at all of it again. It is counted when all is listed: the tables have taken that before they take a change.
    one.until("another comparison", |told| {
        told.count("fleet_comparisons_total") > compared
    });
    put(&one.daemon, "10.0.3.7", "192.0.2.3", "2");
    let found = Metrics::of(one.port).count("fleet_divergences_total");
    assert_eq!(found, OTHERWISE, "{}", one.daemon.log());
}

/// The only key of neighbours in 10.0.`part`.0/24 of network 42.
fn neighbors_key(etcd: &Etcd, part: u8) -> String {
    let all = etcd.ctl(&[
        "get",
        "--prefix",
        "--keys-only",
        "/ringside/gateway/v1/neighbors/00002a/",
    ]);
    let block = format!("/0a00{part:02}0");
    let key = all.lines().find(|line| line.ends_with(&block));
    key.unwrap_or_else(|| panic!("no {block} in {all}")).to_owned()
}
