//! `tx --cycle`: every deadline has a packet or is counted as missed, by each clock and each way of waiting.
//!
//! How well deadlines are kept is the machine's affair and no test's: what adds up, and what must be late, is.

use std::time::Duration;

use crate::common::{assert_clean, assert_reconciles, lab, losses, run, start, start_receiver};
use ringside_measure::cycle::Waiting;
use ringside_measure::probe::Clock;
use ringside_measure::schema::{CycleResult, RunResult};
use ringside_netlab::testing::is_root;

/// Everything adds up.
fn check(result: &RunResult) -> CycleResult {
    let cycle = result.cycle.clone().expect("a cyclic run");
    assert_eq!(
        result.packets.sent,
        cycle.due_cycles - cycle.skipped_cycles,
        "{cycle:#?}"
    );
    assert!(cycle.late_cycles <= result.packets.sent);
    for times in [cycle.ready.expect("sent"), cycle.transmit.expect("sent")] {
        assert_eq!(times.samples, result.packets.sent);
    }
    assert!(cycle.transmit.unwrap().min_ns > 0, "{cycle:#?}");
    assert!(
        cycle.transmit.unwrap().mean_ns > cycle.ready.unwrap().mean_ns,
        "{cycle:#?}"
    );
    // In time is before the next one is due.
    if cycle.transmit.unwrap().max_ns <= cycle.period_ns {
        assert_eq!(cycle.late_cycles, 0, "{cycle:#?}");
    } else {
        assert_ne!(cycle.late_cycles, 0, "{cycle:#?}");
    }
    // None is forgotten. A busy machine may start the thread late, and have it see the end late.
    let covered = Duration::from_nanos(cycle.due_cycles * cycle.period_ns);
    let took = Duration::from_nanos(result.duration_ns);
    assert!(covered.abs_diff(took) < Duration::from_secs(1), "{took:?}: {cycle:#?}");
    assert_reconciles(result);
    cycle
}

#[test]
fn each_clock_and_each_way_of_waiting() {
    if !is_root() {
        return;
    }
    let lab = lab("cycle", 2);
    let receiver = start_receiver(&lab.b, "rx {} --frames 4096 --json");
    let mut sent = 0;
    for (clock, of) in [("monotonic", Clock::Monotonic), ("tai", Clock::Tai)] {
        for (option, waiting) in [
            ("", Waiting::Adaptive),
            ("--sleep", Waiting::Sleep),
            ("--spin", Waiting::Spin),
        ] {
            let to = lab.b.ipv4;
            let line = format!("tx {{}} --to {to} --cycle 1ms --clock {clock} {option} -t 1.5 --json");
            let result = run(&lab.a, &line).good().result();
            sent += result.packets.sent;
            let cycle = check(&result);
            assert_eq!((cycle.clock, cycle.waiting, cycle.period_ns), (of, waiting, 1_000_000));
            assert_eq!(result.target_pps, Some(1_000.0));
            assert_eq!(cycle.early_ns.is_some(), waiting == Waiting::Adaptive);
            assert_eq!(cycle.wake_up.is_some(), waiting != Waiting::Spin, "{cycle:#?}");
            if waiting == Waiting::Sleep {
                let (asleep, ready) = (cycle.wake_up.unwrap(), cycle.ready.unwrap());
                assert!(ready.max_ns >= asleep.max_ns, "ready only after it woke: {cycle:#?}");
            }
            assert_eq!(result.queues.len(), 1, "one queue of two");
        }
    }
    let received = receiver.interrupt().good().result();
    // With fewer packets than frames of a second a receiver that is held up on a busy machine loses none of them, mostly.
    let (received, lost) = (received.packets.delivered(), losses(&received));
    assert!(
        received > sent / 2 && received + lost <= sent,
        "{received} and {lost} of {sent}"
    );
    assert_clean(&lab.a);
}

#[test]
fn a_count_is_exact_and_the_text_tells_it() {
    if !is_root() {
        return;
    }
    let lab = lab("cyclecount", 1);
    let line = format!("tx {{}} --to {} --cycle 2ms --count 30", lab.b.ipv4);
    let result = run(&lab.a, &format!("{line} --json")).good().result();
    assert_eq!(result.packets.sent, 30);
    check(&result);
    let text = run(&lab.a, &format!("{line} -v")).good().out;
    for words in [
        "every 2000.0 µs of CLOCK_MONOTONIC",
        "wake-up, µs",
        "µs early",
        "ready, µs",
        "sent, µs",
        "jitter, µs",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

/// A process that is stopped misses its deadlines, all of which are counted.
#[test]
fn misses_are_counted() {
    if !is_root() {
        return;
    }
    let lab = lab("cyclemiss", 1);
    let sender = start(
        &lab.a,
        &format!("tx {{}} --to {} --cycle 1ms -i 0.05 --json", lab.b.ipv4),
    );
    let sends = |line: &str| line.contains("packets/s   sent") && !line.ends_with(" 0 packets/s");
    sender.wait_until("an interval with packets", |err| err.lines().any(sends));
    sender.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(300));
    sender.signal(libc::SIGCONT);
    std::thread::sleep(Duration::from_millis(300));
    let cycle = check(&sender.interrupt().good().result());
    assert!(cycle.skipped_cycles >= 200, "{cycle:#?}");
    // It may have been stopped before it was ready, or after.
    assert!(cycle.transmit.unwrap().max_ns >= 200_000_000, "{cycle:#?}");
}

#[test]
fn a_long_cycle_does_not_hold_up_the_end() {
    if !is_root() {
        return;
    }
    let lab = lab("cyclelong", 1);
    for option in ["", "--sleep", "--spin"] {
        let line = format!("tx {{}} --to {} --cycle 60s {option} -t 0.2", lab.b.ipv4);
        let message = run(&lab.a, &line).bad();
        assert!(message.contains("nothing was sampled"), "{message}");
    }
}

#[test]
fn nonsense_is_refused() {
    if !is_root() {
        return;
    }
    let lab = lab("cyclebad", 2);
    let to = format!("--to {}", lab.b.ipv4);
    for (options, words) in [
        ("--cycle 0ms", "1us to 60s"),
        ("--cycle 61s", "1us to 60s"),
        ("--cycle=-1ms", "no cycle"),
        ("--cycle 1", "with a unit"),
        ("--cycle ms", "no cycle"),
        ("--cycle 1k", "with a unit"),
        ("--cycle 1ms --rate 10", "--rate"),
        ("--cycle 1ms --clock realtime", "monotonic, tai"),
        ("--cycle 1ms --spin --sleep", "--sleep"),
        ("--cycle 1ms -q 0,1", "one queue"),
        ("--clock tai", "--cycle"),
        ("--spin", "--cycle"),
    ] {
        let message = run(&lab.a, &format!("tx {{}} {to} {options}")).refused();
        assert!(message.contains(words), "{options}: {message}");
    }
}
