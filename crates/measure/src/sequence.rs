//! Which packets were lost, doubled or out of order, in bounded memory.
//!
//! ```
//! use ringside_measure::sequence::{Arrival, Tracker};
//!
//! let mut tracker = Tracker::new(1024);
//! for sequence in 0..5 {
//!     tracker.on_sent(sequence);
//! }
//! assert_eq!(tracker.on_received(0), Arrival::InOrder);
//! assert_eq!(tracker.on_received(3), Arrival::InOrder); // 1 and 2 are missing, not out of order
//! assert_eq!(tracker.on_received(1), Arrival::Reordered { distance: 2 });
//! assert_eq!(tracker.on_received(1), Arrival::Duplicate);
//! assert_eq!(tracker.on_received(9), Arrival::Unexpected); // never sent
//! let counts = tracker.counts();
//! assert_eq!((counts.sent, counts.received, counts.lost), (5, 3, 2));
//! assert_eq!(counts.loss_ratio(), Some(0.4));
//! ```

use serde::{Deserialize, Serialize};

mod arrivals;

pub use arrivals::Arrivals;

/// Follows one session of numbered packets.
///
/// It remembers the last *window* sequence numbers up to the highest that was sent: one bit for
/// "sent", one for "received" each. A packet that arrives when its number has left the window is
/// *late*: nobody knows any more whether it is the first of its number, so it is neither received
/// nor a duplicate, and stays lost. Choose a window above rate × the longest time that a packet may
/// be under way: 1 Mi numbers take 256 KiB and hold one second at 1 M packets/s.
///
/// Packets of other sessions are for the caller to keep away, or to count by
/// [`on_foreign`](Self::on_foreign).
#[derive(Debug, Clone)]
pub struct Tracker {
    sent: Box<[u64]>,
    received: Box<[u64]>,
    /// Numbers in the window less one; their count is a power of two.
    mask: u64,
    highest_sent: Option<u64>,
    highest_received: Option<u64>,
    counts: Counts,
}

/// What the tracker has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counts {
    /// Packets sent.
    pub sent: u64,
    /// Of those, received at least once within the window.
    pub received: u64,
    /// Sent and not received: lost, still under way, or late. Final when the run has drained.
    pub lost: u64,
    /// Received once more.
    pub duplicated: u64,
    /// First arrivals out of order: with a lower number than one that came before
    /// (RFC 4737 §3, Type-P-Reordered). Part of `received`.
    pub reordered: u64,
    /// How far behind the highest number a reordered packet came at the most, in numbers.
    pub longest_reordering: u64,
    /// Arrived after their number had left the window; they count as lost.
    pub late: u64,
    /// Numbers that were never sent, or packets of another session.
    pub unexpected: u64,
}

impl Counts {
    /// Lost in proportion to sent; `None` when nothing was sent.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        ratio(self.lost, self.sent)
    }

    /// Reordered in proportion to received (RFC 4737 §4.1); `None` when nothing was received.
    #[must_use]
    pub fn reordered_ratio(&self) -> Option<f64> {
        ratio(self.reordered, self.received)
    }
}

impl std::iter::Sum for Counts {
    /// Those of several sessions: all added up, but the longest reordering, which is that of one.
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |a, b| Self {
            sent: a.sent + b.sent,
            received: a.received + b.received,
            lost: a.lost + b.lost,
            duplicated: a.duplicated + b.duplicated,
            reordered: a.reordered + b.reordered,
            longest_reordering: a.longest_reordering.max(b.longest_reordering),
            late: a.late + b.late,
            unexpected: a.unexpected + b.unexpected,
        })
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What an arriving packet was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// The first of its number, and no higher number came before.
    InOrder,
    /// The first of its number, after a higher one.
    Reordered {
        /// How far behind the highest number so far.
        distance: u64,
    },
    /// Its number has been received before.
    Duplicate,
    /// Its number has left the window.
    Late,
    /// Its number has not been sent.
    Unexpected,
}

impl Arrival {
    /// The first arrival of a packet that was sent: the one to be timed.
    #[must_use]
    pub const fn is_first(self) -> bool {
        matches!(self, Self::InOrder | Self::Reordered { .. })
    }
}

impl Tracker {
    /// A tracker that remembers at least `window` numbers: rounded up to a power of two, from 64 to
    /// 2³⁰. Two bits are allocated for each, here and never again.
    #[must_use]
    pub fn new(window: usize) -> Self {
        let window = window.clamp(64, 1 << 30).next_power_of_two();
        let words = vec![0u64; window / 64].into_boxed_slice();
        Self {
            sent: words.clone(),
            received: words,
            mask: window as u64 - 1,
            highest_sent: None,
            highest_received: None,
            counts: Counts::default(),
        }
    }

    /// Numbers that it remembers.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.mask + 1
    }

    /// A packet was sent. Numbers have to rise but may have gaps: what was skipped was not sent.
    ///
    /// False, and nothing counted, for a number that is not above all before.
    pub fn on_sent(&mut self, sequence: u64) -> bool {
        match self.highest_sent {
            Some(highest) if sequence <= highest => return false,
            Some(highest) => {
                // Make room: what these places held is one window back. At most once around.
                let gap = (sequence - highest).min(self.window());
                for back in 0..gap {
                    let (word, bit) = self.place(sequence - back);
                    self.sent[word] &= !bit;
                    self.received[word] &= !bit;
                }
            }
            None => {}
        }
        let (word, bit) = self.place(sequence);
        self.sent[word] |= bit;
        self.highest_sent = Some(sequence);
        self.counts.sent += 1;
        self.counts.lost += 1; // until it is received
        true
    }

    /// A packet of this session was received.
    pub fn on_received(&mut self, sequence: u64) -> Arrival {
        let Some(behind) = self.highest_sent.and_then(|highest| highest.checked_sub(sequence)) else {
            self.counts.unexpected += 1;
            return Arrival::Unexpected;
        };
        if behind > self.mask {
            self.counts.late += 1;
            return Arrival::Late;
        }
        let (word, bit) = self.place(sequence);
        if self.sent[word] & bit == 0 {
            self.counts.unexpected += 1;
            return Arrival::Unexpected;
        }
        if self.received[word] & bit != 0 {
            self.counts.duplicated += 1;
            return Arrival::Duplicate;
        }
        self.received[word] |= bit;
        self.counts.received += 1;
        self.counts.lost -= 1;
        match self.highest_received {
            // RFC 4737's NextExp is this highest plus one; equal is a duplicate, handled above.
            Some(highest) if sequence < highest => {
                let distance = highest - sequence;
                self.counts.reordered += 1;
                self.counts.longest_reordering = self.counts.longest_reordering.max(distance);
                Arrival::Reordered { distance }
            }
            _ => {
                self.highest_received = Some(sequence);
                Arrival::InOrder
            }
        }
    }

    /// A packet of another session was received.
    pub fn on_foreign(&mut self) {
        self.counts.unexpected += 1;
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Word and bit of a number in the bitmaps.
    fn place(&self, sequence: u64) -> (usize, u64) {
        let slot = sequence & self.mask;
        // A slot is below the window, and a window's words have been allocated: it fits.
        let word = usize::try_from(slot / 64).unwrap_or(usize::MAX);
        (word, 1 << (slot % 64))
    }
}

#[cfg(test)]
mod tests;
