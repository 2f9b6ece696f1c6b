//! Loads without versions, and deletes of many objects, in a file and in etcd.

use serde_json::Value;

use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::{Etcd, gateway};

/// Neighbours of each of two networks. More than a batch of deletes in all.
const EACH: u32 = 5000;

/// Every second one on one of two hosts.
fn csv(versions: bool) -> String {
    let mut text = "vni,ip,mac,host-ip".to_owned();
    text += if versions { ",version\n" } else { "\n" };
    for vni in [42, 43] {
        for number in 0..EACH {
            let [_, _, c, d] = number.to_be_bytes();
            let host = 1 + d % 2;
            text += &format!("{vni},10.0.{c}.{d},02:00:00:00:{c:02x}:{d:02x},192.0.2.{host}");
            text += if versions { ",1\n" } else { "\n" };
        }
    }
    text
}

fn json(daemon: &Daemon, words: &[&str]) -> Value {
    serde_json::from_str(&daemon.ok(&[words, &["--json"]].concat())).unwrap()
}

fn counts<const N: usize>(said: &Value, names: [&str; N]) -> [u64; N] {
    names.map(|name| said[name].as_u64().unwrap_or_else(|| panic!("{name} in {said}")))
}

fn loaded(daemon: &Daemon, text: &str) -> [u64; 2] {
    let file = daemon.folder.join("neighbors.csv");
    std::fs::write(&file, text).unwrap();
    counts(
        &json(daemon, &["load", file.to_str().unwrap()]),
        ["changed", "unchanged"],
    )
}

/// Deleted ones, and those that were not there.
fn deleted(daemon: &Daemon, words: &[&str]) -> [u64; 2] {
    counts(&json(daemon, &[&["delete"], words].concat()), ["deleted", "absent"])
}

fn version(daemon: &Daemon, ip: &str) -> u64 {
    counts(&json(daemon, &["get", "neighbor", "42", ip]), ["version"])[0]
}

fn loads_without_versions_and_deletes_many(daemon: &Daemon) {
    let (all, text) = (2 * u64::from(EACH), csv(false));
    assert_eq!(loaded(daemon, &text), [all, 0]);
    assert_eq!(loaded(daemon, &text), [0, all], "nothing differs");
    let moved = text.replace("42,10.0.1.7,02:00:00:00:01:07", "42,10.0.1.7,02:00:00:00:09:09");
    assert_eq!(loaded(daemon, &moved), [1, all - 1]);
    assert_eq!(["10.0.1.7", "10.0.1.8"].map(|ip| version(daemon, ip)), [2, 1]);
    // The same address twice: the second line is what holds.
    let twice = "vni,ip,mac,host-ip\n42,10.0.1.8,02:00:00:00:09:01,192.0.2.1\n\
         42,10.0.1.8,02:00:00:00:09:02,192.0.2.1\n";
    assert_eq!(loaded(daemon, twice), [2, 0]);
    assert_eq!(version(daemon, "10.0.1.8"), 3);
    // Of a host in a network, of a network, of a file.
    let half = u64::from(EACH) / 2;
    assert_eq!(
        deleted(daemon, &["neighbors", "--vni", "42", "--host", "192.0.2.2"]),
        [half, 0]
    );
    assert_eq!(
        deleted(daemon, &["neighbors", "--vni", "42", "--host", "192.0.2.2"]),
        [0, 0]
    );
    assert_eq!(deleted(daemon, &["neighbors", "--host", "192.0.2.2"]), [half, 0]);
    assert_eq!(deleted(daemon, &["neighbors", "--vni", "43"]), [half, 0]);
    let file = daemon.folder.join("neighbors.csv");
    std::fs::write(&file, &text).unwrap();
    let name = file.to_str().unwrap();
    assert_eq!(deleted(daemon, &["neighbors", "--file", name]), [half, all - half]);
    assert_eq!(json(daemon, &["stats"])["neighbors"], 0);
    // What was deleted is remembered, and a version after it is given. A batch whose answer comes
    // late is sent again, and is known then.
    let [new, known] = loaded(daemon, &text);
    assert_eq!(new + known, all);
    assert_eq!(
        ["10.0.1.7", "10.0.1.8", "10.0.1.9"].map(|ip| version(daemon, ip)),
        [3, 4, 2]
    );
    // With versions nothing goes that is newer.
    std::fs::write(&file, csv(true)).unwrap();
    let said = daemon.refuses(&["delete", "neighbors", "--file", name]);
    assert!(
        said.contains(&format!("{all} neighbors are known in a higher version, and stay")),
        "{said}"
    );
    std::fs::write(&file, text.replace("10.0.1.7,", "10.0.1.777,")).unwrap();
    let said = daemon.rejects(&["delete", "neighbors", "--file", name]);
    assert!(said.contains("neighbors.csv, line 265: "), "{said}");
    for ip in ["10.0.0.7", "10.0.0.8"] {
        daemon.ok(&["put", "port", "42", ip, "--groups", "1"]);
        daemon.ok(&["put", "port", "43", ip, "--groups", "1"]);
    }
    let ports = daemon.folder.join("ports.csv");
    std::fs::write(&ports, "vni,ip\n43,10.0.0.7\n43,10.0.0.9\n").unwrap();
    assert_eq!(deleted(daemon, &["ports", "--file", ports.to_str().unwrap()]), [1, 1]);
    assert_eq!(deleted(daemon, &["ports", "--vni", "42"]), [2, 0]);
    assert_eq!(json(daemon, &["stats"])["ports"], 1);
}

#[test]
fn loads_without_versions_and_deletes_many_of_a_file() {
    let daemon = Daemon::start("");
    loads_without_versions_and_deletes_many(&daemon);
    // What is on the disk is what was answered.
    let daemon = Daemon::start_in(daemon.stop());
    assert_eq!(version(&daemon, "10.0.1.8"), 4);
}

#[test]
fn loads_without_versions_and_deletes_many_of_etcd() {
    let etcd = Etcd::start();
    loads_without_versions_and_deletes_many(&gateway(&etcd));
}

/// There is no version that it could be newer than.
#[test]
fn what_has_never_been_there_is_not_remembered_as_deleted() {
    let etcd = Etcd::start();
    for daemon in [Daemon::start(""), gateway(&etcd)] {
        let file = daemon.folder.join("ports.csv");
        let lines: Vec<String> = (1..=100).map(|number| format!("42,10.0.0.{number}")).collect();
        std::fs::write(&file, format!("vni,ip\n{}\n", lines.join("\n"))).unwrap();
        for kind in ["ports", "neighbors"] {
            assert_eq!(deleted(&daemon, &[kind, "--file", file.to_str().unwrap()]), [0, 100]);
        }
        assert_eq!(json(&daemon, &["stats"])["tombstones"], 0);
        // What was there is, in version 0 as well, also by the next start.
        daemon.ok(&put_neighbor(
            ["42", "10.0.0.1", "02:00:00:00:00:07", "192.0.2.1"],
            Some("0"),
        ));
        daemon.ok(&["delete", "neighbor", "42", "10.0.0.1"]);
        let daemon = Daemon::start_in(daemon.stop());
        assert_eq!(json(&daemon, &["stats"])["tombstones"], 1);
        let said = daemon.refuses(&put_neighbor(
            ["42", "10.0.0.1", "02:00:00:00:00:07", "192.0.2.1"],
            Some("0"),
        ));
        assert!(said.contains("something newer"), "{said}");
    }
    assert_eq!(
        etcd.ctl(&["get", "--prefix", "--keys-only", "/ringside/gateway/v1/ports/"])
            .trim(),
        ""
    );
}
