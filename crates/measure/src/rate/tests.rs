use super::*;

#[test]
fn sizes_on_the_wire() {
    assert_eq!(wire_bits(0), 84 * 8);
    assert_eq!(wire_bits(42), 84 * 8);
    assert_eq!(wire_bits(61), 85 * 8);
    assert_eq!(wire_bits(1514), 1538 * 8);
    assert_eq!(wire_bits(u64::MAX), u64::MAX);
}

#[test]
fn full_gigabit_of_large_frames() {
    // 1 Gbit/s carries 81 274 full frames a second (10^9 / 12 304).
    let rates = Rates::new(81_274 * 2, 1514, 1472, 2_000_000_000).unwrap();
    assert_eq!(rates.packets_pps, 81_274.0);
    assert_eq!(rates.wire_bps, 81_274.0 * 12_304.0);
    assert_eq!(rates.frame_bps, 81_274.0 * 12_112.0);
    assert_eq!(rates.payload_bps, 81_274.0 * 11_776.0);
}

#[test]
fn no_time_is_no_rate() {
    assert_eq!(Rates::new(1, 60, 18, 0), None);
}

#[test]
fn a_rate_is_over_the_intervals_between_the_packets() {
    // 100 packets, one each 100 µs, within 9.9 ms: 10,000 a second.
    let span = Span {
        first_ns: 5_000_000,
        first_packets: 1,
        last_ns: 14_900_000,
    };
    let rates = Rates::within(span, 100, 100 * 82, 42).unwrap();
    assert_eq!((rates.packets_pps, rates.span_ns), (10_000.0, Some(9_900_000)));
    assert_eq!((rates.frame_bps, rates.payload_bps), (6_560_000.0, 3_200_000.0));
    assert_eq!(rates.wire_bps, 8_480_000.0);
    // In bursts of 10: the first burst starts the clock.
    let bursts = Span {
        first_packets: 10,
        last_ns: 14_000_000,
        ..span
    };
    assert_eq!(Rates::within(bursts, 100, 8_200, 42).unwrap().packets_pps, 10_000.0);
    // Short frames are padded on the wire.
    assert_eq!(Rates::within(span, 100, 4_200, 42).unwrap().wire_bps, 6_720_000.0);
}

#[test]
fn packets_that_pass_at_one_time_have_no_rate() {
    let span = Span {
        first_ns: 7,
        first_packets: 1,
        last_ns: 7,
    };
    assert_eq!(Rates::within(span, 1, 60, 0), None);
    let burst = Span {
        first_packets: 64,
        ..span
    };
    assert_eq!(Rates::within(burst, 64, 64 * 60, 0), None);
    assert_eq!(Rates::within(burst, 0, 0, 0), None);
    // What the receiver takes out of a full ring is no rate at which packets came.
    let taken = |time_ns| {
        let span = Span {
            last_ns: 7 + time_ns,
            ..burst
        };
        Rates::within(span, 2_048, 2_048 * 60, 0)
    };
    assert_eq!(taken(MIN_SPAN_NS - 1), None);
    assert_eq!(taken(MIN_SPAN_NS).map(|rates| rates.packets_pps), Some(1_984_000.0));
}

#[test]
fn spans_of_two_queues_begin_with_the_earlier() {
    let one = Span {
        first_ns: 10,
        first_packets: 3,
        last_ns: 50,
    };
    let other = Span {
        first_ns: 5,
        first_packets: 1,
        last_ns: 40,
    };
    let both = Span {
        first_ns: 5,
        first_packets: 1,
        last_ns: 50,
    };
    assert_eq!((one.merge(other), other.merge(one)), (both, both));
}
