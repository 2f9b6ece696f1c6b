//! Bursts and kept packets on queues without a socket: what they allocate, and many threads at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc;

use ringside::{
    adopt, rsd_error, rsd_fate, rsd_finish, rsd_finish_all, rsd_free, rsd_packet, rsd_queue, rsd_receive, rsd_reserve,
    rsd_send,
};
use ringside_xsk::QueueOptions;
use ringside_xsk::testing::{Harness, Kernel};

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
}

#[global_allocator]
static COUNTING: Counting = Counting;

const BURST: u32 = 32;

const NONE: rsd_packet = rsd_packet {
    data: std::ptr::null_mut(),
    len: 0,
    total: 0,
    token: 0,
    fate: 0,
    front: 0,
    parts: 0,
};

/// The calls with a slice for pointer and number.
fn receive(queue: *mut rsd_queue, packets: &mut [rsd_packet]) -> i32 {
    // SAFETY: as long as is said.
    unsafe { rsd_receive(queue, packets.as_mut_ptr(), packets.len().try_into().unwrap(), 0) }
}
fn reserve(queue: *mut rsd_queue, packets: &mut [rsd_packet]) -> i32 {
    // SAFETY: as above.
    unsafe { rsd_reserve(queue, packets.as_mut_ptr(), packets.len().try_into().unwrap()) }
}
fn finish(queue: *mut rsd_queue, packets: &mut [rsd_packet]) -> i32 {
    // SAFETY: as above.
    unsafe { rsd_finish(queue, packets.as_mut_ptr(), packets.len().try_into().unwrap()) }
}
fn send(queue: *mut rsd_queue, packets: &mut [rsd_packet]) -> i32 {
    // SAFETY: as above.
    unsafe { rsd_send(queue, packets.as_mut_ptr(), packets.len().try_into().unwrap()) }
}
fn free(packets: &mut [rsd_packet]) -> i32 {
    // SAFETY: as above.
    unsafe { rsd_free(packets.as_mut_ptr(), packets.len().try_into().unwrap()) }
}

fn open() -> (*mut rsd_queue, Kernel) {
    let options = QueueOptions::new().batch(BURST);
    let (queue, kernel) = Harness::new(options).open().expect("valid options");
    (adopt(queue, BURST), kernel)
}

/// All of them, sorted by what is to become of them.
fn round(queue: *mut rsd_queue, kernel: &mut Kernel, packets: &mut [rsd_packet]) {
    kernel.take(u32::MAX);
    kernel.complete(u32::MAX);
    for _ in 0..BURST {
        assert!(kernel.deliver(&[7; 80]));
    }
    let before = COUNT.get();
    assert_eq!(receive(queue, packets), BURST.cast_signed());
    for (fate, packet) in (0..3).cycle().zip(&mut *packets) {
        packet.fate = fate;
    }
    // In another order, so that each has to be looked for.
    packets.reverse();
    assert_eq!(finish(queue, packets), 11);
    packets.sort_unstable_by_key(|packet| packet.fate);
    let kept = packets.partition_point(|packet| packet.fate != rsd_fate::RSD_KEEP as u32);
    assert_eq!(send(queue, &mut packets[kept..kept + 5]), 5);
    assert_eq!(free(&mut packets[kept + 5..]), 0);
    assert_eq!(reserve(queue, packets), BURST.cast_signed());
    for packet in &mut *packets {
        packet.len = 60;
    }
    assert_eq!(finish(queue, packets), BURST.cast_signed());
    assert_eq!(rsd_finish_all(queue, rsd_fate::RSD_DROP as u32), 0);
    assert_eq!(COUNT.get(), before, "something was allocated");
    assert_eq!(kernel.transmit(u32::MAX, |_| ()), 11 + 5 + BURST);
}

#[test]
fn nothing_is_allocated_on_a_packets_way() {
    let (queue, mut kernel) = open();
    let mut packets = [NONE; BURST as usize];
    for _ in 0..100 {
        round(queue, &mut kernel, &mut packets);
    }
}

/// Packets are kept by some threads, and freed by others, two of which race for each: one of them gets it.
#[test]
fn a_packet_is_freed_once_whoever_does_it() {
    const ROUNDS: u32 = 2000;
    let per_keeper = |_| {
        let (to_first, first) = mpsc::sync_channel::<Vec<u64>>(2);
        let (to_second, second) = mpsc::sync_channel::<Vec<u64>>(2);
        let keeper = std::thread::spawn(move || {
            let (queue, mut kernel) = open();
            let mut packets = [NONE; BURST as usize];
            let mut kept = 0;
            for _ in 0..ROUNDS {
                kernel.take(u32::MAX);
                // Fewer when the others have not freed as many yet.
                while kernel.deliver(&[7; 80]) {}
                let count = receive(queue, &mut packets);
                let some = &mut packets[..usize::try_from(count).expect("no error")];
                some.iter_mut()
                    .for_each(|packet| packet.fate = rsd_fate::RSD_KEEP as u32);
                assert_eq!(finish(queue, some), 0);
                let tokens: Vec<u64> = some.iter().map(|packet| packet.token).collect();
                kept += tokens.len();
                to_first.send(tokens.clone()).expect("it listens");
                to_second.send(tokens).expect("it listens");
            }
            kept
        });
        let free_all = |from: mpsc::Receiver<Vec<u64>>| {
            std::thread::spawn(move || {
                let mut freed = 0;
                for token in from.into_iter().flatten() {
                    match free(&mut [rsd_packet { token, ..NONE }]) {
                        0 => freed += 1,
                        code => assert_eq!(code, rsd_error::RSD_ESTALE as i32),
                    }
                }
                freed
            })
        };
        (keeper, free_all(first), free_all(second))
    };
    let threads: Vec<_> = (0..2).map(per_keeper).collect();
    for (keeper, first, second) in threads {
        let kept = keeper.join().expect("no panic");
        let freed: usize = first.join().expect("no panic") + second.join().expect("no panic");
        assert!(kept > 1000, "{kept}");
        assert_eq!(kept, freed);
    }
}
