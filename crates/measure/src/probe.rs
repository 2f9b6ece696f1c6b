//! The probe protocol: what rides in the UDP payload of a measuring packet.
//!
//! All fields are big-endian. The sequence number begins at byte 16, so that the three 64-bit
//! fields are aligned among themselves.
//!
//! ```text
//!   0               1               2               3
//!   0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7 0 1 2 3 4 5 6 7
//!  +---------------+---------------+---------------+---------------+
//!  |             magic 0x52534450, "RSDP" in ASCII                 |  0
//!  +---------------+---------------+---------------+---------------+
//!  |  version (1)  |     kind      |     clock     |     flags     |  4
//!  +---------------+---------------+---------------+---------------+
//!  |                            session                            |  8
//!  +---------------+---------------+---------------+---------------+
//!  |                         reserved (0)                          | 12
//!  +---------------+---------------+---------------+---------------+
//!  |                        sequence number                        | 16
//!  |                                                               |
//!  +---------------+---------------+---------------+---------------+
//!  |          intended: when it should have been sent, ns          | 24
//!  |                                                               |
//!  +---------------+---------------+---------------+---------------+
//!  |               sent: when it was really sent, ns               | 32
//!  |                                                               |
//!  +---------------+---------------+---------------+---------------+
//!  |                 anything, up to the wanted size               | 40
//! ```
//!
//! `kind` is 1 for a request and 2 for a reply. A reply is the request with another kind: whoever
//! answers stamps nothing, so all times are those of the clock of who asked. `reserved` is sent as
//! zero and ignored when received. So are `flags`, but for `ringside serve`: to a request with flag 1 and 16 bytes
//! more it replies with flag 2 and its own times in them, when the request came and when the reply left ([`FarStamps`]). With 40 bytes the smallest Ethernet frame that carries a probe
//! has 82 bytes over IPv4 and 102 over IPv6, frame check sequence not counted.
//!
//! ```
//! use ringside_measure::probe::{make_reply_in_place, Clock, Kind, Probe, HEADER_LEN};
//!
//! let probe = Probe {
//!     kind: Kind::Request,
//!     clock: Clock::Monotonic,
//!     session: 0xdecade,
//!     sequence: 7,
//!     intended_ns: 1_000,
//!     sent_ns: 1_250,
//! };
//! let mut payload = [0u8; HEADER_LEN + 8];
//! probe.encode(&mut payload)?;
//! let change = make_reply_in_place(&mut payload)?; // what the UDP checksum has to learn
//! assert_eq!((change.old, change.new), (0x0101, 0x0102));
//! assert_eq!(Probe::decode(&payload)?, Probe { kind: Kind::Reply, ..probe });
//! # Ok::<(), ringside_measure::probe::ProbeError>(())
//! ```

use serde::{Deserialize, Serialize};

mod short;
mod stamps;

pub use short::{SHORT_LEN, ShortProbe};
pub use stamps::{FarStamps, STAMPED_LEN};

/// Bytes of a probe; a payload may be longer.
pub const HEADER_LEN: usize = 40;

/// First four bytes of every probe.
pub const MAGIC: u32 = u32::from_be_bytes(*b"RSDP");

/// Version of the layout.
pub const VERSION: u8 = 1;

/// UDP port of those who answer probes, unless told otherwise.
///
/// IANA lists 29170–29998 as unassigned, and Linux picks ports for outgoing sockets from 32768 up
/// (`net.ipv4.ip_local_port_range`), so neither a known service nor an ephemeral port is in the way.
pub const DEFAULT_PORT: u16 = 29_620;

/// Question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Send this back.
    Request,
    /// Here it is.
    Reply,
}

const REQUEST: u8 = 1;
const REPLY: u8 = 2;
const KIND_AT: usize = 5;

/// The clock that time stamps were read from. Stamps of different clocks are never subtracted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Clock {
    /// `CLOCK_REALTIME`.
    Realtime,
    /// `CLOCK_MONOTONIC`, the clock of `bpf_ktime_get_ns()`.
    Monotonic,
    /// `CLOCK_MONOTONIC_RAW`.
    MonotonicRaw,
    /// `CLOCK_BOOTTIME`.
    Boottime,
    /// `CLOCK_TAI`, the clock of launch times and of copy-mode TX stamps.
    Tai,
    /// The hardware clock of the NIC.
    Phc,
}

impl Clock {
    /// The number on the wire: Linux's own for its clocks
    /// (<https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/time.h#L49>), 128 for the NIC's.
    #[must_use]
    #[inline]
    pub const fn to_wire(self) -> u8 {
        match self {
            Self::Realtime => 0,
            Self::Monotonic => 1,
            Self::MonotonicRaw => 4,
            Self::Boottime => 7,
            Self::Tai => 11,
            Self::Phc => 128,
        }
    }

    /// The clock with this number.
    #[must_use]
    #[inline]
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Realtime,
            1 => Self::Monotonic,
            4 => Self::MonotonicRaw,
            7 => Self::Boottime,
            11 => Self::Tai,
            128 => Self::Phc,
            _ => return None,
        })
    }
}

/// A probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Question or answer.
    pub kind: Kind,
    /// The clock of both stamps.
    pub clock: Clock,
    /// Tells runs apart that share a path.
    pub session: u32,
    /// Number of the probe in its session.
    pub sequence: u64,
    /// When it should have been sent by schedule, in nanoseconds.
    pub intended_ns: u64,
    /// When it was sent, in nanoseconds.
    pub sent_ns: u64,
}

/// Why a payload is no probe that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// Too few bytes, to read or to write.
    #[error("a probe needs {need} bytes but there are {have}; use larger packets")]
    TooShort {
        /// Bytes that there are.
        have: usize,
        /// Bytes that it takes.
        need: usize,
    },
    /// Another protocol on this port.
    #[error("the payload begins with {found:#010x}, which is no probe")]
    NotOurs {
        /// What stands where the magic number belongs.
        found: u32,
    },
    /// A probe of a version that is not spoken here.
    #[error("the probe has version {found}, {VERSION} is spoken here; use one version on both sides")]
    OtherVersion {
        /// Its version.
        found: u8,
    },
    /// Neither request nor reply, or not the one that is needed.
    #[error("the probe is of kind {found}, which is not the one expected here")]
    Kind {
        /// Its kind.
        found: u8,
    },
    /// A clock that is not known here.
    #[error("the probe's stamps are of clock {found}, which is not known here")]
    Clock {
        /// Its number.
        found: u8,
    },
}

/// The 16-bit word of a payload that was changed in place, for an incremental checksum update
/// (RFC 1624).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordChange {
    /// Its first byte, from the start of the payload; always even.
    pub offset: usize,
    /// What it was.
    pub old: u16,
    /// What it is.
    pub new: u16,
}

impl Probe {
    /// Writes the probe to the first [`HEADER_LEN`] bytes of a payload; the rest stays.
    ///
    /// # Errors
    /// [`ProbeError::TooShort`].
    #[inline]
    pub fn encode(&self, payload: &mut [u8]) -> Result<(), ProbeError> {
        let have = payload.len();
        let out: &mut [u8; HEADER_LEN] = payload
            .first_chunk_mut()
            .ok_or(ProbeError::TooShort { have, need: HEADER_LEN })?;
        let kind = match self.kind {
            Kind::Request => REQUEST,
            Kind::Reply => REPLY,
        };
        out[..4].copy_from_slice(&MAGIC.to_be_bytes());
        out[4..8].copy_from_slice(&[VERSION, kind, self.clock.to_wire(), 0]);
        out[8..12].copy_from_slice(&self.session.to_be_bytes());
        out[12..16].fill(0);
        out[16..24].copy_from_slice(&self.sequence.to_be_bytes());
        out[24..32].copy_from_slice(&self.intended_ns.to_be_bytes());
        out[32..40].copy_from_slice(&self.sent_ns.to_be_bytes());
        Ok(())
    }

    /// Reads the probe at the start of a payload.
    ///
    /// # Errors
    /// [`ProbeError`], one for each reason: too short, not a probe, another version, unknown kind
    /// or clock.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<Self, ProbeError> {
        // Magic first, then the length: a short packet of something else is "not ours".
        let [_, kind, clock, _] = prefix(payload)?;
        let bytes: &[u8; HEADER_LEN] = payload.first_chunk().ok_or(ProbeError::TooShort {
            have: payload.len(),
            need: HEADER_LEN,
        })?;
        let u64_at = |at: usize| {
            let mut field = [0u8; 8];
            field.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(field)
        };
        Ok(Self {
            kind: match kind {
                REQUEST => Kind::Request,
                REPLY => Kind::Reply,
                found => return Err(ProbeError::Kind { found }),
            },
            clock: Clock::from_wire(clock).ok_or(ProbeError::Clock { found: clock })?,
            session: u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            sequence: u64_at(16),
            intended_ns: u64_at(24),
            sent_ns: u64_at(32),
        })
    }
}

/// Turns the request in a payload into its reply. What is returned brings the UDP checksum up to
/// date.
///
/// # Errors
/// Those of [`Probe::decode`] but for the clock, which who answers need not know, and
/// [`ProbeError::Kind`] for a reply; the payload is then unchanged.
#[inline]
pub fn make_reply_in_place(payload: &mut [u8]) -> Result<WordChange, ProbeError> {
    let [version, kind, ..] = prefix(payload)?;
    let (need, reply) = match kind {
        REQUEST => (HEADER_LEN, REPLY),
        short::SHORT_REQUEST => (SHORT_LEN, short::SHORT_REPLY),
        found => return Err(ProbeError::Kind { found }),
    };
    if payload.len() < need {
        return Err(ProbeError::TooShort {
            have: payload.len(),
            need,
        });
    }
    payload[KIND_AT] = reply;
    Ok(WordChange {
        offset: KIND_AT - 1,
        old: u16::from_be_bytes([version, kind]),
        new: u16::from_be_bytes([version, reply]),
    })
}

/// Checks magic and version; gives version, kind, clock and the reserved byte.
#[inline]
fn prefix(payload: &[u8]) -> Result<[u8; 4], ProbeError> {
    let Some(&[a, b, c, d, version, kind, clock, reserved]) = payload.first_chunk::<8>() else {
        return Err(ProbeError::TooShort {
            have: payload.len(),
            need: 8,
        });
    };
    let found = u32::from_be_bytes([a, b, c, d]);
    if found != MAGIC {
        return Err(ProbeError::NotOurs { found });
    }
    if version != VERSION {
        return Err(ProbeError::OtherVersion { found: version });
    }
    Ok([version, kind, clock, reserved])
}

#[cfg(test)]
mod tests;
