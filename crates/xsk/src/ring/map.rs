//! Rings in mapped memory, and the loops over a burst of their slots.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::net::xdp::XdpRingOffset;

use super::cursor::Indices;
use super::guards::{ConsumerRing, Filled, ProducerRing, Reservation};
use super::memory::{Memory, Slot, Slots};
use super::{Desc, DescRest, RawDesc};
use crate::mmap::Mapping;
use crate::sync::{AtomicU32, Ordering};

/// A ring mapped from a socket, or one that lies in memory of our own (`crate::testing`).
pub(crate) struct RingMap {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<u8>,
    /// The number of slots, less one.
    mask: u32,
    memory: Arc<dyn RingMemory>,
}

// SAFETY: the pointers lead into `memory`, which the value keeps; nothing in it is bound to a
// thread.
unsafe impl Send for RingMap {}

/// The bytes that a ring lies in.
///
/// # Safety
/// `as_ptr` must lead to `len` bytes, aligned for `u64`, that can be read and written for as long as
/// the value lives, and that are accessed only by the protocol of the rings.
pub(crate) unsafe trait RingMemory: Send + Sync {
    fn as_ptr(&self) -> NonNull<u8>;
    fn len(&self) -> usize;
}

// SAFETY: a mapping starts on a page and lives until it is dropped; those of a socket are rings and
// nothing else.
unsafe impl RingMemory for Mapping {
    fn as_ptr(&self) -> NonNull<u8> {
        Mapping::as_ptr(self)
    }

    fn len(&self) -> usize {
        Mapping::len(self)
    }
}

impl RingMap {
    /// Bytes that the mapping of a ring of `size` slots of `T` must have.
    pub(crate) fn bytes<T: Slot>(offset: &XdpRingOffset, size: u32) -> usize {
        usize::try_from(offset.desc).expect("ring offset fits an address") + size as usize * size_of::<T>()
    }

    /// A ring of `size` slots of `T` in `memory`, at the offsets of `XDP_MMAP_OFFSETS`.
    /// `None` on a kernel older than 5.4, which has no ring flags.
    pub(crate) fn new<T: Slot>(memory: impl RingMemory + 'static, offset: &XdpRingOffset, size: u32) -> Option<Self> {
        assert!(size.is_power_of_two() && memory.len() >= Self::bytes::<T>(offset, size));
        let at = |bytes: u64| -> NonNull<u8> {
            let bytes = usize::try_from(bytes).expect("ring offset fits an address");
            assert!(bytes + size_of::<u32>() <= memory.len() && bytes % align_of::<u32>() == 0);
            // SAFETY: `bytes` is inside the memory, asserted above.
            unsafe { memory.as_ptr().add(bytes) }
        };
        let slots = at(offset.desc);
        assert!((slots.as_ptr() as usize).is_multiple_of(align_of::<T>()));
        Some(Self {
            producer: at(offset.producer).cast(),
            consumer: at(offset.consumer).cast(),
            flags: at(offset.flags?).cast(),
            slots,
            mask: size - 1,
            memory: Arc::new(memory),
        })
    }

    fn producer_index(&self) -> ProducerIndex {
        ProducerIndex {
            word: self.producer,
            _memory: Arc::clone(&self.memory),
        }
    }
}

/// The producer's index of a ring, for any thread to read. The memory stays mapped as long as it.
pub(crate) struct ProducerIndex {
    word: NonNull<AtomicU32>,
    _memory: Arc<dyn RingMemory>,
}

// SAFETY: the pointer leads into `_memory`, which the value keeps, and the word is only loaded.
unsafe impl Send for ProducerIndex {}
// SAFETY: as above; both sides of the ring access the word atomically.
unsafe impl Sync for ProducerIndex {}

impl ProducerIndex {
    pub(crate) fn load(&self) -> u32 {
        // SAFETY: inside the memory and aligned (`RingMap::new`); `_memory` is still there.
        unsafe { self.word.as_ref() }.load(Ordering::Acquire)
    }
}

impl<T> ProducerRing<T, RingMap> {
    pub(crate) fn producer_index(&self) -> ProducerIndex {
        self.memory.producer_index()
    }
}

impl<T> ConsumerRing<T, RingMap> {
    pub(crate) fn producer_index(&self) -> ProducerIndex {
        self.memory.producer_index()
    }
}

impl Indices for RingMap {
    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the memory and aligned (`new`), lives as long as `self`; both sides access it
        // atomically.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn flags(&self) -> &AtomicU32 {
        // SAFETY: as for `producer`.
        unsafe { self.flags.as_ref() }
    }
}

impl<T: Slot> Memory<T> for RingMap {
    type Slots<'m> = MapSlots<'m>;

    fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn slots(&self) -> MapSlots<'_> {
        MapSlots {
            first: self.slots,
            mask: self.mask,
            _map: PhantomData,
        }
    }
}

/// The slots of a [`RingMap`].
#[derive(Clone, Copy)]
pub(crate) struct MapSlots<'m> {
    first: NonNull<u8>,
    mask: u32,
    _map: PhantomData<&'m RingMap>,
}

impl MapSlots<'_> {
    #[inline]
    fn slot<T: Slot>(self, index: u32) -> *mut T {
        let slot = (index & self.mask) as usize;
        // SAFETY: `RingMap::new` asserted that `size` slots of `T` fit the memory behind `first`.
        unsafe { self.first.cast::<T>().as_ptr().add(slot) }
    }
}

impl MapSlots<'_> {
    /// `count` slots from `index` on, at most the ring's size, as one or two runs of memory. A loop over
    /// runs is shorter than one over indices.
    #[inline]
    fn runs<T: Slot>(self, index: u32, count: u32) -> [(*mut T, usize); 2] {
        debug_assert!(count <= self.mask + 1);
        let straight = count.min(self.mask + 1 - (index & self.mask));
        [
            (self.slot(index), straight as usize),
            (self.slot(0), (count - straight) as usize),
        ]
    }
}

impl<T: Slot> Slots<T> for MapSlots<'_> {
    #[inline]
    unsafe fn write(self, index: u32, value: T) {
        // SAFETY: in bounds (`slot`); the caller owns the slot.
        unsafe { self.slot::<T>(index).write(value) }
    }

    // Volatile: the value is checked and then used, so it must be read exactly once, even if the other
    // side breaks the protocol and writes it meanwhile.
    #[inline]
    unsafe fn read(self, index: u32) -> T {
        // SAFETY: in bounds (`slot`); the caller owns the slot; every bit pattern is a valid `T`.
        unsafe { self.slot::<T>(index).read_volatile() }
    }
}

impl<T: Slot> Reservation<'_, T, RingMap> {
    /// Writes `value(from[n])` to the next slots, until `value` returns `None` or all reserved slots are
    /// used. Returns the number of slots written.
    #[inline]
    pub(crate) fn push_while<U>(&mut self, from: &[U], mut value: impl FnMut(&U) -> Option<T>) -> u32 {
        let most = u32::try_from(from.len()).map_or(self.remaining(), |most| most.min(self.remaining()));
        let index = self.ring.cursor.index(self.pushed);
        let mut left = from;
        'runs: for (slot, slots) in Memory::<T>::slots(&self.ring.memory).runs::<T>(index, most) {
            for (n, from) in left[..slots].iter().enumerate() {
                let Some(value) = value(from) else {
                    left = &left[n..];
                    break 'runs;
                };
                // SAFETY: as in `push`: no more than `remaining` slots are written.
                unsafe { slot.add(n).write(value) };
            }
            left = &left[slots..];
        }
        #[allow(clippy::cast_possible_truncation, reason = "no more than `most`")]
        let count = (from.len() - left.len()) as u32;
        self.pushed += count;
        count
    }
}

impl Filled<'_, Desc, RingMap> {
    /// Takes as many slots as `to` has room for and passes each to `take`, up to the first that it
    /// refuses. Returns the number of slots before that one, and that one.
    #[inline]
    pub(crate) fn take_into<U>(
        &mut self,
        to: &mut [MaybeUninit<U>],
        mut take: impl FnMut(RawDesc, &mut MaybeUninit<U>) -> bool,
    ) -> (usize, Option<RawDesc>) {
        let granted = self.granted - self.taken;
        let most = u32::try_from(to.len()).map_or(granted, |room| room.min(granted));
        let index = self.ring.cursor.index(self.taken);
        let mut done = 0;
        let mut refused = None;
        for (slot, slots) in Memory::<Desc>::slots(&self.ring.memory).runs::<Desc>(index, most) {
            let room = &mut to[done..][..slots];
            let (mut slot, mut to) = (slot.cast::<[u64; 2]>(), room.as_mut_ptr());
            // SAFETY: the slots of a run, and as much room, lie one behind the other.
            let end = unsafe { slot.add(slots) };
            while slot != end {
                // Volatile, as in `Slots::read`. SAFETY: as in `next`: at most `granted - taken` slots are
                // read, of two words each.
                let (addr, rest) = unsafe {
                    (
                        slot.cast::<u64>().read_volatile(),
                        slot.cast::<u64>().add(1).read_volatile(),
                    )
                };
                let desc = RawDesc {
                    addr,
                    rest: DescRest(rest),
                };
                // SAFETY: as long as slots are left, so is room.
                if !take(desc, unsafe { &mut *to }) {
                    refused = Some(desc);
                    break;
                }
                // SAFETY: as above: the next ones, or the ends behind the last.
                (slot, to) = unsafe { (slot.add(1), to.add(1)) };
            }
            // SAFETY: both lead into the same run, or to its end.
            done += slots - unsafe { usize::try_from(end.offset_from(slot)).unwrap_unchecked() };
            if refused.is_some() {
                break;
            }
        }
        #[allow(clippy::cast_possible_truncation, reason = "no more than `most`")]
        {
            // The refused one is taken too.
            self.taken += done as u32 + u32::from(refused.is_some());
        }
        (done, refused)
    }
}
