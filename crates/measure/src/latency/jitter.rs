//! How much the time under way changes from packet to packet.

use serde::{Deserialize, Serialize};

/// Jitter, by two definitions that give different numbers: a figure without its formula is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Jitter {
    /// Smoothed interarrival jitter of RFC 3550 §6.4.1: `J += (|D| − J) / 16`, with D the change of
    /// the time under way between packets that arrive one after the other. It tells about the last
    /// few dozen packets, not about the run.
    pub rfc3550_smoothed_ns: f64,
    /// Mean of |D| over the whole run.
    pub mean_abs_consecutive_difference_ns: f64,
    /// Number of differences: arrivals less one.
    pub differences: u64,
}

impl Jitter {
    /// That of several streams, one after the other: the mean of all differences, none of them between two streams. The smoothed one
    /// is that of the last stream. `None` of no stream.
    ///
    /// ```
    /// use ringside_measure::latency::Jitter;
    ///
    /// let of = |smoothed, mean, differences| Jitter {
    ///     rfc3550_smoothed_ns: smoothed,
    ///     mean_abs_consecutive_difference_ns: mean,
    ///     differences,
    /// };
    /// assert_eq!(Jitter::together([of(5.0, 100.0, 3), of(6.0, 200.0, 1)]), Some(of(6.0, 125.0, 4)));
    /// assert_eq!(Jitter::together([]), None);
    /// ```
    #[must_use]
    pub fn together(streams: impl IntoIterator<Item = Self>) -> Option<Self> {
        let sum = |jitter: &Self| jitter.mean_abs_consecutive_difference_ns * jitter.differences as f64;
        streams.into_iter().reduce(|all, next| {
            let differences = all.differences + next.differences;
            Self {
                mean_abs_consecutive_difference_ns: (sum(&all) + sum(&next)) / differences.max(1) as f64,
                differences,
                ..next
            }
        })
    }
}

/// Takes times under way in the order of arrival.
///
/// ```
/// use ringside_measure::latency::JitterEstimator;
///
/// let mut jitter = JitterEstimator::new();
/// for ns in [1_000, 1_160, 1_000] {
///     jitter.record(ns);
/// }
/// let jitter = jitter.jitter().unwrap();
/// assert_eq!(jitter.mean_abs_consecutive_difference_ns, 160.0);
/// assert_eq!(jitter.rfc3550_smoothed_ns, 19.375); // 160/16 = 10, then 10 + (160 − 10)/16
/// ```
#[derive(Debug, Clone, Default)]
pub struct JitterEstimator {
    previous: Option<u64>,
    smoothed: f64,
    sum: u128,
    differences: u64,
}

impl JitterEstimator {
    /// One that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A packet arrived that was this long under way: one way or there and back, the differences
    /// are what counts, so that a constant offset between two clocks falls out.
    pub fn record(&mut self, under_way_ns: u64) {
        if let Some(previous) = self.previous.replace(under_way_ns) {
            let difference = under_way_ns.abs_diff(previous);
            self.smoothed += (difference as f64 - self.smoothed) / 16.0;
            self.sum += u128::from(difference);
            self.differences += 1;
        }
    }

    /// The figures; `None` below two packets.
    #[must_use]
    pub fn jitter(&self) -> Option<Jitter> {
        (self.differences > 0).then(|| Jitter {
            rfc3550_smoothed_ns: self.smoothed,
            mean_abs_consecutive_difference_ns: self.sum as f64 / self.differences as f64,
            differences: self.differences,
        })
    }
}
