//! After it was opened a queue allocates nothing: the whole binary counts what it allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::common::{MODES, arrives_at, lab, leading_to, open, packet};
use ringside_netlab::testing::is_root;
use ringside_xsk::tx_metadata::{StampSampling, TxMeta, TxMetadata};
use ringside_xsk::{Frame, Path, Port, Queue, QueueOptions, Wait};

struct Counting;

thread_local! {
    // Of each thread its own: the test harness may allocate in another one.
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all work is the system allocator's; counting does not allocate (`const` and without a destructor).
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One round of 16 packets through every call of the data path: `send_with`, `send_asking_with`, `send_asking`, `tx_stamps`, `recv` with each wait, `send_back`,
/// `keep`, `send`, `alloc`, `drop`.
fn round(client: &mut Port, path: Path, server: &mut Queue, template: &[u8], kept: &mut Vec<Frame>) {
    let start = Instant::now();
    let tx = client.queues_mut().nth(leading_to(AT, path)).unwrap();
    let sent = tx.send_with(16, |slot| assert!(slot.write(template))).unwrap();
    assert_eq!(sent, 16);
    let mut answered = 0;
    while answered < 8 {
        // The first half is sent back in the burst, of the second half frames are kept, sent and dropped.
        let mut burst = server.recv(Wait::Poll(Duration::from_millis(100))).unwrap();
        let half = burst.len() / 2;
        for (at, mut packet) in (&mut burst).into_iter().enumerate() {
            packet.data_mut()[..12].rotate_left(6);
            if at >= half {
                kept.push(packet.keep());
            }
        }
        burst.send_back().unwrap();
        for (at, frame) in kept.drain(..).enumerate() {
            answered += 1;
            if at % 2 == 0 {
                server.send(frame).unwrap();
            }
        }
        server.flush().unwrap();
        assert!(start.elapsed() < Duration::from_secs(5));
    }
    // And with a request for each of as many, of which one in two gets a stamp.
    let mut number = 0;
    let asked = tx.send_asking_with(16, |slot| {
        assert!(slot.write(template));
        number += 1;
        TxMeta::new().timestamp(number)
    });
    assert_eq!(asked.unwrap(), 16);
    let mut frame = tx.alloc().unwrap();
    assert!(frame.write(template));
    tx.send_asking(frame, TxMeta::new().timestamp(17)).unwrap();
    tx.flush().unwrap();
    assert!(tx.tx_stamps().unwrap().all(|stamp| stamp.token <= 17));
    drop(tx.alloc().unwrap());
    assert!(tx.drain(Duration::from_secs(2)).unwrap());
    tx.stats().unwrap();
    let answers = client.queues_mut().nth(arrives_at(AT, path)).unwrap();
    for wait in [Wait::Poll(Duration::from_millis(5)), Wait::Spin, Wait::BusyPoll] {
        for packet in &mut answers.recv(wait).unwrap() {
            assert!(packet.len() >= 60);
        }
    }
}

/// The server's queue.
const AT: usize = 1;

#[test]
fn nothing_is_allocated_after_set_up() {
    if !is_root() {
        return;
    }
    let lab = lab("noalloc", 4);
    for path in MODES {
        let mut server = open(&lab.b, path, |port| port);
        let stamps = TxMetadata::new().timestamps(StampSampling::one_in(2));
        let mut client = open(&lab.a, path, |port| {
            port.options(QueueOptions::new().tx_metadata(stamps))
        });
        let template = packet(1, lab.a.mac, lab.b.mac);
        let mut kept = Vec::with_capacity(64);
        let server = server.queues_mut().nth(AT).unwrap();
        for _ in 0..20 {
            round(&mut client, path, server, &template, &mut kept);
        }
        // What opening the ports did to the links is read when somebody asks for it, and that may allocate.
        let answers = client.queues_mut().nth(arrives_at(AT, path)).unwrap();
        for queue in [answers, &mut *server] {
            while !queue.recv(Wait::Poll(Duration::from_millis(50))).unwrap().is_empty() {}
        }
        let before = COUNT.get();
        for _ in 0..625 {
            round(&mut client, path, server, &template, &mut kept);
        }
        let after = COUNT.get();
        assert_eq!(after - before, 0, "{path}: allocations for 10 000 packets");
        drop(vec![1_u8; 10]);
        assert!(COUNT.get() > after, "the counter counts");
    }
}
