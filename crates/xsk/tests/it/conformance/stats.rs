//! What the kernel counts when something is in the way: exactly, not about.

use std::time::{Duration, Instant};

use ringside_netlab::{End, VethConfig, wait_until};
use ringside_xsk::{Direction, KernelStats, Path, Queue, QueueOptions};

use crate::common::PATIENCE;
use crate::common::conformance::{lacks, passed, row_on, usual};
use crate::common::traffic::{expect, expect_nothing, expect_some, only, packets, send};

/// Bytes that the headroom leaves for a packet, and the MTU that fits them with Ethernet header and two tags. Not below
/// 1280: the kernel would forget that IPv6 is off.
const ROOM: u32 = SMALL + 22;
const SMALL: u32 = 1300;

/// Packets that do not fit behind the headroom. A port that would lose packets like that is refused, so the MTU grows only
/// once it is open.
#[test]
fn stat_rx_dropped() {
    let small = VethConfig {
        mtu: SMALL,
        ..usual("rxdropped")
    };
    row_on("STAT_RX_DROPPED", small, |lab, case| {
        if case.path == Path::ZeroCopy {
            return lacks(
                "with zero-copy the driver has a least room of a frame's, and counts by itself what is too long",
            );
        }
        let set_mtu = |end: &End, mtu| end.run(|| end.interface.set_mtu(mtu)).expect("settable");
        set_mtu(&lab.b, SMALL);
        let options = QueueOptions::new().frame_size(4096).frames(512);
        let mut port = case.port(&lab.b, options.clone().headroom(4096 - 256 - ROOM), |port| port);
        set_mtu(&lab.a, 1500);
        set_mtu(&lab.b, 1500);
        let (mut tx, rx) = (case.sender(&lab.a, options), only(&mut port));
        for first in (0..2048).step_by(64) {
            let mut burst = packets(first..first + 64, 64, &lab.a, &lab.b);
            for long in burst.iter_mut().skip(1).step_by(2) {
                long.resize(ROOM as usize + 64, 0);
            }
            send(&mut tx, &burst);
            let fit: Vec<_> = burst.into_iter().step_by(2).collect();
            expect(rx, case.wait(), &fit);
        }
        let counted = settled(rx, |stats| stats.rx_dropped == 1024);
        assert_eq!(
            (counted.rx_dropped, counted.rx_ring_full, counted.rx_fill_ring_empty),
            (1024, 0, 0)
        );
        expect_nothing(rx);
        passed()
    });
}

#[test]
fn stat_rx_full() {
    row_on("STAT_RX_FULL", usual("rxfull"), |lab, case| {
        let options = QueueOptions::new()
            .direction(Direction::Receive)
            .frames(512)
            .rx_ring(64);
        let mut port = case.port(&lab.b, options, |port| port);
        let (mut tx, rx) = (case.sender(&lab.a, QueueOptions::new()), only(&mut port));
        let all = packets(0..160, 64, &lab.a, &lab.b);
        send(&mut tx, &all);
        // Nobody has looked at the ring: its 64 places are taken, and 96 packets found none.
        let counted = settled(rx, |stats| stats.rx_ring_full == 96);
        assert_eq!(
            (counted.rx_ring_full, counted.rx_fill_ring_empty),
            (96, 0),
            "{counted:?}"
        );
        expect(rx, case.wait(), &all[..64]);
        // And it goes on when it is looked at.
        send(&mut tx, &all[64..128]);
        expect(rx, case.wait(), &all[64..128]);
        assert_eq!(rx.stats().expect("readable").kernel.rx_ring_full, 96);
    });
}

#[test]
fn stat_fill_empty() {
    row_on("STAT_FILL_EMPTY", usual("fillempty"), |lab, case| {
        let options = QueueOptions::new()
            .direction(Direction::Receive)
            .frames(64)
            .rx_ring(512);
        let mut port = case.port(&lab.b, options, |port| port);
        let (mut tx, rx) = (case.sender(&lab.a, QueueOptions::new()), only(&mut port));
        let all = packets(0..160, 64, &lab.a, &lab.b);
        send(&mut tx, &all);
        if case.path == Path::ZeroCopy {
            // There is a count each time that the driver looks for a frame in vain.
            assert!(
                wait_until(PATIENCE, || rx.ledger().expect("sound").rx == 64),
                "{:?}",
                rx.ledger()
            );
            let counted = settled(rx, |stats| stats.rx_fill_ring_empty > 0);
            assert!(
                counted.rx_fill_ring_empty > 0 && counted.rx_ring_full == 0,
                "{counted:?}"
            );
            assert!(expect_some(rx, &all) >= 64);
        } else {
            let counted = settled(rx, |stats| stats.rx_fill_ring_empty == 96);
            assert_eq!(
                (counted.rx_fill_ring_empty, counted.rx_ring_full),
                (96, 0),
                "{counted:?}"
            );
            expect(rx, case.wait(), &all[..64]);
        }
        // The frames that are free again go to the fill ring with the next look.
        expect_nothing(rx);
        send(&mut tx, &all[64..128]);
        expect(rx, case.wait(), &all[64..128]);
        assert!(case.path == Path::ZeroCopy || rx.stats().expect("readable").kernel.rx_fill_ring_empty == 96);
    });
}

/// The kernel's counters once they are as `expected`, or what they are after a while: packets may still be under way.
fn settled(rx: &Queue, expected: impl Fn(&KernelStats) -> bool) -> KernelStats {
    let start = Instant::now();
    loop {
        let counted = rx.stats().expect("readable").kernel;
        if expected(&counted) || start.elapsed() > PATIENCE {
            return counted;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
