//! A port that is taken apart: queues on threads of their own, statistics and the end elsewhere.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringside_netlab::testing::is_root;
use ringside_netlab::wait_until;
use ringside_xsk::{Error, Queue, Stats, Wait};

use crate::common::flow::{Flow, lanes};
use crate::common::{MODES, PATIENCE, assert_clean, lab, open, roomy};

/// Receives and drops until it is to end, and returns the last statistics.
fn work(mut queue: Queue, ends: &AtomicBool) -> Result<Stats, Error> {
    while !ends.load(Ordering::Relaxed) {
        queue.recv(Wait::Poll(Duration::from_millis(10)))?;
    }
    queue.stats()
}

#[test]
fn queues_work_on_threads_that_outlive_the_caller() {
    if !is_root() {
        return;
    }
    for path in MODES {
        let lab = lab(&format!("apart-{}", path.name()), 3);
        let (guard, queues) = open(&lab.b, path, |port| port.queues([0, 1]).options(roomy())).into_queues();
        assert!(queues.iter().all(|queue| queue.as_raw_fd() > 2));
        let ends = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (queues.into_iter())
            .map(|queue| {
                let ends = Arc::clone(&ends);
                thread::spawn(move || work(queue, &ends))
            })
            .collect();
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
        // Others read while the workers have the queues.
        let all_receive = || {
            guard
                .queue_stats()
                .iter()
                .all(|reader| reader.counters().rx_packets > 100)
        };
        assert!(wait_until(PATIENCE, all_receive), "{path}: {:?}", guard.stats());
        assert!(guard.stats().expect("readable").own.rx_packets > 200);
        assert_eq!(guard.report().queues.len(), 2);
        flow.stop();
        let received = || guard.stats().expect("readable").own.rx_packets;
        let are_done = || {
            let before = received();
            thread::sleep(Duration::from_millis(100));
            received() == before
        };
        assert!(wait_until(PATIENCE, are_done), "{path}: {:?}", guard.stats());
        ends.store(true, Ordering::Relaxed);
        let last: Stats = (workers.into_iter())
            .map(|worker| worker.join().expect("no panic").expect("no error"))
            .sum();
        // Of queues that are closed, too.
        assert_eq!(guard.stats().expect("kept"), last, "{path}");
        assert!(
            lab.b.state().expect("there").xdp.is_some(),
            "{path}: the guard keeps the program"
        );
        drop(guard);
        assert_clean(&lab.b);
    }
}

#[test]
fn queues_without_their_guard_receive_nothing_and_do_no_harm() {
    if !is_root() {
        return;
    }
    let path = MODES[0];
    let lab = lab("guardless", 1);
    let (guard, mut queues) = open(&lab.b, path, |port| port.options(roomy())).into_queues();
    drop(guard);
    assert_eq!(lab.b.state().expect("there").xdp, None, "the program is detached");
    let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 1), 500);
    flow.more(20);
    let queue = &mut queues[0];
    assert!(
        queue
            .recv(Wait::Poll(Duration::from_millis(50)))
            .expect("usable")
            .is_empty()
    );
    assert_eq!(queue.ledger().expect("sound").total(), queue.report().frames);
    flow.stop();
    drop(queues);
    assert_clean(&lab.b);
}
