//! What is listed and comes late, or not at all.

use std::process::Command;
use std::time::{Duration, Instant};

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port, put_neighbor};
use super::common::etcd::{IMPATIENT, configure};
use super::migrate::{digest, migrate, said};
use super::way::Way;

/// Adds neighbours to a gateway. A list of 3000 has several hundred thousand bytes.
fn give(gateway: &Daemon, neighbors: u32) {
    let mut text = "neighbors:\n".to_owned();
    for number in 0..neighbors {
        let (c, d) = (number / 250, number % 250);
        text.push_str(&format!(
            "  - {{vni: {}, ip: 10.{d}.{c}.7, mac: \"02:00:00:00:{c:02x}:{d:02x}\", host: {{ip: 192.0.2.7}}}}\n",
            number % 7
        ));
    }
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
}

/// The truth goes there and back past a member that is dead, and a page of the list that does not come.
#[test]
fn a_migration_goes_on_past_a_dead_member_and_a_page_that_is_late() {
    let etcd = Etcd::start();
    let way = Way::to(&etcd);
    let dead = format!("http://127.0.0.1:{}", free_port());
    let folder = Folder::new();
    let configured = |folder: &Folder, kind: &str| {
        let endpoints = [dead.clone(), way.endpoint()].join("\", \"");
        let path = configure(folder, &endpoints, IMPATIENT, "");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("kind = \"etcd\"", &format!("kind = \"{kind}\""))).unwrap();
    };
    configured(&folder, "sqlite");
    let gateway = Daemon::start_in(folder);
    give(&gateway, 3000);
    let folder = gateway.stop();
    // What is written is answered in few bytes.
    way.go_silent_after(150_000, false);
    let there = migrate(&folder, "etcd");
    assert!(there.status.success(), "{}", said(&there));
    assert!(way.was_silent(), "the list was shorter");
    let other = Folder::new();
    configured(&other, "sqlite");
    way.go_silent_after(150_000, false);
    let back = migrate(&other, "sqlite");
    assert!(back.status.success(), "{}", said(&back));
    assert!(way.was_silent(), "the list was shorter");
    assert_eq!(digest(&there), digest(&back));
    // Where nobody answers that is said, after some tries.
    let nowhere = Folder::new();
    configure(&nowhere, &dead, IMPATIENT, "");
    let failed = migrate(&nowhere, "sqlite");
    assert!(
        !failed.status.success() && said(&failed).contains("etcd: "),
        "{}",
        said(&failed)
    );
}

/// Who cannot list what was compacted meanwhile knows that it does not know all, and says so.
#[test]
fn a_gateway_that_stays_behind_says_so_and_takes_no_change() {
    let mut etcd = Etcd::start();
    let way = Way::to(&etcd);
    let folder = Folder::new();
    configure(&folder, &way.endpoint(), "request-ms = 500\nsilence-ms = 3000", "");
    let mut gateway = Daemon::start_in(folder);
    give(&gateway, 800);
    let put = |version| put_neighbor(["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"], Some(version));
    gateway.ok(&put("1"));
    gateway.signal("STOP");
    // What waits in its connections is lost with these, and what comes then is not told.
    etcd.kill();
    etcd.start_again(Command::new("setpriv"));
    for number in 0..3 {
        etcd.ctl(&["put", "/ringside/gateway/v1/other", &number.to_string()]);
    }
    etcd.compact();
    // The smallest page is longer.
    way.go_silent_after(10_000, true);
    gateway.signal("CONT");
    let health = |gateway: &Daemon| String::from_utf8_lossy(&gateway.ctl(&["health"]).stdout).into_owned();
    let behind = "has to be listed anew";
    gateway.wait("its complaint", |gateway| health(gateway).contains(behind));
    let began = Instant::now();
    let refused = gateway.fails(&put("2"));
    assert!(
        refused.contains("nothing can be changed") || refused.contains("etcd"),
        "{refused}"
    );
    assert!(began.elapsed() < Duration::from_secs(5), "it was waited for: {refused}");
    assert!(gateway.ok(&["get", "neighbor", "42", "10.0.0.7"]).contains("192.0.2.1"));
    way.go_silent_after(usize::MAX, false);
    gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
    gateway.ok(&put("2"));
}
