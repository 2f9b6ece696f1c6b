//! The daemon goes and comes back, and no connection is lost.

use std::time::Duration;

use crate::bed::{Bed, Family, Kind, Place};
use crate::later;
use crate::peers::{chat, connect, exchange};

later! {
    native = crate::NATIVE => a_daemon_that_ends_is_not_missed, a_daemon_that_is_killed_is_not_missed;
    slow = crate::SLOW => a_daemon_that_is_killed_is_not_missed;
}

fn a_daemon_that_ends_is_not_missed(kind: Kind) {
    restart("ends", kind, true);
}

fn a_daemon_that_is_killed_is_not_missed(kind: Kind) {
    restart("killed", kind, false);
}

fn restart(tag: &str, kind: Kind, kindly: bool) {
    let mut bed = Bed::new(tag, kind, &[Place::vxlan(Family::V4); 2]);
    let [busy, idle] = [7000, 7001].map(|port| connect(bed.at(1), (bed.at(2), bed.at(2).address(Family::V4)), port));
    chat(&idle).expect("goes");
    std::thread::scope(|scope| {
        // Longer than it takes to end and to come back.
        let traffic = scope.spawn(|| exchange(&busy, 256 << 20));
        std::thread::sleep(Duration::from_millis(200));
        let folder = bed.ringside().end(kindly);
        std::thread::sleep(Duration::from_secs(1));
        bed.ringside().start_in(folder);
        traffic.join().expect("every byte");
    });
    chat(&idle).expect("goes on");
    bed.ringside().daemon().ok(&["health"]);
}
