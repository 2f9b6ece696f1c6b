//! Do the counts of a run add up?
//!
//! ```
//! use ringside_measure::counters::{Ledger, LossCause};
//!
//! let mut ledger = Ledger { generated: 1_000, sent: 990, received: Some(950), ..Ledger::default() };
//! ledger.lose(LossCause::RxRingFull, 30);
//! assert!(!ledger.reconciles());
//! assert_eq!(ledger.difference(), 10); // ten packets that no counter knows of
//! ledger.lose(LossCause::LinkTxDropped, 10);
//! assert!(ledger.reconciles());
//! assert_eq!(ledger.not_sent(), 10);
//! assert_eq!(ledger.losses[0].id, "rx_ring_full");
//! ```

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

mod causes;

pub use causes::LossCause;

/// The packets of a run, from the intention to the end of the path that the run watches.
///
/// Read the counters after sending has stopped and the path has drained: those under way would look
/// like losses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ledger {
    /// Packets that were to be sent.
    pub generated: u64,
    /// Packets given to the path.
    pub sent: u64,
    /// Packets that a program received, each counted once; left out where the path ends at a link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// Packets that left by the link; left out where the path ends at a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transmitted: Option<u64>,
    /// Losses in between, by cause.
    pub losses: Vec<Loss>,
}

/// Packets lost for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Loss {
    /// The identifier of the cause ([`LossCause::id`]), which stays the same in all versions.
    pub id: Cow<'static, str>,
    /// The cause in words, which may change.
    pub text: Cow<'static, str>,
    /// Number of packets.
    pub count: u64,
}

impl Ledger {
    /// Adds to the losses of a cause.
    pub fn lose(&mut self, cause: LossCause, count: u64) {
        self.add(Loss {
            id: cause.id().into(),
            text: cause.text().into(),
            count,
        });
    }

    fn add(&mut self, loss: Loss) {
        match self.losses.iter_mut().find(|known| known.id == loss.id) {
            Some(known) => known.count = known.count.saturating_add(loss.count),
            None => self.losses.push(loss),
        }
    }

    /// Adds the packets and losses of another path.
    pub fn merge(&mut self, other: Self) {
        let sum = |own: &mut Option<u64>, other: Option<u64>| {
            *own = match (*own, other) {
                (None, None) => None,
                (own, other) => Some(own.unwrap_or(0).saturating_add(other.unwrap_or(0))),
            };
        };
        self.generated = self.generated.saturating_add(other.generated);
        self.sent = self.sent.saturating_add(other.sent);
        sum(&mut self.received, other.received);
        sum(&mut self.transmitted, other.transmitted);
        other.losses.into_iter().for_each(|loss| self.add(loss));
    }

    /// Returns the packets that came out of the path: received, or transmitted by the link.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.received.unwrap_or(0).saturating_add(self.transmitted.unwrap_or(0))
    }

    /// Returns the packets lost for a cause.
    #[must_use]
    pub fn lost_by(&self, cause: LossCause) -> u64 {
        let of = self.losses.iter().filter(|loss| loss.id == cause.id());
        of.fold(0, |sum, loss| sum.saturating_add(loss.count))
    }

    /// Returns all counted losses.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.iter().fold(0, |sum, loss| sum.saturating_add(loss.count))
    }

    /// Returns the packets that were to be sent and never given to the path.
    #[must_use]
    pub fn not_sent(&self) -> u64 {
        self.generated.saturating_sub(self.sent)
    }

    /// Returns sent − (delivered + losses). Above zero, these packets are in no counter. Below zero,
    /// they were counted twice, or came from elsewhere.
    #[must_use]
    pub fn difference(&self) -> i128 {
        i128::from(self.sent) - i128::from(self.delivered()) - i128::from(self.lost())
    }

    /// Returns whether every packet sent is accounted for.
    #[must_use]
    pub fn reconciles(&self) -> bool {
        self.difference() == 0
    }
}

#[cfg(test)]
mod tests;
