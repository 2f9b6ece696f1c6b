use std::collections::BTreeMap;

use ringside_nic::{Channels, Driver, FlowKind, HashFunction, HashedFields, IrqUse, Rings, Rss};

use super::super::super::facts::{FlowQueue, IrqMap};
use super::super::testing::{Check, host, nic};
use super::*;

fn check(change: impl FnOnce(&mut Nic)) -> Check {
    let mut nic = nic();
    change(&mut nic);
    Check::of(|findings| judge(&nic, &host(), findings))
}

#[test]
fn a_nic_for_it_is_fine() {
    check(|_| {}).is_fine();
}

#[test]
fn more_queues_than_cpus_are_told() {
    let channels = |combined, rx| {
        check(move |nic| {
            let mut channels = Channels::default();
            (channels.combined, channels.rx, channels.max_combined) = (combined, rx, 64);
            (nic.state.channels, nic.rx_queues) = (Some(channels), combined + rx);
        })
    };
    channels(4, 0).is_fine();
    let combined = channels(5, 0).only("interface.channels", "note");
    assert_eq!(combined.mend.as_deref(), Some("ethtool -L eth0 combined 4"));
    let separate = channels(0, 5).only("interface.channels", "note");
    assert_eq!(separate.mend.as_deref(), Some("ethtool -L eth0 rx 4"));
    check(|nic| nic.state.channels = None).is_fine();
}

/// ENA has native XDP on up to half of its channels.
#[test]
fn the_channels_of_ena_have_to_be_halved() {
    let ena = |combined| {
        check(move |nic| {
            let mut driver = Driver::default();
            driver.name = "ena".into();
            nic.driver = Some(driver);
            nic.state.channels.as_mut().unwrap().combined = combined;
        })
    };
    ena(4).is_fine();
    let finding = ena(5).only("interface.channels", "warning");
    assert_eq!(finding.mend.as_deref(), Some("ethtool -L eth0 combined 4"));
}

#[test]
fn a_short_ring_is_told_unless_it_cannot_be_longer() {
    let ring = |rx, max_rx| {
        check(move |nic| {
            let mut rings = Rings::default();
            (rings.rx, rings.max_rx) = (rx, max_rx);
            nic.state.rings = Some(rings);
        })
    };
    ring(512, 4096).is_fine();
    ring(256, 256).is_fine();
    let finding = ring(256, 4096).only("interface.rings", "note");
    assert_eq!(finding.mend.as_deref(), Some("ethtool -G eth0 rx 512"));
}

#[test]
fn interrupts_on_one_cpu_are_told() {
    let on = |cpus: &[(Vec<u32>, Vec<u32>)]| {
        let cpus = cpus.to_vec();
        check(move |nic| {
            nic.irqs = (40..)
                .zip(cpus)
                .map(|(number, (allowed, effective))| {
                    let mut usage = IrqUse::default();
                    (usage.allowed, usage.effective) = (allowed, effective);
                    let name = format!("eth0-{number}");
                    IrqMap {
                        number,
                        name,
                        queues: vec![format!("RX {}", number - 40)],
                        usage,
                    }
                })
                .collect();
        })
    };
    let all = vec![0, 1, 2, 3];
    let spread = on(&[(all.clone(), vec![0]), (all.clone(), vec![1])]);
    spread.is_fine();
    assert_eq!(
        spread.ok("interface.irqs"),
        "interrupts: 40 eth0-40 (RX 0) → CPU 0; 41 eth0-41 (RX 1) → CPU 1"
    );
    let one = on(&[(all.clone(), vec![1]), (all.clone(), vec![1])]).only("interface.irqs", "warning");
    assert_eq!(one.mend.as_deref(), Some("ringside tune eth0 --irq-cpus 0-3"));
    // Where the controller tells nothing, what is allowed counts.
    on(&[(vec![2], Vec::new()), (vec![2], Vec::new())]).only("interface.irqs", "warning");
    on(&[(all.clone(), Vec::new()), (all, Vec::new())]).is_fine();
}

#[test]
fn interrupts_that_are_held_back_are_told() {
    let with = |settings: &[(&'static str, &str)]| {
        let settings: BTreeMap<_, _> = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        check(move |nic| nic.coalescing = settings)
    };
    with(&[("rx-usecs", "0"), ("adaptive-rx", "off")]).is_fine();
    let adaptive = with(&[("rx-usecs", "0"), ("adaptive-rx", "on")]).only("interface.coalescing", "note");
    assert!(adaptive.mend.unwrap().ends_with("rx-usecs=0,adaptive-rx=off"));
    let fixed = with(&[("rx-usecs", "50")]).only("interface.coalescing", "note");
    assert!(fixed.mend.unwrap().ends_with("--coalesce rx-usecs=0"));
}

#[test]
fn queues_that_get_nothing_and_ports_that_do_not_count_are_told() {
    let with = |table: Vec<u32>, fields: HashedFields| {
        check(move |nic| {
            let mut rss = Rss::default();
            (rss.function, rss.table) = (Some(HashFunction::Toeplitz), table);
            rss.fields.insert(FlowKind::Udp4, fields);
            nic.rss = Some(rss);
        })
    };
    let mut both = HashedFields::default();
    (both.addresses, both.ports) = (true, true);
    let mut addresses = both;
    addresses.ports = false;
    let fine = with(vec![0, 1, 2, 3], both);
    fine.is_fine();
    assert!(fine.ok("interface.rss").contains("toeplitz, 4 entries: queues 0-3"));
    let some = with(vec![0, 1, 0, 1], both).only("interface.rss", "note");
    assert_eq!(some.mend.as_deref(), Some("ethtool -X eth0 equal 4"));
    let ports = with(vec![0, 1, 2, 3], addresses).only("interface.rss-ports", "note");
    assert_eq!(ports.mend.as_deref(), Some("ethtool -N eth0 rx-flow-hash udp4 sdfn"));
}

#[test]
fn flows_are_told_with_their_queue_or_why_not() {
    let told = |queue: Option<u32>, reason: Option<&str>| {
        let told = FlowQueue {
            flow: "udp:192.0.2.7:1-192.0.2.1:2".into(),
            asked: true,
            queue,
            reason: reason.map(str::to_owned),
        };
        check(move |nic| nic.flows = vec![told])
    };
    let known = told(Some(3), None);
    known.is_fine();
    assert!(known.ok("interface.flow").ends_with("comes to queue 3"));
    assert_eq!(told(None, Some("no key")).only("interface.flow", "note").why, "no key");
}
