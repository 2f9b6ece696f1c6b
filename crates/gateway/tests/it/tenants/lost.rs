//! What the kernel drops after the fast path has sent it on: all that was sent has come, or is counted.

use std::net::UdpSocket;

use ringside_netlab::wait_until;

use crate::bed::{Bed, Family, Kind, Place};
use crate::peers::{answered, uninterrupted};
use crate::process::PATIENCE;
use crate::ringside::Ringside;
use crate::tenants::on;
use crate::tenants::scraped::{Metrics, OFFERED};
use crate::tenants::streams::xdp_losses;

const PINNED: Kind = Kind::Ringside(Ringside {
    pinned: true,
    more: OFFERED,
    ..Ringside::FAST
});

on! {
    pinned = super::PINNED => what_the_kernel_drops_in_the_end_has_a_reason;
}

const REASON: &str = "transmit-lost";

/// The switch takes nothing of what is sent back to it: by one who looks after it no longer, as when its program is gone. Also while the
/// daemon is away.
fn what_the_kernel_drops_in_the_end_has_a_reason(kind: Kind) {
    const TIMES: u64 = 2000;
    let mut bed = Bed::new("lost", kind, &[Place::vxlan(Family::V4); 2]);
    let (from, to) = (bed.at(1).card.v4, bed.at(2).card.v4);
    answered(bed.at(1), to.into());
    let bind = |bed: &Bed, host: usize, address| bed.at(host).ns.run(|| UdpSocket::bind(address)).expect("a socket");
    let receiver = bind(&bed, 2, (to, 9));
    let sender = bind(&bed, 1, (from, 0));
    let say = |times: u64| (0..times).for_each(|_| _ = sender.send_to(b"?", (to, 9)).expect("sent"));
    // As soon as it is in the cache, and nothing waits any more.
    receiver.set_read_timeout(Some(PATIENCE)).expect("time-out");
    let goes_fast = |bed: &mut Bed| {
        let before = bed.ringside().forwarded("fast");
        say(1);
        uninterrupted(|| receiver.recv(&mut [0; 2])).expect("it comes");
        bed.ringside().forwarded("fast") > before
    };
    assert!(wait_until(PATIENCE, || goes_fast(&mut bed)));
    assert_eq!(bed.ringside().dropped(REASON), 0);

    bed.sleep();
    let before = bed.ringside().forwarded("fast");
    say(TIMES);
    bed.ringside().wait_until(|gateway| gateway.dropped(REASON) >= TIMES);
    // The verdict was another one.
    let forwarded = bed.ringside().forwarded("fast");
    assert!(forwarded - before >= TIMES, "{forwarded} after {before}");
    let is_same = |bed: &mut Bed| bed.ringside().dropped(REASON) == xdp_losses(&bed.uplinks[0].a);
    assert!(
        wait_until(PATIENCE, || is_same(&mut bed)),
        "{}",
        bed.ringside().statistics()
    );
    let told = Metrics::of(&bed.uplinks[0].a.ns);
    assert!(
        told.get("dropped_packets_total{path=\"fast\",reason=\"transmit-lost\"}") >= 2000.0,
        "{told:?}"
    );
    let adds_up = || Metrics::of(&bed.uplinks[0].a.ns).adds_up("fast");
    assert!(wait_until(PATIENCE, adds_up), "{told:?}");

    let lost = bed.ringside().dropped(REASON);
    let folder = bed.ringside().end(false);
    say(TIMES);
    bed.ringside().start_in(folder);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped(REASON) >= lost + TIMES);
    let log = bed.ringside().daemon().log();
    assert!(log.contains("adopted=true"), "{log}");
    say(TIMES);
    bed.ringside()
        .wait_until(|gateway| gateway.dropped(REASON) >= lost + 2 * TIMES);
    assert!(
        wait_until(PATIENCE, || is_same(&mut bed)),
        "{}",
        bed.ringside().statistics()
    );
    receiver.set_nonblocking(true).expect("set");
    assert!(receiver.recv(&mut [0; 2]).is_err(), "none has come");
}
