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

/// Shortest time from the first packet to the last that gives a rate: 1 ms. An application takes
/// the packets of a shorter burst out of the queue faster than they came.
pub const MIN_SPAN_NS: u64 = 1_000_000;

/// When the packets of one direction passed, from the first to the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When the first packet, or the first burst, had passed.
    pub first_ns: u64,
    /// Number of packets in the first burst.
    pub first_packets: u64,
    /// When the last packet, or the last burst, had passed.
    pub last_ns: u64,
}

impl Span {
    /// Returns the span of the packets of both, say of two queues.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let (first, second) = match other.first_ns < self.first_ns {
            true => (other, self),
            false => (self, other),
        };
        Self {
            last_ns: first.last_ns.max(second.last_ns),
            ..first
        }
    }

    /// Returns the time from the first to the last, in nanoseconds.
    #[must_use]
    pub fn duration_ns(self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// The packets of one direction per second, and their bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rates {
    /// Time that the rates are over, in nanoseconds: of a run from the first to the last packet.
    /// `None` in documents of versions that did not record it.
    #[serde(default)]
    pub span_ns: Option<u64>,
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
            span_ns: Some(duration_ns),
            packets_pps: per_second(1),
            wire_bps: per_second(wire_bits(frame_bytes)),
            frame_bps: per_second(frame_bytes.saturating_mul(8)),
            payload_bps: per_second(payload_bytes.saturating_mul(8)),
        })
    }

    /// Returns the rates of `packets` of mixed sizes, `bytes` in all, that passed within `span`.
    ///
    /// N packets span N − 1 intervals: the first burst starts the clock and is not counted.
    /// `header_bytes` of each frame are no payload. Bits on the wire contain the 24 bytes of
    /// overhead of each frame, and padding where the mean frame is shorter than the shortest.
    ///
    /// `None` if all packets passed at one time, or within less than [`MIN_SPAN_NS`]: that is the
    /// time between two reads of the receiver, and gives no rate.
    #[must_use]
    pub fn within(span: Span, packets: u64, bytes: u64, header_bytes: u64) -> Option<Self> {
        let counted = packets
            .checked_sub(span.first_packets)
            .filter(|&counted| counted != 0 && span.duration_ns() >= MIN_SPAN_NS)?;
        let mean = bytes / packets;
        let rates = Self::new(counted, mean, mean, span.duration_ns())?;
        // The mean is rounded to bytes; the sum is exact.
        let bits = |bytes: u64| bytes as f64 * 8.0 * counted as f64 / packets as f64;
        let per_second = |bytes: u64| bits(bytes) * 1e9 / span.duration_ns() as f64;
        Some(Self {
            wire_bps: match mean < MIN_FRAME_BYTES {
                true => rates.wire_bps,
                false => per_second(bytes.saturating_add(packets.saturating_mul(WIRE_OVERHEAD_BYTES))),
            },
            frame_bps: per_second(bytes),
            payload_bps: per_second(bytes.saturating_sub(packets.saturating_mul(header_bytes))),
            ..rates
        })
    }
}

#[cfg(test)]
mod tests;
