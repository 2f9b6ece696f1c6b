//! The daemon goes and comes back, and no connection is lost.

use std::time::{Duration, Instant};

use crate::bed::{Bed, Family, Kind, Place};
use crate::on;
use crate::peers::{answered, chat, connect, exchange_during, is_cut_off};
use crate::ringside::Ringside;

on! {
    fast = crate::FAST => a_daemon_that_ends_is_not_missed, a_daemon_that_is_killed_is_not_missed,
        connections_under_rules_are_kept;
    two_ports = crate::TWO_PORTS => a_daemon_that_is_killed_is_not_missed;
    slow = crate::SLOW => a_daemon_that_is_killed_is_not_missed;
}

/// How long there is no daemon.
const DOWN: Duration = Duration::from_secs(1);

fn a_daemon_that_ends_is_not_missed(kind: Kind) {
    restart("ends", kind, true);
}

pub(crate) fn a_daemon_that_is_killed_is_not_missed(kind: Kind) {
    restart("killed", kind, false);
}

/// Rules allow them in one direction only: what is known of a connection has to be known to the next daemon.
pub(crate) fn connections_under_rules_are_kept(kind: Kind) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new("kept", kind, &[Place::vxlan(Family::V4); 2]);
    let tcp = "{id: 1, direction: ingress, protocol: tcp, ports: 7000-7001}";
    let groups =
        format!("groups:\n  - {{id: 1, rules: [{tcp}]}}\n  - {{id: 2, rules: [{{id: 1, direction: egress}}]}}\n");
    let ports = "ports:\n  - {vni: 42, ip: 10.0.0.1, groups: [2]}\n  - {vni: 42, ip: 10.0.0.2, groups: [1]}\n";
    bed.ringside().apply(&(groups + ports));
    let to = bed.at(2).address(Family::V4);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), to), port));
    for _ in 0..20 {
        chat(&idle).expect("goes");
    }
    exchange_during(&busy, || {
        let folder = bed.ringside().end(false);
        std::thread::sleep(DOWN);
        bed.ringside().start_in(folder);
    });
    chat(&idle).expect("goes on");
    // The rules are kept, too.
    assert!(is_cut_off(bed.at(1), (bed.at(2), to), 7002));
}

fn restart(tag: &str, kind: Kind, kindly: bool) {
    let Kind::Ringside(how) = kind else {
        panic!("for the daemon")
    };
    let kind = Kind::Ringside(Ringside { pinned: true, ..how });
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(Family::V4); 2]);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), port));
    chat(&idle).expect("goes");
    exchange_during(&busy, || {
        let folder = bed.ringside().end(kindly);
        let begin = Instant::now();
        if how.cache.is_none() {
            // Nobody but the fast path is there, and that is enough for all that it knows: no time is lost.
            for _ in 0..100 {
                chat(&idle).expect("goes on without the daemon");
            }
            // A question is answered, too.
            let (asker, asked) = (bed.at(2), bed.at(1).address(Family::V6));
            answered(asker, asked);
        }
        std::thread::sleep(DOWN.saturating_sub(begin.elapsed()));
        bed.ringside().start_in(folder);
    });
    chat(&idle).expect("goes on");
    bed.ringside().daemon().ok(&["health"]);
}
