use ringside_measure::latency::Latency;

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
