//! IPv6 (RFC 8200): the fixed header, and the walk over extension headers to the upper layer.
//!
//! ```
//! use ringside_wire::{ipv6, Protocol};
//!
//! let header = ipv6::Header {
//!     payload_len: 8,
//!     ..ipv6::Header::new("2001:db8::1".parse()?, "2001:db8::2".parse()?, Protocol::UDP)
//! };
//! let mut bytes = [0u8; 48];
//! header.emit(&mut bytes)?;
//! let upper = ipv6::Packet::parse(&bytes)?.upper_layer()?;
//! assert_eq!((upper.protocol, upper.offset), (Protocol::UDP, 40));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::net::Ipv6Addr;

use crate::bytes::{room, split_header};
use crate::{Error, Protocol};

mod extension;
pub(crate) use extension::walk;
pub use extension::{Fragment, Upper};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

const LAYER: &str = "IPv6 header";
const FLOW_LABEL_MASK: u32 = 0x000f_ffff;

/// A view of an IPv6 packet, cut to its payload length.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet. What follows the payload length (Ethernet padding) is left out.
    ///
    /// A jumbogram (RFC 2675) has a payload length of zero here and reads as an empty packet.
    ///
    /// # Errors
    /// [`Error::Truncated`] when header or payload reach behind `bytes`, [`Error::Malformed`] for
    /// another version.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        if header[0] >> 4 != 6 {
            return Err(Error::Malformed {
                layer: LAYER,
                field: "version",
                value: u32::from(header[0] >> 4),
            });
        }
        let payload_len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let (payload, _padding) = rest.split_at_checked(payload_len).ok_or(Error::Truncated {
            layer: LAYER,
            need: HEADER_LEN + payload_len,
            have: bytes.len(),
        })?;
        Ok(Self { header, payload })
    }

    /// Differentiated services and congestion notification, as one byte.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.header[0] << 4 | self.header[1] >> 4
    }

    /// The flow label, 20 bits.
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        let [a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d]) & FLOW_LABEL_MASK
    }

    /// Header and payload, in bytes.
    #[must_use]
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }

    /// What follows the fixed header: an extension header or the upper layer.
    #[must_use]
    pub fn next_header(&self) -> Protocol {
        Protocol(self.header[6])
    }

    /// Hops that are left.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Where it comes from.
    #[must_use]
    pub fn src(&self) -> Ipv6Addr {
        let mut octets = [0u8; 16];
        octets.copy_from_slice(&self.header[8..24]);
        Ipv6Addr::from(octets)
    }

    /// Where it goes.
    #[must_use]
    pub fn dst(&self) -> Ipv6Addr {
        let mut octets = [0u8; 16];
        octets.copy_from_slice(&self.header[24..]);
        Ipv6Addr::from(octets)
    }

    /// What follows the fixed header, extension headers included.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Walks hop-by-hop, routing, destination-options and fragment headers to the upper layer.
    ///
    /// Any other header (also AH and ESP) counts as the upper layer. Behind a fragment header of a
    /// later fragment the walk stops, because there is no header there; see [`Upper::fragment`].
    ///
    /// # Errors
    /// [`Error::Truncated`] when an extension header reaches behind the payload,
    /// [`Error::Unsupported`] for more than eight extension headers.
    pub fn upper_layer(&self) -> Result<Upper<'a>, Error> {
        walk(self.next_header(), self.payload)
    }

    /// The fixed header as plain data.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            src: self.src(),
            dst: self.dst(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            payload_len: self.payload.len(),
        }
    }
}

/// A fixed header as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Where it comes from.
    pub src: Ipv6Addr,
    /// Where it goes.
    pub dst: Ipv6Addr,
    /// What follows.
    pub next_header: Protocol,
    /// Hops that it may take.
    pub hop_limit: u8,
    /// Differentiated services and congestion notification.
    pub traffic_class: u8,
    /// The flow label; the upper 12 bits are not used.
    pub flow_label: u32,
    /// Bytes behind the header, 65535 at the most.
    pub payload_len: usize,
}

impl Header {
    /// A header with hop limit 64, without payload yet.
    #[must_use]
    pub fn new(src: Ipv6Addr, dst: Ipv6Addr, next_header: Protocol) -> Self {
        Self {
            src,
            dst,
            next_header,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            payload_len: 0,
        }
    }

    /// Writes the header to the first 40 bytes of `buffer`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter, [`Error::TooLong`] when the payload's length
    /// does not fit 16 bits.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let payload_len = u16::try_from(self.payload_len).map_err(|_| Error::TooLong {
            layer: LAYER,
            most: usize::from(u16::MAX),
            have: self.payload_len,
        })?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | (self.flow_label & FLOW_LABEL_MASK);

        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        out[..4].copy_from_slice(&first.to_be_bytes());
        out[4..6].copy_from_slice(&payload_len.to_be_bytes());
        out[6] = self.next_header.0;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.src.octets());
        out[24..].copy_from_slice(&self.dst.octets());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
