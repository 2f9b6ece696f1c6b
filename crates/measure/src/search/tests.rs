use proptest::prelude::*;

use super::devices::{all_sent, capacity, disturbed, leaky, run};
use super::*;
use crate::random::SplitMix64;

const SECOND: u64 = 1_000_000_000;

fn range() -> Range {
    Range::new(1_000, 14_880_952).unwrap()
}

fn ndr_and_pdr() -> Vec<Goal> {
    vec![Goal::no_drop_rate(), Goal::partial_drop_rate()]
}

#[test]
fn several_goals_are_found_in_one_search() {
    // 0.1 % is lost at any rate: half a percent can be had up to where the rest is lost over the capacity.
    let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
    let trials = run(&mut search, leaky(2_000_000, 0.001));
    let [ndr, pdr] = search.results().try_into().unwrap();

    assert!(ndr.finished && ndr.lower.is_none() && ndr.throughput_pps.is_none());
    assert_eq!(
        ndr.upper.unwrap().load_pps,
        1_000,
        "not even the lowest rate is without loss"
    );

    let (lower, upper) = (pdr.lower.unwrap().load_pps, pdr.upper.unwrap().load_pps);
    assert!(within(lower, upper, 0.005) && lower < upper);
    // (1 - 0.001) * 2 M / load >= 0.995
    assert!((lower..=upper).contains(&2_008_040), "{lower} to {upper}");
    let forwarded = pdr.throughput_pps.unwrap();
    assert!((1_990_000.0..=2_000_000.0).contains(&forwarded), "{forwarded}");
    assert!(trials.len() < 150, "{}", trials.len());
}

#[test]
fn short_trials_come_first_and_long_ones_only_near_the_bounds() {
    let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
    let trials = run(&mut search, capacity(3_210_987));
    let long: Vec<u64> = trials
        .iter()
        .filter(|(trial, _)| trial.duration_ns == SECOND)
        .map(|(trial, _)| trial.load_pps)
        .collect();
    assert!(
        long.iter().all(|load| (3_100_000..3_350_000).contains(load)),
        "{long:?}"
    );
    assert!(
        trials
            .windows(2)
            .all(|pair| pair[0].0.duration_ns <= pair[1].0.duration_ns)
    );
    // One search for both takes little more than for one: the bounds of one are near the other's.
    let mut alone = Mlr::new(range(), vec![Goal::no_drop_rate()]).unwrap();
    let seconds = |trials: &[(Trial, Outcome)]| trials.iter().map(|(trial, _)| trial.duration_ns).sum::<u64>() / SECOND;
    let alone = seconds(&run(&mut alone, capacity(3_210_987)));
    assert!(
        seconds(&trials) <= alone * 2 + 1,
        "{} s and {alone} s",
        seconds(&trials)
    );
}

#[test]
fn a_minority_of_disturbed_trials_does_no_harm() {
    for seed in 0..20 {
        let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
        run(&mut search, disturbed(5_000_000, 0.15, seed));
        for result in search.results() {
            let found = result.throughput_pps.unwrap();
            assert!(
                result.finished && (4_900_000.0..=5_000_000.0).contains(&found),
                "seed {seed}: {result:?}"
            );
        }
        let mut search = Binary::new(range(), 0.0, 0.005, 5, SECOND).unwrap();
        run(&mut search, disturbed(5_000_000, 0.15, seed));
        let found = search.result().throughput_pps.unwrap();
        assert!((4_900_000..=5_000_000).contains(&found), "seed {seed}: {found}");
    }
}

#[test]
fn without_verification_a_disturbance_is_taken_for_the_limit() {
    // What the verification is good for: RFC 2544's own procedure finds less on many of these.
    let far_off = (0..20)
        .filter(|&seed| {
            let mut search = Binary::new(range(), 0.0, 0.005, 0, SECOND).unwrap();
            run(&mut search, disturbed(5_000_000, 0.15, seed));
            search.result().throughput_pps.unwrap() < 4_950_000
        })
        .count();
    assert!(far_off >= 4, "{far_off}");
}

#[test]
fn a_device_that_loses_less_at_a_higher_rate_is_told_the_lower_bound_below() {
    // Interrupts are held back below 1 M/s, and packets lost; none between 1 M and 2 M; 2 M is the limit.
    let odd = |trial: Trial| {
        let lost = trial.load_pps > 2_000_000 || (500_000..1_000_000).contains(&trial.load_pps);
        all_sent(
            trial.packets(),
            trial.packets() - u64::from(lost) * trial.packets() / 10,
        )
    };
    let mut search = Mlr::new(range(), vec![Goal::no_drop_rate()]).unwrap();
    run(&mut search, odd);
    let [found] = search.results().try_into().unwrap();
    let (lower, upper) = (found.lower.unwrap(), found.upper.unwrap());
    assert!(within(lower.load_pps, upper.load_pps, 0.005));
    assert_eq!(lower.lost_packets, 0);
    assert!(upper.lost_packets > 0);
}

#[test]
fn the_ends_of_the_range_are_results() {
    let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
    let trials = run(&mut search, capacity(100_000_000));
    for result in search.results() {
        assert_eq!((result.lower.unwrap().load_pps, result.upper), (14_880_952, None));
        assert!(result.finished && !result.limited_by_sender());
    }
    assert!(trials.len() < 25, "{}", trials.len());
    let mut search = Binary::new(range(), 0.0, 0.005, 1, SECOND).unwrap();
    assert_eq!(run(&mut search, capacity(100_000_000)).len(), 1);
    assert_eq!(
        (search.result().throughput_pps, search.result().failed_pps),
        (Some(14_880_952), None)
    );

    let dead = |trial: Trial| all_sent(trial.packets(), 0);
    let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
    run(&mut search, dead);
    assert!(
        search
            .results()
            .iter()
            .all(|result| result.finished && result.lower.is_none())
    );
    let mut search = Binary::new(range(), 0.0, 0.005, 1, SECOND).unwrap();
    run(&mut search, dead);
    assert_eq!(
        (search.result().throughput_pps, search.result().failed_pps),
        (None, Some(1_000))
    );
}

#[test]
fn a_sender_that_cannot_is_told_apart_from_a_device_that_loses() {
    let slow_sender = |trial: Trial| {
        let sent = trial.packets().min(1_000_000 * trial.duration_ns / SECOND);
        Outcome {
            intended: trial.packets(),
            sent,
            received: sent,
        }
    };
    let mut search = Mlr::new(range(), vec![Goal::no_drop_rate()]).unwrap();
    run(&mut search, slow_sender);
    assert!(search.results()[0].limited_by_sender());
    let mut search = Binary::new(range(), 0.0, 0.01, 0, SECOND).unwrap();
    run(&mut search, slow_sender);
    assert!(search.result().limited_by_sender());
    let mut search = Binary::new(range(), 0.0, 0.01, 0, SECOND).unwrap();
    run(&mut search, capacity(1_000_000));
    assert!(!search.result().limited_by_sender());
}

#[test]
fn what_is_known_is_told_before_the_end() {
    let mut search = Mlr::new(range(), ndr_and_pdr()).unwrap();
    let mut device = capacity(2_000_000);
    for _ in 0..8 {
        let trial = search.wanted().unwrap();
        search.record(device(trial));
    }
    assert!(search.results().iter().all(|result| !result.finished));
    assert_eq!(search.trials().count(), 8);
}

#[test]
fn the_longest_burst_is_found_again_and_again() {
    // A buffer of 640 packets, and half of the rate is forwarded while the burst comes in.
    let mut random = SplitMix64(7);
    let mut device = |trial: Trial| {
        let packets = trial.packets();
        let room = 1_280 + random.below(9);
        all_sent(packets, packets.min(room))
    };
    let mut search = BackToBack::new(1_000_000, 100_000, 50, 0).unwrap();
    run(&mut search, &mut device);
    let found = search.result().unwrap();
    assert_eq!((found.searches, found.unlimited), (50, 0));
    assert!(found.min_packets >= 1_278 && found.max_packets <= 1_289, "{found:?}");
    assert!((1_279.0..1_289.0).contains(&found.mean_packets));
    // RFC 9004: 1.28 ms, of which half is what was forwarded meanwhile.
    assert!((1.279e6..1.289e6).contains(&found.implied_buffer_ns));
    let corrected = found.corrected_buffer_ns(1_000_000, 500_000.0);
    assert!((639_000.0..645_000.0).contains(&corrected), "{corrected}");

    let mut search = BackToBack::new(1_000_000, 100_000, 3, 0).unwrap();
    run(&mut search, |trial: Trial| all_sent(trial.packets(), trial.packets()));
    assert_eq!(search.result().unwrap().unlimited, 3);
}

#[test]
fn the_loss_curve_ends_after_two_rates_without_loss() {
    let mut search = LossCurve::new(Range::new(1, 1_000_000).unwrap(), 10, SECOND).unwrap();
    run(&mut search, capacity(650_000));
    let points: Vec<(u64, u64)> = search
        .points()
        .iter()
        .map(|point| (point.trial.load_pps, point.outcome.lost()))
        .collect();
    assert_eq!(
        points,
        [
            (1_000_000, 350_000),
            (900_000, 250_000),
            (800_000, 150_000),
            (700_000, 50_000),
            (600_000, 0),
            (500_000, 0)
        ]
    );
    let mut search = LossCurve::new(Range::new(300_000, 1_000_000).unwrap(), 10, SECOND).unwrap();
    run(&mut search, |trial: Trial| all_sent(trial.packets(), 0));
    assert_eq!(search.points().len(), 8);
}

#[test]
fn a_path_that_loses_at_a_low_rate_is_found_unstable() {
    let trial = Trial {
        load_pps: 10_000,
        duration_ns: SECOND,
    };
    let mut check = Stability::new(trial, 20).unwrap();
    run(&mut check, disturbed(5_000_000, 0.3, 3));
    let seen = check.result(0.0);
    assert_eq!(seen.trials, 20);
    assert!(
        !seen.is_stable() && seen.bad_trials > 2 && seen.bad_trials < 12,
        "{seen:?}"
    );
    assert_eq!(seen.lost_packets, seen.bad_trials as u64 * 100);
    assert!(check.result(0.02).is_stable());
    let mut check = Stability::new(trial, 20).unwrap();
    run(&mut check, capacity(20_000));
    assert!(check.result(0.0).is_stable());
    assert!(
        !Stability::new(trial, 20).unwrap().result(0.0).is_stable(),
        "nothing was seen"
    );
}

#[test]
fn nonsense_is_refused_with_what_it_would_take() {
    let refused = |error: crate::Error, part: &str| {
        let text = error.to_string();
        assert!(text.contains(part), "{text}");
    };
    refused(Range::new(0, 5).unwrap_err(), "at least 1");
    refused(Range::new(5, 5).unwrap_err(), "below the higher");
    refused(Mlr::new(range(), vec![]).unwrap_err(), "no goals");
    for goal in [
        Goal {
            loss_ratio: 1.0,
            ..Goal::no_drop_rate()
        },
        Goal {
            exceed_ratio: -0.1,
            ..Goal::no_drop_rate()
        },
        Goal {
            width: f64::NAN,
            ..Goal::no_drop_rate()
        },
        Goal {
            width: 0.0,
            ..Goal::no_drop_rate()
        },
        Goal {
            width: 1.0,
            ..Goal::no_drop_rate()
        },
        Goal {
            initial_trial_ns: 0,
            ..Goal::no_drop_rate()
        },
        Goal {
            initial_trial_ns: 2 * SECOND,
            ..Goal::no_drop_rate()
        },
        Goal {
            duration_sum_ns: 1,
            ..Goal::no_drop_rate()
        },
    ] {
        refused(Mlr::new(range(), vec![goal]).unwrap_err(), "have to be");
    }
    refused(Binary::new(range(), 1.5, 0.1, 0, 1).unwrap_err(), "loss has to be");
    refused(Binary::new(range(), 0.0, f64::NAN, 0, 1).unwrap_err(), "width above 0");
    refused(BackToBack::new(0, 10, 1, 0).unwrap_err(), "at least");
    refused(LossCurve::new(range(), 9, 1).unwrap_err(), "at least 10 steps");
    let trial = Trial {
        load_pps: 1,
        duration_ns: 1,
    };
    refused(Stability::new(trial, 0).unwrap_err(), "at least one trial");
}

#[test]
fn a_trial_sends_at_least_one_packet() {
    let packets = |load_pps, duration_ns| Trial { load_pps, duration_ns }.packets();
    assert_eq!(packets(1, 300_000_000), 1);
    assert_eq!(packets(9, SECOND / 4), 2);
    let trial = Trial {
        load_pps: 1,
        duration_ns: 300_000_000,
    };
    let mut check = Stability::new(trial, 2).unwrap();
    run(&mut check, |trial: Trial| all_sent(trial.packets(), trial.packets()));
    assert!(check.result(0.0).is_stable());
}

#[test]
fn the_second_rate_is_what_was_forwarded_at_the_highest() {
    let second = |duration_ns, device: &dyn Fn(Trial) -> Outcome| {
        let mut search = Binary::new(range(), 0.0, 0.01, 0, duration_ns).unwrap();
        search.record(device(search.wanted().unwrap()));
        search.wanted().unwrap().load_pps
    };
    assert_eq!(second(SECOND, &|trial| all_sent(trial.packets(), 5_000_000)), 5_000_000);
    // A tenth of a packet a second is less than the rates are apart.
    let one_lost = |trial: Trial| all_sent(trial.packets(), trial.packets() - 1);
    assert_eq!(second(10 * SECOND, &one_lost), range().max_pps() - 1);
}

#[test]
fn a_rate_that_passes_when_it_is_tried_again_is_counted() {
    let disturbed_at = |disturbed: &[usize]| {
        let mut search = Binary::new(range(), 0.0, 0.5, 1, SECOND).unwrap();
        let mut number = 0;
        let mut device = capacity(5_000_000);
        let trials = run(&mut search, |trial| {
            number += 1;
            let outcome = device(trial);
            all_sent(
                outcome.intended,
                outcome.received - u64::from(disturbed.contains(&number)),
            )
        });
        let result = search.result();
        assert_eq!(result.trials as usize, trials.len());
        (result.trials, result.passed_by_repetition, result.throughput_pps)
    };
    // The highest rate fails twice, then that of the capacity passes; the two are more than half apart.
    let (trials, repeated, found) = disturbed_at(&[]);
    assert_eq!(repeated, 0);
    assert!(trials > 3 && found.unwrap() <= 5_000_000);
    assert_eq!(disturbed_at(&[3]), (trials + 1, 1, found));
}

#[test]
fn a_search_is_limited_by_the_sender_if_most_is_lost_before_it_is_sent() {
    let limited = |unsent_packets, lost_packets| {
        let failed = Outcome {
            intended: 10,
            sent: 10 - unsent_packets,
            received: 10 - lost_packets,
        };
        let search = Binary::new(range(), 0.0, 0.01, 0, SECOND).unwrap();
        let binary = BinaryResult {
            failed: Some(failed),
            ..search.result()
        };
        let upper = Bound {
            load_pps: 1_000,
            trials: 1,
            intended_packets: 10,
            unsent_packets,
            lost_packets,
        };
        let goal = GoalResult {
            goal: Goal::no_drop_rate(),
            lower: None,
            upper: Some(upper),
            throughput_pps: None,
            finished: false,
        };
        assert_eq!(binary.limited_by_sender(), goal.limited_by_sender());
        goal.limited_by_sender()
    };
    assert!(limited(2, 2));
    assert!(limited(2, 3));
    assert!(!limited(1, 2), "half of it is not most");
    assert!(!limited(0, 2));
}

#[test]
fn the_middle_of_two_rates_lies_between_them() {
    assert_eq!(middle(100, 10_000), 1_000);
    assert_eq!(middle(1, 3), 2);
    // A float has 53 bits: it would be the lower rate, and a higher one than both.
    let large = 1 << 60;
    assert_eq!(middle(large, large + 2), large + 1);
    assert_eq!(middle(large + 198, large + 200), large + 199);
}

#[test]
fn a_share_of_bad_trials_is_told() {
    let trial = Trial {
        load_pps: 100,
        duration_ns: SECOND,
    };
    let mut check = Stability::new(trial, 4).unwrap();
    assert_eq!(check.result(0.0).bad_ratio(), 1.0, "nothing was seen");
    let mut lost = [0, 5, 0, 0, 7].into_iter();
    run(&mut check, |_| all_sent(100, 100 - lost.next().unwrap()));
    let seen = check.result(0.0);
    assert_eq!((seen.trials, seen.bad_trials, seen.bad_ratio()), (4, 1, 0.25));
    check.record(all_sent(100, 0));
    assert_eq!(check.result(0.0), seen, "after the end nothing counts");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever the capacity, both searches bracket it as closely as was asked.
    #[test]
    fn any_capacity_is_bracketed(capacity_pps in 1_001u64..14_880_952, width in 0.0005f64..0.2) {
        let goal = Goal { width, ..Goal::no_drop_rate() };
        let mut search = Mlr::new(range(), vec![goal]).unwrap();
        run(&mut search, capacity(capacity_pps));
        let [found] = search.results().try_into().unwrap();
        let (lower, upper) = (found.lower.unwrap().load_pps, found.upper.unwrap().load_pps);
        prop_assert!(lower <= capacity_pps && capacity_pps < upper && within(lower, upper, width));

        let mut search = Binary::new(range(), 0.0, width, 1, SECOND).unwrap();
        run(&mut search, capacity(capacity_pps));
        let (lower, upper) = (search.result().throughput_pps.unwrap(), search.result().failed_pps.unwrap());
        prop_assert!(lower <= capacity_pps && capacity_pps < upper && within(lower, upper, width));
    }

}
