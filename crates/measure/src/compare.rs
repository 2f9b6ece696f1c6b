//! Is A faster than B, or is it noise? Statistics of rounds that were run interleaved.
//!
//! Rates drift by tens of percent from hour to hour on one machine, so only figures of one run are
//! compared, round by round: round i of a variant is divided by round i of the base, which ran right
//! before or after it. The median of those ratios is told with its bootstrap 95 % interval.
//!
//! A round during which the hypervisor took more than [`STEAL_LIMIT`] of the CPU measures the
//! neighbours. It is left out, and counted. Where this is so of every round, all of them count, and
//! [`crate::validity`] calls the result invalid.
//!
//! ```
//! use ringside_measure::compare::{figure, ratio, Round};
//!
//! let quiet = |value| Round { value, steal: 0.0 };
//! let base = [100.0, 104.0, 98.0, 101.0, 99.0, 103.0].map(quiet);
//! let mut fast = [120.0, 125.0, 117.0, 122.0, 118.0, 124.0].map(quiet);
//! fast[5].steal = 0.2;
//!
//! let figure = figure(&fast)?;
//! assert_eq!((figure.median, figure.rounds_used, figure.rounds_left_out), (120.0, 5, 1));
//! let ratio = ratio(&base, &fast)?;
//! assert!((ratio.median - 1.2).abs() < 0.01);
//! assert!(ratio.is_clear(0.07)); // more than 7 % apart, and 1 is outside of the interval
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use serde::{Deserialize, Serialize};

use crate::Error;

mod bootstrap;

/// Share of CPU time stolen by the hypervisor above which a round is left out: 4 %.
pub const STEAL_LIMIT: f64 = 0.04;

/// Returns the share of stolen CPU time up to which rounds count: [`STEAL_LIMIT`], or 1 where every
/// round has more. Takes the share of each round, 0 to 1.
///
/// ```
/// use ringside_measure::compare::{STEAL_LIMIT, steal_limit};
///
/// assert_eq!(steal_limit([0.0, 0.2]), STEAL_LIMIT);
/// assert_eq!(steal_limit([0.1, 0.2]), 1.0);
/// ```
#[must_use]
pub fn steal_limit(rounds: impl IntoIterator<Item = f64>) -> f64 {
    match rounds.into_iter().any(|steal| steal <= STEAL_LIMIT) {
        true => STEAL_LIMIT,
        false => 1.0,
    }
}

/// Rounds below which there is no interval: a resample of fewer has next to no choice, and the
/// interval would be far too narrow.
pub const ROUNDS_FOR_INTERVAL: usize = 5;

/// What one round of one variant measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Round {
    /// The figure, in whatever unit all rounds of all variants have; not below zero.
    pub value: f64,
    /// CPU time stolen during the round, as a fraction from 0 to 1.
    pub steal: f64,
}

impl Round {
    /// Returns whether no more than [`STEAL_LIMIT`] was stolen.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.steal <= STEAL_LIMIT
    }
}

/// A figure over several rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figure {
    /// Median of the rounds used; of an even number the mean of the middle two.
    pub median: f64,
    /// Smallest of the rounds used.
    pub min: f64,
    /// Largest of the rounds used.
    pub max: f64,
    /// Spread: half the distance between the quartiles, in the figure's own unit. `None` for a single
    /// round, which cannot tell how much rounds differ.
    pub spread: Option<f64>,
    /// The spread in percent of the median. `None` for a single round, and for a median of zero.
    pub spread_percent: Option<f64>,
    /// Rounds that went into it.
    pub rounds_used: usize,
    /// Rounds left out for CPU steal.
    pub rounds_left_out: usize,
}

/// A variant in proportion to the base, paired by rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ratio {
    /// Median of the ratios.
    pub median: f64,
    /// Lower end of its 95 % interval; `None` below [`ROUNDS_FOR_INTERVAL`] rounds.
    pub low: Option<f64>,
    /// Upper end of its 95 % interval; `None` below [`ROUNDS_FOR_INTERVAL`] rounds.
    pub high: Option<f64>,
    /// Pairs that went into it.
    pub rounds_used: usize,
    /// Pairs left out: CPU steal in either round, or a base of zero.
    pub rounds_left_out: usize,
}

impl Ratio {
    /// True when there is a difference to speak of: the interval excludes 1, and the median is
    /// further from it than `noise`, which is what the machine shows when a variant is compared
    /// with itself (0.07, say).
    #[must_use]
    pub fn is_clear(&self, noise: f64) -> bool {
        let outside = self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0);
        outside && (self.median - 1.0).abs() > noise
    }

    /// From one end of the interval to the other, as a part of the median; `None` where there is no interval.
    #[must_use]
    pub fn width(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        (self.median > 0.0).then(|| (high - low) / self.median)
    }
}

/// From which difference on a ratio means something on this machine: how far the intervals of contenders that were compared with
/// themselves (A/A) reach from 1 at the most, as a part: 0.03 is 3 %, up or down. `None` without any, and where one has no interval.
///
/// ```
/// use ringside_measure::compare::{Ratio, noise_floor};
///
/// let aa = |low, high| Ratio { median: 1.0, low: Some(low), high: Some(high), rounds_used: 9, rounds_left_out: 0 };
/// let floor = noise_floor(&[aa(0.99, 1.02), aa(0.96, 1.01)]).unwrap();
/// assert!((floor - 1.0 / 24.0).abs() < 1e-12); // 0.96 is 1 / (1 + 1/24)
/// assert_eq!(noise_floor(&[]), None);
/// ```
#[must_use]
pub fn noise_floor(aa: &[Ratio]) -> Option<f64> {
    let reach = |ratio: &Ratio| {
        let (low, high) = ratio.low.zip(ratio.high)?;
        (low > 0.0).then(|| (1.0 / low - 1.0).max(high - 1.0).max(0.0))
    };
    let reaches: Option<Vec<f64>> = aa.iter().map(reach).collect();
    reaches?.into_iter().reduce(f64::max)
}

/// Returns median and spread of the quiet rounds, or of all rounds where none is quiet.
///
/// # Errors
/// [`Error::Round`] for values that are no measurements, [`Error::NoRounds`] for no rounds.
pub fn figure(rounds: &[Round]) -> Result<Figure, Error> {
    check(rounds)?;
    let limit = steal_limit(rounds.iter().map(|round| round.steal));
    let counting = rounds.iter().filter(|round| round.steal <= limit);
    let sorted = sorted(counting.map(|round| round.value));
    let left_out = rounds.len() - sorted.len();
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return Err(Error::NoRounds {
            rounds: rounds.len(),
            left_out,
        });
    };
    let median = quantile(&sorted, 1, 2);
    let spread = (sorted.len() > 1).then(|| (quantile(&sorted, 3, 4) - quantile(&sorted, 1, 4)) / 2.0);
    Ok(Figure {
        median,
        min,
        max,
        spread,
        spread_percent: spread.filter(|_| median > 0.0).map(|spread| spread / median * 100.0),
        rounds_used: sorted.len(),
        rounds_left_out: left_out,
    })
}

/// Returns the variant in proportion to the base, with a bootstrap 95 % interval of the median: 2000
/// resamples of the ratios, percentile method, from a fixed seed, so that the same rounds always
/// give the same interval.
///
/// # Errors
/// [`Error::RoundsDiffer`], [`Error::Round`], and [`Error::NoRounds`] when no pair is left.
pub fn ratio(base: &[Round], variant: &[Round]) -> Result<Ratio, Error> {
    if base.len() != variant.len() {
        return Err(Error::RoundsDiffer {
            base: base.len(),
            variant: variant.len(),
        });
    }
    check(base)?;
    check(variant)?;
    let pairs = base.iter().zip(variant).filter(|(base, _)| base.value > 0.0);
    let limit = steal_limit(pairs.clone().map(steal_of));
    let counting = pairs.filter(|pair| steal_of(*pair) <= limit);
    let ratios = sorted(counting.map(|(base, variant)| variant.value / base.value));
    let left_out = base.len() - ratios.len();
    if ratios.is_empty() {
        return Err(Error::NoRounds {
            rounds: base.len(),
            left_out,
        });
    }
    let interval = median_interval(&ratios);
    Ok(Ratio {
        median: quantile(&ratios, 1, 2),
        low: interval.map(|(low, _)| low),
        high: interval.map(|(_, high)| high),
        rounds_used: ratios.len(),
        rounds_left_out: left_out,
    })
}

/// Returns the larger share of a pair.
pub(crate) fn steal_of((base, variant): (&Round, &Round)) -> f64 {
    base.steal.max(variant.steal)
}

/// An interval that holds the median of what sorted values are drawn from, whatever their distribution: the sign test turned
/// around. It goes from one of the values to another, as many from either end as the confidence (0 to 1) allows. `None` where
/// even the first and the last do not reach it: 95 % take 6 values, 99 % take 8.
///
/// ```
/// use ringside_measure::compare::exact_median_interval;
///
/// let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0];
/// assert_eq!(exact_median_interval(&values, 0.95), Some((2.0, 9.0)));
/// assert_eq!(exact_median_interval(&values[..5], 0.95), None);
/// ```
#[must_use]
pub fn exact_median_interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let count = sorted.len();
    let tail = (1.0 - confidence) / 2.0;
    // Of `count` values as many lie below the median as heads fall: the logarithm, for 2^-1100 is no number any more.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let (mut below, mut cut) = (0.0, 0);
    for heads in 0..count / 2 {
        below += log.exp();
        if below > tail {
            break;
        }
        cut = heads + 1;
        log += ((count - heads) as f64 / (heads + 1) as f64).ln();
    }
    (cut > 0).then(|| (sorted[cut - 1], sorted[count - cut]))
}

/// The median of sorted values; zero for none.
pub(crate) fn median(sorted: &[f64]) -> f64 {
    quantile(sorted, 1, 2)
}

/// The bootstrap 95 % interval of the median of sorted values; `None` below [`ROUNDS_FOR_INTERVAL`].
pub(crate) fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    (sorted.len() >= ROUNDS_FOR_INTERVAL).then(|| bootstrap::median_interval(sorted))
}

fn check(rounds: &[Round]) -> Result<(), Error> {
    for (round, figures) in rounds.iter().enumerate() {
        for (what, value) in [("value", figures.value), ("CPU steal", figures.steal)] {
            if !value.is_finite() || value < 0.0 {
                return Err(Error::Round { round, what, value });
            }
        }
    }
    Ok(())
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

/// The `part`/`of` quantile of sorted values, interpolated between neighbours (definition 7 of
/// Hyndman and Fan, the default of R and NumPy). Zero for no values.
fn quantile(sorted: &[f64], part: usize, of: usize) -> f64 {
    let position = sorted.len().saturating_sub(1) * part;
    let (index, rest) = (position / of, position % of);
    match (sorted.get(index), sorted.get(index + 1)) {
        (Some(below), Some(above)) => below + (above - below) * (rest as f64 / of as f64),
        (Some(only), None) => *only,
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests;
