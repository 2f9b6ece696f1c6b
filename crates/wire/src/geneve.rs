//! Geneve (RFC 8926): frames of many networks in UDP, with options.
//!
//! ```
//! use ringside_wire::geneve;
//!
//! let mut bytes = [0u8; 22];
//! geneve::Header { vni: 42 }.emit(&mut bytes)?;
//! let packet = geneve::Packet::parse(&bytes)?;
//! assert_eq!((packet.vni(), packet.payload().len()), (42, 14));
//! assert_eq!(packet.options().count(), 0);
//! # Ok::<(), ringside_wire::Error>(())
//! ```

use crate::bytes::{room, split_header};
use crate::{Error, EtherType};

/// Bytes of the header without options.
pub const HEADER_LEN: usize = 8;
/// The UDP port that IANA has given it.
pub const PORT: u16 = 6081;
/// Longest options, in bytes: 63 words.
pub const MOST_OPTIONS: usize = 252;

const LAYER: &str = "Geneve header";
const OPTION: &str = "Geneve option";
const CONTROL: u8 = 0x80;
const CRITICAL: u8 = 0x40;
const OPTION_HEADER_LEN: usize = 4;

/// A view of what a Geneve datagram carries.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a UDP payload. Reserved bits are ignored, as §3.4 asks.
    ///
    /// # Errors
    /// [`Error::Truncated`] when header or options reach behind `bytes`, [`Error::Unsupported`] for a version other than 0,
    /// [`Error::Malformed`] when the options do not fill their length exactly.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<HEADER_LEN>(LAYER, bytes)?;
        if header[0] >> 6 != 0 {
            return Err(Error::Unsupported {
                layer: LAYER,
                field: "version",
                value: u32::from(header[0] >> 6),
            });
        }
        let options_len = usize::from(header[0] & 0x3f) * 4;
        let Some((options, payload)) = rest.split_at_checked(options_len) else {
            return Err(Error::Truncated {
                layer: LAYER,
                need: HEADER_LEN + options_len,
                have: bytes.len(),
            });
        };
        let packet = Self {
            header,
            options,
            payload,
        };
        let taken: usize = packet
            .options()
            .map(|option| OPTION_HEADER_LEN + option.data.len())
            .sum();
        if taken != options_len {
            return Err(Error::Malformed {
                layer: OPTION,
                field: "length",
                value: u32::from(options.get(taken + 3).copied().unwrap_or_default() & 0x1f),
            });
        }
        Ok(packet)
    }

    /// The number of the network, 24 bits.
    #[must_use]
    #[doc(alias = "VNI")]
    pub fn vni(&self) -> u32 {
        u32::from_be_bytes([0, self.header[4], self.header[5], self.header[6]])
    }

    /// A message between tunnel endpoints, whose payload is not to be handed on.
    #[must_use]
    #[doc(alias = "O bit")]
    pub fn is_control(&self) -> bool {
        self.header[1] & CONTROL != 0
    }

    /// Says that there are options which have to be understood, or the packet dropped.
    #[must_use]
    #[doc(alias = "C bit")]
    pub fn has_critical_options(&self) -> bool {
        self.header[1] & CRITICAL != 0
    }

    /// What the payload is: [`EtherType::TRANSPARENT_ETHERNET`] for frames.
    #[must_use]
    pub fn protocol(&self) -> EtherType {
        EtherType(u16::from_be_bytes([self.header[2], self.header[3]]))
    }

    /// The options, in their order.
    pub fn options(&self) -> impl Iterator<Item = GeneveOption<'a>> + use<'a> {
        let mut rest = self.options;
        core::iter::from_fn(move || {
            let (&[a, b, option_type, length], data) = rest.split_first_chunk::<OPTION_HEADER_LEN>()?;
            let (data, next) = data.split_at_checked(usize::from(length & 0x1f) * 4)?;
            rest = next;
            Some(GeneveOption {
                class: u16::from_be_bytes([a, b]),
                option_type,
                data,
            })
        })
    }

    /// The options as they stand there.
    #[must_use]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GeneveOption<'a> {
    /// Who defined it.
    pub class: u16,
    /// What it is; its highest bit says that it is critical.
    pub option_type: u8,
    /// Its data: 0 to 124 bytes.
    pub data: &'a [u8],
}

impl GeneveOption<'_> {
    /// A receiver that does not know it has to drop the packet.
    #[must_use]
    pub fn is_critical(&self) -> bool {
        self.option_type & 0x80 != 0
    }
}

/// A header without options, for a packet that carries a frame.
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
        let [high, low] = EtherType::TRANSPARENT_ETHERNET.0.to_be_bytes();
        *out = [0, 0, high, low, a, b, c, 0];
        Ok(())
    }
}

#[cfg(test)]
mod tests;
