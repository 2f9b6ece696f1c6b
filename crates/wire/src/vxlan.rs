//! VXLAN (RFC 7348): Ethernet frames of many networks in UDP.
//!
//! ```
//! use ringside_wire::vxlan;
//!
//! let mut bytes = [0u8; 22];
//! vxlan::Header { vni: 42 }.emit(&mut bytes)?;
//! let packet = vxlan::Packet::parse(&bytes)?;
//! assert_eq!((packet.vni(), packet.frame().len()), (42, 14));
//! # Ok::<(), ringside_wire::Error>(())
//! ```

use crate::Error;
use crate::bytes::{room, split_header};

/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// The UDP port that IANA has given it.
pub const PORT: u16 = 4789;

const LAYER: &str = "VXLAN header";
/// "The I flag MUST be set to 1 for a valid VXLAN Network ID" (§5).
const VALID: u8 = 0x08;

/// A view of what a VXLAN datagram carries.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    frame: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload. Reserved bits are ignored, as §5 asks.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes, [`Error::Malformed`] when the flag for a valid network number is not set.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, frame) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        if header[0] & VALID == 0 {
            return Err(Error::Malformed {
                layer: LAYER,
                field: "flags",
                value: u32::from(header[0]),
            });
        }
        Ok(Self { header, frame })
    }

    /// The number of the network, 24 bits.
    #[must_use]
    #[doc(alias = "VNI")]
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.header[4], self.header[5], self.header[6]])
    }

    /// The Ethernet frame that it carries.
    #[must_use]
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }
}

/// A header as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// The number of the network; its upper 8 bits are not sent.
    pub vni: u32,
}

impl Header {
    /// Writes the header to the first 8 bytes of `buffer`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        let [_, a, b, c] = self.vni.to_be_bytes();
        *out = [VALID, 0, 0, 0, a, b, c, 0];
        Ok(())
    }
}

#[cfg(test)]
mod tests;
