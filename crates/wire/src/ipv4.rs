//! IPv4 (RFC 791): the header with its options, fragments and checksum.
//!
//! ```
//! use ringside_wire::{ipv4, Protocol};
//!
//! let header = ipv4::Header {
//!     payload_len: 8,
//!     ..ipv4::Header::new("192.0.2.1".parse()?, "192.0.2.2".parse()?, Protocol::UDP)
//! };
//! let mut bytes = [0u8; 46]; // padded to Ethernet's minimum
//! header.emit(&mut bytes)?;
//! let packet = ipv4::Packet::parse(&bytes)?;
//! assert!(packet.verify_checksum());
//! assert_eq!(packet.payload().len(), 8); // the padding is not part of it
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::net::Ipv4Addr;

use crate::bytes::{room, split_header};
use crate::checksum::Sum;
use crate::{Error, Protocol};

/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;

const LAYER: &str = "IPv4 header";
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// A view of an IPv4 packet, cut to its total length.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet. What follows the total length (Ethernet padding) is left out.
    ///
    /// The checksum is not verified here: see [`Packet::verify_checksum`].
    ///
    /// # Errors
    /// [`Error::Truncated`] when header, options or total length reach behind `bytes`,
    /// [`Error::Malformed`] for another version and for lengths that contradict each other.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        let malformed = |field, value| Error::Malformed {
            layer: LAYER,
            field,
            value,
        };
        if header[0] >> 4 != 4 {
            return Err(malformed("version", u32::from(header[0] >> 4)));
        }
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let Some(options_len) = header_len.checked_sub(HEADER_LEN) else {
            return Err(malformed("header length", u32::from(header[0] & 0x0f)));
        };
        let total = u16::from_be_bytes([header[2], header[3]]);
        let Some(payload_len) = usize::from(total).checked_sub(header_len) else {
            return Err(malformed("total length", u32::from(total)));
        };
        let truncated = Error::Truncated {
            layer: LAYER,
            need: usize::from(total),
            have: bytes.len(),
        };
        let (options, rest) = rest.split_at_checked(options_len).ok_or(truncated)?;
        let (payload, _padding) = rest.split_at_checked(payload_len).ok_or(truncated)?;
        Ok(Self {
            header,
            options,
            payload,
        })
    }

    /// Header with options, in bytes: 20 to 60.
    #[must_use]
    #[doc(alias = "IHL")]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Header, options and payload, in bytes.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// Differentiated services and congestion notification, as one byte.
    #[must_use]
    #[doc(alias = "DSCP")]
    pub fn tos(&self) -> u8 {
        self.header[1]
    }

    /// What ties fragments together.
    #[must_use]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// Routers must not fragment it.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & DONT_FRAGMENT != 0
    }

    /// It is a fragment and not the last.
    #[must_use]
    pub fn more_fragments(&self) -> bool {
        self.flags_and_offset() & MORE_FRAGMENTS != 0
    }

    /// Where this fragment's payload belongs, in bytes.
    #[must_use]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.flags_and_offset() & OFFSET_MASK) * 8
    }

    /// It is not whole: the upper layer's header or data is elsewhere.
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Hops that are left.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// What it carries.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.header[9])
    }

    /// The header checksum as it stands there.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[10], self.header[11]])
    }

    /// Where it comes from.
    #[must_use]
    pub fn src(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Where it goes.
    #[must_use]
    pub fn dst(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Options, padded to four bytes.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// True when the header checksum is right.
    #[must_use]
    pub fn verify_checksum(&self) -> bool {
        Sum::of(self.header).bytes(self.options).fold() == 0xffff
    }

    /// The header as plain data, without options and fragment offset.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            src: self.src(),
            dst: self.dst(),
            protocol: self.protocol(),
            ttl: self.ttl(),
            tos: self.tos(),
            identification: self.identification(),
            dont_fragment: self.dont_fragment(),
            payload_len: self.payload.len(),
        }
    }

    fn flags_and_offset(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }
}

/// A header without options of a packet that is whole, as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Where it comes from.
    pub src: Ipv4Addr,
    /// Where it goes.
    pub dst: Ipv4Addr,
    /// What it carries.
    pub protocol: Protocol,
    /// Hops that it may take.
    pub ttl: u8,
    /// Differentiated services and congestion notification.
    pub tos: u8,
    /// What ties fragments together; free when `dont_fragment` is set (RFC 6864 §4.1).
    pub identification: u16,
    /// Routers must not fragment it.
    pub dont_fragment: bool,
    /// Bytes behind the header, 65515 at the most.
    pub payload_len: usize,
}

impl Header {
    /// A header with TTL 64 that must not be fragmented, without payload yet.
    #[must_use]
    pub fn new(src: Ipv4Addr, dst: Ipv4Addr, protocol: Protocol) -> Self {
        Self {
            src,
            dst,
            protocol,
            ttl: 64,
            tos: 0,
            identification: 0,
            dont_fragment: true,
            payload_len: 0,
        }
    }

    /// Writes the header with its checksum to the first 20 bytes of `buffer`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter, [`Error::TooLong`] when the payload does not fit
    /// 16 bits together with the header.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let too_long = Error::TooLong {
            layer: LAYER,
            most: usize::from(u16::MAX) - HEADER_LEN,
            have: self.payload_len,
        };
        let total = self.payload_len.checked_add(HEADER_LEN).ok_or(too_long)?;
        let total = u16::try_from(total).map_err(|_| too_long)?;
        let flags = if self.dont_fragment { DONT_FRAGMENT } else { 0 };

        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        out[0] = 0x45;
        out[1] = self.tos;
        out[2..4].copy_from_slice(&total.to_be_bytes());
        out[4..6].copy_from_slice(&self.identification.to_be_bytes());
        out[6..8].copy_from_slice(&flags.to_be_bytes());
        out[8] = self.ttl;
        out[9] = self.protocol.0;
        out[10..12].fill(0);
        out[12..16].copy_from_slice(&self.src.octets());
        out[16..].copy_from_slice(&self.dst.octets());
        let checksum = Sum::of(out).finish();
        out[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
