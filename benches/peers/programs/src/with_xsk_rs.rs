//! The operations over `xsk-rs`, which attaches libxdp's default program by itself.
//!
//! Transmission cycles through all frames in order, as the kernel's sample program does; receiving
//! hands the frames back as they come.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};
use std::io::Write as _;
use xsk_rs::config::{BindFlags, Interface, SocketConfig, UmemConfig, XdpFlags};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, Socket, TxQueue, Umem};

use crate::frame;
use crate::operation::{MOMENT, Queue};
use crate::options::Options;

/// One queue bound through `xsk-rs`.
pub(crate) struct XskRs {
    // Queues before the UMEM: the crate counts references, but so the order is plain.
    tx: TxQueue,
    rx: RxQueue,
    fill: FillQueue,
    completion: CompQueue,
    umem: Umem,
    batch: usize,
    /// Frames that only transmit, and the next of them.
    mine: Vec<FrameDesc>,
    next: usize,
    /// Descriptors on the TX ring or not yet reclaimed.
    outstanding: usize,
    received: Vec<FrameDesc>,
    completed: Vec<FrameDesc>,
}

impl XskRs {
    /// Opens the queue as the options say.
    pub(crate) fn open(options: &Options) -> Result<Self> {
        let umem_config = UmemConfig::builder()
            .frame_size(options.frame_size.try_into()?)
            .fill_queue_size(options.fill_ring().try_into()?)
            .comp_queue_size(options.ring().try_into()?)
            .build()?;
        let count = NonZeroU32::new(options.frames).context("no frames")?;
        let (umem, mut frames) = Umem::new(umem_config, count, false)?;
        let socket_config = SocketConfig::builder()
            .rx_queue_size(options.ring().try_into()?)
            .tx_queue_size(options.ring().try_into()?)
            .xdp_flags(XdpFlags::XDP_FLAGS_DRV_MODE)
            .bind_flags(BindFlags::XDP_COPY | BindFlags::XDP_USE_NEED_WAKEUP)
            .build();
        let interface: Interface = options.interface.parse()?;
        // SAFETY: the UMEM is not shared, so the pair is not bound through it already.
        let (tx, rx, rings) = unsafe { Socket::new(socket_config, &umem, &interface, options.queue) }
            .with_context(|| format!("binding {} queue {}", options.interface, options.queue))?;
        let (mut fill, completion) = rings.context("no fill and completion ring")?;

        let mut mine = frames.split_off((options.frames - options.transmit_frames()) as usize);
        let packet = frame::udp(options.packet_size);
        for descriptor in &mut mine {
            // SAFETY: the descriptor is of this UMEM, and the kernel does not have it.
            unsafe { umem.data_mut(descriptor) }.cursor().write_all(&packet)?;
        }
        // SAFETY: these frames are of this UMEM and nobody else has them.
        let filled = unsafe { fill.produce(&frames) };
        anyhow::ensure!(filled == frames.len(), "the fill ring took {filled} frames");
        let batch = usize::from(options.batch);
        let scratch = mine.first().or(frames.first()).copied().context("no frames")?;
        Ok(Self {
            tx,
            rx,
            fill,
            completion,
            umem,
            batch,
            mine,
            next: 0,
            outstanding: 0,
            received: vec![scratch; batch],
            completed: vec![scratch; batch],
        })
    }

    fn consume(&mut self) -> Result<usize> {
        // SAFETY: the descriptors are of this socket's UMEM.
        let count = unsafe { self.rx.consume(&mut self.received) };
        if count == 0 && self.fill.needs_wakeup() {
            self.rx.poll(0)?;
        }
        Ok(count)
    }

    /// Kicks if there is something to send, and takes back what was sent.
    fn complete(&mut self) -> Result<usize> {
        if self.outstanding == 0 {
            return Ok(0);
        }
        if self.tx.needs_wakeup() {
            self.tx.wakeup()?;
        }
        // SAFETY: the descriptors are of this socket's UMEM.
        let count = unsafe { self.completion.consume(&mut self.completed) };
        self.outstanding -= count;
        Ok(count)
    }

    fn refill(fill: &mut FillQueue, rx: &mut RxQueue, frames: &[FrameDesc]) -> Result<()> {
        // The ring has room for every frame, so this loops only if the kernel asks for a wake-up.
        // SAFETY: the kernel gave these frames to us, and nobody else has them.
        while unsafe { fill.produce(frames) } < frames.len() {
            if fill.needs_wakeup() {
                rx.poll(0)?;
            }
        }
        Ok(())
    }
}

impl Queue for XskRs {
    fn receive_and_drop(&mut self) -> Result<usize> {
        let count = self.consume()?;
        Self::refill(&mut self.fill, &mut self.rx, &self.received[..count])?;
        Ok(count)
    }

    fn transmit(&mut self) -> Result<usize> {
        let free = self.mine.len() - self.outstanding;
        let end = self.mine.len().min(self.next + self.batch.min(free));
        // SAFETY: frames complete in order, so the next `free` ones of the cycle are ours.
        let count = unsafe { self.tx.produce(&self.mine[self.next..end]) };
        self.next = (self.next + count) % self.mine.len();
        self.outstanding += count;
        self.complete()?;
        Ok(count)
    }

    fn forward(&mut self) -> Result<usize> {
        let sent = self.complete()?;
        Self::refill(&mut self.fill, &mut self.rx, &self.completed[..sent])?;
        let count = self.consume()?;
        for descriptor in &mut self.received[..count] {
            // SAFETY: the frame was received and not given back: it is ours.
            let mut data = unsafe { self.umem.data_mut(descriptor) };
            frame::swap_addresses(data.contents_mut());
        }
        // SAFETY: as above; the kernel gets each frame once.
        while unsafe { self.tx.produce(&self.received[..count]) } < count {
            let sent = self.complete()?;
            Self::refill(&mut self.fill, &mut self.rx, &self.completed[..sent])?;
        }
        self.outstanding += count;
        Ok(count)
    }

    fn send(&mut self, packet: &[u8]) -> Result<()> {
        while self.outstanding > 0 {
            self.complete()?;
        }
        let descriptor = &mut self.mine[self.next];
        // SAFETY: nothing is outstanding, so every frame of the cycle is ours.
        unsafe { self.umem.data_mut(descriptor) }
            .contents_mut()
            .copy_from_slice(packet);
        // SAFETY: as above.
        unsafe { self.tx.produce_one(descriptor) };
        self.next = (self.next + 1) % self.mine.len();
        self.outstanding = 1;
        if self.tx.needs_wakeup() {
            self.tx.wakeup()?;
        }
        Ok(())
    }

    fn receive(&mut self, look: &mut dyn FnMut(&[u8])) -> Result<usize> {
        let count = self.consume()?;
        for descriptor in &self.received[..count] {
            // SAFETY: the frame was received and not given back: it is ours.
            look(unsafe { self.umem.data(descriptor) }.contents());
        }
        Self::refill(&mut self.fill, &mut self.rx, &self.received[..count])?;
        Ok(count)
    }

    fn sleep(&mut self) -> Result<()> {
        self.rx.poll(i32::try_from(MOMENT.as_millis())?)?;
        Ok(())
    }
}
