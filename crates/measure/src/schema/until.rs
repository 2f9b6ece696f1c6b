//! Measuring until it is known well enough.

use serde::{Deserialize, Serialize};

/// What became of measuring until an interval is narrow enough, see [`crate::precision`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct UntilCi {
    /// The width that was asked for, from end to end, in percent of the median.
    pub goal_percent: f64,
    /// It was reached; otherwise the time, the rounds or a signal came first.
    pub reached: bool,
    /// What the interval is of; of several, the widest.
    pub of: String,
    /// Its width in the end, in percent of its median; `None` where there is no interval.
    pub width_percent: Option<f64>,
    /// Where it is of the pieces of one run: their median and its interval.
    pub estimate: Option<SeriesEstimate>,
}

/// The median of the pieces of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SeriesEstimate {
    /// Median of the pieces, in the unit of what it is of.
    pub median: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Correlation of each piece with the next one, 0 to 1; the interval is wider for it.
    pub correlation: f64,
    /// Pieces.
    pub pieces: usize,
}

impl UntilCi {
    /// What the width says in the end.
    #[must_use]
    pub fn of(goal: f64, reached: bool, of: impl Into<String>, width: Option<f64>) -> Self {
        Self {
            goal_percent: goal * 100.0,
            reached,
            of: of.into(),
            width_percent: width.map(|width| width * 100.0),
            estimate: None,
        }
    }
}
