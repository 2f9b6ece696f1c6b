//! Index arithmetic of one side of a ring, and nothing else: no slots, no mapping, no system call.
//!
//! A ring has two free-running 32-bit indices. The producer's counts everything ever published, the
//! consumer's everything ever taken; both wrap, and `index & mask` is the slot.
//!
//! ```text
//!            consumer            producer
//!               |                   |
//!   ... [free] [x] [x] [x] [x] [x] [free] [free] ...
//!               '--- filled ---'    '-- producer - consumer never exceeds the ring's size
//! ```
//!
//! Memory order is the kernel's (`net/xdp/xsk_queue.h`, "The structure of the shared state of the
//! rings"): an index is stored with release and loaded with acquire, so that slots are written before
//! the other side may see them, and read before they may be written again.
//! <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xsk_queue.h#L46>

use crate::error::Violation;
use crate::sync::{AtomicU32, Ordering, fence};

/// The three words that both sides of a ring share.
pub(crate) trait Indices {
    fn producer(&self) -> &AtomicU32;
    fn consumer(&self) -> &AtomicU32;
    fn flags(&self) -> &AtomicU32;
}

/// `XDP_RING_NEED_WAKEUP`
/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/linux/if_xdp.h#L54>
pub(crate) const NEED_WAKEUP: u32 = 1;

/// True when the kernel asks to be woken for this ring.
///
/// Call it **after** publishing. The kernel stores the flag and then looks at the ring; we store the
/// ring's index and then look at the flag. With a full fence between store and load on each side at
/// least one of the two sees the other's store, so a published descriptor is never left behind by a
/// sleeping kernel (`tools/loom` checks every interleaving, and shows that it fails without
/// the fence). A driver that looks *before* it stores its flag can still miss one publish: that is
/// why every later pass of a queue with unfinished work asks again instead of trusting one answer.
#[inline]
pub(crate) fn needs_wakeup(indices: &impl Indices) -> bool {
    fence(Ordering::SeqCst);
    indices.flags().load(Ordering::Relaxed) & NEED_WAKEUP != 0
}

/// Our side of a ring that we fill: the fill ring and the TX ring.
#[derive(Debug)]
pub(crate) struct ProducerCursor {
    size: u32,
    /// Next index to publish at; equals the shared producer index between calls.
    head: u32,
    /// The consumer index as last seen. Re-read only when the ring looks too full, which keeps the
    /// other side's cache line away from us.
    seen: u32,
}

impl ProducerCursor {
    /// Starts where the shared indices stand. `size` is a power of two.
    pub(crate) fn new(size: u32, indices: &impl Indices) -> Self {
        debug_assert!(size.is_power_of_two());
        Self {
            size,
            head: indices.producer().load(Ordering::Relaxed),
            seen: indices.consumer().load(Ordering::Acquire),
        }
    }

    /// Free slots, at least `want` if there are that many.
    #[inline]
    pub(crate) fn free(&mut self, want: u32, indices: &impl Indices) -> Result<u32, Violation> {
        let free = self.size.wrapping_sub(self.head.wrapping_sub(self.seen));
        if free >= want && free <= self.size {
            return Ok(free);
        }
        let pending = self.pending(indices)?;
        Ok(self.size - pending)
    }

    /// Published and not yet taken by the consumer.
    #[inline]
    pub(crate) fn pending(&mut self, indices: &impl Indices) -> Result<u32, Violation> {
        self.seen = indices.consumer().load(Ordering::Acquire);
        let pending = self.head.wrapping_sub(self.seen);
        if pending > self.size {
            return Err(Violation::RingIndex {
                producer: self.head,
                consumer: self.seen,
                size: self.size,
            });
        }
        Ok(pending)
    }

    /// Index of the slot `n` places after the last published one.
    #[inline]
    pub(crate) fn index(&self, n: u32) -> u32 {
        self.head.wrapping_add(n)
    }

    /// Makes the next `n` slots visible to the consumer. Only the guards call it, with their own count.
    #[inline]
    pub(crate) fn publish(&mut self, n: u32, indices: &impl Indices) {
        self.head = self.head.wrapping_add(n);
        indices.producer().store(self.head, Ordering::Release);
    }
}

/// Our side of a ring that we empty: the RX ring and the completion ring.
#[derive(Debug)]
pub(crate) struct ConsumerCursor {
    size: u32,
    /// Next index to read; equals the shared consumer index between calls.
    tail: u32,
    /// The producer index as last seen.
    seen: u32,
}

impl ConsumerCursor {
    /// Starts where the shared indices stand. `size` is a power of two.
    pub(crate) fn new(size: u32, indices: &impl Indices) -> Self {
        debug_assert!(size.is_power_of_two());
        Self {
            size,
            tail: indices.consumer().load(Ordering::Relaxed),
            seen: indices.producer().load(Ordering::Acquire),
        }
    }

    /// Filled slots. The producer's index is read again only when all seen ones were taken, so a
    /// burst in progress never pulls the kernel's cache line.
    #[inline]
    pub(crate) fn available(&mut self, indices: &impl Indices) -> Result<u32, Violation> {
        let available = self.seen.wrapping_sub(self.tail);
        if available != 0 && available <= self.size {
            return Ok(available);
        }
        let (seen, available) = self.filled(indices)?;
        self.seen = seen;
        Ok(available)
    }

    /// Returns the number of filled slots as of the last look, without those that were released
    /// since.
    #[inline]
    pub(crate) fn seen(&self) -> u32 {
        self.seen.wrapping_sub(self.tail)
    }

    /// The producer's index as of now, and how many slots are filled.
    #[inline]
    pub(crate) fn filled(&self, indices: &impl Indices) -> Result<(u32, u32), Violation> {
        let seen = indices.producer().load(Ordering::Acquire);
        let filled = seen.wrapping_sub(self.tail);
        if filled > self.size {
            return Err(Violation::RingIndex {
                producer: seen,
                consumer: self.tail,
                size: self.size,
            });
        }
        Ok((seen, filled))
    }

    /// Index of the slot `n` places after the last released one.
    #[inline]
    pub(crate) fn index(&self, n: u32) -> u32 {
        self.tail.wrapping_add(n)
    }

    /// Gives the next `n` slots back to the producer. Only the guards call it, with their own count.
    #[inline]
    pub(crate) fn release(&mut self, n: u32, indices: &impl Indices) {
        self.tail = self.tail.wrapping_add(n);
        indices.consumer().store(self.tail, Ordering::Release);
    }
}
