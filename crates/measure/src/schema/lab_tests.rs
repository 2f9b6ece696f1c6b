//! What a lab is written as.

use super::*;
use crate::latency::RttRecorder;
use crate::probe::Clock;
use crate::schema::{LatencyKind, MissingHook, check};
use crate::validity::Rounds;

/// One with everything in it.
pub(crate) fn lab() -> LabResult {
    let mut times = RttRecorder::new();
    (0..30_u64).for_each(|n| times.record(n * 1_000, n * 1_000 + 5, n * 1_000 + 400 + n));
    let ratio = Ratio {
        median: 1.5,
        low: Some(1.4),
        high: Some(1.6),
        rounds_used: 5,
        rounds_left_out: 1,
    };
    let round = |steal| Round { value: 415.0, steal };
    let clock = LabClock {
        offset_ns: -7_000,
        rate_ppm: 12.5,
        uncertainty_ns: 900,
        contradiction_ns: 0,
        bounds: 60,
        asked_uncertainty_ns: Some(150_000),
        asked_apart_ns: Some(20_000),
    };
    let load = LabLoad {
        name: "stream".into(),
        description: "UDP".into(),
        sent_pps: Some(1_000.0),
        received_pps: Some(999.0),
        asked_bits_per_s: Some(5e6),
        sent_bits_per_s: Some(4.9e6),
        received_bits_per_s: Some(4.8e6),
        requests_per_s: Some(100.0),
    };
    LabResult {
        title: "a study".into(),
        rounds: 6,
        turn_ns: 1_000_000_000,
        steal_limit_percent: 4.0,
        base: "udp".into(),
        machines: vec![LabMachine {
            name: "vm".into(),
            kind: "guest".into(),
            cpu: Some(1),
            attachment: Some("tap-bridge".into()),
            accelerator: Some("tcg".into()),
            kernel_release: Some("7.3.4".into()),
        }],
        cells: vec![LabCell {
            path: "udp".into(),
            description: "a to b".into(),
            condition: LoadKind::Foreign,
            loads: vec![load.clone()],
            unavailable: Some("no".into()),
            probes: Counts {
                sent: 30,
                received: 30,
                ..Counts::default()
            },
            not_sent_probes: 0,
            latency: LatencyResult {
                kind: LatencyKind::OneWay,
                jitter: None,
                ..LatencyResult::round_trip(&times, Clock::Monotonic)
            },
            rounds: vec![round(0.0), round(0.5)],
            turns_measured: 2,
            turns_disturbed: 1,
            turns_left_out: 1,
            turns_repeated: 2,
            failed_turns: 1,
            failure: Some("once".into()),
            waiting_percent: Some(0.1),
            clock: Some(clock),
            ratio_to_idle: Some(ratio),
            ratio_to_base: Some(ratio),
            schedule: Some(LabSchedule {
                class: "5:0us:100us".parse().unwrap(),
                kept_by: LaunchBy::Thread,
                skipped_packets: 1,
                early_packets: 2,
                late_packets: 3,
                late_most_ns: Some(4),
                missed_packets: Some(5),
                windows: LabWindows::Fastest,
                gap: times.raw().summary(),
                gap_hdr: times.raw().to_hdr(),
                clocks: Some(Box::new(LabClocks {
                    most_offset_ns: Some(1_000),
                    apart_ns: Some(-7),
                    apart_uncertainty_ns: Some(9),
                    ..LabClocks::default()
                })),
            }),
            steering: vec![LabSteering {
                name: "right".into(),
                host: "b".into(),
                seen: crate::schema::example::steer(),
            }],
            redirected: Some(LabRedirected {
                to_guest_packets: 31,
                to_guest_passed_packets: 1,
                from_guest_packets: 30,
                from_guest_passed_packets: 2,
            }),
            tap: Some(LabTap {
                time_ns: 1_000_000_000,
                packets: 31,
                bytes: 4_000,
                dropped_packets: 1,
                dropped_at_least: false,
                waiting: Some(LabWaiting {
                    packets: 32,
                    mean_packets: 1.5,
                    full_packets: 1,
                    places: 1_000,
                }),
            }),
            base: Some("first".into()),
        }],
        stages: vec![LabStages {
            path: "udp".into(),
            condition: LoadKind::Foreign,
            is_round_trip: true,
            loads: vec![load],
            unavailable: Some("no".into()),
            // Its fields are those of a trace.
            traced: None,
            missing: vec![MissingHook {
                hook: "fentry tpacket_rcv".into(),
                tells: "when it comes to the ring".into(),
                reason: "refused".into(),
            }],
            clock: Some(clock),
            // Its fields are those of a cell's.
            steering: Vec::new(),
            steal_percent: 0.5,
        }],
        restarts: vec![LabRestart {
            guest: "vm".into(),
            turn: "udp, round trip, loaded".into(),
            reason: "Oops".into(),
        }],
        warnings: vec!["warned".into()],
        interrupted: false,
        file: "title = \"a study\"".into(),
    }
}

#[test]
fn a_lab_is_sound_and_comes_back() {
    let value = serde_json::to_value(lab()).unwrap();
    assert_eq!(check(&value), Ok(()));
    assert_eq!(serde_json::from_value::<LabResult>(value).unwrap(), lab());
}

#[test]
fn disturbed_turns_are_counted() {
    let outcome = crate::schema::Outcome::Lab(Box::new(lab()));
    let counted = Rounds::of(&outcome).map(|rounds| (rounds.quiet, rounds.disturbed));
    assert_eq!(counted, Some((1, 1)));
}
