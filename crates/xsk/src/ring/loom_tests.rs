//! Every interleaving of the ring cursor, by loom: `RUSTFLAGS="--cfg loom" cargo test -p ringside-xsk --lib
//! --no-default-features --release`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::cursor::{ConsumerCursor, Indices, NEED_WAKEUP, ProducerCursor, needs_wakeup};
use crate::sync::{AtomicU32, Ordering, fence};

/// Shared words and slots; loom reports any slot that both sides touch at once.
struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: [UnsafeCell<u32>; 2],
}

const START: u32 = u32::MAX - 1;

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        producer: AtomicU32::new(START),
        consumer: AtomicU32::new(START),
        flags: AtomicU32::new(0),
        slots: [UnsafeCell::new(0), UnsafeCell::new(0)],
    })
}

impl Indices for Arc<Shared> {
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

impl Shared {
    fn slot(&self, index: u32) -> &UnsafeCell<u32> {
        &self.slots[(index & 1) as usize]
    }
}

/// Three values through two slots, across the wrap of the indices: nothing lost, torn, doubled or reordered.
#[test]
fn loom_values_cross_in_order() {
    loom::model(|| {
        let shared = shared();
        let other = shared.clone();
        let producer = thread::spawn(move || {
            let mut cursor = ProducerCursor::new(2, &other);
            let mut next = 1;
            while next <= 3 {
                if cursor.free(1, &other).unwrap() == 0 {
                    thread::yield_now();
                    continue;
                }
                // SAFETY: loom checks the exclusivity that the cursor promises.
                other.slot(cursor.index(0)).with_mut(|slot| unsafe { *slot = next });
                cursor.publish(1, &other);
                next += 1;
            }
        });
        let mut cursor = ConsumerCursor::new(2, &shared);
        let mut seen = Vec::new();
        while seen.len() < 3 {
            if cursor.available(&shared).unwrap() == 0 {
                thread::yield_now();
                continue;
            }
            // SAFETY: as above.
            seen.push(shared.slot(cursor.index(0)).with(|slot| unsafe { *slot }));
            cursor.release(1, &shared);
        }
        producer.join().unwrap();
        assert_eq!(seen, [1, 2, 3]);
    });
}

/// A kernel that goes to sleep: stores the flag, then looks once more. True when it saw the descriptor.
fn fall_asleep(shared: &Arc<Shared>) -> bool {
    shared.flags.store(NEED_WAKEUP, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let producer = shared.producer.load(Ordering::Acquire);
    producer != shared.consumer.load(Ordering::Relaxed)
}

/// Publish against falling asleep: either the kernel sees the descriptor or we see its flag.
fn publish_against_sleep(check: fn(&Arc<Shared>) -> bool) {
    loom::model(move || {
        let shared = shared();
        let kernel = shared.clone();
        let kernel = thread::spawn(move || fall_asleep(&kernel));
        let mut cursor = ProducerCursor::new(2, &shared);
        // SAFETY: loom checks the exclusivity that the cursor promises.
        shared.slot(cursor.index(0)).with_mut(|slot| unsafe { *slot = 1 });
        cursor.publish(1, &shared);
        let wakes = check(&shared);
        let saw = kernel.join().unwrap();
        assert!(wakes || saw, "a published descriptor met a sleeping kernel");
    });
}

#[test]
fn loom_no_wakeup_is_lost() {
    publish_against_sleep(needs_wakeup);
}

/// The model is able to fail: without the fence a wake-up is lost.
#[test]
#[should_panic(expected = "met a sleeping kernel")]
fn loom_without_the_fence_a_wakeup_is_lost() {
    publish_against_sleep(|shared| shared.flags.load(Ordering::Relaxed) & NEED_WAKEUP != 0);
}

/// A driver that looks first and stores its flag then misses a publish whatever we do: a second look finds the flag.
#[test]
fn loom_asking_again_mends_a_driver_that_looks_first() {
    loom::model(|| {
        let shared = shared();
        let kernel = shared.clone();
        let kernel = thread::spawn(move || {
            let saw = kernel.producer.load(Ordering::Acquire) != START;
            if !saw {
                kernel.flags.store(NEED_WAKEUP, Ordering::Release);
            }
            saw
        });
        let mut cursor = ProducerCursor::new(2, &shared);
        cursor.publish(1, &shared);
        let mut woken = needs_wakeup(&shared);
        let saw = kernel.join().unwrap();
        // What every later pass of a queue with unfinished work does.
        woken |= needs_wakeup(&shared);
        assert!(woken || saw);
    });
}
