//! Both sides of a ring, and the guards through which work on it goes.

use std::marker::PhantomData;

use super::cursor::{ConsumerCursor, ProducerCursor, needs_wakeup};
use super::memory::{Memory, Slot, Slots};
use crate::error::Violation;

/// A ring that we fill and the kernel empties.
pub(crate) struct ProducerRing<T, M> {
    pub(super) cursor: ProducerCursor,
    pub(super) memory: M,
    _slots: PhantomData<T>,
}

/// A ring that the kernel fills and we empty.
pub(crate) struct ConsumerRing<T, M> {
    pub(super) cursor: ConsumerCursor,
    pub(super) memory: M,
    _slots: PhantomData<T>,
}

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

    /// Whether the kernel asks to be woken. Call it after publishing.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        needs_wakeup(&self.memory)
    }
}

/// Reserved slots of a ring. Dropping it publishes what was pushed, all at once, and gives back the
/// rest.
pub(crate) struct Reservation<'r, T: Slot, M: Memory<T>> {
    pub(super) ring: &'r mut ProducerRing<T, M>,
    pub(super) granted: u32,
    pub(super) pushed: u32,
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

    /// Number of filled slots as of now.
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

    /// Returns the number of filled slots as of the last look, without those that were taken since.
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        self.cursor.seen()
    }
}

/// Filled slots of a ring, as an iterator. Dropping it releases those that were taken, all at once.
pub(crate) struct Filled<'r, T: Slot, M: Memory<T>> {
    pub(super) ring: &'r mut ConsumerRing<T, M>,
    pub(super) granted: u32,
    pub(super) taken: u32,
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
