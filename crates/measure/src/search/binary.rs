//! The classic search for the highest rate, with loss verification.

use super::{Outcome, Range, Search, Trial, middle, within};
use crate::Error;

/// RFC 2544, section 26.1: the highest rate at which no more than a given share is lost, by halving.
///
/// A trial that lost too much is repeated up to `verify` times at the same rate, and the rate passes if one of them is good:
/// one disturbance of a virtual machine does not end up as a device's limit (ETSI GS NFV-TST 009, section 12.3.3). With
/// `verify` 0 it is RFC 2544's own procedure.
/// <https://datatracker.ietf.org/doc/html/rfc2544#section-26.1>
#[derive(Debug)]
pub struct Binary {
    range: Range,
    loss_ratio: f64,
    width: f64,
    verify: u32,
    duration_ns: u64,
    /// Highest that passed, lowest that failed.
    passed: Option<(u64, Outcome)>,
    failed: Option<(u64, Outcome)>,
    /// Trials at the current rate that failed.
    repeated: u32,
    trials: u32,
    verified: u32,
    wanted: Option<u64>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BinaryResult {
    /// The highest rate that passed, in packets per second; `None`: not even the lowest did.
    pub throughput_pps: Option<u64>,
    /// The last trial there.
    pub passed: Option<Outcome>,
    /// The lowest rate that failed; `None`: the highest of the range passed.
    pub failed_pps: Option<u64>,
    /// The last trial there.
    pub failed: Option<Outcome>,
    /// Trials that were run.
    pub trials: u32,
    /// Rates that passed only when they were tried again.
    pub passed_by_repetition: u32,
    /// The search came to its end.
    pub finished: bool,
}

impl BinaryResult {
    /// The lowest rate failed because the sender did not get out what it was to send: what is told is the sender's limit.
    #[must_use]
    pub fn limited_by_sender(&self) -> bool {
        self.failed.is_some_and(|failed| failed.unsent() * 2 > failed.lost())
    }
}

impl Binary {
    /// Searches `range` until the bounds are no more than `width` (of the upper one) apart, with trials of `duration_ns`.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] if the loss ratio is not from 0 to below 1, the width not above 0 and below 1, or the duration 0.
    pub fn new(range: Range, loss_ratio: f64, width: f64, verify: u32, duration_ns: u64) -> Result<Self, Error> {
        if !(0.0..1.0).contains(&loss_ratio) || width <= 0.0 || width >= 1.0 || width.is_nan() || duration_ns == 0 {
            return Err(Error::Search(format!(
                "a binary search for {loss_ratio} loss, exact to {width}, with trials of {duration_ns} ns: the loss has to be from 0 to \
                 below 1, the width above 0 and below 1, the trials at least 1 ns"
            )));
        }
        Ok(Self {
            range,
            loss_ratio,
            width,
            verify,
            duration_ns,
            passed: None,
            failed: None,
            repeated: 0,
            trials: 0,
            verified: 0,
            wanted: Some(range.max_pps()),
        })
    }

    /// What is known; also before the search is over.
    #[must_use]
    pub fn result(&self) -> BinaryResult {
        BinaryResult {
            throughput_pps: self.passed.map(|(load, _)| load),
            passed: self.passed.map(|(_, outcome)| outcome),
            failed_pps: self.failed.map(|(load, _)| load),
            failed: self.failed.map(|(_, outcome)| outcome),
            trials: self.trials,
            passed_by_repetition: self.verified,
            finished: self.wanted.is_none(),
        }
    }

    fn next(&self) -> Option<u64> {
        match (self.passed, self.failed) {
            (Some((low, _)), Some((high, _))) => (!within(low, high, self.width)).then(|| middle(low, high)),
            // The highest passed: there is nothing above it.
            (Some(_), None) => None,
            // RFC 2544 leaves open where to go on. What was forwarded at the highest rate is a good guess.
            (None, Some((high, outcome))) if self.is_first(high) => {
                #[allow(clippy::cast_precision_loss, reason = "a rate")]
                let forwarded = self.range.clamp(high as f64 * (1.0 - outcome.loss_ratio()));
                Some(forwarded.min(high - 1))
            }
            (None, Some((high, _))) if within(self.range.min_pps(), high, self.width) => {
                (high != self.range.min_pps()).then_some(self.range.min_pps())
            }
            (None, Some((high, _))) => Some(middle(self.range.min_pps(), high)),
            (None, None) => Some(self.range.max_pps()),
        }
    }

    fn is_first(&self, load: u64) -> bool {
        load == self.range.max_pps()
    }
}

impl Search for Binary {
    fn wanted(&self) -> Option<Trial> {
        self.wanted.map(|load_pps| Trial {
            load_pps,
            duration_ns: self.duration_ns,
        })
    }

    fn record(&mut self, outcome: Outcome) {
        let Some(load) = self.wanted else { return };
        self.trials += 1;
        if outcome.loss_ratio() <= self.loss_ratio {
            self.verified += u32::from(self.repeated > 0);
            self.passed = Some((load, outcome));
        } else if self.repeated < self.verify {
            self.repeated += 1;
            return;
        } else {
            self.failed = Some((load, outcome));
        }
        self.repeated = 0;
        self.wanted = self.next();
    }
}
