//! Turns become a matrix.

use std::path::Path;

use ringside_measure::sequence::Counts;

use super::*;
use crate::lab::overrides::Overrides;

const LAB: &str = "\
title = \"t\"
rounds = 6
[[host]]
name = \"a\"
[[host]]
name = \"b\"
[[link]]
ends = [\"a\", \"b\"]
[[load]]
name = \"l\"
kind = \"udp\"
from = \"a\"
to = \"b\"
[[probe]]
name = \"first\"
from = \"a\"
to = \"b\"
with = \"udp\"
measure = [\"rtt\"]
[[probe]]
name = \"second\"
from = \"a\"
to = \"b\"
with = \"xsk\"
measure = [\"rtt\"]
";

fn measured(ns: u64, steal: f64, is_loaded: bool) -> Outcome {
    let mut times = Latency::new();
    (0..50).for_each(|more| times.record(ns + more));
    let (summary, hdr) = (times.summary().unwrap(), times.to_hdr().unwrap());
    let load = LabLoad {
        name: "l".into(),
        description: "d".into(),
        sent_pps: Some(1000.0),
        received_pps: Some(900.0),
        asked_bits_per_s: Some(1e6),
        sent_bits_per_s: Some(2e5),
        received_bits_per_s: None,
        requests_per_s: None,
    };
    Outcome::Measured(Box::new(Measured {
        probes: Counts {
            sent: 51,
            received: 50,
            lost: 1,
            ..Counts::default()
        },
        not_sent_probes: 0,
        impossible_packets: 0,
        raw: Some(summary),
        raw_hdr: Some(hdr.clone()),
        corrected: Some(summary),
        corrected_hdr: Some(hdr),
        steal,
        repeats: 1,
        waiting: 0.2,
        clock: None,
        loads: is_loaded.then_some(load).into_iter().collect(),
        schedule: None,
        jitter: None,
        steering: Vec::new(),
        redirected: None,
        tap: None,
    }))
}

#[test]
fn rounds_are_paired_and_stolen_ones_left_out() {
    let path = std::env::temp_dir().join(format!("ringside-lab-{}-result", std::process::id()));
    _ = std::fs::remove_dir_all(&path);
    let text = Text {
        name: "t".into(),
        text: LAB.into(),
    };
    let plan = Plan::read(&text).unwrap();
    let result = matrix(&plan, &text, &path);
    _ = std::fs::remove_dir_all(&path);
    let result = result.unwrap();
    assert_eq!(
        (result.rounds, result.interrupted, result.base.as_str()),
        (6, false, "first")
    );
    let [idle, loaded, second, second_loaded] = result.cells.as_slice() else {
        panic!("{result:#?}")
    };
    let times = idle.latency.corrected.unwrap();
    // The stolen round's 999 µs are not among them.
    assert_eq!((times.samples, times.min_ns, times.max_ns), (250, 10_000, 10_054));
    assert_eq!((idle.turns_left_out, idle.probes.lost, idle.rounds.len()), (1, 5, 6));
    assert_eq!(idle.turns_repeated, 6, "one of each turn");
    assert_eq!((idle.ratio_to_idle, idle.ratio_to_base), (None, None));
    let near = |ratio: Option<Ratio>, value: f64| (ratio.unwrap().median / value - 1.0).abs() < 0.01;
    assert!(
        near(loaded.ratio_to_idle, 2.0) && loaded.ratio_to_base.is_none(),
        "{loaded:#?}"
    );
    assert!(near(second.ratio_to_base, 3.0), "{second:#?}");
    assert_eq!(loaded.loads[0].received_pps, Some(900.0));
    // It failed whenever it was loaded.
    assert_eq!(
        (second_loaded.failed_turns, second_loaded.unavailable.as_deref()),
        (6, Some("why"))
    );
    assert_eq!(second_loaded.latency.corrected, None);
    let warnings = result.warnings.join("\n");
    assert!(
        warnings.contains("20 % of the time") && warnings.contains("less of the load arrived"),
        "{warnings}"
    );
}

fn matrix(plan: &Plan, text: &Text, path: &Path) -> Result<LabResult> {
    let mut folder = Folder::create(path, text, &Overrides::default())?;
    for round in 0..6 {
        let stolen = round == 3;
        for (cell, ns, is_loaded) in [(0, 10_000, false), (1, 20_000, true), (2, 30_000, false)] {
            let (ns, steal) = match (stolen, cell) {
                (true, 0) => (999_000, 0.5),
                _ => (ns + u64::from(round), 0.0),
            };
            folder.add(Turn {
                round,
                cell,
                outcome: measured(ns, steal, is_loaded),
            })?;
        }
        folder.add(Turn {
            round,
            cell: 3,
            outcome: Outcome::Failed("why".into()),
        })?;
    }
    of(plan, text, &folder)
}
