//! The far end's times in a reply, for who asks for them.

use super::{HEADER_LEN, ProbeError};

/// Bytes of a probe that has room for the far end's stamps.
pub const STAMPED_LEN: usize = HEADER_LEN + 16;

/// The byte behind the clock: zero where nothing is asked for, and ignored by who does not know it.
const FLAGS_AT: usize = 7;
const WANTED: u8 = 1;
const GIVEN: u8 = 2;

/// When a probe came to the far end and when it left again, by the far end's clock of the kind that the probe names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FarStamps {
    /// When it came, in nanoseconds.
    pub came_ns: u64,
    /// When it was sent back.
    pub left_ns: u64,
}

impl FarStamps {
    /// Asks for them in a request that was encoded before.
    ///
    /// # Errors
    /// [`ProbeError::TooShort`] below [`STAMPED_LEN`].
    pub fn ask(payload: &mut [u8]) -> Result<(), ProbeError> {
        let have = payload.len();
        let payload = payload.get_mut(..STAMPED_LEN).ok_or(ProbeError::TooShort {
            have,
            need: STAMPED_LEN,
        })?;
        payload[FLAGS_AT] = WANTED;
        payload[HEADER_LEN..].fill(0);
        Ok(())
    }

    /// Whether a request wants them, and has room.
    #[must_use]
    #[inline]
    pub fn are_wanted(payload: &[u8]) -> bool {
        payload.len() >= STAMPED_LEN && payload[FLAGS_AT] & WANTED != 0
    }

    /// Writes them to a probe that [wants](Self::are_wanted) them. The UDP checksum is to be made anew then.
    pub fn give(self, payload: &mut [u8]) {
        if let Some(payload) = payload.get_mut(..STAMPED_LEN) {
            payload[FLAGS_AT] |= GIVEN;
            payload[40..48].copy_from_slice(&self.came_ns.to_be_bytes());
            payload[48..56].copy_from_slice(&self.left_ns.to_be_bytes());
        }
    }

    /// Reads them from a reply; `None` where the far end has given none.
    #[must_use]
    pub fn read(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; STAMPED_LEN] = payload.first_chunk()?;
        let at = |at: usize| Some(u64::from_be_bytes(payload[at..at + 8].try_into().ok()?));
        (payload[FLAGS_AT] & GIVEN != 0).then_some(())?;
        Some(Self {
            came_ns: at(40)?,
            left_ns: at(48)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Clock, Kind, Probe, make_reply_in_place};
    use super::*;

    const PROBE: Probe = Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session: 1,
        sequence: 2,
        intended_ns: 3,
        sent_ns: 4,
    };

    #[test]
    fn asked_for_given_and_read() {
        let mut payload = [0xff; STAMPED_LEN];
        PROBE.encode(&mut payload).unwrap();
        assert!(!FarStamps::are_wanted(&payload), "nobody asked");
        FarStamps::ask(&mut payload).unwrap();
        assert!(FarStamps::are_wanted(&payload));
        assert_eq!(FarStamps::read(&payload), None, "nobody gave");
        make_reply_in_place(&mut payload).unwrap();
        let stamps = FarStamps {
            came_ns: u64::MAX - 1,
            left_ns: 7,
        };
        stamps.give(&mut payload);
        assert_eq!(FarStamps::read(&payload), Some(stamps));
        let reply = Probe::decode(&payload).unwrap();
        assert_eq!(
            reply,
            Probe {
                kind: Kind::Reply,
                ..PROBE
            },
            "the rest is as it was"
        );
    }

    #[test]
    fn a_short_probe_has_no_room() {
        let mut payload = [0; STAMPED_LEN - 1];
        PROBE.encode(&mut payload).unwrap();
        assert!(FarStamps::ask(&mut payload).is_err());
        payload[FLAGS_AT] = WANTED;
        assert!(!FarStamps::are_wanted(&payload));
        let before = payload;
        FarStamps { came_ns: 1, left_ns: 1 }.give(&mut payload);
        assert_eq!(payload, before);
        assert_eq!(FarStamps::read(&payload), None);
    }
}
