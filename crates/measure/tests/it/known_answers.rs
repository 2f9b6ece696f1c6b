//! Known answers for every statistic that is told, from references or by hand: one list, so that none is missing.
//!
//! | statistic | answer from |
//! |---|---|
//! | mean, standard deviation | NIST StRD, NumAcc1 and NumAcc4 (certified values) |
//! | percentiles | the definition, on 1 … 1 000 000 |
//! | median, quartiles, spread | definition 7 of Hyndman and Fan, by hand, as R and NumPy have it |
//! | ratio paired by rounds, steal | by hand |
//! | bootstrap interval of a median | the exact distribution of a resample's median (binomial), by hand |
//! | exact interval of a median | published tables of the sign test |
//! | correlation of neighbours | by hand |
//! | noise floor (A/A) | by hand |
//! | both jitters | RFC 3550, 6.4.1, by hand |
//! | histograms | HdrHistogram's Python library wrote one; and there and back |
//! | loss, duplicates, reordering | RFC 4737, 4.1 and 7, by hand |
//! | round trips per minute | by hand |
//! | rates, on the wire | IEEE 802.3: 1 Gbit/s carries 1 488 095 smallest frames |
//! | main effects of a sweep | by hand (and simulated machines, in the module's tests) |
//! | searches for rates | `tests/oracle.rs`, the reference implementation |

use ringside_measure::compare::{Ratio, Round, exact_median_interval, figure, noise_floor, ratio};
use ringside_measure::latency::{JitterEstimator, Latency};
use ringside_measure::precision::of_series;
use ringside_measure::rate::Rates;
use ringside_measure::schema::Responsiveness;
use ringside_measure::sequence::{Arrival, Tracker};
use ringside_measure::sweep::{Better, Design, Knob, Method, Plan, Sweep};

fn of(values: impl IntoIterator<Item = u64>) -> Latency {
    let mut latency = Latency::new();
    values.into_iter().for_each(|value| latency.record(value));
    latency
}

fn rounds(values: impl IntoIterator<Item = f64>) -> Vec<Round> {
    values.into_iter().map(|value| Round { value, steal: 0.0 }).collect()
}

#[test]
fn mean_and_standard_deviation_of_nist() {
    // NumAcc1: mean 10000002, standard deviation 1 of a sample, divided by n − 1; here it is divided by n.
    let summary = of([10_000_001, 10_000_003, 10_000_002]).summary().unwrap();
    assert_eq!(summary.mean_ns, 10_000_002.0);
    assert!((summary.stddev_ns - (2.0_f64 / 3.0).sqrt()).abs() < 1e-12);
    // NumAcc4, ten times as large: mean 100000002, standard deviation 1 of 1001.
    let values = std::iter::once(100_000_002).chain([100_000_001, 100_000_003].into_iter().cycle().take(1_000));
    let summary = of(values).summary().unwrap();
    assert_eq!((summary.samples, summary.mean_ns), (1_001, 100_000_002.0));
    assert!((summary.stddev_ns - (1_000.0_f64 / 1_001.0).sqrt()).abs() < 1e-12);
}

#[test]
fn percentiles_by_definition() {
    let summary = of(1..=1_000).summary().unwrap();
    assert_eq!(
        (summary.min_ns, summary.p50_ns, summary.p90_ns, summary.p99_ns),
        (1, Some(500), Some(900), Some(990))
    );
    assert_eq!((summary.p99_9_ns, summary.max_ns), (None, 1_000));
    let summary = of(1..=1_000_000).summary().unwrap();
    // To three digits.
    let tail = [summary.p99_9_ns, summary.p99_99_ns, summary.p99_999_ns].map(|ns| ns.unwrap() as f64);
    for (found, exact) in tail.into_iter().zip([999_000.0, 999_900.0, 999_990.0]) {
        assert!((found / exact - 1.0).abs() <= 0.001, "{found} {exact}");
    }
    assert_eq!(
        summary.tail().map(|(name, ns)| (name, ns.is_some())),
        [("p99.99", true), ("p99.999", true)]
    );
}

#[test]
fn median_and_quartiles_as_r_has_them() {
    // quantile(1:10): 3.25, 5.5, 7.75.
    let figure = figure(&rounds((1..=10).map(f64::from))).unwrap();
    assert_eq!((figure.median, figure.min, figure.max), (5.5, 1.0, 10.0));
    assert_eq!(figure.spread, Some(2.25));
    assert!((figure.spread_percent.unwrap() - 2.25 / 5.5 * 100.0).abs() < 1e-12);
}

#[test]
fn ratios_are_paired_and_disturbed_rounds_left_out() {
    let base = rounds([10.0, 20.0, 40.0, 80.0, 160.0]);
    let mut variant = rounds([15.0, 40.0, 50.0, 80.0, 8.0]);
    variant[4].steal = 0.05;
    // 1.5, 2, 1.25, 1.
    let ratio = ratio(&base, &variant).unwrap();
    assert_eq!((ratio.median, ratio.rounds_used, ratio.rounds_left_out), (1.375, 4, 1));
    assert_eq!((ratio.low, ratio.width()), (None, None));
}

#[test]
fn a_bootstrap_interval_from_the_exact_distribution() {
    // A resample of 7 has a median of at most the k-th with the probability of 4 or more of 7 at k/7: 0.010 for the first, 0.108 for
    // the second. So 2.5 % lies at the second, and 97.5 % at the last but one.
    let ratio = ratio(&rounds([1.0; 7]), &rounds((1..=7).map(f64::from))).unwrap();
    assert_eq!((ratio.median, ratio.low, ratio.high), (4.0, Some(2.0), Some(6.0)));
    // Of 5: 0.058 for the first already.
    let five = super_ratio(5);
    assert_eq!((five.low, five.high), (Some(1.0), Some(5.0)));
    // The same rounds always give the same interval.
    assert_eq!(five, super_ratio(5));
}

fn super_ratio(count: u32) -> Ratio {
    ratio(&rounds((0..count).map(|_| 1.0)), &rounds((1..=count).map(f64::from))).unwrap()
}

#[test]
fn exact_intervals_of_a_median_from_tables_of_the_sign_test() {
    let of = |count: u32, confidence: f64| {
        let sorted: Vec<f64> = (1..=count).map(f64::from).collect();
        exact_median_interval(&sorted, confidence)
    };
    for (count, rank) in [
        (6, 1),
        (8, 1),
        (9, 2),
        (10, 2),
        (12, 3),
        (15, 4),
        (20, 6),
        (25, 8),
        (30, 10),
        (50, 18),
        (100, 40),
    ] {
        assert_eq!(
            of(count, 0.95),
            Some((f64::from(rank), f64::from(count + 1 - rank))),
            "{count}"
        );
    }
    for (count, rank) in [(8, 1), (10, 1), (12, 2), (20, 4), (50, 16)] {
        assert_eq!(
            of(count, 0.99),
            Some((f64::from(rank), f64::from(count + 1 - rank))),
            "{count}"
        );
    }
    assert_eq!((of(5, 0.95), of(7, 0.99), of(0, 0.95)), (None, None, None));
    // Far beyond where 2^-n is a number.
    assert!(of(5_000, 0.95).is_some_and(|(low, high)| (2_429.0..2_433.0).contains(&low) && low + high == 5_001.0));
}

#[test]
fn correlation_of_neighbours_by_hand() {
    // Deviations −1 six times, then 1 six times: squares 12, products 5 − 1 + 5.
    let steps = [vec![9.0; 6], vec![11.0; 6]].concat();
    assert_eq!(of_series(&steps).unwrap().correlation, 9.0 / 12.0);
    let even: Vec<f64> = [9.0, 11.0].repeat(6);
    assert_eq!(
        of_series(&even).unwrap().correlation,
        0.0,
        "the opposite of its neighbour is not alike"
    );
}

#[test]
fn a_noise_floor_by_hand() {
    let aa = |low, high| Ratio {
        median: 1.0,
        low,
        high,
        rounds_used: 9,
        rounds_left_out: 0,
    };
    // 0.8 is a fifth less, and a quarter from 1 the other way round.
    let floor = noise_floor(&[aa(Some(0.8), Some(1.05)), aa(Some(0.99), Some(1.2))]).unwrap();
    assert!((floor - 0.25).abs() < 1e-12);
    assert_eq!(noise_floor(&[aa(Some(0.99), Some(1.01)), aa(None, None)]), None);
}

#[test]
fn jitter_of_rfc_3550() {
    let mut jitter = JitterEstimator::new();
    // J += (|D| − J) / 16: 1, then 1 + 15/16, then 1.9375 − 1.9375/16.
    for (ns, expected) in [
        (16, None),
        (32, Some(1.0)),
        (16, Some(1.9375)),
        (16, Some(1.816_406_25)),
    ] {
        jitter.record(ns);
        assert_eq!(jitter.jitter().map(|jitter| jitter.rfc3550_smoothed_ns), expected);
    }
    let jitter = jitter.jitter().unwrap();
    assert_eq!(jitter.mean_abs_consecutive_difference_ns, 32.0 / 3.0);
    assert_eq!(jitter.differences, 3);
}

#[test]
fn histograms_of_another_library_and_back() {
    // hdrhistogram 0.10.8 in Python: 100, 200 twice, 300 000.
    let read = Latency::from_hdr(include_str!("../../src/latency/python.hdr")).unwrap();
    let mut own = of([100, 200, 200, 300_000]);
    let buckets = |latency: &Latency| latency.buckets().map(|bucket| bucket.samples).collect::<Vec<_>>();
    assert_eq!(buckets(&read), [1, 2, 1]);
    assert_eq!(buckets(&own), [1, 2, 1]);
    // There and back, and added up.
    let back = Latency::from_hdr(&own.to_hdr().unwrap()).unwrap();
    assert_eq!(back.buckets().collect::<Vec<_>>(), own.buckets().collect::<Vec<_>>());
    own.merge(&back);
    assert_eq!(buckets(&own), [2, 4, 2]);
}

#[test]
fn reordering_of_rfc_4737() {
    let mut tracker = Tracker::new(64);
    (1..=10).for_each(|sequence| assert!(tracker.on_sent(sequence)));
    // Arrivals 1 2 3 5 4 6 8 8 7 9 9: 4 came behind 5, 7 behind 8; 10 is missing, 8 and 9 came twice.
    let arrivals: Vec<Arrival> = [1, 2, 3, 5, 4, 6, 8, 8, 7, 9, 9]
        .map(|sequence| tracker.on_received(sequence))
        .to_vec();
    assert_eq!(arrivals[4], Arrival::Reordered { distance: 1 });
    assert_eq!(arrivals[8], Arrival::Reordered { distance: 1 });
    let counts = tracker.counts();
    assert_eq!((counts.sent, counts.received, counts.lost), (10, 9, 1));
    assert_eq!(
        (counts.duplicated, counts.reordered, counts.longest_reordering),
        (2, 2, 1)
    );
    assert_eq!(
        (counts.loss_ratio(), counts.reordered_ratio()),
        (Some(0.1), Some(2.0 / 9.0))
    );
}

#[test]
fn responsiveness_by_hand() {
    // 95 of 100 take 20 ms: 3000 of them, one after the other, are a minute.
    let answers = Responsiveness::of(&of([vec![20_000_000; 95], vec![50_000_000_000; 5]].concat())).unwrap();
    assert!(
        (answers.round_trips_per_minute / 3_000.0 - 1.0).abs() < 1e-3,
        "{answers:?}"
    );
    assert!((answers.round_trip_ms / 20.0 - 1.0).abs() < 1e-3, "{answers:?}");
}

#[test]
fn a_gigabit_of_smallest_frames() {
    // 60 bytes without check sequence are 84 on the wire: 10^9 / 672.
    let rates = Rates::new(1_488_095, 60, 18, 1_000_000_000).unwrap();
    assert_eq!(rates.packets_pps, 1_488_095.0);
    assert_eq!(rates.wire_bps, 999_999_840.0);
    assert_eq!(rates.payload_bps, 1_488_095.0 * 144.0);
}

#[test]
fn main_effects_by_hand() {
    let design = Design::new(vec![Knob::new("a", ["0", "1"]), Knob::new("b", ["0", "1"])]).unwrap();
    let plan = Plan {
        method: Method::Grid,
        rounds: 10,
        confirm: 0,
        until: None,
    };
    let mut sweep = Sweep::new(design, plan, Better::More);
    while let Some(one) = sweep.wanted() {
        // a is worth 2 where b is 0, and 8 where it is 1: the geometric mean is 4. Every round is half as fast again as the last.
        let (round, _) = sweep.progress();
        let value = [100.0, 300.0, 200.0, 2_400.0][one] * 1.5_f64.powi(round.cast_signed());
        sweep.record(Some(Round { value, steal: 0.0 }));
    }
    let found = sweep.found(0.05);
    let effect = |knob: usize| found.effects[knob].levels[1].ratio.unwrap();
    assert!(
        (effect(0).median - 4.0).abs() < 1e-9 && effect(0).width().unwrap() < 1e-9,
        "{:?}",
        effect(0)
    );
    // b: 3 and 12, which is 6.
    assert!((effect(1).median - 6.0).abs() < 1e-9, "{:?}", effect(1));
    assert_eq!(found.confidence, 0.975);
}
