//! The book of who owns each frame, as far as the kernel is concerned.
//!
//! Everything that comes out of a ring is checked against it: the kernel can only give back what it was lent, through
//! the pair of rings that it was lent through. So one frame is never in two places, whatever the shared memory says.

use std::sync::atomic::{AtomicU16, Ordering};

use super::FrameIndex;

/// A fill and completion ring pair of a UMEM, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairId(u16);

impl PairId {
    /// The last one: what the book's entries have room for.
    const MAX: u16 = (1 << 14) - 1;
}

/// The numbers of pairs that are not in use. Each attempt to bind a queue takes one, so they have to come back.
#[derive(Debug, Default)]
pub(super) struct PairIds {
    unused: u16,
    returned: Vec<PairId>,
}

impl PairIds {
    pub(super) fn take(&mut self) -> Option<PairId> {
        self.returned.pop().or_else(|| {
            let pair = (self.unused <= PairId::MAX).then_some(PairId(self.unused))?;
            self.unused += 1;
            Some(pair)
        })
    }

    pub(super) fn give(&mut self, pair: PairId) {
        self.returned.push(pair);
    }
}

/// Who owns a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A pool or the user: the kernel must not give it back.
    User,
    /// The kernel, through the fill ring of this pair. The frame comes back on an RX ring.
    Fill(PairId),
    /// The kernel, through a TX ring on this pair. The frame comes back on the completion ring.
    Tx(PairId),
    /// As `Tx`, and with the frame comes a stamp.
    TxStamp(PairId),
}

impl Owner {
    #[inline]
    fn encode(self) -> u16 {
        match self {
            Self::User => 0,
            Self::Fill(pair) => pair.0 << 2 | 1,
            Self::Tx(pair) => pair.0 << 2 | 2,
            Self::TxStamp(pair) => pair.0 << 2 | 3,
        }
    }

    fn decode(word: u16) -> Self {
        let pair = PairId(word >> 2);
        match word & 3 {
            0 => Self::User,
            1 => Self::Fill(pair),
            2 => Self::Tx(pair),
            _ => Self::TxStamp(pair),
        }
    }
}

/// One entry per frame.
///
/// Several threads write it, one per pair, but no entry is ever contended: an entry of `Fill(p)`, `Tx(p)` or `TxStamp(p)` is changed
/// only by who holds pair `p`, and one of `User` only by who holds the frame. Hence relaxed loads and stores, which
/// cost what plain ones cost; a frame that changes threads does so through a queue or a ring, which order them.
pub(crate) struct Book {
    entries: Box<[AtomicU16]>,
}

impl Book {
    /// All frames in user space.
    pub(super) fn new(frames: u32) -> Self {
        Self {
            entries: (0..frames).map(|_| AtomicU16::new(Owner::User.encode())).collect(),
        }
    }

    /// The entries by value: a loop over many frames keeps it in a register.
    #[inline]
    pub(super) fn entries(&self) -> BookEntries<'_> {
        BookEntries(&self.entries)
    }

    #[inline]
    pub(super) fn is(&self, frame: FrameIndex, owner: Owner) -> bool {
        self.entries().is(frame, owner)
    }

    #[inline]
    pub(super) fn set(&self, frame: FrameIndex, owner: Owner) {
        self.entries().set(frame, owner);
    }

    /// Numbers of frames lent to the kernel through the rings of `pair`: to receive into, and to send.
    #[cfg(debug_assertions)]
    pub(super) fn lent(&self, pair: PairId) -> (usize, usize) {
        let [fill, tx, stamp] = [Owner::Fill(pair), Owner::Tx(pair), Owner::TxStamp(pair)].map(Owner::encode);
        let (mut received, mut sent) = (0, 0);
        // Compares words: to decode each one takes several times as long in a debug build.
        for entry in &self.entries {
            let owner = entry.load(Ordering::Relaxed);
            if owner == fill {
                received += 1;
            } else if owner == tx || owner == stamp {
                sent += 1;
            }
        }
        (received, sent)
    }

    /// All entries, in the order of the frames.
    pub(super) fn owners(&self) -> impl Iterator<Item = Owner> {
        self.entries
            .iter()
            .map(|entry| Owner::decode(entry.load(Ordering::Relaxed)))
    }
}

/// The entries of a [`Book`].
#[derive(Clone, Copy)]
pub(super) struct BookEntries<'b>(&'b [AtomicU16]);

impl<'b> BookEntries<'b> {
    #[inline]
    fn entry(self, frame: FrameIndex) -> &'b AtomicU16 {
        debug_assert!((frame.0 as usize) < self.0.len());
        // SAFETY: a `FrameIndex` of this UMEM is below its number of frames (only `Geometry::locate_in`, which checks, and
        // `Umem::new` make them; frames of other UMEMs are refused by `Queue::send`), and the book has that many entries.
        unsafe { self.0.get_unchecked(frame.0 as usize) }
    }

    #[inline]
    pub(super) fn is(self, frame: FrameIndex, owner: Owner) -> bool {
        self.entry(frame).load(Ordering::Relaxed) == owner.encode()
    }

    #[inline]
    pub(super) fn set(self, frame: FrameIndex, owner: Owner) {
        self.entry(frame).store(owner.encode(), Ordering::Relaxed);
    }
}
