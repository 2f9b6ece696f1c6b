use ringside_measure::delay::{CStates, Core, Wait};
use ringside_measure::schema::{CState, CpuUse, DelayTurn, SchemaName};

use super::super::series::tests::{cell, reading, series};
use super::*;

/// A spinning application on another CPU, and one that could not be had.
fn document() -> Document {
    let mut spin = series(cell());
    spin.add(Ok(reading(1_000..1_100, 0.0)));
    spin.add(Ok(reading(2_000..2_100, 0.0)));
    let mut spin = spin.cell();
    spin.cpu = Some(CpuUse {
        cpu: 1,
        user_percent: 90.0,
        system_percent: 9.0,
        softirq_percent: 1.0,
        steal_percent: 0.0,
    });
    (spin.failed_turns, spin.failure) = (2, Some("the link is gone".into()));
    spin.lost_packets = 3;
    spin.turns.push(DelayTurn {
        samples: 100,
        p50_ns: Some(9_000),
        max_ns: Some(9_000),
        steal_percent: 7.0,
        left_out: true,
    });
    spin.idle = vec![
        IdleUse {
            name: "POLL".into(),
            entries: 1_000,
            time_ns: 5,
        },
        IdleUse {
            name: "C1".into(),
            entries: 4,
            time_ns: 5,
        },
    ];
    spin.measured_ns = 2_000_000_000;
    let mut poll = series(ringside_measure::delay::Cell {
        wait: Wait::Poll,
        ..cell()
    })
    .cell();
    poll.unavailable = Some("no other CPU: this process may run on CPU 0 alone".into());
    Document {
        schema: SchemaName,
        tool_version: "0.1.0".into(),
        started_unix_s: 0,
        validity: None,
        command_line: Vec::new(),
        system: System {
            preemption: Some("PREEMPT_RT".into()),
            c_states: vec![CState {
                name: "C6".into(),
                exit_latency_ns: 133_000,
                disabled: true,
            }],
            ..System::default()
        },
        interfaces: Vec::new(),
        result: Outcome::Delay(DelayResult {
            clock: ringside_measure::probe::Clock::Monotonic,
            clock_read: ringside_measure::schema::ClockRead {
                reads: 1_000,
                min_ns: 21.4,
                median_ns: 22.6,
            },
            interval_ns: Some(1_000_000),
            observed_interval_ns: None,
            rounds: 2,
            steal_limit_percent: 4.0,
            cells: vec![spin, poll],
            warnings: vec!["something to know".into()],
        }),
        far: None,
    }
}

fn text(reference: bool) -> String {
    let options = Options {
        path: &["test bed".to_owned()],
        is_lab: true,
        reference,
        terminal: false,
    };
    render(&document(), &options)
}

fn line<'a>(text: &'a str, words: &[&str]) -> &'a str {
    let found = text.lines().find(|line| words.iter().all(|word| line.contains(word)));
    found.unwrap_or_else(|| panic!("no line with {words:?} in\n{text}"))
}

#[test]
fn each_cell_has_its_row_and_its_reason() {
    let text = text(false);
    let row = line(&text, &["| spin", "as is"]);
    let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
    // The two turns have 100 samples each, from 1000 and from 2000 ns on.
    assert_eq!(
        cells[..6],
        ["spin", "other", "as is", "1.000", "1.550", "1.099"],
        "{text}"
    );
    assert_eq!(cells[7..9], ["-", "-"], "too few for p99 and p99.9: {text}");
    assert_eq!(cells[9], "2.099");
    assert_eq!(cells[11..], ["200", "90/9/1", "75.0", "2"], "{text}");
    line(&text, &["| poll", "-"]);
    let flat = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    for told in [
        "poll, other core, C-states as is: not available: no other CPU: this process may run on \
         CPU 0 alone",
        "left out, packets: 3 lost; 1 turn left out for CPU steal; 2 turns failed: the link is \
         gone",
        "PREEMPT_RT; C-states (exit latency): C6 (133 µs, switched off)",
        "Reading it takes 21.4 ns at the least and 22.6 in the median",
        "Warning: something to know.",
        "On a veth NAPI runs in the system call of the sender",
    ] {
        assert!(flat.contains(told), "{told:?} is not in\n{text}");
    }
    assert!(!text.contains("reference"), "{text}");
}

#[test]
fn the_reference_stands_beside_what_was_measured() {
    let text = text(true);
    let means = line(&text, &["spin", "remote"]);
    for number in ["1550", "2639", "1056", "788"] {
        assert!(means.contains(number), "{number} in {means}");
    }
    line(&text, &["1000 - 2099", "2337 - 4019", "419 - 2798", "551 - 1473"]);
    let not_measured = line(&text, &["wakeup", "same"]);
    for number in [" - ", "22881", "3177", "6209"] {
        assert!(not_measured.contains(number), "{number} in {not_measured}");
    }
}

#[test]
fn no_cpuidle_is_no_empty_list() {
    let system = System::default();
    assert_eq!(
        machine(&system),
        "no preemption of the kernel; the kernel reports no C-states (no cpuidle)"
    );
}

#[test]
fn times_have_their_digits() {
    for (ns, expected) in [
        (0.0, "0.000"),
        (849.0, "0.849"),
        (9_999.0, "9.999"),
        (22_881.0, "22.88"),
        (5_403_226.0, "5403.2"),
    ] {
        assert_eq!(micros(ns), expected);
    }
    let names = [Core::Same, Core::Other].map(core_name);
    assert_eq!(names, ["same", "other"]);
    assert_eq!([CStates::AsIs, CStates::Off].map(c_states_name), ["as is", "off"]);
}
