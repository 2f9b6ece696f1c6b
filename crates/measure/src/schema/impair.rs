//! What a box did to the packets that went through it.

use serde::{Deserialize, Serialize};

use crate::impair::Counts;
use crate::latency::Summary;

/// A path that was made worse on purpose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImpairResult {
    /// The seed: the same one, with the same packets, does the same again.
    pub seed: u64,
    /// Which packets it was done to: `all`, `udp` or `udp:PORT`. All others were handed on as they came.
    pub matching: String,
    /// There and back.
    pub directions: Vec<ImpairedDirection>,
}

/// What was done to the packets of one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ImpairedDirection {
    /// The interface that they came in at.
    pub from: String,
    /// The interface that they left by.
    pub to: String,
    /// What was to be done, in words.
    pub settings: String,
    /// What was done.
    #[serde(flatten)]
    pub counts: Counts,
    /// Handed on as they came: others than those that were to be impaired.
    pub unimpaired_packets: u64,
    /// Dropped because they are longer than what can be sent. Not on purpose.
    pub too_long_packets: u64,
    /// Lost because the link they were to leave by was down. Not on purpose.
    pub link_down_packets: u64,
    /// Still held, copies included, when the run ended.
    pub left_packets: u64,
    /// How long packets were to be held: queue, delay and jitter.
    pub asked: Option<Summary>,
    /// How long they were held, those that others overtook included, from the look that found them to the hand-over for sending.
    pub held: Option<Summary>,
    /// How much later than asked for: what the box was late.
    pub late: Option<Summary>,
}
