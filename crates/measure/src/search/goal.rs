//! A loss goal, and what trials at one load say about it.
//!
//! By the definitions of MLRsearch: a load is a lower bound of a goal if no trials that are still missing could make it fail, an
//! upper bound if none could make it pass. What "pass" means is in terms of time, not of trials: the goal is exceeded when
//! trials with too much loss have more than a share (the exceed ratio) of the time.
//! <https://datatracker.ietf.org/doc/draft-ietf-bmwg-mlrsearch/>

use super::{Outcome, Trial};
use crate::Error;

/// How much loss is allowed, how sure one wants to be, and how exact.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Goal {
    /// Loss ratio that a trial may have, 0 to less than 1.
    pub loss_ratio: f64,
    /// Share of the time in which trials may have more loss, 0 to less than 1. With 0.5 a minority of bad trials does no
    /// harm.
    pub exceed_ratio: f64,
    /// How far apart lower and upper bound may be in the end, relative to the upper one.
    pub width: f64,
    /// Duration of the first trials, in ns.
    pub initial_trial_ns: u64,
    /// Duration of the trials that count, in ns.
    pub final_trial_ns: u64,
    /// Time of trials after which a load is certainly decided, in ns.
    pub duration_sum_ns: u64,
}

impl Goal {
    /// Steps from [`initial_trial_ns`](Self::initial_trial_ns) to [`final_trial_ns`](Self::final_trial_ns), each with a finer width.
    const STEPS: u32 = 3;

    /// No loss at all; trials of 1 s at the end, 21 s of them, bounds 0.5 % apart.
    #[must_use]
    pub fn no_drop_rate() -> Self {
        Self {
            loss_ratio: 0.0,
            exceed_ratio: 0.5,
            width: 0.005,
            initial_trial_ns: 200_000_000,
            final_trial_ns: 1_000_000_000,
            duration_sum_ns: 21_000_000_000,
        }
    }

    /// The same with half a percent of loss allowed.
    #[must_use]
    pub fn partial_drop_rate() -> Self {
        Self {
            loss_ratio: 0.005,
            ..Self::no_drop_rate()
        }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        if share(self.loss_ratio)
            && share(self.exceed_ratio)
            && self.width > 0.0
            && self.width < 1.0
            && self.initial_trial_ns > 0
            && self.initial_trial_ns <= self.final_trial_ns
            && self.final_trial_ns <= self.duration_sum_ns
        {
            return Ok(());
        }
        Err(Error::Search(format!(
            "the goal of {} % loss: loss and exceed ratio have to be from 0 to below 1 (they are {} and {}), the width above 0 and below 1 \
             ({}), the times 0 < initial trial ≤ final trial ≤ sum ({}, {} and {} ns)",
            self.loss_ratio * 100.0,
            self.loss_ratio,
            self.exceed_ratio,
            self.width,
            self.initial_trial_ns,
            self.final_trial_ns,
            self.duration_sum_ns
        )))
    }

    /// What this goal is on its way to itself: with shorter trials, one of them a load, and wider bounds.
    pub(super) fn steps(&self) -> impl Iterator<Item = Goal> {
        let goal = *self;
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a duration between two others"
        )]
        (0..Self::STEPS).map(move |step| {
            let left = Self::STEPS - 1 - step;
            if left == 0 {
                return goal;
            }
            let growth = goal.final_trial_ns as f64 / goal.initial_trial_ns as f64;
            let share = f64::from(step) / f64::from(Self::STEPS - 1);
            let trial_ns = (goal.initial_trial_ns as f64 * growth.powf(share)) as u64;
            Goal {
                width: (goal.width * f64::from(1u32 << left)).min(0.5),
                final_trial_ns: trial_ns,
                duration_sum_ns: trial_ns,
                ..goal
            }
        })
    }
}

/// What the trials at a load make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It reaches the goal, whatever trials would follow.
    Lower,
    /// It does not.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// Nanoseconds of trials at one load: long ones and shorter ones, within the loss ratio and above it.
#[derive(Debug, Default)]
struct Sums {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
}

/// What all trials at one load make of it for `goal`.
///
/// Trials shorter than [`Goal::final_trial_ns`] count against the load only as far as good ones of that kind do not outweigh
/// them, and never for it.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "durations are far below 2^53 ns")]
pub fn classify(goal: &Goal, trials: &[(Trial, Outcome)]) -> Class {
    let mut sums = Sums::default();
    for (trial, outcome) in trials {
        let sum = match (
            trial.duration_ns >= goal.final_trial_ns,
            outcome.loss_ratio() > goal.loss_ratio,
        ) {
            (true, false) => &mut sums.good_long,
            (true, true) => &mut sums.bad_long,
            (false, false) => &mut sums.good_short,
            (false, true) => &mut sums.bad_short,
        };
        *sum += trial.duration_ns as f64;
    }
    let balanced = sums.good_short * goal.exceed_ratio / (1.0 - goal.exceed_ratio);
    let bad = sums.bad_long + (sums.bad_short - balanced).max(0.0);
    let whole = (sums.good_long + bad).max(goal.duration_sum_ns as f64);
    let allowed = whole * goal.exceed_ratio;
    let pessimist = whole - sums.good_long <= allowed;
    let optimist = bad <= allowed;
    match (pessimist, optimist) {
        (true, _) => Class::Lower,
        (false, true) => Class::Undecided,
        (false, false) => Class::Upper,
    }
}

/// The loss ratio at a load that stands for all trials there: the one that no more than the exceed ratio's share of the time was
/// above; time that is missing counts as lost.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "durations are far below 2^53 ns")]
pub fn conditional_loss_ratio(goal: &Goal, trials: &[(Trial, Outcome)]) -> f64 {
    let mut long: Vec<(f64, f64)> = trials
        .iter()
        .filter(|(trial, _)| trial.duration_ns >= goal.final_trial_ns)
        .map(|(trial, outcome)| (outcome.loss_ratio(), trial.duration_ns as f64))
        .collect();
    long.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let measured: f64 = long.iter().map(|(_, time)| time).sum();
    let mut left = measured.max(goal.duration_sum_ns as f64) * (1.0 - goal.exceed_ratio);
    for (ratio, time) in long {
        left -= time;
        if left <= 0.0 {
            return ratio;
        }
    }
    1.0
}

#[cfg(test)]
#[path = "goal_tests.rs"]
mod tests;
