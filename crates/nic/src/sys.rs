//! `SIOCETHTOOL` and socket options that rustix lacks: the only unsafe code of this crate.
//!
//! Several ethtool commands write as many elements as the driver has at that moment, whatever the caller announced
//! (<https://elixir.bootlin.com/linux/v6.18/C/ident/ethtool_get_strings>). A buffer of the size that was right a
//! moment ago may thus be too small. The buffer here ends in a page that cannot be written: the kernel's copy stops
//! there with `EFAULT`, and the caller asks again, instead of memory being overwritten.

#![allow(
    unsafe_code,
    reason = "ioctl, mmap and socket options; every block says why it is sound"
)]

use std::ffi::{c_char, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// `SIOCETHTOOL`: <https://elixir.bootlin.com/linux/v6.18/C/ident/SIOCETHTOOL>
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `MEMBARRIER_CMD_GLOBAL`: <https://elixir.bootlin.com/linux/v6.18/C/ident/membarrier_cmd>
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

/// Waits for an RCU grace period, some milliseconds: whatever ran when the call began has ended, such
/// as an XDP program that was replaced just before. Linux 4.3.
///
/// # Errors
///
/// `ENOSYS` without `CONFIG_MEMBARRIER`, `EINVAL` on a kernel with `nohz_full` CPUs, `EPERM` where a
/// system call filter refuses it.
pub fn wait_for_grace_period() -> io::Result<()> {
    let flags: libc::c_uint = 0;
    // SAFETY: the call takes two numbers and touches no memory.
    let result = unsafe { libc::syscall(libc::SYS_membarrier, MEMBARRIER_CMD_GLOBAL, flags) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket to make the `ioctl` on, in the calling thread's network namespace.
pub(crate) fn ioctl_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The number of the network namespace that a socket was made in, which no other ever had or gets until the machine
/// restarts (Linux 5.14): <https://elixir.bootlin.com/linux/v6.18/C/ident/SO_NETNS_COOKIE>
pub(crate) fn namespace_cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut cookie = 0_u64;
    let mut length = SIZE_OF_COOKIE;
    // SAFETY: `cookie` and `length` outlive the call, and `length` says how many bytes the kernel may write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            ptr::from_mut(&mut cookie).cast::<c_void>(),
            &raw mut length,
        )
    };
    match (result, length) {
        (0, SIZE_OF_COOKIE) => Ok(cookie),
        (0, _) => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

const SIZE_OF_COOKIE: libc::socklen_t = 8;

/// A packet socket that receives nothing, in the calling thread's network namespace.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    Ok(socket_with(
        AddressFamily::PACKET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Has an interface take all frames for as long as a packet socket is open: <https://man7.org/linux/man-pages/man7/packet.7.html>
pub(crate) fn join_all_frames(socket: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: ifindex.try_into().map_err(|_| io::ErrorKind::InvalidInput)?,
        mr_type: PROMISCUOUS,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    // SAFETY: `membership` outlives the call, and the length is its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            ptr::from_ref(&membership).cast::<c_void>(),
            SIZE_OF_MEMBERSHIP,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Limits a raw socket to messages of these ICMP types:
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/icmp_filter>,
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/icmp6_filter>. Each set bit is a type that does not come.
pub(crate) fn take_icmp_types(socket: BorrowedFd<'_>, is_v4: bool, types: &[u8]) -> io::Result<()> {
    let mut blocked = [u32::MAX; 8];
    for message_type in types {
        blocked[usize::from(message_type / 32)] &= !(1 << (message_type % 32));
    }
    let (level, length) = match is_v4 {
        // The types from 32 on are no longer used, and not asked about.
        true => (libc::SOL_RAW, size_of::<u32>()),
        false => (libc::SOL_ICMPV6, size_of_val(&blocked)),
    };
    // SAFETY: `blocked` outlives the call, and is at least as long as the length says.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            ICMP_FILTER,
            blocked.as_ptr().cast::<c_void>(),
            libc::socklen_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `ICMP_FILTER` and `ICMPV6_FILTER`: <https://elixir.bootlin.com/linux/v6.18/C/ident/ICMP_FILTER>
const ICMP_FILTER: libc::c_int = 1;

/// `PACKET_MR_PROMISC`: <https://elixir.bootlin.com/linux/v6.18/C/ident/PACKET_MR_PROMISC>
const PROMISCUOUS: libc::c_ushort = 1;
const SIZE_OF_MEMBERSHIP: libc::socklen_t = 16;
const _: () = assert!(size_of::<libc::packet_mreq>() == SIZE_OF_MEMBERSHIP as usize);

/// Memory for one ethtool command, zeroed, followed by a page that nobody can write.
///
/// ```text
/// | command and its data (whole pages) | no access (one page) |
/// ^ start                              ^ start + writable
/// ```
#[derive(Debug)]
pub(crate) struct CommandBuffer {
    start: NonNull<u8>,
    writable: usize,
    page: usize,
}

impl CommandBuffer {
    /// A buffer of at least `len` bytes whose first word is the command.
    pub(crate) fn new(command: u32, len: usize) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let writable = len.max(size_of::<u32>()).next_multiple_of(page);
        // SAFETY: a null hint makes the kernel choose unused addresses, so no existing mapping is replaced.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                writable + page,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut buffer = Self { start, writable, page };
        // SAFETY: the last page of the mapping made above; no reference to it exists, nor is one ever made.
        unsafe {
            mprotect(
                buffer.start.as_ptr().add(writable).cast::<c_void>(),
                page,
                MprotectFlags::empty(),
            )?
        };
        buffer.set_u32(0, command);
        Ok(buffer)
    }

    /// All writable bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `writable` bytes from `start` are mapped, initialised (zeroed by the kernel) and owned by `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.writable) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes the reference unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.writable) }
    }

    /// The word at a byte offset; zero outside the buffer.
    pub(crate) fn u32_at(&self, offset: usize) -> u32 {
        let bytes = self.bytes().get(offset..offset + 4);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_ne_bytes)
    }

    /// The double word at a byte offset; zero outside the buffer.
    pub(crate) fn u64_at(&self, offset: usize) -> u64 {
        let bytes = self.bytes().get(offset..offset + 8);
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    }

    /// Stores a word at a byte offset, which has to be inside the length that [`CommandBuffer::new`] was given.
    pub(crate) fn set_u32(&mut self, offset: usize, value: u32) {
        self.bytes_mut()[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
    }

    /// Stores a double word at a byte offset, which has to be inside the length that [`CommandBuffer::new`] was given.
    pub(crate) fn set_u64(&mut self, offset: usize, value: u64) {
        self.bytes_mut()[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Runs the command on an interface. The value is what `ioctl` returned: flags for some commands, else zero.
    pub(crate) fn run(&mut self, socket: BorrowedFd<'_>, interface: &str) -> io::Result<u32> {
        // A literal with the pointer alone would leave the rest of the union without a value.
        // SAFETY: zeros are a value of all members.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_data = self.start.as_ptr().cast::<c_char>();
        if interface.len() >= libc::IFNAMSIZ {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = c_char::from_ne_bytes([from]);
        }
        // SAFETY: `request` outlives the call and its name ends in NUL (checked above). The kernel reads and writes
        // through `ifru_data`, which points to memory that `self` owns and that no reference points to during the
        // call (`&mut self`). A longer write than the buffer meets the inaccessible page and fails with EFAULT.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, ptr::from_mut(&mut request)) };
        u32::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

impl Drop for CommandBuffer {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; its borrows ended, since `self` is being dropped.
        // A failure leaks a few pages and is nothing one could act upon.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.writable + self.page) };
    }
}

#[cfg(test)]
#[path = "sys_tests.rs"]
mod tests;
