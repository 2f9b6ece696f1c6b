//! Gateways on one etcd, with nothing wrong.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Etcd;
use super::common::daemon::{Daemon, put_neighbor, refusal};
use super::common::etcd::{configure, gateway, program};
use super::common::{Folder, daemon};
use super::metrics::Metrics;
use ringside_netlab::wait_until;

/// For a gateway that waits for etcd where a busy machine is slow.
const PATIENT: &str = "request-ms = 30000\nsilence-ms = 30000";

fn patient(etcd: &Etcd) -> Daemon {
    let folder = Folder::new();
    configure(&folder, &etcd.endpoint(), PATIENT, "");
    Daemon::start_in(folder)
}

/// Waits until a gateway knows of something what another was told.
pub(crate) fn sees(gateway: &mut Daemon, words: &[&str], part: &str) {
    gateway.wait(part, |gateway| {
        let output = gateway.ctl(words);
        String::from_utf8_lossy(&output.stdout).contains(part)
    });
}

fn words<'a>(ip: &'a str, host: &'a str, version: &'a str) -> Vec<&'a str> {
    put_neighbor(["42", ip, "02:00:00:00:00:07", host], Some(version))
}

fn put(gateway: &Daemon, ip: &str, host: &str, version: &str) {
    gateway.ok(&words(ip, host, version));
}

#[test]
fn two_gateways_see_each_others_changes() {
    let etcd = Etcd::start();
    let (mut a, mut b) = (gateway(&etcd), gateway(&etcd));
    put(&a, "10.0.0.7", "192.0.2.1", "5");
    sees(&mut b, &["get", "neighbor", "42", "10.0.0.7"], "192.0.2.1");
    // Whichever gateway is asked, the higher version holds.
    let older = b.refuses(&words("10.0.0.7", "192.0.2.2", "4"));
    assert!(older.contains("something newer"), "{older}");
    let conflict = b.refuses(&words("10.0.0.7", "192.0.2.2", "5"));
    assert!(
        conflict.contains("something else is known in the same version"),
        "{conflict}"
    );
    put(&b, "10.0.0.7", "192.0.2.3", "6");
    sees(&mut a, &["get", "neighbor", "42", "10.0.0.7"], "192.0.2.3");
    // Groups and ports as well.
    let file = a.folder.join("objects.yaml");
    let text = "groups:\n  - {id: 1, name: web, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 80}]}\n\
                ports:\n  - {vni: 42, ip: 10.0.0.7, groups: [1]}\n";
    std::fs::write(&file, text).unwrap();
    a.ok(&["apply", "-f", file.to_str().unwrap()]);
    sees(&mut b, &["get", "group", "1"], "web");
    sees(&mut b, &["get", "port", "42", "10.0.0.7"], "1");
    b.ok(&["delete", "neighbor", "42", "10.0.0.7", "--version", "7"]);
    a.wait("the delete", |a| {
        !a.ctl(&["get", "neighbor", "42", "10.0.0.7"]).status.success()
    });
    let again = a.refuses(&words("10.0.0.7", "192.0.2.3", "7"));
    assert!(
        again.contains("something newer"),
        "a tombstone is known everywhere: {again}"
    );
    // A third one begins with all of it, and one that starts anew knows it without a list.
    let mut c = gateway(&etcd);
    sees(&mut c, &["get", "group", "1"], "web");
    let mut a = Daemon::start_in(a.stop());
    put(&b, "10.0.0.8", "192.0.2.3", "1");
    sees(&mut a, &["get", "neighbor", "42", "10.0.0.8"], "192.0.2.3");
    assert!(!a.log().contains("what had to be watched was compacted"), "{}", a.log());
    for gateway in [&mut a, &mut b, &mut c] {
        gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
    }
}

#[test]
fn a_file_is_not_taken_for_what_it_is_not() {
    let etcd = Etcd::start();
    let alone = Daemon::start("");
    put(&alone, "10.0.0.7", "192.0.2.1", "5");
    let folder = alone.stop();
    configure(&folder, &etcd.endpoint(), "", "");
    let said = refusal(program(&folder.join("")));
    assert!(said.contains("holds objects that etcd does not know"), "{said}");
    // And a copy is not the truth.
    let folder = gateway(&etcd).stop();
    daemon::configure(&folder, "store.db", "");
    let said = refusal(program(&folder.join("")));
    assert!(said.contains("is a copy of a fleet's state"), "{said}");
}

#[test]
fn without_etcd_a_gateway_that_knows_nothing_waits_and_one_that_knows_something_goes_on() {
    let mut etcd = Etcd::start();
    let a = gateway(&etcd);
    put(&a, "10.0.0.7", "192.0.2.1", "5");
    let folder = a.stop();
    etcd.kill();
    let mut a = Daemon::start_in(folder);
    assert!(a.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"));
    // Refused from the beginning; for that reason as soon as it has tried to reach etcd.
    let why = "etcd cannot be reached";
    a.wait(why, |a| {
        let put = ["put", "port", "1", "10.0.0.9", "--groups", "1", "--version", "1"];
        a.fails(&put).contains(why)
    });
    sees(&mut a, &["health"], why);
    // One that was never told anything.
    let folder = Folder::new();
    configure(&folder, &etcd.endpoint(), "", "");
    let socket = folder.join("api.sock");
    let mut child = program(&folder.join(""))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let is_there = socket.exists();
    etcd.start_again(Command::new("setpriv"));
    let comes = ringside_netlab::wait_until(Duration::from_secs(30), || socket.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_there && comes, "before etcd: {is_there}, with it: {comes}");
    // And the other is back by itself.
    a.wait("etcd", |a| a.ctl(&["health"]).status.success());
    put(&a, "10.0.0.8", "192.0.2.1", "5");
}

/// Its data path begins with what has changed meanwhile, not with the copy, though etcd's revision says nothing of whose changes those are.
#[test]
fn who_starts_with_a_copy_has_all_that_changed_before_its_first_packet() {
    let etcd = Etcd::start();
    let (mut a, b) = (patient(&etcd), gateway(&etcd));
    for number in 1..=5 {
        let folder = a.stop();
        put(&b, &format!("10.0.0.{number}"), "192.0.2.1", "1");
        // Somebody else's, after that: no event of it comes.
        etcd.ctl(&["put", "others", &number.to_string()]);
        a = Daemon::start_in(folder);
        let stats: serde_json::Value = serde_json::from_str(&a.ok(&["stats", "--json"])).unwrap();
        assert_eq!(
            stats["neighbors"],
            number,
            "as soon as it answers: {stats}\n{}",
            a.log()
        );
    }
}

/// Its copy is slow to take what has changed: lists are not answered before it has.
#[test]
fn lists_of_who_starts_with_a_copy_have_all_that_changed() {
    let etcd = Etcd::start();
    let (a, b) = (patient(&etcd), gateway(&etcd));
    let folder = a.stop();
    put(&b, "10.0.0.1", "192.0.2.1", "1");
    let other = rusqlite::Connection::open(folder.join("store.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let writes = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        other.execute_batch("ROLLBACK").unwrap();
    });
    let a = Daemon::start_in(folder);
    let lists = |gateway: &Daemon| gateway.ok(&["list", "neighbors", "--json"]);
    assert_eq!(lists(&a), lists(&b), "{}", a.log());
    writes.join().unwrap();
}

/// Etcd is killed in the middle of a load: what the client says goes on where it ended.
#[test]
fn a_load_that_was_interrupted_goes_on_behind_what_was_put() {
    const COUNT: u64 = 40_000;
    let mut etcd = Etcd::start();
    let mut gateway = gateway(&etcd);
    let file = gateway.folder.join("neighbors.csv");
    let write = |vni: u64| {
        let line = |number: u64| {
            let [.., c, d] = number.to_be_bytes();
            format!("{vni},10.0.{c}.{d},02:00:00:00:{c:02x}:{d:02x},192.0.2.1\n")
        };
        let lines: String = (0..COUNT).map(line).collect();
        std::fs::write(&file, format!("vni,ip,mac,host-ip\n{lines}")).unwrap();
    };
    let known = |gateway: &Daemon| -> u64 {
        let stats: serde_json::Value = serde_json::from_str(&gateway.ok(&["stats", "--json"])).unwrap();
        stats["neighbors"].as_u64().unwrap()
    };
    let name = file.to_str().unwrap();
    let load = ["load", name, "--version", "1", "--batch", "256"];
    // A load may end before etcd is gone: the next one is of another network.
    let mut loads = 0;
    let said = loop {
        let before = loads * COUNT;
        loads += 1;
        write(loads);
        let loading = std::thread::scope(|scope| {
            let loading = scope.spawn(|| gateway.ctl(&load));
            while known(&gateway) < before + 2_000 && !loading.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
            etcd.kill();
            loading.join().unwrap()
        });
        let said = String::from_utf8_lossy(&loading.stderr).into_owned();
        if !loading.status.success() && known(&gateway) >= before + 2_000 {
            break said;
        }
        assert!(loads < 5, "etcd is never gone in the middle of it: {said}");
        etcd.start_again(Command::new("setpriv"));
        gateway.wait("etcd", |gateway| gateway.ctl(&["health"]).status.success());
        gateway.ok(&load);
    };
    let skip = said.split("--skip ").nth(1).and_then(|rest| rest.split(' ').next());
    let skip: u64 = skip
        .and_then(|skip| skip.parse().ok())
        .unwrap_or_else(|| panic!("{said}"));
    assert!((256..COUNT).contains(&skip) && skip.is_multiple_of(256), "{said}");
    etcd.start_again(Command::new("setpriv"));
    gateway.wait("etcd", |gateway| gateway.ctl(&["health"]).status.success());
    gateway.ok(&[
        "load",
        name,
        "--version",
        "1",
        "--batch",
        "256",
        "--skip",
        &skip.to_string(),
    ]);
    assert_eq!(known(&gateway), loads * COUNT);
    // Somebody who has it from etcd alone.
    let mut other = super::common::etcd::gateway(&etcd);
    other.wait("all of them", |other| known(other) == loads * COUNT);
}

/// The gateway refuses the first batch, and the next line never comes.
#[test]
fn a_load_that_is_refused_ends_before_its_input() {
    let mut etcd = Etcd::start();
    let gateway = gateway(&etcd);
    etcd.kill();
    let mut load = gateway
        .ctl_command(&["load", "-", "--version", "1", "--batch", "1"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = load.stdin.take().unwrap();
    input
        .write_all(b"vni,ip,mac,host-ip\n42,10.0.0.7,02:00:00:00:00:07,192.0.2.1\n")
        .unwrap();
    let ended = wait_until(Duration::from_mins(1), || load.try_wait().unwrap().is_some());
    load.kill().unwrap();
    let output = load.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(ended, "it waits for its input: {complaint}");
    assert_eq!(output.status.code(), Some(1), "{complaint}");
    assert!(complaint.contains("no neighbour is known to be put: "), "{complaint}");
}

/// What a gateway's tables do not know it takes for new, without a look at etcd, which may know that it was deleted.
#[test]
fn what_was_deleted_is_not_taken_for_new() {
    let (etcd, port) = (Etcd::start(), daemon::free_port());
    let folder = Folder::new();
    let metrics = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"");
    configure(&folder, &etcd.endpoint(), PATIENT, &metrics);
    let gateway = Daemon::start_in(folder);
    let file = gateway.folder.join("neighbors.csv");
    // A key each, and more of them than a transaction tells of.
    let line = |number: u32| format!("42,10.0.{number}.1,02:00:00:00:00:07,192.0.2.1\n");
    let lines: String = (1..=40).map(line).collect();
    std::fs::write(&file, format!("vni,ip,mac,host-ip\n{lines}")).unwrap();
    let load = |version| gateway.ok(&["load", file.to_str().unwrap(), "--version", version]);
    assert!(load("5").contains("40 new or newer, 0 there already"));
    for number in 1..=40 {
        let ip = format!("10.0.{number}.1");
        gateway.ok(&["delete", "neighbor", "42", &ip, "--version", "6"]);
    }
    let older = load("5");
    assert!(older.contains("0 new or newer, 0 there already, 40 older"), "{older}");
    assert!(load("7").contains("40 new or newer"));
    assert!(load("7").contains("40 there already"));
    // Nobody was met.
    assert_eq!(Metrics::of(port).count("fleet_conflicts_total"), 0);
}
