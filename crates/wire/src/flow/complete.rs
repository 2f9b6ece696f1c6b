//! Checksums that a sender has left to its NIC.

use super::receive::Upper;
use crate::checksum::pseudo;
use crate::udp::Datagram;
use crate::vlan::Network;
use crate::{Error, Protocol};

/// Offset of the checksum in the headers of UDP (RFC 768) and TCP (RFC 9293 §3.1).
const UDP_CHECKSUM: usize = 6;
const TCP_CHECKSUM: usize = 16;

/// Completes the UDP or TCP checksum of a frame that holds the pseudo header's sum alone, as Linux leaves it to a NIC
/// (`CHECKSUM_PARTIAL`). True when it was one. Whoever hands on frames that came from a veth has to: the receiver sees only
/// the bytes, and drops them.
///
/// A checksum that is whole, missing or wrong stays as it is. Costs a look at the headers, unless there is something to do.
///
/// # Errors
/// [`Error::Unsupported`] for what is no IP, and for fragments, of which none has it all; [`Error::Truncated`] and
/// [`Error::Malformed`] for damaged frames. All are unchanged.
#[doc(alias = "CHECKSUM_PARTIAL")]
pub fn complete_checksum(frame: &mut [u8]) -> Result<bool, Error> {
    let network = Network::parse(frame)?;
    let upper = Upper::find(frame, &network)?;
    let (at, len) = match upper.protocol {
        Protocol::UDP => {
            let datagram = Datagram::parse(upper.bytes)?;
            (UDP_CHECKSUM, crate::udp::HEADER_LEN + datagram.payload().len())
        }
        Protocol::TCP => (TCP_CHECKSUM, upper.bytes.len()),
        _ => return Ok(false),
    };
    let segment = upper.bytes.get(..len).unwrap_or_default();
    let Some(&[high, low]) = segment.get(at..).and_then(<[u8]>::first_chunk) else {
        return Err(Error::Truncated {
            layer: "TCP header",
            need: at + 2,
            have: segment.len(),
        });
    };
    let Some(pseudo) = pseudo(upper.src, upper.dst, upper.protocol, len) else {
        return Ok(false);
    };
    let found = u16::from_be_bytes([high, low]);
    // A whole one can be the same by chance.
    if found == 0 || found != pseudo.fold() || pseudo.bytes(segment).fold() == 0xffff {
        return Ok(false);
    }
    let whole = match pseudo.bytes(&segment[..at]).bytes(&segment[at + 2..]).finish() {
        // Which would say that there is none.
        0 if upper.protocol == Protocol::UDP => 0xffff,
        whole => whole,
    };
    let at = upper.offset + at;
    frame[at..at + 2].copy_from_slice(&whole.to_be_bytes());
    Ok(true)
}
