//! A frame in a burst, and what becomes of it.

use super::Buf;

/// What becomes of a packet when its burst ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nothing was said: dropped, or sent by [`Burst::send_back`](crate::Burst::send_back).
    Open,
    Drop,
    Send,
    /// The user owns the frame now; the entry's `Buf` is but a memory of it.
    Kept,
}

/// A frame of a burst as the queue holds it. A packet is one entry, or several when it is in several frames; the fate of
/// the first is that of all.
pub(crate) struct Entry {
    pub(crate) buf: Buf,
    fate: Fate,
    /// The packet goes on in the next entry.
    pub(crate) more: bool,
}

impl Entry {
    #[inline]
    pub(crate) fn new(buf: Buf, fate: Fate) -> Self {
        Self { buf, fate, more: false }
    }

    /// With a next entry of the same packet behind it, or not.
    #[inline]
    pub(crate) fn with_more(mut self, more: bool) -> Self {
        self.more = more;
        self
    }

    #[inline]
    pub(crate) fn fate(&self) -> Fate {
        self.fate
    }

    /// Decides, once: a kept frame is out of the queue's hands.
    #[inline]
    pub(crate) fn decide(&mut self, fate: Fate) {
        debug_assert!(self.fate != Fate::Kept && fate != Fate::Kept);
        if self.fate != Fate::Kept {
            self.fate = fate;
        }
    }

    /// Hands the frame over.
    #[inline]
    pub(crate) fn keep(&mut self) -> Buf {
        assert!(self.fate != Fate::Kept, "a frame is kept once");
        self.fate = Fate::Kept;
        // SAFETY: the entry owned the frame until now, and marked as kept it is skipped by iterators and by `settle`,
        // so the new `Buf` is the only one in use.
        unsafe { self.buf.duplicate() }
    }
}
