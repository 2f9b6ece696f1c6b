use super::*;
use crate::random::SplitMix64;

/// Packets there and back between this clock and one that is ahead by `ahead` and faster by `ppm`.
fn bounds(ahead: i64, ppm: i64, count: u64, least: [u64; 2]) -> (Bounds, impl Fn(u64) -> u64) {
    let other = move |here: u64| {
        let here = i128::from(here);
        let there = here + i128::from(ahead) + here * i128::from(ppm) / 1_000_000;
        u64::try_from(there).unwrap()
    };
    let mut random = SplitMix64(7);
    let mut bounds = Bounds::new();
    for number in 0..count {
        let sent = 10_000_000_000 + number * 5_000_000;
        let came = sent + least[0] + random.below(400_000);
        let left = came + 50_000;
        let heard = left + least[1] + random.below(900_000);
        bounds.there(sent, other(came));
        bounds.back(other(left), heard);
    }
    (bounds, other)
}

#[test]
fn the_truth_is_within_the_uncertainty_whatever_the_asymmetry() {
    for (ahead, ppm) in [(0, 0), (5_000_000_000, 120), (-9_000_000_000, -300), (123, 20_000)] {
        for least in [[20_000, 20_000], [1_000, 80_000], [90_000, 0]] {
            let (bounds, other) = bounds(ahead, ppm, 400, least);
            let mapping = bounds.fit().unwrap();
            let (what, room) = (format!("{ahead} {ppm} {least:?}: {mapping:?}"), least[0] + least[1]);
            assert_eq!((mapping.contradiction_ns(), mapping.bounds()), (0, 800), "{what}");
            // Half of the two least times, and what single slower packets leave at the ends.
            assert!(mapping.uncertainty_ns() < room + 60_000, "{what}");
            assert!((mapping.rate_ppm() - ppm as f64).abs() < 100.0, "{what}");
            for here in [10_000_000_000, 11_000_000_000, 11_995_000_000] {
                let there = other(here);
                let off = mapping.here(there).abs_diff(here);
                assert!(off <= mapping.uncertainty_ns() + 2, "{off} at {here}: {what}");
                let offset = i64::try_from(i128::from(there) - i128::from(here)).unwrap();
                let off = mapping.offset_ns(here).abs_diff(offset);
                assert!(off <= mapping.uncertainty_ns() + 2, "{off} at {here}: {what}");
            }
        }
    }
}

#[test]
fn more_packets_leave_less_room() {
    let of = |count| bounds(1_000, 50, count, [0, 0]).0.fit().unwrap().uncertainty_ns();
    assert!(
        of(2_000) < of(200) && of(200) < of(20),
        "{} {} {}",
        of(20),
        of(200),
        of(2_000)
    );
}

#[test]
fn bounds_of_one_kind_are_none_and_a_clock_that_jumps_contradicts() {
    let mut bounds = Bounds::new();
    assert!(bounds.is_empty() && bounds.fit().is_none());
    bounds.there(100, 200);
    assert!(bounds.fit().is_none());
    bounds.back(150, 250);
    let mapping = bounds.fit().unwrap();
    assert_eq!((mapping.contradiction_ns(), bounds.len()), (0, 2));
    let mut jumps = Bounds::new();
    for at in (0..2_000_000u64).step_by(10_000) {
        // In its middle it goes 10 us ahead, and back again.
        let ahead = if (900_000..1_100_000).contains(&at) {
            110_000
        } else {
            100_000
        };
        jumps.there(at, at + ahead + 100);
        jumps.back(at + ahead + 200, at + 300);
    }
    let mapping = jumps.fit().unwrap();
    assert!(mapping.contradiction_ns() > 5_000, "{mapping:?}");
    let mut both = Bounds::new();
    both.extend(&jumps);
    assert_eq!(both.len(), jumps.len());
}
