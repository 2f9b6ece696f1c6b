//! Probes that fit the smallest frames: a number, and no times.
//!
//! ```text
//!   0               1               2               3
//!   0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//!  +---------------+---------------+---------------+---------------+
//!  |             magic 0x52534450, "RSDP" in ASCII                 |  0
//!  +---------------+---------------+---------------+---------------+
//!  |  version (1)  |     kind      |         reserved (0)          |  4
//!  +---------------+---------------+---------------+---------------+
//!  |                            session                            |  8
//!  +---------------+---------------+---------------+---------------+
//!  |                    sequence number, 48 bits                   | 12
//!  |                               +---------------+---------------+
//!  |                               |  anything, up to the size     | 16
//! ```
//!
//! `kind` is 3 for a request and 4 for a reply. With 18 bytes it is exactly what the smallest Ethernet frame has room for over
//! IPv4 and UDP: 64 bytes with the frame check sequence, 60 without. Whoever asks keeps the times.

use super::{Kind, MAGIC, ProbeError, VERSION, prefix};

/// Bytes of a short probe; a payload may be longer.
pub const SHORT_LEN: usize = 18;

pub(super) const SHORT_REQUEST: u8 = 3;
pub(super) const SHORT_REPLY: u8 = 4;

/// A probe that has no times with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortProbe {
    /// Question or answer.
    pub kind: Kind,
    /// Tells runs apart that share a path.
    pub session: u32,
    /// Number of the probe in its session; 48 bits of it are sent, which last for years at any rate.
    pub sequence: u64,
}

impl ShortProbe {
    /// Writes the probe to the first [`SHORT_LEN`] bytes of a payload; the rest stays.
    ///
    /// # Errors
    /// [`ProbeError::TooShort`].
    pub fn encode(&self, payload: &mut [u8]) -> Result<(), ProbeError> {
        let have = payload.len();
        let out: &mut [u8; SHORT_LEN] = payload
            .first_chunk_mut()
            .ok_or(ProbeError::TooShort { have, need: SHORT_LEN })?;
        let kind = match self.kind {
            Kind::Request => SHORT_REQUEST,
            Kind::Reply => SHORT_REPLY,
        };
        out[..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&[VERSION, kind, 0, 0]);
        out[8..12].copy_from_slice(&self.session.to_be_bytes());
        out[12..].copy_from_slice(&self.sequence.to_be_bytes()[2..]);
        Ok(())
    }

    /// Reads the short probe at the start of a payload.
    ///
    /// # Errors
    /// [`ProbeError`], one for each reason: too short, not a probe, another version, no short one.
    pub fn decode(payload: &[u8]) -> Result<Self, ProbeError> {
        let [_, kind, ..] = prefix(payload)?;
        let kind = match kind {
            SHORT_REQUEST => Kind::Request,
            SHORT_REPLY => Kind::Reply,
            found => return Err(ProbeError::Kind { found }),
        };
        let bytes: &[u8; SHORT_LEN] = payload.first_chunk().ok_or(ProbeError::TooShort {
            have: payload.len(),
            need: SHORT_LEN,
        })?;
        let mut sequence = [0; 8];
        sequence[2..].copy_from_slice(&bytes[12..]);
        Ok(Self {
            kind,
            session: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            sequence: u64::from_be_bytes(sequence),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HEADER_LEN, Probe, make_reply_in_place};
    use super::*;

    #[test]
    fn it_comes_back_as_its_reply() {
        let probe = ShortProbe {
            kind: Kind::Request,
            session: 0xdecade,
            sequence: 0xffff_ffff_fffe,
        };
        let mut payload = [0xaa; SHORT_LEN + 2];
        probe.encode(&mut payload).unwrap();
        assert_eq!(payload[SHORT_LEN..], [0xaa; 2], "what is behind it stays");
        assert_eq!(ShortProbe::decode(&payload), Ok(probe));
        let change = make_reply_in_place(&mut payload).unwrap();
        assert_eq!((change.offset, change.old, change.new), (4, 0x0103, 0x0104));
        assert_eq!(
            ShortProbe::decode(&payload),
            Ok(ShortProbe {
                kind: Kind::Reply,
                ..probe
            })
        );
        assert_eq!(
            make_reply_in_place(&mut payload),
            Err(ProbeError::Kind { found: SHORT_REPLY })
        );
        // 14 bytes of Ethernet, 20 of IPv4 and 8 of UDP: the smallest frame.
        assert_eq!(14 + 20 + 8 + SHORT_LEN, 60);
    }

    #[test]
    fn neither_is_taken_for_the_other() {
        let mut payload = [0; HEADER_LEN];
        let probe = ShortProbe {
            kind: Kind::Request,
            session: 1,
            sequence: 2,
        };
        probe.encode(&mut payload).unwrap();
        assert_eq!(Probe::decode(&payload), Err(ProbeError::Kind { found: SHORT_REQUEST }));
        payload[5] = 1;
        assert_eq!(ShortProbe::decode(&payload), Err(ProbeError::Kind { found: 1 }));
    }

    #[test]
    fn what_is_cut_off_is_too_short() {
        let mut payload = [0; SHORT_LEN];
        let probe = ShortProbe {
            kind: Kind::Request,
            session: 1,
            sequence: 2,
        };
        probe.encode(&mut payload).unwrap();
        for have in 0..SHORT_LEN {
            let cut = ShortProbe::decode(&payload[..have]);
            assert!(
                matches!(cut, Err(ProbeError::TooShort { have: cut, .. }) if cut == have),
                "{cut:?}"
            );
            assert!(make_reply_in_place(&mut payload[..have]).is_err());
            assert!(probe.encode(&mut payload[..have]).is_err());
        }
    }
}
