//! Extension headers, RFC 8200 §4.

use super::HEADER_LEN;
use crate::{Error, Protocol};

const LAYER: &str = "IPv6 extension header";

/// A sender needs each kind once (destination options twice). The limit bounds the work that one
/// packet full of eight-byte headers can cause.
const MOST: usize = 8;

/// What a fragment header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fragment {
    /// Where this fragment's data belongs, in bytes.
    pub offset: usize,
    /// More fragments follow.
    pub more: bool,
    /// What ties fragments together.
    pub identification: u32,
}

impl Fragment {
    /// Whole in spite of its fragment header (RFC 6946).
    #[must_use]
    pub fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }
}

/// The upper layer of an IPv6 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Upper<'a> {
    /// What it is.
    pub protocol: Protocol,
    /// Its first byte, from the start of the fixed header.
    pub offset: usize,
    /// Its bytes, to the end of the packet.
    pub bytes: &'a [u8],
    /// The fragment header on the way, if there was one. Unless it is atomic, `bytes` is a piece.
    pub fragment: Option<Fragment>,
    /// A routing header says that the packet has other stops before it: the fixed header's
    /// destination is not the final one, which is the one that checksums cover.
    pub has_stops_left: bool,
}

pub(crate) fn walk(first: Protocol, payload: &[u8]) -> Result<Upper<'_>, Error> {
    let mut upper = Upper {
        protocol: first,
        offset: HEADER_LEN,
        bytes: payload,
        fragment: None,
        has_stops_left: false,
    };
    for _ in 0..=MOST {
        let protocol = upper.protocol;
        if !matches!(
            protocol,
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::FRAGMENT | Protocol::DESTINATION_OPTIONS
        ) {
            return Ok(upper);
        }
        // All four share the first byte (next header) and are at least eight bytes long.
        let Some(&[next, length, b2, b3, id @ ..]) = upper.bytes.first_chunk::<8>() else {
            return Err(truncated(8, upper.bytes.len()));
        };
        let mut len = 8;
        match protocol {
            Protocol::FRAGMENT => {
                let offset_and_flag = u16::from_be_bytes([b2, b3]);
                upper.fragment = Some(Fragment {
                    offset: usize::from(offset_and_flag & 0xfff8),
                    more: offset_and_flag & 1 != 0,
                    identification: u32::from_be_bytes(id),
                });
            }
            _ => {
                len += usize::from(length) * 8;
                // Byte 3 of a routing header is "segments left".
                upper.has_stops_left |= protocol == Protocol::ROUTING && b3 != 0;
            }
        }
        let Some(bytes) = upper.bytes.get(len..) else {
            return Err(truncated(len, upper.bytes.len()));
        };
        upper.protocol = Protocol(next);
        upper.bytes = bytes;
        upper.offset += len;
        if upper.fragment.is_some_and(|fragment| fragment.offset > 0) {
            return Ok(upper);
        }
    }
    Err(Error::Unsupported {
        layer: LAYER,
        field: "number of extension headers (8 at the most), next is",
        value: u32::from(upper.protocol.0),
    })
}

fn truncated(need: usize, have: usize) -> Error {
    Error::Truncated {
        layer: LAYER,
        need,
        have,
    }
}
