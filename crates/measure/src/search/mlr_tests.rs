use std::collections::BTreeSet;

use proptest::prelude::*;

use super::super::devices::{all_sent, capacity, run, uniform};
use super::*;
use crate::random::SplitMix64;

const SECOND: u64 = 1_000_000_000;

/// Trials of a search from 10 to 10,000 packets/s, exact to a tenth: milliseconds and rate. A device forwards `short`
/// packets/s in trials of less than a second, and `long` in others.
fn course(short: u64, long: u64) -> Vec<(u64, u64)> {
    let goal = Goal {
        width: 0.1,
        duration_sum_ns: SECOND,
        ..Goal::no_drop_rate()
    };
    let mut search = Mlr::new(Range::new(10, 10_000).unwrap(), vec![goal]).unwrap();
    let trials = run(&mut search, |trial| {
        let is_short = trial.duration_ns < SECOND;
        capacity(if is_short { short } else { long })(trial)
    });
    let [found] = search.results().try_into().unwrap();
    assert!(found.lower.unwrap().load_pps <= long && long < found.upper.unwrap().load_pps);
    trials
        .iter()
        .map(|(trial, _)| (trial.duration_ns / 1_000_000, trial.load_pps))
        .collect()
}

#[test]
fn a_search_goes_from_what_was_forwarded_to_bounds_that_are_closer_in_each_step() {
    // Each step halves what is between its bounds, in whole widths from the lower one.
    let steps = [
        (200, 10_000),
        (200, 3_000),
        (200, 5_000),
        (447, 3_750),
        (447, 3_000),
        (1000, 3_333),
        (1000, 3_000),
    ];
    assert_eq!(course(3_000, 3_000), steps);
}

#[test]
fn a_search_that_short_trials_mislead_goes_on_in_growing_strides() {
    // Short trials forward more: from 6,000 down by 1, 2, 4, 8 and 16 widths, then it halves again.
    let down = [
        (200, 10_000),
        (200, 6_000),
        (447, 7_500),
        (447, 6_000),
        (1000, 6_666),
        (1000, 6_000),
        (1000, 5_400),
        (1000, 4_374),
        (1000, 2_870),
        (1000, 1_235),
        (1000, 229),
        (1000, 531),
        (1000, 809),
        (1000, 998),
        (1000, 1_108),
    ];
    assert_eq!(course(6_000, 1_000), down);
    // They forward less: from 1,250 up by 1, 2, 4 and 8 widths.
    let up = [
        (200, 10_000),
        (200, 1_000),
        (200, 1_667),
        (447, 1_250),
        (447, 1_000),
        (1000, 1_111),
        (1000, 1_234),
        (1000, 1_250),
        (1000, 1_389),
        (1000, 1_715),
        (1000, 2_614),
        (1000, 6_072),
        (1000, 3_984),
        (1000, 3_227),
        (1000, 2_904),
    ];
    assert_eq!(course(1_000, 3_000), up);
}

#[test]
fn a_search_that_was_told_too_little_goes_up_in_growing_strides_below_a_known_limit() {
    // Where it is asked for more than 3,000 packets/s, the device forwards 100 only.
    let goal = Goal {
        width: 0.1,
        duration_sum_ns: SECOND,
        ..Goal::no_drop_rate()
    };
    let mut search = Mlr::new(Range::new(10, 10_000).unwrap(), vec![goal]).unwrap();
    let trials = run(&mut search, |trial| match trial.load_pps {
        ..=3_000 => capacity(3_000)(trial),
        _ => capacity(100)(trial),
    });
    let first: Vec<u64> = trials.iter().take(8).map(|(trial, _)| trial.load_pps).collect();
    assert_eq!(first, [10_000, 100, 167, 464, 2_148, 5_966, 3_580, 2_685]);
}

#[test]
fn a_stride_of_less_than_a_packet_goes_up_by_one() {
    let goal = Goal {
        width: 0.01,
        initial_trial_ns: 10 * SECOND,
        final_trial_ns: 10 * SECOND,
        duration_sum_ns: 10 * SECOND,
        ..Goal::no_drop_rate()
    };
    let mut search = Mlr::new(Range::new(1, 100).unwrap(), vec![goal]).unwrap();
    // At more than 20 packets/s the device forwards 3. A width above 3 is less than 4.
    let trials = run(&mut search, |trial| match trial.load_pps {
        ..=20 => capacity(20)(trial),
        _ => capacity(3)(trial),
    });
    let first: Vec<u64> = trials.iter().take(5).map(|(trial, _)| trial.load_pps).collect();
    assert_eq!(first, [100, 3, 4, 5, 6]);
}

#[test]
fn a_search_that_was_told_too_much_goes_down_in_growing_strides_above_a_known_rate() {
    let goal = Goal {
        width: 0.1,
        duration_sum_ns: SECOND,
        ..Goal::no_drop_rate()
    };
    let lenient = Goal {
        loss_ratio: 0.9,
        ..goal
    };
    let mut search = Mlr::new(Range::new(10, 10_000).unwrap(), vec![goal, lenient]).unwrap();
    // Of more than 150 packets/s it forwards 100 in short trials and 1 in long ones.
    let trials = run(&mut search, |trial| match (trial.load_pps, trial.duration_ns) {
        (..=150, _) | (_, 200_000_000) => capacity(100)(trial),
        _ => capacity(1)(trial),
    });
    let second_step: Vec<u64> = trials
        .iter()
        .filter(|(trial, _)| trial.duration_ns < SECOND)
        .map(|(trial, _)| trial.load_pps)
        .skip(7)
        .collect();
    // Its bounds were 771 and 1,285, and the other goal's are 100 and 125, which is a rate without too much loss here.
    assert_eq!(second_step, [125, 100, 963, 771, 617, 395, 244, 156]);
}

#[test]
fn rates_are_split_in_whole_widths_from_the_lower_one() {
    assert_eq!(split(1_000, 8_000, 0.5), 2_000, "three widths");
    assert_eq!(split(1_000, 8_001, 0.5), 4_000, "more than three");
    assert_eq!(
        split(10, 12, 0.09),
        11,
        "a width above the lower one is less than a packet"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever short trials say, a search finds what the long ones do, also where rates are next to each other.
    #[test]
    fn short_trials_do_not_mislead_a_search(short in 1u64..2_000, long in 1u64..2_000, width in 0.0005f64..0.2) {
        let goal = Goal { width, ..Goal::no_drop_rate() };
        let mut search = Mlr::new(Range::new(1, 2_000).unwrap(), vec![goal]).unwrap();
        let trials = run(&mut search, |trial| {
            capacity(if trial.duration_ns < SECOND { short } else { long })(trial)
        });
        let [found] = search.results().try_into().unwrap();
        let (lower, upper) = (found.lower.unwrap().load_pps, found.upper.unwrap().load_pps);
        prop_assert!(found.finished && lower <= long && long < upper && within(lower, upper, width));
        // A trial that is not of the full duration decides a rate: none is repeated.
        let short: Vec<_> = trials.iter().map(|(trial, _)| *trial).filter(|trial| trial.duration_ns < SECOND).collect();
        let again = |trial: &Trial| short.iter().filter(|other| *other == trial).count() > 1;
        prop_assert!(!short.iter().any(again), "{short:?}");
        // Each of three steps doubles its strides or halves what is left: far fewer rates than there are.
        let rates = trials.iter().map(|(trial, _)| trial.load_pps).collect::<BTreeSet<_>>().len();
        prop_assert!(rates <= 60, "{rates} rates");
    }

    #[test]
    fn any_device_is_borne(seed: u64, loss_ratio in 0.0f64..0.5, exceed_ratio in 0.0f64..0.9) {
        is_borne(seed, loss_ratio, exceed_ratio)?;
    }
}

/// Found by the test above: trials for the second goal move the bounds of the first, which was reached.
#[test]
fn a_goal_whose_bounds_another_one_moves_is_searched_again() {
    is_borne(200_785_469_726_461_697, 0.333_868_923_135_376_6, 0.0).unwrap();
}

/// Whatever a device does, a search ends, and its bounds are what the trials say.
fn is_borne(seed: u64, loss_ratio: f64, exceed_ratio: f64) -> Result<(), TestCaseError> {
    let mut random = SplitMix64(seed);
    let goal = Goal {
        loss_ratio,
        exceed_ratio,
        ..Goal::no_drop_rate()
    };
    let range = Range::new(10, 100_000).unwrap();
    let mut search = Mlr::new(range, vec![goal, Goal::no_drop_rate()]).unwrap();
    let trials = run(&mut search, |trial| {
        let (sent, is_lossy) = (trial.packets(), uniform(&mut random) < 0.5);
        let lost = if is_lossy { sent.min(1 + sent / 3) } else { 0 };
        all_sent(sent, sent - lost)
    });
    let durations = trials.iter().map(|(trial, _)| trial.duration_ns);
    prop_assert!(durations.is_sorted(), "steps are not begun again");
    for result in search.results() {
        prop_assert!(result.finished, "{result:?}");
        let at = |load: u64| {
            let at_load = trials.iter().filter(|(trial, _)| trial.load_pps == load);
            at_load.copied().collect::<Vec<_>>()
        };
        if let Some(lower) = result.lower {
            let lower = at(lower.load_pps);
            prop_assert_eq!(classify(&result.goal, &lower), Class::Lower);
            prop_assert!(conditional_loss_ratio(&result.goal, &lower) <= result.goal.loss_ratio);
        }
        if let Some(upper) = result.upper {
            prop_assert_eq!(classify(&result.goal, &at(upper.load_pps)), Class::Upper);
        }
    }
    Ok(())
}
