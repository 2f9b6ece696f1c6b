//! Sending when the kernel takes little, nothing, or only a part: K3 to K6.

mod common;

use std::time::{Duration, Instant};

use common::{MODES, collect, lab, open, packet, roomy, send_numbers, within};
use ringside_netlab::testing::is_root;
use ringside_xsk::{Direction, Error, LinkEvent, Path, Queue, QueueOptions, Wait};

const PATIENCE: Duration = Duration::from_secs(2);

fn transmit() -> QueueOptions {
    QueueOptions::new().direction(Direction::Transmit)
}

/// K3: with a budget of 32 one call sends 32 packets and answers EAGAIN. That is progress, not failure.
#[test]
fn a_used_up_budget_is_no_failure() {
    if !is_root() {
        return;
    }
    let lab = lab("k3", 2);
    for path in MODES {
        let mut receiver = open(&lab.b, path, |port| port.options(roomy()));
        let mut sender = open(&lab.a, Path::Copy, |port| port.options(transmit().tx_budget(32)));
        let tx = sender.queues_mut().nth(1).unwrap();
        assert_eq!(tx.report().tx_budget, Some(32));
        for n in 0..48 {
            let mut frame = tx.alloc().unwrap();
            assert!(frame.write(&packet(n, lab.a.mac, lab.b.mac)));
            tx.send(frame).unwrap();
        }
        assert_eq!(tx.counters().tx_kicks, 0, "sending frame by frame does not kick");
        tx.flush().unwrap();
        assert!(tx.counters().tx_kicks_partly >= 1, "{:?}", tx.counters());
        assert!(tx.counters().tx_kicks >= 2, "{:?}", tx.counters());
        let mut got: Vec<u64> = Vec::new();
        for rx in receiver.queues_mut().rev() {
            let missing = 48 - got.len();
            got.extend(collect(rx, missing, Duration::from_millis(300)));
        }
        assert!(got.iter().copied().eq(0..48), "{path}: {got:?}");
    }
}

/// K4: with 8 places for completions 1000 packets go out all the same, because the ring is emptied before each kick.
#[test]
fn a_small_completion_ring_stops_nothing() {
    if !is_root() {
        return;
    }
    let lab = lab("k4small", 2);
    for path in MODES {
        let mut receiver = open(&lab.b, path, |port| port.options(roomy()));
        let mut sender = open(&lab.a, Path::Copy, |port| port.options(transmit().completion_ring(8)));
        assert_eq!(sender.queues()[1].report().completion_ring, 8);
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let (sent, got) = within(Duration::from_secs(20), move || {
            send_numbers(sender.queues_mut().nth(1).unwrap(), 0..1000, &a, &b);
            assert!(sender.queues_mut().nth(1).unwrap().drain(PATIENCE).unwrap());
            let mut got: Vec<u64> = Vec::new();
            for rx in receiver.queues_mut().rev() {
                let missing = 1000 - got.len();
                got.extend(collect(rx, missing, Duration::from_millis(300)));
            }
            (sender.stats().unwrap().own, got)
        });
        assert_eq!((sent.tx_packets, sent.tx_completed, sent.tx_abandoned), (1000, 1000, 0));
        assert!(got.iter().copied().eq(0..1000), "{path}: {} arrived", got.len());
    }
}

/// K5: with the peer down the kernel takes packet after packet and drops them. Sending neither hangs nor fails, the
/// frames come back, and the loss is where the kernel counts it.
#[test]
fn a_peer_that_is_down_costs_packets_but_no_frames() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("k5", 2);
        let mut receiver = open(&lab.b, path, |port| port.options(roomy()));
        let mut sender = open(&lab.a, path, |port| port);
        let before = lab.a.state().unwrap().stats.tx_dropped;
        lab.b.set_up(false).unwrap();
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let mut sender = within(Duration::from_secs(20), move || {
            let tx = sender.queues_mut().nth(1).unwrap();
            let free = tx.free_frames();
            send_numbers(tx, 0..1000, &a, &b);
            assert!(tx.drain(PATIENCE).unwrap(), "frames come back");
            assert_eq!(tx.free_frames(), free);
            assert_eq!(tx.counters().tx_completed, 1000);
            sender
        });
        let lost = lab.a.state().unwrap().stats.tx_dropped - before;
        assert_eq!(lost, 1000, "{path}: each loss is counted");

        lab.b.set_up(true).unwrap();
        lab.a.wait_ready().unwrap();
        lab.b.wait_ready().unwrap();
        send_numbers(sender.queues_mut().nth(1).unwrap(), 5000..5001, &lab.a, &lab.b);
        let arrived = receiver
            .queues_mut()
            .rev()
            .any(|rx| collect(rx, 1, Duration::from_millis(500)) == [5000]);
        assert!(arrived, "{path}: the same queues go on");
    }
}

/// K6: `poll()` is silent about the own link. The queue is not, and it goes on when the link is back.
#[test]
fn the_own_link_going_down_is_told_and_survived() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("k6", 3);
        let mut port = open(&lab.a, path, |port| port);
        let mut peer = open(&lab.b, path, |port| port);
        lab.a.set_up(false).unwrap();
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let mut port = within(Duration::from_secs(10), move || {
            // Whatever way it waits; each queue is told once.
            let waits = [Wait::Poll(Duration::MAX), Wait::BusyPoll, Wait::Spin];
            for (queue, wait) in port.queues_mut().zip(waits) {
                assert_eq!(next_event(queue, wait), LinkEvent::Down, "{wait:?}");
                // And waits on.
                let burst = queue.recv(Wait::Poll(Duration::from_millis(20))).unwrap();
                assert!(burst.is_empty() && burst.event().is_none());
            }
            let queue = port.queues_mut().nth(1).unwrap();
            // Sending says so too, and the packet waits in the ring.
            let sent = queue.send_with(1, |slot| assert!(slot.write(&packet(41, a.mac, b.mac))));
            told_down(sent.map(drop));
            told_down(queue.flush());
            port
        });
        lab.a.set_up(true).unwrap();
        lab.a.wait_ready().unwrap();
        lab.b.wait_ready().unwrap();
        let queue = port.queues_mut().nth(1).unwrap();
        while next_event(queue, Wait::Poll(Duration::MAX)) != LinkEvent::Up {}
        queue.flush().unwrap();
        let arrived: Vec<u64> = peer
            .queues_mut()
            .flat_map(|rx| collect(rx, 1, Duration::from_millis(200)))
            .collect();
        assert_eq!(arrived, [41], "{path}");
        send_numbers(peer.queues_mut().nth(1).unwrap(), 7..8, &lab.b, &lab.a);
        let arrived: Vec<u64> = port
            .queues_mut()
            .flat_map(|rx| collect(rx, 1, Duration::from_millis(200)))
            .collect();
        assert_eq!(arrived, [7], "{path}: the same queue receives again");
    }
}

fn told_down(result: Result<(), Error>) {
    assert!(matches!(result, Err(Error::LinkDown { queue: 1, .. })), "{result:?}");
}

/// What happens to the link next, told within a second.
fn next_event(queue: &mut Queue, wait: Wait) -> LinkEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = queue.recv(wait).expect("no error").event() {
            return event.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{wait:?}: nothing is told");
    }
}

/// K6: an interface that is removed under the queue is told, by receiving and by sending, and closing still works.
#[test]
fn a_removed_interface_is_told() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab("k6gone", 2);
        let mut port = open(&lab.a, path, |port| port);
        lab.delete_link().unwrap();
        within(Duration::from_secs(10), move || {
            let queue: &mut Queue = port.queues_mut().nth(1).unwrap();
            let removed = |result: Result<(), Error>| {
                let gone = matches!(
                    result,
                    Err(Error::LinkGone {
                        queue: 1,
                        event: LinkEvent::Removed,
                        ..
                    })
                );
                assert!(gone, "{result:?}");
            };
            // It goes down first, which is told by an empty burst.
            while let Ok(burst) = queue.recv(Wait::Poll(Duration::from_secs(3))) {
                assert!(burst.event().is_some(), "nothing is told");
            }
            removed(queue.recv(Wait::Spin).map(drop));
            removed(queue.send_with(1, |slot| assert!(slot.resize(60))).map(drop));
            let start = Instant::now();
            drop(port);
            assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
        });
    }
}
