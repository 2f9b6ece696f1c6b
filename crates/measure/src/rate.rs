//! Packets and bits per second, and which bits.
//!
//! Three figures differ much for small packets, so none stands without its name:
//!
//! * **wire**: what the link is busy with. The frame, padded to 60 bytes, and 24 bytes that are in
//!   no buffer: frame check sequence (4), preamble and start delimiter (8), gap between frames (12).
//! * **frame**: the bytes in the buffer, from the Ethernet header on, without check sequence.
//! * **payload**: what the application wanted to carry, say a UDP payload.
//!
//! ```
//! use ringside_measure::rate::{wire_bits, Rates};
//!
//! // The smallest frame ("64 bytes" with its check sequence) takes 84 byte times: 10 Gbit/s is
//! // full at 14.88 million a second.
//! assert_eq!(wire_bits(60), 672);
//! let rates = Rates::new(14_880_952, 60, 18, 1_000_000_000).unwrap();
//! assert_eq!(rates.wire_bps, 9_999_999_744.0);
//! assert_eq!(rates.payload_bps, 2_142_857_088.0);
//! ```

use serde::{Deserialize, Serialize};

/// Frame check sequence, preamble, start delimiter and inter-frame gap: 4 + 7 + 1 + 12 bytes.
pub const WIRE_OVERHEAD_BYTES: u64 = 24;

/// Shorter frames are padded to this on the wire (without check sequence), in bytes.
pub const MIN_FRAME_BYTES: u64 = 60;

/// Bits for which an Ethernet link is busy with a frame of `frame_bytes` (without check sequence).
#[must_use]
pub const fn wire_bits(frame_bytes: u64) -> u64 {
    let padded = if frame_bytes < MIN_FRAME_BYTES {
        MIN_FRAME_BYTES
    } else {
        frame_bytes
    };
    padded.saturating_add(WIRE_OVERHEAD_BYTES).saturating_mul(8)
}

/// The packets of one direction per second, and their bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Packets per second.
    pub packets_pps: f64,
    /// Bits per second that an Ethernet link is busy for: padding, check sequence, preamble and gap
    /// included.
    pub wire_bps: f64,
    /// Bits per second of frames as they stand in memory.
    pub frame_bps: f64,
    /// Bits per second of payload.
    pub payload_bps: f64,
}

impl Rates {
    /// Rates of `packets` of one size within `duration_ns`. `None` when no time went by.
    #[must_use]
    pub fn new(packets: u64, frame_bytes: u64, payload_bytes: u64, duration_ns: u64) -> Option<Self> {
        if duration_ns == 0 {
            return None;
        }
        // Products of integers first: rounding happens once.
        let per_second = |amount: u64| {
            let total = u128::from(packets) * u128::from(amount);
            total as f64 * 1e9 / duration_ns as f64
        };
        Some(Self {
            packets_pps: per_second(1),
            wire_bps: per_second(wire_bits(frame_bytes)),
            frame_bps: per_second(frame_bytes.saturating_mul(8)),
            payload_bps: per_second(payload_bytes.saturating_mul(8)),
        })
    }
}

#[cfg(test)]
mod tests;
