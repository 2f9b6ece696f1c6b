//! Sending when the kernel takes little, nothing, or only a part: K3 to K6.

use std::time::{Duration, Instant};

use crate::common::conformance::{Case, lacks, passed, row, row_on, usual};
use crate::common::traffic::{only, queue};
use crate::common::{PATIENCE, collect, open, packet, roomy, send_numbers, within};
use ringside_netlab::testing::{expect, measured};
use ringside_xsk::{Error, LinkEvent, Path, Queue, QueueOptions, Wait};

/// K3: with a budget of 32 one call sends 32 packets and answers EAGAIN. That is progress, not failure.
#[test]
fn a_used_up_budget_is_no_failure() {
    row_on("K3", usual("k3"), |lab, case| {
        if case.path == Path::ZeroCopy {
            return lacks("with zero-copy the driver decides how many it takes");
        }
        let mut receiver = case.port(&lab.b, roomy(), |port| port);
        let mut tx = case.sender(&lab.a, QueueOptions::new().tx_budget(32));
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
        assert!(collect(only(&mut receiver), 48, PATIENCE).into_iter().eq(0..48));
        passed()
    });
}

/// K4: with 8 places for completions 1000 packets go out all the same, because the ring is emptied before each kick.
#[test]
fn a_small_completion_ring_stops_nothing() {
    row_on("COMPLETION_RING_STARVATION", usual("k4small"), |lab, case| {
        let mut receiver = case.port(&lab.b, roomy(), |port| port);
        let mut tx = case.sender(&lab.a, QueueOptions::new().completion_ring(8));
        assert_eq!(tx.report().completion_ring, 8);
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let (sent, got) = within(Duration::from_secs(20), move || {
            let mut got = Vec::new();
            // Not more at a time than what lies between the two ends can hold.
            for first in (0..1000).step_by(100) {
                send_numbers(&mut tx, first..first + 100, &a, &b);
                got.extend(collect(only(&mut receiver), 100, PATIENCE));
            }
            assert!(tx.drain(PATIENCE).unwrap());
            (tx.counters(), got)
        });
        assert_eq!((sent.tx_packets, sent.tx_completed, sent.tx_abandoned), (1000, 1000, 0));
        assert!(got.iter().copied().eq(0..1000), "{} arrived", got.len());
    });
}

/// K5: with the peer down the kernel takes packet after packet and drops them. Sending neither hangs nor fails, the
/// frames come back, and the loss is where the kernel counts it.
#[test]
fn a_peer_that_is_down_costs_packets_but_no_frames() {
    row("K5", |case| {
        let lab = case.lab("k5");
        let mut receiver = case.port(&lab.b, roomy(), |port| port);
        let mut tx = case.sender(&lab.a, QueueOptions::new());
        let before = lab.a.state().unwrap().stats.tx_dropped;
        lab.b.set_up(false).unwrap();
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let mut tx = within(Duration::from_secs(20), move || {
            let free = tx.free_frames();
            send_numbers(&mut tx, 0..1000, &a, &b);
            assert!(tx.drain(PATIENCE).unwrap(), "frames come back");
            assert_eq!(tx.free_frames(), free);
            assert_eq!(tx.counters().tx_completed, 1000);
            tx
        });
        let lost = lab.a.state().unwrap().stats.tx_dropped - before;
        assert_eq!(lost, 1000, "each loss is counted");

        lab.b.set_up(true).unwrap();
        lab.a.wait_ready().unwrap();
        lab.b.wait_ready().unwrap();
        send_numbers(&mut tx, 5000..5001, &lab.a, &lab.b);
        assert_eq!(
            collect(only(&mut receiver), 1, PATIENCE),
            [5000],
            "the same queues go on"
        );
    });
}

/// K6: `poll()` is silent about the own link. The queue is not, and it goes on when the link is back.
#[test]
fn the_own_link_going_down_is_told_and_survived() {
    row("K6, DOWN_AND_UP", |case| {
        let lab = case.lab("k6");
        let options = || case.options(QueueOptions::new());
        // Whatever way it waits; each queue is told once.
        let waits = [Wait::Poll(Duration::MAX), Wait::BusyPoll, Wait::Spin];
        let mut port = case.port(&lab.a, options(), |port| port.queues(0..3));
        let mut peer = open(&lab.b, case.path, |port| port.options(options()));
        lab.a.set_up(false).unwrap();
        let (a, b) = (lab.a.clone(), lab.b.clone());
        let mut port = within(Duration::from_secs(10), move || {
            for (queue, wait) in port.queues_mut().zip(waits) {
                assert_eq!(next_event(queue, wait), LinkEvent::Down, "{wait:?}");
                // And waits on.
                let burst = queue.recv(Wait::Poll(Duration::from_millis(20))).unwrap();
                assert!(burst.is_empty() && burst.event().is_none());
            }
            let queue = queue(&mut port, case.queue);
            // Sending says so too, and the packet waits in the ring.
            let sent = queue.send_with(1, |slot| assert!(slot.write(&packet(41, a.mac, b.mac))));
            told_down(case.queue, sent.map(drop));
            told_down(case.queue, queue.flush());
            port
        });
        lab.a.set_up(true).unwrap();
        lab.a.wait_ready().unwrap();
        lab.b.wait_ready().unwrap();
        let own = queue(&mut port, case.queue);
        while next_event(own, Wait::Poll(Duration::MAX)) != LinkEvent::Up {}
        own.flush().unwrap();
        assert_eq!(collect(queue(&mut peer, case.to()), 1, PATIENCE), [41]);
        send_numbers(queue(&mut peer, case.from()), 7..8, &lab.b, &lab.a);
        let got = collect(queue(&mut port, case.queue), 1, PATIENCE);
        assert_eq!(got, [7], "the same queue receives again");
    });
}

fn told_down(on: u32, result: Result<(), Error>) {
    assert!(
        matches!(result, Err(Error::LinkDown { queue, .. }) if queue == on),
        "{result:?}"
    );
}

/// Returns the next link event, which comes within a second on an idle machine.
fn next_event(queue: &mut Queue, wait: Wait) -> LinkEvent {
    let start = Instant::now();
    loop {
        if let Some(event) = queue.recv(wait).expect("no error").event() {
            return event.clone();
        }
        assert!(start.elapsed() < Duration::from_secs(3), "{wait:?}: no link event");
    }
}

/// K6: an interface that is removed under the queue is told, by receiving and by sending, and closing still works.
#[test]
fn a_removed_interface_is_told() {
    row("INTERFACE_REMOVED", |case| {
        measured(|| {
            let took = remove(case);
            expect(took < Duration::from_secs(1), format_args!("closing: {took:?}"))
        });
    });
}

/// Removes the interface under a port, and returns how long closing that takes.
fn remove(case: Case) -> Duration {
    let lab = case.lab("k6gone");
    let mut port = case.port(&lab.a, QueueOptions::new(), |port| port);
    lab.delete_link().unwrap();
    within(Duration::from_secs(10), move || {
        let queue: &mut Queue = only(&mut port);
        let removed = |result: Result<(), Error>| {
            let gone = matches!(
                result,
                Err(Error::LinkGone {
                    queue,
                    event: LinkEvent::Removed,
                    ..
                }) if queue == case.queue
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
        start.elapsed()
    })
}
