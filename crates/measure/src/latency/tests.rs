use proptest::prelude::*;

use super::*;

fn of(values: impl IntoIterator<Item = u64>) -> Latency {
    let mut latency = Latency::new();
    for value in values {
        latency.record(value);
    }
    latency
}

#[test]
fn percentiles_wait_for_enough_samples() {
    for (needed, percentile) in [
        (20u64, (|s| s.p50_ns) as fn(&Summary) -> Option<u64>),
        (100, |s| s.p90_ns),
        (1_000, |s| s.p99_ns),
        (10_000, |s| s.p99_9_ns),
        (100_000, |s| s.p99_99_ns),
        (1_000_000, |s| s.p99_999_ns),
    ] {
        let mut latency = of(1..needed);
        assert_eq!(percentile(&latency.summary().unwrap()), None, "{needed}");
        latency.record(needed);
        assert!(percentile(&latency.summary().unwrap()).is_some(), "{needed}");
    }
}

#[test]
fn a_million_values_within_a_thousandth() {
    let summary = of(1..=1_000_000).summary().unwrap();
    for (found, exact) in [
        (summary.p50_ns, 500_000.0),
        (summary.p90_ns, 900_000.0),
        (summary.p99_ns, 990_000.0),
        (summary.p99_9_ns, 999_000.0),
        (summary.p99_99_ns, 999_900.0),
        (summary.p99_999_ns, 999_990.0),
    ] {
        let found = found.unwrap() as f64;
        assert!((found / exact - 1.0).abs() <= 0.001, "{found} {exact}");
    }
    assert_eq!(summary.mean_ns, 500_000.5);
    // Variance of 1..=n is (n² − 1) / 12.
    let exact = ((1e12 - 1.0) / 12.0f64).sqrt();
    assert!((summary.stddev_ns / exact - 1.0).abs() < 1e-12);
}

#[test]
fn a_small_deviation_on_a_large_mean_is_not_lost() {
    // Mean one second, deviation exactly 1 ns.
    let summary = of([999_999_999, 1_000_000_001].repeat(50)).summary().unwrap();
    assert_eq!(summary.mean_ns, 1e9);
    assert_eq!(summary.stddev_ns, 1.0);
}

#[test]
fn quantisation_stays_within_the_exact_ends() {
    // A bucket at 10 s is 8 ms wide: its upper end is far above the only value.
    let summary = of([10_000_000_001; 20]).summary().unwrap();
    assert_eq!(summary.p50_ns, Some(10_000_000_001));
    assert_eq!(summary.max_ns, 10_000_000_001);
    assert_eq!(summary.stddev_ns, 0.0);
}

#[test]
fn beyond_a_minute_and_zero() {
    let mut values = vec![0; 10];
    values.extend([u64::MAX; 20]);
    let summary = of(values).summary().unwrap();
    assert_eq!((summary.min_ns, summary.max_ns), (0, u64::MAX));
    let p50 = summary.p50_ns.unwrap();
    assert!((LONGEST_NS..LONGEST_NS + LONGEST_NS / 1000).contains(&p50), "{p50}");
}

#[test]
fn clear_forgets_everything() {
    let mut latency = of([5, 6]);
    latency.clear();
    assert_eq!(latency.summary(), None);
    latency.record(7);
    assert_eq!(latency.summary(), of([7]).summary());
}

#[test]
fn round_trips_raw_and_corrected() {
    let mut rtt = RttRecorder::new();
    rtt.record(100, 150, 250);
    rtt.record(300, 290, 400); // sent early: corrected is not below raw
    rtt.record(0, 500, 499);
    assert_eq!(rtt.impossible(), 1);
    let (raw, corrected) = (rtt.raw().summary().unwrap(), rtt.corrected().summary().unwrap());
    assert_eq!((raw.samples, raw.min_ns, raw.max_ns), (2, 100, 110));
    assert_eq!((corrected.min_ns, corrected.max_ns), (110, 150));
    assert_eq!(rtt.jitter().unwrap().differences, 1);

    let mut other = RttRecorder::new();
    other.merge(&rtt);
    other.merge(&rtt);
    assert_eq!(other.raw().samples(), 2 * raw.samples);
    assert_eq!(other.corrected().summary().unwrap().samples, 2 * corrected.samples);
    assert_eq!(other.corrected().summary().unwrap().max_ns, corrected.max_ns);
    assert_eq!(other.impossible(), 2);
    assert_eq!(other.jitter(), None);
}

#[test]
fn jitter_of_one_packet_is_unknown() {
    let mut jitter = JitterEstimator::new();
    assert_eq!(jitter.jitter(), None);
    jitter.record(5);
    assert_eq!(jitter.jitter(), None);
    jitter.record(5);
    assert_eq!(jitter.jitter().unwrap().rfc3550_smoothed_ns, 0.0);
}

#[test]
fn jitter_by_hand() {
    let mut jitter = JitterEstimator::new();
    for ns in [1_000, 1_160, 1_000] {
        jitter.record(ns);
    }
    // 160/16 = 10, then 10 + (160 − 10)/16.
    assert_eq!(jitter.jitter().unwrap().rfc3550_smoothed_ns, 19.375);
}

#[test]
fn jitter_settles_on_a_constant_difference() {
    let mut jitter = JitterEstimator::new();
    for i in 0..1_000u64 {
        jitter.record(10_000 + (i % 2) * 320);
    }
    let jitter = jitter.jitter().unwrap();
    assert!((jitter.rfc3550_smoothed_ns - 320.0).abs() < 1e-6);
    assert_eq!(jitter.mean_abs_consecutive_difference_ns, 320.0);
    assert_eq!(jitter.differences, 999);
}

proptest! {
    // Each case fills and searches histograms of 220 KiB.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exact_figures_are_exact(values in proptest::collection::vec(0u64..100_000_000_000, 1..200)) {
        let summary = of(values.iter().copied()).summary().unwrap();
        let sum: u128 = values.iter().copied().map(u128::from).sum();
        let mean = sum as f64 / values.len() as f64;
        prop_assert_eq!(summary.min_ns, *values.iter().min().unwrap());
        prop_assert_eq!(summary.max_ns, *values.iter().max().unwrap());
        prop_assert!((summary.mean_ns - mean).abs() <= mean * 1e-15);
        let variance = values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / values.len() as f64;
        prop_assert!((summary.stddev_ns - variance.sqrt()).abs() <= 1e-9 * variance.sqrt() + 1e-3);
    }

    #[test]
    fn percentiles_rise_and_are_near(mut values in proptest::collection::vec(0u64..50_000_000_000, 1000..1200)) {
        let summary = of(values.iter().copied()).summary().unwrap();
        values.sort_unstable();
        let mut last = summary.min_ns;
        for (found, quantile) in [(summary.p50_ns, 0.5), (summary.p90_ns, 0.9), (summary.p99_ns, 0.99)] {
            let found = found.unwrap();
            prop_assert!(last <= found && found <= summary.max_ns);
            last = found;
            // Not more than a fraction `quantile` (and one sample, for rounding) lies clearly below.
            let below = values.partition_point(|v| *v < found - found / 1000);
            let up_to = values.partition_point(|v| *v <= found + found / 1000);
            prop_assert!(below as f64 <= quantile * values.len() as f64 + 1.0);
            prop_assert!(up_to as f64 >= quantile * values.len() as f64);
        }
    }

    #[test]
    fn merged_is_recorded_together(a in proptest::collection::vec(any::<u32>(), 0..100),
                                   b in proptest::collection::vec(any::<u32>(), 0..100)) {
        let (a, b) = (a.into_iter().map(u64::from), b.into_iter().map(u64::from));
        let mut merged = of(a.clone());
        merged.merge(&of(b.clone()));
        prop_assert_eq!(merged.summary(), of(a.chain(b)).summary());
    }
}

proptest! {
    #[test]
    fn buckets_hold_every_sample_where_it_belongs(values in proptest::collection::vec(0_u64..LONGEST_NS, 0..300)) {
        let buckets: Vec<Bucket> = of(values.iter().copied()).buckets().collect();
        prop_assert!(buckets.windows(2).all(|pair| pair[0].to_ns < pair[1].from_ns));
        for bucket in &buckets {
            prop_assert!(bucket.to_ns - bucket.from_ns <= bucket.from_ns / 1000);
            let range = bucket.from_ns..=bucket.to_ns;
            let there = values.iter().filter(|value| range.contains(*value)).count();
            prop_assert_eq!(bucket.samples, there as u64);
        }
        prop_assert_eq!(buckets.iter().map(|bucket| bucket.samples).sum::<u64>(), values.len() as u64);
    }
}

#[test]
fn a_median_is_told_of_few_samples_by_its_own_name_only() {
    let mut times = Latency::new();
    assert_eq!(times.median(), None);
    [30, 10, 20].into_iter().for_each(|ns| times.record(ns));
    assert_eq!((times.median(), times.summary().unwrap().p50_ns), (Some(20), None));
}

#[test]
fn figures_are_the_summary_in_the_order_of_their_length() {
    let summary = Summary {
        samples: 9,
        min_ns: 1,
        mean_ns: 2.5,
        stddev_ns: 0.5,
        p50_ns: Some(3),
        p90_ns: Some(4),
        p99_ns: Some(5),
        p99_9_ns: None,
        p99_99_ns: Some(7),
        p99_999_ns: None,
        max_ns: 8,
    };
    let figures = [
        ("min", Some(1.0)),
        ("mean", Some(2.5)),
        ("p50", Some(3.0)),
        ("p90", Some(4.0)),
        ("p99", Some(5.0)),
        ("p99.9", None),
        ("max", Some(8.0)),
    ];
    assert_eq!(summary.figures(), figures);
    assert_eq!(summary.tail(), [("p99.99", Some(7.0)), ("p99.999", None)]);
}

#[test]
fn the_sum_is_in_seconds() {
    assert_eq!(of([1_500_000_000, 500_000_000]).sum_seconds(), 2.0);
    assert_eq!(Latency::new().sum_seconds(), 0.0);
}

#[test]
fn a_mean_of_the_shortest_leaves_out_the_longest() {
    let times = of([40, 10, 20, 1000]);
    assert_eq!(times.mean_of_shortest(0.25), Some(10.0));
    assert_eq!(times.mean_of_shortest(0.5), Some(15.0));
    assert_eq!(times.mean_of_shortest(0.75), Some(70.0 / 3.0));
    assert_eq!(times.mean_of_shortest(1.0), Some(267.5));
    assert_eq!(times.mean_of_shortest(2.0), Some(267.5));
    // Two of three equal ones, which are one bucket.
    assert_eq!(of([1, 7, 7, 7, 9]).mean_of_shortest(0.6), Some(5.0));
    // Of whole samples: a half of three are one.
    assert_eq!(of([10, 20, 30]).mean_of_shortest(0.5), Some(10.0));
    // A third of three is one, although 3 * (1 / 3) may be less.
    assert_eq!(of([10, 20, 30]).mean_of_shortest(1.0 / 3.0), Some(10.0));
    assert_eq!(of([10, 20]).mean_of_shortest(0.4), None);
    assert_eq!(times.mean_of_shortest(0.0), None);
    assert_eq!(times.mean_of_shortest(-1.0), None);
    assert_eq!(Latency::new().mean_of_shortest(1.0), None);
}

#[test]
fn a_mean_of_the_shortest_stays_within_the_exact_ends() {
    // The middle of the bucket of 10 s is above both.
    let times = of([10_000_000_000, 10_000_000_001]);
    let mean = times.mean_of_shortest(0.5).unwrap();
    assert!((1e10..=10_000_000_001.0).contains(&mean), "{mean}");
}

#[test]
fn what_is_new_since_an_earlier_state_is_told_apart() {
    let earlier = of([10, 20, 20]);
    let mut now = earlier.clone();
    [20, 50, 50, 5].into_iter().for_each(|ns| now.record(ns));
    assert_eq!(now.since(&earlier).summary(), of([20, 50, 50, 5]).summary());
    assert_eq!(now.since(&now).summary(), None);
    assert_eq!(now.since(&Latency::new()).summary(), now.summary());
}

#[test]
fn samples_of_at_most_a_time_are_counted() {
    let times = of([10, 20, 20, 30]);
    let counts = [9, 10, 19, 20, 30, u64::MAX].map(|ns| times.at_most(ns));
    assert_eq!(counts, [0, 1, 1, 3, 4, 4]);
}

#[test]
fn buckets_tell_their_ends_and_samples() {
    let bucket = |from_ns, to_ns, samples| Bucket {
        from_ns,
        to_ns,
        samples,
    };
    // Three digits: single values up to 2047, then steps of 2.
    let buckets: Vec<_> = of([7, 7, 2048, 2049, 5000]).buckets().collect();
    assert_eq!(buckets, [bucket(7, 7, 2), bucket(2048, 2049, 2), bucket(5000, 5003, 1)]);
    assert_eq!(Latency::default().buckets().count(), 0);
}

#[test]
fn sums_that_do_not_fit_have_a_deviation_all_the_same() {
    // Σx² of these is above 2^128: it stays at the largest number.
    let summary = of([u64::MAX; 3]).summary().unwrap();
    assert!(summary.stddev_ns >= 0.0 && summary.stddev_ns.is_finite());
    // n·Σx² does not fit, the sums do: half at 0 and half at 2^62, of which the deviation is 2^61.
    let half = 2_u64.pow(62);
    let summary = of([0, half, 0, half, 0, half, 0, half, 0, half, 0, half])
        .summary()
        .unwrap();
    assert!(
        (summary.stddev_ns / 2_f64.powi(61) - 1.0).abs() < 1e-9,
        "{}",
        summary.stddev_ns
    );
}

#[test]
fn jitter_of_several_streams_has_no_difference_between_two_of_them() {
    let of = |rfc3550_smoothed_ns, mean_abs_consecutive_difference_ns, differences| Jitter {
        rfc3550_smoothed_ns,
        mean_abs_consecutive_difference_ns,
        differences,
    };
    let streams = [of(5.0, 100.0, 3), of(6.0, 200.0, 1), of(7.0, 50.0, 4)];
    assert_eq!(Jitter::together(streams), Some(of(7.0, 87.5, 8)));
    assert_eq!(
        Jitter::together([of(5.0, 0.0, 0), of(6.0, 0.0, 0)]),
        Some(of(6.0, 0.0, 0))
    );
    assert_eq!(Jitter::together([]), None);
}
