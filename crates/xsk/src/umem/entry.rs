//! A frame in a burst, and what becomes of it.

use super::Buf;
use crate::ring::Desc;

/// What becomes of a packet when its burst ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Fate {
    /// Nothing was said: dropped, or sent by [`Burst::send_back`](crate::Burst::send_back).
    Open = 0,
    Drop = 1 << 1,
    Send = 2 << 1,
    /// The user owns the frame now, and the entry's `Buf` is but a memory of it, unless it [`asks`](Entry::asks).
    Kept = 3 << 1,
}

/// The packet goes on in the next entry: as the ring's descriptors have it ([`Desc::CONTINUED`]).
const MORE: u32 = Desc::CONTINUED;

/// What is in front of the packet may be hints: its start is where the word of the id was cleared before the kernel got the
/// frame, and nobody has moved it. Only entries of UMEMs with layouts of hints have it.
pub(super) const HINTS: u32 = 1 << 3;

/// With [`Fate::Kept`], so that the user is not shown it again: the packet asks for something ([`Umem::ask`](super::Umem::ask))
/// and is to be sent.
const ASKS: u32 = 1 << 4;

/// The bits of a [`Fate`].
const FATE: u32 = 3 << 1;

/// A frame of a burst as the queue holds it. A packet is one entry, or several when it is in several frames; the fate of
/// the first is that of all.
///
/// The state, a [`Fate`], [`MORE`], [`HINTS`] and [`ASKS`], is in the `Buf`: an entry that just arrived is, bit by bit, its descriptor.
pub(crate) struct Entry {
    pub(crate) buf: Buf,
}

impl Entry {
    #[inline]
    pub(crate) fn new(mut buf: Buf, fate: Fate) -> Self {
        buf.state = fate as u32;
        Self { buf }
    }

    /// A frame of the RX ring, with the options of its descriptor.
    #[inline]
    pub(super) fn received(mut buf: Buf, options: u32) -> Self {
        buf.state = options;
        Self { buf }
    }

    /// Keeps of the descriptor's options what an entry has of them.
    pub(crate) fn strip(&mut self) {
        self.buf.state &= MORE;
    }

    /// The packet's front may be hints.
    #[inline]
    pub(super) fn mark_hints(&mut self) {
        self.buf.state |= HINTS;
    }

    /// A packet in one frame that nobody said anything about.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.buf.state & !HINTS == 0
    }

    /// With a next entry of the same packet behind it, or not.
    #[inline]
    pub(crate) fn with_more(mut self, more: bool) -> Self {
        self.set_more(more);
        self
    }

    #[inline]
    pub(crate) fn set_more(&mut self, more: bool) {
        self.buf.state = self.buf.state & !MORE | u32::from(more);
    }

    /// The packet goes on in the next entry.
    #[inline]
    pub(crate) fn more(&self) -> bool {
        self.buf.state & MORE != 0
    }

    /// It asks for something.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.buf.state & ASKS != 0
    }

    /// Marks a packet whose request was noted: it is to be sent.
    #[inline]
    pub(crate) fn mark_asking(&mut self) {
        self.set_fate(Fate::Kept);
        self.buf.state |= ASKS;
    }

    /// The user has the frame.
    #[inline]
    pub(crate) fn is_the_users(&self) -> bool {
        self.buf.state & (FATE | ASKS) == Fate::Kept as u32
    }

    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        match self.buf.state & FATE {
            0 => Fate::Open,
            2 => Fate::Drop,
            4 => Fate::Send,
            _ => Fate::Kept,
        }
    }

    #[inline]
    fn set_fate(&mut self, fate: Fate) {
        self.buf.state = self.buf.state & !FATE | fate as u32;
    }

    /// Decides, once: a kept frame is out of the queue's hands.
    #[inline]
    pub(crate) fn decide(&mut self, fate: Fate) {
        debug_assert!(self.fate() != Fate::Kept && fate != Fate::Kept);
        if self.fate() != Fate::Kept {
            self.set_fate(fate);
        }
    }

    /// Hands the frame over.
    #[inline]
    pub(crate) fn keep(&mut self) -> Buf {
        assert!(self.fate() != Fate::Kept, "a frame is kept once");
        self.set_fate(Fate::Kept);
        // SAFETY: the entry owned the frame until now, and marked as kept it is skipped by iterators and by `settle`,
        // so the new `Buf` is the only one in use.
        unsafe { self.buf.duplicate() }
    }
}
