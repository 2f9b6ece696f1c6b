//! The daemon goes and comes back, and no connection is lost.

use std::time::{Duration, Instant};

use crate::bed::{Bed, Family, Kind, Place};
use crate::on;
use crate::peers::{answered, chat, connect, exchange_during};
use crate::ringside::Ringside;

on! {
    fast = crate::FAST => a_daemon_that_ends_is_not_missed, a_daemon_that_is_killed_is_not_missed;
    slow = crate::SLOW => a_daemon_that_is_killed_is_not_missed;
}

/// How long there is no daemon.
const DOWN: Duration = Duration::from_secs(1);

fn a_daemon_that_ends_is_not_missed(kind: Kind) {
    restart("ends", kind, true);
}

fn a_daemon_that_is_killed_is_not_missed(kind: Kind) {
    restart("killed", kind, false);
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
