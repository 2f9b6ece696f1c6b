//! AF_PACKET at its best: receive from a mapped ring, transmit many frames per call and past the queueing discipline.
//!
//! What it cannot do for itself is to keep the packets away from the IP stack above it: that is for a program behind
//! the taps, [`ringside_bpf::IngressDrop`].

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use ringside_wire::ethernet::swap_macs;
use ringside_wire::flow::UdpFlow;
use ringside_wire::vlan::TAG_LEN;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::filter;
use super::probes::{answer_in_place, payload, write_tagged};
use super::sys::ring::{BlockRing, FrameRing};
use super::sys::{self, Messages};
use super::{BATCH, LONGEST_SLEEP, Peer};

/// 16 blocks of 128 KiB: measured better than smaller ones, which the kernel closes and opens more often.
const BLOCK_BYTES: u32 = 128 << 10;
const BLOCKS: u32 = 16;
/// The shortest that the kernel has. A block that fills up goes at once.
const RETIRE_MS: u32 = 1;

/// How packets come in.
enum Ring {
    /// TPACKET_V3, for many packets.
    Blocks(BlockRing),
    /// TPACKET_V2, for single ones: V3 keeps a packet until its block is full or a millisecond is over.
    Frames(FrameRing),
    /// Not at all.
    None,
}

/// Which ring to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    /// For throughput.
    Blocks,
    /// For latency: UDP to the port that it sends from, alone.
    Frames,
    /// For sending only.
    Nothing,
}

/// A packet socket on one interface.
pub(crate) struct Packet {
    ring: Ring,
    /// Whether it waits for packets asleep.
    sleeps: bool,
    socket: OwnedFd,
    messages: Messages,
    flow: UdpFlow,
    frame: Vec<u8>,
    /// VLAN priority of the probes that it sends, for which the frame has room.
    pcp: Option<u8>,
}

impl Packet {
    /// Opens it on an interface of the calling thread's namespace. `frame` is what it sends, with the headers of `flow`.
    pub(crate) fn open(ifindex: u32, receive: Receive, flow: UdpFlow, frame: Vec<u8>) -> Result<Self> {
        let socket = sys::packet_socket().context("opening a packet socket")?;
        let fd = socket.as_fd();
        // Not its own packets, and none into a queue where another's wait.
        for (option, name) in [
            (libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING"),
            (libc::PACKET_QDISC_BYPASS, "PACKET_QDISC_BYPASS"),
        ] {
            sys::set_option(fd, libc::SOL_PACKET, option, 1).with_context(|| format!("setting {name}"))?;
        }
        if receive == Receive::Frames {
            // As an XDP program does for its socket: what others send takes no place of the ring.
            sys::filter(fd, &filter::udp(flow.src.port())).context("setting SO_ATTACH_FILTER")?;
        }
        let ring = match receive {
            Receive::Blocks => BlockRing::new(fd, BLOCK_BYTES, BLOCKS, RETIRE_MS).map(Ring::Blocks),
            Receive::Frames => FrameRing::new(fd, 2048, 64).map(Ring::Frames),
            Receive::Nothing => Ok(Ring::None),
        };
        let ring = ring.context("making a PACKET_RX_RING")?;
        // The ring first: what came between the two would lie in the socket's queue, which nobody reads.
        sys::bind_packet(fd, ifindex, receive != Receive::Nothing).context("binding a packet socket")?;
        Ok(Self {
            ring,
            sleeps: false,
            socket,
            messages: Messages::new(BATCH),
            flow,
            frame,
            pcp: None,
        })
    }

    /// Has it ask with a VLAN priority.
    pub(crate) fn tagged(mut self, pcp: Option<u8>) -> Self {
        self.pcp = pcp;
        if pcp.is_some() {
            self.frame.extend([0; TAG_LEN]);
        }
        self
    }

    /// Has it sleep in `poll()` until the kernel wakes it, where it would look again and again.
    pub(crate) fn sleeping(self, sleeps: bool) -> Self {
        Self { sleeps, ..self }
    }

    /// Sleeps until there is a packet, if it is to sleep. A packet that is there already ends it at once.
    fn wait(&self) -> Result<()> {
        if !self.sleeps {
            return Ok(());
        }
        let timeout = Timespec::try_from(LONGEST_SLEEP)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context("poll() on a packet socket"),
        }
    }

    fn send_one(&mut self) -> Result<()> {
        let sent = self
            .messages
            .send(self.socket.as_fd(), std::iter::once(self.frame.as_slice()));
        sent.map(drop).context("sending through a packet socket")
    }
}

/// A packet socket that sends packets not before a time (`SO_TXTIME`, CLOCK_TAI), if they have one: who keeps to it is the queueing
/// discipline etf, which the packets therefore do not pass by, as they do from [`Packet`].
pub(crate) struct Timed {
    socket: OwnedFd,
}

impl Timed {
    /// Opens it on an interface of the calling thread's namespace, with times or without, and with a priority that queueing
    /// disciplines go by, if there is one.
    pub(crate) fn open(ifindex: u32, with_times: bool, priority: Option<u8>) -> Result<Self> {
        let socket = sys::packet_socket().context("opening a packet socket")?;
        if let Some(priority) = priority {
            sys::set_option(
                socket.as_fd(),
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                libc::c_int::from(priority),
            )
            .with_context(|| format!("setting SO_PRIORITY to {priority} (CAP_NET_ADMIN)"))?;
        }
        if with_times {
            sys::txtime::enable(socket.as_fd())
                .context("setting SO_TXTIME with CLOCK_TAI (Linux 4.19, CAP_NET_ADMIN)")?;
        }
        sys::bind_packet(socket.as_fd(), ifindex, false).context("binding a packet socket")?;
        Ok(Self { socket })
    }

    /// Sends one frame, at once or not before `at` nanoseconds of CLOCK_TAI. False when the kernel had no room for it.
    pub(crate) fn send_at(&self, frame: &[u8], at: Option<u64>) -> io::Result<bool> {
        sys::txtime::send_at(self.socket.as_fd(), frame, at)
    }

    /// Frames that were thrown away because of their time, since the last call.
    pub(crate) fn missed(&self) -> Result<u64> {
        sys::txtime::missed(self.socket.as_fd()).context("reading the error queue of a packet socket")
    }
}

/// A packet socket that takes all packets of an interface, each with the time at which the kernel took it, and its VLAN tag: the kernel
/// takes that out of the frame before it shows it.
pub(crate) struct Tap {
    ring: FrameRing,
    socket: OwnedFd,
}

pub(crate) use super::sys::ring::Told;

impl Tap {
    /// Opens it on an interface of the calling thread's namespace, for frames of so many bytes at the most.
    pub(crate) fn open(ifindex: u32, longest: u32) -> Result<Self> {
        let socket = sys::packet_socket().context("opening a packet socket")?;
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)
            .context("setting PACKET_IGNORE_OUTGOING (Linux 4.20)")?;
        // The ring's header stands in front of each.
        let room = (longest + 256).next_power_of_two().max(2048);
        let ring = FrameRing::new(fd, room, 1024).context("making a PACKET_RX_RING")?;
        sys::bind_packet(fd, ifindex, true).context("binding a packet socket")?;
        Ok(Self { ring, socket })
    }

    /// Hands the next packet to `look`, if there is one.
    pub(crate) fn next<T>(&mut self, look: impl FnOnce(&[u8], Told) -> T) -> Option<T> {
        self.ring.next_told(|frame, told| look(frame, told))
    }
}

impl std::os::fd::AsFd for Tap {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Peer for Packet {
    fn receive(&mut self) -> Result<u64> {
        let Ring::Blocks(ring) = &mut self.ring else {
            return Ok(0);
        };
        let Some(mut block) = ring.next() else {
            std::hint::spin_loop();
            return Ok(0);
        };
        let mut count = 0;
        for packet in block.packets_mut() {
            std::hint::black_box(packet.first());
            count += 1;
        }
        Ok(count)
    }

    fn transmit(&mut self) -> Result<u64> {
        let copies = std::iter::repeat_n(self.frame.as_slice(), BATCH);
        let sent = self.messages.send(self.socket.as_fd(), copies);
        Ok(sent.context("sending through a packet socket")?.taken as u64)
    }

    fn send_back(&mut self) -> Result<u64> {
        let Ring::Blocks(ring) = &mut self.ring else {
            return Ok(0);
        };
        let Some(mut block) = ring.next() else {
            std::hint::spin_loop();
            return Ok(0);
        };
        let mut taken = 0;
        let mut packets = block.packets_mut().map(|packet| {
            // Anything shorter than a header cannot have come from an interface.
            _ = swap_macs(packet);
            &*packet
        });
        loop {
            // Out of the ring, without a copy of ours.
            let sent = self.messages.send(self.socket.as_fd(), packets.by_ref());
            let sent = sent.context("sending through a packet socket")?;
            taken += sent.taken as u64;
            if sent.offered == 0 {
                return Ok(taken);
            }
        }
    }

    fn ask(&mut self, probe: &[u8]) -> Result<()> {
        write_tagged(&self.flow, &mut self.frame, probe, self.pcp)?;
        self.send_one()
    }

    fn answer(&mut self) -> Result<()> {
        self.wait()?;
        let Ring::Frames(ring) = &mut self.ring else {
            return Ok(());
        };
        let (messages, socket) = (&mut self.messages, self.socket.as_fd());
        let sent: Option<io::Result<()>> = ring.next(|frame| {
            if answer_in_place(frame) {
                messages.send(socket, std::iter::once(&*frame))?;
            }
            Ok(())
        });
        sent.unwrap_or(Ok(())).context("sending through a packet socket")
    }

    fn hear(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.wait()?;
        let Ring::Frames(ring) = &mut self.ring else {
            return Ok(());
        };
        while ring.next(|frame| payload(frame).map(&mut *take)).is_some() {}
        Ok(())
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
