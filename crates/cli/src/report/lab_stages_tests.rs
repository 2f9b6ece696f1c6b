use ringside_measure::compare::Round;
use ringside_measure::latency::Latency;
use ringside_measure::schema::LabCell;
use ringside_measure::sequence::Counts;

use super::*;

fn stages() -> LabStages {
    let mut times = Latency::new();
    (0..40).for_each(|ns| times.record(40_000 + ns));
    let stage = |hop, stage: Stage, part_ns: f64, uncertainty_ns| StageResult {
        hop,
        stage,
        name: stage.name().to_owned(),
        interface: None,
        times: times.summary(),
        times_hdr: None,
        part_ns,
        part_percent: part_ns / 1_000.0,
        uncertainty_ns,
    };
    let traced = TracedPath {
        receiver: Some("tap".into()),
        failure: None,
        sent_packets: Some(40),
        received_packets: Some(40),
        traced_packets: 40,
        incomplete_packets: 0,
        lost_events: 0,
        stages: vec![
            stage(0, Stage::From(Point::Call), 10_000.0, None),
            stage(1, Stage::IntoGuest, 60_000.0, Some(9_000)),
            stage(2, Stage::From(Point::Waking), 30_000.0, None),
        ],
        whole: times.summary(),
        whole_hdr: None,
        sum_mean_ns: 100_000.0,
        end: Some(Point::Application),
        disordered_packets: 0,
        clock_error_ns: 0,
        cost: None,
        slow: None,
        recorded: None,
    };
    LabStages {
        path: "tap".into(),
        condition: LoadKind::Foreign,
        is_round_trip: true,
        loads: Vec::new(),
        steering: Vec::new(),
        unavailable: None,
        traced: Some(traced),
        missing: Vec::new(),
        clock: None,
        steal_percent: 0.0,
    }
}

fn lab(stages: Vec<LabStages>) -> LabResult {
    LabResult {
        title: "t".into(),
        rounds: 1,
        turn_ns: 1,
        steal_limit_percent: 4.0,
        base: "tap".into(),
        machines: Vec::new(),
        cells: Vec::new(),
        stages,
        warnings: Vec::new(),
        interrupted: false,
        file: String::new(),
    }
}

#[test]
fn a_line_has_what_took_most_with_its_uncertainty() {
    let told = line(&stages());
    assert!(
        told.starts_with("tap, loaded, there and back: 40.0 µs on average of 40 packets; most in 2: QEMU and vCPU kick 60.0 µs ± 9.00 µs (60 %), 3: wake-up"),
        "{told}"
    );
    let none = LabStages {
        traced: None,
        unavailable: Some("no hook".into()),
        ..stages()
    };
    assert_eq!(line(&none), "tap, loaded: no stages: no hook");
    assert!(words(&lab(vec![none]))[0].is_warning);
}

/// A cell of the same path: its median, and those of its turns.
fn cell(p50_ns: u64, turns: &[f64]) -> LabCell {
    let mut times = Latency::new();
    (0..40).for_each(|_| times.record(p50_ns));
    let json = serde_json::json!({
        "path": "tap", "description": "", "condition": "foreign", "unavailable": null, "probes": Counts::default(), "not_sent_probes": 0,
        "latency": {
            "kind": "round_trip", "clock": "monotonic", "raw": null, "corrected": times.summary(), "jitter": null, "impossible_packets": 0
        },
        "rounds": turns.iter().map(|value| Round { value: *value, steal: 0.0 }).collect::<Vec<_>>(),
        "turns_left_out": 0, "failed_turns": 0, "failure": null, "waiting_percent": null, "ratio_to_idle": null, "ratio_to_base": null
    });
    serde_json::from_value(json).expect("a cell")
}

#[test]
fn what_is_left_out_and_what_tracing_costs_is_told() {
    let mut many = stages();
    many.traced.as_mut().unwrap().incomplete_packets = 5;
    assert!(
        line(&many).contains("of 40 packets, 5 left out; most in"),
        "{}",
        line(&many)
    );
    let told = left_out(&many).expect("five of 45");
    assert!(
        told.starts_with("tap, loaded: 5 of 45 traced packets are left out"),
        "{told}"
    );
    let page = part(&lab(vec![many.clone()])).into_string();
    assert!(page.contains("5 of 45 traced packets"), "{page}");
    assert!(words(&lab(vec![many.clone()]))[1].is_warning);
    many.traced.as_mut().unwrap().incomplete_packets = 4;
    assert_eq!((left_out(&many), words(&lab(vec![many])).len()), (None, 1));

    // Traced 40 µs, in single turns without tracing 16 µs to 25 µs.
    let slow = LabResult {
        cells: vec![cell(20_000, &[16_000.0, 25_000.0, 20_000.0])],
        ..lab(vec![stages()])
    };
    let page = part(&slow).into_string();
    let costs = "median 40.0 µs traced, 20.0 µs in the turns without tracing: 2.00 times as long (1.60 to 2.50 by single turns)";
    assert!(page.contains(costs), "{page}");
    let said = words(&slow);
    assert!(said.len() == 2 && said[1].is_warning && said[1].text.contains("slows this path down"));
    // One turn without was as slow.
    let unsure = LabResult {
        cells: vec![cell(20_000, &[16_000.0, 41_000.0])],
        ..lab(vec![stages()])
    };
    assert!(part(&unsure).into_string().contains("2.00 times as long (0.98 to 2.50"));
    assert_eq!(words(&unsure).len(), 1);
}

#[test]
fn the_part_has_a_bar_of_all_stages_and_a_table() {
    let page = part(&lab(vec![stages()])).into_string();
    for words in [
        "Stages, there and back",
        "2: QEMU and vCPU kick, 60.0 µs",
        "class=\"c7\"",
        "± 9.00 µs",
        "<th>3: wake-up</th>",
    ] {
        assert!(page.contains(words), "{words}: {page}");
    }
    assert!(
        !page.contains("Stages, one way") && !page.contains("remainder"),
        "{page}"
    );
    assert_eq!(part(&lab(Vec::new())).into_string(), "");
    let mut text = String::new();
    markdown(&mut text, &lab(vec![stages()]));
    assert!(text.contains("tap, loaded, there and back, 40 packets"), "{text}");
    assert!(figures(&lab(vec![stages()])).iter().any(|(what, figure, ns)| {
        what == "tap, loaded: 2: QEMU and vCPU kick" && *figure == "part" && (ns - 60_000.0).abs() < 1.0
    }));
}
