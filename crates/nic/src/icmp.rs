//! ICMP and ICMPv6 errors that come to this host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recvfrom, socket_with};

use crate::sys;

/// "Destination unreachable", whose code 4 is "fragmentation needed", and "time exceeded" (RFC
/// 792).
const TYPES_V4: &[u8] = &[3, 11];
/// "Destination unreachable", "packet too big", "time exceeded" and "parameter problem" (RFC 4443).
const TYPES_V6: &[u8] = &[1, 2, 3, 4];

/// Receives the ICMP errors that come to this host and say that a packet did not reach its
/// destination.
///
/// These are types 3 and 11 of ICMP, and types 1 to 4 of ICMPv6. The kernel handles them as before.
/// Needs CAP_NET_RAW.
#[derive(Debug)]
pub struct IcmpErrors {
    socket: OwnedFd,
    is_v4: bool,
}

/// An ICMP error as a raw socket has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedIcmp<'a> {
    /// The sender of the message: the host itself, or a router.
    pub from: IpAddr,
    /// The message. With IPv4 the IP header is in front of it, and nobody has verified its
    /// checksum.
    pub message: &'a [u8],
}

impl IcmpErrors {
    /// Opens a raw socket for the errors of one address family in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    ///
    /// What the kernel says to `socket` and `setsockopt`: `EPERM` without CAP_NET_RAW,
    /// `EAFNOSUPPORT` without IPv6.
    #[doc(alias = "SOCK_RAW")]
    pub fn open(like: IpAddr) -> io::Result<Self> {
        let is_v4 = like.is_ipv4();
        let (family, protocol, types) = match is_v4 {
            true => (AddressFamily::INET, ipproto::ICMP, TYPES_V4),
            false => (AddressFamily::INET6, ipproto::ICMPV6, TYPES_V6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        sys::take_icmp_types(socket.as_fd(), is_v4, types)?;
        Ok(Self { socket, is_v4 })
    }

    /// Returns whether the messages are of IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// Returns the next message, cut to `room`, or `None` if there is none at present.
    ///
    /// # Errors
    ///
    /// What the kernel says to `recvfrom`.
    pub fn next<'a>(&self, room: &'a mut [u8]) -> io::Result<Option<ReceivedIcmp<'a>>> {
        let (length, from) = match recvfrom(&self.socket, &mut *room, RecvFlags::empty()) {
            Ok((length, _, from)) => (length, from),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        let message = room.get(..length);
        Ok(from.zip(message).map(|(from, message)| ReceivedIcmp {
            from: from.ip(),
            message,
        }))
    }
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
