//! TCP (RFC 9293): the header, and those of its options that both sides of a connection have to know of each other.
//!
//! ```
//! use ringside_wire::tcp::{self, Flags};
//!
//! let header = tcp::Header {
//!     window_scale: Some(7),
//!     ..tcp::Header::new(40_000, 443, Flags::SYN)
//! };
//! let mut bytes = [0u8; tcp::Header::MOST];
//! let len = header.emit(&mut bytes)?;
//! let segment = tcp::Segment::parse(&bytes[..len])?;
//! assert_eq!(segment.flags(), Flags::SYN);
//! assert_eq!(segment.options().window_scale, Some(7));
//! assert_eq!(segment.sequence_len(), 1); // a SYN takes a sequence number of its own
//! # Ok::<(), ringside_wire::Error>(())
//! ```

use core::fmt;
use core::net::IpAddr;
use core::ops::BitOr;

use crate::bytes::{room, split_header};
use crate::checksum::{Sum, pseudo};
use crate::udp::ChecksumState;
use crate::{Error, Protocol};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

/// The largest shift of a window that there is (RFC 7323 §2.3).
pub const MAX_WINDOW_SCALE: u8 = 14;

const LAYER: &str = "TCP header";

const OPTION_END: u8 = 0;
const OPTION_NOTHING: u8 = 1;
const OPTION_WINDOW_SCALE: u8 = 3;
const OPTION_SACK_PERMITTED: u8 = 4;

/// The control bits of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender has sent all that it will.
    pub const FIN: Self = Self(0x01);
    /// The first segment of a side: its number is where that side begins to count.
    pub const SYN: Self = Self(0x02);
    /// There is no such connection (any more).
    pub const RST: Self = Self(0x04);
    /// To be handed to the application now.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion was seen (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// The sender slowed down (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// True if all of `others` are set.
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// The four that open and close connections, without those that only say how.
    #[must_use]
    pub const fn of_state(self) -> Self {
        Self(self.0 & (Self::FIN.0 | Self::SYN.0 | Self::RST.0 | Self::ACK.0))
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        let mut first = true;
        for (at, name) in names.into_iter().enumerate() {
            if self.0 >> at & 1 != 0 {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

/// What a SYN offers for the whole connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Options {
    /// Windows of this side are to be shifted left by so much, if the other side offers a shift too. 14 at the most: more
    /// is read as 14 (RFC 7323 §2.3).
    pub window_scale: Option<u8>,
    /// This side understands selective acknowledgments (RFC 2018).
    pub sack_permitted: bool,
}

/// A view of a TCP segment.
#[derive(Debug, Clone, Copy)]
pub struct Segment<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Reads a segment, which ends where the IP packet does. The checksum is not verified.
    ///
    /// # Errors
    /// [`Error::Truncated`] when header or options reach behind `bytes`, [`Error::Malformed`] when the data begin inside
    /// the header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let Some(options_len) = header_len.checked_sub(HEADER_LEN) else {
            return Err(Error::Malformed {
                layer: LAYER,
                field: "data offset",
                value: u32::from(header[12] >> 4),
            });
        };
        let (options, payload) = rest.split_at_checked(options_len).ok_or(Error::Truncated {
            layer: LAYER,
            need: header_len,
            have: bytes.len(),
        })?;
        Ok(Self {
            header,
            options,
            payload,
        })
    }

    /// Port that it comes from.
    #[must_use]
    pub fn src_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Port that it goes to.
    #[must_use]
    pub fn dst_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The number of its first byte, or of its SYN.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// The number that its sender expects next, if [`Flags::ACK`] is set.
    #[must_use]
    pub fn acknowledgment(&self) -> u32 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Its control bits.
    #[must_use]
    pub fn flags(&self) -> Flags {
        Flags(self.header[13])
    }

    /// What its sender is ready to take, not yet shifted. That of a SYN never is.
    #[must_use]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// The checksum as it stands there.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[16], self.header[17]])
    }

    /// Returns what the checksum is worth between these addresses. Reads all of the segment.
    ///
    /// TCP always has one, so the result is never [`ChecksumState::Absent`].
    #[must_use]
    pub fn checksum_state(&self, src: IpAddr, dst: IpAddr) -> ChecksumState {
        let pseudo = pseudo(src, dst, Protocol::TCP, self.header_len() + self.payload.len());
        let whole = Sum::of(self.header).bytes(self.options).bytes(self.payload);
        ChecksumState::of(self.checksum(), pseudo, whole)
    }

    /// Header with options, in bytes: 20 to 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// How many sequence numbers it takes: its payload, one for SYN, one for FIN.
    #[must_use]
    pub fn sequence_len(&self) -> u32 {
        let flags = self.flags();
        let bytes = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        bytes
            .wrapping_add(u32::from(flags.has(Flags::SYN)))
            .wrapping_add(u32::from(flags.has(Flags::FIN)))
    }

    /// What it offers. Options that are cut short, and all behind them, are left out.
    #[must_use]
    pub fn options(&self) -> Options {
        let mut found = Options::default();
        let mut rest = self.options;
        while let [kind, behind @ ..] = rest {
            let len = match (*kind, behind) {
                (OPTION_END, _) => break,
                (OPTION_NOTHING, _) => 1,
                (_, [len, ..]) if *len >= 2 => usize::from(*len),
                _ => break,
            };
            let Some((option, next)) = rest.split_at_checked(len) else {
                break;
            };
            match option {
                [OPTION_WINDOW_SCALE, 3, scale] => found.window_scale = Some((*scale).min(MAX_WINDOW_SCALE)),
                [OPTION_SACK_PERMITTED, 2] => found.sack_permitted = true,
                _ => {}
            }
            rest = next;
        }
        found
    }
}

/// A TCP header as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Port that it comes from.
    pub src_port: u16,
    /// Port that it goes to.
    pub dst_port: u16,
    /// The number of its first byte, or of its SYN.
    pub sequence: u32,
    /// The number that is expected next.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: Flags,
    /// What the sender is ready to take, not shifted.
    pub window: u16,
    /// The shift that is offered; for a SYN only.
    pub window_scale: Option<u8>,
}

impl Header {
    /// Bytes of the longest header that [`Header::emit`] writes.
    pub const MOST: usize = HEADER_LEN + 4;

    /// A header with all numbers 0 and a window of 65535 bytes.
    #[must_use]
    pub fn new(src_port: u16, dst_port: u16, flags: Flags) -> Self {
        Self {
            src_port,
            dst_port,
            sequence: 0,
            acknowledgment: 0,
            flags,
            window: u16::MAX,
            window_scale: None,
        }
    }

    /// Writes the header with a checksum of zero to the start of `buffer`, and says how long it is: 20 bytes, or 24 with
    /// the option.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = match self.window_scale {
            Some(scale) => {
                let out: &mut [u8; Self::MOST] = room(LAYER, buffer)?;
                out[HEADER_LEN..].copy_from_slice(&[OPTION_NOTHING, OPTION_WINDOW_SCALE, 3, scale]);
                Self::MOST
            }
            None => HEADER_LEN,
        };
        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        out[..2].copy_from_slice(&self.src_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        out[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        out[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        out[12] = if len == HEADER_LEN { 5 << 4 } else { 6 << 4 };
        out[13] = self.flags.0;
        out[14..16].copy_from_slice(&self.window.to_be_bytes());
        out[16..].fill(0);
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
