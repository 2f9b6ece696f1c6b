//! The interval of a median by resampling (Efron's percentile method).

use super::quantile;
use crate::random::SplitMix64;

const RESAMPLES: usize = 2_000;

/// Any number will do; a fixed one makes results repeatable.
const SEED: u64 = 0x5249_4e47_5349_4445;

/// The 2.5 % and 97.5 % quantiles of the medians of resamples with replacement.
pub(super) fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let mut random = SplitMix64(SEED);
    let mut resample = vec![0.0; sorted.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            for slot in &mut resample {
                *slot = sorted[random.index(sorted.len())];
            }
            resample.sort_unstable_by(f64::total_cmp);
            quantile(&resample, 1, 2)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    (quantile(&medians, 1, 40), quantile(&medians, 39, 40))
}
