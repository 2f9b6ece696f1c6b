use proptest::prelude::*;

use super::*;

fn rounds(values: &[f64]) -> Vec<Round> {
    values
        .iter()
        .map(|value| Round {
            value: *value,
            steal: 0.0,
        })
        .collect()
}

#[test]
fn median_and_quartiles_by_hand() {
    let odd = figure(&rounds(&[5.0, 1.0, 4.0, 2.0, 3.0])).unwrap();
    assert_eq!((odd.median, odd.min, odd.max), (3.0, 1.0, 5.0));
    // Quartiles 2 and 4: half their distance is 1, a third of the median.
    assert_eq!(odd.spread, Some(1.0));
    assert!((odd.spread_percent.unwrap() - 100.0 / 3.0).abs() < 1e-12);
    let even = figure(&rounds(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    assert_eq!(even.median, 2.5);
    // Quartiles 1.75 and 3.25.
    assert_eq!(even.spread, Some(0.75));
    assert!((even.spread_percent.unwrap() - 30.0).abs() < 1e-12);
    // Nothing was lost in most rounds: no percentage, and still a spread.
    let zero = figure(&rounds(&[0.0, 0.0, 0.0, 2.0, 6.0])).unwrap();
    assert_eq!((zero.median, zero.spread, zero.spread_percent), (0.0, Some(1.0), None));
    // One round does not differ from itself, which is no knowledge of how much rounds differ.
    let one = figure(&rounds(&[7.0])).unwrap();
    assert_eq!((one.median, one.spread, one.spread_percent), (7.0, None, None));
}

#[test]
fn steal_above_the_limit_leaves_a_round_out() {
    let mut noisy = rounds(&[1.0, 100.0, 3.0]);
    noisy[1].steal = 0.041;
    noisy[2].steal = 0.04; // at the limit is in
    let quiet: Vec<bool> = noisy.iter().map(Round::is_quiet).collect();
    assert_eq!(quiet, [true, false, true]);
    let figure = figure(&noisy).unwrap();
    assert_eq!((figure.median, figure.rounds_used, figure.rounds_left_out), (2.0, 2, 1));
    // In a pair either round can spoil it, and so can a base of zero.
    let mut base = rounds(&[1.0, 1.0, 1.0]);
    base[0].value = 0.0;
    let ratio = ratio(&base, &noisy).unwrap();
    assert_eq!((ratio.median, ratio.rounds_used), (3.0, 1));
    assert_eq!((ratio.rounds_left_out, ratio.low), (2, None));
}

#[test]
fn disturbed_rounds_are_better_than_none() {
    let mut all_stolen = rounds(&[4.0, 6.0]);
    for round in &mut all_stolen {
        round.steal = 0.5;
    }
    let of_all = figure(&all_stolen).unwrap();
    assert_eq!((of_all.median, of_all.rounds_used, of_all.rounds_left_out), (5.0, 2, 0));
    let to_quiet = ratio(&rounds(&[2.0, 0.0]), &all_stolen).unwrap();
    assert_eq!(
        (to_quiet.median, to_quiet.rounds_used, to_quiet.rounds_left_out),
        (2.0, 1, 1)
    );
}

#[test]
fn what_cannot_be_evaluated() {
    assert!(matches!(figure(&[]), Err(Error::NoRounds { .. })));
    assert!(matches!(
        figure(&rounds(&[1.0, f64::NAN])),
        Err(Error::Round {
            round: 1,
            what: "value",
            ..
        })
    ));
    assert!(matches!(figure(&rounds(&[-1.0])), Err(Error::Round { round: 0, .. })));
    let no_share = [Round {
        value: 1.0,
        steal: -0.5,
    }];
    assert!(matches!(figure(&no_share), Err(Error::Round { what: "CPU steal", .. })));
    assert_eq!(
        ratio(&rounds(&[1.0]), &rounds(&[1.0, 2.0])),
        Err(Error::RoundsDiffer { base: 1, variant: 2 })
    );
}

#[test]
fn drift_that_both_share_falls_out() {
    // The machine becomes three times faster meanwhile: unpaired figures overlap, pairs do not.
    let base: Vec<f64> = (0..20).map(|i| 100.0 + 10.0 * f64::from(i)).collect();
    let variant: Vec<f64> = base.iter().map(|value| value * 1.1).collect();
    let ratio = ratio(&rounds(&base), &rounds(&variant)).unwrap();
    assert!((ratio.median - 1.1).abs() < 1e-9);
    assert!(ratio.low.unwrap() > 1.09 && ratio.high.unwrap() < 1.11);
    assert!(ratio.is_clear(0.07) && !ratio.is_clear(0.11));
}

#[test]
fn an_interval_with_one_inside_is_no_difference() {
    let base = rounds(&[1.0; 6]);
    let variant = rounds(&[0.5, 0.6, 0.7, 1.5, 1.6, 1.7]);
    let ratio = ratio(&base, &variant).unwrap();
    assert!(ratio.low.unwrap() < 1.0 && ratio.high.unwrap() > 1.0);
    assert!(!ratio.is_clear(0.0));
}

const fn of(median: f64, low: f64, high: f64) -> Ratio {
    Ratio {
        median,
        low: Some(low),
        high: Some(high),
        rounds_used: 9,
        rounds_left_out: 0,
    }
}

#[test]
fn a_difference_is_clear_beyond_one_and_the_noise() {
    assert!(of(1.25, 1.125, 1.5).is_clear(0.125));
    assert!(of(0.75, 0.5, 0.875).is_clear(0.125));
    // An end at 1, or a median no further from it than the noise, is none.
    assert!(!of(1.25, 1.0, 1.5).is_clear(0.125));
    assert!(!of(0.75, 0.5, 1.0).is_clear(0.125));
    assert!(!of(1.25, 1.125, 1.5).is_clear(0.25));
    assert!(!of(0.75, 0.5, 0.875).is_clear(0.25));
    let no_interval = Ratio {
        low: None,
        high: None,
        ..of(2.0, 0.0, 0.0)
    };
    assert!(!no_interval.is_clear(0.125));
}

#[test]
fn the_width_is_a_part_of_the_median() {
    assert_eq!(of(4.0, 3.0, 5.0).width(), Some(0.5));
    assert_eq!(of(0.5, 0.25, 0.5).width(), Some(0.5));
    assert_eq!(of(0.0, 0.0, 1.0).width(), None);
    let no_interval = Ratio {
        low: None,
        ..of(1.0, 1.0, 1.0)
    };
    assert_eq!(no_interval.width(), None);
}

#[test]
fn the_noise_floor_is_the_furthest_reach_of_a_self_comparison() {
    assert_eq!(noise_floor(&[of(1.0, 1.0, 1.25), of(1.0, 1.0, 1.125)]), Some(0.25));
    // 0.5 is as far from 1 as 2 is.
    assert_eq!(noise_floor(&[of(1.0, 0.5, 1.25)]), Some(1.0));
    assert_eq!(noise_floor(&[of(1.0, 1.0, 1.0)]), Some(0.0));
    // Both ends below 1: the lower one counts.
    assert_eq!(noise_floor(&[of(0.5, 0.5, 0.5)]), Some(1.0));
    assert_eq!(noise_floor(&[of(1.0, 0.0, 1.25)]), None);
}

/// The tails of 9 and 12 coin tosses are 10/512 for at most one head and 79/4096 for at most two.
#[test]
fn the_exact_interval_by_hand() {
    let values: Vec<f64> = (1..=12).map(f64::from).collect();
    assert_eq!(exact_median_interval(&values[..9], 0.95), Some((2.0, 8.0)));
    assert_eq!(exact_median_interval(&values, 0.95), Some((3.0, 10.0)));
    assert_eq!(exact_median_interval(&values[..6], 0.95), Some((1.0, 6.0)));
    // A tail that is just reached: 1/4 on each side of two values.
    assert_eq!(exact_median_interval(&values[..2], 0.5), Some((1.0, 2.0)));
    assert_eq!(exact_median_interval(&values[..2], 0.75), None);
    // No confidence is asked for: the ends do not pass each other.
    assert_eq!(exact_median_interval(&values[..5], 0.0), Some((2.0, 4.0)));
    assert_eq!(exact_median_interval(&values[..1], 0.0), None);
    assert_eq!(exact_median_interval(&[], 0.95), None);
    // 2^-2000 is no number any more. By the normal distribution: 1000 ± 1.96 x 22.4.
    let many: Vec<f64> = (1..=2000).map(f64::from).collect();
    assert_eq!(exact_median_interval(&many, 0.95), Some((956.0, 1045.0)));
}

#[test]
fn quantiles_are_interpolated() {
    assert_eq!(quantile(&[1.0, 2.0, 4.0], 1, 4), 1.5);
    assert_eq!(quantile(&[1.0, 2.0, 4.0], 3, 4), 3.0);
    assert_eq!(quantile(&[1.0, 2.0, 4.0], 1, 1), 4.0);
    assert_eq!(quantile(&[], 1, 2), 0.0);
}

#[test]
fn the_interval_holds_the_truth_nineteen_times_in_twenty() {
    // Coverage over 200 comparisons of 15 rounds whose true median ratio is 1. The noise is a fixed
    // sequence (a linear congruential generator with Knuth's constants), so this cannot flake.
    let mut state = 1u64;
    let mut noise = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    };
    let base = rounds(&[1.0; 15]);
    let hits = (0..200)
        .filter(|_| {
            let variant: Vec<f64> = (0..15).map(|_| 1.0 + 0.2 * noise()).collect();
            let ratio = ratio(&base, &rounds(&variant)).unwrap();
            ratio.low.unwrap() <= 1.0 && 1.0 <= ratio.high.unwrap()
        })
        .count();
    assert!((180..=198).contains(&hits), "{hits} of 200");
}

proptest! {
    // Each case draws 4000 resamples.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn figures_are_ordered_and_repeatable(values in proptest::collection::vec(0.1f64..1e9, 5..30)) {
        let variant = rounds(&values);
        let base = rounds(&vec![2.0; values.len()]);
        let figure = figure(&variant).unwrap();
        prop_assert!(figure.min <= figure.median && figure.median <= figure.max);
        let first = ratio(&base, &variant).unwrap();
        prop_assert_eq!(first, ratio(&base, &variant).unwrap());
        let (low, high) = (first.low.unwrap(), first.high.unwrap());
        prop_assert!(low <= first.median && first.median <= high);
        prop_assert!(figure.min / 2.0 <= low && high <= figure.max / 2.0);
    }
}

#[test]
fn a_median_is_the_middle_or_between_the_two() {
    assert_eq!(median(&[2.0, 3.0, 7.0]), 3.0);
    assert_eq!(median(&[2.0, 3.0, 7.0, 9.0]), 5.0);
    assert_eq!(median(&[]), 0.0);
}
