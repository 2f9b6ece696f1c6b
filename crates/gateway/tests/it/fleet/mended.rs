//! Keys of etcd that somebody has damaged past all gateways: what health advises works.

use super::Etcd;
use super::basics::sees;
use super::common::daemon::Daemon;
use super::common::etcd::gateway;
use super::members::{member, shares};
use ringside_gateway::fleet::shards::{Record, record};

fn apply(gateway: &Daemon, text: &str) {
    let file = gateway.folder.join("objects.yaml");
    std::fs::write(&file, text).unwrap();
    gateway.ok(&["apply", "-f", file.to_str().unwrap()]);
}

fn answers(gateway: &Daemon) -> [String; 3] {
    ["neighbors", "ports", "groups"].map(|kind| gateway.ok(&["list", kind, "--json"]))
}

/// Whether a gateway has all that was there before. Addresses whose port may be lost are closed
/// meanwhile.
fn has(gateway: &Daemon, before: &[String; 3]) -> bool {
    let now = answers(gateway).concat();
    before.iter().flat_map(|all| all.lines()).all(|line| now.contains(line))
}

/// One object of each key is put: with it comes back what else that gateway knows of the key.
#[test]
fn an_object_that_is_put_mends_its_damaged_key() {
    let etcd = Etcd::start();
    let (mut one, mut two) = (gateway(&etcd), gateway(&etcd));
    let rule = "{id: 1, direction: ingress, protocol: tcp, ports: 80}";
    let mut text = format!("groups:\n  - {{id: 1, rules: [{rule}]}}\nneighbors:\n");
    let place = "mac: \"02:00:00:00:00:07\", host: {ip: 192.0.2.1}";
    for number in [1, 2, 3] {
        text += &format!("  - {{vni: 42, ip: 10.0.0.{number}, {place}}}\n");
    }
    text += "ports:\n";
    for number in [1, 2, 3] {
        text += &format!("  - {{vni: 42, ip: 10.0.0.{number}, groups: [1]}}\n");
    }
    apply(&one, &text);
    one.ok(&["delete", "neighbor", "42", "10.0.0.3", "--version", "7"]);
    two.wait("what the other was told", |two| answers(two) == answers(&one));
    for (key, objects, put) in [
        (
            "neighbors/00002a/0a00000",
            "neighbours of network 42, 10.0.0.0 to 10.0.0.15",
            "neighbor",
        ),
        (
            "ports/00002a/0a00000",
            "ports of network 42, 10.0.0.0 to 10.0.0.15",
            "port",
        ),
        ("groups/00000001", "security group 1", "group"),
    ] {
        let name = format!("/ringside/gateway/v1/{key}");
        let before = answers(&one);
        etcd.ctl(&["put", &name, "damaged"]);
        for gateway in [&mut one, &mut two] {
            gateway.wait("its complaint", |gateway| {
                gateway.health().contains(&format!("v1/{key}: {objects}"))
            });
            assert!(has(gateway, &before), "what was known holds: {:?}", answers(gateway));
        }
        let advice = two.health();
        assert!(
            advice.contains("gateway put") && !advice.contains("delete these keys"),
            "{advice}"
        );
        match put {
            "neighbor" => {
                _ = two.ok(&[
                    "put",
                    "neighbor",
                    "42",
                    "10.0.0.1",
                    "--mac",
                    "02:00:00:00:00:07",
                    "--host",
                    "192.0.2.9",
                ])
            }
            "port" => _ = two.ok(&["put", "port", "42", "10.0.0.1", "--groups", "1,2"]),
            // It differs in nothing: `apply` has nothing to say.
            _ => {
                let said = two.ok(&["repaired"]);
                assert!(said.contains("that are written again: 1"), "{said}");
            }
        }
        for gateway in [&mut one, &mut two] {
            gateway.wait("health", |gateway| gateway.ctl(&["health"]).status.success());
        }
        // One that has nothing but what etcd has.
        let mut three = gateway(&etcd);
        three.wait("all of it", |three| answers(three) == answers(&two));
        one.wait("all of it", |one| answers(one) == answers(&two));
    }
    sees(&mut one, &["get", "neighbor", "42", "10.0.0.1"], "192.0.2.9");
    sees(&mut one, &["get", "neighbor", "42", "10.0.0.2"], "192.0.2.1");
    sees(&mut one, &["list", "ports", "--json"], "\"10.0.0.1\",\"groups\":[1,2]");
    let older = one.refuses(&[
        "put",
        "neighbor",
        "42",
        "10.0.0.3",
        "--mac",
        "02:00:00:00:00:07",
        "--host",
        "192.0.2.1",
        "--version",
        "7",
    ]);
    assert!(
        older.contains("something newer"),
        "what was deleted is remembered: {older}"
    );
}

/// The fleet's time: a gateway that knows it writes it again; where none does, somebody has to
/// remove the key.
#[test]
fn a_damaged_clock_is_written_again_or_named() {
    let etcd = Etcd::start();
    let mut one = gateway(&etcd);
    let clock = "/ringside/gateway/v1/clock";
    let time = || etcd.ctl(&["get", clock, "--print-value-only"]).trim().parse::<i64>();
    apply(
        &one,
        "neighbors:\n  - {vni: 42, ip: 10.0.0.1, mac: \"02:00:00:00:00:07\", host: {ip: \
         192.0.2.1}}\n",
    );
    one.ok(&["delete", "neighbor", "42", "10.0.0.1"]);
    let before = time().unwrap();
    etcd.ctl(&["put", clock, "damaged"]);
    one.wait("the time", |_| time().is_ok());
    assert!(
        (before..before + 120).contains(&time().unwrap()),
        "{before}: {:?}",
        time()
    );
    // One that has just started does not know it.
    let folder = one.stop();
    etcd.ctl(&["put", clock, "damaged"]);
    let mut one = Daemon::start_in(folder);
    one.wait("its complaint", |one| one.health().contains("the key v1/clock in etcd"));
    assert!(one.log().contains("the key v1/clock in etcd"), "{}", one.log());
    apply(
        &one,
        "neighbors:\n  - {vni: 42, ip: 10.0.0.2, mac: \"02:00:00:00:00:07\", host: {ip: \
         192.0.2.1}}\n",
    );
    let said = one.fails(&["delete", "neighbor", "42", "10.0.0.2"]);
    assert!(said.contains(&format!("(etcdctl del {clock})")), "{said}");
    etcd.ctl(&["del", clock]);
    one.ok(&["delete", "neighbor", "42", "10.0.0.2"]);
    one.wait("health", |one| one.ctl(&["health"]).status.success());
}

#[test]
fn a_damaged_value_is_known_after_a_restart() {
    let etcd = Etcd::start();
    let mut one = gateway(&etcd);
    apply(
        &one,
        "groups:\n  - {id: 1, rules: [{id: 1, direction: ingress, protocol: tcp, ports: 80}]}\n",
    );
    etcd.ctl(&["put", "/ringside/gateway/v1/groups/00000001", "damaged"]);
    let complaint = "v1/groups/00000001: security group 1";
    one.wait("its complaint", |one| one.health().contains(complaint));
    let mut one = Daemon::start_in(one.stop());
    one.wait("its complaint", |one| one.health().contains(complaint));
    one.ok(&["repaired"]);
    one.wait("health", |one| one.ctl(&["health"]).status.success());
    // Another start finds nothing.
    let one = Daemon::start_in(one.stop());
    one.ok(&["health"]);
}

/// What somebody puts into a member's key takes its lease away, too.
#[test]
fn a_member_whose_key_is_damaged_writes_it_again_or_loses_its_shards() {
    let etcd = Etcd::start();
    let (mut one, two) = (member(&etcd, "one", 100, ""), member(&etcd, "two", 100, ""));
    one.wait("a share for each", |one| {
        let shares = shares(one);
        shares.len() == 2 && shares.iter().all(|(_, shards)| *shards > 300)
    });
    let before = shares(&one);
    let key = format!("/ringside/gateway/v1/gateways/{:016x}", record::id("two").0);
    let value = || etcd.ctl(&["get", &key, "--print-value-only"]).trim_end().to_owned();
    etcd.ctl(&["put", &key, "damaged"]);
    one.wait("its key", |_| Record::decode(value().as_bytes()).is_ok());
    one.wait("the shares", |one| shares(one) == before);
    for gateway in [&one, &two] {
        gateway.ok(&["health"]);
    }
    // It is gone, and its key says that it lives; or nothing at all.
    let mut two = Some(two);
    for value in [value(), "damaged".to_owned()] {
        let folder = two.take().unwrap().kill();
        etcd.ctl(&["put", &key, &value]);
        one.wait("all shards", |one| shares(one).contains(&("one".to_owned(), 1024)));
        one.ok(&["health"]);
        two = Some(Daemon::start_in(folder));
        one.wait("the shares", |one| shares(one) == before);
    }
}
