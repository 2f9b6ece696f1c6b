//! How long packets took: histograms with exact ends, and percentiles that are only told when
//! there are samples enough for them.
//!
//! ```
//! use ringside_measure::latency::Latency;
//!
//! let mut latency = Latency::new();
//! for ns in 1..=1_000 {
//!     latency.record(ns);
//! }
//! let summary = latency.summary().unwrap();
//! assert_eq!((summary.min_ns, summary.mean_ns, summary.max_ns), (1, 500.5, 1_000));
//! assert_eq!(summary.p50_ns, Some(500));
//! assert_eq!(summary.p99_ns, Some(990));
//! assert_eq!(summary.p99_9_ns, None); // one sample beyond it proves nothing: ten are needed
//! assert_eq!(Latency::new().summary(), None); // nothing sampled is no zero
//! ```

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

mod hdr;
mod jitter;
mod live;
mod rtt;

pub use jitter::{Jitter, JitterEstimator};
pub use live::{Glance, LiveLatency, Tally};
pub use rtt::RttRecorder;

/// Longest time that the histogram resolves, in nanoseconds: one minute. Longer ones count as this
/// in percentiles, and as they are in minimum, mean and maximum.
pub const LONGEST_NS: u64 = 60_000_000_000;

/// Samples that have to be expected beyond a percentile for it to be told.
///
/// The number beyond is about Poisson distributed: with ten it is known within a third (one standard
/// deviation), with one it is a coin toss. So p50 needs 20 samples, p99 1 000, p99.9 10 000, and
/// p99.999 a million.
pub const SAMPLES_BEYOND: u64 = 10;

/// Times in nanoseconds, in about 220 KiB that are allocated when it is made.
///
/// Percentiles have three significant digits (0.1 %); minimum, mean and maximum are exact.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
    sum_of_squares: u128,
}

/// What a [`Latency`] has seen. Percentiles are `None` where there are too few samples, see
/// [`SAMPLES_BEYOND`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Summary {
    /// Number of samples; at least one.
    pub samples: u64,
    /// Shortest, exact.
    pub min_ns: u64,
    /// Arithmetic mean, exact.
    pub mean_ns: f64,
    /// Standard deviation of the samples (of all of them, divided by their number).
    pub stddev_ns: f64,
    /// Median: half took at most this long. Needs 20 samples.
    pub p50_ns: Option<u64>,
    /// 90 % took at most this long. Needs 100 samples.
    pub p90_ns: Option<u64>,
    /// 99 % took at most this long. Needs 1 000 samples.
    pub p99_ns: Option<u64>,
    /// 99.9 % took at most this long. Needs 10 000 samples.
    pub p99_9_ns: Option<u64>,
    /// 99.99 % took at most this long. Needs 100 000 samples.
    pub p99_99_ns: Option<u64>,
    /// 99.999 % took at most this long. Needs 1 000 000 samples.
    pub p99_999_ns: Option<u64>,
    /// Longest, exact.
    pub max_ns: u64,
}

impl Summary {
    /// Names and values in nanoseconds of what people look at, from short to long; `None` where there are too few samples.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
    pub fn figures(&self) -> [(&'static str, Option<f64>); 7] {
        let of = |ns: Option<u64>| ns.map(|ns| ns as f64);
        [
            ("min", of(Some(self.min_ns))),
            ("mean", Some(self.mean_ns)),
            ("p50", of(self.p50_ns)),
            ("p90", of(self.p90_ns)),
            ("p99", of(self.p99_ns)),
            ("p99.9", of(self.p99_9_ns)),
            ("max", of(Some(self.max_ns))),
        ]
    }
}

impl Summary {
    /// The same of the far tail, which few distributions have samples enough for: 100 000 and 1 000 000.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
    pub fn tail(&self) -> [(&'static str, Option<f64>); 2] {
        let of = |ns: Option<u64>| ns.map(|ns| ns as f64);
        [("p99.99", of(self.p99_99_ns)), ("p99.999", of(self.p99_999_ns))]
    }
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    /// Shortest time that falls into it, in nanoseconds.
    pub from_ns: u64,
    /// Longest one. Both ends are 0.1 % apart at the most.
    pub to_ns: u64,
    /// Samples in it.
    pub samples: u64,
}

impl Latency {
    /// An empty one.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram accepts.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .expect("1 ns to one minute with three digits are valid bounds");
        Self {
            histogram,
            min: u64::MAX,
            max: 0,
            sum: 0,
            sum_of_squares: 0,
        }
    }

    /// Adds a sample. Does not allocate.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(LONGEST_NS));
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
        let wide = u128::from(ns);
        self.sum += wide;
        self.sum_of_squares = self.sum_of_squares.saturating_add(wide * wide);
    }

    /// Adds all samples of another one, say of another queue's thread.
    ///
    /// # Panics
    /// Never: all histograms here have the same bounds.
    pub fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("histograms of the same bounds add up");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.sum_of_squares = self.sum_of_squares.saturating_add(other.sum_of_squares);
    }

    /// The samples that have come since an earlier state of the same, to three digits, minimum, mean and maximum included.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut fresh = Self::new();
        for bucket in self.buckets() {
            let count = bucket.samples.saturating_sub(earlier.histogram.count_at(bucket.to_ns));
            if count != 0 {
                fresh.record_many(bucket.to_ns.clamp(self.min, self.max), count);
            }
        }
        fresh
    }

    /// How many samples are at most this long, in nanoseconds, give or take 0.1 % of the time.
    #[must_use]
    pub fn at_most(&self, ns: u64) -> u64 {
        self.histogram.count_between(0, ns.min(LONGEST_NS))
    }

    /// The sum of all samples, in seconds.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a sum of times to 16 digits")]
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 / 1e9
    }

    /// Forgets all samples and keeps the memory.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.min = u64::MAX;
        self.max = 0;
        self.sum = 0;
        self.sum_of_squares = 0;
    }

    /// Number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.histogram.len()
    }

    /// The figures; `None` when nothing was sampled.
    ///
    /// # Panics
    /// When min ≤ p50 ≤ max or min ≤ mean ≤ max does not hold, which would be a mistake in here
    /// that must not become a published figure.
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let samples = self.samples();
        if samples == 0 {
            return None;
        }
        let (min, max) = (self.min, self.max);
        // Rounding to f64 may leave the mean a hair outside of the ends.
        let mean = (self.sum as f64 / samples as f64).clamp(min as f64, max as f64);
        let summary = Summary {
            samples,
            min_ns: min,
            mean_ns: mean,
            stddev_ns: self.variance(mean).sqrt(),
            p50_ns: self.percentile(0.5, 2),
            p90_ns: self.percentile(0.9, 10),
            p99_ns: self.percentile(0.99, 100),
            p99_9_ns: self.percentile(0.999, 1_000),
            p99_99_ns: self.percentile(0.9999, 10_000),
            p99_999_ns: self.percentile(0.99999, 100_000),
            max_ns: max,
        };
        assert!(
            summary.p50_ns.is_none_or(|p50| min <= p50 && p50 <= max),
            "median outside of the samples: {summary:?}"
        );
        assert!(
            min as f64 <= mean && mean <= max as f64,
            "mean outside of the samples: {summary:?}"
        );
        Some(summary)
    }

    /// Mean of the shortest samples, a share of them from 0 to 1: one that single long ones do not move. To the histogram's three
    /// digits, exact where all count; `None` where that is no whole sample.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a mean has three digits here")]
    pub fn mean_of_shortest(&self, share: f64) -> Option<f64> {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 0, at most the samples"
        )]
        let kept = (self.samples() as f64 * share.clamp(0.0, 1.0) + 1e-6) as u64;
        if kept == 0 {
            return None;
        }
        if kept >= self.samples() {
            return Some(self.sum as f64 / self.samples() as f64);
        }
        let (mut left, mut sum) = (kept, 0.0);
        for bucket in self.buckets() {
            let taken = bucket.samples.min(left);
            sum += (bucket.from_ns as f64 / 2.0 + bucket.to_ns as f64 / 2.0) * taken as f64;
            left -= taken;
            if left == 0 {
                break;
            }
        }
        Some((sum / kept as f64).clamp(self.min as f64, self.max as f64))
    }

    /// The histogram: every bucket with a sample in it, from short to long. The counts add up to
    /// [`samples`](Self::samples).
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> + '_ {
        self.histogram.iter_recorded().map(|step| {
            let value = step.value_iterated_to();
            Bucket {
                from_ns: self.histogram.lowest_equivalent(value),
                to_ns: self.histogram.highest_equivalent(value),
                samples: step.count_since_last_iteration(),
            }
        })
    }

    /// The median of however few samples: to be one of several that are compared with each other. By itself [`summary`](Self::summary) tells none that is of few.
    #[must_use]
    pub fn median(&self) -> Option<u64> {
        let value = self.histogram.value_at_quantile(0.5);
        (self.samples() > 0).then(|| value.clamp(self.min, self.max))
    }

    /// The value at a quantile beyond which one sample in `one_in` is expected.
    fn percentile(&self, quantile: f64, one_in: u64) -> Option<u64> {
        if self.samples() / one_in < SAMPLES_BEYOND {
            return None;
        }
        // The histogram gives the upper end of a bucket, which may lie above the exact maximum.
        let value = self.histogram.value_at_quantile(quantile);
        Some(value.clamp(self.min, self.max))
    }

    fn variance(&self, mean: f64) -> f64 {
        let samples = u128::from(self.samples());
        // n·Σx² − (Σx)² in integers is exact, where Σx²/n − mean² in floats cancels to noise as soon
        // as the mean is far above the deviation.
        let exact = samples
            .checked_mul(self.sum_of_squares)
            .zip(self.sum.checked_mul(self.sum))
            .map(|(left, right)| left.saturating_sub(right));
        match exact {
            Some(scaled) => scaled as f64 / (samples as f64 * samples as f64),
            // Sums this large (hundreds of millions of minutes) do not fit: take the floats.
            None => (self.sum_of_squares as f64 / samples as f64 - mean * mean).max(0.0),
        }
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
