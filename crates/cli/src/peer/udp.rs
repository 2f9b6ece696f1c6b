//! UDP sockets: blocking or spinning, many packets per call, or one large one that the kernel cuts.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use ringside_measure::probe::{FarStamps, make_reply_in_place};

use super::probes::now_ns_if_wanted;
use super::sys::{self, Messages};
use super::{BATCH, LONGEST_SLEEP, Peer};

/// Room for some milliseconds of packets at full rate, so that a pause of the reader loses none.
const RECEIVE_BUFFER: i32 = 4 << 20;
/// UDP_MAX_SEGMENTS, <https://elixir.bootlin.com/linux/v6.18/C/ident/UDP_MAX_SEGMENTS>; it was 64 before.
const MOST_SEGMENTS: usize = 64;
/// The longest IPv4 packet, less its headers.
const LONGEST_PAYLOAD: usize = 65_535 - 20 - 8;

/// How it waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// Asleep in the system call.
    Blocking,
    /// Asking again and again.
    Spinning,
}

/// How it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// One packet per call.
    Single,
    /// Many packets per call.
    Many,
    /// Many packets per call, as one that the kernel cuts (UDP GSO).
    Segmented,
}

/// A connected UDP socket.
pub(crate) struct Udp {
    socket: UdpSocket,
    waiting: Waiting,
    sending: Sending,
    messages: Messages,
    buffer: Vec<u8>,
    /// Bytes of `buffer` for each packet.
    stride: usize,
    /// One payload, or as many behind each other as one call takes.
    payload: Vec<u8>,
    payload_len: usize,
}

impl Udp {
    /// Gives what it sends a priority, by which queueing disciplines and VLAN devices go.
    pub(crate) fn prioritise(&self, priority: u8) -> Result<()> {
        let value = libc::c_int::from(priority);
        sys::set_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_PRIORITY, value)
            .with_context(|| format!("setting SO_PRIORITY to {priority} (above 6: CAP_NET_ADMIN)"))
    }

    /// Opens it in the calling thread's namespace, from one address to the other, for payloads of a length.
    pub(crate) fn open(
        from: SocketAddr,
        to: SocketAddr,
        waiting: Waiting,
        sending: Sending,
        payload_len: usize,
    ) -> Result<Self> {
        let socket = UdpSocket::bind(from).with_context(|| format!("binding a UDP socket to {from}"))?;
        socket
            .connect(to)
            .with_context(|| format!("connecting a UDP socket to {to}"))?;
        // Beyond the system's limit where we may; otherwise as far as it goes.
        let forced = sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER);
        if forced.is_err() {
            sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER)
                .context("setting SO_RCVBUF")?;
        }
        match waiting {
            Waiting::Blocking => socket.set_read_timeout(Some(LONGEST_SLEEP)),
            Waiting::Spinning => socket.set_nonblocking(true),
        }
        .context("setting how a UDP socket waits")?;
        let mut segments = 1;
        if sending == Sending::Segmented {
            segments = (LONGEST_PAYLOAD / payload_len.max(1)).clamp(1, MOST_SEGMENTS);
            let segment = libc::c_int::try_from(payload_len).context("the length of a segment")?;
            sys::set_option(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, segment)
                .context("setting UDP_SEGMENT")?;
        }
        let stride = payload_len.next_multiple_of(64);
        Ok(Self {
            socket,
            waiting,
            sending,
            messages: Messages::new(BATCH),
            buffer: vec![0; stride * BATCH],
            stride,
            payload: vec![0; payload_len * segments],
            payload_len,
        })
    }

    /// A batch into the buffer; 0 when nothing came in time.
    fn take(&mut self) -> Result<usize> {
        let flags = match self.waiting {
            // Sleeps for the first packet only.
            Waiting::Blocking => libc::MSG_WAITFORONE,
            Waiting::Spinning => libc::MSG_DONTWAIT,
        };
        let received = self
            .messages
            .receive(self.socket.as_fd(), &mut self.buffer, self.stride, flags);
        or_nothing(received).context("recvmmsg() on a UDP socket")
    }

    /// One packet into the buffer's first slot.
    fn take_one(&mut self) -> Result<Option<usize>> {
        let received = self.socket.recv(&mut self.buffer[..self.stride]);
        match received {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if is_nothing(&error) => Ok(None),
            Err(error) => Err(error).context("recv() on a UDP socket"),
        }
    }
}

impl Peer for Udp {
    fn receive(&mut self) -> Result<u64> {
        let count = self.take()?;
        for slot in self.buffer.chunks_exact(self.stride).take(count) {
            std::hint::black_box(slot.first());
        }
        Ok(count as u64)
    }

    fn transmit(&mut self) -> Result<u64> {
        let count = match self.sending {
            Sending::Single => or_nothing(self.socket.send(&self.payload).map(|_| 1)),
            Sending::Segmented => {
                let segments = self.payload.len() / self.payload_len.max(1);
                or_nothing(self.socket.send(&self.payload).map(|_| segments))
            }
            Sending::Many => {
                let copies = std::iter::repeat_n(self.payload.as_slice(), BATCH);
                or_nothing(self.messages.send(self.socket.as_fd(), copies).map(|sent| sent.taken))
            }
        };
        Ok(count.context("sending on a UDP socket")? as u64)
    }

    fn send_back(&mut self) -> Result<u64> {
        let count = self.take()?;
        if count == 0 {
            return Ok(0);
        }
        let lengths: [usize; BATCH] = std::array::from_fn(|index| self.messages.bytes(index));
        let packets = self.buffer.chunks_exact(self.stride).zip(lengths).take(count);
        let packets = packets.map(|(slot, length)| &slot[..length.min(slot.len())]);
        let sent = or_nothing(self.messages.send(self.socket.as_fd(), packets).map(|sent| sent.taken));
        Ok(sent.context("sending on a UDP socket")? as u64)
    }

    fn ask(&mut self, probe: &[u8]) -> Result<()> {
        self.payload[..probe.len()].copy_from_slice(probe);
        or_nothing(self.socket.send(&self.payload)).context("sending on a UDP socket")?;
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        let Some(bytes) = self.take_one()? else { return Ok(()) };
        let payload = &mut self.buffer[..bytes];
        if make_reply_in_place(payload).is_ok() {
            if let Some(now) = now_ns_if_wanted(payload) {
                let stamps = FarStamps {
                    came_ns: now,
                    left_ns: now,
                };
                stamps.give(payload);
            }
            or_nothing(self.socket.send(payload)).context("sending on a UDP socket")?;
        }
        Ok(())
    }

    fn hear(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        if let Some(bytes) = self.take_one()? {
            take(&self.buffer[..bytes]);
        }
        Ok(())
    }
}

/// What a socket answers when there is no packet, or no room for one, or when the other end's was not there yet, or no longer,
/// as an earlier packet came: that is no failure.
fn is_nothing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::ConnectionRefused
    ) || error.raw_os_error() == Some(libc::ENOBUFS)
}

fn or_nothing(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if is_nothing(&error) => Ok(0),
        other => other,
    }
}

#[cfg(test)]
#[path = "udp_tests.rs"]
mod tests;
