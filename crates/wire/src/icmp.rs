//! ICMP (RFC 792) and ICMPv6 (RFC 4443): echo, errors with the packet that they quote, and what IPv6
//! needs to find its neighbours (RFC 4861).
//!
//! ```
//! use ringside_wire::icmp::{self, Echo, EchoKind};
//!
//! // Echo request, identifier 1, sequence 2, two bytes of data.
//! let mut message = [8, 0, 0x6f, 0x3b, 0, 1, 0, 2, 0x88, 0xc1];
//! assert!(icmp::verify_v4(&message));
//! icmp::request_to_reply_v4(&mut message)?;
//! assert!(icmp::verify_v4(&message));
//! let echo = Echo::parse_v4(&message)?;
//! assert_eq!((echo.kind, echo.identifier, echo.sequence), (EchoKind::Reply, 1, 2));
//! # Ok::<(), ringside_wire::Error>(())
//! ```

use core::net::Ipv6Addr;

use crate::Protocol;
use crate::checksum::{Sum, pseudo_v6};

mod echo;
mod error;
mod neighbor;

pub use echo::{Echo, EchoKind, request_to_reply_v4, request_to_reply_v6};
pub use error::{ErrorKind, ErrorMessage, Quoted};
pub use neighbor::{NeighborAdvertisement, NeighborSolicitation};

/// Message types of ICMP.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// The code of "unreachable" that says: too long, and must not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Time stamp request.
    pub const TIMESTAMP_REQUEST: u8 = 13;
    /// Time stamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
}

/// Message types of ICMPv6.
pub mod v6 {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbour solicitation.
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement.
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    /// Redirect.
    pub const REDIRECT: u8 = 137;

    /// True for the five types of neighbour discovery, without which IPv6 does not work: they
    /// belong to the kernel.
    #[must_use]
    pub const fn is_neighbor_discovery(message_type: u8) -> bool {
        matches!(message_type, ROUTER_SOLICITATION..=REDIRECT)
    }
}

/// True when the checksum of an ICMP message is right. `message` has to end where the IP packet
/// does, without Ethernet padding.
#[must_use]
pub fn verify_v4(message: &[u8]) -> bool {
    message.len() >= echo::HEADER_LEN && Sum::of(message).fold() == 0xffff
}

/// True when the checksum of an ICMPv6 message between these addresses is right.
#[must_use]
pub fn verify_v6(message: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> bool {
    let Ok(len) = u32::try_from(message.len()) else {
        return false;
    };
    message.len() >= echo::HEADER_LEN && pseudo_v6(src, dst, Protocol::ICMPV6, len).bytes(message).fold() == 0xffff
}

#[cfg(test)]
mod tests;
