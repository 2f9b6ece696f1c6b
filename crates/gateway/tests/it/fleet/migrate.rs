//! The truth from a file to etcd, and back.

use std::process::Output;

use super::Etcd;
use super::common::daemon::{Daemon, binary, put_neighbor};
use super::common::{Folder, overwrite};

pub(crate) fn migrate(folder: &Folder, to: &str) -> Output {
    let mut command = binary();
    command.args(["ctl", "migrate", "--to", to, "--config"]);
    command.arg(folder.join("gateway.toml")).output().unwrap()
}

pub(crate) fn configure(folder: &Folder, kind: &str, etcd: &Etcd) {
    let path = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "[store]\nkind = \"{kind}\"\npath = \"{}\"\n[store.etcd]\nendpoints = [\"{}\"]\n[api]\nsocket = \"{}\"\n[metrics]\nenabled = false\n",
        path("store.db"),
        etcd.endpoint(),
        path("api.sock")
    );
    std::fs::write(folder.join("gateway.toml"), text).unwrap();
}

fn everything(gateway: &Daemon) -> [String; 3] {
    ["neighbors", "ports", "groups"].map(|kind| gateway.ok(&["list", kind, "--json"]))
}

pub(crate) fn said(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

pub(crate) fn digest(output: &Output) -> String {
    let said = said(output);
    let (_, digest) = said.split_once("sha256 ").expect("a digest");
    digest.lines().next().unwrap().to_owned()
}

#[test]
fn everything_is_the_same_in_etcd_and_back_again() {
    let etcd = Etcd::start();
    let folder = Folder::new();
    configure(&folder, "sqlite", &etcd);
    let gateway = Daemon::start_in(folder);
    let file = gateway.folder.join("objects.yaml");
    let mut text = "groups:\n  - {id: 1, name: web, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 80}]}\n\
                    ports:\n  - {vni: 42, ip: 10.0.0.7, groups: [1]}\nneighbors:\n"
        .to_owned();
    for number in 0..300 {
        let (c, d) = (number / 250, number % 250);
        text.push_str(&format!(
            "  - {{vni: {}, ip: 10.0.{c}.{d}, mac: \"02:00:00:00:{c:02x}:{d:02x}\", host: {{ip: 192.0.2.{d}}}}}\n",
            number % 3
        ));
    }
    std::fs::write(&file, text.replace("192.0.2.0}", "192.0.2.251}")).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
    gateway.ok(&["delete", "neighbor", "1", "10.0.0.1", "--version", "9"]);
    let before = everything(&gateway);
    let in_use = migrate(&gateway.folder, "etcd");
    assert!(
        !in_use.status.success() && said(&in_use).contains("in use by another process"),
        "{}",
        said(&in_use)
    );
    let folder = gateway.stop();
    let output = migrate(&folder, "etcd");
    assert!(output.status.success(), "{}", said(&output));
    let there = digest(&output);
    // The file is a copy now.
    let again = migrate(&folder, "etcd");
    assert!(
        said(&again).contains("is a copy of a fleet's state already"),
        "{}",
        said(&again)
    );
    configure(&folder, "etcd", &etcd);
    let gateway = Daemon::start_in(folder);
    assert_eq!(everything(&gateway), before);
    let gone = gateway.refuses(&put_neighbor(
        ["1", "10.0.0.1", "02:00:00:00:00:01", "192.0.2.1"],
        Some("9"),
    ));
    assert!(
        gone.contains("something newer"),
        "what was deleted is remembered: {gone}"
    );
    let folder = gateway.stop();
    // Into a file of its own, and into the copy.
    let other = Folder::new();
    configure(&other, "sqlite", &etcd);
    for folder in [&folder, &other] {
        let output = migrate(folder, "sqlite");
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(digest(&output), there);
    }
    for folder in [folder, other] {
        configure(&folder, "sqlite", &etcd);
        let gateway = Daemon::start_in(folder);
        assert_eq!(everything(&gateway), before);
    }
}

#[test]
fn what_is_in_the_way_stays() {
    let etcd = Etcd::start();
    let put = |gateway: &Daemon, host: &str| {
        gateway.ok(&put_neighbor(["1", "10.0.0.1", "02:00:00:00:00:01", host], Some("1")));
    };
    let start = |kind| {
        let folder = Folder::new();
        configure(&folder, kind, &etcd);
        Daemon::start_in(folder)
    };
    let fleet = start("etcd");
    put(&fleet, "192.0.2.1");
    let alone = start("sqlite");
    put(&alone, "192.0.2.2");
    let folder = alone.stop();
    for (to, reason) in [
        ("etcd", "etcd holds other objects under this prefix"),
        ("sqlite", "the store holds objects of its own"),
    ] {
        let output = migrate(&folder, to);
        assert!(
            !output.status.success() && said(&output).contains(reason),
            "{}",
            said(&output)
        );
    }
    assert!(
        Daemon::start_in(folder)
            .ok(&["get", "neighbor", "1", "10.0.0.1"])
            .contains("192.0.2.2")
    );
    assert!(fleet.ok(&["get", "neighbor", "1", "10.0.0.1"]).contains("192.0.2.1"));
}

/// Etcd would not know that ports may be missing.
#[test]
fn a_store_that_has_lost_something_is_not_brought_to_etcd() {
    let etcd = Etcd::start();
    let folder = Folder::new();
    configure(&folder, "sqlite", &etcd);
    let put = |gateway: &Daemon| {
        gateway.ok(&put_neighbor(
            ["1", "10.0.0.1", "02:00:00:00:00:01", "192.0.2.1"],
            Some("1"),
        ));
    };
    let gateway = Daemon::start_in(folder);
    put(&gateway);
    let folder = gateway.stop();
    overwrite(&folder.join("store.db"), "ports");
    // The second time it is known already.
    for _ in 0..2 {
        let output = migrate(&folder, "etcd");
        let said = said(&output);
        assert!(
            !output.status.success() && said.contains("has lost something"),
            "{said}"
        );
    }
    let there = ["get", "--prefix", "--keys-only", "/ringside/gateway/v1/neighbors"];
    assert_eq!(etcd.ctl(&there), "");
    // Nor when a row is damaged.
    let gateway = Daemon::start_in(folder);
    assert!(gateway.ok(&["repaired"]).contains("from now on: 1"));
    let folder = gateway.stop();
    let file = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    file.execute("UPDATE neighbors SET mac = x'020000000099'", []).unwrap();
    drop(file);
    for reason in ["rows of the store were damaged", "has lost something"] {
        let said = said(&migrate(&folder, "etcd"));
        assert!(said.contains(reason), "{said}");
    }
    let gateway = Daemon::start_in(folder);
    put(&gateway);
    gateway.ok(&["repaired"]);
    let output = migrate(&gateway.stop(), "etcd");
    assert!(output.status.success(), "{}", said(&output));
}
