//! Models of a ring with user space at one end and the kernel at the other.
//!
//! User space's end is the library's code, guards included. The kernel's end is written here after
//! `net/xdp/xsk_queue.h`. For each memory ordering of the protocol there is a model without it, in
//! which loom must find the fault.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use crate::ring::cursor::{Indices, NEED_WAKEUP, needs_wakeup};
use crate::ring::guards::{ConsumerRing, ProducerRing};
use crate::ring::memory::{Memory, Slots};
use crate::sync::{AtomicU32, Ordering, fence};

/// Shared words and slots; loom reports any slot that both sides touch at once.
struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: [UnsafeCell<u64>; 2],
}

/// Wraps within the first values.
const START: u32 = u32::MAX - 1;

type Ring = Arc<Shared>;

fn ring() -> Ring {
    Arc::new(Shared {
        producer: AtomicU32::new(START),
        consumer: AtomicU32::new(START),
        flags: AtomicU32::new(0),
        slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
    })
}

impl Indices for Ring {
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

impl Memory<u64> for Ring {
    type Slots<'m> = &'m Shared;
    fn size(&self) -> u32 {
        2
    }
    fn slots(&self) -> &Shared {
        self
    }
}

impl Slots<u64> for &Shared {
    unsafe fn write(self, index: u32, value: u64) {
        // SAFETY: loom checks that nobody else is at the slot.
        self.slots[(index & 1) as usize].with_mut(|slot| unsafe { *slot = value });
    }
    unsafe fn read(self, index: u32) -> u64 {
        // SAFETY: as above.
        self.slots[(index & 1) as usize].with(|slot| unsafe { *slot })
    }
}

/// The kernel's orders, or one of them left out.
#[derive(Clone, Copy)]
struct Kernel {
    load: Ordering,
    store: Ordering,
}

const RIGHT: Kernel = Kernel {
    load: Ordering::Acquire,
    store: Ordering::Release,
};

impl Kernel {
    /// Takes one value off a ring that we fill, if there is one (`xskq_cons_peek_desc`, `xskq_cons_release`).
    fn take(self, ring: &Ring) -> Option<u64> {
        let consumer = ring.consumer.load(Ordering::Relaxed);
        if ring.producer.load(self.load) == consumer {
            return None;
        }
        // SAFETY: loom checks that the slot is the kernel's.
        let value = unsafe { ring.slots().read(consumer) };
        ring.consumer.store(consumer.wrapping_add(1), self.store);
        Some(value)
    }

    /// Puts one value on a ring that we empty, if there is room (`xskq_prod_reserve_desc`, `xskq_prod_submit`).
    fn put(self, ring: &Ring, value: u64) -> bool {
        let producer = ring.producer.load(Ordering::Relaxed);
        if producer.wrapping_sub(ring.consumer.load(self.load)) == 2 {
            return false;
        }
        // SAFETY: loom checks that the slot is the kernel's.
        unsafe { ring.slots().write(producer, value) };
        ring.producer.store(producer.wrapping_add(1), self.store);
        true
    }
}

/// A ring that we fill: three values through two slots. `reserve` are taken at once, one is pushed, the rest given back.
fn we_produce(kernel: Kernel, reserve: u32) {
    loom::model(move || {
        let shared = ring();
        let other = shared.clone();
        let kernel = thread::spawn(move || {
            let mut seen = Vec::new();
            while seen.len() < 3 {
                match kernel.take(&other) {
                    Some(value) => seen.push(value),
                    None => thread::yield_now(),
                }
            }
            seen
        });
        let mut ours = ProducerRing::new(shared);
        let mut next = 1;
        while next <= 3 {
            let mut slots = ours.reserve(reserve).expect("the kernel keeps to the protocol");
            if slots.push(next) {
                next += 1;
            } else {
                drop(slots);
                thread::yield_now();
            }
        }
        assert_eq!(kernel.join().unwrap(), [1, 2, 3]);
    });
}

/// A ring that we empty: three values through two slots. Up to `peek` are looked at, one is taken, the rest left.
fn we_consume(kernel: Kernel, peek: u32) {
    loom::model(move || {
        let shared = ring();
        let other = shared.clone();
        let kernel = thread::spawn(move || {
            for value in 1..=3 {
                while !kernel.put(&other, value) {
                    thread::yield_now();
                }
            }
        });
        let mut ours = ConsumerRing::new(shared);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            let taken = ours.peek(peek).expect("the kernel keeps to the protocol").next();
            match taken {
                Some(value) => seen.push(value),
                None => thread::yield_now(),
            }
        }
        kernel.join().unwrap();
        assert_eq!(seen, [1, 2, 3]);
    });
}

#[test]
fn what_we_publish_arrives_in_order() {
    we_produce(RIGHT, 1);
    we_produce(RIGHT, 2);
}

#[test]
fn what_the_kernel_publishes_arrives_in_order() {
    we_consume(RIGHT, 1);
    we_consume(RIGHT, 2);
}

/// Without our release the kernel's acquire would be for nothing; that it is needed shows when it is left out.
#[test]
#[should_panic(expected = "Causality violation")]
fn finds_a_kernel_that_looks_without_acquire() {
    let load = Ordering::Relaxed;
    we_produce(Kernel { load, ..RIGHT }, 1);
}

/// Our acquire on the consumer index of a ring that we fill needs the kernel's release.
#[test]
#[should_panic(expected = "Causality violation")]
fn finds_a_kernel_that_releases_too_early() {
    let store = Ordering::Relaxed;
    we_produce(Kernel { store, ..RIGHT }, 1);
}

/// Our acquire on the producer index of a ring that we empty needs the kernel's release.
#[test]
#[should_panic(expected = "Causality violation")]
fn finds_a_kernel_that_publishes_too_early() {
    let store = Ordering::Relaxed;
    we_consume(Kernel { store, ..RIGHT }, 1);
}

/// Our release of a slot on a ring that we empty needs the kernel's acquire.
#[test]
#[should_panic(expected = "Causality violation")]
fn finds_a_kernel_that_reuses_without_acquire() {
    let load = Ordering::Relaxed;
    we_consume(Kernel { load, ..RIGHT }, 1);
}

/// A frame's bytes change owner with its address: written by us, read by the kernel, written by us again.
#[test]
fn a_frame_is_the_kernels_from_tx_to_completion() {
    loom::model(|| {
        let (tx, completion) = (ring(), ring());
        let frame = Arc::new(UnsafeCell::new(0_u64));
        let (their_tx, their_completion, their_frame) = (tx.clone(), completion.clone(), frame.clone());
        let kernel = thread::spawn(move || {
            for packet in 1..=2 {
                let addr = loop {
                    match RIGHT.take(&their_tx) {
                        Some(addr) => break addr,
                        None => thread::yield_now(),
                    }
                };
                // SAFETY: loom checks that the frame is the kernel's now.
                their_frame.with(|bytes| assert_eq!(unsafe { *bytes }, packet));
                assert!(RIGHT.put(&their_completion, addr));
            }
        });
        let (mut tx, mut completion) = (ProducerRing::new(tx), ConsumerRing::new(completion));
        for packet in 1..=2 {
            // SAFETY: loom checks that the frame is ours now.
            frame.with_mut(|bytes| unsafe { *bytes = packet });
            assert!(tx.reserve(1).unwrap().push(7));
            while completion.peek(1).unwrap().next().is_none() {
                thread::yield_now();
            }
        }
        kernel.join().unwrap();
    });
}

/// The same on the other way: lent through the fill ring, written by the kernel, read by us.
#[test]
fn a_frame_is_the_kernels_from_fill_to_rx() {
    loom::model(|| {
        let (fill, rx) = (ring(), ring());
        let frame = Arc::new(UnsafeCell::new(0_u64));
        let (their_fill, their_rx, their_frame) = (fill.clone(), rx.clone(), frame.clone());
        let kernel = thread::spawn(move || {
            for packet in 1..=2 {
                let addr = loop {
                    match RIGHT.take(&their_fill) {
                        Some(addr) => break addr,
                        None => thread::yield_now(),
                    }
                };
                // SAFETY: loom checks that the frame is the kernel's now.
                their_frame.with_mut(|bytes| unsafe { *bytes = packet });
                assert!(RIGHT.put(&their_rx, addr));
            }
        });
        let (mut fill, mut rx) = (ProducerRing::new(fill), ConsumerRing::new(rx));
        for packet in 1..=2 {
            assert!(fill.reserve(1).unwrap().push(7));
            while rx.peek(1).unwrap().next().is_none() {
                thread::yield_now();
            }
            // SAFETY: loom checks that the frame is ours now.
            frame.with(|bytes| assert_eq!(unsafe { *bytes }, packet));
        }
        kernel.join().unwrap();
    });
}

/// Two descriptors for a kernel that takes what there is, stores its flag, looks once more, and falls asleep when there is
/// nothing. Either it has taken both, or who published the last one sees the flag and wakes it.
fn publish_to_a_kernel_that_falls_asleep(needs_wakeup: fn(&Ring) -> bool) {
    loom::model(move || {
        let shared = ring();
        let other = shared.clone();
        let kernel = thread::spawn(move || {
            let mut taken = 0;
            loop {
                while RIGHT.take(&other).is_some() {
                    taken += 1;
                }
                other.flags.store(NEED_WAKEUP, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                if other.producer.load(Ordering::Acquire) == other.consumer.load(Ordering::Relaxed) {
                    return taken;
                }
                other.flags.store(0, Ordering::Relaxed);
            }
        });
        let mut ours = ProducerRing::new(shared.clone());
        let mut woken = false;
        for value in 1..=2 {
            assert!(ours.reserve(1).unwrap().push(value));
            woken = needs_wakeup(&shared);
        }
        let taken = kernel.join().unwrap();
        assert!(woken || taken == 2, "a published descriptor met a sleeping kernel");
    });
}

#[test]
fn no_wakeup_is_lost() {
    publish_to_a_kernel_that_falls_asleep(needs_wakeup);
}

/// The mutant: without the fence between publishing and looking at the flag, a wake-up is lost.
#[test]
#[should_panic(expected = "met a sleeping kernel")]
fn without_the_fence_a_wakeup_is_lost() {
    publish_to_a_kernel_that_falls_asleep(|shared| shared.flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0);
}

/// A driver that looks first and stores its flag then misses a publish whatever we do: a second look finds the flag.
#[test]
fn asking_again_mends_a_driver_that_looks_first() {
    loom::model(|| {
        let shared = ring();
        let other = shared.clone();
        let kernel = thread::spawn(move || {
            let saw = other.producer.load(Ordering::Acquire) != START;
            if !saw {
                other.flags.store(NEED_WAKEUP, Ordering::Release);
            }
            saw
        });
        let mut ours = ProducerRing::new(shared);
        assert!(ours.reserve(1).unwrap().push(1));
        let mut woken = ours.needs_wakeup();
        let saw = kernel.join().unwrap();
        // What every later pass of a queue with unfinished work does.
        woken |= ours.needs_wakeup();
        assert!(woken || saw);
    });
}
