//! Round trips, with and without the wait before sending.

use super::{Jitter, JitterEstimator, Latency};

/// Times round trips in two ways.
///
/// *Raw* is from the real sending to the reception. A sender that is held up by the very thing it
/// measures sends late, and the raw figure never shows what the packets that should have left
/// meanwhile would have seen ("coordinated omission"). *Corrected* is from the intended sending, by
/// schedule: it holds the delay of the sender too, and is what a user of the path would have
/// noticed. Both are told; at a rate that the sender keeps up with they agree.
///
/// ```
/// use ringside_measure::latency::RttRecorder;
///
/// let mut rtt = RttRecorder::new();
/// rtt.record(1_000, 1_000, 6_000); // on time
/// rtt.record(2_000, 7_000, 12_000); // held up by 5 µs
/// assert_eq!(rtt.raw().summary().unwrap().max_ns, 5_000);
/// assert_eq!(rtt.corrected().summary().unwrap().max_ns, 10_000);
/// ```
#[derive(Debug, Clone, Default)]
pub struct RttRecorder {
    raw: Latency,
    corrected: Latency,
    jitter: JitterEstimator,
    impossible: u64,
}

impl RttRecorder {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a round trip: three readings of one clock in nanoseconds. Does not allocate.
    ///
    /// Received before sent is impossible on one clock: it is counted by
    /// [`impossible`](Self::impossible) and nowhere else. Sent before intended counts as intended
    /// when sent.
    pub fn record(&mut self, intended_ns: u64, sent_ns: u64, received_ns: u64) {
        let Some(raw) = received_ns.checked_sub(sent_ns) else {
            self.impossible += 1;
            return;
        };
        self.raw.record(raw);
        self.corrected.record(received_ns - intended_ns.min(sent_ns));
        self.jitter.record(raw);
    }

    /// Adds what another one recorded, but for its jitter: that is about the order of one flow.
    pub fn merge(&mut self, other: &Self) {
        self.raw.merge(&other.raw);
        self.corrected.merge(&other.corrected);
        self.impossible += other.impossible;
    }

    /// From the real sending to the reception.
    #[must_use]
    pub fn raw(&self) -> &Latency {
        &self.raw
    }

    /// From the intended sending to the reception: corrected for coordinated omission.
    #[must_use]
    pub fn corrected(&self) -> &Latency {
        &self.corrected
    }

    /// Jitter of the raw round trips; `None` below two.
    #[must_use]
    pub fn jitter(&self) -> Option<Jitter> {
        self.jitter.jitter()
    }

    /// Packets received before they were sent, so that not both stamps can be right.
    #[must_use]
    pub fn impossible(&self) -> u64 {
        self.impossible
    }
}
