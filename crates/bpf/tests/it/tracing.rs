//! Probes are found in packets of every shape, and nothing else is; hooks cost nothing before and after.
//!
//! A tracer sees the whole machine: `scripts/run-tests` runs these when nothing else runs.

use std::net::UdpSocket;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::common::packets::*;
use crate::common::{LEAST, PATIENCE, Pair, privileged, with_only};
use ringside_bpf::{Error, Generator, GeneratorOptions, TraceEvent, TraceOptions, TraceReader, Tracer};
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe, SHORT_LEN, ShortProbe};
use ringside_measure::trace::Point;
use ringside_netlab::wait_until;

const SESSION: u32 = 0x5e55_1071;

fn probe(sequence: u64) -> Vec<u8> {
    probe_of(SESSION, sequence)
}

fn probe_of(session: u32, sequence: u64) -> Vec<u8> {
    let probe = Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session,
        sequence,
        intended_ns: 70,
        sent_ns: 80,
    };
    let mut payload = vec![0; HEADER_LEN];
    probe.encode(&mut payload).unwrap();
    payload
}

fn options() -> TraceOptions {
    TraceOptions {
        session: Some(SESSION),
        one_of: 1,
        disturbers: false,
        tasks: false,
    }
}

/// What was told by now, and a moment later.
fn told(reader: &TraceReader) -> Vec<TraceEvent> {
    thread::sleep(Duration::from_millis(20));
    reader.read().unwrap().0
}

/// Reads events until `done` is true of all of them, and those of the next 20 ms.
fn read_until(reader: &TraceReader, mut done: impl FnMut(&[TraceEvent]) -> bool) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    wait_until(PATIENCE, || {
        events.extend(reader.read().unwrap().0);
        done(&events)
    });
    events.extend(told(reader));
    events
}

fn sequences(events: &[TraceEvent], point: Point) -> Vec<u64> {
    let of = events.iter().filter(|event| event.point == point as u8);
    of.map(|event| event.sequence).collect()
}

/// What the stack takes, frame by frame, made without a socket.
#[test]
fn a_probe_is_found_whatever_is_around_it() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    // Without it a veth takes no frames that were made in the kernel.
    pair.right.command("ethtool -K veth0 gro on");
    let mut tracer = Tracer::load(options()).unwrap();
    let reader = tracer.reader().unwrap();
    tracer.attach().unwrap();

    let v4 = |payload: &[u8]| ethernet(&[], ETH_IPV4, &ipv4(UDP, &udp(PORT, payload)));
    let other = |change: fn(&mut [u8])| {
        let mut payload = probe(99);
        change(&mut payload);
        v4(&payload)
    };
    let short = ShortProbe {
        kind: Kind::Request,
        session: SESSION,
        sequence: 99,
    };
    let mut short_payload = [0; SHORT_LEN + 30];
    short.encode(&mut short_payload).unwrap();
    let frames = [
        (Some(1), v4(&probe(1))),
        (Some(2), ethernet(&[VLAN], ETH_IPV4, &ipv4(UDP, &udp(PORT, &probe(2))))),
        (
            Some(3),
            ethernet(&[SERVICE_VLAN], ETH_IPV4, &ipv4(UDP, &udp(PORT, &probe(3)))),
        ),
        (
            Some(4),
            ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[1; 8], 0, &udp(PORT, &probe(4)))),
        ),
        (Some(5), ethernet(&[], ETH_IPV6, &ipv6(UDP, &udp(PORT, &probe(5))))),
        (Some(6), ethernet(&[VLAN], ETH_IPV6, &ipv6(UDP, &udp(PORT, &probe(6))))),
        (Some(7), v4(&[probe(7), vec![0; 1000]].concat())),
        // Do not fragment is no fragment.
        (
            Some(8),
            ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], 0x4000, &udp(PORT, &probe(8)))),
        ),
        (
            None,
            ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], 0x2000, &udp(PORT, &probe(99)))),
        ),
        (
            None,
            ethernet(&[], ETH_IPV4, &ipv4_with(UDP, &[], 5, &udp(PORT, &probe(99)))),
        ),
        (None, ethernet(&[], ETH_IPV4, &ipv4(TCP, &udp(PORT, &probe(99))))),
        (None, ethernet(&[], ETH_IPV6, &ipv6(TCP, &udp(PORT, &probe(99))))),
        (None, ethernet(&[], ETH_EXPERIMENT, &ipv4(UDP, &udp(PORT, &probe(99))))),
        (None, v4(&probe(99)[..HEADER_LEN - 1])),
        (None, other(|payload| payload[0] ^= 1)),
        (None, other(|payload| payload[4] = 2)),
        (None, other(|payload| payload[5] = 7)),
        // Another session.
        (None, other(|payload| payload[8] ^= 1)),
        (None, v4(&short_payload)),
    ];
    for (_, frame) in &frames {
        let ran = pair.left.enter(|index| {
            let mut generator = Generator::new(index, frame, GeneratorOptions::default()).unwrap();
            generator.run(1).unwrap()
        });
        assert_eq!(ran.transmitted, 1, "{ran:?}");
    }
    let expected: Vec<u64> = frames.iter().filter_map(|(found, _)| *found).collect();
    let events = read_until(&reader, |events| {
        sequences(events, Point::Stack).len() >= expected.len()
    });
    assert_eq!(sequences(&events, Point::Stack), expected, "{events:#?}");
    let (index, here) = pair.right.enter(|index| (index, namespace()));
    for event in events.iter().filter(|event| event.point == Point::Stack as u8) {
        assert_eq!((event.session, event.kind), (SESSION, 1));
        assert_eq!((event.interface, event.namespace), (index, here), "{event:?}");
        assert!(
            event.extra[1] != 0 && event.extra[1] <= event.ns,
            "in a soft interrupt: {event:?}"
        );
    }
    assert_eq!(tracer.lost().unwrap(), 0);
}

/// The inode of the calling thread's network namespace.
fn namespace() -> u32 {
    let inode = rustix::fs::stat("/proc/thread-self/ns/net").unwrap().st_ino;
    u32::try_from(inode).unwrap()
}

#[test]
fn only_what_is_asked_for_is_told_and_only_meanwhile() {
    if !privileged() {
        return;
    }
    let pair = Pair::new();
    let receiver = pair.right.enter(|_| UdpSocket::bind("10.77.0.2:4242").unwrap());
    let sender = pair.left.enter(|_| UdpSocket::bind("10.77.0.1:0").unwrap());
    sender.connect("10.77.0.2:4242").unwrap();
    // ARP must be through before.
    pair.left.command("ping -c 1 -W 5 10.77.0.2");
    let send = |range: std::ops::Range<u64>| {
        for sequence in range {
            sender.send(&probe_of(SESSION + 1, sequence)).unwrap();
            let mut bytes = [0; 64];
            receiver.recv(&mut bytes).unwrap();
        }
    };
    let mut tracer = Tracer::load(TraceOptions {
        session: Some(SESSION + 1),
        one_of: 3,
        disturbers: true,
        tasks: false,
    })
    .unwrap();
    let reader = tracer.reader().unwrap();
    send(0..10);
    assert_eq!(told(&reader), [], "not attached yet");
    tracer.attach().unwrap();
    send(10..20);
    thread::sleep(Duration::from_millis(20));
    let (events, disturbers) = reader.read().unwrap();
    for point in [Point::Queue, Point::Transmit, Point::Stack, Point::Ready] {
        // Sockets of others on this machine are ready too.
        let ours = events.iter().filter(|event| event.session == SESSION + 1);
        let ours: Vec<TraceEvent> = ours.copied().collect();
        assert_eq!(sequences(&ours, point), [12, 15, 18], "{point:?} in {events:#?}");
    }
    let sent = events
        .iter()
        .find(|event| event.point == Point::Transmit as u8)
        .unwrap();
    assert_eq!(sent.extra, [70, 80], "what the probe says: {sent:?}");
    // In the order of its way.
    let way: Vec<(u64, u8)> = events
        .iter()
        .filter(|event| event.sequence == 12)
        .map(|event| (event.ns, event.point))
        .collect();
    assert!(way.is_sorted() && way.len() >= 4, "{way:?}");
    // Each packet is taken from the socket, traced or not.
    let taken = events
        .iter()
        .filter(|event| (event.kind, event.point) == (0, Point::Copy as u8));
    let after_the_first = 20 - 12;
    assert_eq!(taken.count(), after_the_first, "{events:#?}");
    // The soft interrupts that received them, at least.
    let softirqs = disturbers
        .iter()
        .filter(|disturber| (disturber.kind, disturber.id) == (2, 3));
    assert!(softirqs.count() >= 10, "{disturbers:#?}");
    assert!(disturbers.iter().all(|disturber| disturber.from_ns <= disturber.to_ns));
    tracer.detach();
    send(20..30);
    assert_eq!(told(&reader), [], "detached");
    // And again.
    tracer.attach().unwrap();
    send(30..31);
    assert_eq!(sequences(&told(&reader), Point::Transmit), [30]);
}

/// Functions are entered by what this machine may refuse; then it is named, and tracepoints are enough.
#[test]
fn each_hook_is_there_or_named() {
    if !privileged() {
        return;
    }
    let tracer = Tracer::load(options()).unwrap();
    for hook in tracer.missing() {
        assert!(!hook.tells.is_empty() && !hook.reason.is_empty(), "{hook:?}");
        assert!(
            hook.hook.starts_with("fentry "),
            "Linux 6.3 has all tracepoints: {hook:?}"
        );
    }
}

#[test]
fn without_the_capabilities_it_says_so() {
    if !privileged() {
        return;
    }
    let error = with_only(LEAST, || Tracer::load(options())).unwrap_err();
    assert!(matches!(error, Error::Load { .. }), "{error}");
    assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
}

/// Of a task that is watched it is told when it is woken up, gets a CPU and is off it; of others nothing, and nothing at all where nobody asks for it.
#[test]
fn a_task_that_is_watched_is_told_of() {
    if !privileged() {
        return;
    }
    let (wake, woken) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let sleeper = thread::spawn(move || {
        while woken.recv().is_ok() {
            answer.send(rustix::thread::gettid()).unwrap();
        }
    });
    let round = || {
        wake.send(()).unwrap();
        answers.recv().unwrap()
    };
    let task = u32::try_from(round().as_raw_nonzero().get()).unwrap();
    let trace = |tasks: bool, done: fn(&[TraceEvent]) -> bool| {
        let mut tracer = Tracer::load(TraceOptions { tasks, ..options() }).unwrap();
        assert_eq!(tracer.watches(), tasks);
        tracer.watch(task).unwrap();
        let reader = tracer.reader().unwrap();
        tracer.attach().unwrap();
        let mut rounds = 0;
        // The task may lose its CPU in a round, which is incomplete then.
        let events = read_until(&reader, |events| {
            round();
            rounds += 1;
            rounds >= 3 && done(events)
        });
        let is_other = |event: &TraceEvent| is_change(event) && event.extra[0] != u64::from(task);
        assert!(!events.iter().any(is_other), "{events:?}");
        events
    };
    let events = trace(false, |_| true);
    assert!(!events.iter().any(is_change), "{events:?}");
    let events = trace(true, |events| rounds_in(events) >= 2);
    assert!(rounds_in(&events) >= 2, "{events:?}");
    drop(wake);
    sleeper.join().unwrap();
}

/// Returns whether a watched task was woken up, got a CPU, or lost it.
fn is_change(event: &TraceEvent) -> bool {
    event.point >= TraceEvent::TASK_WOKEN
}

/// Number of complete rounds: the task was woken up, got a CPU and left it, with no other change.
fn rounds_in(events: &[TraceEvent]) -> usize {
    let mut changes: Vec<&TraceEvent> = events.iter().filter(|event| is_change(event)).collect();
    changes.sort_by_key(|event| event.ns);
    let points: Vec<u8> = changes.iter().map(|event| event.point).collect();
    let round = [TraceEvent::TASK_WOKEN, TraceEvent::TASK_ON, TraceEvent::TASK_OFF];
    points.windows(round.len()).filter(|three| *three == round).count()
}
