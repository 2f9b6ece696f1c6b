//! Times without a beat.

use crate::Error;
use crate::random::SplitMix64;

/// A schedule whose gaps are spread evenly from half to one and a half of a mean interval.
///
/// Packets at even times fall in step with what else is periodic on a machine: with a timer tick of 4 ms every fourth packet of
/// a millisecond's period comes at the same distance from a tick, for as long as the run lasts, and another run finds
/// another distance. These do not.
///
/// ```
/// use ringside_measure::pace::UnevenPace;
///
/// let mut pace = UnevenPace::new(1_000, 0, 7)?;
/// let first = pace.next(0);
/// assert!((500..=1_500).contains(&first));
/// let second = pace.next(first);
/// assert!((500..=1_500).contains(&(second - first)));
/// assert_eq!(pace.next(1_000_000), 1_000_000); // late: at once, and nothing is caught up
/// # Ok::<(), ringside_measure::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UnevenPace {
    interval_ns: u64,
    due_ns: u64,
    random: SplitMix64,
}

impl UnevenPace {
    /// A packet every `interval_ns` nanoseconds in the mean, after `start_ns`. The same seed gives the same gaps.
    ///
    /// # Errors
    /// [`Error::Period`] for zero.
    pub fn new(interval_ns: u64, start_ns: u64, seed: u64) -> Result<Self, Error> {
        if interval_ns == 0 {
            return Err(Error::Period);
        }
        Ok(Self {
            interval_ns,
            due_ns: start_ns,
            random: SplitMix64(seed),
        })
    }

    /// When the next packet is due; `now_ns` if that is over.
    pub fn next(&mut self, now_ns: u64) -> u64 {
        let half = self.interval_ns / 2;
        let gap = half.saturating_add(self.random.below(self.interval_ns.saturating_add(1)));
        self.due_ns = self.due_ns.saturating_add(gap).max(now_ns);
        self.due_ns
    }
}
