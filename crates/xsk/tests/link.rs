//! What happens to the link is told to a queue that waits, in whatever way, within a second; and a port comes back.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{MODES, arrives_at, assert_clean, collect, lab, leading_to, open, send_numbers, sender, within};
use ringside_netlab::testing::is_root;
use ringside_netlab::{End, Lab, Namespace, VethConfig};
use ringside_xsk::{BusyPoll, Error, LinkEvent, Path, Port, Queue, QueueOptions, Wait};

const PATIENCE: Duration = Duration::from_secs(2);
const WAITS: [Wait; 3] = [Wait::Spin, Wait::Poll(Duration::MAX), Wait::BusyPoll];

fn ip(end: &End, arguments: &str) {
    let output = Command::new("ip")
        .args(["netns", "exec", end.ns.name(), "ip"])
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "ip {arguments}: {output:?}");
}

/// What a waiting queue is told first, and how long after `change` began.
fn told(port: Port, wait: Wait, change: impl FnOnce()) -> (Port, Result<LinkEvent, Error>, Duration) {
    let waiting = std::thread::spawn(move || {
        within(Duration::from_secs(10), move || {
            let mut port = port;
            let told = next(port.queues_mut().next().unwrap(), wait);
            (port, told, Instant::now())
        })
    });
    // It has begun to wait, and does so for longer than one slice of a poll.
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    change();
    let changed = Instant::now();
    let (port, told, when) = waiting.join().expect("no panic");
    // The kernel may take its time for the change itself.
    (port, told, when.saturating_duration_since(changed).min(when - start))
}

fn next(queue: &mut Queue, wait: Wait) -> Result<LinkEvent, Error> {
    loop {
        if let Some(event) = queue.recv(wait)?.event() {
            return Ok(event.clone());
        }
    }
}

fn options(wait: Wait) -> QueueOptions {
    match wait {
        Wait::BusyPoll => QueueOptions::new().busy_poll(BusyPoll::with_budget(64)),
        _ => QueueOptions::new(),
    }
}

/// Whether traffic from `from` comes to the first queue of the port.
fn receives(port: &mut Port, from: &End, to: &End, path: Path) {
    let mut source = sender(from);
    send_numbers(source.queues_mut().nth(leading_to(0, path)).unwrap(), 0..10, from, to);
    let got = collect(port.queues_mut().next().unwrap(), 10, PATIENCE);
    assert!(got.into_iter().eq(0..10), "{path}");
}

#[test]
fn down_and_up_are_told_and_survived() {
    if !is_root() {
        return;
    }
    for path in MODES {
        for wait in WAITS {
            let lab = lab("flap", 2);
            let port = open(&lab.b, path, |port| port.options(options(wait)));
            let (mut port, event, after) = told(port, wait, || lab.b.set_up(false).unwrap());
            assert!(matches!(event, Ok(LinkEvent::Down)), "{path} {wait:?}: {event:?}");
            assert!(after < Duration::from_secs(1), "{path} {wait:?}: {after:?}");
            lab.b.set_up(true).unwrap();
            while !matches!(next(port.queues_mut().next().unwrap(), wait), Ok(LinkEvent::Up)) {}
            lab.a.wait_ready().unwrap();
            receives(&mut port, &lab.a, &lab.b, path);

            // The other end.
            let (mut port, event, _) = told(port, wait, || lab.a.set_up(false).unwrap());
            assert!(matches!(event, Ok(LinkEvent::NoCarrier)), "{path} {wait:?}: {event:?}");
            lab.a.set_up(true).unwrap();
            while !matches!(next(port.queues_mut().next().unwrap(), wait), Ok(LinkEvent::Up)) {}
            receives(&mut port, &lab.a, &lab.b, path);
        }
    }
}

#[test]
fn a_removed_interface_is_told_and_its_successor_taken() {
    if !is_root() {
        return;
    }
    for path in MODES {
        for wait in WAITS {
            let lab = lab("successor", 2);
            let port = open(&lab.b, path, |port| port.options(options(wait)));
            let (port, event, after) = told(port, wait, || lab.delete_link().unwrap());
            // Some kernels tell first that it goes down.
            let mut port = match event {
                Ok(LinkEvent::Down) => port,
                Err(Error::LinkGone { .. }) => port,
                other => panic!("{path} {wait:?}: {other:?}"),
            };
            assert!(after < Duration::from_secs(1), "{path} {wait:?}: {after:?}");
            let gone = next(port.queues_mut().next().unwrap(), wait);
            let Err(Error::LinkGone { event, .. }) = &gone else {
                panic!("{gone:?}")
            };
            assert_eq!(*event, LinkEvent::Removed);
            // For as long as there is no successor, an error that says so; and then a port as before.
            let mut port = lab.b.run(|| {
                let error = port.reopen(Duration::from_millis(100)).expect_err("nothing there");
                assert!(error.to_string().contains("veth-b"), "{error}");
                assert!(port.queues().is_empty());
                port
            });
            let again = std::thread::scope(|scope| {
                let reopened = scope.spawn(|| lab.b.run(|| port.reopen(Duration::from_secs(5))));
                std::thread::sleep(Duration::from_millis(200));
                let config = VethConfig {
                    queues: 2,
                    tx_checksum: false,
                    ipv6: false,
                    gro: true,
                    ..VethConfig::tagged("again")
                };
                let again = Lab::join(&lab.a.ns, &lab.b.ns, config).unwrap();
                reopened.join().unwrap().unwrap();
                again
            });
            assert_eq!(port.queues().len(), 2);
            receives(&mut port, &again.a, &again.b, path);
            drop(port);
            assert_clean(&again.b);
        }
    }
}

#[test]
fn an_interface_that_moves_away_is_told() {
    if !is_root() {
        return;
    }
    for path in MODES {
        for wait in WAITS {
            let lab = lab("moves", 1);
            let other = Namespace::create("moves-there").unwrap();
            let port = open(&lab.b, path, |port| port.options(options(wait)));
            let (mut port, event, after) = told(port, wait, || {
                ip(&lab.b, &format!("link set veth-b netns {}", other.name()));
            });
            assert!(after < Duration::from_secs(1), "{path} {wait:?}: {after:?}");
            let gone = match event {
                Ok(LinkEvent::Down) => next(port.queues_mut().next().unwrap(), wait),
                other => other,
            };
            // The socket may know before the message is read, and then not where it went.
            let told = matches!(
                &gone,
                Err(Error::LinkGone {
                    event: LinkEvent::Moved { .. } | LinkEvent::Removed,
                    ..
                })
            );
            assert!(told, "{path} {wait:?}: {gone:?}");
            // Nothing of ours is left on it there.
            let back = Command::new("ip")
                .args([
                    "netns",
                    "exec",
                    other.name(),
                    "ip",
                    "link",
                    "set",
                    "veth-b",
                    "netns",
                    lab.b.ns.name(),
                ])
                .status()
                .unwrap();
            assert!(back.success());
            ip(&lab.b, "link set veth-b up");
            lab.b.run(|| port.reopen(Duration::from_secs(5))).unwrap();
            lab.a.wait_ready().unwrap();
            receives(&mut port, &lab.a, &lab.b, path);
        }
    }
}

#[test]
fn other_numbers_of_queues_are_told_and_taken() {
    if !is_root() {
        return;
    }
    for path in MODES {
        for wait in WAITS {
            let lab = lab("channels", 4);
            let channels = |end: &End, count: u32| {
                end.run(|| {
                    let mut channels = end.interface.channels().unwrap();
                    (channels.rx, channels.tx) = (count, count);
                    end.interface.set_channels(channels).unwrap();
                });
            };
            // A veth takes XDP only when it has as many queues to receive as its peer has to send.
            channels(&lab.a, 2);
            channels(&lab.b, 2);
            let port = open(&lab.b, path, |port| port.options(options(wait)));
            assert_eq!(port.queues().len(), 2);
            let (mut port, event, after) = told(port, wait, || channels(&lab.b, 4));
            assert!(
                matches!(event, Ok(LinkEvent::QueuesChanged { rx: 4, tx: 4 })),
                "{path} {wait:?}: {event:?}"
            );
            assert!(after < Duration::from_secs(1), "{path} {wait:?}: {after:?}");
            // Those that are there go on, and all are had by opening anew.
            receives(&mut port, &lab.a, &lab.b, path);
            lab.b.run(|| port.reopen(Duration::from_secs(5))).unwrap();
            assert_eq!(port.queues().len(), 4);
            channels(&lab.a, 4);
            let mut source = sender(&lab.a);
            for queue in 0..4_usize {
                let Some(tx) = source.queues_mut().nth(leading_to(queue, path)) else {
                    continue;
                };
                send_numbers(tx, 0..10, &lab.a, &lab.b);
                let rx = port
                    .queues_mut()
                    .nth(arrives_at(leading_to(queue, path), path))
                    .unwrap();
                assert!(collect(rx, 10, PATIENCE).into_iter().eq(0..10), "{path} queue {queue}");
            }
        }
    }
}

/// The kernel tells each change of each link of the namespace. Those of other links end no sleep before its time.
#[test]
fn changes_of_other_links_cut_no_sleep_short() {
    if !is_root() {
        return;
    }
    let lab = lab("otherlinks", 1);
    let mut port = open(&lab.b, Path::NativeCopy, |port| port);
    let queue = port.queues_mut().next().unwrap();
    let sleep = Duration::from_millis(400);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for mtu in [9001, 9002, 9003] {
                std::thread::sleep(Duration::from_millis(50));
                ip(&lab.b, &format!("link set dev lo mtu {mtu}"));
            }
        });
        let start = Instant::now();
        let burst = queue.recv(Wait::Poll(sleep)).unwrap();
        assert!(burst.is_empty() && burst.event().is_none());
        assert!(start.elapsed() >= sleep, "{:?}", start.elapsed());
    });
}
