//! Rings on the heap, for the stand-in of the kernel in `crate::testing`: the allocation ends behind the last slot, so
//! that AddressSanitizer sees an access beyond it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::net::xdp::XdpRingOffset;

use super::cursor::Indices;
use super::map::{RingMap, RingMemory};
use super::memory::{Memory, Slot, Slots};
use crate::sync::Ordering;

/// The words on cache lines of their own and the slots behind them, as the kernel has it.
/// <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xsk_queue.h#L14>
const OFFSETS: XdpRingOffset = XdpRingOffset {
    producer: 0,
    consumer: 64,
    desc: 192,
    flags: Some(128),
};

struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory; what accesses it are rings, which prove by their protocol that they may.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes, 64).expect("a ring's size");
        assert!(bytes != 0);
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, layout }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed once; whoever holds pointers into it holds the block.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// A share in a block.
#[derive(Clone)]
struct Share(Arc<Block>);

// SAFETY: the block lives as long as its shares, and is aligned to a cache line; all its users are rings.
unsafe impl RingMemory for Share {
    fn as_ptr(&self) -> NonNull<u8> {
        self.0.start
    }

    fn len(&self) -> usize {
        self.0.layout.size()
    }
}

/// A ring in memory of our own, of which both sides can be had.
pub(crate) struct HeapRing<T> {
    share: Share,
    map: RingMap,
    size: u32,
    _slots: PhantomData<T>,
}

impl<T: Slot> HeapRing<T> {
    /// An empty ring whose indices both stand at `start`.
    pub(crate) fn new(size: u32, start: u32) -> Self {
        let share = Share(Arc::new(Block::new(RingMap::bytes::<T>(&OFFSETS, size))));
        let ring = Self {
            map: map::<T>(&share, size),
            share,
            size,
            _slots: PhantomData,
        };
        ring.map.producer().store(start, Ordering::Relaxed);
        ring.map.consumer().store(start, Ordering::Relaxed);
        ring
    }

    /// The memory as one side sees it: give each side one, and not more.
    pub(crate) fn side(&self) -> RingMap {
        map::<T>(&self.share, self.size)
    }

    /// The three words, for whoever does not keep to the protocol.
    pub(crate) fn words(&self) -> &(impl Indices + use<T>) {
        &self.map
    }

    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// Writes a slot, whoever it belongs to.
    ///
    /// # Safety
    /// No side of the ring is in use meanwhile.
    pub(crate) unsafe fn scribble(&self, index: u32, value: T) {
        // SAFETY: in bounds (`RingMap::slot`); every bit pattern is a valid value; the caller's promise.
        unsafe { Memory::<T>::slots(&self.map).write(index, value) };
    }

    /// All slots, as they are.
    ///
    /// # Safety
    /// No side of the ring is in use meanwhile.
    pub(crate) unsafe fn slots(&self) -> impl Iterator<Item = T> {
        // SAFETY: as in `scribble`.
        (0..self.size).map(|index| unsafe { Memory::<T>::slots(&self.map).read(index) })
    }
}

fn map<T: Slot>(share: &Share, size: u32) -> RingMap {
    RingMap::new::<T>(share.clone(), &OFFSETS, size).expect("its offsets have flags")
}
