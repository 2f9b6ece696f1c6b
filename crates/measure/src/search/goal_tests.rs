use super::*;
use crate::search::devices::all_sent;

const SECOND: u64 = 1_000_000_000;

/// Goals reach these, with a quarter of four seconds allowed to be bad.
fn quarter() -> Goal {
    Goal {
        loss_ratio: 0.0,
        exceed_ratio: 0.25,
        width: 0.1,
        initial_trial_ns: SECOND / 4,
        final_trial_ns: SECOND,
        duration_sum_ns: 4 * SECOND,
    }
}

/// A trial of 100 packets, so many milliseconds long, of which so many are lost.
fn trial(milliseconds: u64, lost: u64) -> (Trial, Outcome) {
    let trial = Trial {
        load_pps: 100,
        duration_ns: milliseconds * 1_000_000,
    };
    (trial, all_sent(100, 100 - lost))
}

#[test]
fn steps_have_shorter_trials_and_wider_bounds() {
    let steps: Vec<Goal> = quarter().steps().collect();
    let step = |trial_ns, width| Goal {
        width,
        final_trial_ns: trial_ns,
        duration_sum_ns: trial_ns,
        ..quarter()
    };
    assert_eq!(steps, [step(SECOND / 4, 0.4), step(SECOND / 2, 0.2), quarter()]);
    let wide = Goal {
        width: 0.3,
        ..quarter()
    };
    let widths: Vec<f64> = wide.steps().map(|step| step.width).collect();
    assert_eq!(widths, [0.5, 0.5, 0.3]);
}

#[test]
fn loads_are_classified_by_the_time_of_their_trials() {
    let class = |trials: &[(Trial, Outcome)]| classify(&quarter(), trials);
    let [good, bad] = [trial(1000, 0), trial(1000, 1)];
    assert_eq!(class(&[]), Class::Undecided);
    assert_eq!(class(&[good; 2]), Class::Undecided);
    assert_eq!(class(&[good; 3]), Class::Lower);
    assert_eq!(class(&[bad]), Class::Undecided);
    assert_eq!(class(&[bad; 2]), Class::Upper);
    assert_eq!(class(&[bad, good, good, good]), Class::Lower);
    // More time than a goal wants: two of six are more than a quarter.
    assert_eq!(class(&[bad, bad, good, good, good, good]), Class::Upper);
}

#[test]
fn short_trials_count_against_a_load_as_far_as_good_ones_do_not_outweigh_them() {
    let class = |trials: &[(Trial, Outcome)]| classify(&quarter(), trials);
    let [good, bad] = [trial(500, 0), trial(500, 1)];
    assert_eq!(class(&[good; 20]), Class::Undecided, "never for it");
    assert_eq!(class(&[bad; 2]), Class::Undecided);
    assert_eq!(class(&[bad; 3]), Class::Upper);
    assert_eq!(class(&[bad, trial(1000, 1)]), Class::Upper, "with long ones");
    // Good ones of 2 s outweigh bad ones of 2/3 s: 1.6 s less that are below a second, 2 s are not.
    assert_eq!(
        class(&[good, good, good, good, bad, bad, trial(600, 1)]),
        Class::Undecided
    );
    assert_eq!(class(&[good, good, good, good, bad, bad, bad, bad]), Class::Upper);
}

#[test]
fn the_loss_at_a_load_is_that_of_the_worst_trial_that_counts() {
    let loss = |trials: &[(Trial, Outcome)]| conditional_loss_ratio(&quarter(), trials);
    let long = [30, 0, 20, 10].map(|lost| trial(1000, lost));
    assert_eq!(loss(&long), 0.2, "the worst quarter is left out");
    assert_eq!(loss(&long[1..]), 0.2);
    assert_eq!(loss(&long[2..]), 1.0, "missing time is lost");
    let short = [trial(1000, 0), trial(1000, 0), trial(999, 0), trial(999, 0)];
    assert_eq!(loss(&short), 1.0, "short trials do not count");
}
