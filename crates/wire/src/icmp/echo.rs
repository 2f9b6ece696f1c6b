//! Echo request and reply, the same shape in both versions.

use super::{v4, v6};
use crate::Error;
use crate::bytes::{header_mut, split_header};
use crate::checksum::update;

/// Type, code, checksum, identifier, sequence.
pub(super) const HEADER_LEN: usize = 8;

const LAYER: &str = "ICMP echo";

/// Question or answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EchoKind {
    /// Send this back.
    Request,
    /// Here it is.
    Reply,
}

/// An echo message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo<'a> {
    /// Question or answer.
    pub kind: EchoKind,
    /// Which process asks.
    pub identifier: u16,
    /// Which of its questions.
    pub sequence: u16,
    /// What comes back as it was sent.
    pub data: &'a [u8],
}

impl<'a> Echo<'a> {
    /// Reads the payload of an IPv4 packet with [`crate::Protocol::ICMP`]. The checksum is not
    /// verified: see [`super::verify_v4`].
    ///
    /// # Errors
    /// [`Error::Truncated`] below 8 bytes, [`Error::Unsupported`] for another type or code.
    pub fn parse_v4(message: &'a [u8]) -> Result<Self, Error> {
        Self::parse(message, v4::ECHO_REQUEST, v4::ECHO_REPLY)
    }

    /// Reads the upper layer of an IPv6 packet with [`crate::Protocol::ICMPV6`]. The checksum is
    /// not verified: see [`super::verify_v6`].
    ///
    /// # Errors
    /// As [`Echo::parse_v4`].
    pub fn parse_v6(message: &'a [u8]) -> Result<Self, Error> {
        Self::parse(message, v6::ECHO_REQUEST, v6::ECHO_REPLY)
    }

    fn parse(message: &'a [u8], request: u8, reply: u8) -> Result<Self, Error> {
        let (header, data) = split_header::<HEADER_LEN>(LAYER, message)?;
        let [message_type, code, _, _, id_high, id_low, seq_high, seq_low] = *header;
        let kind = match (message_type, code) {
            (found, 0) if found == request => EchoKind::Request,
            (found, 0) if found == reply => EchoKind::Reply,
            _ => {
                return Err(Error::Unsupported {
                    layer: LAYER,
                    field: "type and code",
                    value: u32::from(u16::from_be_bytes([message_type, code])),
                });
            }
        };
        Ok(Self {
            kind,
            identifier: u16::from_be_bytes([id_high, id_low]),
            sequence: u16::from_be_bytes([seq_high, seq_low]),
            data,
        })
    }
}

/// Turns an echo request into its reply in place. The checksum is updated for the one word that
/// changes, so data that was damaged on its way here is still seen as damaged by who asked.
///
/// # Errors
/// Those of [`Echo::parse_v4`], and [`Error::Unsupported`] for a reply; the message is then
/// unchanged.
pub fn request_to_reply_v4(message: &mut [u8]) -> Result<(), Error> {
    let echo = Echo::parse_v4(message)?;
    request_to_reply(echo.kind, message, v4::ECHO_REPLY)
}

/// As [`request_to_reply_v4`], for ICMPv6. The checksum also covers the IP addresses, and stays
/// right when they are swapped.
///
/// # Errors
/// As [`request_to_reply_v4`].
pub fn request_to_reply_v6(message: &mut [u8]) -> Result<(), Error> {
    let echo = Echo::parse_v6(message)?;
    request_to_reply(echo.kind, message, v6::ECHO_REPLY)
}

fn request_to_reply(kind: EchoKind, message: &mut [u8], reply: u8) -> Result<(), Error> {
    let header: &mut [u8; HEADER_LEN] = header_mut(LAYER, message)?;
    let old = u16::from_be_bytes([header[0], header[1]]);
    if kind != EchoKind::Request {
        return Err(Error::Unsupported {
            layer: LAYER,
            field: "type and code",
            value: u32::from(old),
        });
    }
    header[0] = reply;
    let new = u16::from_be_bytes([header[0], header[1]]);
    let mut checksum = update(u16::from_be_bytes([header[2], header[3]]), old, new);
    if (checksum, reply) == (0, v4::ECHO_REPLY) {
        // An IPv4 reply with identifier, sequence and data of zero is zeros all over, the one case
        // that the incremental update gets wrong. 0xffff is right there, and everywhere else it
        // verifies just as 0 does.
        checksum = 0xffff;
    }
    header[2..4].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}
