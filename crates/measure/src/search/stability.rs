//! Does it lose packets even at a low rate?

use super::{Outcome, Search, Trial};
use crate::Error;

/// Short trials at a rate that everything should sustain. Virtual machines are known to lose packets there, now and then;
/// a search for the highest rate without loss would then find whatever chance has it (<https://arxiv.org/abs/2410.18644>).
#[derive(Debug)]
pub struct Stability {
    trial: Trial,
    left: u32,
    outcomes: Vec<Outcome>,
}

/// What was seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StabilityResult {
    /// Trials that were run.
    pub trials: usize,
    /// Trials that lost more than was allowed.
    pub bad_trials: usize,
    /// Packets that were to be sent, in all.
    pub intended_packets: u64,
    /// Packets that were lost, in all.
    pub lost_packets: u64,
    /// Of these, those that were not sent.
    pub unsent_packets: u64,
}

impl StabilityResult {
    /// No trial lost more than was allowed.
    #[must_use]
    pub fn is_stable(&self) -> bool {
        self.trials > 0 && self.bad_trials == 0
    }

    /// The share of trials that are bad though the rate is low. A search whose goal lets so many trials be bad (its exceed
    /// ratio) can still be believed.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn bad_ratio(&self) -> f64 {
        if self.trials == 0 {
            1.0
        } else {
            self.bad_trials as f64 / self.trials as f64
        }
    }
}

impl Stability {
    /// `trials` trials of this kind.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] if there is no trial.
    pub fn new(trial: Trial, trials: u32) -> Result<Self, Error> {
        if trials == 0 {
            return Err(Error::Search("a stability check needs at least one trial".into()));
        }
        Ok(Self {
            trial,
            left: trials,
            outcomes: Vec::new(),
        })
    }

    /// What was seen so far, with `loss_ratio` allowed in a trial.
    #[must_use]
    pub fn result(&self, loss_ratio: f64) -> StabilityResult {
        let sum = |of: fn(&Outcome) -> u64| self.outcomes.iter().map(of).sum();
        StabilityResult {
            trials: self.outcomes.len(),
            bad_trials: self
                .outcomes
                .iter()
                .filter(|outcome| outcome.loss_ratio() > loss_ratio)
                .count(),
            intended_packets: sum(|outcome| outcome.intended),
            lost_packets: sum(Outcome::lost),
            unsent_packets: sum(Outcome::unsent),
        }
    }
}

impl Search for Stability {
    fn wanted(&self) -> Option<Trial> {
        (self.left > 0).then_some(self.trial)
    }

    fn record(&mut self, outcome: Outcome) {
        if self.left > 0 {
            self.left -= 1;
            self.outcomes.push(outcome);
        }
    }
}
