//! The link goes down and up, away, elsewhere; its queues become more and fewer.

use std::cell::RefCell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringside_netlab::{End, Lab, Namespace, wait_until};
use ringside_nic::LinkWatch;
use ringside_xsk::{BusyPoll, Direction, Error, Interface, LinkEvent, Path, Queue, QueueOptions, Wait};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::common::PATIENCE;
use super::common::account::{Account, Balance};
use super::common::bystander::Bystander;
use super::common::flow::{Flow, Seen, VETH_RING, lanes, receiving};
use super::common::{assert_clean, lab, open, packet, roomy};
use super::last_words::LastWords;
use super::{RECOVERY, in_every_mode, successor};

/// The last one sleeps for longer than may pass until it is told what happened.
const WAITS: [Wait; 3] = [Wait::Spin, Wait::BusyPoll, Wait::Poll(Duration::from_secs(3))];

/// Within which a queue is told what happened to its link.
const TOLD: Duration = Duration::from_secs(1);

fn options(wait: Wait) -> QueueOptions {
    match wait {
        Wait::BusyPoll => roomy().busy_poll(BusyPoll::with_budget(64)),
        _ => roomy(),
    }
}

/// What the queues of an end see, beside one who watches its link, and one who knows how busy the machine is.
struct Stand {
    seen: Seen,
    watch: RefCell<LinkWatch>,
    bystander: Bystander,
}

impl Stand {
    fn at(end: &End) -> Self {
        Self {
            seen: Seen::default(),
            watch: RefCell::new(end.run(|| LinkWatch::open(&end.interface).unwrap())),
            bystander: Bystander::beside(end),
        }
    }

    /// Waits until the kernel has told such an event, and until all of so many queues have been told.
    fn told(&self, queues: u32, like: impl Fn(&LinkEvent) -> bool) {
        let mut told = Vec::new();
        let mut watch = self.watch.borrow_mut();
        let kernel = wait_until(PATIENCE, || {
            told.extend(std::iter::from_fn(|| watch.next().unwrap()));
            told.iter().any(&like)
        });
        assert!(kernel, "not even to the test: {told:?}");
        let start = Instant::now();
        let mut missing = 0;
        let queues = wait_until(PATIENCE, || {
            let events = &self.seen.lock().events;
            let told = |queue: &u32| events.iter().any(|(to, event)| to == queue && like(event));
            missing = (0..queues).filter(|queue| !told(queue)).count();
            missing == 0
        });
        assert!(queues, "{missing} queues are not told what the kernel told: {told:?}");
        self.bystander.within(TOLD, start);
    }

    /// Waits for packets, which were to come since then.
    fn again(&self, since: Instant) {
        assert!(self.seen.more(20), "nothing comes any more");
        self.bystander.within(RECOVERY, since);
    }
}

fn is_gone(event: &LinkEvent) -> bool {
    // The socket may know before the message is read, and then not where it went.
    matches!(event, LinkEvent::Removed | LinkEvent::Moved { .. })
}

/// Fifty times in a row, now this end and now the other, whatever way the queues wait. What is sent meanwhile the sender's
/// kernel drops and counts, or, where the sender's own end is down, it waits in the TX ring.
#[test]
fn a_link_goes_down_and_up_fifty_times() {
    in_every_mode("flap", |path, tag| {
        let lab = lab(tag, 3);
        let stand = Stand::at(&lab.b);
        let account = Account::open(&lab.a, &lab.b);
        let mut port = open(&lab.b, path, |port| {
            port.queues([0, 1]).options(options(Wait::BusyPoll))
        });
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 200);
        for round in 0..50 {
            let (end, down) = if round % 2 == 0 {
                (&lab.b, LinkEvent::Down)
            } else {
                (&lab.a, LinkEvent::NoCarrier)
            };
            // Spinning most of the time would only show how long the others wait for a processor.
            let wait = WAITS[(round / 2 % 5).min(2)];
            receiving(&mut port, &stand.seen, wait, || {
                assert!(stand.seen.more(20));
                stand.seen.lock().events.clear();
                end.set_up(false).unwrap();
                stand.told(2, |event| *event == down);
                end.set_up(true).unwrap();
                let since = Instant::now();
                stand.again(since);
                stand.told(2, |event| *event == LinkEvent::Up);
            });
        }
        let sent = receiving(&mut port, &stand.seen, Wait::Spin, || flow.stop());
        let stats = port.stats().unwrap();
        let balance = account.close(path, sent.taken(), stand.seen.packets(), stats.kernel);
        assert_eq!(balance.unread, 0);
        assert!(balance.purged <= 25 * 2 * VETH_RING, "{balance:?}");
        assert_eq!(stats.own.rx_packets, stand.seen.packets());
        drop(port);
        assert_clean(&lab.b);
        stand.bystander.in_time()
    });
}

/// Both ends go away, and come back as new ones. Everything that came before is received, the port and that of the sender
/// open again by themselves, and both lives of the link add up.
#[test]
fn an_interface_is_deleted_and_made_again() {
    in_every_mode("deleted", |path, tag| {
        for wait in WAITS {
            let lab = lab(tag, 3);
            let stand = Stand::at(&lab.b);
            let mut words = [&lab.a, &lab.b].map(LastWords::listen);
            let account = Account::open(&lab.a, &lab.b);
            let mut port = open(&lab.b, path, |port| port.queues([0, 1]).options(options(wait)));
            let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
            receiving(&mut port, &stand.seen, wait, || {
                assert!(stand.seen.more(100));
                lab.delete_link().unwrap();
                stand.told(2, is_gone);
            });
            let (before, stats) = (stand.seen.packets(), port.stats().unwrap());

            // For as long as there is no successor, an error that says so; and then a port as before.
            let error = lab.b.run(|| port.reopen(Duration::from_millis(50))).expect_err("gone");
            assert!(error.to_string().contains("veth-b"), "{error}");
            assert!(port.queues().is_empty());
            let (again, since) = std::thread::scope(|scope| {
                let reopened = scope.spawn(|| lab.b.run(|| port.reopen(PATIENCE)));
                std::thread::sleep(Duration::from_millis(100));
                let again = Lab::join(&lab.a.ns, &lab.b.ns, successor(3)).unwrap();
                let since = Instant::now();
                reopened.join().unwrap().unwrap();
                (again, since)
            });
            let sent = receiving(&mut port, &stand.seen, wait, || {
                stand.again(since);
                flow.stop()
            });
            let [first, second] = sent.ports[..] else {
                panic!("{sent:?}");
            };
            let ends = words.each_mut().map(LastWords::stats);
            let balance = account.balance(ends, path, first.own.tx_completed, before, stats.kernel);
            assert!(balance.unread == 0 && balance.purged <= 2 * VETH_RING, "{balance:?}");
            let (after, stats) = (stand.seen.packets() - before, port.stats().unwrap());
            let account = Account::of_new(&again.a, &again.b);
            let balance = account.close(path, second.own.tx_completed, after, stats.kernel);
            assert_eq!(balance, Balance::EVEN);
            drop(port);
            assert_clean(&again.b);
            stand.bystander.in_time()?;
        }
        Ok(())
    });
}

/// A queue learns that its link is gone when it has received what came before, even if it has something to send.
#[test]
fn what_came_before_the_end_is_received() {
    in_every_mode("leave", |path, tag| {
        let lab = lab(tag, 1);
        let mut port = open(&lab.b, path, |port| port.options(roomy()));
        // Slow enough that the ring of the veth has room while a CPU is away.
        let flow = Flow::start(&lab.a, &lab.b, &[0], 100);
        flow.more(300);
        let sent = flow.stop();
        let queue = port.queues_mut().next().unwrap();
        let mut frame = queue.alloc().unwrap();
        assert!(frame.write(&packet(1, lab.b.mac, lab.a.mac)));
        queue.send(frame).unwrap();
        lab.delete_link().unwrap();
        let seen = Seen::default();
        let gone = loop {
            match queue.recv(Wait::Poll(RECOVERY)) {
                Ok(mut burst) => {
                    let event = burst.event().is_some();
                    assert!(seen.note(&mut burst) != 0 || event, "{path}: nothing is told");
                }
                Err(error) => break error,
            }
        };
        assert!(matches!(gone, Error::LinkGone { .. }), "{gone}");
        assert_eq!(seen.packets(), sent.taken(), "{path}");
        // The one that never left is known.
        let counters = queue.counters();
        assert_eq!((counters.tx_packets, counters.tx_completed), (1, 0));
        Ok(())
    });
}

/// It goes to another network namespace, and when the port knows it nothing of ours is on it any more; it comes back, and
/// so do the packets.
#[test]
fn an_interface_moves_to_another_namespace_and_back() {
    in_every_mode("moves", |path, tag| {
        for wait in WAITS {
            let lab = lab(tag, 3);
            let stand = Stand::at(&lab.b);
            let there = Namespace::create(&format!("{tag}-there")).unwrap();
            let account = Account::open(&lab.a, &lab.b);
            let mut port = open(&lab.b, path, |port| port.queues([0, 1]).options(options(wait)));
            let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
            receiving(&mut port, &stand.seen, wait, || {
                assert!(stand.seen.more(100));
                moves(&lab.b.ns, &there);
                stand.told(2, is_gone);
            });
            let mut stats = port.stats().unwrap();
            let gone = lab.b.run(|| port.reopen(Duration::ZERO));
            gone.expect_err("it is elsewhere");
            let state = there.run(|| Interface::by_name("veth-b").unwrap().state().unwrap());
            assert_eq!(state.xdp, None, "{path}: the program went along");

            moves(&there, &lab.b.ns);
            lab.b.set_up(true).unwrap();
            let since = Instant::now();
            lab.b.run(|| port.reopen(PATIENCE)).unwrap();
            let sent = receiving(&mut port, &stand.seen, wait, || {
                stand.again(since);
                flow.stop()
            });
            stats += port.stats().unwrap();
            let balance = account.close(path, sent.taken(), stand.seen.packets(), stats.kernel);
            assert!(balance.unread == 0 && balance.purged <= 2 * VETH_RING, "{balance:?}");
            drop(port);
            assert_clean(&lab.b);
            stand.bystander.in_time()?;
        }
        Ok(())
    });
}

fn moves(from: &Namespace, to: &Namespace) {
    let arguments = ["link", "set", "veth-b", "netns", to.name()];
    let status = from.command("ip").args(arguments).status().unwrap();
    assert!(status.success());
}

fn set_channels(end: &End, count: u32) -> Result<(), Option<i32>> {
    end.run(|| {
        let mut channels = end.interface.channels().unwrap();
        (channels.rx, channels.tx) = (count, count);
        end.interface.set_channels(channels).map_err(|error| error.errno())
    })
}

/// More queues and fewer, while two are busy and one is idle: each is told, those that are there go on without a loss, and
/// a port that is opened again has them all.
#[test]
fn queues_become_more_and_fewer() {
    in_every_mode("channels", |path, tag| {
        let lab = lab(tag, 4);
        // A veth takes native XDP only when it has as many queues to receive as its peer has to send.
        set_channels(&lab.a, if path == Path::Generic { 3 } else { 2 }).unwrap();
        set_channels(&lab.b, 3).unwrap();
        let stand = Stand::at(&lab.b);
        let account = Account::open(&lab.a, &lab.b);
        let mut port = open(&lab.b, path, |port| port.options(options(Wait::BusyPoll)));
        assert_eq!(port.queues().len(), 3);
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, 2), 500);
        for wait in WAITS.into_iter().rev() {
            receiving(&mut port, &stand.seen, wait, || {
                for count in [4, 3, 4] {
                    assert!(stand.seen.more(50));
                    stand.seen.lock().events.clear();
                    set_channels(&lab.b, count).unwrap();
                    stand.told(
                        3,
                        |event| matches!(event, LinkEvent::QueuesChanged { rx, .. } if *rx == count),
                    );
                }
                // A queue that is bound stays.
                assert_eq!(set_channels(&lab.b, 2), Err(Some(libc::EINVAL)));
                assert!(stand.seen.more(50));
                set_channels(&lab.b, 3).unwrap();
                stand.told(3, |event| matches!(event, LinkEvent::QueuesChanged { rx: 3, .. }));
            });
        }
        // All of it is read before the port closes.
        let sent = receiving(&mut port, &stand.seen, Wait::Spin, || flow.stop());
        let mut stats = port.stats().unwrap();
        set_channels(&lab.b, 4).unwrap();
        lab.b.run(|| port.reopen(PATIENCE)).unwrap();
        assert_eq!(port.queues().len(), 4);
        // From all queues that there are now, as many as that leads to in each mode.
        set_channels(&lab.a, 4).unwrap();
        let (queues, all) = (if path == Path::Generic { 3 } else { 4 }, Seen::default());
        let flow = Flow::start(&lab.a, &lab.b, &lanes(path, queues), 500);
        let more = receiving(&mut port, &all, Wait::Spin, || {
            let everywhere = wait_until(PATIENCE, || all.lock().lanes() == queues);
            assert!(everywhere, "{path}: {:?}", all.lock());
            flow.stop()
        });
        stats += port.stats().unwrap();
        let (taken, received) = (sent.taken() + more.taken(), stand.seen.packets() + all.packets());
        assert_eq!(account.close(path, taken, received, stats.kernel), Balance::EVEN);
        drop(port);
        assert_clean(&lab.b);
        stand.bystander.in_time()
    });
}

/// A queue that always has packets never waits. It is told all the same, and its packets are there after that.
#[test]
fn a_queue_that_is_never_idle_is_told() {
    in_every_mode("busy", |path, tag| {
        let lab = lab(tag, 2);
        set_channels(&lab.a, 1).unwrap();
        set_channels(&lab.b, 1).unwrap();
        let account = Account::open(&lab.a, &lab.b);
        let options = roomy().direction(Direction::Receive).batch(1);
        let mut port = open(&lab.b, path, |port| port.options(options.clone()));
        let flow = Flow::start(&lab.a, &lab.b, &[0], 1000);
        flow.more(1500);
        let sent = flow.stop();
        set_channels(&lab.b, 2).unwrap();
        let queue = port.queues_mut().next().unwrap();
        let seen = Seen::default();
        let told = loop {
            let mut burst = queue.recv(Wait::Spin).unwrap();
            match burst.event() {
                Some(event) => break event.clone(),
                None => assert_eq!(seen.note(&mut burst), 1, "{path}: idle after {}", seen.packets()),
            }
            // Most applications do something with their packets.
            std::thread::sleep(Duration::from_millis(3));
        };
        assert_eq!(told, LinkEvent::QueuesChanged { rx: 2, tx: 2 });
        while seen.note(&mut queue.recv(Wait::Poll(Duration::from_millis(10))).unwrap()) != 0 {}
        let balance = account.close(path, sent.taken(), seen.packets(), port.stats().unwrap().kernel);
        assert_eq!(balance, Balance::EVEN);
        Ok(())
    });
}

/// An application that looks five times a second, as one with a timer does, is told in time.
#[test]
fn a_queue_that_is_seldom_looked_at_is_told() {
    in_every_mode("seldom", |path, tag| {
        let lab = lab(tag, 1);
        let bystander = Bystander::beside(&lab.b);
        let mut port = open(&lab.b, path, |port| port.options(roomy()));
        let queue = port.queues_mut().next().unwrap();
        queue.recv(Wait::Spin).unwrap();
        lab.b.set_up(false).unwrap();
        let start = Instant::now();
        let told = loop {
            if let Some(event) = queue.recv(Wait::Spin).unwrap().event() {
                break event.clone();
            }
            assert!(start.elapsed() < PATIENCE, "{path}: nothing is told");
            std::thread::sleep(Duration::from_millis(200));
        };
        assert_eq!(told, LinkEvent::Down, "{path}");
        bystander.within(TOLD, start);
        bystander.in_time()
    });
}

/// An event loop sleeps until there is a packet or an event, however long that takes.
#[test]
fn an_event_loop_is_woken_by_the_link() {
    in_every_mode("loop", |path, tag| {
        let lab = lab(tag, 1);
        let mut port = open(&lab.b, path, |port| port.options(roomy()));
        let queue = port.queues_mut().next().unwrap();
        // One thread at a time may use a queue.
        let (mut watch, queue) = lab.b.run(move || (queue.watch_link().unwrap(), queue));
        let mut until = |queue: &Queue, expected: LinkEvent| {
            let mut seen = Vec::new();
            while !seen.contains(&expected) {
                let mut fds = [queue.as_fd(), watch.as_fd()].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
                let patience = Timespec::try_from(PATIENCE).unwrap();
                let woken = poll(&mut fds, Some(&patience)).unwrap();
                assert!(
                    woken != 0,
                    "{path}: nothing wakes it after {seen:?}, and {expected:?} is due"
                );
                assert!(!fds[1].revents().is_empty(), "{path}: there are no packets");
                seen.extend(std::iter::from_fn(|| watch.next().unwrap()));
            }
        };
        lab.b.set_up(false).unwrap();
        until(queue, LinkEvent::Down);
        lab.b.set_up(true).unwrap();
        until(queue, LinkEvent::Up);
        lab.delete_link().unwrap();
        until(queue, LinkEvent::Removed);
        let gone = loop {
            if let Err(error) = queue.recv(Wait::Spin) {
                break error;
            }
        };
        assert!(matches!(gone, Error::LinkGone { .. }), "{path}: {gone}");
        Ok(())
    });
}
