//! How much is lost at each rate.

use super::{Outcome, Range, Search, Trial};
use crate::Error;

/// RFC 2544, section 26.3: from the highest rate downwards in equal steps, until two rates in a row lose nothing.
/// <https://datatracker.ietf.org/doc/html/rfc2544#section-26.3>
#[derive(Debug)]
pub struct LossCurve {
    range: Range,
    steps: u32,
    duration_ns: u64,
    points: Vec<CurvePoint>,
    over: bool,
}

/// One point of the curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The trial.
    pub trial: Trial,
    /// What came of it.
    pub outcome: Outcome,
}

impl LossCurve {
    /// From the highest rate of `range` in `steps` equal steps (at least 10, says the RFC) towards zero, but not below the
    /// lowest, with trials of `duration_ns`.
    ///
    /// # Errors
    ///
    /// [`Error::Search`] for fewer than 10 steps, or a duration of 0.
    pub fn new(range: Range, steps: u32, duration_ns: u64) -> Result<Self, Error> {
        if steps < 10 || duration_ns == 0 {
            return Err(Error::Search(format!(
                "a loss curve of {steps} steps with trials of {duration_ns} ns: it takes at least 10 steps, and trials of at least 1 ns"
            )));
        }
        Ok(Self {
            range,
            steps,
            duration_ns,
            points: Vec::new(),
            over: false,
        })
    }

    /// The points so far, from the highest rate downwards.
    #[must_use]
    pub fn points(&self) -> &[CurvePoint] {
        &self.points
    }
}

impl Search for LossCurve {
    fn wanted(&self) -> Option<Trial> {
        let step = u32::try_from(self.points.len()).ok()?;
        if self.over || step >= self.steps {
            return None;
        }
        let load = u128::from(self.range.max_pps()) * u128::from(self.steps - step) / u128::from(self.steps);
        let load_pps = u64::try_from(load).ok()?;
        (load_pps >= self.range.min_pps()).then_some(Trial {
            load_pps,
            duration_ns: self.duration_ns,
        })
    }

    fn record(&mut self, outcome: Outcome) {
        let Some(trial) = self.wanted() else { return };
        let whole = |outcome: &Outcome| outcome.lost() == 0;
        self.over = whole(&outcome) && self.points.last().is_some_and(|last| whole(&last.outcome));
        self.points.push(CurvePoint { trial, outcome });
    }
}
