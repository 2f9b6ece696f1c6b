//! The four rings of an XDP socket, on the kernel's ABI.
//!
//! Two are filled by us ([`ProducerRing`]: fill and TX) and two are emptied by us
//! ([`ConsumerRing`]: RX and completion). Work on a ring goes through a guard that holds the count:
//! what was pushed is published, what was taken is released, and no caller passes a number.

mod cursor;
#[cfg(all(feature = "testing", not(loom)))]
mod heap;
mod memory;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod model_tests;

use std::marker::PhantomData;
use std::mem::MaybeUninit;

#[cfg(all(feature = "testing", not(loom)))]
pub(crate) use cursor::Indices;
#[cfg(all(feature = "testing", not(loom)))]
pub(crate) use heap::HeapRing;
pub(crate) use memory::{Memory, RingMap, Slots};

use crate::error::Violation;
use cursor::{ConsumerCursor, ProducerCursor, needs_wakeup};

/// `struct xdp_desc`: one packet on the RX or TX ring.
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L176>
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Desc {
    /// Offset of the packet's first byte in the UMEM.
    pub(crate) addr: u64,
    /// Length of the packet in bytes.
    pub(crate) len: u32,
    /// `XDP_PKT_CONTD`, `XDP_TX_METADATA`.
    pub(crate) options: u32,
}

impl Desc {
    /// `XDP_PKT_CONTD`: the packet goes on in the next descriptor. Linux 6.6.
    /// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L172>
    pub(crate) const CONTINUED: u32 = 1;

    /// `XDP_TX_METADATA`: there is a `struct xsk_tx_metadata` in front of the packet. Linux 6.8.
    /// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L179>
    pub(crate) const WITH_METADATA: u32 = 1 << 1;

    #[cfg(all(feature = "testing", not(loom)))]
    pub(crate) fn is_continued(self) -> bool {
        self.options & Self::CONTINUED != 0
    }
}

const _: () = assert!(size_of::<Desc>() == 16 && align_of::<Desc>() == 8);

/// A descriptor as the two words that it is read in: of the second one loops need no more than they have to take apart.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawDesc {
    pub(crate) addr: u64,
    pub(crate) rest: DescRest,
}

/// Length and options of a descriptor.
#[derive(Clone, Copy, Default)]
pub(crate) struct DescRest(u64);

#[allow(clippy::cast_possible_truncation, reason = "a word's halves")]
impl DescRest {
    #[inline]
    pub(crate) fn len(self) -> u32 {
        let shift = if cfg!(target_endian = "little") { 0 } else { 32 };
        (self.0 >> shift) as u32
    }

    #[inline]
    pub(crate) fn options(self) -> u32 {
        let shift = if cfg!(target_endian = "little") { 32 } else { 0 };
        (self.0 >> shift) as u32
    }
}

impl std::ops::BitOrAssign for DescRest {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

#[cfg(test)]
impl From<Desc> for RawDesc {
    fn from(desc: Desc) -> Self {
        let (len, options) = (u64::from(desc.len), u64::from(desc.options));
        Self {
            addr: desc.addr,
            rest: DescRest(if cfg!(target_endian = "little") {
                options << 32 | len
            } else {
                len << 32 | options
            }),
        }
    }
}

/// What the fill and completion rings carry: the offset of a chunk in the UMEM.
pub(crate) type Addr = u64;

/// A value that the kernel reads from or writes to a ring slot.
///
/// # Safety
/// Every bit pattern must be a valid value: the other side of the ring writes it.
pub(crate) unsafe trait Slot: Copy {}
// SAFETY: plain integers without padding or invalid values.
unsafe impl Slot for Desc {}
// SAFETY: an integer.
unsafe impl Slot for Addr {}

/// A ring that we fill and the kernel empties.
pub(crate) struct ProducerRing<T, M = RingMap> {
    cursor: ProducerCursor,
    memory: M,
    _slots: PhantomData<T>,
}

/// A ring that the kernel fills and we empty.
pub(crate) struct ConsumerRing<T, M = RingMap> {
    cursor: ConsumerCursor,
    memory: M,
    _slots: PhantomData<T>,
}

pub(crate) type FillRing = ProducerRing<Addr>;
pub(crate) type TxRing = ProducerRing<Desc>;
pub(crate) type RxRing = ConsumerRing<Desc>;
pub(crate) type CompletionRing = ConsumerRing<Addr>;

impl<T: Slot, M: Memory<T>> ProducerRing<T, M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            cursor: ProducerCursor::new(memory.size(), &memory),
            memory,
            _slots: PhantomData,
        }
    }

    /// Up to `max` slots to push to; fewer (also none) when the ring is that full.
    #[inline]
    pub(crate) fn reserve(&mut self, max: u32) -> Result<Reservation<'_, T, M>, Violation> {
        let granted = self.cursor.free(max, &self.memory)?.min(max);
        Ok(Reservation {
            ring: self,
            granted,
            pushed: 0,
        })
    }

    /// Published and not yet taken by the kernel.
    #[inline]
    pub(crate) fn pending(&mut self) -> Result<u32, Violation> {
        self.cursor.pending(&self.memory)
    }

    /// Whether the kernel asks to be woken; to be called after publishing.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        needs_wakeup(&self.memory)
    }
}

/// Reserved slots of a ring. Dropping it publishes what was pushed, all at once, and gives back the rest.
pub(crate) struct Reservation<'r, T: Slot, M: Memory<T>> {
    ring: &'r mut ProducerRing<T, M>,
    granted: u32,
    pushed: u32,
}

impl<T: Slot, M: Memory<T>> Reservation<'_, T, M> {
    /// Slots that can still be pushed to.
    #[inline]
    pub(crate) fn remaining(&self) -> u32 {
        self.granted - self.pushed
    }

    /// Writes the next slot. False, and nothing written, when all reserved slots are used.
    #[inline]
    #[must_use]
    pub(crate) fn push(&mut self, value: T) -> bool {
        if self.pushed == self.granted {
            return false;
        }
        let index = self.ring.cursor.index(self.pushed);
        // SAFETY: `free()` has seen, with acquire, that the consumer is done with the next `granted` slots,
        // and `pushed < granted`; nobody else writes our side's slots, `&mut` on the ring proves it.
        unsafe { self.ring.memory.slots().write(index, value) };
        self.pushed += 1;
        true
    }
}

impl<T: Slot> Reservation<'_, T, RingMap> {
    /// Writes the next slots with what `value` makes of `from`, one by one, until it makes nothing of one or all reserved
    /// slots are used; tells how many.
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

impl<T: Slot, M: Memory<T>> Drop for Reservation<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed != 0 {
            self.ring.cursor.publish(self.pushed, &self.ring.memory);
        }
    }
}

impl<T: Slot, M: Memory<T>> ConsumerRing<T, M> {
    pub(crate) fn new(memory: M) -> Self {
        Self {
            cursor: ConsumerCursor::new(memory.size(), &memory),
            memory,
            _slots: PhantomData,
        }
    }

    /// Filled slots as of now, to be told and not to be taken.
    pub(crate) fn filled(&self) -> Result<u32, Violation> {
        self.cursor.filled(&self.memory).map(|(_, filled)| filled)
    }

    /// Up to `max` filled slots to take.
    #[inline]
    pub(crate) fn peek(&mut self, max: u32) -> Result<Filled<'_, T, M>, Violation> {
        let granted = self.cursor.available(&self.memory)?.min(max);
        Ok(Filled {
            ring: self,
            granted,
            taken: 0,
        })
    }
}

/// Filled slots of a ring, as an iterator. Dropping it releases those that were taken, all at once.
pub(crate) struct Filled<'r, T: Slot, M: Memory<T>> {
    ring: &'r mut ConsumerRing<T, M>,
    granted: u32,
    taken: u32,
}

impl Filled<'_, Desc, RingMap> {
    /// Takes as many slots as `to` has room for and has `take` make something of each, up to the first that it refuses, which
    /// is handed back; tells how many before that.
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
                // Volatile, as in `Slots::read`. SAFETY: as in `next`: no more than `granted - taken` slots are read, of two
                // words each.
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

impl<T: Slot, M: Memory<T>> Iterator for Filled<'_, T, M> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.taken == self.granted {
            return None;
        }
        let index = self.ring.cursor.index(self.taken);
        self.taken += 1;
        // SAFETY: `available()` has seen, with acquire, that the producer has written the next `granted`
        // slots, and it will not write them again before we release them.
        Some(unsafe { self.ring.memory.slots().read(index) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = (self.granted - self.taken) as usize;
        (left, Some(left))
    }
}

impl<T: Slot, M: Memory<T>> ExactSizeIterator for Filled<'_, T, M> {}

impl<T: Slot, M: Memory<T>> Drop for Filled<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        if self.taken != 0 {
            self.ring.cursor.release(self.taken, &self.ring.memory);
        }
    }
}
