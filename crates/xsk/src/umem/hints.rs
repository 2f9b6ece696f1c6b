//! What lies in front of packets: the word that is cleared before the kernel gets a frame, and hints that are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::entry::HINTS;
use super::{ANY_CUT, Buf, Entry, FrameIndex, Umem};
use crate::hints::{HintCounters, HintValue, Hints, LONGEST, Layouts, RawHints, Reader, Slot};

// The kernel leaves room for the longest hints in front of every packet.
const _: () = assert!(LONGEST <= super::XDP_HEADROOM);

/// The layouts of a UMEM's packets, and what was read in vain.
pub(super) struct UmemHints {
    layouts: Arc<Layouts>,
    absent: AtomicU64,
    unknown: AtomicU64,
    stale: AtomicU64,
}

impl UmemHints {
    pub(super) fn new(layouts: Arc<Layouts>) -> Self {
        Self {
            layouts,
            absent: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            stale: AtomicU64::new(0),
        }
    }
}

/// What packets with hints of one type have.
#[derive(Clone, Copy)]
pub(crate) struct HintId {
    /// The state of an entry with such hints about which nothing was said: [`HINTS`], or [`NO_STATE`](Self::NO_STATE) where the
    /// type has no id.
    state: u32,
    id: u32,
}

impl HintId {
    /// No entry's state.
    const NO_STATE: u32 = u32::MAX;
}

impl Umem {
    /// What the packets may have in front of them; none where nobody asked for hints.
    pub(crate) fn layouts(&self) -> Option<&Arc<Layouts>> {
        self.hints.as_ref().map(|hints| &hints.layouts)
    }

    /// The id that hints of a type have here.
    #[inline]
    pub(crate) fn hint_id(&self, slot: Slot) -> HintId {
        let id = self.hints.as_ref().and_then(|hints| hints.layouts.id(slot));
        HintId {
            state: if id.is_some() { HINTS } else { HintId::NO_STATE },
            id: id.unwrap_or(0),
        }
    }

    pub(crate) fn hint_counters(&self) -> HintCounters {
        let mut counters = HintCounters::default();
        if let Some(hints) = &self.hints {
            counters.absent = hints.absent.load(Ordering::Relaxed);
            counters.unknown = hints.unknown.load(Ordering::Relaxed);
            counters.stale = hints.stale.load(Ordering::Relaxed);
        }
        counters
    }

    /// Notes of packets that were just received whether hints can be in front of them: only where the packet starts at the
    /// place in front of which [`clear_front`](Self::clear_front) has cleared the id.
    pub(crate) fn mark_hints(&self, received: &mut [Entry]) {
        let start = self.geometry.packet_offset();
        for entry in received {
            if entry.buf.offset(&self.geometry) == start {
                entry.mark_hints();
            }
        }
    }

    /// Clears the id in front of where the next packet will start: what an earlier one left there, or the user, must not be
    /// taken for hints of a packet whose program wrote none. The caller owns the frame.
    #[inline]
    pub(super) fn clear_front(&self, frame: FrameIndex) {
        let at = self.geometry.addr_in::<ANY_CUT>(frame) + u64::from(self.geometry.packet_offset()) - 4;
        #[allow(clippy::cast_possible_truncation, reason = "an offset in memory that is mapped")]
        // SAFETY: the four bytes in front of a packet's usual start lie in its frame, behind XDP's own headroom's start; the
        // frame is the caller's, so nobody else reads or writes them. They need not be aligned.
        unsafe {
            self.memory().as_ptr().add(at as usize).cast::<u32>().write_unaligned(0);
        }
    }

    /// Counts a read in vain.
    #[cold]
    fn no_hints(&self, buf: &Buf) {
        let Some(hints) = &self.hints else { return };
        let counter = match buf.hint_word(self) {
            None => &hints.stale,
            Some(0) => &hints.absent,
            Some(id) if hints.layouts.by_id(id).is_some() => return,
            Some(_) => &hints.unknown,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl Entry {
    /// [`Buf::hints`] of a packet in one frame about which nothing was said; `None` of another one.
    #[inline]
    pub(crate) fn plain_hints<T: Hints>(&self, umem: &Umem, id: HintId) -> Option<Option<T>> {
        // SAFETY: the state is that of a marked entry, for no other one has what `HintId` can have; and the type has an id.
        (self.buf.state == id.state).then(|| unsafe { self.buf.hints_if(umem, id.id) })
    }
}

impl Buf {
    /// The hints in front of the packet, if they are of this type.
    #[inline]
    pub(crate) fn hints<T: Hints>(&self, umem: &Umem, reader: Reader<T>) -> Option<T> {
        let id = umem.hint_id(reader.slot());
        if self.state & HINTS != 0 && id.state == HINTS {
            // SAFETY: the mark was just seen, and the type has an id.
            unsafe { self.hints_if(umem, id.id) }
        } else {
            umem.no_hints(self);
            None
        }
    }

    /// As [`hints`](Self::hints), of the type that has this id ([`Umem::hint_id`]).
    ///
    /// # Safety
    /// The packet is marked: hints can be in front of it. And the type has an id, so that its size was checked.
    #[inline]
    unsafe fn hints_if<T: Hints>(&self, umem: &Umem, id: u32) -> Option<T> {
        // SAFETY: marked, says the caller, so there are `XDP_HEADROOM` bytes of its frame in front of it at least.
        let word = u32::decode(unsafe { self.front(umem, 4) });
        if word == id {
            // SAFETY: as above; a type that has an id has the size of a layout, at most `LONGEST` (`typed::check`).
            return Some(T::decode(unsafe { self.front(umem, T::SHAPE.size()) }));
        }
        umem.no_hints(self);
        None
    }

    /// The hints in front of the packet, if its id is known.
    pub(crate) fn raw_hints<'b>(&'b self, umem: &'b Umem) -> Option<RawHints<'b>> {
        let found = self.hint_word(umem).and_then(|id| {
            let layouts = umem.layouts()?;
            let layout = layouts.by_id(id)?;
            // SAFETY: it has a word in front of it, so it is marked; a layout has at most `LONGEST` bytes.
            let bytes = unsafe { self.front(umem, layout.size() as usize) };
            Some(RawHints::new(layouts, layout, bytes))
        });
        if found.is_none() {
            umem.no_hints(self);
        }
        found
    }

    /// The bytes that hints can be in; none where no hints can be.
    #[inline]
    pub(crate) fn hint_room<'b>(&'b self, umem: &'b Umem) -> &'b [u8] {
        match self.state & HINTS {
            0 => &[],
            // SAFETY: it is marked.
            _ => unsafe { self.front(umem, LONGEST as usize) },
        }
    }

    /// The id in front of the packet; none where no hints can be.
    fn hint_word(&self, umem: &Umem) -> Option<u32> {
        // SAFETY: only if it is marked, as in `hints_if`.
        (self.state & HINTS != 0).then(|| u32::decode(unsafe { self.front(umem, 4) }))
    }

    /// The bytes in front of the packet.
    ///
    /// # Safety
    /// The packet is marked, and `len` at most `LONGEST`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "an offset in memory that is mapped")]
    unsafe fn front<'b>(&'b self, umem: &'b Umem, len: usize) -> &'b [u8] {
        debug_assert!(len <= LONGEST as usize && self.offset(umem.geometry()) as usize >= len);
        // SAFETY: a marked packet starts `packet_offset()` behind its frame's start (`mark_hints`), and has not been moved since
        // (`move_front`): these bytes are of the same frame, which is ours.
        unsafe { std::slice::from_raw_parts(umem.memory().as_ptr().add(self.start() as usize - len), len) }
    }
}
