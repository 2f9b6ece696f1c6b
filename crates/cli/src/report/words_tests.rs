use ringside_measure::latency::RttRecorder;
use ringside_measure::pace::Lateness;
use ringside_measure::probe::Clock;

use super::*;

/// Probes of which all left 5 ms after their time, for this reason.
fn late(lateness: Option<&Lateness>) -> Option<String> {
    let mut times = RttRecorder::new();
    for at in 0..2_000 {
        times.record(
            at * 10_000_000,
            at * 10_000_000 + 5_000_000,
            at * 10_000_000 + 5_050_000,
        );
    }
    let run = RunResult {
        sender_lateness: lateness.and_then(Lateness::result),
        ..RunResult::new(Operation::Ping)
    };
    held_up(&run, &LatencyResult::round_trip(&times, Clock::Monotonic))
}

#[test]
fn a_late_sender_is_not_blamed_on_the_path() {
    let mut sender = Lateness::new(10_000_000);
    let mut path = sender.clone();
    for at in 0..2_000 {
        sender.record(at * 10_000_000, at * 10_000_000 + 5_000_000, 1);
        path.held_up_until(at * 10_000_000 + 4_999_000);
        path.record(at * 10_000_000, at * 10_000_000 + 5_000_000, 1);
    }
    let text = late(Some(&sender)).expect("probes waited");
    assert!(text.starts_with("The sender was late, by up to 5"), "{text}");
    let text = late(Some(&path)).expect("probes waited");
    assert!(text.starts_with("The path stalled: "), "{text}");
    // A result of an earlier version.
    let text = late(None).expect("probes waited");
    assert!(text.starts_with("Probes left after their time: "), "{text}");
}

#[test]
fn probes_that_left_in_time_are_not_mentioned() {
    let mut times = RttRecorder::new();
    for at in 0..2_000 {
        times.record(at * 1_000_000, at * 1_000_000 + 1_000, at * 1_000_000 + 51_000);
    }
    let latency = LatencyResult::round_trip(&times, Clock::Monotonic);
    assert_eq!(held_up(&RunResult::new(Operation::Ping), &latency), None);
    assert_eq!(
        held_up(&RunResult::new(Operation::Ping), &latency.without_schedule()),
        None
    );
}
