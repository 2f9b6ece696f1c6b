//! The kernel's side of a queue, as a broken or malicious peer would be: it writes to the rings what it likes.

use super::kernel::{Kernel, Ring};
use crate::queue::Queue;
use crate::ring::{Desc, Indices};
use crate::sync::{AtomicU32, Ordering};

/// Ways to break the protocol of the rings; see [`Kernel::hostile`]. Rings that the queue does not have are left out.
#[derive(Debug)]
pub struct Hostile<'k> {
    kernel: &'k mut Kernel,
    /// Nobody else looks at the rings meanwhile.
    _queue: &'k mut Queue,
}

/// The words of one ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words {
    /// Producer index.
    pub producer: u32,
    /// Consumer index.
    pub consumer: u32,
    /// Flags.
    pub flags: u32,
}

impl<'k> Hostile<'k> {
    pub(super) fn new(kernel: &'k mut Kernel, queue: &'k mut Queue) -> Self {
        let same_pair = queue.bound.pair.read(|pair| pair.pool.pair()) == kernel.pair;
        assert!(
            same_pair && queue.umem_id() == kernel.umem_id(),
            "the queue and the kernel are not on the same rings"
        );
        kernel.honest = false;
        Self { kernel, _queue: queue }
    }

    /// Indices and flags as they are; zeros for a ring that was not made.
    pub fn words(&self, ring: Ring) -> Words {
        self.with(ring, |[producer, consumer, flags]| Words {
            producer: producer.load(Ordering::Relaxed),
            consumer: consumer.load(Ordering::Relaxed),
            flags: flags.load(Ordering::Relaxed),
        })
        .unwrap_or_default()
    }

    /// Overwrites indices and flags.
    pub fn set_words(&mut self, ring: Ring, words: Words) {
        self.with(ring, |[producer, consumer, flags]| {
            producer.store(words.producer, Ordering::Release);
            consumer.store(words.consumer, Ordering::Release);
            flags.store(words.flags, Ordering::Release);
        });
    }

    /// Overwrites a descriptor, or an address where the ring carries no more: `index` counts as the ring's indices do.
    pub fn set_slot(&mut self, ring: Ring, index: u32, addr: u64, len: u32, options: u32) {
        let desc = Desc { addr, len, options };
        let raw = &self.kernel.raw;
        // SAFETY: the queue on the other side is borrowed (`new` has made sure that it is this one), and so is the kernel.
        unsafe {
            match ring {
                Ring::Fill => raw.fill.scribble(index, addr),
                Ring::Completion => raw.completion.scribble(index, addr),
                Ring::Rx => raw.rx.iter().for_each(|ring| ring.scribble(index, desc)),
                Ring::Tx => raw.tx.iter().for_each(|ring| ring.scribble(index, desc)),
            }
        }
    }

    /// Slots of a ring; 0 when it was not made.
    pub fn size(&self, ring: Ring) -> u32 {
        let raw = &self.kernel.raw;
        match ring {
            Ring::Fill => raw.fill.size(),
            Ring::Completion => raw.completion.size(),
            Ring::Rx => raw.rx.as_ref().map_or(0, |ring| ring.size()),
            Ring::Tx => raw.tx.as_ref().map_or(0, |ring| ring.size()),
        }
    }

    /// All that there is in a ring, its words first: to see whether it was touched.
    pub fn image(&self, ring: Ring) -> Vec<u64> {
        let Words {
            producer,
            consumer,
            flags,
        } = self.words(ring);
        let mut image: Vec<u64> = [producer, consumer, flags].map(u64::from).into();
        let descriptors = |desc: Desc| [desc.addr, u64::from(desc.len) << 32 | u64::from(desc.options)];
        let raw = &self.kernel.raw;
        // SAFETY: as in `set_slot`.
        unsafe {
            match ring {
                Ring::Fill => image.extend(raw.fill.slots()),
                Ring::Completion => image.extend(raw.completion.slots()),
                Ring::Rx => image.extend(raw.rx.iter().flat_map(|ring| ring.slots()).flat_map(descriptors)),
                Ring::Tx => image.extend(raw.tx.iter().flat_map(|ring| ring.slots()).flat_map(descriptors)),
            }
        }
        image
    }

    fn with<T>(&self, ring: Ring, act: impl FnOnce([&AtomicU32; 3]) -> T) -> Option<T> {
        fn three(words: &impl Indices) -> [&AtomicU32; 3] {
            [words.producer(), words.consumer(), words.flags()]
        }
        let raw = &self.kernel.raw;
        let words = match ring {
            Ring::Fill => three(raw.fill.words()),
            Ring::Completion => three(raw.completion.words()),
            Ring::Rx => three(raw.rx.as_ref()?.words()),
            Ring::Tx => three(raw.tx.as_ref()?.words()),
        };
        Some(act(words))
    }
}
