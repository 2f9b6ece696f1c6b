//! Interfaces that are there, taken into a lab and given back.

use std::sync::Arc;

use ringside_netlab::{Borrowed, Error, Lab, Namespace, VethConfig, testing};

const MTU: u32 = 1400;

/// A machine with two interfaces and a cable between them, one of them up.
fn machine() -> Arc<Namespace> {
    let machine = Namespace::create("cable").unwrap();
    let made = "link add left type veth peer name right";
    for line in [made, "link set left up"] {
        ip(&machine, line);
    }
    machine
}

fn ip(ns: &Namespace, line: &str) -> String {
    let done = ns.command("ip").args(line.split(' ')).output().unwrap();
    assert!(done.status.success(), "{line}: {done:?}");
    String::from_utf8(done.stdout).unwrap()
}

fn config() -> VethConfig {
    VethConfig {
        mtu: MTU,
        ..VethConfig::named("left", "right")
    }
}

/// What the machine's interfaces are like, but for the carrier, of which the kernel learns later.
fn state(machine: &Namespace) -> Vec<String> {
    let lines = ip(machine, "-o link show type veth");
    lines
        .lines()
        .map(|line| line.split(" qdisc").next().unwrap().replace("NO-CARRIER,", ""))
        .collect()
}

#[test]
fn interfaces_come_back_as_they_were() {
    if !testing::is_root() {
        return;
    }
    let machine = machine();
    let before = state(&machine);
    assert_eq!(before.len(), 2, "{before:?}");
    let [a, b] = ["cable-a", "cable-b"].map(|tag| Namespace::create(tag).unwrap());
    let lab = machine.run(|| Lab::cable(&a, &b, config())).unwrap();
    assert!(!lab.is_veth());
    assert_eq!(state(&machine), Vec::<String>::new());
    for (end, other) in [(&lab.a, &lab.b), (&lab.b, &lab.a)] {
        assert_eq!(end.state().unwrap().mtu, MTU);
        assert_eq!(end.state().unwrap().mac, end.mac);
        // Each knows the other's own hardware address.
        assert!(ip(&end.ns, "neigh").contains("PERMANENT"));
        let ping = ["-c1", "-W5", &other.ipv4.to_string()].join(" ");
        let done = end.ns.command("ping").args(ping.split(' ')).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }
    drop(lab);
    assert_eq!(state(&machine), before);
    assert_eq!(ip(&machine, "-4 addr show dev left"), "");
}

#[test]
fn what_somebody_needs_is_not_taken() {
    if !testing::is_root() {
        return;
    }
    let machine = machine();
    let [a, b] = ["needed-a", "needed-b"].map(|tag| Namespace::create(tag).unwrap());
    let refused = || machine.run(|| Lab::cable(&a, &b, config())).unwrap_err();
    ip(&machine, "addr add 192.0.2.1/24 dev right");
    let before = state(&machine);
    let error = refused();
    assert!(
        matches!(&error, Error::Refused { why, .. } if why.contains("192.0.2.1")),
        "{error}"
    );
    // The first one, which was free, is back.
    assert_eq!(state(&machine), before);
    ip(&machine, "addr del 192.0.2.1/24 dev right");
    ip(&machine, "link add br0 type bridge");
    ip(&machine, "link set right master br0");
    let error = refused();
    assert!(error.to_string().contains("is part of 'br0'"), "{error}");
    ip(&machine, "link del br0");
    let error = machine
        .run(|| Lab::cable(&a, &b, VethConfig::named("left", "nowhere")))
        .unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert_eq!(state(&machine).len(), 2);
}

#[test]
fn one_that_cannot_go_back_is_told() {
    if !testing::is_root() {
        return;
    }
    let (machine, to) = (machine(), Namespace::create("cable-to").unwrap());
    let before = state(&machine);
    let take = || Borrowed::take(&machine, &to, "left").unwrap();
    let mut borrowed = take();
    assert_ne!(state(&machine), before);
    borrowed.give_back().unwrap();
    assert_eq!(state(&machine), before);
    let mut borrowed = take();
    // Somebody takes its name.
    ip(&machine, "link add left type bridge");
    let told = borrowed.give_back().unwrap_err().to_string();
    assert!(
        told.starts_with("cannot give back an interface for 'left'") && told.contains("File exists"),
        "{told}"
    );
}
