//! Free frames of one queue, and the book of who owns the others.
//!
//! Last in, first out: the frame that was touched last is used first, so that a lightly loaded queue works on a few
//! frames that stay in the cache, however many there are.

use std::sync::Arc;

use super::{Buf, FrameIndex, Umem};
use crate::error::Violation;

/// Who owns a frame, as far as the pool must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Owner {
    /// The pool or the user: the kernel must not give it back.
    User,
    /// The kernel, through the fill ring.
    Fill,
    /// The kernel, through the TX ring.
    Tx,
}

/// The pool of one queue. One thread owns it; nothing here allocates after [`Pool::new`].
pub(crate) struct Pool {
    umem: Arc<Umem>,
    free: Vec<FrameIndex>,
    owner: Box<[Owner]>,
    /// Frames given to the TX ring and not completed.
    in_flight: u32,
}

impl Pool {
    /// All frames free, the lowest on top.
    pub(crate) fn new(umem: Arc<Umem>) -> Self {
        let frames = umem.geometry().frames();
        Self {
            free: (0..frames).rev().map(FrameIndex).collect(),
            owner: vec![Owner::User; frames as usize].into_boxed_slice(),
            in_flight: 0,
            umem,
        }
    }

    pub(crate) fn umem(&self) -> &Arc<Umem> {
        &self.umem
    }

    /// Free frames on hand, without those on their way home.
    #[inline]
    pub(crate) fn available(&self) -> usize {
        self.free.len()
    }

    /// Frames given to the TX ring and not completed.
    #[inline]
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<FrameIndex> {
        self.free.pop().or_else(|| {
            self.collect_returned();
            self.free.pop()
        })
    }

    /// A free frame for a packet to be sent, of length 0 at first.
    #[inline]
    pub(crate) fn take_buf(&mut self) -> Option<Buf> {
        let frame = self.take()?;
        // SAFETY: the pool had the frame, so nobody else does; packets start inside of it (`Geometry::new`).
        Some(unsafe { Buf::new(&self.umem, frame, self.umem.geometry().packet_offset(), 0) })
    }

    #[inline]
    pub(crate) fn put(&mut self, frame: FrameIndex) {
        debug_assert!(*self.owner(frame) == Owner::User);
        self.free.push(frame);
    }

    /// Frames that were kept by the user and dropped since.
    pub(crate) fn collect_returned(&mut self) {
        while let Some(frame) = self.umem.take_returned() {
            self.free.push(frame);
        }
    }

    /// Notes that the fill ring has the frame now, and tells the address to put there.
    #[inline]
    pub(crate) fn lend_to_fill(&mut self, frame: FrameIndex) -> u64 {
        *self.owner(frame) = Owner::Fill;
        self.umem.geometry().addr(frame)
    }

    /// Notes that the TX ring has the frame now, and tells the address to put there.
    #[inline]
    pub(crate) fn lend_to_tx(&mut self, buf: &Buf) -> u64 {
        *self.owner(buf.frame) = Owner::Tx;
        self.in_flight += 1;
        self.umem.geometry().addr(buf.frame) + u64::from(buf.offset)
    }

    /// Checks a descriptor of the RX ring: the kernel must have had the frame, and the packet must lie in it.
    #[inline]
    pub(crate) fn take_from_rx(&mut self, addr: u64, len: u32) -> Result<Buf, Violation> {
        let (frame, offset) = self.owned_by(Owner::Fill, "RX", addr)?;
        if len > self.umem.geometry().frame_size() - offset {
            return Err(Violation::Length {
                addr,
                len,
                frame_size: self.umem.geometry().frame_size(),
            });
        }
        *self.owner(frame) = Owner::User;
        // SAFETY: the packet lies in the frame, checked above; the kernel owned the frame until now, and the book says
        // that it is ours from here on.
        Ok(unsafe { Buf::new(&self.umem, frame, offset, len) })
    }

    /// Checks an address of the completion ring and takes the frame back.
    #[inline]
    pub(crate) fn take_from_completion(&mut self, addr: u64) -> Result<(), Violation> {
        let (frame, _) = self.owned_by(Owner::Tx, "completion", addr)?;
        *self.owner(frame) = Owner::User;
        self.in_flight -= 1;
        self.free.push(frame);
        Ok(())
    }

    /// The book's entry of a frame.
    #[inline]
    fn owner(&mut self, frame: FrameIndex) -> &mut Owner {
        debug_assert!((frame.0 as usize) < self.owner.len());
        // SAFETY: a `FrameIndex` of this UMEM is below its number of frames (only `Geometry::locate`, which checks, and
        // `new` make them; frames of other UMEMs are refused by `Queue::send`), and the book has that many entries.
        unsafe { self.owner.get_unchecked_mut(frame.0 as usize) }
    }

    #[inline]
    fn owned_by(&mut self, owner: Owner, ring: &'static str, addr: u64) -> Result<(FrameIndex, u32), Violation> {
        let Some((frame, offset)) = self.umem.geometry().locate(addr) else {
            return Err(Violation::Address {
                ring,
                addr,
                umem: self.umem.geometry().bytes() as u64,
            });
        };
        if *self.owner(frame) != owner {
            return Err(Violation::NotOwned { ring, addr });
        }
        Ok((frame, offset))
    }
}
