//! System calls of UDP and packet sockets: all unsafe code of the tool but for the packet rings.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use libc::{c_int, c_uint};

pub(super) mod ring;
pub(super) mod txtime;

/// Headers for many messages in one system call, allocated once.
pub(super) struct Messages {
    headers: Vec<libc::mmsghdr>,
    vectors: Vec<libc::iovec>,
}

// SAFETY: the pointers in it are set at the beginning of each call, from borrows that last for the call, and nobody
// follows them at another time.
unsafe impl Send for Messages {}

impl Messages {
    /// For up to `most` messages in one call.
    pub(super) fn new(most: usize) -> Self {
        // SAFETY: both are plain C structures, for which all zero is a valid value.
        let (header, vector) = unsafe { (std::mem::zeroed::<libc::mmsghdr>(), std::mem::zeroed::<libc::iovec>()) };
        Self {
            headers: vec![header; most],
            vectors: vec![vector; most],
        }
    }

    /// `recvmmsg()`: each message goes into its own `stride` bytes of `buffer`. How many came.
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut [u8],
        stride: usize,
        flags: c_int,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (vector, slot) in self.vectors.iter_mut().zip(buffer.chunks_exact_mut(stride)) {
            *vector = libc::iovec {
                iov_base: slot.as_mut_ptr().cast(),
                iov_len: slot.len(),
            };
            count += 1;
        }
        self.point(count);
        // SAFETY: the first `count` headers each point to one iovec, which points to a slot of `buffer` of its own, with
        // its length; all live until the call returns. No time-out and no address is asked for.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                length(count),
                flags,
                ptr::null_mut(),
            )
        };
        counted(received)
    }

    /// Bytes of message `index` of the last call.
    pub(super) fn bytes(&self, index: usize) -> usize {
        self.headers.get(index).map_or(0, |header| header.msg_len as usize)
    }

    /// `sendmmsg()` until all packets were offered; how many the kernel took. It refuses one with ENOBUFS when the
    /// device has no room, which is a lost packet and no failure.
    pub(super) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        packets: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<Offered> {
        let mut count = 0;
        for (vector, packet) in self.vectors.iter_mut().zip(packets) {
            *vector = libc::iovec {
                iov_base: packet.as_ptr().cast_mut().cast(),
                iov_len: packet.len(),
            };
            count += 1;
        }
        self.point(count);
        let mut taken = 0;
        let mut next = 0;
        while next < count {
            let rest = &mut self.headers[next..count];
            // SAFETY: each of these headers points to one iovec, which points to a packet that is borrowed for 'a and
            // so lives until the call returns; the kernel only reads it.
            let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), length(rest.len()), 0) };
            match counted(sent) {
                Ok(sent) => {
                    taken += sent;
                    next += sent;
                }
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => next += 1,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Offered { offered: count, taken })
    }

    /// Points the first headers to their vectors.
    fn point(&mut self, count: usize) {
        for (header, vector) in self.headers.iter_mut().zip(&mut self.vectors).take(count) {
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
        }
    }
}

/// What became of packets given to the kernel.
pub(super) struct Offered {
    /// Packets that it was given.
    pub(super) offered: usize,
    /// Those that it took.
    pub(super) taken: usize,
}

/// A packet socket that is not bound to an interface yet, and therefore gets nothing.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed. Protocol 0: nothing is received before `bind_packet`.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    counted(fd)?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to an interface. `receives`: it gets every packet; otherwise it only sends.
pub(super) fn bind_packet(socket: BorrowedFd<'_>, ifindex: u32, receives: bool) -> io::Result<()> {
    // SAFETY: a plain C structure, for which all zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = as_u16(libc::AF_PACKET);
    // Taps for all protocols see a packet before tc's ingress hook, those for one protocol after it:
    // https://elixir.bootlin.com/linux/v6.18/C/ident/__netif_receive_skb_core
    address.sll_protocol = if receives { as_u16(libc::ETH_P_ALL).to_be() } else { 0 };
    address.sll_ifindex = c_int::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: `address` is a sockaddr_ll of the length given, and is only read.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            length(size_of::<libc::sockaddr_ll>()),
        )
    };
    counted(result).map(drop)
}

/// Values of socket options: plain C data without pointers.
pub(super) trait OptionValue: Copy {}
impl OptionValue for c_int {}
impl OptionValue for libc::tpacket_req {}
impl OptionValue for libc::tpacket_req3 {}
impl OptionValue for libc::sock_txtime {}

/// `setsockopt()`.
pub(super) fn set_option(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: impl OptionValue) -> io::Result<()> {
    // SAFETY: `value` lives until the call returns, is as long as told, and is only read; `OptionValue`s have no
    // pointers in them that the kernel could follow.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length(size_of_val(&value)),
        )
    };
    counted(result).map(drop)
}

/// `SO_ATTACH_FILTER`: what the socket is to get.
pub(super) fn filter(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: `program` is as long as told, and points to that many instructions; both live until the call returns, and the kernel only reads them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            length(size_of_val(&program)),
        )
    };
    counted(result).map(drop)
}

/// Packets for which a socket's ring had no room, since the last call.
#[cfg(test)]
pub(super) fn ring_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // SAFETY: a plain C structure, for which all zero is a valid value.
    let mut statistics: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
    let mut size = length(size_of_val(&statistics));
    // SAFETY: the kernel writes at most `size` bytes, all of `statistics`, and then how many to `size`; both are alive.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut size,
        )
    };
    counted(result)?;
    Ok(statistics.tp_drops)
}

fn counted(result: c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Lengths of arrays of ours, which are all far below 2³².
fn length(value: usize) -> c_uint {
    c_uint::try_from(value).unwrap_or(c_uint::MAX)
}

/// For constants of the kernel's headers, which declare 16-bit fields and plain `int` constants for them.
fn as_u16(constant: c_int) -> u16 {
    u16::try_from(constant).unwrap_or(0)
}

#[cfg(test)]
#[path = "sys_tests.rs"]
mod tests;
