use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn stamps(xdp_ns: u64, dequeued_ns: u64) -> Stamps {
    Stamps {
        xdp_ns,
        xdp_cpu: 3,
        dequeued_ns,
        dequeued_cpu: 3,
    }
}

#[test]
fn there_are_twelve_different_cells() {
    let cells: Vec<Cell> = Cell::all().collect();
    assert_eq!(cells.len(), 12);
    assert_eq!(cells.iter().collect::<HashSet<_>>().len(), 12);
    let first = Cell {
        wait: Wait::Spin,
        core: Core::Same,
        c_states: CStates::AsIs,
    };
    assert_eq!(cells[0], first);
}

#[test]
fn a_sample_is_where_it_was_and_not_where_it_was_meant_to_be() {
    let there = Stamps {
        dequeued_cpu: 2,
        ..stamps(10, 20)
    };
    for (core, here, elsewhere) in [
        (Core::Same, stamps(10, 20), there),
        (Core::Other, there, stamps(10, 20)),
    ] {
        let mut delays = Delays::new(core, 0);
        assert_eq!(delays.record(here), Verdict::Sample);
        assert_eq!(delays.record(elsewhere), Verdict::Elsewhere);
        assert_eq!((delays.latency().samples(), delays.left_out().elsewhere), (1, 1));
    }
}

#[test]
fn what_ends_before_it_began_is_counted_and_never_hidden() {
    let mut delays = Delays::new(Core::Same, 2);
    assert_eq!(delays.record(stamps(10, 9)), Verdict::Impossible);
    assert_eq!(delays.record(stamps(10, 10)), Verdict::WarmUp);
    assert_eq!(delays.record(stamps(10, 9)), Verdict::Impossible);
    assert_eq!(delays.record(stamps(10, 10)), Verdict::WarmUp);
    assert_eq!(
        delays.record(stamps(10, 10)),
        Verdict::Sample,
        "no time at all is a time"
    );
    assert_eq!(delays.record(stamps(u64::MAX, 0)), Verdict::Impossible);
    delays.without_hints();
    let left_out = LeftOut {
        warm_up: 2,
        elsewhere: 0,
        impossible: 3,
        without_hints: 1,
    };
    assert_eq!((delays.left_out(), delays.packets()), (left_out, 7));
    assert_eq!(delays.latency().summary().unwrap().max_ns, 0);
}

proptest! {
    #[test]
    fn every_packet_is_counted_once(
        packets in proptest::collection::vec((0_u64..100, 0_u64..100, 0_u32..3, 0_u32..3), 0..200),
        warm_up in 0_u64..50,
        cut in 0_usize..200,
    ) {
        let (first, second) = packets.split_at(cut.min(packets.len()));
        let of = |packets: &[(u64, u64, u32, u32)]| {
            let mut delays = Delays::new(Core::Other, warm_up);
            for &(xdp_ns, dequeued_ns, xdp_cpu, dequeued_cpu) in packets {
                delays.record(Stamps { xdp_ns, xdp_cpu, dequeued_ns, dequeued_cpu });
            }
            delays
        };
        let mut both = of(first);
        both.merge(&of(second));
        prop_assert_eq!(both.packets(), packets.len() as u64);
        let impossible = packets.iter().filter(|(xdp, dequeued, ..)| dequeued < xdp).count();
        prop_assert_eq!(both.left_out().impossible, impossible as u64);
        let histogram: u64 = both.latency().buckets().map(|bucket| bucket.samples).sum();
        prop_assert_eq!(histogram, both.latency().samples());
    }
}
