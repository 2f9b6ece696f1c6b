//! Queues without a socket, against the stand-in of the kernel: what needs no root, and what a real kernel never does.

use std::time::{Duration, Instant};

use crate::common::PATIENCE;
use ringside_netlab::testing::{pause, retry};
use ringside_netlab::wait_until;
use ringside_xsk::testing::{Harness, Kernel, Ring, Words, umem};
use ringside_xsk::{Direction, Error, Path, Queue, QueueOptions, Violation, Wait};

fn open(options: QueueOptions) -> (Queue, Kernel) {
    // Indices wrap within the first packets.
    Harness::new(options)
        .start_index(u32::MAX - 3)
        .open()
        .expect("valid options")
}

fn packet(number: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| number ^ at.to_le_bytes()[0]).collect()
}

/// What the kernel sends, completed at once.
fn sent(kernel: &mut Kernel) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    kernel.transmit(u32::MAX, |packet| packets.push(packet.to_vec()));
    kernel.complete(u32::MAX);
    packets
}

#[test]
fn packets_come_in_and_go_back() {
    for frame_size in [2048, 3000, 4096] {
        let options = QueueOptions::new().frames(16).frame_size(frame_size).headroom(32);
        let (mut queue, mut kernel) = open(options);
        for round in 0..40 {
            let delivered = (0..8).filter(|&number| kernel.deliver(&packet(number, 60))).count();
            assert_eq!(delivered, 8, "round {round}: half of the frames are in the fill ring");
            assert!(!kernel.deliver(&packet(9, 60)), "round {round}: and no more");
            let mut burst = queue.recv(Wait::Spin).unwrap();
            assert_eq!(burst.len(), 8);
            for (number, mut received) in (0..).zip(&mut burst) {
                assert_eq!(received.data(), packet(number, 60));
                assert_eq!(received.headroom(), 256 + 32);
                received.data_mut().reverse();
                match number {
                    0 => received.drop(),
                    1 => drop(received.keep()),
                    _ => {}
                }
            }
            assert_eq!(burst.send_back().unwrap(), 6);
            let reversed = |number| packet(number, 60).into_iter().rev().collect::<Vec<_>>();
            assert_eq!(sent(&mut kernel), (2..8).map(reversed).collect::<Vec<_>>());
            assert!(queue.drain(Duration::ZERO).unwrap());
            assert!(queue.recv(Wait::Spin).unwrap().is_empty(), "stocks the fill ring again");
        }
        assert_eq!(kernel.wakeups(), 0, "the flag is clear: no system call");
        assert_eq!(queue.counters().tx_kicks, 0);
        assert_eq!(queue.counters().tx_completed, 240);
    }
}

#[test]
fn packets_in_several_frames_arrive_whole() {
    let options = QueueOptions::new().frames(32).multi_buffer(true);
    let (mut queue, mut kernel) = Harness::new(options).mtu(9000).open().unwrap();
    let jumbo = packet(3, 9000);
    assert!(kernel.deliver_parts(&[&jumbo[..100], &jumbo[100..1000], &jumbo[1000..1001], &jumbo[1001..2000]]));
    let mut burst = queue.recv(Wait::Spin).unwrap();
    let received = burst.iter_mut().next().unwrap().keep();
    drop(burst);
    assert_eq!(received.len(), 2000);
    assert_eq!(received.parts().collect::<Vec<_>>().concat(), &jumbo[..2000]);
    queue.send(received).unwrap();
    assert_eq!(queue.send_with(1, |slot| assert!(slot.write(&jumbo))).unwrap(), 1);
    assert_eq!(sent(&mut kernel), [&jumbo[..2000], &jumbo]);
    assert!(queue.drain(Duration::ZERO).unwrap());
}

/// A packet in more frames than the TX ring has slots can never be sent, and must not be waited for.
#[test]
fn a_chain_longer_than_the_ring_is_refused() {
    let options = QueueOptions::new()
        .frames(32)
        .tx_ring(2)
        .multi_buffer(true)
        .stall_timeout(Duration::ZERO);
    let (mut queue, mut kernel) = open(options);
    let part = [1_u8; 60];
    for kept in [true, false] {
        assert!(kernel.deliver_parts(&[&part, &part, &part]));
        let mut burst = queue.recv(Wait::Spin).unwrap();
        assert_eq!(burst.len(), 1);
        let error = if kept {
            let frame = burst.iter_mut().next().unwrap().keep();
            drop(burst);
            queue.send(frame).unwrap_err().error
        } else {
            burst.send_back().unwrap_err()
        };
        assert!(error.to_string().contains("2 frame(s) at the most"), "{error}");
    }
    assert_eq!(sent(&mut kernel), [[0; 0]; 0]);
}

#[test]
fn a_sleeping_kernel_is_woken() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16));
    kernel.sleeps(Ring::Tx, true);
    assert_eq!(queue.send_with(3, |slot| assert!(slot.write(&[1; 60]))).unwrap(), 3);
    assert_eq!(kernel.wakeups(), 1, "one for the burst");
    assert_eq!(kernel.take(2), 2);
    assert!(queue.recv(Wait::Spin).unwrap().is_empty());
    assert_eq!(kernel.wakeups(), 1, "asked again for what it left behind");
    kernel.sleeps(Ring::Tx, false);
    queue.recv(Wait::Spin).unwrap();
    assert_eq!(kernel.wakeups(), 0);
    assert_eq!(kernel.take(2), 1);

    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16).need_wakeup(false));
    assert_eq!(queue.send_with(3, |slot| assert!(slot.write(&[1; 60]))).unwrap(), 3);
    assert_eq!(kernel.wakeups(), 1, "whatever the flag says");
}

/// After a pause, as of a stopped process, the queue looks at the ring twice before it reports a
/// stall.
#[test]
fn a_stall_is_two_looks_without_progress_that_are_far_apart() {
    const STALL: Duration = Duration::from_millis(500);
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16).stall_timeout(STALL));
    assert_eq!(queue.send_with(3, |slot| assert!(slot.write(&[1; 60]))).unwrap(), 3);
    assert!(queue.recv(Wait::Spin).unwrap().is_empty());
    std::thread::sleep(STALL);
    assert!(
        queue.recv(Wait::Spin).unwrap().is_empty(),
        "the first look after a pause"
    );
    assert_eq!(kernel.take(2), 2);
    kernel.complete(2);
    assert!(queue.recv(Wait::Spin).unwrap().is_empty(), "the kernel made progress");
    let stalled = wait_until(PATIENCE, || match queue.recv(Wait::Spin) {
        Ok(_) => false,
        Err(Error::NoProgress { waited, pending, .. }) => {
            assert!(waited >= STALL && pending == 1, "{pending} for {waited:?}");
            true
        }
        Err(error) => panic!("{error}"),
    });
    assert!(stalled);
}

/// A zero-copy driver takes the rest when its NIC has room, and each wake-up costs an interrupt.
#[test]
fn wakes_a_driver_that_takes_nothing_less_and_less_often() {
    let options = QueueOptions::new().frames(16).stall_timeout(Duration::MAX);
    let (mut queue, mut kernel) = Harness::new(options).path(Path::ZeroCopy).open().unwrap();
    kernel.sleeps(Ring::Tx, true);
    let start = Instant::now();
    assert_eq!(queue.send_with(3, |slot| assert!(slot.write(&[1; 60]))).unwrap(), 3);
    assert_eq!(queue.counters().tx_kicks, 1, "for the burst");
    for _ in 0..20_000 {
        assert!(queue.recv(Wait::Spin).unwrap().is_empty());
    }
    // Pauses of 10 µs, doubled up to a millisecond.
    let most = 10 + start.elapsed().as_millis();
    let kicks = queue.counters().tx_kicks;
    assert!(kicks > 1 && u128::from(kicks) <= most, "{kicks} of at most {most}");
    assert_eq!(kernel.take(2), 2);
    kernel.complete(2);
    queue.recv(Wait::Spin).unwrap();
    assert_eq!(queue.counters().tx_kicks, kicks + 1, "the driver has made progress");
}

/// A zero-copy NIC receives packets for the host into the UMEM of a queue that only transmits.
#[test]
fn a_queue_that_only_transmits_leaves_a_zero_copy_nic_frames_for_the_host() {
    for (path, for_host) in [(Path::ZeroCopy, 512), (Path::Copy, 0)] {
        for frames in [None, Some(8)] {
            let mut options = QueueOptions::new().direction(Direction::Transmit);
            if let Some(frames) = frames {
                options = options.frames(frames);
            }
            let (mut queue, kernel) = Harness::new(options).path(path).open().unwrap();
            assert_eq!(kernel.queued(Ring::Fill), for_host, "{path}");
            let own = frames.unwrap_or(QueueOptions::DEFAULT_TRANSMIT_FRAMES) as usize;
            assert_eq!(queue.free_frames(), own, "{path}: all others can be sent");
        }
    }
}

/// A zero-copy NIC without a frame drops packets for the host as well.
#[test]
fn counts_how_often_a_zero_copy_nic_had_no_frame() {
    for (path, times) in [(Path::ZeroCopy, [1, 1, 3, 3]), (Path::NativeCopy, [0; 4])] {
        let (mut queue, mut kernel) = Harness::new(QueueOptions::new().frames(16)).path(path).open().unwrap();
        let starved = |queue: &Queue| queue.counters().rx_starved;
        let mut deliver = |packets: u8| assert!((0..packets).all(|number| kernel.deliver(&packet(number, 60))));
        // Half of the frames are on the fill ring.
        deliver(8);
        assert_eq!(queue.recv(Wait::Spin).unwrap().len(), 8);
        assert_eq!(starved(&queue), times[0], "{path}: packets were taken too late");
        deliver(7);
        assert_eq!(queue.recv(Wait::Spin).unwrap().len(), 7);
        assert_eq!(starved(&queue), times[1], "{path}: one frame was left");
        let mut kept = Vec::new();
        for _ in 0..2 {
            assert!(queue.recv(Wait::Spin).unwrap().is_empty(), "stocks the fill ring");
            deliver(8);
            kept.extend(queue.recv(Wait::Spin).unwrap().iter_mut().map(|packet| packet.keep()));
        }
        assert_eq!(starved(&queue), times[2], "{path}: {} frames are kept", kept.len());
        for _ in 0..10 {
            queue.recv(Wait::Spin).unwrap();
        }
        assert_eq!(starved(&queue), times[3], "{path}: it has had none since");
    }
}

/// An application that stalls or keeps all frames makes no call that could count it.
#[test]
fn readers_count_a_zero_copy_nic_without_a_frame_while_nobody_receives() {
    for (path, times) in [(Path::ZeroCopy, [1, 1, 2]), (Path::NativeCopy, [0; 3])] {
        let options = QueueOptions::new().frames(16);
        let harness = Harness::new(options).start_index(u32::MAX - 3).path(path);
        let (mut queue, mut kernel) = harness.open().unwrap();
        let reader = queue.stats_reader();
        let starved = || reader.counters().rx_starved;
        let mut deliver = |packets: u8| {
            let mut numbers = 0..packets;
            assert!(numbers.all(|number| kernel.deliver(&packet(number, 60))));
        };
        deliver(7);
        assert_eq!(starved(), 0, "{path}: one frame is left");
        deliver(1);
        for _ in 0..2 {
            assert_eq!(starved(), times[0], "{path}: the application stalls");
        }
        assert_eq!(queue.recv(Wait::Spin).unwrap().len(), 8);
        assert_eq!(starved(), times[1], "{path}: the same time, whoever sees it");
        assert!(queue.recv(Wait::Spin).unwrap().is_empty(), "stocks the fill ring");
        deliver(8);
        assert_eq!(starved(), times[2], "{path}: a second time");
        drop(queue);
        assert_eq!(starved(), times[2], "{path}: closed");
    }
    let options = QueueOptions::new().direction(Direction::Transmit);
    let (queue, _kernel) = Harness::new(options).path(Path::ZeroCopy).open().unwrap();
    assert_eq!(queue.stats_reader().counters().rx_starved, 0, "keeps no frames");
}

/// A zero-copy driver sleeps over an empty fill ring.
#[test]
fn a_driver_that_sleeps_over_the_fill_ring_is_woken() {
    for (path, wakes) in [(Path::ZeroCopy, true), (Path::NativeCopy, false)] {
        let (mut queue, kernel) = Harness::new(QueueOptions::new()).path(path).open().unwrap();
        queue.recv(Wait::Spin).unwrap();
        assert_eq!(queue.counters().rx_kicks, 0);
        kernel.sleeps(Ring::Fill, true);
        queue.recv(Wait::Spin).unwrap();
        assert_eq!(queue.counters().rx_kicks, u64::from(wakes), "{path}");
    }
}

#[test]
fn poll_sleeps_until_the_kernel_wakes_it() {
    let wakeups = || {
        let (mut queue, mut kernel) = open(QueueOptions::new());
        assert!(queue.recv(Wait::Poll(Duration::from_millis(1))).unwrap().is_empty());
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            assert!(kernel.deliver(&[7; 60]));
            kernel.interrupt();
            kernel
        });
        let mut received = 0;
        while received == 0 {
            received = queue.recv(Wait::Poll(Duration::from_secs(10))).unwrap().len();
        }
        assert_eq!(received, 1);
        thread.join().unwrap();
        queue.counters().wakeups
    };
    // Where this thread was away for longer, the packet was there before it could sleep.
    assert_eq!(retry(PATIENCE, wakeups, |wakeups| *wakeups != 0), 1);
}

/// What is received on one queue leaves by another of the same UMEM.
#[test]
fn frames_wander_between_queues_of_one_umem() {
    let shared = umem(2048, 32, false).unwrap();
    let harness = Harness::new(QueueOptions::new().frames(16)).umem(&shared);
    let (mut from, mut from_kernel) = harness.open().unwrap();
    let (mut to, mut to_kernel) = harness.open().unwrap();
    assert!(harness.open().is_err(), "no frames are left");
    for number in 0..200 {
        assert!(from_kernel.deliver(&packet(number, 60)));
        assert_eq!(from.recv(Wait::Spin).unwrap().send_on(&mut to).unwrap(), 1);
        assert_eq!(sent(&mut to_kernel), [packet(number, 60)]);
        assert!(to.drain(Duration::ZERO).unwrap());
    }
    drop((from, to));
    assert_eq!(shared.unclaimed(), 32, "all are back");
}

/// Both sides at once, each on its own thread: every packet comes back changed, in order.
#[test]
fn a_kernel_on_another_thread() {
    const PACKETS: u32 = 20_000;
    // On a busy machine the other thread may have no CPU for seconds.
    let options = QueueOptions::new().frames(32).batch(7).stall_timeout(PATIENCE);
    let (mut queue, mut kernel) = open(options);
    let thread = std::thread::spawn(move || {
        let (mut delivered, mut seen) = (0_u32, 0_u32);
        while seen < PACKETS {
            if delivered < PACKETS && kernel.deliver(&[delivered.to_be_bytes(); 16].concat()) {
                delivered += 1;
            }
            let before = seen;
            kernel.transmit(5, |packet| {
                assert_eq!(packet, [(!seen).to_be_bytes(); 16].concat());
                seen += 1;
            });
            kernel.complete(3);
            if seen == before {
                pause();
            }
        }
        while kernel.sending() != 0 {
            kernel.complete(u32::MAX);
        }
    });
    while queue.counters().tx_packets < u64::from(PACKETS) {
        let mut burst = queue.recv(Wait::Spin).unwrap();
        if burst.is_empty() {
            pause();
        }
        for mut packet in &mut burst {
            packet.data_mut().iter_mut().for_each(|byte| *byte = !*byte);
        }
        burst.send_back().unwrap();
    }
    while !queue.drain(Duration::from_millis(10)).unwrap() {}
    thread.join().unwrap();
    assert_eq!(queue.counters().tx_completed, u64::from(PACKETS));
}

/// A poisoned queue answers every call with the same error, and touches the rings no more.
#[test]
fn a_poisoned_queue_touches_nothing() {
    let (mut queue, mut kernel) = open(QueueOptions::new().frames(16));
    let frame = queue.alloc().unwrap();
    assert!(kernel.deliver(&[1; 60]));
    let mut hostile = kernel.hostile(&mut queue);
    let words = hostile.words(Ring::Rx);
    hostile.set_words(
        Ring::Rx,
        Words {
            producer: words.consumer.wrapping_add(hostile.size(Ring::Rx) + 1),
            ..words
        },
    );
    let rings = [Ring::Fill, Ring::Completion, Ring::Rx, Ring::Tx];
    let expected = |error: &Error| {
        let Error::Poisoned {
            violation: Violation::RingIndex { size: 8, .. },
            ..
        } = error
        else {
            panic!("{error}");
        };
    };
    expected(&queue.recv(Wait::Spin).unwrap_err());
    let image = rings.map(|ring| kernel.hostile(&mut queue).image(ring));
    expected(&queue.recv(Wait::BusyPoll).unwrap_err());
    expected(&queue.send_with(1, |_| ()).unwrap_err());
    expected(&queue.flush().unwrap_err());
    expected(&queue.drain(Duration::ZERO).unwrap_err());
    assert!(queue.alloc().is_none());
    expected(&queue.send(frame).unwrap_err().error);
    assert_eq!(rings.map(|ring| kernel.hostile(&mut queue).image(ring)), image);
}
