//! Rings that run dry or full, because the application or the other side takes nothing.

use std::time::{Duration, Instant};

use ringside_netlab::wait_until;
use ringside_xsk::{Error, KernelStats, Path, Queue, QueueOptions, Wait};

use super::common::PATIENCE;
use super::common::account::{Account, Balance};
use super::common::bystander::Bystander;
use super::common::flow::{Flow, Seen, lanes, receiving};
use super::common::{assert_clean, check, lab, open, send_numbers, try_open};
use super::jam::Jam;
use super::{RECOVERY, in_every_mode};

/// An application that keeps every frame starves its own fill ring. What it keeps stays whole, what finds no frame is
/// counted, and when it lets go packets come again.
#[test]
fn a_fill_ring_that_runs_dry_fills_again() {
    in_every_mode("dry", |path, tag| {
        let lab = lab(tag, 3);
        let bystander = Bystander::beside(&lab.b);
        let account = Account::open(&lab.a, &lab.b);
        let mut port = open(&lab.b, path, |port| port.queues([0, 1]));
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
        let seen = Seen::default();
        for _ in 0..5 {
            let mut kept = Vec::new();
            let dry = |queue: &Queue| queue.stats().unwrap().kernel.rx_fill_ring_empty;
            let before: u64 = port.queues().iter().map(dry).sum();
            let is_dry = wait_until(PATIENCE, || {
                for queue in port.queues_mut() {
                    let mut burst = queue.recv(Wait::Poll(Duration::from_millis(1))).unwrap();
                    for packet in &mut burst {
                        if let Some(n) = check(packet.data()) {
                            seen.lock().take(n);
                            kept.push((n, packet.keep()));
                        }
                    }
                }
                port.queues().iter().map(dry).sum::<u64>() > before + 500
            });
            assert!(is_dry);
            for (n, frame) in &kept {
                assert_eq!(
                    check(frame.data()),
                    Some(*n),
                    "{path}: a frame that was kept has changed"
                );
            }
            drop(kept);
            let since = Instant::now();
            receiving(&mut port, &seen, Wait::Poll(Duration::from_millis(20)), || {
                assert!(seen.more(1000))
            });
            bystander.within(RECOVERY, since);
        }
        let sent = receiving(&mut port, &seen, Wait::Poll(Duration::from_millis(20)), || flow.stop());
        let balance = account.close(path, sent.taken(), seen.packets(), port.stats().unwrap().kernel);
        assert_eq!(balance, Balance::EVEN);
        drop(port);
        assert_clean(&lab.b);
        bystander.in_time()
    });
}

/// Nobody reads: that costs the one who does not read, and not the one who sends.
#[test]
fn a_receiver_that_does_not_read_does_not_stop_the_sender() {
    in_every_mode("deaf", |path, tag| {
        let lab = lab(tag, 3);
        let bystander = Bystander::beside(&lab.b);
        let account = Account::open(&lab.a, &lab.b);
        let mut port = open(&lab.b, path, |port| port.queues([0, 1]));
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 1000);
        let seen = Seen::default();
        flow.more(10_000);
        let since = Instant::now();
        let sent = receiving(&mut port, &seen, Wait::Poll(Duration::from_millis(20)), || {
            // What waited, and more.
            assert!(seen.more(2000));
            bystander.within(RECOVERY, since);
            flow.stop()
        });
        let (counters, kernel) = (sent.ports[0].own, port.stats().unwrap().kernel);
        assert_eq!((sent.stalls, counters.tx_abandoned), (0, 0));
        assert_eq!(counters.tx_packets, counters.tx_completed);
        let balance = account.close(path, sent.taken(), seen.packets(), kernel);
        assert_eq!(balance, Balance::EVEN);
        assert!(kernel.rx_fill_ring_empty > 5000, "{kernel:?}");
        drop(port);
        assert_clean(&lab.b);
        bystander.in_time()
    });
}

/// Completions do not come, because the other host holds the packets. The sender is told that nothing moves, receiving goes
/// on, and when the other host lets go everything that was sent arrives.
#[test]
fn completions_that_do_not_come_stop_only_the_sending() {
    in_every_mode("jam", |path, tag| {
        let lab = lab(tag, 3);
        let bystander = Bystander::beside(&lab.a);
        let (account, back) = (Account::open(&lab.a, &lab.b), Account::open(&lab.b, &lab.a));
        let jam = Jam::at(&lab.b);
        let options = QueueOptions::new()
            .frames(512)
            .stall_timeout(Duration::from_millis(100));
        let port = open(&lab.a, path, |port| port.queues([0, 1, 2]).options(options.clone()));
        let flow = Flow::on(port, &lab.a, &lab.b, &[1], 500);
        let other = Flow::start(&lab.b, &lab.a, &lanes(path, 2), 200);
        let answers = std::sync::Arc::clone(&flow.answers);

        let stuck = wait_until(PATIENCE, || {
            let before = flow.written();
            std::thread::sleep(Duration::from_millis(400));
            flow.written() <= before + 8
        });
        assert!(stuck, "{path}: {} packets, and no end", flow.written());
        assert!(answers.more(200), "{path}: receiving has stopped");
        let since = Instant::now();
        jam.dissolve();
        flow.more(1000);
        bystander.within(RECOVERY, since);
        let there = other.stop();
        let sent = flow.stop();
        assert!(sent.stalls > 0, "{path}: nobody was told");
        let counters = sent.ports[0].own;
        assert_eq!(counters.tx_packets, counters.tx_completed);
        let balance = account.close(Path::Generic, sent.taken(), 0, KernelStats::default());
        assert_eq!(balance, Balance::EVEN);
        let balance = back.close(path, there.taken(), answers.packets(), sent.ports[0].kernel);
        assert_eq!(balance, Balance::EVEN);
        assert_clean(&lab.a);
        bystander.in_time()
    });
}

/// A queue whose packets the kernel still has is not free when it is closed: for so long it is told to be busy, and to who
/// waits it opens as soon as they are gone.
#[test]
fn a_queue_opens_again_when_its_last_packets_are_gone() {
    in_every_mode("linger", |path, tag| {
        let lab = lab(tag, 3);
        let bystander = Bystander::beside(&lab.a);
        let account = Account::open(&lab.a, &lab.b);
        let jam = Jam::at(&lab.b);
        let try_open = |timeout| {
            let options = QueueOptions::new().busy_timeout(timeout);
            try_open(&lab.a, path, |port| port.queues([1]).options(options))
        };
        let mut port = try_open(PATIENCE).unwrap();
        let queue = port.queues_mut().next().unwrap();
        send_numbers(queue, 0..100, &lab.a, &lab.b);
        assert!(queue.in_flight() > 50);
        drop(port);
        let error = try_open(Duration::from_millis(100)).expect_err("the kernel has its packets");
        assert!(matches!(error, Error::QueueBusy { queue: 1, .. }), "{path}: {error}");
        assert_eq!(lab.a.state().unwrap().xdp, None, "{path}: a program was left");
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| try_open(PATIENCE));
            std::thread::sleep(Duration::from_millis(100));
            let since = Instant::now();
            jam.dissolve();
            let port = opened.join().unwrap().unwrap();
            bystander.within(RECOVERY, since);
            drop(port);
        });
        let balance = account.close(Path::Generic, 100, 0, KernelStats::default());
        assert_eq!(balance, Balance::EVEN);
        assert_clean(&lab.a);
        bystander.in_time()
    });
}
