use ringside_measure::latency::RttRecorder;
use ringside_measure::pace::Lateness;
use ringside_measure::probe::Clock;

use super::*;
use crate::compare::testing::{rate, ratio, table};

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

#[test]
fn a_comparison_concludes_what_the_terminal_does() {
    let unknown = Ratio {
        low: None,
        high: None,
        ..ratio(3.0, 0.0, 0.0).expect("a ratio")
    };
    let of = |proportion| {
        let variants = vec![
            rate("udp-blocking", 850_000.0, None),
            rate("af-packet", 2_550_000.0, proportion),
        ];
        best(&table(Operation::Rx, variants)).expect("figures")
    };
    assert_eq!(
        of(Some(unknown)),
        "Receive, 64 bytes: too few rounds for an interval, no conclusion. af-packet gave 2.55 M \
         packets/s, 3.00 × udp-blocking."
    );
    let unclear = of(ratio(1.0, 0.9, 1.1));
    assert!(
        unclear.contains("nothing is clearly better than plain UDP. af-packet gave"),
        "{unclear}"
    );
    let clear = of(ratio(3.0, 2.9, 3.1));
    assert!(
        clear.contains("af-packet is best with 2.55 M packets/s, 3.00 [2.90–3.10] ×"),
        "{clear}"
    );
}
