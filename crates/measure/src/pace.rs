//! When packets are due: a schedule in integers, exact for as long as it runs.
//!
//! ```
//! use ringside_measure::pace::Pacer;
//!
//! let mut pacer = Pacer::per_second(3, 1_000)?; // three a second, the first at once
//! assert_eq!(pacer.due(1_000), 1);
//! assert_eq!(pacer.intended_ns(1), Some(1_000 + 333_333_333));
//! assert_eq!(pacer.take(1_000, 32), 0..1);
//! // The caller was held up for ten seconds: 30 are due, but it takes eight at a time.
//! assert_eq!(pacer.take(10_000_001_000, 8), 1..9);
//! assert_eq!(pacer.take(10_000_001_000, 8), 9..17);
//! // Or it lets all go but the two latest, which it then has to count as not sent.
//! assert_eq!(pacer.skip_backlog(10_000_001_000, 2), 12);
//! assert_eq!(pacer.take(10_000_001_000, 8), 29..31);
//! # Ok::<(), ringside_measure::Error>(())
//! ```

use std::ops::Range;

use crate::Error;

mod lateness;
mod uneven;

pub use lateness::{LATE_NS, Lateness};
pub use uneven::UnevenPace;

const NS_PER_SECOND: u64 = 1_000_000_000;
/// Rates in floating point are rounded to millionths of a packet per second.
const MILLIONTHS: u64 = 1_000_000;
/// More than any link carries, and few enough for the products below to fit 128 bits.
const MOST_PER_SECOND: u64 = 1_000_000_000_000;

/// A schedule of numbered packets: number n is intended for `start + n × period`, rounded down to
/// nanoseconds.
///
/// The intended times do not move when the caller is late. That is what makes the latency that is
/// counted from them honest, see [`crate::latency::RttRecorder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pacer {
    start_ns: u64,
    /// Nothing is due after this time.
    last_ns: u64,
    schedule: Option<Schedule>,
    next: u64,
    /// When that one is due: looked at again and again, and a division.
    next_ns: u64,
}

/// `packets` in every `span_ns` nanoseconds, so that no period has to be rounded. Without common factors: with small
/// numbers 64 bits hold the products for days.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Schedule {
    packets: u64,
    span_ns: u64,
}

impl Pacer {
    /// So many packets a second, from `start_ns` on.
    ///
    /// # Errors
    /// [`Error::Rate`] for zero or more than 10¹².
    pub fn per_second(packets_per_second: u64, start_ns: u64) -> Result<Self, Error> {
        if packets_per_second == 0 || packets_per_second > MOST_PER_SECOND {
            return Err(Error::Rate {
                packets_per_second: packets_per_second as f64,
            });
        }
        Ok(Self::scheduled(packets_per_second, NS_PER_SECOND, start_ns))
    }

    /// As [`per_second`](Self::per_second), for rates such as 0.5; rounded to millionths.
    ///
    /// # Errors
    /// [`Error::Rate`] below a millionth, above 10¹², or not a number.
    pub fn per_second_f64(packets_per_second: f64, start_ns: u64) -> Result<Self, Error> {
        let millionths = (packets_per_second * MILLIONTHS as f64).round();
        if !(1.0..=(MOST_PER_SECOND * MILLIONTHS) as f64).contains(&millionths) {
            return Err(Error::Rate { packets_per_second });
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 1 to 10^18, as just checked"
        )]
        let packets = millionths as u64;
        Ok(Self::scheduled(packets, NS_PER_SECOND * MILLIONTHS, start_ns))
    }

    /// One packet every `period_ns` nanoseconds, from `start_ns` on.
    ///
    /// # Errors
    /// [`Error::Period`] for zero.
    pub fn every(period_ns: u64, start_ns: u64) -> Result<Self, Error> {
        if period_ns == 0 {
            return Err(Error::Period);
        }
        Ok(Self::scheduled(1, period_ns, start_ns))
    }

    /// As fast as possible: always all due, nothing intended.
    #[must_use]
    pub fn unlimited(start_ns: u64) -> Self {
        Self {
            start_ns,
            last_ns: u64::MAX,
            schedule: None,
            next: 0,
            next_ns: start_ns,
        }
    }

    fn scheduled(packets: u64, span_ns: u64, start_ns: u64) -> Self {
        let common = common_divisor(packets, span_ns);
        Self {
            start_ns,
            last_ns: u64::MAX,
            schedule: Some(Schedule {
                packets: packets / common,
                span_ns: span_ns / common,
            }),
            next: 0,
            next_ns: start_ns,
        }
    }

    /// Ends the schedule: packets of `end_ns` or later are never due. Two seconds at 100 packets
    /// per second are 200 packets. Has no effect on an unlimited pace.
    ///
    /// ```
    /// use ringside_measure::pace::Pacer;
    ///
    /// let pacer = Pacer::per_second(100, 0)?.until(2_000_000_000);
    /// assert_eq!(pacer.due(2_000_000_000), 200);
    /// # Ok::<(), ringside_measure::Error>(())
    /// ```
    #[must_use]
    pub fn until(mut self, end_ns: u64) -> Self {
        self.last_ns = end_ns.saturating_sub(1);
        self.find_next();
        self
    }

    /// How many packets should have been sent by `now_ns` since the start, in all. The first is due
    /// at the start itself. Unlimited: `u64::MAX` from the start on.
    #[must_use]
    pub fn due(&self, now_ns: u64) -> u64 {
        let Some(schedule) = self.schedule else {
            return if now_ns < self.start_ns { 0 } else { u64::MAX };
        };
        let Some(elapsed) = now_ns.min(self.last_ns).checked_sub(self.start_ns) else {
            return 0;
        };
        // Number n is due when ⌊n·span / packets⌋ ≤ elapsed, that is n·span < (elapsed + 1)·packets.
        let fits = elapsed
            .checked_add(1)
            .and_then(|time| time.checked_mul(schedule.packets));
        let reached = match fits {
            Some(reach) => (reach - 1) / schedule.span_ns,
            None => {
                // Below 2^64 · 10^18 < 2^124: no overflow.
                let reach = (u128::from(elapsed) + 1) * u128::from(schedule.packets) - 1;
                saturate(reach / u128::from(schedule.span_ns))
            }
        };
        reached.saturating_add(1)
    }

    /// Whether there is one to be sent: a comparison, which may be asked for at every turn of a loop.
    #[must_use]
    #[inline]
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// How many are due and not yet taken.
    #[must_use]
    #[inline]
    pub fn backlog(&self, now_ns: u64) -> u64 {
        if !self.is_due(now_ns) {
            return 0;
        }
        self.due(now_ns).saturating_sub(self.next)
    }

    /// How many a schedule wanted sent by now that were not; none for an unlimited pace, which wants nothing.
    #[must_use]
    pub fn unsent(&self, now_ns: u64) -> u64 {
        self.schedule.map_or(0, |_| self.backlog(now_ns))
    }

    /// When this packet is to be sent. `None` for an unlimited pace, which intends no time: the
    /// intended time of such a packet is when it is sent.
    #[must_use]
    pub fn intended_ns(&self, sequence: u64) -> Option<u64> {
        let schedule = self.schedule?;
        let offset = match sequence.checked_mul(schedule.span_ns) {
            Some(product) => product / schedule.packets,
            // Below 2^64 · 2^64: no overflow.
            None => saturate(u128::from(sequence) * u128::from(schedule.span_ns) / u128::from(schedule.packets)),
        };
        Some(self.start_ns.saturating_add(offset))
    }

    /// Takes what is due and not yet taken, at most `most`: the numbers to be sent now. What is
    /// over stays due, so after a stall the caller catches up in bursts of `most`.
    pub fn take(&mut self, now_ns: u64, most: u64) -> Range<u64> {
        let count = self.backlog(now_ns).min(most);
        let first = self.next;
        self.advance(count);
        first..self.next
    }

    /// Lets go what is due and not yet taken, but for the latest `keep`, and says how many: they
    /// were intended and not sent, which is a loss that has to be told.
    pub fn skip_backlog(&mut self, now_ns: u64, keep: u64) -> u64 {
        if self.schedule.is_none() {
            return 0; // nothing was intended
        }
        let skipped = self.backlog(now_ns).saturating_sub(keep);
        self.advance(skipped);
        skipped
    }

    /// When the next packet that is not yet taken is due: how long to sleep or spin. For an
    /// unlimited pace the start, after the end of the schedule `u64::MAX`.
    #[must_use]
    #[inline]
    pub fn next_due_ns(&self) -> u64 {
        self.next_ns
    }

    fn advance(&mut self, count: u64) {
        if count != 0 {
            self.next += count;
            self.find_next();
        }
    }

    fn find_next(&mut self) {
        self.next_ns = match self.intended_ns(self.next) {
            Some(due_ns) if due_ns > self.last_ns => u64::MAX,
            Some(due_ns) => due_ns,
            None => self.start_ns,
        };
    }

    /// How many have been taken or skipped.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }
}

/// Euclid's.
fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
