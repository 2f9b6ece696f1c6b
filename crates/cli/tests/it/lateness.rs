//! A sender that is late says so, and a path that takes nothing is not taken for one.

use std::time::Duration;

use ringside_measure::schema::RunResult;
use ringside_measure::validity::Reason;
use ringside_netlab::testing::{expect, is_root, measured};

use crate::common::{Done, lab, start, start_receiver, unwrapped};

/// Longest time from the sending to the answer, and from the schedule to the answer.
fn longest(result: &RunResult) -> [u64; 2] {
    let times = result.latency.as_ref().expect("round trips");
    let [raw, corrected] = [times.raw, times.corrected].map(|times| times.expect("answers").max_ns);
    [raw, corrected]
}

fn is_late(done: &Done) -> bool {
    let validity = done.document().validity.expect("judged");
    validity
        .reasons
        .iter()
        .any(|invalid| invalid.reason == Reason::SenderLate)
}

#[test]
fn a_sender_that_was_stopped_is_late() {
    if !is_root() {
        return;
    }
    let lab = lab("late-sender", 1);
    let to = lab.b.ipv4;
    let _echo = start_receiver(&lab.b, "echo {}");
    for command in ["ping", "tx"] {
        let sender = start(&lab.a, &format!("{command} {{}} --to {to} --rate 1000 -t 2 --json"));
        sender.wait_for("->");
        std::thread::sleep(Duration::from_millis(500));
        sender.stop();
        std::thread::sleep(Duration::from_millis(300));
        sender.signal(libc::SIGCONT);
        let done = sender.end().good();
        let result = done.result();
        let lateness = result.sender_lateness.expect("a schedule");
        assert!(lateness.times.max_ns >= 250_000_000, "{command}: {lateness:?}");
        assert!(lateness.late_packets >= 200, "{command}: {lateness:?}");
        assert!(is_late(&done), "{command}: {:?}", done.document().validity);
        assert!(
            unwrapped(&done.err).contains("the sender was late for "),
            "{command}: {}",
            done.err
        );
        if command == "ping" {
            let [_, corrected] = longest(&result);
            assert!(corrected >= lateness.times.max_ns, "{result:?}");
        }
    }
}

#[test]
fn a_path_that_takes_nothing_does_not_make_the_sender_late() {
    if !is_root() {
        return;
    }
    let lab = lab("late-path", 1);
    let to = lab.b.ipv4;
    let _echo = start_receiver(&lab.b, "echo {}");
    measured(|| {
        let ping = start(&lab.a, &format!("ping {{}} --to {to} --rate 1000 -t 2 --json"));
        ping.wait_for("->");
        std::thread::sleep(Duration::from_millis(500));
        lab.a.set_up(false).expect("down");
        std::thread::sleep(Duration::from_millis(300));
        lab.a.set_up(true).expect("up");
        let done = ping.end().good();
        let result = done.result();
        let [_, corrected] = longest(&result);
        assert!(corrected >= 250_000_000, "probes waited for the link: {result:?}");
        let lateness = result.sender_lateness.expect("a schedule");
        // Without the path's part it would be as long as the link was down.
        expect(lateness.times.max_ns < 200_000_000, format!("{lateness:?}"))
    });
}

/// A thread that sleeps until the time itself is late by the timer slack of 50 µs, and more.
#[test]
fn sleeping_senders_wake_before_the_time() {
    if !is_root() {
        return;
    }
    let lab = lab("late-wake", 1);
    let to = lab.b.ipv4;
    let _echo = start_receiver(&lab.b, "echo {}");
    for command in ["ping", "tx"] {
        measured(|| {
            let line = format!("{command} {{}} --to {to} --rate 1000 --count 1000 --wait poll --json");
            let lateness = start(&lab.a, &line).end().good().result().sender_lateness;
            let times = lateness.expect("a schedule").times;
            expect(
                times.p50_ns.is_some_and(|p50| p50 < 50_000),
                format!("{command}: {times:?}"),
            )
        });
    }
}
