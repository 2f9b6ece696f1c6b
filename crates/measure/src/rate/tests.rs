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
