//! What a packet of a stream has behind its probe: which class it is of, and where in the cycle.

use crate::probe::{HEADER_LEN, ProbeError};

/// Bytes of a probe with a stream's part.
pub const STREAM_LEN: usize = HEADER_LEN + 8;

/// Tells the part from a payload that happens to be as long.
const MARK: u8 = 0x73;

/// The class, told twice: the VLAN tag's priority may be changed or taken out on the way, this is not.
///
/// ```text
///  40  mark 0x73, PCP, number among the class's packets of the cycle (16 bits), skipped (32 bits)
/// ```
///
/// Talkers that did not count skipped packets sent zero in their place, and listeners ignored it:
/// both understand each other with those that do, and skipped packets then appear as lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPart {
    /// Priority code point that it was sent with.
    pub pcp: u8,
    /// Its number among the class's packets of the cycle.
    pub number: u16,
    /// Packets of the class before this one that the talker has not sent because it was too late
    /// for them, modulo 2³².
    pub skipped: u32,
}

impl StreamPart {
    /// Writes it behind a probe that is or will be there.
    ///
    /// # Errors
    /// [`ProbeError::TooShort`] below [`STREAM_LEN`].
    pub fn encode(self, payload: &mut [u8]) -> Result<(), ProbeError> {
        let have = payload.len();
        let part = payload
            .get_mut(HEADER_LEN..STREAM_LEN)
            .ok_or(ProbeError::TooShort { have, need: STREAM_LEN })?;
        part[..2].copy_from_slice(&[MARK, self.pcp]);
        part[2..4].copy_from_slice(&self.number.to_be_bytes());
        part[4..].copy_from_slice(&self.skipped.to_be_bytes());
        Ok(())
    }

    /// Reads it; `None` where a probe has none.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        match payload.get(HEADER_LEN..STREAM_LEN)? {
            &[MARK, pcp @ 0..=7, high, low, a, b, c, d] => Some(Self {
                pcp,
                number: u16::from_be_bytes([high, low]),
                skipped: u32::from_be_bytes([a, b, c, d]),
            }),
            _ => None,
        }
    }
}
