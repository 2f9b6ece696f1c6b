//! Gateways that take part in a fleet, without packets: what operators are told.

use std::time::Duration;

use super::Etcd;
use super::common::Folder;
use super::common::daemon::{Daemon, free_port};
use super::common::etcd::{configure, gateway};
use super::common::metrics::scrape;

pub(crate) fn member(etcd: &Etcd, name: &str, weight: u32, more: &str) -> Daemon {
    member_at(etcd, name, "[\"192.0.2.1\"]", &format!("weight = {weight}\n{more}"))
}

/// Starts a member that hosts reach at these addresses.
///
/// The lease is five seconds unless `more` sets it: longer than a busy machine stalls. The member
/// considers etcd reachable for the same time.
pub(crate) fn member_at(etcd: &Etcd, name: &str, addresses: &str, more: &str) -> Daemon {
    let folder = Folder::new();
    let set = more.lines().find_map(|line| line.strip_prefix("lease-seconds = "));
    let (lease, seconds) = match set {
        Some(seconds) => ("", seconds.parse().unwrap()),
        None => ("lease-seconds = 5\n", 5),
    };
    let fleet = format!("[fleet]\nname = \"{name}\"\naddresses = {addresses}\n{lease}{more}");
    let times = format!("request-ms = 30000\nsilence-ms = {}", 1000 * seconds.min(30));
    configure(&folder, &etcd.endpoint(), &times, &fleet);
    Daemon::start_in(folder)
}

/// Shards of each member, as a gateway knows them.
pub(crate) fn shares(gateway: &Daemon) -> Vec<(String, u64)> {
    let fleet = gateway.ctl(&["fleet", "--json"]).stdout;
    let fleet: serde_json::Value = serde_json::from_slice(&fleet).unwrap_or_default();
    let members = fleet["members"].as_array().cloned().unwrap_or_default();
    let share = |member: &serde_json::Value| {
        let name = member["name"].as_str().unwrap().to_owned();
        (name, member["shards"].as_u64().unwrap())
    };
    let mut shares: Vec<_> = members.iter().map(share).collect();
    shares.sort();
    shares
}

#[test]
fn members_share_by_weight_and_who_ends_gives_up_at_once() {
    let etcd = Etcd::start();
    let port = free_port();
    // Longer than a busy machine stands still.
    let lease = "lease-seconds = 5";
    let metrics = format!("{lease}\n[metrics]\nlisten = \"127.0.0.1:{port}\"");
    let mut one = member(&etcd, "one", 100, &metrics);
    one.wait("all shards", |one| shares(one) == [("one".to_owned(), 1024)]);
    let two = member(&etcd, "two", 300, lease);
    one.wait("a share for each", |one| {
        let shares = shares(one);
        shares.len() == 2 && (180..330).contains(&shares[0].1) && shares[0].1 + shares[1].1 == 1024
    });
    let text = one.ok(&["fleet"]);
    for part in [
        "one *",
        "two",
        "synced",
        "192.0.2.1",
        "lease left",
        "this gateway (*): member",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let text = one.ok(&["fleet", "--vni", "42"]);
    assert!(
        text.starts_with("network 42: shard ") && text.contains(" at 192.0.2.1"),
        "{text}"
    );
    let shown = scrape(port);
    let owned = shares(&one)[0].1;
    for line in [
        "ringside_gateway_fleet_members 2".to_owned(),
        format!("ringside_gateway_fleet_shards_owned {owned}"),
        "ringside_gateway_fleet_membership{state=\"member\"} 1".to_owned(),
        format!(
            "ringside_gateway_fleet_shard_moves_total{{what=\"given\"}} {}",
            1024 - owned
        ),
        "ringside_gateway_fleet_lease_lapses_total 0".to_owned(),
    ] {
        assert!(shown.contains(&line), "no {line:?} in {shown}");
    }
    // It gives its lease up, which a lease that runs out takes five seconds and more for.
    let log = {
        let folder = two.stop();
        std::fs::read_to_string(folder.join("log")).unwrap()
    };
    assert!(log.contains("the lease in the fleet is given up"), "{log}");
    one.wait("all shards again", |one| shares(one) == [("one".to_owned(), 1024)]);
    // Somebody else under its name.
    let mut other = member(&etcd, "one", 100, lease);
    other.wait("its place", |other| shares(other) == [("one".to_owned(), 1024)]);
    one.wait("the end of its part", |one| {
        let health = one.ctl(&["health"]).stdout;
        String::from_utf8_lossy(&health).contains("another gateway was started under the name \"one\"")
    });
    // Longer than the lease.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(shares(&other), [("one".to_owned(), 1024)], "it keeps it");
}

#[test]
fn who_takes_no_part_says_so() {
    let etcd = Etcd::start();
    let alone = gateway(&etcd);
    let said = alone.fails(&["fleet"]);
    assert!(said.contains("takes part in no fleet"), "{said}");
    assert!(alone.ok(&["drain"]).contains("draining, until"));
}
