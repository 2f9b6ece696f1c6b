//! The ways to move packets that are compared: one trait, and an implementation for each kind of socket.
//!
//! ```text
//!               UDP socket          AF_PACKET                AF_XDP
//!               udp.rs              packet.rs                xsk.rs
//!  receive      recvmmsg            TPACKET_V3 ring          RX ring
//!  transmit     send, sendmmsg,     sendmmsg past the        TX ring
//!               UDP_SEGMENT         queueing discipline
//! ```

mod filter;
pub(crate) mod packet;
mod probes;
#[allow(
    unsafe_code,
    reason = "recvmmsg, sendmmsg and packet rings, which no dependency has a safe function for"
)]
mod sys;
pub(crate) mod udp;
pub(crate) mod xsk;

use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::Duration;

use anyhow::Result;

/// Packets that are received, sent or sent back at a time, where the interface takes a number.
pub(crate) const BATCH: usize = 64;

/// How long who waits asleep sleeps at the most: the end of its turn is seen then.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);

/// Limits the receive window that this end of a TCP connection offers (`TCP_WINDOW_CLAMP`).
///
/// The kernel raises the limit when its receive buffer grows: set it again after each read. The
/// minimum is half of the kernel's smallest receive buffer, about a kilobyte.
pub(crate) fn limit_window(connection: &TcpStream, bytes: u32) -> io::Result<()> {
    set_tcp_option(connection, libc::TCP_WINDOW_CLAMP, bytes)
}

/// Fixes the receive buffer of a TCP connection at twice a window (`SO_RCVBUFFORCE`).
///
/// The kernel then offers at most two windows, also where [`limit_window`] is late. It counts the
/// memory that packets occupy, and doubles the value for that: socket(7).
///
/// # Errors
/// `EPERM` without `CAP_NET_ADMIN`.
pub(crate) fn fix_receive_buffer(connection: &TcpStream, window: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(window).unwrap_or(libc::c_int::MAX);
    sys::set_option(connection.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

/// Limits what waits in the send buffer before it is sent for the first time (`TCP_NOTSENT_LOWAT`).
pub(crate) fn limit_unsent(connection: &TcpStream, bytes: u32) -> io::Result<()> {
    set_tcp_option(connection, libc::TCP_NOTSENT_LOWAT, bytes)
}

fn set_tcp_option(connection: &TcpStream, name: libc::c_int, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    sys::set_option(connection.as_fd(), libc::IPPROTO_TCP, name, bytes)
}

/// One end of a path, opened for one operation, used by one thread.
///
/// Each call does one batch. Where the way to wait is to sleep, it sleeps some milliseconds at the most, so that its
/// thread sees when it has to end.
pub(crate) trait Peer: Send {
    /// Takes packets, looks at the first byte of each, and gives them back; how many.
    fn receive(&mut self) -> Result<u64>;

    /// Sends copies of the frame that it was opened with; how many the kernel took.
    fn transmit(&mut self) -> Result<u64>;

    /// Takes packets and sends them back to where they came from; how many the kernel took.
    fn send_back(&mut self) -> Result<u64>;

    /// Sends one probe.
    fn ask(&mut self, probe: &[u8]) -> Result<()>;

    /// Turns the requests that are there into replies and sends them.
    fn answer(&mut self) -> Result<()>;

    /// Hands over the payloads of UDP packets that are there.
    fn hear(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Waits until what was sent has left, before it is counted.
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
