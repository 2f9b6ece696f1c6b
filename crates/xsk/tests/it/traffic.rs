//! Packets through the real kernel: whole, in order, counted, in every mode and on every queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::conformance::{row_on, usual};
use crate::common::traffic::{only, queue};
use crate::common::{MODES, PATIENCE, collect, lab, open, packet, roomy, send_numbers};
use ringside_netlab::testing::is_root;
use ringside_xsk::{Direction, Interface, Path, QueueOptions, Wait};

/// A port with all its queues, and 4096 packets of all lengths from one of four: each arrives once, whole, in order, on the
/// queue the kernel steers it to, and on no other.
#[test]
fn packets_arrive_whole_and_in_order_on_every_queue() {
    row_on("QUEUE_OTHER_THAN_0", usual("order"), |lab, case| {
        // A veth has four, a NIC in a guest one or two.
        let queues = lab.b.run(|| lab.b.interface.rx_queues()).expect("readable").min(4);
        let mut receiver = case.port(&lab.b, roomy(), |port| port.queues(0..queues));
        let mut sender = case.sender(&lab.a, QueueOptions::new());
        assert_eq!(receiver.queues().len(), queues as usize);
        let mut numbers = Vec::new();
        for first in (0..4096).step_by(32) {
            send_numbers(&mut sender, first..first + 32, &lab.a, &lab.b);
            numbers.extend(collect(queue(&mut receiver, case.queue), 32, PATIENCE));
        }
        assert_eq!(numbers.len(), 4096, "{:?}", receiver.stats());
        assert!(numbers.into_iter().eq(0..4096), "order");
        let (sent, received) = (sender.counters(), receiver.stats().unwrap().own);
        assert_eq!(sent.tx_packets, 4096);
        assert_eq!(
            (sent.tx_packets, sent.tx_bytes),
            (received.rx_packets, received.rx_bytes)
        );
        let counted: Vec<u64> = receiver
            .program_counters()
            .unwrap()
            .iter()
            .map(|c| c.redirected)
            .collect();
        let expected: Vec<u64> = (0..queues)
            .map(|queue| if queue == case.queue { 4096 } else { 0 })
            .collect();
        assert_eq!(counted, expected, "the XDP program's count");
    });
}

/// One packet in flight, answered by the other side, in every wait policy: nothing waits for a second packet.
#[test]
fn depth_one_ping_pong_in_every_wait_policy() {
    row_on("PING_PONG_DEPTH_1", usual("pingpong"), |lab, case| {
        let waits: &[Wait] = match case.busy_poll {
            true => &[Wait::BusyPoll],
            false => &[Wait::Spin, Wait::Poll(Duration::from_millis(50))],
        };
        for &wait in waits {
            let mut server = case.port(&lab.b, QueueOptions::new(), |port| port);
            // Its packets leave by one queue, and the answers come to the other one in generic mode.
            let queues: std::collections::BTreeSet<u32> = [case.from(), case.to()].into();
            let mut client = case.port(&lab.a, QueueOptions::new(), |port| port.queues(queues));
            let (a, b) = (lab.a.mac, lab.b.mac);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                // Also when an answer is missing: the server must not wait for the stop for ever.
                let _end = Stop(&stop);
                let (stop, server) = (&stop, only(&mut server));
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let mut burst = server.recv(wait).expect("server recv");
                        for mut packet in &mut burst {
                            packet.data_mut()[..12].rotate_left(6);
                        }
                        burst.send_back().expect("server sends");
                    }
                });
                for n in 0..200 {
                    let tx = queue(&mut client, case.from());
                    let sent = tx.send_with(1, |slot| assert!(slot.write(&packet(n, a, b))));
                    assert_eq!(sent.unwrap(), 1);
                    let rx = queue(&mut client, case.to());
                    let start = Instant::now();
                    'answer: loop {
                        let mut burst = rx.recv(wait).unwrap();
                        for packet in &mut burst {
                            if common::check(packet.data()) == Some(n) {
                                break 'answer;
                            }
                        }
                        assert!(start.elapsed() < Duration::from_secs(5), "{wait:?}: no answer to {n}");
                    }
                }
            });
        }
    });
}

/// The kernel tells each change of each link of the namespace. Those of other links end no sleep before its time.
#[test]
fn changes_of_other_links_cut_no_sleep_short() {
    if !is_root() {
        return;
    }
    let lab = lab("otherlinks", 1);
    let mut port = open(&lab.b, Path::NativeCopy, |port| port);
    let lo = lab.b.run(|| Interface::by_name("lo").unwrap());
    let sleep = Duration::from_millis(400);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for mtu in [9001, 9002, 9003] {
                std::thread::sleep(Duration::from_millis(50));
                lab.b.run(|| lo.set_mtu(mtu).unwrap());
            }
        });
        let start = Instant::now();
        let burst = only(&mut port).recv(Wait::Poll(sleep)).unwrap();
        assert!(burst.is_empty() && burst.event().is_none());
        assert!(start.elapsed() >= sleep, "{:?}", start.elapsed());
    });
}

struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
            Duration::from_millis(500),
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
