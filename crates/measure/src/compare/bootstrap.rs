//! The interval of a median by resampling (Efron's percentile method).

use super::quantile;
use crate::random::SplitMix64;

const RESAMPLES: usize = 2_000;

/// Any number will do; a fixed one makes results repeatable.
const SEED: u64 = 0x5249_4e47_5349_4445;

/// The 2.5 % and 97.5 % quantiles of the medians of resamples with replacement.
pub(super) fn median_interval(sorted: &[f64]) -> (f64, f64) {
    let mut random = SplitMix64(SEED);
    let mut drawn = vec![0; sorted.len()];
    let mut medians: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            drawn.fill(0);
            for _ in sorted {
                drawn[random.index(sorted.len())] += 1;
            }
            median(sorted, &drawn)
        })
        .collect();
    medians.sort_unstable_by(f64::total_cmp);
    (quantile(&medians, 1, 40), quantile(&medians, 39, 40))
}

/// Of a resample of at least one value, told by how often each was drawn: that way it is in order already, and need not be sorted.
fn median(sorted: &[f64], drawn: &[usize]) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let (mut at, mut passed) = (0, drawn[0]);
    let mut ranked = |rank| {
        while passed <= rank {
            at += 1;
            passed += drawn[at];
        }
        sorted[at]
    };
    quantile(&[ranked(last / 2), ranked(last.div_ceil(2))], 1, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_a_resample_is_that_of_its_values() {
        let mut random = SplitMix64(1);
        for len in 1..=12 {
            let sorted: Vec<f64> = (0..len).map(|place| 1.0 + f64::from(place * place)).collect();
            for _ in 0..50 {
                let mut drawn = vec![0; sorted.len()];
                let mut resample = Vec::new();
                for _ in &sorted {
                    let index = random.index(sorted.len());
                    drawn[index] += 1;
                    resample.push(sorted[index]);
                }
                resample.sort_unstable_by(f64::total_cmp);
                assert_eq!(median(&sorted, &drawn), quantile(&resample, 1, 2), "{resample:?}");
            }
        }
    }
}
