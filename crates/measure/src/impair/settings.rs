//! What is to be done to packets, and what was.

use serde::{Deserialize, Serialize};

use super::{Pick, Rate, Spread};

/// What is done to the packets of one direction. The default does nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Which packets are lost.
    pub loss: Pick,
    /// Which packets leave twice.
    pub duplicate: Pick,
    /// Of which packets a bit is turned.
    pub corrupt: Pick,
    /// Which packets are held back until [`reorder_by`](Self::reorder_by) of those behind them have left.
    pub reorder: Pick,
    /// How many that is.
    pub reorder_by: u64,
    /// For how long such a packet waits for them at the most, in nanoseconds: the last one would wait for ever.
    pub reorder_wait_ns: u64,
    /// How long every packet takes, in nanoseconds.
    pub delay_ns: u64,
    /// By how much that varies, in nanoseconds.
    pub jitter_ns: u64,
    /// How it varies.
    pub spread: Spread,
    /// A packet with less delay may overtake those before it. Otherwise it waits for them, as on a path with one queue.
    pub overtaking: bool,
    /// The link's rate and its queue; `None` has neither.
    pub rate: Option<Rate>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            loss: Pick::Never,
            duplicate: Pick::Never,
            corrupt: Pick::Never,
            reorder: Pick::Never,
            reorder_by: 1,
            reorder_wait_ns: 100_000_000,
            delay_ns: 0,
            jitter_ns: 0,
            spread: Spread::Uniform,
            overtaking: false,
            rate: None,
        }
    }
}

/// What was done to the packets of one direction.
///
/// `offered` = `dropped` + `queue_dropped` + `overflowed` + `passed` + those still held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Counts {
    /// Packets that came.
    #[serde(rename = "offered_packets")]
    pub offered: u64,
    /// Lost on purpose.
    #[serde(rename = "dropped_packets")]
    pub dropped: u64,
    /// Found the queue in front of the rate full.
    #[serde(rename = "queue_dropped_packets")]
    pub queue_dropped: u64,
    /// Found no room: more were held than there was memory for. Not on purpose.
    #[serde(rename = "overflowed_packets")]
    pub overflowed: u64,
    /// Left, each counted once.
    #[serde(rename = "passed_packets")]
    pub passed: u64,
    /// Left a second time.
    #[serde(rename = "duplicated_packets")]
    pub duplicated: u64,
    /// Were to leave twice, but there was no memory for a copy. Not on purpose.
    #[serde(rename = "uncopied_packets")]
    pub uncopied: u64,
    /// Of those that were held or left, had a bit turned.
    #[serde(rename = "corrupted_packets")]
    pub corrupted: u64,
    /// Left after one that had come later (RFC 4737 §3, Type-P-Reordered). Part of `passed`; copies do not count.
    #[serde(rename = "reordered_packets")]
    pub reordered: u64,
    /// How many numbers the latest of them was behind.
    #[serde(rename = "longest_reordering_packets")]
    pub longest_reordering: u64,
    /// Were held back, but too few came behind them in time.
    #[serde(rename = "not_overtaken_packets")]
    pub not_overtaken: u64,
}
