//! Packets there, back and through `poll()`.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringside_xsk::{QueueOptions, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::common::PATIENCE;
use crate::common::assert_clean;
use crate::common::conformance::{row_on, usual};
use crate::common::traffic::{exchange, expect, expect_nothing, only, packets, queue, send, through};

/// As many frames as packets in a burst and more, of the size that the kernel's suite uses.
fn options() -> QueueOptions {
    QueueOptions::new().frame_size(4096).frames(1024)
}

#[test]
fn send_receive() {
    row_on("SEND_RECEIVE", usual("sr"), |lab, case| {
        through(lab, case, options(), (4096, 64));
    });
}

#[test]
fn send_receive_2k_frame() {
    row_on("SEND_RECEIVE_2K_FRAME", usual("sr2k"), |lab, case| {
        through(lab, case, options().frame_size(2048), (4096, 64));
    });
}

#[test]
fn send_receive_single_pkt() {
    row_on("SEND_RECEIVE_SINGLE_PKT", usual("sr1"), |lab, case| {
        through(lab, case, options(), (1, 64));
    });
}

#[test]
fn poll_rx() {
    row_on("POLL_RX", usual("pollrx"), |lab, case| {
        let mut port = case.port(&lab.b, options(), |port| port);
        let mut tx = case.sender(&lab.a, options());
        let all = packets(0..4096, 64, &lab.a, &lab.b);
        let rx = only(&mut port);
        let (came, wait) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let bursts = || all.chunks(64);
            scope.spawn(move || {
                for burst in bursts() {
                    // So that the receiver has gone to sleep.
                    std::thread::sleep(Duration::from_micros(500));
                    send(&mut tx, burst);
                    // It has failed if it does not answer.
                    let Ok(()) = wait.recv() else { break };
                }
            });
            for burst in bursts() {
                expect(rx, Wait::Poll(PATIENCE), burst);
                came.send(()).expect("the sender waits for it");
            }
        });
        assert!(rx.counters().wakeups > 0, "{:?}", rx.counters());
    });
}

/// `poll()` alone drives the sending: no other call is made for it.
#[test]
fn poll_tx() {
    row_on("POLL_TX", usual("polltx"), |lab, case| {
        let mut port = case.port(&lab.b, options(), |port| port);
        let mut tx = case.sender(&lab.a, options());
        for first in (0..4096).step_by(64) {
            let burst = packets(first..first + 64, 64, &lab.a, &lab.b);
            for packet in &burst {
                let mut frame = tx.alloc().expect("a free frame");
                assert!(frame.write(packet));
                tx.send(frame).expect("room");
            }
            let (fd, came) = (tx.as_fd(), AtomicBool::new(false));
            std::thread::scope(|scope| {
                // A NIC whose own ring is full takes the rest at another call.
                scope.spawn(|| {
                    let start = Instant::now();
                    while !came.load(Ordering::Relaxed) && start.elapsed() < PATIENCE {
                        assert_eq!(poll_out(fd, PATIENCE), 1, "there is room");
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                expect(only(&mut port), case.wait(), &burst);
                came.store(true, Ordering::Relaxed);
            });
            assert!(tx.drain(PATIENCE).expect("drains"));
        }
        assert_eq!(tx.counters().tx_kicks, 0, "{:?}", tx.counters());
    });
}

#[test]
fn poll_rxq_full() {
    row_on("POLL_RXQ_FULL", usual("pollrxfull"), |lab, case| {
        let mut port = case.port(&lab.b, options(), |port| port);
        let rx = only(&mut port);
        let patience = Duration::from_millis(200);
        let slept = loop {
            let start = Instant::now();
            let burst = rx.recv(Wait::Poll(patience)).expect("no error");
            assert!(burst.is_empty());
            // A NIC's link may just have come up, which is told at once.
            if burst.event().is_none() {
                break start.elapsed();
            }
        };
        assert!(slept >= patience, "{slept:?}");
        // And then it works.
        let mut tx = case.sender(&lab.a, options());
        exchange(lab, &mut tx, rx, Wait::Poll(PATIENCE), (64, 64));
    });
}

/// With the completion ring full and the TX ring more than half full `poll()` waits, and goes on when there is room.
#[test]
fn poll_txq_full() {
    row_on("POLL_TXQ_FULL", usual("polltxfull"), |lab, case| {
        let mut port = case.port(&lab.b, options(), |port| port);
        let mut tx = case.sender(&lab.a, options().tx_ring(64).completion_ring(8));
        let all = packets(0..64, 64, &lab.a, &lab.b);
        for packet in &all {
            let mut frame = tx.alloc().expect("a free frame");
            assert!(frame.write(packet));
            tx.send(frame).expect("room");
        }
        let (start, patience) = (Instant::now(), Duration::from_millis(200));
        assert_eq!(poll_out(tx.as_fd(), patience), 0, "no room");
        assert!(start.elapsed() >= patience, "{:?}", start.elapsed());
        tx.flush().expect("goes on");
        assert_eq!(poll_out(tx.as_fd(), PATIENCE), 1, "room again");
        expect(only(&mut port), case.wait(), &all);
        assert!(tx.drain(PATIENCE).expect("drains"));
    });
}

/// What `poll()` for room on the TX ring answers.
fn poll_out(tx: BorrowedFd<'_>, timeout: Duration) -> usize {
    let mut fds = [PollFd::from_borrowed_fd(tx, PollFlags::OUT)];
    let timeout = Timespec::try_from(timeout).expect("short");
    let ready = poll(&mut fds, Some(&timeout)).expect("poll");
    assert!(ready == 0 || fds[0].revents() == PollFlags::OUT, "{fds:?}");
    ready
}

#[test]
fn umem_headroom() {
    row_on("UMEM_HEADROOM", usual("headroom"), |lab, case| {
        // That packets lie 384 bytes behind their frame's start is checked for each.
        through(lab, case, options().headroom(128), (4096, 64));
    });
}

/// The same sockets, there and then back.
#[test]
fn bidirectional() {
    row_on("BIDIRECTIONAL", usual("bidi"), |lab, case| {
        let mut far = case.port(&lab.b, options(), |port| port);
        let queues: std::collections::BTreeSet<u32> = [case.from(), case.to()].into();
        let mut near = case.port(&lab.a, options(), |port| port.queues(queues));
        exchange(
            lab,
            queue(&mut near, case.from()),
            only(&mut far),
            case.wait(),
            (4096, 64),
        );
        for first in (0..4096).step_by(64) {
            let burst = packets(first..first + 64, 64, &lab.b, &lab.a);
            send(only(&mut far), &burst);
            expect(queue(&mut near, case.to()), case.wait(), &burst);
        }
        expect_nothing(queue(&mut near, case.to()));
    });
}

/// Ten times made, used and taken down, at once after each other.
#[test]
fn teardown() {
    row_on("TEARDOWN", usual("teardown"), |lab, case| {
        for _ in 0..10 {
            through(lab, case, options(), (64, 64));
        }
        assert_clean(&lab.b);
    });
}
