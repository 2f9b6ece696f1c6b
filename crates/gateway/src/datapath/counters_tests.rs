use ringside_gateway_core::table::HostId;

use super::*;

/// Ten packets of each kind, as a worker counts them: each is in one place.
#[test]
fn what_comes_is_counted_once() {
    let counters = WorkerCounters::default();
    let reason = DropReason::TooBig;
    let kinds = [
        Decision::Kernel,
        Decision::Answer,
        Decision::Complain(reason),
        Decision::Drop(DropReason::NoNeighbor),
        Decision::Wait(HostId(0)),
        Decision::NoAddress(HostId(0)),
    ];
    let mut tally = Tally::ZERO;
    for decision in kinds.repeat(10) {
        tally.received += 1;
        counters.refused(decision, 100);
        match decision {
            Decision::Answer => tally.answered += 1,
            Decision::Complain(_) => tally.complained += 1,
            Decision::Wait(_) => tally.waited += 1,
            _ => {}
        }
    }
    counters.add(&tally);
    let counts = counters.read();
    let dropped: u64 = counts.dropped.iter().map(|(_, count)| count).sum();
    assert_eq!(counts.received, counts.sent + counts.answered + dropped + counts.waited);
    assert_eq!(counts.dropped_bytes, dropped * 100);
    for reason in [
        DropReason::NotOurs,
        reason,
        DropReason::NoNeighbor,
        DropReason::HostUnresolved,
    ] {
        assert!(counts.dropped.contains(&(reason, 10)), "{:?}", counts.dropped);
    }
    assert_eq!(counts.complained, 10, "they are dropped all the same");
}
