//! What safe code can do wrong: forget, hoard, starve, ask for the odd. Nothing is lost that is not the caller's, nothing
//! hangs, nothing panics.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::{MODES, PATIENCE, check, collect, lab, open, packet, send_numbers, sender, within};
use ringside_netlab::testing::{expect, is_root, measured};
use ringside_xsk::{Direction, Error, Frame, Path, QueueOptions, Wait};

/// A burst that is forgotten loses no frame, whatever its packets were marked as.
#[test]
fn forgotten_guards_lose_nothing() {
    if !is_root() {
        return;
    }
    let lab = lab("forget", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().frames(64))
    });
    let mut sender = sender(&lab.a);
    let (tx, rx) = (
        sender.queues_mut().nth(1).unwrap(),
        receiver.queues_mut().nth(1).unwrap(),
    );
    // 50 bursts of 16 are far more than 64 frames.
    for round in 0..50 {
        send_numbers(tx, round * 16..round * 16 + 16, &lab.a, &lab.b);
        let mut seen = 0;
        while seen < 16 {
            let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
            assert!(!burst.is_empty(), "round {round}: frames were lost");
            seen += burst.len();
            let mut packets = burst.iter_mut();
            let mut first = packets.next().unwrap();
            match round % 4 {
                0 => {}
                1 => first.send(),
                2 => {
                    assert!(first.resize(0));
                    first.drop();
                }
                _ => drop(first.keep()),
            }
            std::mem::forget(burst);
        }
    }
    assert_eq!(rx.counters().rx_packets, 800);
    // Marked to be sent, but the burst was never ended: not sent.
    assert_eq!(rx.counters().tx_packets, 0);
    rx.recv(Wait::Spin).unwrap();
    assert_eq!(rx.free_frames(), 32);
}

/// A frame that is forgotten is gone for good, and only it.
#[test]
fn a_forgotten_frame_is_the_only_loss() {
    if !is_root() {
        return;
    }
    let lab = lab("forgetframe", 1);
    let mut sender = sender(&lab.a);
    let tx = sender.queues_mut().next().unwrap();
    for left in (250..256).rev() {
        std::mem::forget(tx.alloc().unwrap());
        assert_eq!(tx.free_frames(), left);
    }
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(common::roomy()));
    send_numbers(tx, 0..1000, &lab.a, &lab.b);
    assert_eq!(
        collect(receiver.queues_mut().next().unwrap(), 1000, PATIENCE).len(),
        1000
    );
    assert!(tx.drain(PATIENCE).unwrap());
    assert_eq!(tx.free_frames(), 250);
}

/// Keep some, then send back the rest: each frame goes one way only.
#[test]
fn kept_frames_are_not_sent_back() {
    if !is_root() {
        return;
    }
    let lab = lab("keepsend", 4);
    for path in MODES {
        let mut server = open(&lab.b, path, |port| port);
        let mut client = open(&lab.a, path, |port| port);
        let from = common::leading_to(1, path);
        let back = common::arrives_at(1, path);
        for round in 0..40_u64 {
            let n = round * 8;
            send_numbers(client.queues_mut().nth(from).unwrap(), n..n + 8, &lab.a, &lab.b);
            let rx = server.queues_mut().nth(1).unwrap();
            let (mut kept, mut sent) = (Vec::<Frame>::new(), 0);
            while kept.len() + sent < 6 {
                let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
                assert!(!burst.is_empty());
                for mut packet in &mut burst {
                    match check(packet.data()).unwrap() % 4 {
                        0 => kept.push(packet.keep()),
                        // The last mark counts.
                        1 => {
                            packet.send();
                            packet.drop();
                        }
                        2 => {
                            packet.drop();
                            packet.send();
                        }
                        _ => {}
                    }
                }
                assert!(
                    burst
                        .iter_mut()
                        .all(|packet| !check(packet.data()).unwrap().is_multiple_of(4)),
                    "kept ones are gone"
                );
                sent += burst.send_back().unwrap() as usize;
            }
            let answered = collect(client.queues_mut().nth(back).unwrap(), 4, PATIENCE);
            assert_eq!(answered, [n + 2, n + 3, n + 6, n + 7], "{path}");
            // The kept ones are whole, although all the others went round.
            let numbers: Vec<u64> = kept.iter().map(|frame| check(frame.data()).unwrap()).collect();
            assert_eq!(numbers, [n, n + 4]);
        }
        assert!(server.queues_mut().nth(1).unwrap().drain(PATIENCE).unwrap());
    }
}

/// All frames in the user's hands: nothing can be sent or received, nothing hangs, and all goes on afterwards.
#[test]
fn all_frames_hoarded_and_given_back() {
    if !is_root() {
        return;
    }
    let lab = lab("hoard", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().frames(32))
    });
    let mut sender = sender(&lab.a);
    let (tx, rx) = (
        sender.queues_mut().nth(1).unwrap(),
        receiver.queues_mut().nth(1).unwrap(),
    );
    let mut hoard: Vec<Frame> = std::iter::from_fn(|| rx.alloc()).collect();
    assert_eq!(hoard.len(), 16, "the other half waits in the fill ring");
    send_numbers(tx, 0..16, &lab.a, &lab.b);
    while hoard.len() < 32 {
        let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
        assert!(!burst.is_empty());
        hoard.extend((&mut burst).into_iter().map(ringside_xsk::Packet::keep));
    }
    assert!(rx.alloc().is_none());
    let start = Instant::now();
    assert_eq!(rx.send_with(8, |_| panic!("there is no frame")).unwrap(), 0);
    assert!(rx.recv(Wait::Poll(Duration::from_millis(20))).unwrap().is_empty());
    assert!(start.elapsed() < Duration::from_secs(10));
    send_numbers(tx, 100..110, &lab.a, &lab.b);
    assert!(rx.recv(Wait::Poll(Duration::from_millis(20))).unwrap().is_empty());
    assert_eq!(rx.stats().unwrap().kernel.rx_fill_ring_empty, 10);
    // From another thread, too.
    std::thread::spawn(move || drop(hoard)).join().unwrap();
    rx.recv(Wait::Spin).unwrap();
    send_numbers(tx, 200..210, &lab.a, &lab.b);
    assert!(collect(rx, 10, PATIENCE).into_iter().eq(200..210));
}

/// The sending side cannot take the frames that the receiving side needs.
#[test]
fn sending_does_not_starve_receiving() {
    if !is_root() {
        return;
    }
    let lab = lab("starve", 2);
    let mut port = open(&lab.b, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().frames(64))
    });
    let mut sender = sender(&lab.a);
    let (tx, rx) = (sender.queues_mut().nth(1).unwrap(), port.queues_mut().nth(1).unwrap());
    let mut hogged: Vec<Frame> = Vec::new();
    for round in 0..10 {
        send_numbers(tx, round * 32..round * 32 + 32, &lab.a, &lab.b);
        assert_eq!(collect(rx, 32, PATIENCE).len(), 32, "round {round}");
        // The fill ring is empty now, and this comes before it is stocked again.
        hogged.extend(std::iter::from_fn(|| rx.alloc()));
        assert_eq!(hogged.len(), 32);
        assert_eq!(rx.send_with(1, |_| panic!("reserved")).unwrap(), 0);
        rx.recv(Wait::Spin).unwrap();
    }
    assert_eq!(rx.stats().unwrap().kernel.rx_fill_ring_empty, 0);
}

/// One frame, rings of one place, bursts of one: everything works, one at a time.
#[test]
fn the_smallest_of_everything() {
    if !is_root() {
        return;
    }
    let lab = lab("tiny", 2);
    for path in MODES {
        let smallest = |direction| {
            QueueOptions::new()
                .direction(direction)
                .frames(1)
                .rx_ring(1)
                .tx_ring(1)
                .fill_ring(1)
                .completion_ring(1)
                .batch(1)
        };
        let mut receiver = open(&lab.b, path, |port| port.options(smallest(Direction::Receive)));
        let mut sender = open(&lab.a, path, |port| port.options(smallest(Direction::Transmit)));
        // Transmit queue 1 leads to receive queue 1 or, in generic mode, to 0.
        let to = common::arrives_at(1, path);
        let (tx, rx) = (
            sender.queues_mut().nth(1).unwrap(),
            receiver.queues_mut().nth(to).unwrap(),
        );
        for n in 0..300 {
            // The one frame goes back to the fill ring with the next call.
            assert!(rx.recv(Wait::Spin).unwrap().is_empty());
            send_numbers(tx, n..n + 1, &lab.a, &lab.b);
            assert_eq!(collect(rx, 1, PATIENCE), [n], "{path}");
        }
        assert!(tx.drain(PATIENCE).unwrap());
        assert_eq!((tx.free_frames(), tx.counters().tx_completed), (1, 300));

        // With one frame for both directions, the one that came is the one that goes.
        drop((receiver, sender));
        let both = smallest(Direction::Both);
        let mut server = open(&lab.b, path, |port| port.options(both.clone()));
        let mut client = open(&lab.a, path, |port| port);
        for n in 0..100 {
            let rx = server.queues_mut().nth(to).unwrap();
            assert!(rx.recv(Wait::Spin).unwrap().is_empty());
            send_numbers(client.queues_mut().nth(1).unwrap(), n..n + 1, &lab.a, &lab.b);
            assert_eq!(
                rx.recv(Wait::Poll(PATIENCE)).unwrap().send_back().unwrap(),
                1,
                "{path} {n}"
            );
            let back = client.queues_mut().nth(common::arrives_at(to, path)).unwrap();
            assert_eq!(collect(back, 1, PATIENCE), [n], "{path}");
        }
    }
}

/// A burst far larger than rings and frames.
#[test]
fn a_burst_larger_than_everything() {
    if !is_root() {
        return;
    }
    let lab = lab("huge-batch", 2);
    let options = QueueOptions::new().batch(1 << 16).tx_ring(8).frames(1024);
    let mut sender = open(&lab.a, Path::NativeCopy, |port| port.options(options.clone()));
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| {
        port.options(options.clone().frames(4096))
    });
    let (tx, rx) = (
        sender.queues_mut().nth(1).unwrap(),
        receiver.queues_mut().nth(1).unwrap(),
    );
    let mut n = 0;
    let sent = tx
        .send_with(u32::MAX, |slot| {
            assert!(slot.write(&packet(n, lab.a.mac, lab.b.mac)));
            n += 1;
        })
        .unwrap();
    assert_eq!(
        (sent, n),
        (512, 512),
        "half of 1024 frames, the others wait for packets"
    );
    assert!(tx.drain(PATIENCE).unwrap());
    let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
    let numbers: Vec<u64> = burst.iter_mut().filter_map(|packet| check(packet.data())).collect();
    assert!(numbers.iter().copied().eq(0..512), "{} in one burst", numbers.len());
    drop(burst);
    assert_eq!(tx.send_with(0, |_| panic!("none")).unwrap(), 0);
}

/// Packets that a closure declines are not sent, and their frames come home.
#[test]
fn a_closure_may_decline() {
    if !is_root() {
        return;
    }
    let lab = lab("decline", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(common::roomy()));
    let mut sender = sender(&lab.a);
    let (tx, rx) = (
        sender.queues_mut().nth(1).unwrap(),
        receiver.queues_mut().nth(1).unwrap(),
    );
    for round in 0..100 {
        let mut n = round * 10;
        let sent = tx.send_with(10, |slot| {
            assert!(slot.write(&packet(n, lab.a.mac, lab.b.mac)));
            if !n.is_multiple_of(2) {
                slot.drop();
            }
            n += 1;
        });
        assert_eq!(sent.unwrap(), 5);
    }
    tx.flush().unwrap();
    let got = collect(rx, 500, PATIENCE);
    assert!(got.into_iter().eq((0..1000).step_by(2)), "the even ones, in order");
    assert!(tx.drain(PATIENCE).unwrap());
    assert_eq!(tx.free_frames(), 256);
    assert_eq!(tx.counters().tx_abandoned, 0);
}

/// Packets too short to be sent are an error that is counted; the others of the burst leave at once.
#[test]
fn runts_do_not_hold_up_the_others() {
    if !is_root() {
        return;
    }
    let lab = lab("runts", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let mut sender = sender(&lab.a);
    let (tx, rx) = (
        sender.queues_mut().nth(1).unwrap(),
        receiver.queues_mut().nth(1).unwrap(),
    );
    let mut n = 0;
    let error = tx
        .send_with(3, |slot| {
            assert!(slot.write(&packet(n, lab.a.mac, lab.b.mac)));
            if n == 1 {
                assert!(slot.resize(13));
            }
            n += 1;
        })
        .expect_err("13 bytes");
    assert!(
        matches!(
            error,
            Error::Setting {
                setting: "packet length",
                ..
            }
        ),
        "{error}"
    );
    // Nobody calls the sender any more.
    assert_eq!(collect(rx, 2, PATIENCE), [0, 2]);
    assert!(tx.drain(PATIENCE).unwrap());
    assert_eq!((tx.counters().tx_packets, tx.counters().tx_abandoned), (2, 1));
    assert_eq!(tx.free_frames(), 256);
}

/// An error of a burst that was merely dropped is told by the next call that can, also when `alloc` is called first.
#[test]
fn an_error_of_a_dropped_burst_is_told_later() {
    if !is_root() {
        return;
    }
    let lab = lab("later", 2);
    let mut server = open(&lab.b, Path::NativeCopy, |port| port);
    let mut sender = sender(&lab.a);
    send_numbers(sender.queues_mut().nth(1).unwrap(), 0..1, &lab.a, &lab.b);
    let rx = server.queues_mut().nth(1).unwrap();
    let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
    let mut packet = burst.iter_mut().next().unwrap();
    assert!(packet.resize(5));
    packet.send();
    drop(burst);
    assert!(rx.alloc().is_none(), "alloc cannot tell");
    assert!(rx.alloc().is_none());
    let error = rx.recv(Wait::Spin).map(drop).expect_err("the runt");
    assert!(
        matches!(
            error,
            Error::Setting {
                setting: "packet length",
                ..
            }
        ),
        "{error}"
    );
    assert!(rx.alloc().is_some());
    rx.recv(Wait::Spin).unwrap();
}

/// Many frames are queued one by one and leave with one kick; with the ring full, sending makes room by itself.
#[test]
fn sending_one_by_one_does_not_kick_one_by_one() {
    if !is_root() {
        return;
    }
    let lab = lab("onebyone", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port.options(common::roomy()));
    let mut sender = open(&lab.a, Path::Copy, |port| {
        port.options(QueueOptions::new().direction(Direction::Transmit).tx_ring(64))
    });
    let tx = sender.queues_mut().nth(1).unwrap();
    for n in 0..1000 {
        let mut frame = tx.alloc().unwrap();
        assert!(frame.write(&packet(n, lab.a.mac, lab.b.mac)));
        tx.send(frame).unwrap();
    }
    tx.flush().unwrap();
    let kicks = tx.counters().tx_kicks;
    assert!(
        (16..100).contains(&kicks),
        "{kicks} kicks for 1000 packets with 64 places"
    );
    let got = collect(receiver.queues_mut().nth(1).unwrap(), 1000, PATIENCE);
    assert!(got.into_iter().eq(0..1000));
}

/// A receiver that sleeps does not leave packets unsent that an earlier call could not get rid of: it sends, then sleeps.
#[test]
fn queued_frames_leave_before_a_sleep() {
    if !is_root() {
        return;
    }
    const SLEEP: Duration = Duration::from_secs(5);
    let lab = lab("sleep", 2);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let mut other = open(&lab.a, Path::NativeCopy, |port| port);
    let a = (lab.a.mac, lab.b.mac);
    let sleeper = std::thread::spawn(move || {
        let queue = other.queues_mut().nth(1).unwrap();
        for n in 0..5 {
            let mut frame = queue.alloc().unwrap();
            assert!(frame.write(&packet(n, a.0, a.1)));
            queue.send(frame).unwrap();
        }
        let start = Instant::now();
        let burst = queue.recv(Wait::Poll(SLEEP)).unwrap();
        assert!(burst.is_empty());
        start.elapsed()
    });
    let start = Instant::now();
    assert_eq!(
        collect(receiver.queues_mut().nth(1).unwrap(), 5, PATIENCE),
        [0, 1, 2, 3, 4]
    );
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let slept = sleeper.join().unwrap();
    assert!(
        (SLEEP - Duration::from_millis(10)..SLEEP + Duration::from_secs(2)).contains(&slept),
        "{slept:?}"
    );
}

/// Closing does not wait for a stalled queue longer than told, and ports can be swapped by safe code.
#[test]
fn closing_is_bounded_and_swapping_harmless() {
    if !is_root() {
        return;
    }
    let lab = lab("swap", 4);
    measured(|| {
        let mut first = open(&lab.a, Path::NativeCopy, |port| port.queues([0, 1]));
        let mut second = open(&lab.b, Path::NativeCopy, |port| port.queues([2, 3]));
        std::mem::swap(first.queues_mut().next().unwrap(), second.queues_mut().next().unwrap());
        let took = within(Duration::from_secs(30), move || {
            let start = Instant::now();
            drop(first);
            drop(second);
            start.elapsed()
        });
        expect(took < Duration::from_secs(1), format_args!("{took:?}"))
    });
    common::assert_clean(&lab.a);
    common::assert_clean(&lab.b);
}
