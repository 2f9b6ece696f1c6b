use ringside_measure::compare::{Round, figure, ratio};
use ringside_measure::latency::Latency;
use ringside_measure::schema::CostTurns;

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
        measured: None,
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
        restarts: Vec::new(),
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

/// Pairs of turns without tracing and with it.
fn cost(pairs: &[(f64, f64)]) -> Option<TraceCost> {
    let rounds = |of: fn(&(f64, f64)) -> f64| -> Vec<Round> {
        let round = |pair| Round {
            value: of(pair),
            steal: 0.0,
        };
        pairs.iter().map(round).collect()
    };
    let (off, on) = (rounds(|pair| pair.0), rounds(|pair| pair.1));
    Some(TraceCost {
        off_ns: figure(&off).expect("rounds"),
        on_ns: figure(&on).expect("rounds"),
        ratio: ratio(&off, &on).expect("rounds"),
        off: CostTurns::default(),
        on: CostTurns::default(),
        always_on: None,
    })
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

    let with = |cost: Option<TraceCost>| {
        let mut of = stages();
        of.traced.as_mut().unwrap().cost = cost;
        lab(vec![of])
    };
    let slow = with(cost(&[(20_000.0, 40_000.0); 5]));
    let page = part(&slow).into_string();
    let costs = "median 40.0 µs with tracing, 20.0 µs without, in 5 pairs of turns: 2.00 times as long (95 % interval 2.00 to 2.00).";
    assert!(page.contains(costs), "{page}");
    let said = words(&slow);
    assert!(said.len() == 2 && said[1].is_warning && said[1].text.contains("slows this path down"));
    // In one pair it was no slower.
    let unsure = with(cost(&[
        (20_000.0, 40_000.0),
        (20_000.0, 40_000.0),
        (20_000.0, 40_000.0),
        (20_000.0, 20_000.0),
        (40_000.0, 20_000.0),
    ]));
    assert!(
        part(&unsure)
            .into_string()
            .contains("2.00 times as long (95 % interval 0.50 to 2.00)")
    );
    assert_eq!(words(&unsure).len(), 1);
    let far = cost(&[(1.0, 1.0)]).map(|cost| TraceCost {
        always_on: Some("at far".into()),
        ..cost
    });
    let page = part(&with(far)).into_string();
    assert!(
        page.contains("(too few pairs for an interval); at far it is traced in all of them"),
        "{page}"
    );
    assert!(
        part(&with(None))
            .into_string()
            .contains("What tracing costs was not measured.")
    );
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
