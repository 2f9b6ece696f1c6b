//! A link with a rate, and the queue in front of it.

use std::collections::VecDeque;

use crate::Error;

/// What a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Packets, whatever their size.
    Packets,
    /// Bits of packets, as many bytes as they were offered with.
    Bits,
}

/// A rate, and how many packets may wait for it.
///
/// The bucket holds one packet: each leaves as soon as the one before has had its time, and nothing leaves in bursts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many a second.
    pub per_second: u64,
    /// Of these.
    pub unit: Unit,
    /// Packets that may wait; the next one is dropped.
    pub queue: usize,
}

/// Fractions of a nanosecond that are kept, as a power of two: an error of less than a nanosecond in 10^9 packets.
const FRACTION: u32 = 32;

#[derive(Debug)]
pub(super) struct RateQueue {
    rate: Rate,
    /// When the link is free again.
    free: u128,
    /// When those that wait leave; none of them is over.
    waiting: VecDeque<u64>,
}

impl RateQueue {
    pub(super) fn new(rate: Rate) -> Result<Self, Error> {
        if rate.per_second == 0 {
            return Err(Error::Impairment(
                "a rate of 0 lets nothing through; to lose all packets is a loss of 1".into(),
            ));
        }
        Ok(Self {
            rate,
            free: 0,
            waiting: VecDeque::with_capacity(rate.queue),
        })
    }

    /// When a packet leaves that comes now; `None` when it finds the queue full.
    pub(super) fn admit(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        while self.waiting.front().is_some_and(|&leaves| leaves <= now_ns) {
            self.waiting.pop_front();
        }
        let now = u128::from(now_ns) << FRACTION;
        let start = self.free.max(now);
        // Not before its time: rounded up.
        let leaves_ns = u64::try_from((start + (1 << FRACTION) - 1) >> FRACTION).unwrap_or(u64::MAX);
        if leaves_ns > now_ns {
            if self.waiting.len() >= self.rate.queue {
                return None;
            }
            self.waiting.push_back(leaves_ns);
        }
        let units = match self.rate.unit {
            Unit::Packets => 1,
            Unit::Bits => u128::from(bytes) * 8,
        };
        self.free = start + ((units * 1_000_000_000) << FRACTION) / u128::from(self.rate.per_second);
        Some(leaves_ns)
    }
}
