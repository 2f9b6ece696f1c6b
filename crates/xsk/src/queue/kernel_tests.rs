//! What only a broken peer, or a broken user of the socket, would do: descriptors put on the rings behind the back of
//! the pool's book, on the real kernel.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringside_netlab::testing::retry;
use ringside_netlab::wait_until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::Queue;
use crate::common::PATIENCE;
use crate::common::conformance::{row_on, usual};
use crate::common::packet_of;
use crate::common::traffic::{only, packets, send};
use crate::error::{Error, Violation};
use crate::mode::Path;
use crate::options::{Direction, QueueOptions};
use crate::port::Port;
use crate::ring::Desc;
use crate::umem::Frame;
use crate::wakeup::{Answer, Wait, wake_rx, wake_tx};

const OUTSIDE: u64 = 0x100_0000_0000;

/// K2: after an invalid descriptor the kernel stops and answers success; the ring, not the answer, says what is left.
#[test]
fn a_kick_goes_on_behind_an_invalid_descriptor() {
    row_on("K2", usual("k2"), |lab, case| {
        let mut receiver = case.port(&lab.b, QueueOptions::new(), |port| port);
        let mut queue = case.sender(&lab.a, QueueOptions::new());
        let (first, mut too_long, last) = (frame(&mut queue, 1), frame(&mut queue, 2), frame(&mut queue, 3));
        too_long.len = 4096;
        put(&mut queue, &[first, too_long, last]);
        // A frame of ours that comes back, whatever the kernel thinks of it. With zero-copy the driver takes the last one in its own time.
        match case.path {
            Path::ZeroCopy => queue.flush().expect("all are taken"),
            _ => queue.kick().expect("all are taken"),
        }
        assert_eq!(queue.bound.pending(), Ok(0), "nothing is left behind");
        assert!(!queue.unsent);
        assert_eq!(receive(&mut receiver, 2), [1, 3]);
        assert_eq!(queue.stats().expect("readable").kernel.tx_invalid_descs, 1);
        // Newer kernels give the frame of the invalid one back, older ones lose it.
        assert!(queue.drain(Duration::from_millis(300)).expect("sound") || queue.in_flight() == 1);
    });
}

/// K1: an invalid descriptor comes back with its garbage address on newer kernels, and not at all on older ones.
#[test]
fn a_garbage_completion_poisons_the_queue() {
    row_on("K1", usual("k1"), |lab, case| {
        let mut receiver = case.port(&lab.b, QueueOptions::new(), |port| port);
        let mut queue = case.sender(&lab.a, QueueOptions::new());
        let held = queue.alloc().expect("a free frame");
        let (first, last) = (frame(&mut queue, 1), frame(&mut queue, 2));
        let garbage = Desc {
            addr: OUTSIDE,
            len: 60,
            options: 0,
        };
        put(&mut queue, &[first, garbage, last]);
        match queue.drain(Duration::from_secs(1)) {
            Ok(drained) => {
                assert!(drained, "both valid frames came back");
                assert_eq!(receive(&mut receiver, 2), [1, 2]);
            }
            Err(error) => {
                let Error::Poisoned {
                    queue: id, violation, ..
                } = &error
                else {
                    panic!("{error}");
                };
                assert_eq!(*id, case.from());
                let umem = queue.bound.umem.geometry().bytes() as u64;
                let ring = "completion";
                assert_eq!(
                    *violation,
                    Violation::Address {
                        ring,
                        addr: OUTSIDE,
                        umem
                    }
                );
                assert!(error.to_string().contains("0x10000000000"), "{error}");
                // With zero-copy the driver may have gone on by then.
                let came = receive(&mut receiver, 1);
                let may_go_on = case.path == Path::ZeroCopy && came == [1, 2];
                assert!(
                    may_go_on || came == [1],
                    "what left before the discovery arrives: {came:?}"
                );
                refuses_everything(&mut queue, held);
            }
        }
        drop(queue);
        // The next one starts afresh. A zero-copy driver may have gone on until the last one was closed.
        let mut queue = case.sender(&lab.a, QueueOptions::new());
        let sent = queue.send_with(1, |packet| assert!(packet.write(&bytes(9))));
        assert_eq!(sent.expect("sends"), 1);
        let mut came = receive(&mut receiver, 1);
        if case.path == Path::ZeroCopy && came == [2] {
            came = receive(&mut receiver, 1);
        }
        let went_on = case.path == Path::ZeroCopy && came == [2, 9];
        assert!(went_on || came == [9], "{came:?}");
    });
}

/// K4: a completion ring that nobody empties stops the kernel for good, while `sendto()` says EAGAIN and `poll()` that
/// there is room, for ever. A queue that cannot empty it tells an error instead of trying for ever; one that can,
/// which is all others, empties it before each kick: `a_small_completion_ring_stops_nothing`.
#[test]
fn a_livelock_is_an_error_within_the_stall_time() {
    row_on("K4", usual("k4"), |lab, case| {
        let options = QueueOptions::new()
            .completion_ring(8)
            .stall_timeout(Duration::from_millis(200));
        let mut queue = case.sender(&lab.a, options);
        // Not in the book, so the book does not look for them on the completion ring.
        let descriptors: Vec<Desc> = (0..64)
            .map(|_| Desc {
                addr: frame(&mut queue, 0).addr,
                len: 60,
                options: 0,
            })
            .collect();
        for desc in &descriptors {
            queue
                .bound
                .pair
                .lock()
                .pool
                .take_from_completion([desc.addr])
                .expect("in the book");
        }
        assert_eq!(queue.in_flight(), 0);
        put(&mut queue, &descriptors);
        let start = Instant::now();
        let error = queue.flush().expect_err("stuck");
        let took = start.elapsed();
        let Error::NoProgress {
            queue: id,
            waited,
            pending,
            ..
        } = &error
        else {
            panic!("{error}");
        };
        assert_eq!(*id, case.from());
        assert!(
            *waited >= Duration::from_millis(200) && took < Duration::from_secs(10),
            "{took:?}"
        );
        assert_eq!(*pending, 56, "the ring has 8 places");
        assert!(error.to_string().contains("no progress for"), "{error}");
        // A loop that waits for `poll()` to send would never end: it says at once that there is room on the TX ring, each
        // time, while nothing leaves.
        for _ in 0..100 {
            let mut fds = [PollFd::new(&queue.bound.fd, PollFlags::OUT)];
            assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(1));
            assert_eq!(fds[0].revents(), PollFlags::OUT);
            // A driver is woken, and nobody has looked at the ring by then.
            let answer = match case.path {
                Path::ZeroCopy => Answer::Done,
                _ => Answer::Partly(Errno::AGAIN),
            };
            assert_eq!(wake_tx(queue.bound.fd.as_fd()), Ok(answer));
            assert_eq!(queue.bound.pending(), Ok(56));
        }
        // Told once; the next call tries anew, and what was in the way can be removed.
        let (start, mut completed) = (Instant::now(), 0);
        while completed != 64 && start.elapsed() < PATIENCE {
            completed += queue
                .bound
                .pair
                .lock()
                .completion
                .peek(u32::MAX)
                .expect("sound")
                .count();
            queue.kick().expect("the ring has places again");
        }
        assert_eq!(completed, 64);
    });
}

/// K8: a frame that is on the fill ring twice is delivered twice. It never has two owners here.
#[test]
fn a_frame_delivered_twice_poisons_the_queue() {
    row_on("K8, SAME_FRAME_TWICE", usual("k8"), |lab, case| {
        let options = QueueOptions::new().direction(Direction::Receive).frames(12);
        let mut receiver = case.port(&lab.b, options, |port| port);
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        let queue = receiver.queues_mut().next().expect("one queue");
        // An address outside is passed over by the kernel, without a counter; the frame behind it is used.
        for addr in [OUTSIDE, 0] {
            let mut pair = queue.bound.pair.lock();
            let mut slots = pair.fill.reserve(1).expect("sound");
            assert!(slots.push(addr));
        }
        let mut send = |count| {
            let sent = sender.send_with(count, |packet| assert!(packet.write(&bytes(1))));
            assert_eq!(sent.expect("sends"), count);
        };
        if case.path == Path::ZeroCopy {
            // A NIC that has no frame loses the packet, and its driver may take more frames only when it is woken.
            let on_ring = |queue: &mut Queue| queue.ledger().map_or(13, |ledger| ledger.rx);
            send(12);
            assert!(wait_until(PATIENCE, || on_ring(queue) >= 12), "{:?}", queue.ledger());
            let one_more = || {
                wake_rx(queue.bound.fd.as_fd()).expect("woken");
                send(1);
                std::thread::sleep(Duration::from_millis(50));
                on_ring(queue) >= 13
            };
            assert!(wait_until(PATIENCE, one_more), "{:?}", queue.ledger());
        } else {
            send(13);
            // Not by the ledger, which would find it first.
            let rx = queue.bound.rx.as_ref().expect("an RX ring");
            assert!(wait_until(PATIENCE, || rx.filled().expect("sound") >= 13));
        }
        // A NIC's link may have been reset by the program, which comes first.
        let error = loop {
            match queue.recv(Wait::Spin) {
                Ok(burst) if burst.event().is_some() => {}
                Ok(burst) => panic!("the 13th is in the first one's frame: {burst:?}"),
                Err(error) => break error,
            }
        };
        let Error::Poisoned { violation, .. } = &error else {
            panic!("{error}");
        };
        let of_frame = matches!(violation, Violation::NotOwned { ring: "RX", addr: 256 });
        // Where the ring was looked at as a whole before, that has found it.
        let of_ring =
            case.path == Path::ZeroCopy && violation.to_string().starts_with("13 frame(s) are on the RX ring");
        assert!(of_frame || of_ring, "{violation}");
        assert!(queue.recv(Wait::Spin).is_err());
        assert!(queue.alloc().is_none());
    });
}

/// K9: an empty fill ring counts in two counters, and its flag does not ask for anything: copy paths never do. With zero-copy a driver
/// asks to be woken, and it is counted how often it looked in vain; the packets are its own matter.
#[test]
fn an_empty_fill_ring_is_counted_twice_and_asks_for_nothing() {
    row_on("K9", usual("k9"), |lab, case| {
        let options = QueueOptions::new().direction(Direction::Receive).frames(8);
        let mut receiver = case.port(&lab.b, options, |port| port);
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        send(&mut sender, &packets(0..20, 64, &lab.a, &lab.b));
        let zero_copy = case.path == Path::ZeroCopy;
        let queue = only(&mut receiver);
        let read = || {
            let counted = queue.stats().expect("readable").kernel;
            (counted, queue.bound.pair.lock().fill.needs_wakeup())
        };
        let (counted, asks) = retry(PATIENCE, read, |(counted, asks)| match zero_copy {
            true => counted.rx_fill_ring_empty > 0 && *asks,
            false => counted.rx_fill_ring_empty == 12,
        });
        if zero_copy {
            assert!(counted.rx_fill_ring_empty > 0 && counted.rx_dropped == 0, "{counted:?}");
        } else {
            assert_eq!(
                (counted.rx_fill_ring_empty, counted.rx_dropped),
                (12, 12),
                "{counted:?}"
            );
        }
        assert_eq!(asks, zero_copy, "{counted:?}");
    });
}

fn refuses_everything(queue: &mut Queue, frame: Frame) {
    for _ in 0..2 {
        assert!(queue.alloc().is_none());
        assert!(matches!(queue.recv(Wait::Spin), Err(Error::Poisoned { .. })));
        assert!(matches!(queue.flush(), Err(Error::Poisoned { .. })));
        assert!(matches!(queue.drain(Duration::ZERO), Err(Error::Poisoned { .. })));
        let written = queue.send_with(1, |_| panic!("no memory is touched"));
        assert!(matches!(written, Err(Error::Poisoned { .. })));
    }
    let refused = queue.send(frame).expect_err("poisoned");
    assert!(matches!(refused.error, Error::Poisoned { .. }));
}

/// A test packet as a broadcast whose last byte is `mark`.
fn bytes(mark: u8) -> [u8; 60] {
    let packet = packet_of(0, 60, [0xff; 6], [0xff; 6]);
    let mut bytes: [u8; 60] = packet.try_into().expect("as long as asked for");
    bytes[59] = mark;
    bytes
}

/// A frame with such a packet, in the book as given to the TX ring.
fn frame(queue: &mut Queue, mark: u8) -> Desc {
    let mut buf = queue.bound.pair.lock().pool.take_buf().expect("a free frame");
    let umem = &queue.bound.umem;
    assert!(buf.resize(umem.geometry(), 60));
    buf.data_mut(umem).copy_from_slice(&bytes(mark));
    Desc {
        addr: queue.bound.pair.lock().pool.lend_to_tx(&buf),
        len: 60,
        options: 0,
    }
}

fn put(queue: &mut Queue, descriptors: &[Desc]) {
    let mut slots = queue.bound.tx.as_mut().expect("a TX ring").reserve(64).expect("sound");
    for &desc in descriptors {
        assert!(slots.push(desc));
    }
    drop(slots);
    queue.unsent = true;
}

/// The marks of the packets that arrive, whatever queue they arrive on.
fn receive(port: &mut Port, enough: usize) -> Vec<u8> {
    let start = Instant::now();
    let mut marks = Vec::new();
    while marks.len() < enough && start.elapsed() < Duration::from_secs(2) {
        for queue in port.queues_mut() {
            let mut burst = queue.recv(Wait::Poll(Duration::from_millis(5))).expect("recv");
            for packet in &mut burst {
                if packet.len() == 60 && packet.data()[12..14] == bytes(0)[12..14] {
                    marks.push(packet.data()[59]);
                }
            }
        }
    }
    marks
}
