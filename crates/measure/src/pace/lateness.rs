//! How late a sender is, apart from what the path held up.

use crate::compare::STEAL_LIMIT;
use crate::latency::Latency;
use crate::schema::SenderLateness;

/// Lateness, in nanoseconds, that waking a thread may take: a packet is late only beyond it.
pub const LATE_NS: u64 = 100_000;

/// Records by how much the packets of a schedule are sent after their time.
///
/// A path that takes no packet (full, or down, or all packets in flight that are allowed) delays
/// the packets that are due meanwhile. That is a property of the path, and so is the backlog that
/// the sender then works off: what counts of these packets is the time since the one before was
/// sent.
///
/// ```
/// use ringside_measure::pace::Lateness;
///
/// let mut lateness = Lateness::new(1_000_000);
/// lateness.record(5_000_000, 5_002_000, 1); // 2 µs late
/// lateness.held_up_until(9_500_000); // the path took nothing until then
/// lateness.record(6_000_000, 9_501_000, 1); // 1 µs
/// lateness.record(10_000_000, 13_000_000, 1); // 3 ms, more than an interval: late
/// let result = lateness.result().unwrap();
/// assert_eq!((result.times.max_ns, result.late_packets), (3_000_000, 1));
/// assert!(result.is_too_late());
/// ```
#[derive(Debug, Clone)]
pub struct Lateness {
    late_ns: u64,
    /// Until then the path has taken nothing.
    held_up_ns: u64,
    /// Packets are sent that were due before, or have become due since.
    is_catching_up: bool,
    last_ns: u64,
    late_packets: u64,
    times: Latency,
}

impl Lateness {
    /// Makes a record for a schedule with a packet every `interval_ns`.
    #[must_use]
    pub fn new(interval_ns: u64) -> Self {
        Self {
            late_ns: interval_ns.max(LATE_NS),
            held_up_ns: 0,
            is_catching_up: false,
            last_ns: 0,
            late_packets: 0,
            times: Latency::new(),
        }
    }

    /// Notes that the path has taken no packet until `now_ns`.
    pub fn held_up_until(&mut self, now_ns: u64) {
        self.held_up_ns = now_ns;
        self.is_catching_up = true;
    }

    /// Records a burst that was sent at `sent_ns`. The first of its packets was due at `due_ns`,
    /// and counts for all of them. A burst without packets changes nothing.
    #[inline]
    pub fn record(&mut self, due_ns: u64, sent_ns: u64, packets: u64) {
        if packets == 0 {
            return;
        }
        let backlog_ns = self.held_up_ns.max(self.last_ns);
        self.is_catching_up &= due_ns <= backlog_ns;
        let from_ns = if self.is_catching_up { backlog_ns } else { due_ns };
        let late_ns = sent_ns.saturating_sub(from_ns);
        self.last_ns = sent_ns;
        self.times.record_many(late_ns, packets);
        if late_ns > self.late_ns {
            self.late_packets += packets;
        }
    }

    /// Adds the record of another sender of the same schedule.
    pub fn merge(&mut self, other: &Self) {
        self.late_packets += other.late_packets;
        self.times.merge(&other.times);
    }

    /// Returns the figures; `None` if nothing was sent.
    #[must_use]
    pub fn result(&self) -> Option<SenderLateness> {
        Some(SenderLateness {
            times: self.times.summary()?,
            late_packets: self.late_packets,
        })
    }
}

impl SenderLateness {
    /// Returns the share of the packets, 0 to 1, that were late.
    #[must_use]
    pub fn late_share(&self) -> f64 {
        self.late_packets as f64 / self.times.samples.max(1) as f64
    }

    /// Returns whether the sender was late for so many packets that the result is invalid.
    #[must_use]
    pub fn is_too_late(&self) -> bool {
        self.late_share() > STEAL_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_that_the_path_caused_is_not_the_senders() {
        let mut lateness = Lateness::new(1_000_000);
        lateness.record(0, 1_000, 1);
        // Nothing could be sent for 300 ms; then 20 µs for each of 300 packets, meanwhile 6 more.
        lateness.held_up_until(301_000_000);
        for number in 1..=306 {
            lateness.record(number * 1_000_000, 301_000_000 + number * 20_000, 1);
        }
        let result = lateness.result().expect("sent");
        assert_eq!((result.times.max_ns, result.late_packets), (20_000, 0));
        // Caught up: from here on the schedule counts again.
        lateness.record(308_000_000, 308_001_000, 1);
        lateness.record(309_000_000, 409_000_000, 50);
        let result = lateness.result().expect("sent");
        assert_eq!((result.times.max_ns, result.late_packets), (100_000_000, 50));
    }

    #[test]
    fn short_delays_of_a_fast_schedule_are_not_late() {
        let mut lateness = Lateness::new(1_000);
        lateness.record(0, LATE_NS, 64);
        lateness.record(0, LATE_NS + 1, 64);
        assert_eq!(lateness.result().map(|result| result.late_packets), Some(64));
        assert_eq!(Lateness::new(1).result(), None);
    }

    #[test]
    fn bursts_without_packets_change_nothing() {
        let mut lateness = Lateness::new(1_000_000);
        lateness.record(0, 50_000_000, 0);
        assert_eq!(lateness.result(), None);
        // The path took nothing until 1 ms; an empty burst is no end of the backlog.
        lateness.held_up_until(1_000_000);
        lateness.record(0, 60_000_000, 0);
        lateness.record(0, 2_000_000, 1);
        let result = lateness.result().expect("sent");
        assert_eq!((result.times.min_ns, result.times.max_ns), (1_000_000, 1_000_000));
    }
}
