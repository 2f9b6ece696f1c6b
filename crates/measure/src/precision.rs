//! Is it known well enough to stop? `--until-ci`.
//!
//! Who looks at an interval after every round and stops when it looks good has a better looking interval than he should. Three
//! things keep it honest here. Only the *width* decides, never where the interval lies or whether it holds 1: for figures whose
//! level and spread have nothing to do with each other, as those of rounds nearly do, stopping by one of them does not bend
//! the other. Nobody stops before [`LEAST_ROUNDS`], so that a few rounds which happen to agree are not taken for precision. And
//! it is looked at seldom, after each quarter more of rounds, and has to be narrow enough twice in a row ([`UntilWidth`]).
//!
//! What is left of the effect was measured on simulated rounds: of intervals that were stopped at after 15 to 70 rounds, 91 to 93 %
//! hold the truth, of those after a fixed number of rounds 92 % (13 rounds) to 96 % (10). A bootstrap of the median of few rounds is
//! by itself a little narrower than its 95 %.
//!
//! Pieces of one run that follow each other are not independent as rounds are: a slow second is mostly followed by
//! another. [`of_series`] widens the interval by what the correlation of neighbours says.

use crate::Error;
use crate::compare::{median, median_interval};

/// Rounds, or pieces of a run, before which nothing is precise enough.
pub const LEAST_ROUNDS: usize = 10;

/// Decides when the interval is narrow enough.
///
/// ```
/// use ringside_measure::precision::UntilWidth;
///
/// let mut until = UntilWidth::new(0.02)?;
/// assert!(!until.is_reached(9, || Some(0.001))); // too few to look
/// assert!(!until.is_reached(10, || Some(0.015))); // once
/// assert!(!until.is_reached(11, || unreachable!("not before 13")));
/// assert!(until.is_reached(13, || Some(0.018))); // twice in a row
/// # Ok::<(), ringside_measure::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UntilWidth {
    width: f64,
    /// Rounds at which it is looked at again.
    next: usize,
    was_narrow: bool,
}

impl UntilWidth {
    /// Until the interval, from end to end, is narrower than this part of the median: 0.01 is 1 %.
    ///
    /// # Errors
    /// [`Error::Width`] for what is not between 0 and 1.
    pub fn new(width: f64) -> Result<Self, Error> {
        if !(width > 0.0 && width < 1.0) {
            return Err(Error::Width { width });
        }
        Ok(Self {
            width,
            next: LEAST_ROUNDS,
            was_narrow: false,
        })
    }

    /// The width that was asked for.
    #[must_use]
    pub fn width(&self) -> f64 {
        self.width
    }

    /// After so many rounds: whether it is narrow enough, and was so when it was looked at before. `width` is asked only when
    /// it is looked at; `None`, no interval, is not narrow.
    pub fn is_reached(&mut self, rounds: usize, width: impl FnOnce() -> Option<f64>) -> bool {
        if rounds < self.next {
            return false;
        }
        self.next = rounds + rounds.div_ceil(4);
        let is_narrow = width().is_some_and(|is| is < self.width);
        std::mem::replace(&mut self.was_narrow, is_narrow) && is_narrow
    }
}

/// The median of a series and how well it is known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Median of the pieces.
    pub median: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Correlation of each piece with the next one, from 0 (none, or the opposite) to 1; the interval is as wide as that makes
    /// it.
    pub correlation: f64,
    /// Pieces.
    pub pieces: usize,
}

impl Estimate {
    /// From one end of the interval to the other, as a part of the median; `None` for a median of zero.
    #[must_use]
    pub fn width(&self) -> Option<f64> {
        (self.median > 0.0).then(|| (self.high - self.low) / self.median)
    }
}

/// Of the figures of consecutive pieces of one run, in their order; `None` for fewer than [`LEAST_ROUNDS`].
///
/// ```
/// use ringside_measure::precision::of_series;
///
/// let pieces: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i * 7 % 10) / 10.0).collect();
/// let estimate = of_series(&pieces).unwrap();
/// assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
/// assert!(estimate.width().unwrap() < 0.01);
/// assert_eq!(of_series(&pieces[..9]), None);
/// ```
#[must_use]
pub fn of_series(pieces: &[f64]) -> Option<Estimate> {
    if pieces.len() < LEAST_ROUNDS {
        return None;
    }
    let mut sorted = pieces.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let median = median(&sorted);
    let (low, high) = median_interval(&sorted)?;
    let correlation = correlation(pieces);
    // As many independent pieces as these are worth: n (1 − r) / (1 + r).
    let wider = ((1.0 + correlation) / (1.0 - correlation)).sqrt();
    Some(Estimate {
        median,
        low: (median - (median - low) * wider).max(0.0),
        high: median + (high - median) * wider,
        correlation,
        pieces: pieces.len(),
    })
}

/// Of each with the next, from 0 to 0.99.
fn correlation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let product: f64 = values.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    if square > 0.0 {
        (product / square).clamp(0.0, 0.99)
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Round, ratio};
    use crate::random::SplitMix64;

    /// A normal variable: twelve even ones less six.
    fn normal(random: &mut SplitMix64) -> f64 {
        (0..12)
            .map(|_| random.below(1 << 24) as f64 / (1u64 << 24) as f64)
            .sum::<f64>()
            - 6.0
    }

    #[test]
    fn a_series_by_hand() {
        // Mean 2; deviations −1 0 1 0 −1 0 1 0 −1 0 1 0: squares 6, products of neighbours 0.
        let even = [1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0, 2.0, 3.0, 2.0];
        assert_eq!(correlation(&even), 0.0);
        // Deviations −1 six times, then 1 six times: squares 12, products 5 − 1 + 5 = 9.
        let steps = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0];
        assert_eq!(correlation(&steps), 0.75);
        let estimate = of_series(&steps).unwrap();
        assert_eq!((estimate.median, estimate.pieces), (2.0, 12));
        // The bootstrap's [1, 3] is √7 times as wide, and no rate is below zero.
        assert_eq!(estimate.low, 0.0);
        assert!((estimate.high - (2.0 + 7f64.sqrt())).abs() < 1e-12);
        assert_eq!(of_series(&[5.0; 10]).unwrap().width(), Some(0.0));
        assert_eq!(of_series(&[0.0; 10]).unwrap().width(), None);
    }

    /// Of 200 comparisons that stop when their interval is narrow, the share that holds the truth, and their rounds.
    fn coverage(width: f64, noise: f64) -> (f64, f64) {
        const COMPARISONS: usize = 200;
        let mut random = SplitMix64(7);
        let (mut hits, mut rounds) = (0_usize, 0_usize);
        for _ in 0..COMPARISONS {
            let (mut base, mut variant) = (Vec::new(), Vec::new());
            let mut until = UntilWidth::new(width).unwrap();
            loop {
                let round = |random: &mut SplitMix64, value: f64| Round {
                    value: value * (1.0 + noise * normal(random)),
                    steal: 0.0,
                };
                base.push(round(&mut random, 100.0));
                variant.push(round(&mut random, 120.0));
                let now = || ratio(&base, &variant).unwrap();
                if until.is_reached(base.len(), || now().width()) || base.len() == 200 {
                    hits += usize::from(now().low.unwrap() <= 1.2 && 1.2 <= now().high.unwrap());
                    rounds += base.len();
                    break;
                }
            }
        }
        (hits as f64 / COMPARISONS as f64, rounds as f64 / COMPARISONS as f64)
    }

    #[test]
    fn stopping_by_width_leaves_the_interval_honest() {
        // Where a round has 2 % of noise: stopped after some and after dozens of rounds.
        for width in [0.05, 0.03] {
            let (share, rounds) = coverage(width, 0.02);
            println!("width {width}: {share:.3} hold the truth, after {rounds:.1} rounds");
            assert!(
                share > 0.88,
                "width {width}: {share:.3} hold the truth, after {rounds:.1} rounds"
            );
        }
        for nonsense in [0.0, -0.1, 1.0, f64::NAN] {
            let error = UntilWidth::new(nonsense).unwrap_err().to_string();
            assert!(error.contains("between 0 and 100 %"), "{error}");
        }
        let error = UntilWidth::new(2.0).unwrap_err().to_string();
        assert!(error.contains("narrower than 200 % of its median"), "{error}");
    }

    #[test]
    fn neighbours_that_are_alike_make_it_wider() {
        // An autoregressive series, r = 0.8, around 100. A third of the ones taken for independent would be off.
        let mut random = SplitMix64(3);
        let (mut hits, mut naive) = (0, 0);
        for _ in 0..400 {
            let mut state = 0.0;
            let pieces: Vec<f64> = (0..60)
                .map(|_| {
                    state = 0.8 * state + normal(&mut random);
                    100.0 + state
                })
                .collect();
            let estimate = of_series(&pieces).unwrap();
            hits += usize::from(estimate.low <= 100.0 && 100.0 <= estimate.high);
            let mut sorted = pieces;
            sorted.sort_unstable_by(f64::total_cmp);
            let (low, high) = median_interval(&sorted).unwrap();
            naive += usize::from(low <= 100.0 && 100.0 <= high);
        }
        println!("{hits} of 400 hold the truth, {naive} without the correlation");
        assert!(hits >= 350 && naive < 300, "{hits} and {naive} of 400");
    }

    #[test]
    fn an_interval_is_looked_at_seldom_and_has_to_be_narrow_twice() {
        let mut until = UntilWidth::new(0.02).unwrap();
        assert_eq!(until.width(), 0.02);
        let too_early = || -> Option<f64> { panic!("looked at") };
        assert!(!until.is_reached(9, too_early));
        assert!(!until.is_reached(10, || None));
        assert!(!until.is_reached(12, too_early));
        assert!(!until.is_reached(13, || Some(0.019)));
        assert!(!until.is_reached(16, too_early));
        // As wide as asked for is not narrower.
        assert!(!until.is_reached(17, || Some(0.02)));
        assert!(!until.is_reached(22, || Some(0.019)));
        assert!(!until.is_reached(28, || None));
        assert!(!until.is_reached(35, || Some(0.001)));
        assert!(until.is_reached(44, || Some(0.019)));
    }

    #[test]
    fn a_width_is_a_part_of_the_median() {
        let estimate = Estimate {
            median: 4.0,
            low: 3.0,
            high: 5.0,
            correlation: 0.0,
            pieces: 10,
        };
        assert_eq!(estimate.width(), Some(0.5));
    }
}
