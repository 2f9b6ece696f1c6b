//! The key that says whose state it is, `v1/fleet`, is removed and put back.

use std::time::Duration;

use ringside_netlab::wait_until;

use super::Etcd;
use super::basics::sees;
use super::common::Folder;
use super::common::daemon::{Daemon, put_neighbor};
use super::common::etcd::{configure, gateway, program};

const KEY: &str = "/ringside/gateway/v1/fleet";
const PATIENCE: Duration = Duration::from_secs(30);

fn answers(gateway: &Daemon) -> [String; 2] {
    ["neighbors", "ports"].map(|kind| gateway.ok(&["list", kind, "--json"]))
}

/// Also a value that is no fleet's name, and the name with a newline at its end. One gateway runs,
/// one starts with its copy, and one has none.
#[test]
fn gateways_go_on_when_the_name_of_their_fleet_is_put_back() {
    let etcd = Etcd::start();
    let (mut a, mut b) = (gateway(&etcd), gateway(&etcd));
    a.ok(&put_neighbor(
        ["42", "10.0.0.7", "02:00:00:00:00:07", "192.0.2.1"],
        None,
    ));
    a.ok(&["put", "port", "42", "10.0.0.7", "--groups", "1"]);
    let before = answers(&a);
    b.wait("what the other was told", |b| answers(b) == before);
    let copy = b.stop();
    let name = etcd.ctl(&["get", KEY, "--print-value-only"]).trim().to_owned();
    etcd.ctl(&["del", KEY]);

    let advice = format!("put it back: etcdctl put {KEY} \"{name}\"");
    a.wait("its advice", |a| a.health().contains(&advice));
    assert!(
        !a.health().contains("remove the file"),
        "nobody else has the name: {}",
        a.health()
    );
    let mut b = Daemon::start_in(copy);
    b.wait("its advice", |b| b.health().contains(&advice));
    for gateway in [&a, &b] {
        assert_eq!(answers(gateway), before);
        let refused = gateway.refuses(&["delete", "port", "42", "10.0.0.7"]);
        assert!(refused.contains("is not believed"), "{refused}");
    }
    let folder = Folder::new();
    configure(&folder, &etcd.endpoint(), "", "");
    let socket = folder.join("api.sock");
    let log = std::fs::File::create(folder.join("log")).unwrap();
    let child = program(&folder.join("")).stderr(log).spawn().unwrap();
    let mut c = Daemon { child, folder };
    c.wait("its complaint", |c| {
        c.log().contains("is gone, and other keys are there")
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(!socket.exists(), "it knows nothing for sure");
    assert_eq!(
        etcd.ctl(&["get", KEY, "--print-value-only"]),
        "",
        "it begins no other fleet"
    );

    assert!(!c.log().contains("etcd cannot be reached"), "{}", c.log());
    etcd.ctl(&["put", KEY, "gar\nbage"]);
    let found = r#"holds "gar\nbage""#;
    a.wait("the value", |a| {
        a.health().contains(found) && a.health().contains(&advice)
    });
    c.wait("the value", |c| {
        c.log().contains(r#"holds \"gar\\nbage\"; expected: "#) || c.log().contains(found)
    });
    assert!(!socket.exists(), "it belongs to no fleet");

    // As of `etcdctl put KEY` with the value from its standard input.
    etcd.ctl(&["put", KEY, &format!("{name}\n")]);
    assert!(wait_until(PATIENCE, || socket.exists()), "{}", c.log());
    for gateway in [&mut a, &mut b, &mut c] {
        gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
        assert_eq!(answers(gateway), before);
    }
    a.ok(&["put", "port", "42", "10.0.0.7", "--groups", "1,2"]);
    for gateway in [&mut b, &mut c] {
        sees(gateway, &["list", "ports", "--json"], "\"groups\":[1,2]");
    }
}
