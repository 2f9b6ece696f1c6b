use super::*;

/// To a clock that is 1 s ahead, at these times there and back.
fn trips(there: u64, back: u64) -> Vec<Trip> {
    let of = |number: u64| {
        let sent_ns = 5_000_000_000 + number * 1_000_000;
        let (there, back) = (there + number % 7 * 100, back + number % 5 * 100);
        Trip {
            intended_ns: sent_ns - 50,
            sent_ns,
            stamps: FarStamps {
                came_ns: sent_ns + there + 1_000_000_000,
                left_ns: sent_ns + there + 1_000_000_100,
            },
            heard_ns: sent_ns + there + 100 + back,
        }
    };
    (0..200).map(of).collect()
}

#[test]
fn times_are_right_within_the_uncertainty() {
    let (times, mapping) = times(&trips(30_000, 20_000), Duration::from_micros(100)).unwrap();
    assert!((25_000..27_000).contains(&mapping.uncertainty_ns()), "{mapping:?}");
    let raw = times.raw().summary().unwrap();
    assert!(raw.min_ns.abs_diff(30_000) <= mapping.uncertainty_ns(), "{raw:?}");
    assert_eq!((raw.samples, times.impossible()), (200, 0));
    assert!(times.corrected().summary().unwrap().min_ns >= raw.min_ns + 49);
}

#[test]
fn what_is_not_known_well_enough_is_not_told() {
    let why = |trips: &[Trip]| match times(trips, Duration::from_micros(20)) {
        Ok((_, mapping)) => panic!("{mapping:?}"),
        Err(error) => format!("{error:#}"),
    };
    let refused = why(&trips(30_000, 20_000));
    assert!(
        refused.contains("the other clock is known to 25.") && refused.contains("uncertainty = \"20us\" is asked for"),
        "{refused}"
    );
    assert!(why(&[]).contains("no answer"));
    let mut jumps = trips(1_000, 1_000);
    jumps
        .iter_mut()
        .skip(50)
        .take(50)
        .for_each(|trip| trip.stamps.came_ns -= 10_000);
    assert!(why(&jumps).contains("does not run evenly"));
}
