//! The operations over `xdp`, with [`Redirect`] as the program that the crate leaves to its user.
//!
//! The crate's free list is last-in first-out, and its transmit ring kicks only when it took
//! something: whoever finds it full has to make the kernel send by other means. `poll` does, in
//! copy mode too.

use anyhow::{Context as _, Result};
use std::ffi::CString;
use std::io;
use xdp::nic::NicIndex;
use xdp::slab::{Slab as _, StackSlab};
use xdp::socket::{PollTimeout, XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{CompletionRing, RingConfigBuilder, RxRing, Umem, WakableFillRing, WakableTxRing};

use crate::frame;
use crate::operation::{MOMENT, Queue};
use crate::options::{Operation, Options};
use crate::redirect::Redirect;

const NOW: PollTimeout = PollTimeout::new(Some(std::time::Duration::ZERO));
/// Slab size of the crate: a power of two, and the largest burst that the options allow.
const BURST: usize = 64;

/// One queue bound through `xdp`.
pub(crate) struct Xdp {
    // Detached first, then the socket, then the memory.
    _redirect: Redirect,
    socket: XdpSocket,
    fill: WakableFillRing,
    rx: RxRing,
    completion: CompletionRing,
    tx: WakableTxRing,
    umem: Umem,
    batch: usize,
    /// Bytes of a packet that `transmit` sends.
    length: i32,
    received: StackSlab<BURST>,
    sending: StackSlab<BURST>,
    outstanding: usize,
}

impl Xdp {
    /// Opens the queue as the options say.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let name = CString::new(options.interface.as_str())?;
        let nic = NicIndex::lookup_by_name(&name)?.with_context(|| format!("no interface {}", options.interface))?;
        let mut umem = Umem::map(
            UmemCfgBuilder {
                frame_size: match options.frame_size {
                    2048 => FrameSize::TwoK,
                    _ => FrameSize::FourK,
                },
                frame_count: options.frames,
                ..UmemCfgBuilder::default()
            }
            .build()
            .map_err(|error| anyhow::anyhow!("UMEM: {error:?}"))?,
        )?;
        if options.operation == Operation::Txonly {
            write_everywhere(&mut umem, &frame::udp(options.packet_size))?;
        }
        let rings = RingConfigBuilder {
            rx_count: options.ring(),
            tx_count: options.ring(),
            fill_count: options.fill_ring(),
            completion_count: options.ring(),
        }
        .build()
        .map_err(|error| anyhow::anyhow!("rings: {error:?}"))?;
        let mut builder = XdpSocketBuilder::new()?;
        let (mut rings, mut flags) = builder.build_wakable_rings(&umem, rings)?;
        flags.force_copy();
        let to_fill = options.frames - options.transmit_frames();
        if options.operation != Operation::Txonly {
            // SAFETY: the UMEM lives as long as the socket, in the same struct.
            let filled = unsafe { rings.fill_ring.enqueue(&mut umem, to_fill as usize, false) }?;
            anyhow::ensure!(filled == to_fill as usize, "the fill ring took {filled} frames");
        }
        let socket = builder
            .bind(nic, options.queue, flags)
            .with_context(|| format!("binding {} queue {}", options.interface, options.queue))?;
        let redirect = Redirect::attach(nic.0)?;
        redirect.steer(options.queue, socket.raw_fd())?;
        Ok(Self {
            _redirect: redirect,
            socket,
            fill: rings.fill_ring,
            rx: rings.rx_ring.context("no RX ring")?,
            completion: rings.completion_ring,
            tx: rings.tx_ring.context("no TX ring")?,
            umem,
            batch: usize::from(options.batch),
            length: i32::from(options.packet_size),
            received: StackSlab::new(),
            sending: StackSlab::new(),
            outstanding: 0,
        })
    }

    /// Queues what is in `sending` and kicks; returns how many were queued.
    fn flush(&mut self) -> Result<usize> {
        let before = self.sending.len();
        // SAFETY: the UMEM lives as long as the socket, in the same struct.
        match unsafe { self.tx.send(&mut self.sending, true) } {
            Ok(0) => {
                self.socket.poll_write(NOW)?;
            }
            Ok(_) => {}
            // The kernel's way of saying "not all yet"; the packets are on the ring.
            Err(error) if is_expected(&error) => {}
            Err(error) => return Err(error).context("sending"),
        }
        let queued = before - self.sending.len();
        self.outstanding += queued;
        Ok(queued)
    }

    /// Takes back what was sent.
    fn reclaim(&mut self) -> usize {
        if self.outstanding == 0 {
            return 0;
        }
        let count = self.completion.dequeue(&mut self.umem, self.batch);
        self.outstanding -= count;
        count
    }

    fn refill(&mut self) -> Result<()> {
        // SAFETY: the UMEM lives as long as the socket, in the same struct.
        unsafe { self.fill.enqueue(&mut self.umem, self.batch, false) }?;
        Ok(())
    }
}

impl Queue for Xdp {
    fn receive_and_drop(&mut self) -> Result<usize> {
        // SAFETY: the packets go back to the UMEM below.
        let count = unsafe { self.rx.recv(&self.umem, &mut self.received) };
        while let Some(packet) = self.received.pop_back() {
            self.umem.free_packet(packet);
        }
        if count > 0 {
            self.refill()?;
        }
        Ok(count)
    }

    fn transmit(&mut self) -> Result<usize> {
        while self.sending.len() < self.batch {
            // SAFETY: the packet goes to the TX ring, and so back to the UMEM.
            let Some(mut packet) = (unsafe { self.umem.alloc() }) else {
                break;
            };
            // Every frame was filled when the queue was opened: the bytes are still there.
            packet.adjust_tail(self.length)?;
            self.sending.push_front(packet);
        }
        let queued = self.flush()?;
        self.reclaim();
        Ok(queued)
    }

    fn forward(&mut self) -> Result<usize> {
        if self.reclaim() > 0 {
            self.refill()?;
        }
        // SAFETY: every packet goes to the TX ring below, and so back to the UMEM.
        let count = unsafe { self.rx.recv(&self.umem, &mut self.received) };
        while let Some(mut packet) = self.received.pop_back() {
            frame::swap_addresses(&mut packet);
            self.sending.push_front(packet);
        }
        while !self.sending.is_empty() {
            self.flush()?;
            if self.reclaim() > 0 {
                self.refill()?;
            }
        }
        // One kick sends 32 packets: the rest of a burst needs another, now or when idle.
        if self.outstanding >= BURST || (count == 0 && self.outstanding > 0) {
            self.socket.poll_write(NOW)?;
        }
        Ok(count)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        while self.outstanding > 0 {
            if self.reclaim() == 0 {
                self.socket.poll_write(NOW)?;
            }
        }
        // SAFETY: the packet goes to the TX ring, and so back to the UMEM.
        let mut packet = unsafe { self.umem.alloc() }.context("no free frame")?;
        packet.append(bytes)?;
        self.sending.push_front(packet);
        while !self.sending.is_empty() {
            self.flush()?;
        }
        Ok(())
    }

    fn receive(&mut self, look: &mut dyn FnMut(&[u8])) -> Result<usize> {
        // SAFETY: the packets go back to the UMEM below.
        let count = unsafe { self.rx.recv(&self.umem, &mut self.received) };
        while let Some(packet) = self.received.pop_back() {
            look(&packet);
            self.umem.free_packet(packet);
        }
        if count > 0 {
            self.refill()?;
        }
        Ok(count)
    }

    fn sleep(&mut self) -> Result<()> {
        self.socket.poll_read(PollTimeout::new(Some(MOMENT)))?;
        Ok(())
    }
}

/// Puts the packet into every frame, so that sending needs no copy.
fn write_everywhere(umem: &mut Umem, bytes: &[u8]) -> Result<()> {
    let mut packets = Vec::with_capacity(umem.capacity());
    // SAFETY: the packets are given back before this function returns.
    while let Some(mut packet) = unsafe { umem.alloc() } {
        packet.append(bytes)?;
        packets.push(packet);
    }
    // Last taken first back, so that the free list keeps its order.
    for packet in packets.into_iter().rev() {
        umem.free_packet(packet);
    }
    Ok(())
}

/// Answers of the kernel that are no failures in copy mode: progress with more to do, a busy
/// device, no buffer at the moment.
fn is_expected(error: &io::Error) -> bool {
    const EAGAIN: i32 = 11;
    const EBUSY: i32 = 16;
    const ENOBUFS: i32 = 105;
    matches!(error.raw_os_error(), Some(EAGAIN | EBUSY | ENOBUFS))
}
