//! Do the counts of a run add up?
//!
//! ```
//! use ringside_measure::counters::Ledger;
//!
//! let mut ledger = Ledger { generated: 1_000, sent: 990, received: 950, losses: Vec::new() };
//! ledger.lose("rx_ring_full", 30);
//! assert!(!ledger.reconciles());
//! assert_eq!(ledger.difference(), 10); // ten packets that no counter knows of
//! ledger.lose("link_tx_dropped", 10);
//! assert!(ledger.reconciles());
//! assert_eq!(ledger.not_sent(), 10);
//! ```

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// The packets of a run, from the intention to the reception.
///
/// Read the counters after sending has stopped and the path has drained: those under way would look
/// like losses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// Packets that were to be sent.
    pub generated: u64,
    /// Packets given to the path.
    pub sent: u64,
    /// Packets that came out of the path, each counted once.
    pub received: u64,
    /// Losses between sent and received, by the counter that saw them.
    pub losses: Vec<Loss>,
}

/// Packets lost at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The counter, such as `rx_ring_full`.
    pub name: Cow<'static, str>,
    /// Its packets.
    pub count: u64,
}

impl Ledger {
    /// Adds to the losses of this name.
    pub fn lose(&mut self, name: impl Into<Cow<'static, str>>, count: u64) {
        let name = name.into();
        match self.losses.iter_mut().find(|loss| loss.name == name) {
            Some(loss) => loss.count = loss.count.saturating_add(count),
            None => self.losses.push(Loss { name, count }),
        }
    }

    /// All counted losses.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.count))
    }

    /// Intended but never given to the path.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self.generated.saturating_sub(self.sent)
    }

    /// Sent − (received + losses). Above zero: so many vanished where nobody counts. Below: so
    /// many were counted twice, or came from elsewhere.
    #[must_use]
    pub fn difference(&self) -> i128 {
        i128::from(self.sent) - i128::from(self.received) - i128::from(self.lost())
    }

    /// Every packet sent is accounted for.
    #[must_use]
    pub fn reconciles(&self) -> bool {
        self.difference() == 0
    }
}

#[cfg(test)]
mod tests;
