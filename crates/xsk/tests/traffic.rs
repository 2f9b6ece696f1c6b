//! Packets through the real kernel: whole, in order, counted, in every mode and on every queue.

mod common;

use std::time::Duration;

use common::{MODES, arrives_at, collect, lab, open, packet, roomy, within};
use ringside_netlab::testing::is_root;
use ringside_xsk::{Direction, Path, QueueOptions, Wait};

const PATIENCE: Duration = Duration::from_secs(2);

/// 4096 packets of all lengths from each queue of four: each arrives once, whole, in order, on the queue the kernel
/// steers it to.
#[test]
fn packets_arrive_whole_and_in_order_on_every_queue() {
    if !is_root() {
        return;
    }
    let lab = lab("order", 4);
    for path in MODES {
        let mut receiver = open(&lab.b, path, |port| port.options(roomy()));
        let mut sender = open(&lab.a, path, |port| {
            port.options(QueueOptions::new().direction(Direction::Transmit))
        });
        assert_eq!(receiver.queues().len(), 4);
        assert_eq!(sender.queues().len(), 4);
        for (q, tx) in sender.queues_mut().enumerate() {
            let mut numbers = Vec::new();
            let mut next = 0;
            while next < 4096 {
                let sent = tx
                    .send_with(32, |slot| {
                        assert!(slot.write(&packet(next, lab.a.mac, lab.b.mac)));
                        next += 1;
                    })
                    .expect("sends");
                tx.flush().expect("flush");
                let rx = receiver.queues_mut().nth(arrives_at(q, path)).unwrap();
                numbers.extend(collect(rx, sent as usize, PATIENCE));
            }
            assert_eq!(numbers.len(), 4096, "{path} queue {q}: {:?}", receiver.stats());
            assert!(numbers.iter().copied().eq(0..4096), "{path} queue {q}: order");
        }
        let (sent, received) = (sender.stats().unwrap(), receiver.stats().unwrap());
        assert_eq!(sent.own.tx_packets, 4 * 4096);
        assert_eq!(sent.own.tx_packets, received.own.rx_packets);
        assert_eq!(sent.own.tx_bytes, received.own.rx_bytes);
        let counted: u64 = receiver.program_counters().unwrap().iter().map(|c| c.redirected).sum();
        assert_eq!(counted, 4 * 4096, "the XDP program's count");
    }
}

/// One packet in flight, answered by the other side, in every wait policy and mode: nothing waits for a second packet.
#[test]
fn depth_one_ping_pong_in_every_wait_policy() {
    if !is_root() {
        return;
    }
    let lab = lab("pingpong", 2);
    for path in MODES {
        for wait in [Wait::Spin, Wait::Poll(Duration::from_secs(1)), Wait::BusyPoll] {
            for q in 0..2_usize {
                let options = match wait {
                    Wait::BusyPoll => QueueOptions::new().busy_poll(ringside_xsk::BusyPoll::with_budget(64)),
                    _ => QueueOptions::new(),
                };
                let (to_server, to_client) = (options.clone(), options);
                let mut server = open(&lab.b, path, |port| port.options(to_server));
                let mut client = open(&lab.a, path, |port| port.options(to_client));
                let (a, b) = (lab.a.mac, lab.b.mac);
                let rounds = 300_u64;
                within(Duration::from_secs(20), move || {
                    let stop = std::sync::atomic::AtomicBool::new(false);
                    std::thread::scope(|scope| {
                        for queue in server.queues_mut() {
                            let stop = &stop;
                            scope.spawn(move || {
                                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                                    let wait = match wait {
                                        Wait::Poll(_) => Wait::Poll(Duration::from_millis(50)),
                                        other => other,
                                    };
                                    let mut burst = queue.recv(wait).expect("server recv");
                                    for mut packet in &mut burst {
                                        packet.data_mut()[..12].rotate_left(6);
                                    }
                                    burst.send_back().expect("server sends");
                                }
                            });
                        }
                        for n in 0..rounds {
                            let tx = &mut client.queues_mut().nth(q).unwrap();
                            let sent = tx.send_with(1, |slot| assert!(slot.write(&packet(n, a, b)))).unwrap();
                            assert_eq!(sent, 1);
                            let start = std::time::Instant::now();
                            'answer: loop {
                                for rx in client.queues_mut() {
                                    let wait = match wait {
                                        Wait::Poll(_) => Wait::Poll(Duration::from_millis(1)),
                                        other => other,
                                    };
                                    let mut burst = rx.recv(wait).unwrap();
                                    for packet in &mut burst {
                                        if common::check(packet.data()) == Some(n) {
                                            break 'answer;
                                        }
                                    }
                                }
                                assert!(
                                    start.elapsed() < Duration::from_secs(2),
                                    "{path} {wait:?} queue {q}: no answer to {n}"
                                );
                            }
                        }
                        stop.store(true, std::sync::atomic::Ordering::Relaxed);
                    });
                });
            }
        }
    }
}

/// A flood that nobody reads: what was sent is what was received plus what was counted as lost.
#[test]
fn sent_equals_received_plus_counted_losses() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("ledger", 1);
        let mut receiver = open(&lab.b, path, |port| port.options(QueueOptions::new().frames(256)));
        let mut sender = open(&lab.a, path, |port| {
            port.options(QueueOptions::new().direction(Direction::Transmit))
        });
        let tx = sender.queues_mut().next().unwrap();
        let mut sent = 0;
        while sent < 20_000 {
            sent += u64::from(
                tx.send_with(64, |slot| assert!(slot.write(&packet(1, lab.a.mac, lab.b.mac))))
                    .unwrap(),
            );
        }
        tx.flush().unwrap();
        assert!(tx.drain(PATIENCE).unwrap(), "all frames come back");
        let received = collect(
            receiver.queues_mut().next().unwrap(),
            usize::MAX,
            Duration::from_millis(200),
        )
        .len() as u64;
        let stats = receiver.stats().unwrap();
        let (a, b) = (lab.a.state().unwrap().stats, lab.b.state().unwrap().stats);
        assert!(
            received < sent,
            "the flood must have overrun the receiver for this test to say anything"
        );
        // An empty fill ring counts in rx_dropped as well as in rx_fill_ring_empty (K9). veth counts a packet that its
        // own ring cannot take as dropped on the sending side.
        let lost = stats.kernel.rx_dropped + stats.kernel.rx_ring_full + a.tx_dropped;
        assert_eq!(sent, received + lost, "{path}: {stats:?}\na {a:?}\nb {b:?}");
        assert!(stats.kernel.rx_fill_ring_empty > 0);
    }
}

/// Frames that are kept live on, on other threads too, and come home when dropped there.
#[test]
fn kept_frames_travel_and_come_home() {
    if !is_root() {
        return;
    }
    let lab = lab("keep", 1);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let mut sender = open(&lab.a, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().direction(Direction::Transmit))
    });
    let (tx, rx) = (
        sender.queues_mut().next().unwrap(),
        receiver.queues_mut().next().unwrap(),
    );
    let before = rx.free_frames();
    // Many more than there are frames: each must come back for this to end.
    for round in 0..200_u64 {
        let mut n = round * 16;
        tx.send_with(16, |slot| {
            assert!(slot.write(&packet(n, lab.a.mac, lab.b.mac)));
            n += 1;
        })
        .unwrap();
        let mut kept = Vec::new();
        while kept.len() < 16 {
            let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
            assert!(!burst.is_empty(), "round {round}");
            kept.extend((&mut burst).into_iter().map(ringside_xsk::Packet::keep));
        }
        let checked = std::thread::spawn(move || {
            let numbers: Vec<_> = kept.iter().map(|frame| common::check(frame.data()).unwrap()).collect();
            numbers
        });
        assert!(checked.join().unwrap().into_iter().eq(round * 16..round * 16 + 16));
    }
    rx.recv(Wait::Spin).unwrap();
    assert_eq!(rx.free_frames(), before);

    // A frame outlives its port.
    tx.send_with(1, |slot| assert!(slot.write(&packet(7, lab.a.mac, lab.b.mac))))
        .unwrap();
    let mut burst = rx.recv(Wait::Poll(PATIENCE)).unwrap();
    let frame = burst.iter_mut().next().unwrap().keep();
    drop(burst);
    drop(receiver);
    assert_eq!(common::check(frame.data()), Some(7));
}

/// Received frames are sent on, allocated ones too; one of another UMEM is refused and comes back.
#[test]
fn frames_are_sent_only_by_their_own_queue() {
    if !is_root() {
        return;
    }
    let lab = lab("foreign", 2);
    let mut port = open(&lab.a, Path::NativeCopy, |port| port);
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let [q0, q1] = port.queues_mut().collect::<Vec<_>>().try_into().unwrap();
    let mut frame = q0.alloc().expect("a free frame");
    assert!(frame.write(&packet(3, lab.a.mac, lab.b.mac)));
    assert_ne!(q0.umem_id(), q1.umem_id());
    let refused = q1.send(frame).unwrap_err();
    assert!(refused.error.to_string().contains("own UMEM"), "{}", refused.error);
    q0.send(refused.frame).unwrap();
    q0.flush().unwrap();
    assert_eq!(collect(receiver.queues_mut().next().unwrap(), 1, PATIENCE), [3]);

    let free = q0.free_frames();
    let runt = q0.alloc().unwrap();
    let refused = q0.send(runt).unwrap_err();
    assert!(refused.error.to_string().contains("packet length"), "{}", refused.error);
    drop(refused);
    assert!(q0.drain(PATIENCE).unwrap());
    assert!(q0.free_frames() >= free);
}

/// Room in front of a packet: encapsulate and decapsulate in place.
#[test]
fn headers_can_be_put_in_front() {
    if !is_root() {
        return;
    }
    let lab = lab("headroom", 1);
    let mut port = open(&lab.a, Path::NativeCopy, |port| {
        port.options(QueueOptions::new().headroom(64))
    });
    let mut receiver = open(&lab.b, Path::NativeCopy, |port| port);
    let queue = port.queues_mut().next().unwrap();
    assert_eq!(queue.packet_room(), 2048 - 256 - 64);
    let mut frame = queue.alloc().unwrap();
    assert_eq!(frame.headroom(), 256 + 64);
    let whole = packet(9, lab.a.mac, lab.b.mac);
    assert!(frame.write(&whole[20..]));
    assert!(frame.extend_front(20));
    frame.data_mut()[..20].copy_from_slice(&whole[..20]);
    assert!(!frame.extend_front(1000), "no more than there is");
    assert!(frame.trim_front(14) && frame.extend_front(14));
    assert!(!frame.trim_front(5000));
    assert!(!frame.resize(5000));
    queue.send(frame).unwrap();
    queue.flush().unwrap();
    assert_eq!(collect(receiver.queues_mut().next().unwrap(), 1, PATIENCE), [9]);
}
