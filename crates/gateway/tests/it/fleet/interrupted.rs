//! A migration that is killed at any moment leaves nothing half that anybody takes for the truth, and is run again; and none where gateways live.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use ringside_gateway::store::{Store, StoreError};
use ringside_netlab::testing::retry;
use ringside_netlab::wait_until;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, binary, refusal};
use super::members::member;
use super::migrate::{configure, digest, migrate, said};

/// Objects that take some transactions.
const OBJECTS: usize = 2000;
/// How often each direction is interrupted.
const KILLS: u32 = 6;
/// Limit of the interruptions of the direction to etcd, until one comes half way.
const MAX_KILLS: u32 = 20;
/// Complaint about a locked store. A child that another test has just forked keeps the lock of a
/// closed store until it executes its own program.
const IN_USE: &str = "is in use by another process";
/// The time that a migration may take to write its first key, and a store to be free.
const PATIENCE: Duration = Duration::from_secs(60);
const PREFIX: &str = "/ringside/gateway/v1/";
const PREFIX_OF_NEIGHBORS: &str = "/ringside/gateway/v1/neighbors/";

/// What [`OBJECTS`] are in a file, which is copied for each try.
fn truth(etcd: &Etcd) -> Folder {
    let folder = Folder::new();
    configure(&folder, "sqlite", etcd);
    let gateway = Daemon::start_in(folder);
    let mut text = "neighbors:\n".to_owned();
    for number in 0..OBJECTS {
        let (b, c, d) = (number / 62_500, number / 250 % 250, number % 250);
        text.push_str(&format!(
            "  - {{vni: {}, ip: 10.{b}.{c}.{d}, mac: \"02:00:00:{b:02x}:{c:02x}:{d:02x}\", host: {{ip: 192.0.2.7}}}}\n",
            number % 7
        ));
    }
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
    gateway.stop()
}

/// Counts the objects of a store, once that is free.
fn count(path: &Path) -> Result<usize, StoreError> {
    let is_free = |opened: &Result<_, _>| !matches!(opened, Err(StoreError::InUse { .. }));
    let mut store = retry(PATIENCE, || Store::open(path), is_free)?;
    let mut count = 0;
    store.load(|changes, _| count += changes.len()).unwrap();
    Ok(count)
}

/// Migrates once the store is free.
fn migrate_free(folder: &Folder, to: &str) -> Output {
    retry(
        PATIENCE,
        || migrate(folder, to),
        |output| !said(output).contains(IN_USE),
    )
}

/// Kills a migration at a moment that its duration so far or its progress decides. Returns whether it
/// had completed.
fn interrupt(folder: &Folder, to: &str, mut is_due: impl FnMut(Duration) -> bool) -> bool {
    let mut command = binary();
    command.args(["migrate", "--to", to, "--config"]);
    let mut child = command.arg(folder.join("gateway.toml")).spawn().unwrap();
    let began = Instant::now();
    assert!(
        wait_until(PATIENCE, || is_due(began.elapsed())),
        "the moment never came"
    );
    child.kill().unwrap();
    child.wait().unwrap().success()
}

fn time(of: impl FnOnce()) -> Duration {
    let began = Instant::now();
    of();
    began.elapsed()
}

#[test]
fn one_that_is_killed_leaves_nothing_half_and_goes_on() {
    let etcd = Etcd::start();
    let truth = truth(&etcd);
    let mut there = String::new();
    let try_folder = || {
        let folder = Folder::new();
        // What was written last is beside it, if somebody still read when the gateway ended.
        for name in ["store.db", "store.db-wal"]
            .iter()
            .filter(|name| truth.join(name).exists())
        {
            std::fs::copy(truth.join(name), folder.join(name)).unwrap();
        }
        configure(&folder, "sqlite", &etcd);
        folder
    };
    let mut bring = |folder: &Folder, to: &str| {
        let output = migrate_free(folder, to);
        assert!(output.status.success(), "{}", said(&output));
        if !there.is_empty() {
            assert_eq!(digest(&output), there);
        }
        there = digest(&output);
    };
    let folder = try_folder();
    let long = time(|| bring(&folder, "etcd"));
    let keys = |part: &str| etcd.ctl(&["get", "--prefix", "--keys-only", &format!("{PREFIX}{part}")]);
    let all = keys("neighbors/").lines().count();
    let (mut halves, mut number) = (0, 0);
    while number < KILLS || halves == 0 && number < MAX_KILLS {
        number += 1;
        etcd.ctl(&["del", "--prefix", PREFIX]);
        let folder = try_folder();
        // Times alone would all miss the write on a machine whose speed varies.
        let has_keys = || {
            let first = ["get", "--prefix", "--keys-only", "--limit=1", PREFIX_OF_NEIGHBORS];
            !etcd.ctl(&first).trim().is_empty()
        };
        let is_due = |passed| match number % 2 == 0 || number > KILLS {
            true => has_keys(),
            false => passed >= long * number / KILLS,
        };
        let is_done = interrupt(&folder, "etcd", is_due);
        let (written, is_marked) = (keys("neighbors/").lines().count(), !keys("migration").trim().is_empty());
        assert!(written == 0 || written == all || is_marked, "{written} of {all} keys");
        if written > 0 && is_marked {
            halves += 1;
            assert!(!is_done);
            // Nobody begins with it, and nobody brings it back as if it was all.
            let fresh = Folder::new();
            configure(&fresh, "sqlite", &etcd);
            let refused = migrate(&fresh, "sqlite");
            assert!(
                said(&refused).contains("a part of what was to be brought there"),
                "{}",
                said(&refused)
            );
            configure(&fresh, "etcd", &etcd);
            let mut waits = binary();
            waits.arg("--config").arg(fresh.join("gateway.toml"));
            let mut waits = waits.stderr(std::process::Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let has_begun = fresh.join("api.sock").exists();
            waits.kill().unwrap();
            waits.wait().unwrap();
            assert!(!has_begun, "a gateway has begun with a part");
        }
        // The file is the truth until all of it is there.
        let is_truth = match count(&folder.join("store.db")) {
            Ok(count) => {
                assert_eq!(count, OBJECTS);
                true
            }
            Err(error) => {
                assert!(matches!(error, StoreError::OfFleet { .. }) && written == all, "{error}");
                false
            }
        };
        if is_truth {
            bring(&folder, "etcd");
        }
        assert!(keys("migration").trim().is_empty());
    }
    assert!(halves > 0, "none was killed where it matters: all took {long:?}");
    // And back.
    let folder = Folder::new();
    configure(&folder, "sqlite", &etcd);
    let long = time(|| bring(&folder, "sqlite"));
    let mut copies = 0;
    for number in 1..=2 * KILLS {
        let folder = Folder::new();
        configure(&folder, "sqlite", &etcd);
        let is_done = interrupt(&folder, "sqlite", |passed| passed >= long * number / (2 * KILLS));
        match count(&folder.join("store.db")) {
            Ok(count) => {
                assert!(count == 0 && !is_done || count == OBJECTS, "{count}");
            }
            Err(error) => {
                assert!(matches!(error, StoreError::OfFleet { .. }) && !is_done, "{error}");
                copies += 1;
                let start = || {
                    let mut gateway = binary();
                    gateway.arg("--config").arg(folder.join("gateway.toml"));
                    refusal(gateway)
                };
                let refused = retry(PATIENCE, start, |refused| !refused.contains(IN_USE));
                assert!(refused.contains("is a copy of a fleet's state"), "{refused}");
                bring(&folder, "sqlite");
            }
        }
        match count(&folder.join("store.db")) {
            Ok(0) => bring(&folder, "sqlite"),
            Ok(count) => assert_eq!(count, OBJECTS),
            Err(error) => panic!("{error}"),
        }
    }
    eprintln!(
        "{halves} of {number} were killed half way to etcd, {copies} of {} while it was a copy",
        2 * KILLS
    );
}

#[test]
fn where_a_gateway_lives_nothing_is_brought_unless_that_is_asked_for() {
    let etcd = Etcd::start();
    let mut one = member(&etcd, "gateway-1", 100, "lease-seconds = 30");
    one.wait("its key", |one| one.ctl(&["fleet"]).status.success());
    for to in ["sqlite", "etcd"] {
        let folder = Folder::new();
        configure(&folder, "sqlite", &etcd);
        let refused = migrate(&folder, to);
        let words = said(&refused);
        assert!(
            !refused.status.success() && words.contains("gateways live in etcd's fleet"),
            "{words}"
        );
        assert!(
            words.contains("gateway-1") && words.contains("--beside-gateways"),
            "{words}"
        );
    }
    let asked = Folder::new();
    configure(&asked, "sqlite", &etcd);
    let mut command = binary();
    command.args(["ctl", "migrate", "--to", "sqlite", "--beside-gateways", "--config"]);
    let output = command.arg(asked.join("gateway.toml")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    // One that was asked to end is gone at once.
    one.stop();
    let folder = Folder::new();
    configure(&folder, "sqlite", &etcd);
    let output = migrate(&folder, "sqlite");
    assert!(output.status.success(), "{}", said(&output));
}
