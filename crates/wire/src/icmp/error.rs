//! Errors: what became of a packet that somebody sent, with as much of that packet as fits.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{v4, v6};
use crate::bytes::split_header;
use crate::{Error, Protocol, ipv4, ipv6};

/// Type, code, checksum, and a word that depends on them.
const HEADER_LEN: usize = 8;

const LAYER: &str = "ICMP error";
const QUOTED: &str = "packet quoted in an ICMP error";

/// What became of the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// It could not be delivered; the message's code says why.
    Unreachable,
    /// It was too long for the next link, which takes this many bytes; 0 from routers of before 1990 (RFC 1191 §4).
    TooBig {
        /// The next link's MTU.
        mtu: u32,
    },
    /// Its hops, or the time to put its fragments together, ran out.
    TimeExceeded,
    /// Something in its header was not understood.
    ParameterProblem,
}

/// An error message.
///
/// Redirects and source quenches are none here: they are not about a packet's fate but tell hosts what to do, and RFC 6633
/// took the latter out of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorMessage<'a> {
    /// What became of the packet.
    pub kind: ErrorKind,
    /// The message's type.
    pub message_type: u8,
    /// The message's code.
    pub code: u8,
    /// The packet, cut anywhere.
    pub quote: &'a [u8],
}

impl<'a> ErrorMessage<'a> {
    /// Reads the payload of an IPv4 packet with [`Protocol::ICMP`]; the checksum is not verified.
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes, [`Error::Unsupported`] for what is no error.
    pub fn parse_v4(message: &'a [u8]) -> Result<Self, Error> {
        Self::parse(message, |message_type, code, word| {
            let [_, _, high, low] = word;
            match (message_type, code) {
                (v4::DESTINATION_UNREACHABLE, v4::FRAGMENTATION_NEEDED) => Some(ErrorKind::TooBig {
                    mtu: u32::from(u16::from_be_bytes([high, low])),
                }),
                (v4::DESTINATION_UNREACHABLE, _) => Some(ErrorKind::Unreachable),
                (v4::TIME_EXCEEDED, _) => Some(ErrorKind::TimeExceeded),
                (v4::PARAMETER_PROBLEM, _) => Some(ErrorKind::ParameterProblem),
                _ => None,
            }
        })
    }

    /// Reads the upper layer of an IPv6 packet with [`Protocol::ICMPV6`]; the checksum is not verified.
    ///
    /// # Errors
    /// As [`ErrorMessage::parse_v4`].
    pub fn parse_v6(message: &'a [u8]) -> Result<Self, Error> {
        Self::parse(message, |message_type, _, word| match message_type {
            v6::DESTINATION_UNREACHABLE => Some(ErrorKind::Unreachable),
            v6::PACKET_TOO_BIG => Some(ErrorKind::TooBig {
                mtu: u32::from_be_bytes(word),
            }),
            v6::TIME_EXCEEDED => Some(ErrorKind::TimeExceeded),
            v6::PARAMETER_PROBLEM => Some(ErrorKind::ParameterProblem),
            _ => None,
        })
    }

    /// `kind_of` knows the errors by type, code, and the word that depends on them.
    fn parse(message: &'a [u8], kind_of: impl FnOnce(u8, u8, [u8; 4]) -> Option<ErrorKind>) -> Result<Self, Error> {
        let (header, quote) = split_header::<HEADER_LEN>(LAYER, message)?;
        let [message_type, code, _, _, word @ ..] = *header;
        let kind = kind_of(message_type, code, word).ok_or(Error::Unsupported {
            layer: LAYER,
            field: "type",
            value: u32::from(message_type),
        })?;
        Ok(Self {
            kind,
            message_type,
            code,
            quote,
        })
    }
}

/// The start of a packet, as an error quotes it: its lengths are not believed, because it is cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quoted<'a> {
    /// Where the packet came from.
    pub src: IpAddr,
    /// Where it was to go.
    pub dst: IpAddr,
    /// What it carried.
    pub protocol: Protocol,
    /// Where its payload belongs, in bytes; above 0 `upper` does not begin with a header.
    pub fragment_offset: usize,
    /// As much as is there of what it carried.
    pub upper: &'a [u8],
}

impl<'a> Quoted<'a> {
    /// Reads the quote of a message from [`ErrorMessage::parse_v4`].
    ///
    /// # Errors
    /// [`Error::Truncated`] when it is cut in the IP header, [`Error::Malformed`] for another version or header length.
    pub fn parse_v4(quote: &'a [u8]) -> Result<Self, Error> {
        let (header, _) = split_header::<{ ipv4::HEADER_LEN }>(QUOTED, quote)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        if header[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN {
            return Err(Error::Malformed {
                layer: QUOTED,
                field: "version and header length",
                value: u32::from(header[0]),
            });
        }
        let upper = quote.get(header_len..).ok_or(Error::Truncated {
            layer: QUOTED,
            need: header_len,
            have: quote.len(),
        })?;
        let [.., a, b, c, d, e, f, g, h] = *header;
        Ok(Self {
            src: Ipv4Addr::new(a, b, c, d).into(),
            dst: Ipv4Addr::new(e, f, g, h).into(),
            protocol: Protocol(header[9]),
            fragment_offset: usize::from(u16::from_be_bytes([header[6], header[7]]) & 0x1fff) * 8,
            upper,
        })
    }

    /// Reads the quote of a message from [`ErrorMessage::parse_v6`].
    ///
    /// # Errors
    /// [`Error::Truncated`] when it is cut in the IP header or an extension header, [`Error::Malformed`] for another
    /// version, [`Error::Unsupported`] for too many extension headers.
    pub fn parse_v6(quote: &'a [u8]) -> Result<Self, Error> {
        let (header, rest) = split_header::<{ ipv6::HEADER_LEN }>(QUOTED, quote)?;
        if header[0] >> 4 != 6 {
            return Err(Error::Malformed {
                layer: QUOTED,
                field: "version",
                value: u32::from(header[0] >> 4),
            });
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let upper = ipv6::walk(Protocol(header[6]), rest)?;
        Ok(Self {
            src: address(8),
            dst: address(24),
            protocol: upper.protocol,
            fragment_offset: upper.fragment.map_or(0, |fragment| fragment.offset),
            upper: upper.bytes,
        })
    }
}
