//! The configuration is read again under traffic.

use std::net::IpAddr;
use std::sync::atomic::AtomicBool;

use crate::bed::{Bed, Family, Kind, Place};
use crate::peers::{AtEnd, answered, ping, unanswered};
use crate::ringside::Ringside;
use crate::tenant::neighbors;
use crate::tenants::kills::{Flow, Talk};
use crate::tenants::on;
use crate::tenants::streams::counted_losses;

on! {
    fast = crate::tenants::FAST => another_configuration_loses_nothing;
    slow = crate::tenants::SLOW => another_configuration_loses_nothing,
        applies_a_reload_to_the_next_packet;
}

const TIMES: usize = 20;

/// Maps the second network's sender to the receiver's host in the gateway.
///
/// A source check then drops its packets. Returns the receiver's address.
fn move_sender(bed: &mut Bed) -> IpAddr {
    let [here, there] = [0, 1].map(|host| &bed.tenants[host][1]);
    let mut elsewhere = here.card;
    elsewhere.host = there.card.host;
    let to = there.address(Family::V4);
    answered(here, to);
    bed.ringside().apply(&neighbors(&[elsewhere]));
    to
}

/// A sleeping worker applies a reloaded configuration to the packet that wakes it.
fn applies_a_reload_to_the_next_packet(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let mut bed = Bed::new("reload-next", kind, &[Place::vxlan(Family::V4); 2]);
    let to = move_sender(&mut bed);
    let checked = Ringside {
        more: "source-check = true",
        ..how
    };
    for dropped in 1..=5 {
        for how in [checked, how] {
            bed.ringside().reload_as(how, "");
            let before = bed.ringside().sent_on();
            let one = ping(&bed.tenants[0][1], to, "-c 1 -W 0.2");
            assert!(one.out.contains("1 packets transmitted, 0 received"), "{one:#?}");
            // Before the next reload, which would apply to a packet that still waits.
            let is_sent = how.more.is_empty();
            bed.ringside().wait_until(|gateway| {
                gateway.dropped("wrong-source") >= dropped && (!is_sent || gateway.sent_on() > before)
            });
            assert_eq!(bed.ringside().dropped("wrong-source"), dropped);
        }
    }
}

fn another_configuration_loses_nothing(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let mut bed = Bed::new("reload", kind, &[Place::vxlan(Family::V4); 2]);
    let to = move_sender(&mut bed);
    unanswered(&bed.tenants[0][1], to);
    assert_eq!(bed.ringside().dropped("wrong-source"), 0);

    let flow = Flow::new(&bed.tenants[0][0], &bed.tenants[1][0], 7100);
    let (over, before) = (AtomicBool::new(false), counted_losses(&bed));
    let talk = std::thread::scope(|scope| {
        let at_end = AtEnd(&over);
        let talks = scope.spawn(|| flow.run(&over));
        let other = Ringside {
            patience: 9000,
            more: "source-check = true\nderive-source-port = true\nerrors-per-second = 7\ngeneve-options = [\"0102:80\"]\n\
                   unowned-seconds = 7",
            ..how
        };
        for time in 0..TIMES {
            let (how, connections) = match time % 2 {
                0 => (other, "timeout-seconds = { udp-replied = 30 }"),
                _ => (how, ""),
            };
            bed.ringside().reload_as(how, connections);
        }
        // As it is left, and the other way.
        unanswered(&bed.tenants[0][1], to);
        assert_eq!(bed.ringside().dropped("wrong-source"), 0);
        bed.ringside().reload_as(other, "");
        unanswered(&bed.tenants[0][1], to);
        bed.ringside().wait_until(|gateway| gateway.dropped("wrong-source") > 0);
        drop(at_end);
        talks.join().expect("no panic")
    });
    let Talk { sent, lost, .. } = &talk;
    let by_kernel = counted_losses(&bed) - before;
    assert!(
        *sent > 100 && lost.len() as u64 <= by_kernel,
        "{talk:?}, {by_kernel} by the kernel's queues"
    );
    let log = bed.ringside().daemon().log();
    assert!(!log.contains("take a restart"), "{log}");
}
