//! Several loss goals in one search.
//!
//! All goals share all trials, so a second goal takes little time more. They are approached in steps, each with longer trials and narrower bounds than the one before,
//! and each step for all goals before the next: what long trials are spent on is then nearly right already.
//!
//! ```text
//!   trials of 0.2 s    0.45 s     1 s, 21 s a load
//!   ├───────────────┬──────────┬──────────────────┤
//!   width × 4        × 2        as asked
//! ```
//!
//! A step begins with the bounds of the step before as a guess: in the middle of them if they are too far apart, then with the one
//! that is still needed. From a guess that does not hold, or has nothing beyond it, the search goes on in growing strides;
//! between two bounds it takes the middle. Which bounds a result has does not depend on the way they were found, only
//! on the trials: the lowest load that is an upper bound, and the highest below it that is a lower one. So a device that loses
//! less at a higher rate does no harm.

use std::collections::BTreeMap;

use super::goal::{Class, Goal, classify, conditional_loss_ratio};
use super::{Outcome, Range, Search, Trial, within};
use crate::Error;

/// A search for several goals.
#[derive(Debug)]
pub struct Mlr {
    range: Range,
    goals: Vec<Goal>,
    /// (index of the goal, the goal at a step), in the order in which they are reached.
    plan: Vec<(usize, Goal)>,
    /// Index into `plan`.
    at: usize,
    trials: BTreeMap<u64, Vec<(Trial, Outcome)>>,
    /// Where each goal's bounds were after its last step: where the next one begins.
    last: Vec<(Option<u64>, Option<u64>)>,
    /// Tried before anything else.
    guess: Option<u64>,
    course: Course,
    /// Strides on this course.
    strides: i32,
    wanted: Option<Trial>,
}

/// Where the last trial was going to.
#[derive(Debug, Clone, Copy)]
enum Course {
    /// Between two bounds.
    Between,
    /// To a guess: go up from it if it is a lower bound, down if it is an upper one.
    Guess(u64),
    /// Up, from a lower bound.
    Up(u64),
    /// Down, from an upper bound.
    Down(u64),
}

/// A rate that was decided, with what it was decided by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Packets per second.
    pub load_pps: u64,
    /// Trials at this rate, of any duration.
    pub trials: usize,
    /// Packets that were to be sent in them.
    pub intended_packets: u64,
    /// Packets that the sender did not get out.
    pub unsent_packets: u64,
    /// Packets that were lost, those unsent included.
    pub lost_packets: u64,
}

/// What was found for one goal.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The highest rate that reaches it, below `upper`. None: not even the lowest of the range does, or the search was
    /// stopped before.
    pub lower: Option<Bound>,
    /// The lowest rate that does not. None: the highest of the range does, or the search was stopped before.
    pub upper: Option<Bound>,
    /// What is forwarded at `lower`, in packets per second: its rate less the loss that is allowed there and was seen
    /// ("conditional throughput").
    pub throughput_pps: Option<f64>,
    /// The bounds are as close as was asked for, or at an end of the range.
    pub finished: bool,
}

impl GoalResult {
    /// The upper bound is one because the sender did not get out what it was to send: what is told is the sender's limit.
    #[must_use]
    pub fn limited_by_sender(&self) -> bool {
        self.upper
            .is_some_and(|upper| upper.unsent_packets * 2 > upper.lost_packets)
    }
}

impl Mlr {
    /// Searches in `range` for each of `goals`.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] if there is no goal, or one of them is none.
    pub fn new(range: Range, goals: Vec<Goal>) -> Result<Self, Error> {
        if goals.is_empty() {
            return Err(Error::Search("no goals: give at least one loss ratio".to_owned()));
        }
        goals.iter().try_for_each(Goal::check)?;
        let steps: Vec<Vec<Goal>> = goals.iter().map(|goal| goal.steps().collect()).collect();
        // The finest first: its bounds are likely to serve the others.
        let mut order: Vec<usize> = (0..goals.len()).collect();
        order.sort_by(|a, b| goals[*a].width.total_cmp(&goals[*b].width));
        let plan = (0..steps[0].len()).flat_map(|step| order.iter().map(move |&goal| (goal, step)));
        let plan = plan.map(|(goal, step)| (goal, steps[goal][step])).collect();
        let mut search = Self {
            range,
            last: vec![(None, None); goals.len()],
            goals,
            plan,
            at: 0,
            trials: BTreeMap::new(),
            guess: Some(range.max_pps),
            course: Course::Between,
            strides: 0,
            wanted: None,
        };
        search.wanted = search.choose();
        Ok(search)
    }

    /// What is known of each goal, in the order in which they were given; also before the search is over.
    #[must_use]
    pub fn results(&self) -> Vec<GoalResult> {
        self.goals
            .iter()
            .map(|goal| {
                let (lower, upper) = self.bounds(goal);
                GoalResult {
                    goal: *goal,
                    lower: lower.map(|load| self.bound(load)),
                    upper: upper.map(|load| self.bound(load)),
                    #[allow(clippy::cast_precision_loss, reason = "a rate")]
                    throughput_pps: lower
                        .map(|load| load as f64 * (1.0 - conditional_loss_ratio(goal, &self.trials[&load]))),
                    finished: self.reached(goal, lower, upper),
                }
            })
            .collect()
    }

    /// All trials so far with what came of them, by rate.
    pub fn trials(&self) -> impl Iterator<Item = &(Trial, Outcome)> {
        self.trials.values().flatten()
    }

    fn bound(&self, load_pps: u64) -> Bound {
        let trials = &self.trials[&load_pps];
        let sum = |of: fn(&Outcome) -> u64| trials.iter().map(|(_, outcome)| of(outcome)).sum();
        Bound {
            load_pps,
            trials: trials.len(),
            intended_packets: sum(|outcome| outcome.intended),
            unsent_packets: sum(Outcome::unsent),
            lost_packets: sum(Outcome::lost),
        }
    }

    /// The lowest load that is an upper bound, and the highest lower bound below it.
    fn bounds(&self, goal: &Goal) -> (Option<u64>, Option<u64>) {
        let mut lower = None;
        for (&load, trials) in &self.trials {
            match classify(goal, trials) {
                Class::Upper => return (lower, Some(load)),
                Class::Lower => lower = Some(load),
                Class::Undecided => {}
            }
        }
        (lower, None)
    }

    fn reached(&self, goal: &Goal, lower: Option<u64>, upper: Option<u64>) -> bool {
        match (lower, upper) {
            (Some(lower), Some(upper)) => within(lower, upper, goal.width),
            (Some(lower), None) => lower == self.range.max_pps,
            (None, Some(upper)) => upper == self.range.min_pps,
            (None, None) => false,
        }
    }

    /// The next trial, going on to the next step, or the next goal's, when one is reached.
    fn choose(&mut self) -> Option<Trial> {
        loop {
            let Some(&(index, goal)) = self.plan.get(self.at) else {
                self.at = self.moved()?;
                continue;
            };
            let (lower, upper) = self.bounds(&goal);
            if !self.reached(&goal, lower, upper) {
                let load_pps = self.candidate(&goal, index, lower, upper);
                return Some(Trial {
                    load_pps,
                    duration_ns: goal.final_trial_ns,
                });
            }
            self.last[index] = (lower, upper);
            self.at += 1;
            self.course = Course::Between;
        }
    }

    /// The last step of a goal that was reached, but whose bounds later trials for other goals moved.
    /// This ends: trials are only at rates that are not decided yet, and a decided rate gets no more.
    fn moved(&self) -> Option<usize> {
        self.plan.iter().position(|(index, goal)| {
            let (lower, upper) = self.bounds(goal);
            *goal == self.goals[*index] && !self.reached(goal, lower, upper)
        })
    }

    fn candidate(&mut self, goal: &Goal, index: usize, lower: Option<u64>, upper: Option<u64>) -> u64 {
        let between = |load: &u64| lower.is_none_or(|lower| lower < *load) && upper.is_none_or(|upper| *load < upper);
        // Whatever was begun between the bounds is decided first, the lowest of them.
        let begun =
            |trials: &Vec<(Trial, Outcome)>| trials.iter().any(|(trial, _)| trial.duration_ns >= goal.final_trial_ns);
        if let Some((&load, _)) = self.trials.iter().find(|(load, trials)| between(load) && begun(trials)) {
            return load;
        }
        if let Some(load) = self.guess.take().filter(between) {
            self.course = Course::Guess(load);
            return load;
        }
        let (last_lower, last_upper) = self.last[index];
        match (last_lower.filter(between), last_upper.filter(between)) {
            (None, None) => self.beyond(goal, lower, upper),
            (guessed_lower, guessed_upper) => {
                let load = match (guessed_lower.or(lower), guessed_upper.or(upper)) {
                    (Some(low), Some(high)) if !within(low, high, goal.width) => split(low, high, goal.width),
                    _ => guessed_lower.or(guessed_upper).unwrap_or(self.range.max_pps),
                };
                self.course = Course::Guess(load);
                self.strides = 0;
                load
            }
        }
    }

    /// Where nothing was guessed.
    fn beyond(&mut self, goal: &Goal, lower: Option<u64>, upper: Option<u64>) -> u64 {
        let between = lower.zip(upper).map(|(lower, upper)| split(lower, upper, goal.width));
        let (up, down) = match self.course {
            Course::Between => (None, None),
            Course::Guess(load) => (
                lower.filter(|lower| *lower == load),
                upper.filter(|upper| *upper == load),
            ),
            Course::Up(from) => (lower.filter(|lower| *lower != from), None),
            Course::Down(from) => (None, upper.filter(|upper| *upper != from)),
        };
        let (up, down) = match (up, down, between) {
            // A bound on one side only: there is but one way to go.
            (_, _, None) => (lower, upper),
            (up, down, Some(_)) => (up, down),
        };
        if let Some(from) = up {
            self.course = Course::Up(from);
            let load = self.stride(from, 1.0 / (1.0 - goal.width)).max(from + 1);
            return between.map_or(load, |middle| middle.min(load));
        }
        if let Some(from) = down {
            self.course = Course::Down(from);
            let load = self.stride(from, 1.0 - goal.width).min(from - 1);
            return between.map_or(load, |middle| middle.max(load));
        }
        self.course = Course::Between;
        self.strides = 0;
        between.unwrap_or(self.range.max_pps)
    }

    /// A stride away from a bound; each is twice the one before.
    fn stride(&mut self, bound: u64, factor: f64) -> u64 {
        let stride = factor.powi(1 << self.strides.min(16));
        self.strides += 1;
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        self.range.clamp(bound as f64 * stride)
    }
}

/// Half-way between two bounds, in whole widths from the lower one: that takes no more trials than the exact middle, and leaves
/// bounds that are as far apart as they may be, on which another goal's are more likely to lie.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate between two others"
)]
fn split(low: u64, high: u64, width: f64) -> u64 {
    let one = -(-width).ln_1p();
    let widths = ((high as f64 / low as f64).ln() / one).ceil();
    let load = low as f64 * ((widths / 2.0).floor() * one).exp();
    (load as u64).max(low + 1)
}

impl Search for Mlr {
    fn wanted(&self) -> Option<Trial> {
        self.wanted
    }

    fn record(&mut self, outcome: Outcome) {
        let Some(trial) = self.wanted else { return };
        let first = self.trials.is_empty();
        self.trials.entry(trial.load_pps).or_default().push((trial, outcome));
        if first {
            // What was forwarded at the highest rate is a good guess of what can be without loss.
            #[allow(clippy::cast_precision_loss, reason = "a rate")]
            let forwarded = self.range.clamp(trial.load_pps as f64 * (1.0 - outcome.loss_ratio()));
            self.guess = Some(forwarded);
        }
        self.wanted = self.choose();
    }
}

#[cfg(test)]
#[path = "mlr_tests.rs"]
mod tests;
