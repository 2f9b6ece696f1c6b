//! Packets that the program shows.

use super::Outcome;
use super::layout::{SAMPLE_LEN, long, word};
use super::ring::Ring;

/// A packet as it came, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// Index of the interface that it came by.
    pub ifindex: u32,
    /// The receive queue that it came on.
    pub queue: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// Its network, if it could be read.
    pub vni: Option<u32>,
    /// Its length in bytes.
    pub length: u32,
    /// Its first bytes, 256 at the most.
    pub bytes: Vec<u8>,
}

const HEADER_LEN: usize = 32;

impl Sample {
    /// `struct sample` of gateway.h.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<SAMPLE_LEN>()?;
        let captured = usize::try_from(word(bytes, 28)?).ok()?;
        Some(Self {
            time: long(bytes, 0)?,
            ifindex: word(bytes, 8)?,
            queue: word(bytes, 12)?,
            outcome: Outcome::from_number(word(bytes, 16)?)?,
            vni: word(bytes, 20).filter(|&vni| vni < 1 << 24),
            length: word(bytes, 24)?,
            bytes: bytes.get(HEADER_LEN..HEADER_LEN + captured)?.to_vec(),
        })
    }
}

/// Reads samples, for whoever asked for them in [`GatewayConfig`](crate::gateway::GatewayConfig).
pub type Samples = Ring<Sample>;
