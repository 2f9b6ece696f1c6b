//! Times that are looked at while they are still being measured.

use std::iter;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{LONGEST_NS, Latency, SAMPLES_BEYOND};

/// From this power of two on, only as many leading bits of a time are kept: three digits.
const EXACT_BITS: u32 = 11;

/// Buckets for each power of two from there on: what is left of the leading bits when the first, a one, is known.
const STEP: usize = 1 << (EXACT_BITS - 1);

/// One for each time that can be told from others, up to [`LONGEST_NS`].
const BUCKETS: usize = bucket(LONGEST_NS) + 1;

/// Times in nanoseconds that one thread adds while another looks at them, without either waiting for the other: an array
/// of counters, about 110 KiB.
///
/// It holds what is enough for a [`Glance`], which takes the median of what came since the last one; everything else is
/// [`Latency`](super::Latency)'s.
///
/// ```
/// use ringside_measure::latency::{Glance, LiveLatency};
///
/// let (times, mut glance) = (LiveLatency::new(), Glance::new());
/// (0..100).for_each(|_| times.record(700));
/// assert_eq!(glance.median([&times]), Some(700));
/// (0..20).for_each(|_| times.record(900));
/// assert_eq!(glance.median([&times]), Some(900)); // of the new ones
/// times.record(900);
/// assert_eq!(glance.median([&times]), None); // too few for a median
/// ```
#[derive(Debug)]
pub struct LiveLatency {
    /// They wrap: only differences count.
    counts: Box<[AtomicU32]>,
}

impl LiveLatency {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: iter::repeat_with(AtomicU32::default).take(BUCKETS).collect(),
        }
    }

    /// Adds a time. One atomic addition; does not allocate.
    #[inline]
    pub fn record(&self, ns: u64) {
        if let Some(count) = self.counts.get(bucket(ns.min(LONGEST_NS))) {
            // Each count stands for itself: there is nothing that it would have to come before or after.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Default for LiveLatency {
    fn default() -> Self {
        Self::new()
    }
}

/// Looks at [`LiveLatency`] again and again, and remembers what it has seen.
#[derive(Debug, Default)]
pub struct Glance {
    seen: Vec<u32>,
    fresh: Vec<u32>,
}

impl Glance {
    /// One that has seen nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Median of the times that were added since the last look, in nanoseconds to three significant digits; `None` for
    /// fewer than 20 of them (see [`SAMPLES_BEYOND`]). Of several sources, the median of all their times together.
    ///
    /// What is added meanwhile counts either now or the next time. Fewer than 2^32 times of one length may lie between
    /// two looks.
    pub fn median<'a>(&mut self, sources: impl IntoIterator<Item = &'a LiveLatency>) -> Option<u64> {
        self.fresh.fill(0);
        for source in sources {
            self.seen.resize(BUCKETS, 0);
            self.fresh.resize(BUCKETS, 0);
            for (sum, count) in self.fresh.iter_mut().zip(&source.counts) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        for (fresh, seen) in self.fresh.iter_mut().zip(&mut self.seen) {
            let now = *fresh;
            *fresh = now.wrapping_sub(*seen);
            *seen = now;
        }
        let samples: u64 = self.fresh.iter().map(|&count| u64::from(count)).sum();
        if samples / 2 < SAMPLES_BEYOND {
            return None;
        }
        let mut until = 0;
        let middle = self.fresh.iter().position(|&count| {
            until += u64::from(count);
            until >= samples.div_ceil(2)
        });
        middle.map(longest_of)
    }
}

/// All times of one [`LiveLatency`], as often as one looks: what was there at the last look and what has come since.
#[derive(Debug, Default)]
pub struct Tally {
    seen: Vec<u32>,
    latency: Latency,
}

impl Tally {
    /// One that has seen nothing yet. It belongs to one source.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All times until now, to three significant digits, minimum, mean and maximum included. Fewer than 2^32 times of one length
    /// may lie between two looks.
    pub fn look(&mut self, source: &LiveLatency) -> &Latency {
        self.seen.resize(BUCKETS, 0);
        for (bucket, (seen, count)) in self.seen.iter_mut().zip(&source.counts).enumerate() {
            let now = count.load(Ordering::Relaxed);
            let fresh = now.wrapping_sub(*seen);
            if fresh != 0 {
                *seen = now;
                self.latency.record_many(longest_of(bucket), fresh.into());
            }
        }
        &self.latency
    }
}

/// The bucket of a time: below 2^11 each has its own, above it those with the same leading 11 bits share one.
const fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(EXACT_BITS);
    // At most 2^11 after the shift, and at most 53 shifts.
    #[allow(clippy::cast_possible_truncation, reason = "eleven bits")]
    let leading = (ns >> shift) as usize;
    shift as usize * STEP + leading
}

/// The longest time of a bucket.
const fn longest_of(bucket: usize) -> u64 {
    let shift = (bucket / STEP).saturating_sub(1);
    let leading = (bucket - shift * STEP) as u64;
    ((leading + 1) << shift) - 1
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
