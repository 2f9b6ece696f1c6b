//! Which rate does it sustain? Searches that say which trial is to be run next.
//!
//! A search knows no packets: it asks for a [`Trial`], is told what came of it as an [`Outcome`], and asks for the next one
//! until it knows enough.
//!
//! | question | search |
//! |---|---|
//! | the highest rate without loss, or with at most so much of it | [`Binary`]: RFC 2544, section 26.1, with repeated trials (ETSI GS NFV-TST 009, "binary search with loss verification") |
//! | the same for several loss ratios, in less time | [`Mlr`]: MLRsearch (IETF BMWG), with short trials first |
//! | the longest burst that is taken whole | [`BackToBack`]: RFC 2544, section 26.4, as RFC 9004 has it |
//! | how much is lost at each rate | [`LossCurve`]: RFC 2544, section 26.3 |
//! | does it lose packets even at a low rate | [`Stability`]: whoever does should not be searched at all |
//!
//! ```
//! use ringside_measure::search::{Goal, Mlr, Outcome, Range, Search, Trial};
//!
//! // A device that forwards up to 1.2 M packets/s.
//! let device = |trial: Trial| {
//!     let intended = trial.packets();
//!     let received = intended.min(1_200_000 * trial.duration_ns / 1_000_000_000);
//!     Outcome { intended, sent: intended, received }
//! };
//! let mut search = Mlr::new(Range::new(1_000, 10_000_000)?, vec![Goal::no_drop_rate(), Goal::partial_drop_rate()])?;
//! while let Some(trial) = search.wanted() {
//!     search.record(device(trial));
//! }
//! let found = search.results();
//! let rate = found[0].throughput_pps.unwrap();
//! assert!((1_194_000.0..=1_200_000.0).contains(&rate));
//! # Ok::<(), ringside_measure::Error>(())
//! ```
//!
//! # What counts as lost
//!
//! All that was to be sent and did not come back, so also what the sender did not get out ([`Outcome::unsent`]): a rate that the
//! sender cannot make is not one that the device was seen to sustain. Results say if that is what limited them.

mod binary;
mod burst;
pub mod capacity;
mod curve;
#[cfg(test)]
mod devices;
mod goal;
mod mlr;
mod stability;
#[cfg(test)]
mod tests;

pub use binary::{Binary, BinaryResult};
pub use burst::{BackToBack, BackToBackResult};
pub use curve::{CurvePoint, LossCurve};
pub use goal::{Class, Goal, classify, conditional_loss_ratio};
pub use mlr::{Bound, GoalResult, Mlr};
pub use stability::{Stability, StabilityResult};

use crate::Error;

/// One trial: so many packets a second, for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trial {
    /// Packets per second; in [`BackToBack`] the rate of the burst.
    pub load_pps: u64,
    /// How long it sends, in ns.
    pub duration_ns: u64,
}

impl Trial {
    /// Returns the number of packets that such a trial is to send: at least one.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let packets = u128::from(self.load_pps) * u128::from(self.duration_ns) / 1_000_000_000;
        u64::try_from(packets).unwrap_or(u64::MAX).max(1)
    }
}

/// What came of a trial, counted after it was over and nothing was on its way any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets that were to be sent.
    pub intended: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets that came back, or arrived; each once.
    pub received: u64,
}

impl Outcome {
    /// Packets that were to be sent and did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.intended.saturating_sub(self.received)
    }

    /// Packets that the sender did not get out.
    #[must_use]
    pub fn unsent(&self) -> u64 {
        self.intended.saturating_sub(self.sent)
    }

    /// Share of what was to be sent that did not arrive, 0 to 1. A trial of no packets has lost everything.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub fn loss_ratio(&self) -> f64 {
        if self.intended == 0 {
            1.0
        } else {
            self.lost() as f64 / self.intended as f64
        }
    }
}

/// What the tool runs trial by trial.
pub trait Search {
    /// The next trial; `None` when the search is over. The same until [`record`](Self::record) is called.
    fn wanted(&self) -> Option<Trial>;

    /// What came of the trial that was wanted. Does nothing when none was.
    fn record(&mut self, outcome: Outcome);
}

/// Rates that are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    min_pps: u64,
    max_pps: u64,
}

impl Range {
    /// From the lowest rate that is of interest to the highest that can be sent.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] if the lowest is zero or not below the highest.
    pub fn new(min_pps: u64, max_pps: u64) -> Result<Self, Error> {
        if min_pps == 0 || min_pps >= max_pps {
            return Err(Error::Search(format!(
                "rates from {min_pps} to {max_pps} packets/s: the lower one has to be at least 1 and below the higher one"
            )));
        }
        Ok(Self { min_pps, max_pps })
    }

    /// The lowest rate, packets per second.
    #[must_use]
    pub fn min_pps(&self) -> u64 {
        self.min_pps
    }

    /// The highest rate, packets per second.
    #[must_use]
    pub fn max_pps(&self) -> u64 {
        self.max_pps
    }

    fn clamp(&self, load: f64) -> u64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is clamped next"
        )]
        (load.round() as u64).clamp(self.min_pps, self.max_pps)
    }
}

/// Whether two rates, the lower one first, are no more than `width` of the higher one apart. Rates are whole numbers, so one
/// packet a second does not count.
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn within(low: u64, high: u64, width: f64) -> bool {
    (high - low).saturating_sub(1) as f64 <= width * high as f64
}

/// The rate between two that have others between them: the same factor from one as to the other.
fn middle(low: u64, high: u64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between the two after all"
    )]
    let middle = (low as f64 * high as f64).sqrt().round() as u64;
    middle.clamp(low + 1, high - 1)
}
