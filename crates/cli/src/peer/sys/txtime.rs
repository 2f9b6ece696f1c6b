//! Packets with a time before which they are not to be sent: `SO_TXTIME` (Linux 4.19).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::{counted, length, set_option};

/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/errqueue.h#L26>
const SO_EE_ORIGIN_TXTIME: u8 = 6;
/// Thrown away after it was taken, for its time was over. What is not taken has another code, and the send call has told it: ENOBUFS.
/// <https://elixir.bootlin.com/linux/v6.18/C/ident/SO_EE_CODE_TXTIME_MISSED>
const SO_EE_CODE_TXTIME_MISSED: u8 = 2;

/// The option, and the control message of the same number: those of nearly all architectures.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/socket.h#L105>
const SO_TXTIME: i32 = 61;

/// Room for one control message of a time, aligned as `cmsghdr` has to be.
const CONTROL: usize = 4;

/// Has the socket's packets carry a time of CLOCK_TAI, and those that miss it come back on its error queue.
pub fn enable(socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = libc::sock_txtime {
        clockid: libc::CLOCK_TAI,
        flags: libc::SOF_TXTIME_REPORT_ERRORS,
    };
    set_option(socket, libc::SOL_SOCKET, SO_TXTIME, value)
}

/// Sends one packet, at once or not before `at` nanoseconds of the socket's clock. False when the kernel had no room for it.
pub fn send_at(socket: BorrowedFd<'_>, packet: &[u8], at: Option<u64>) -> io::Result<bool> {
    let mut vector = libc::iovec {
        iov_base: packet.as_ptr().cast_mut().cast(),
        iov_len: packet.len(),
    };
    let mut control = [0_u64; CONTROL];
    // SAFETY: a plain C structure, for which all zero is a valid value.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    if let Some(at) = at {
        put_time(&mut header, &mut control, at);
    }
    loop {
        // SAFETY: the header points to one vector and one control message, which live until the call returns; the kernel only
        // reads the packet.
        let sent = counted(unsafe {
            libc::sendmsg(socket.as_raw_fd(), &raw const header, 0)
                .try_into()
                .unwrap_or(i32::MAX)
        });
        match sent {
            Ok(_) => return Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the time a message's one control message.
fn put_time(header: &mut libc::msghdr, control: &mut [u64; CONTROL], at: u64) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(length(size_of::<u64>())) } as usize;
    debug_assert!(header.msg_controllen <= size_of_val(control));
    // SAFETY: `control` is as long as `msg_controllen` at least, and aligned for a header, which the first message begins
    // with; its data has room for a u64, which need not be aligned.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(&raw const *header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = SO_TXTIME;
        (*message).cmsg_len = libc::CMSG_LEN(length(size_of::<u64>())) as usize;
        ptr::write_unaligned(libc::CMSG_DATA(message).cast::<u64>(), at);
    }
}

/// Takes what the error queue holds; how many packets were thrown away because of their time, after [`send_at`] had them taken.
pub fn missed(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut missed = 0;
    loop {
        let mut packet = [0_u8; 256];
        let mut control = [0_u64; 32];
        let mut vector = libc::iovec {
            iov_base: packet.as_mut_ptr().cast(),
            iov_len: packet.len(),
        };
        // SAFETY: a plain C structure, for which all zero is a valid value.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&control);
        // SAFETY: the header points to buffers with their lengths, which live until the call returns.
        let received = counted(unsafe {
            libc::recvmsg(
                socket.as_raw_fd(),
                &raw mut header,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            )
            .try_into()
            .unwrap_or(i32::MAX)
        });
        match received {
            Ok(_) => missed += u64::from(is_missed(&header)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(missed),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether a message of an error queue, as `recvmsg()` has left it, says that a packet's time was missed.
fn is_missed(header: &libc::msghdr) -> bool {
    // SAFETY: the kernel has filled in the control buffer, which is alive, and its length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, so it is inside of the control buffer.
        let (level, kind, len) = unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len) };
        // SAFETY: only computes.
        let enough = unsafe { libc::CMSG_LEN(length(size_of::<libc::sock_extended_err>())) } as usize;
        if (level, kind) == (libc::SOL_PACKET, libc::PACKET_TX_TIMESTAMP) && len >= enough {
            // SAFETY: the message is long enough for it; it need not be aligned.
            let error = unsafe { ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::sock_extended_err>()) };
            return (error.ee_origin, error.ee_code) == (SO_EE_ORIGIN_TXTIME, SO_EE_CODE_TXTIME_MISSED);
        }
        // SAFETY: as for the first one.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    false
}

#[cfg(test)]
#[path = "txtime_tests.rs"]
mod tests;
