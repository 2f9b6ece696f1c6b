use serde_json::{Value, json};

use super::example::{delays, example, sweep, trace};
pub(crate) use super::lab::tests::lab;
use super::*;
use crate::compare::{Round, figure, ratio};

pub(crate) fn comparison() -> CompareResult {
    let rounds = |base: f64| -> Vec<Round> {
        (0..6)
            .map(|i| Round {
                value: base + f64::from(i),
                steal: 0.0,
            })
            .collect()
    };
    let (base, fast) = (rounds(100.0), rounds(200.0));
    CompareResult {
        rounds: 6,
        round_duration_ns: 150_000_000,
        steal_limit_percent: 4.0,
        cpu_wait_percent: Some(0.5),
        turns_repeated: 0,
        until_ci: Some(UntilCi {
            estimate: Some(SeriesEstimate {
                median: 1.0,
                low: 0.9,
                high: 1.1,
                correlation: 0.0,
                pieces: 10,
            }),
            ..UntilCi::of(0.01, false, "AF_XDP", Some(0.02))
        }),
        tables: vec![Table {
            aa: vec![AaRatio {
                name: "UDP".into(),
                ratio: ratio(&base, &base).ok(),
                rounds: base.clone(),
            }],
            noise_floor_percent: Some(0.0),
            under_load: Vec::new(),
            operation: Operation::Rx,
            frame_bytes: 64,
            payload_bytes: 22,
            load: "in-kernel generator".into(),
            base: "UDP".into(),
            ratio_of: "packets_pps".into(),
            variants: vec![
                Variant {
                    name: "UDP".into(),
                    set_up: "recvmmsg of 64".into(),
                    packets_pps: Some(figure(&base).unwrap()),
                    rounds: base.clone(),
                    ..Variant::default()
                },
                Variant {
                    name: "AF_XDP".into(),
                    set_up: "512 frames".into(),
                    mode: Some(Mode::NativeCopy),
                    packets_pps: Some(figure(&fast).unwrap()),
                    ratio_to_base: Some(ratio(&base, &fast).unwrap()),
                    rounds: fast,
                    ..Variant::default()
                },
            ],
        }],
    }
}

/// Paths and kinds of all leaves: `result.run.duration_ns: number`.
fn names(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                names(value, &format!("{path}.{name}"), out);
            }
        }
        Value::Array(items) => {
            for item in items.iter().take(1) {
                names(item, &format!("{path}[]"), out);
            }
        }
        Value::Null => out.push(format!("{path}: null")),
        Value::Bool(_) => out.push(format!("{path}: bool")),
        Value::Number(_) => out.push(format!("{path}: number")),
        Value::String(_) => out.push(format!("{path}: string")),
    }
}

#[test]
fn all_kinds_come_back_as_they_went() {
    let run = example();
    let compare = Document {
        result: Outcome::Compare(comparison()),
        ..run.clone()
    };
    let delay = Document {
        result: Outcome::Delay(delays()),
        ..run.clone()
    };
    let sweep = Document {
        result: Outcome::Sweep(Box::new(sweep())),
        ..run.clone()
    };
    let trace = Document {
        result: Outcome::Trace(Box::new(trace())),
        ..run.clone()
    };
    for document in [run, compare, delay, sweep, trace] {
        let json = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<Document>(&json).unwrap(), document);
    }
}

#[test]
fn an_impaired_path_comes_back() {
    let result = ImpairResult {
        seed: 7,
        matching: "all".into(),
        directions: vec![ImpairedDirection {
            from: "eth0".into(),
            to: "eth1".into(),
            settings: "loss 1%".into(),
            counts: crate::impair::Counts::default(),
            unimpaired_packets: 1,
            too_long_packets: 2,
            link_down_packets: 3,
            left_packets: 4,
            asked: None,
            held: None,
            late: None,
        }],
    };
    let value = serde_json::to_value(&result).unwrap();
    assert_eq!(serde_json::from_value::<ImpairResult>(value).unwrap(), result);
}

#[test]
fn a_run_is_written_as_promised() {
    let golden: Value = serde_json::from_str(include_str!("golden-run-1.json")).unwrap();
    assert_eq!(serde_json::to_value(example()).unwrap(), golden);
}

#[test]
fn a_trace_is_sound() {
    check(&serde_json::to_value(trace()).unwrap()).unwrap();
}

#[test]
fn steering_comes_back() {
    let outcome = Outcome::Steer(Box::new(super::example::steer()));
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
}

#[test]
fn another_schema_is_refused_by_name() {
    let mut value = serde_json::to_value(example()).unwrap();
    value["schema"] = json!("ringside.result/2");
    let error = serde_json::from_value::<Document>(value).unwrap_err();
    assert!(error.to_string().contains("ringside.result/2"), "{error}");
    assert!(error.to_string().contains(SCHEMA), "{error}");
}

#[test]
fn unknown_fields_are_ignored_and_missing_figures_are_none() {
    let value = json!({
        "name": "UDP", "set_up": "", "rounds": [], "new_in_a_later_version": 1,
    });
    let variant: Variant = serde_json::from_value(value).unwrap();
    assert_eq!(variant.packets_pps, None);

    // A run as it was written before links were watched, UMEMs could be shared, packets sent by cycle and preemption told.
    let mut value = serde_json::to_value(example()).unwrap();
    let queue = value["interfaces"][0]["queues"][0].as_object_mut().unwrap();
    for name in ["umem", "frames", "frame_size_bytes", "multi_buffer"] {
        assert!(queue.remove(name).is_some(), "{name}");
    }
    let system = value["system"].as_object_mut().unwrap();
    assert!(system.remove("preemption").is_some());
    let run = value["result"]["run"].as_object_mut().unwrap();
    for name in ["link_events", "link_flaps", "link_down_ns", "cycle", "tx_stamps"] {
        assert!(run.remove(name).is_some(), "{name}");
    }
    let document: Document = serde_json::from_value(value).unwrap();
    assert_eq!(document.interfaces[0].queues[0].umem, None);
    let Outcome::Run(run) = document.result else {
        panic!("a run")
    };
    assert_eq!((run.link_events, run.link_flaps, run.link_down_ns), (None, None, None));
    assert_eq!(run.cycle, None);
}

#[test]
fn every_number_has_its_unit_or_is_a_count() {
    // Numbers whose name has no unit: counts of packets within a record that says so, numbers of
    // things, and parts of a figure whose field has the unit.
    let without = [
        "generated",
        "sent",
        "received",
        "count",
        "lost",
        "duplicated",
        "reordered",
        "longest_reordering",
        "late",
        "unexpected",
        "samples",
        "differences",
        "queue",
        "kicks",
        "waits",
        "rx_starved",
        "cpu",
        "cpus_online",
        "rx_queues",
        "tx_queues",
        "rx_dropped",
        "rx_invalid_descs",
        "tx_invalid_descs",
        "rx_ring_full",
        "rx_fill_ring_empty_descs",
        "tx_ring_empty_descs",
        "median",
        "spread",
        "min",
        "max",
        "low",
        "high",
        "rounds",
        "rounds_used",
        "rounds_left_out",
        "turns_repeated",
        "value",
        "steal",
        "link_flaps",
        "umem",
        "frames",
        "reads",
        "entries",
        "napi_cpu",
        "application_cpu",
        "failed_turns",
        "correlation",
        "pieces",
    ];
    let units = [
        "_ns", "_pps", "_bps", "_bytes", "_percent", "_packets", "_cycles", "_unix_s",
    ];
    let mut found = Vec::new();
    names(&serde_json::to_value(example()).unwrap(), "", &mut found);
    names(&serde_json::to_value(comparison()).unwrap(), "", &mut found);
    names(&serde_json::to_value(delays()).unwrap(), "", &mut found);
    names(&serde_json::to_value(sweep()).unwrap(), "", &mut found);
    for line in found {
        if let Some(path) = line.strip_suffix(": number") {
            let name = path.rsplit('.').next().unwrap();
            assert!(
                without.contains(&name) || units.iter().any(|unit| name.ends_with(unit)),
                "{path} has no unit"
            );
        }
    }
}
