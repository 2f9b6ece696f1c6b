//! Ethernet II: addresses, types and the 14-byte header.
//!
//! ```
//! use ringside_wire::ethernet::{swap_macs, Frame, Header};
//! use ringside_wire::{EtherType, MacAddr};
//!
//! let header = Header {
//!     dst: MacAddr::BROADCAST,
//!     src: "02:00:00:00:00:01".parse()?,
//!     ethertype: EtherType::ARP,
//! };
//! let mut bytes = [0u8; 60];
//! header.emit(&mut bytes)?;
//! swap_macs(&mut bytes)?;
//! let frame = Frame::parse(&bytes)?;
//! assert_eq!(frame.dst().to_string(), "02:00:00:00:00:01");
//! assert_eq!(frame.ethertype(), EtherType::ARP);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::str::FromStr;

use crate::Error;
use crate::bytes::{room, split_header, swap_neighbours};

/// Bytes of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;

/// Shortest frame on the wire without its frame check sequence, in bytes.
///
/// Shorter ones are padded by whoever sends them, which is why receivers go by the IP lengths.
pub const MIN_FRAME_LEN: usize = 60;

const LAYER: &str = "Ethernet header";

/// A 48-bit hardware address, as text six hexadecimal pairs: `02:00:00:00:00:01`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`, which is nobody's.
    pub const ZERO: Self = Self([0; 6]);

    /// True for group addresses, broadcast included.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// True for `ff:ff:ff:ff:ff:ff`.
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The text was not six hexadecimal pairs joined by `:` or `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MacAddrParseError;

impl fmt::Display for MacAddrParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reading a MAC address: expected six hexadecimal pairs such as 02:00:00:00:00:01")
    }
}

impl core::error::Error for MacAddrParseError {}

impl FromStr for MacAddr {
    type Err = MacAddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut octets = [0u8; 6];
        let mut pairs = text.split([':', '-']);
        for octet in &mut octets {
            let pair = pairs.next().ok_or(MacAddrParseError)?;
            // from_str_radix takes a sign and any number of digits; an address has neither.
            if pair.len() != 2 || !pair.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(MacAddrParseError);
            }
            *octet = u8::from_str_radix(pair, 16).map_err(|_| MacAddrParseError)?;
        }
        match pairs.next() {
            None => Ok(Self(octets)),
            Some(_) => Err(MacAddrParseError),
        }
    }
}

/// What an Ethernet frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "ETH_P_IP")]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: Self = Self(0x0800);
    /// ARP.
    pub const ARP: Self = Self(0x0806);
    /// A customer VLAN tag, 802.1Q.
    pub const VLAN: Self = Self(0x8100);
    /// An Ethernet frame, in what carries many kinds (Geneve, NVGRE).
    #[doc(alias = "ETH_P_TEB")]
    pub const TRANSPARENT_ETHERNET: Self = Self(0x6558);
    /// IPv6.
    pub const IPV6: Self = Self(0x86dd);
    /// A service VLAN tag, 802.1ad.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// The first of two types that IEEE keeps for local experiments (802 §9.2.3).
    pub const LOCAL_EXPERIMENTAL: Self = Self(0x88b5);
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// A view of an Ethernet frame.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame without its frame check sequence.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 14 bytes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, payload) = split_header(LAYER, bytes)?;
        Ok(Self { header, payload })
    }

    /// Where it goes.
    #[must_use]
    pub fn dst(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// Where it comes from.
    #[must_use]
    pub fn src(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.header;
        MacAddr([a, b, c, d, e, f])
    }

    /// What it carries; a VLAN tag counts as that, see [`crate::vlan`].
    #[must_use]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16::from_be_bytes([self.header[12], self.header[13]]))
    }

    /// What follows the header, Ethernet padding included.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header as plain data.
    #[must_use]
    pub fn header(&self) -> Header {
        Header {
            dst: self.dst(),
            src: self.src(),
            ethertype: self.ethertype(),
        }
    }
}

/// An Ethernet header as plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Where it goes.
    pub dst: MacAddr,
    /// Where it comes from.
    pub src: MacAddr,
    /// What it carries.
    pub ethertype: EtherType,
}

impl Header {
    /// Writes the header to the first 14 bytes of `buffer`.
    ///
    /// # Errors
    /// [`Error::NoRoom`] when `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<(), Error> {
        let out: &mut [u8; HEADER_LEN] = room(LAYER, buffer)?;
        out[..6].copy_from_slice(&self.dst.0);
        out[6..12].copy_from_slice(&self.src.0);
        out[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        Ok(())
    }
}

/// Swaps source and destination address of a frame in place.
///
/// # Errors
/// [`Error::Truncated`] below 14 bytes; the frame is then unchanged.
pub fn swap_macs(frame: &mut [u8]) -> Result<(), Error> {
    Frame::parse(frame)?;
    swap_neighbours(frame, 0, 6)
}

#[cfg(test)]
mod tests;
