//! The rings against a model, from indices that are about to wrap.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;

use super::cursor::{Indices, NEED_WAKEUP};
use super::guards::{ConsumerRing, ProducerRing};
use super::memory::{Memory, Slots};
use crate::error::Violation;
use crate::sync::{AtomicU32, Ordering};

/// A ring on the heap, both sides in one process.
struct Heap {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Box<[UnsafeCell<u64>]>,
}

// SAFETY: slots are accessed by the ring protocol, which is what is tested.
unsafe impl Sync for Heap {}

fn heap(size: u32, start: u32) -> Arc<Heap> {
    Arc::new(Heap {
        producer: AtomicU32::new(start),
        consumer: AtomicU32::new(start),
        flags: AtomicU32::new(0),
        slots: (0..size).map(|_| UnsafeCell::new(0xdead)).collect(),
    })
}

impl Indices for Arc<Heap> {
    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }
    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }
    fn flags(&self) -> &AtomicU32 {
        &self.flags
    }
}

impl Memory<u64> for Arc<Heap> {
    type Slots<'m> = &'m Heap;
    fn size(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("small")
    }
    fn slots(&self) -> &Heap {
        self
    }
}

impl Slots<u64> for &Heap {
    unsafe fn write(self, index: u32, value: u64) {
        // SAFETY: the caller owns the slot.
        unsafe { *self.slots[index as usize & (self.slots.len() - 1)].get() = value }
    }
    unsafe fn read(self, index: u32) -> u64 {
        // SAFETY: the caller owns the slot.
        unsafe { *self.slots[index as usize & (self.slots.len() - 1)].get() }
    }
}

/// Both sides of one ring, and its memory.
type Pair = (ProducerRing<u64, Arc<Heap>>, ConsumerRing<u64, Arc<Heap>>, Arc<Heap>);

fn pair(size: u32, start: u32) -> Pair {
    let heap = heap(size, start);
    (ProducerRing::new(heap.clone()), ConsumerRing::new(heap.clone()), heap)
}

#[derive(Clone, Debug)]
enum Step {
    /// Reserve so many, push so many of them.
    Produce { reserve: u32, push: u32 },
    /// Peek so many, take so many of them.
    Consume { peek: u32, take: u32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..40_u32, 0..40_u32).prop_map(|(reserve, push)| Step::Produce { reserve, push }),
        (0..40_u32, 0..40_u32).prop_map(|(peek, take)| Step::Consume { peek, take }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Whatever is reserved, pushed, peeked and taken: what comes out is what went in, in order, and grants are right.
    #[test]
    fn behaves_like_a_bounded_queue(
        bits in 0..6_u32,
        start in prop_oneof![Just(u32::MAX - 3), Just(0), Just(u32::MAX), any::<u32>()],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let size = 1 << bits;
        let (mut producer, mut consumer, heap) = pair(size, start);
        let mut model = VecDeque::new();
        let mut next = 0_u64;
        for step in steps {
            match step {
                Step::Produce { reserve, push } => {
                    let free = size - u32::try_from(model.len()).unwrap();
                    let mut slots = producer.reserve(reserve).unwrap();
                    prop_assert_eq!(slots.remaining(), reserve.min(free));
                    for _ in 0..push {
                        let granted = slots.remaining() != 0;
                        prop_assert_eq!(slots.push(next), granted);
                        if granted {
                            model.push_back(next);
                            next += 1;
                        }
                    }
                }
                Step::Consume { peek, take } => {
                    let mut filled = consumer.peek(peek).unwrap();
                    // Fewer than there are may be shown: the producer index is not read again while seen ones are left.
                    prop_assert!(filled.len() <= model.len().min(peek as usize));
                    prop_assert!(filled.len() != 0 || model.is_empty() || peek == 0);
                    for value in filled.by_ref().take(take as usize) {
                        prop_assert_eq!(Some(value), model.pop_front());
                    }
                }
            }
            prop_assert_eq!(producer.pending().unwrap() as usize, model.len());
            let used = heap.producer.load(Ordering::Relaxed).wrapping_sub(heap.consumer.load(Ordering::Relaxed));
            prop_assert_eq!(used as usize, model.len());
        }
    }

    /// Indices that no correct peer can have written are refused, and no slot is granted on them.
    #[test]
    fn impossible_indices_are_violations(bits in 0..6_u32, start in any::<u32>(), wrong in any::<u32>()) {
        let size = 1_u32 << bits;
        let (mut producer, mut consumer, heap) = pair(size, start);
        heap.consumer.store(wrong, Ordering::Relaxed);
        let legal = start.wrapping_sub(wrong) <= size;
        prop_assert_eq!(producer.pending().is_ok(), legal);
        heap.consumer.store(start, Ordering::Relaxed);
        heap.producer.store(wrong, Ordering::Relaxed);
        let legal = wrong.wrapping_sub(start) <= size;
        match consumer.peek(u32::MAX) {
            Ok(filled) => {
                prop_assert!(legal);
                prop_assert!(filled.len() <= size as usize);
            }
            Err(violation) => {
                prop_assert!(!legal);
                prop_assert!(matches!(violation, Violation::RingIndex { .. }), "{}", violation);
            }
        };
    }
}

/// A full reservation of a ring whose consumer index is beyond the producer's never succeeds.
#[test]
fn reserve_checks_the_consumer_index() {
    let (mut producer, _, heap) = pair(8, u32::MAX - 3);
    heap.consumer.store(5, Ordering::Relaxed);
    let seen_before = producer.reserve(8).map(|slots| slots.remaining());
    assert_eq!(
        seen_before,
        Ok(8),
        "the index as seen at the start is good for one ring"
    );
    let mut slots = producer.reserve(8).unwrap();
    while slots.push(1) {}
    drop(slots);
    assert!(matches!(
        producer.reserve(1).map(|slots| slots.remaining()),
        Ok(_) | Err(Violation::RingIndex { .. })
    ));
    heap.consumer.store(1000, Ordering::Relaxed);
    assert!(matches!(
        producer.reserve(8).map(|slots| slots.remaining()),
        Err(Violation::RingIndex { .. })
    ));
}

/// A guard that is dropped early publishes and releases exactly what was pushed and taken.
#[test]
fn guards_hold_the_count() {
    let (mut producer, mut consumer, heap) = pair(8, u32::MAX - 3);
    let published = |heap: &Heap| heap.producer.load(Ordering::Relaxed).wrapping_sub(u32::MAX - 3);
    let mut slots = producer.reserve(5).unwrap();
    assert!(slots.push(10) && slots.push(11));
    assert_eq!(published(&heap), 0, "nothing is visible before the guard ends");
    drop(slots);
    assert_eq!(published(&heap), 2);
    assert_eq!(consumer.peek(8).unwrap().next(), Some(10));
    assert_eq!(consumer.peek(8).unwrap().collect::<Vec<_>>(), [11]);
    assert_eq!(consumer.peek(8).unwrap().next(), None);
}

#[test]
fn a_panic_in_mid_reservation_keeps_what_was_pushed() {
    let (mut producer, mut consumer, _) = pair(4, 0);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut slots = producer.reserve(4).unwrap();
        assert!(slots.push(7));
        panic!("in the middle");
    }));
    assert!(result.is_err());
    assert_eq!(consumer.peek(4).unwrap().collect::<Vec<_>>(), [7]);
    assert_eq!(producer.reserve(4).unwrap().remaining(), 4);
}

#[test]
fn the_wakeup_flag_is_one_bit() {
    let (producer, _, heap) = pair(4, 0);
    assert!(!producer.needs_wakeup());
    heap.flags.store(NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
    heap.flags.store(!NEED_WAKEUP, Ordering::Relaxed);
    assert!(!producer.needs_wakeup());
}
