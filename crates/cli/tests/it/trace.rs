//! `ringside trace` on the real kernel: a delay that a test puts somewhere is found there and nowhere else.

mod backlog;
mod flight;
mod functions;
mod interrupts;
mod queues;
mod taps;

use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::common;
use crate::common::{Done, Row, Running, assert_clean, lab, start, wire};
use crate::lab::Scratch;
use ringside_measure::latency::Latency;
use ringside_measure::probe::{Clock, HEADER_LEN, Kind, Probe};
use ringside_measure::schema::{Outcome, StageResult, TraceResult, TracedPath};
use ringside_measure::trace::{Culprit, DisturberKind, Point, Stage};
use ringside_netlab::testing::{Off, bound, expect, has_cpus, has_root, is_root, measured};
use ringside_netlab::{End, Lab};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

const MS: f64 = 1e6;

/// Each test wants its CPUs for itself.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The binary in the namespace of the test, with a line as one writes it.
fn tool(line: &str) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringside"));
    command.args(line.split_whitespace()).env_remove("SSH_CONNECTION");
    Running::new(command)
}

fn result(done: &Done) -> TraceResult {
    match done.document().result {
        Outcome::Trace(result) => *result,
        other => panic!("not a trace: {other:?}"),
    }
}

fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).expect("an online CPU");
}

/// Puts this thread on a CPU, in front of all others there.
fn take_cpu(cpu: usize) {
    pin(cpu);
    let param = libc::sched_param { sched_priority: 10 };
    // SAFETY: 0 is the calling thread, and `param` is alive for the call, which only reads it.
    let answer = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    assert_eq!(answer, 0, "SCHED_FIFO");
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

/// Checks what holds for each path. A recorder without a CPU loses events and counts them.
fn check(path: &TracedPath) -> Result<(), Off> {
    let what = format!("{path:#?}");
    assert_eq!(path.failure, None, "{what}");
    let whole = path.whole.expect("packets");
    assert_eq!(whole.samples, path.traced_packets, "{what}");
    expect(path.lost_events == 0, format_args!("lost events: {what}"))?;
    // The sum equals the whole within the clock error that is stated.
    let apart = (path.sum_mean_ns - whole.mean_ns).abs();
    assert!(apart <= path.clock_error_ns as f64 + 1.0, "{apart}: {what}");
    let parts: f64 = path.stages.iter().map(|stage| stage.part_ns).sum();
    assert!((parts - path.sum_mean_ns).abs() < 1.0, "{what}");
    let percents: f64 = path.stages.iter().map(|stage| stage.part_percent).sum();
    assert!((percents - 100.0).abs() < 0.1, "{what}");
    // One clock, read in the kernel and outside of it; but a reader that is awake may have a packet before its socket has told of it, and who
    // tells may be held up then.
    let few_are_disordered = path.disordered_packets * 50 < path.traced_packets;
    assert!(path.clock_error_ns < 2_000 || few_are_disordered, "{what}");
    for stage in &path.stages {
        let histogram = stage
            .times_hdr
            .as_deref()
            .map(|text| Latency::from_hdr(text).expect("readable"));
        assert_eq!(
            histogram.map(|all| all.samples()),
            stage.times.map(|times| times.samples),
            "{what}"
        );
    }
    let last = path.stages.last().expect("stages");
    assert_eq!(last.stage, Stage::Remainder, "{what}");
    // One packet whose CPU was taken away on its way may have a long one.
    let packets = last.times.map_or(0, |times| times.samples);
    assert!(last.part_percent < 5.0 || packets * 20 < path.traced_packets, "{what}");
    Ok(())
}

fn stages(path: &TracedPath) -> Vec<Stage> {
    path.stages.iter().map(|stage| stage.stage).collect()
}

/// The median of a stage, in milliseconds; 0 where fewer than 20 packets had it.
fn median_ms(stage: &StageResult) -> f64 {
    stage
        .times
        .and_then(|times| times.p50_ns)
        .map_or(0.0, |ns| ns as f64 / MS)
}

/// The median of a stage, or the mean of fewer than 20 packets, in milliseconds.
fn typical_ms(stage: &StageResult) -> f64 {
    stage
        .times
        .map_or(0.0, |times| times.p50_ns.map_or(times.mean_ns, |ns| ns as f64) / MS)
}

/// Checks the median of one stage of the first hop, and that every other median is below a quarter.
///
/// A receiver that loses its CPU does not sleep: fewer than 20 packets then have a wake-up.
fn check_delay(path: &TracedPath, stage: Stage, at_least_ms: f64) -> Result<(), Off> {
    let is_it = |other: &&StageResult| (other.hop, other.stage) == (0, stage);
    let found = path.stages.iter().find(is_it);
    let found = found.unwrap_or_else(|| panic!("no such stage in {path:#?}"));
    expect(
        typical_ms(found) >= at_least_ms,
        format_args!("{at_least_ms} ms: {path:#?}"),
    )?;
    for other in path.stages.iter().filter(|other| !is_it(other)) {
        expect(
            median_ms(other) < at_least_ms / 4.0,
            format_args!("{}: {path:#?}", other.name),
        )?;
    }
    Ok(())
}

/// Checks that turns without tracing have no events, that turns with it have several for each
/// packet, and that both have packets, at most as many as arrived.
fn check_cost(path: &TracedPath) {
    let Some(cost) = &path.cost else { return };
    let what = format!("{path:#?}");
    assert!(cost.on.turns >= 1 && cost.on.turns == cost.off.turns, "{what}");
    let pairs = cost.ratio.rounds_used + cost.ratio.rounds_left_out;
    assert_eq!(pairs as u64, cost.on.turns, "{what}");
    assert_eq!(cost.off.events, 0, "{what}");
    assert!(cost.on.events > cost.on.packets * 4, "{what}");
    assert!(cost.off.packets > 0 && cost.on.packets > 0, "{what}");
    // What is in the figures was seen with tracing, in pairs or in the turn that has no other.
    assert!(
        path.traced_packets + path.incomplete_packets >= cost.on.packets,
        "{what}"
    );
    assert!(
        path.received_packets >= Some(cost.on.packets + cost.off.packets),
        "{what}"
    );
}

/// What the program measured by itself agrees with the stages of the same packets, within the clock error at either end.
fn check_measured(path: &TracedPath) {
    let (what, whole) = (format!("{path:#?}"), path.whole.expect("packets"));
    let measured = path.measured.expect("its own packets");
    assert_eq!(measured.packets, path.traced_packets, "{what}");
    assert!(measured.apart_max_ns <= path.clock_error_ns * 2, "{what}");
    assert!(measured.apart_mean_ns.abs() <= measured.apart_max_ns as f64, "{what}");
    let apart = whole.mean_ns - measured.mean_ns;
    assert!((apart - measured.apart_mean_ns).abs() < 1.0, "{what}");
}

/// Namespaces of a process are named by its id; their interfaces and all programs on those go with them.
fn assert_nothing_is_left_of(pid: u32) {
    let names = std::fs::read_dir("/run/netns").expect("a directory of namespaces");
    let left: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&format!("rs-{pid}-")))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn every_receiver_is_traced_on_a_test_bed() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let receivers = ["udp-blocking", "af-packet", "af-xdp-native", "af-xdp-generic"];
    let line = format!(
        "trace --lab veth --receivers {} -t 2.6 --slot-ms 200 --json",
        receivers.join(",")
    );
    let (done, result) = measured(|| {
        let running = tool(&line);
        let pid = running.pid();
        let done = running.end().good();
        assert_nothing_is_left_of(pid);
        let result = result(&done);
        assert_eq!(result.paths.len(), receivers.len());
        // Who is kept from its CPU finds packets there, and does not sleep.
        let blocking = stages(&result.paths[0]);
        for point in [Point::Waking, Point::Running, Point::Copy] {
            expect(
                blocking.contains(&Stage::From(point)),
                format_args!("no {point:?} of a sleeper: {:#?}", result.paths[0]),
            )?;
        }
        result.paths.iter().for_each(check_cost);
        result.paths.iter().try_for_each(check)?;
        Ok((done, result))
    });
    for (path, receiver) in result.paths.iter().zip(receivers) {
        assert_eq!(path.receiver.as_deref(), Some(receiver));
        assert_eq!(path.end, Some(Point::Application));
        assert!(path.traced_packets >= 20, "{path:#?}");
        check_measured(path);
        // What was on its way at the end is waited for. A mapped ring of 64 frames may run over while others have the CPU.
        match receiver {
            "udp-blocking" => assert_eq!(path.received_packets, path.sent_packets, "{path:#?}"),
            _ => assert!(path.received_packets <= path.sent_packets, "{path:#?}"),
        }
        let stages = stages(path);
        use Point::{Backlog, Call, Intended, Queue, Ready, Socket, SoftIrq, Stack, Transmit, Xdp};
        let here: &[Point] = match receiver {
            "udp-blocking" | "af-packet" => &[Backlog, Stack, Ready],
            "af-xdp-native" => &[SoftIrq, Xdp, Socket, Ready],
            _ => &[Backlog, Stack, Xdp, Ready],
        };
        for point in [Intended, Call, Queue, Transmit].iter().chain(here) {
            let hook = format!("{receiver}: {point:?} in {path:#?}");
            assert!(stages.contains(&Stage::From(*point)), "{hook}");
        }
        let slow = path.slow.as_ref().expect("a slowest packet");
        assert!(
            slow.packets >= 1 && slow.from_ns <= path.whole.expect("packets").max_ns,
            "{slow:#?}"
        );
    }
    // A machine whose time is given away may have no quiet pair of turns.
    let costs: Vec<_> = result.paths.iter().filter_map(|path| path.cost.as_ref()).collect();
    assert!(!costs.is_empty() || result.steal_percent > Some(2.0), "{result:#?}");
    // What is missing here is named, with a reason, also to people.
    for hook in &result.missing {
        assert!(!hook.reason.is_empty() && !hook.tells.is_empty(), "{hook:?}");
        assert!(done.err.contains(&format!("Missing: {}", hook.hook)), "{done:#?}");
    }
    // And a report is made of it.
    let file = std::env::temp_dir().join(format!("ringside-trace-{}.json", std::process::id()));
    std::fs::write(&file, &done.out).expect("a file");
    for (format, words) in [
        ("markdown", "| in the socket |"),
        ("csv", "udp-blocking: qdisc: p50,"),
        ("html", "<th>wake-up</th>"),
    ] {
        let report = tool(&format!("report {} --format {format} -o -", file.display()));
        let report = report.end().good();
        assert!(report.out.contains(words), "{words}: {report:#?}");
    }
    std::fs::remove_file(&file).expect("removed");
    for words in ["Sum of the stages", "udp-blocking:", "| qdisc", "remainder", "whole"] {
        assert!(done.err.contains(words), "{words}: {done:#?}");
    }
}

/// Sends probes from a socket of one end to the other, one after the other, until it is dropped.
struct Flow<'a>(&'a AtomicBool);

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A probe that is sent now.
fn probe(session: u32, sequence: u64) -> [u8; HEADER_LEN + 8] {
    let now = now_ns();
    let probe = Probe {
        kind: Kind::Request,
        clock: Clock::Monotonic,
        session,
        sequence,
        intended_ns: now,
        sent_ns: now,
    };
    let mut payload = [0; HEADER_LEN + 8];
    probe.encode(&mut payload).expect("room");
    payload
}

/// Runs `body` while probes of a session go from `from` to an address, and `receive` takes them at the other end.
fn while_probes_flow<T>(
    session: u32,
    from: &UdpSocket,
    every: Duration,
    receive: impl Fn() + Sync,
    body: impl FnOnce() -> T,
) -> T {
    let send = |sequence| drop(from.send(&probe(session, sequence)));
    while_packets_flow(send, every, receive, body)
}

/// The same with what `send` sends, for a sequence number each.
fn while_packets_flow<T>(
    send: impl Fn(u64) + Sync,
    every: Duration,
    receive: impl Fn() + Sync,
    body: impl FnOnce() -> T,
) -> T {
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let _flow = Flow(&end);
        scope.spawn(|| {
            pin(0);
            for sequence in 0.. {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                send(sequence);
                thread::sleep(every);
            }
        });
        scope.spawn(|| {
            while !end.load(Ordering::Relaxed) {
                receive();
            }
        });
        body()
    })
}

fn socket(end: &End, port: u16) -> UdpSocket {
    let socket = end.run(|| bound(|| UdpSocket::bind((end.ipv4, port))));
    socket.set_read_timeout(Some(Duration::from_millis(20))).expect("set");
    socket
}

fn listen(session: u32, seconds: f64) -> TraceResult {
    let done = tool(&format!("trace --session {session} -t {seconds} --json"))
        .end()
        .good();
    result(&done)
}

fn only(result: &TraceResult) -> Result<&TracedPath, Off> {
    let [path] = &result.paths[..] else {
        panic!("{result:#?}")
    };
    check(path)?;
    Ok(path)
}

/// Packets wait in the socket of a receiver that does something else; of one that waits for them they do not.
#[test]
fn a_sleeping_receiver_is_found_in_the_socket() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let Lab { a, b, .. } = &lab("tracesleep", 1);
    let (sender, receiver) = (socket(a, 0), socket(b, 7000));
    sender.connect((b.ipv4, 7000)).expect("connected");
    let take = || {
        let mut bytes = [0; 128];
        receiver.recv(&mut bytes)
    };
    let every = Duration::from_millis(2);
    measured(|| {
        let prompt = while_probes_flow(41, &sender, every, || drop(take()), || listen(41, 0.5));
        let path = only(&prompt)?;
        assert_eq!(path.end, Some(Point::Copy), "the kernel's last point: {path:#?}");
        assert_eq!(
            (path.sent_packets, path.received_packets, path.cost.is_none()),
            (None, None, true)
        );
        expect(
            path.stages.iter().all(|stage| median_ms(stage) < 1.0),
            format_args!("{path:#?}"),
        )
    });

    receiver.set_nonblocking(true).expect("set");
    let lazy = || {
        thread::sleep(Duration::from_millis(12));
        while take().is_ok() {}
    };
    measured(|| {
        let slept = while_probes_flow(42, &sender, every, lazy, || listen(42, 0.6));
        check_delay(only(&slept)?, Stage::From(Point::Ready), 4.0)
    });
}

/// Two hops: what the one in the middle does is a stage, whether a program of its own or `ringside impair`.
#[test]
fn a_slow_forwarder_is_found_between_the_hops() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let Row { left, right } = &common::row("tracerelay");
    let (sender, relay) = (socket(&left.a, 0), socket(&left.b, 7000));
    sender.connect((left.b.ipv4, 7000)).expect("connected");
    let (onward, receiver) = (socket(&right.a, 0), socket(&right.b, 7001));
    onward.connect((right.b.ipv4, 7001)).expect("connected");
    let forward = || {
        let mut bytes = [0; 128];
        if let Ok(count) = relay.recv(&mut bytes) {
            thread::sleep(Duration::from_millis(3));
            onward.send(&bytes[..count]).expect("sent");
            _ = receiver.recv(&mut bytes);
        }
    };
    measured(|| {
        let traced = while_probes_flow(43, &sender, Duration::from_millis(6), forward, || listen(43, 0.7));
        let path = only(&traced)?;
        assert!(path.stages.iter().any(|stage| stage.hop == 1), "{path:#?}");
        check_delay(path, Stage::Relay, 3.0)
    });
}

#[test]
fn a_slow_forwarder_with_xdp_sockets_is_found_between_the_hops() {
    if !is_root() {
        return;
    }
    let _alone = alone();
    let row = wire("tracebox");
    let forwarder = start(&row.left.b, "impair in,out --wait poll --delay 4ms --json");
    forwarder.wait_for("this host itself is not reached");
    let (sender, receiver) = (socket(&row.left.a, 0), socket(&row.right.b, 7000));
    sender.connect((row.right.b.ipv4, 7000)).expect("connected");
    let take = || {
        let mut bytes = [0; 128];
        _ = receiver.recv(&mut bytes);
    };
    measured(|| {
        let traced = while_probes_flow(44, &sender, Duration::from_millis(6), take, || listen(44, 0.7));
        check_delay(only(&traced)?, Stage::Relay, 3.5)
    });
    forwarder.interrupt().good();
    assert_clean(&row.left.b);
}

/// Time for which the hog keeps its CPU.
const HOG: Duration = Duration::from_millis(6);

/// Takes its CPU from everybody who has no real-time priority, most of the time.
fn hog(cpu: usize, end: &AtomicBool) {
    take_cpu(cpu);
    while !end.load(Ordering::Relaxed) {
        let begun = Instant::now();
        while begun.elapsed() < HOG {
            std::hint::spin_loop();
        }
        thread::sleep(Duration::from_micros(1500));
    }
}

#[test]
fn a_hog_on_the_receivers_cpu_is_found_in_the_wake_up_and_named() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    measured(|| {
        let end = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let _flow = Flow(&end);
            let thread = thread::Builder::new().name("trace-hog".into());
            thread.spawn_scoped(scope, || hog(1, &end)).expect("a thread");
            // Seldom enough that no packet waits for another one, also of those that a busy sender sends late.
            tool("trace --lab veth --rate 27 --cpus 0,1 -t 1.7 --no-cost --json")
                .end()
                .good()
        });
        let result = result(&done);
        let path = only(&result)?;
        check_delay(path, Stage::From(Point::Waking), 1.0)?;
        let slow = path.slow.as_ref().expect("a slowest packet");
        // Another task that takes the CPU for longer at a time may be named instead.
        let is_named = slow.culprits.iter().any(|culprit| {
            let is_hog = culprit.name == "trace-hog";
            let least_ns = if is_hog { MS } else { HOG.as_secs_f64() * 1e9 };
            culprit.kind == DisturberKind::Task && culprit.slow_mean_ns > least_ns
        });
        expect(is_named, format_args!("{slow:#?}"))
    });
}

/// A path of a lab gets its stages in a turn of its own: the same hog is found there, in the same stage and no other.
#[test]
fn a_hog_is_found_in_the_stages_of_a_labs_path() {
    if !is_root() || !has_cpus(2) {
        return;
    }
    let _alone = alone();
    measured(|| {
        let scratch = Scratch::new();
        let lab = "rounds = 1\nturn = \"1500ms\"\nsettle = \"1ms\"\ntrace = true\n[[host]]\nname = \"a\"\ncpu = 0\n\
               [[host]]\nname = \"b\"\ncpu = 1\n[[link]]\nends = [\"a\", \"b\"]\n\
               [[probe]]\nname = \"p\"\nfrom = \"a\"\nto = \"b\"\nwith = \"udp\"\nrate = 27\nmeasure = [\"one-way\"]\n";
        let file = scratch.lab(lab);
        let end = AtomicBool::new(false);
        let done = thread::scope(|scope| {
            let _flow = Flow(&end);
            let thread = thread::Builder::new().name("trace-hog".into());
            thread.spawn_scoped(scope, || hog(1, &end)).expect("a thread");
            let line = format!(
                "lab run {} --into {} --json",
                file.display(),
                scratch.path("run").display()
            );
            let running = tool(&line);
            let pid = running.pid();
            let done = running.end().good();
            assert_nothing_is_left_of(pid);
            done
        });
        let Outcome::Lab(lab) = done.document().result else {
            panic!("no lab: {done:#?}")
        };
        let [stages] = lab.stages.as_slice() else {
            panic!("{lab:#?}")
        };
        assert_eq!(
            (stages.path.as_str(), stages.is_round_trip, &stages.unavailable),
            ("p", false, &None)
        );
        let path = stages.traced.as_ref().expect("traced");
        check(path)?;
        check_measured(path);
        check_cost(path);
        let turns = path.cost.as_ref().map(|cost| cost.on.turns);
        assert!(turns == Some(5) || stages.steal_percent > 1.0, "{stages:#?}");
        check_delay(path, Stage::From(Point::Waking), 1.0)?;
        assert!(
            path.stages
                .iter()
                .any(|stage| stage.interface.as_deref() == Some("eth0")),
            "{path:#?}"
        );
        // The cell that is measured has no tracing in it, and one turn.
        assert_eq!(
            (lab.cells.len(), lab.cells[0].rounds.len(), lab.interrupted),
            (1, 1, false)
        );
        let most = path.stages.iter().max_by(|a, b| a.part_ns.total_cmp(&b.part_ns));
        let words = format!("most in {}", most.expect("stages").name);
        assert!(done.err.contains(&words), "{words}: {}", done.err);
        let report = std::fs::read_to_string(scratch.path("run/report.html")).expect("a report");
        assert!(report.contains("Stages, one way") && report.contains("<th>wake-up</th>"));
        Ok(())
    });
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let refused = |line: &str| tool(line).end().refused();
    for (line, words) in [
        ("trace", "--session <ID|any>"),
        ("trace --session nonsense", "neither the number of a session"),
        ("trace --session any --receivers udp-spin", "cannot be used with"),
        ("trace --session any --lab veth", "cannot be used with"),
        ("trace --lab veth --receivers carrier-pigeon", "udp-blocking"),
        ("trace --lab veth -t 0.1", "there is no time for a turn"),
        ("trace --lab veth --stop-above 5", "no time with a unit"),
        (
            "trace --lab veth --stop-above 1ms --no-disturbers",
            "take one of the two",
        ),
        ("trace --lab veth --size 60", "from 82 to 1514"),
        ("trace --lab veth --cpus 0,4095", "is not online"),
        ("trace --interface nosuch0,nosuch1", "nosuch0"),
    ] {
        let message = refused(line);
        assert!(message.contains(words), "{line}: {message}");
    }
    if has_root() {
        let message = tool("trace --session 4711 -t 0.3").end().bad();
        assert!(message.contains("no probe of session 4711"), "{message}");
        let message = tool("trace --lab veth --receivers af-xdp-zero-copy --no-cost -t 0.2")
            .end()
            .bad();
        assert!(message.contains("zero-copy"), "{message}");
    }
}
