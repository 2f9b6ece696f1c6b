//! UDP (RFC 768; over IPv6 RFC 8200 §8.1): the header and the rules of its checksum.
//!
//! A checksum that comes out as zero is sent as 0xffff, because zero means "none": allowed over
//! IPv4, an error over IPv6. On Linux there is a third kind: with checksum offload a sender leaves
//! only the pseudo header's sum in the field for the NIC to complete. veth never does, so such
//! frames arrive in XDP as they are; [`ChecksumState::PseudoHeaderOnly`] tells them.
//!
//! ```
//! use ringside_wire::udp::{self, ChecksumState};
//!
//! let (src, dst) = ("192.0.2.1".parse()?, "192.0.2.2".parse()?);
//! let mut bytes = *b"........data";
//! udp::Header { src_port: 1000, dst_port: 2000, payload_len: 4 }.emit(&mut bytes)?;
//! assert_eq!(udp::checksum_state(&bytes, src, dst), ChecksumState::Absent);
//! udp::fill_checksum(&mut bytes, src, dst)?;
//! assert_eq!(udp::checksum_state(&bytes, src, dst), ChecksumState::Valid);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::net::IpAddr;

use crate::bytes::{header_mut, room, split_header};
use crate::checksum::{Sum, pseudo, update};
use crate::{Error, Protocol};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;

const LAYER: &str = "UDP header";

/// A view of a UDP datagram, cut to its length field.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Reads a datagram; what follows its length is left out.
    ///
    /// # Errors
    /// [`Error::Truncated`] when header or length reach behind `bytes`, [`Error::Malformed`] when
    /// the length is below 8 (zero would be a jumbogram, which no Ethernet carries).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        let len = u16::from_be_bytes([header[4], header[5]]);
        let Some(payload_len) = usize::from(len).checked_sub(HEADER_LEN) else {
            return Err(Error::Malformed {
                layer: LAYER,
                field: "length",
                value: u32::from(len),
            });
        };
        let (payload, _) = rest.split_at_checked(payload_len).ok_or(Error::Truncated {
            layer: LAYER,
            need: usize::from(len),
            have: bytes.len(),
        })?;
        Ok(Self { header, payload })
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

    /// The checksum as it stands there.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header as plain data.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            src_port: self.src_port(),
            dst_port: self.dst_port(),
            payload_len: self.payload.len(),
        }
    }

    /// What the checksum is worth between these addresses. Reads all of the datagram.
    #[must_use]
    pub fn checksum_state(&self, src: IpAddr, dst: IpAddr) -> ChecksumState {
        let checksum = self.checksum();
        if checksum == 0 {
            return match dst {
                IpAddr::V4(_) => ChecksumState::Absent,
                IpAddr::V6(_) => ChecksumState::Invalid,
            };
        }
        let pseudo = pseudo(src, dst, Protocol::UDP, HEADER_LEN + self.payload.len());
        ChecksumState::of(checksum, pseudo, Sum::of(self.header).bytes(self.payload))
    }
}

/// What a checksum in a received datagram or segment is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumState {
    /// It covers all of it and is right.
    Valid,
    /// Zero over IPv4: the sender made none.
    Absent,
    /// Only the pseudo header's sum, left for a NIC to complete: the data is unprotected and the
    /// checksum has to be filled in before the frame is sent on.
    #[doc(alias = "CHECKSUM_PARTIAL")]
    PseudoHeaderOnly,
    /// Wrong, or zero over IPv6.
    Invalid,
}

impl ChecksumState {
    /// Returns the state of a checksum that is there. `whole` is the sum of header and data.
    pub(crate) fn of(checksum: u16, pseudo: Option<Sum>, whole: Sum) -> Self {
        match pseudo {
            Some(pseudo) if pseudo.and(whole).fold() == 0xffff => Self::Valid,
            Some(pseudo) if checksum == pseudo.fold() => Self::PseudoHeaderOnly,
            _ => Self::Invalid,
        }
    }
}

/// A UDP header as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Port that it comes from.
    pub src_port: u16,
    /// Port that it goes to.
    pub dst_port: u16,
    /// Bytes behind the header, 65527 at the most.
    pub payload_len: usize,
}

impl Header {
    /// Writes the header with a checksum of zero to the first 8 bytes of `buffer`; once the
    /// payload stands behind it, [`fill_checksum`] completes it.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter, [`Error::TooLong`] when the payload does not
    /// fit 16 bits together with the header.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let too_long = Error::TooLong {
            layer: LAYER,
            most: usize::from(u16::MAX) - HEADER_LEN,
            have: self.payload_len,
        };
        let len = self.payload_len.checked_add(HEADER_LEN).ok_or(too_long)?;
        let len = u16::try_from(len).map_err(|_| too_long)?;
        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        out[..2].copy_from_slice(&self.src_port.to_be_bytes());
        out[2..4].copy_from_slice(&self.dst_port.to_be_bytes());
        out[4..6].copy_from_slice(&len.to_be_bytes());
        out[6..].fill(0);
        Ok(())
    }
}

/// What the checksum of the datagram at the start of `bytes` is worth; [`ChecksumState::Invalid`]
/// also when there is no datagram.
#[must_use]
pub fn checksum_state(bytes: &[u8], src: IpAddr, dst: IpAddr) -> ChecksumState {
    Datagram::parse(bytes).map_or(ChecksumState::Invalid, |datagram| datagram.checksum_state(src, dst))
}

/// Computes the checksum of the datagram at the start of `bytes` and writes it there.
///
/// # Errors
/// Those of [`Datagram::parse`], and [`Error::FamilyMismatch`].
pub fn fill_checksum(bytes: &mut [u8], src: IpAddr, dst: IpAddr) -> Result<(), Error> {
    let datagram = Datagram::parse(bytes)?;
    let len = HEADER_LEN + datagram.payload.len();
    let pseudo = pseudo(src, dst, Protocol::UDP, len).ok_or(Error::FamilyMismatch)?;
    let checksum = pseudo.bytes(&datagram.header[..6]).bytes(datagram.payload).finish();
    store_checksum(bytes, never_zero(checksum))
}

/// The checksum after one word of the datagram or its pseudo header changed from `old` to `new`.
///
/// Zero (none) stays zero. Only for a whole checksum: one with the pseudo header's sum alone has
/// to be filled in instead.
#[must_use]
pub fn update_checksum(checksum: u16, old: u16, new: u16) -> u16 {
    if checksum == 0 {
        0
    } else {
        never_zero(update(checksum, old, new))
    }
}

/// [`update_checksum`] on the datagram at the start of `bytes`, in place.
///
/// # Errors
/// [`Error::Truncated`] below 8 bytes.
pub fn patch_checksum(bytes: &mut [u8], old: u16, new: u16) -> Result<(), Error> {
    let header: &mut [u8; HEADER_LEN] = header_mut(LAYER, bytes)?;
    let checksum = u16::from_be_bytes([header[6], header[7]]);
    store_checksum(bytes, update_checksum(checksum, old, new))
}

fn store_checksum(bytes: &mut [u8], checksum: u16) -> Result<(), Error> {
    let header: &mut [u8; HEADER_LEN] = header_mut(LAYER, bytes)?;
    header[6..].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Zero is taken for "none"; 0xffff is the same number in one's complement.
fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// `None` when the families differ, or when a length does not fit, which no parsed one does.
#[cfg(test)]
mod tests;
