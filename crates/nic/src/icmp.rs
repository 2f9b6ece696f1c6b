//! What routers say about packets that were too long for them.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};

use crate::sys;

/// "Destination unreachable", whose code 4 is "fragmentation needed" (RFC 792), and "packet too big" (RFC 4443).
const TYPES: [u8; 2] = [3, 2];

/// The messages that come to this host by which routers say that a packet was too long for the next link: ICMP's type 3, of all codes,
/// or ICMPv6's type 2. The kernel sees them, too. Needs CAP_NET_RAW.
#[derive(Debug)]
pub struct TooBigMessages {
    socket: OwnedFd,
    is_v4: bool,
}

impl TooBigMessages {
    /// Those of one family, in the calling thread's network namespace, from now on.
    ///
    /// # Errors
    ///
    /// What the kernel says to `socket` and `setsockopt`: without CAP_NET_RAW that it is not permitted, without IPv6 that there is none.
    #[doc(alias = "SOCK_RAW")]
    pub fn open(like: IpAddr) -> io::Result<Self> {
        let is_v4 = like.is_ipv4();
        let (family, protocol) = match is_v4 {
            true => (AddressFamily::INET, ipproto::ICMP),
            false => (AddressFamily::INET6, ipproto::ICMPV6),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        sys::take_icmp_type(socket.as_fd(), is_v4, TYPES[usize::from(!is_v4)])?;
        Ok(Self { socket, is_v4 })
    }

    /// True if they are of IPv4.
    #[must_use]
    pub fn is_v4(&self) -> bool {
        self.is_v4
    }

    /// The next one, if one has come: as much of it as there is room for, with its IP header in front if that is of IPv4. Its
    /// checksum has been looked at if it is of IPv6.
    ///
    /// # Errors
    ///
    /// What the kernel says to `recv`.
    pub fn next<'a>(&self, room: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
        match recv(&self.socket, &mut *room, RecvFlags::empty()) {
            Ok((length, _)) => Ok(room.get(..length)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;
