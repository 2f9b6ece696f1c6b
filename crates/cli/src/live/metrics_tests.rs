use ringside_measure::latency::Latency;
use ringside_measure::live::{Frames, LiveTimes, Rings, SCHEMA};
use ringside_measure::schema::{LatencyKind, Mode, QueueCounters, XdpStatistics, XdpVerdicts};

use super::*;

fn example() -> Snapshot {
    let mut times = Latency::new();
    [900, 1_500, 15_000, 2_000_000_000]
        .iter()
        .for_each(|&ns| times.record(ns));
    Snapshot {
        schema: SCHEMA.into(),
        tool_version: "0.1.0".into(),
        pid: 7,
        command: "ping".into(),
        command_line: Vec::new(),
        network_namespace: 1,
        started_unix_s: 1,
        uptime_ns: 1_500_000_000,
        queues: vec![LiveQueue {
            counters: QueueCounters {
                interface: "eth0".into(),
                queue: 3,
                received_packets: 11,
                sent_packets: 12,
                kicks: 13,
                waits: 14,
                rx_starved: 0,
                xdp_statistics: Some(XdpStatistics {
                    rx_dropped: 15,
                    rx_ring_full: 16,
                    rx_fill_ring_empty_descs: 17,
                    ..XdpStatistics::default()
                }),
                xdp_verdicts: Some(XdpVerdicts {
                    redirected_packets: 42,
                    passed_filter_packets: 18,
                    ..XdpVerdicts::default()
                }),
            },
            mode: Mode::NativeCopy,
            received_bytes: 1100,
            sent_bytes: 1200,
            completed_frames: 12,
            wakeups: 5,
            empty_looks: 6,
            busy_polls: 0,
            frames: Some(Frames {
                fill: 256,
                free: 256,
                ..Frames::default()
            }),
            rings: Rings::default(),
            age_ns: 2_000_000,
        }],
        latency: Some(LiveTimes::of(LatencyKind::RoundTrip, &times)),
    }
}

#[test]
fn each_figure_has_its_name() {
    let text = text(example(), Format::OpenMetrics);
    for line in [
        "# TYPE ringside_received_packets counter",
        "# UNIT ringside_received_bytes bytes",
        "ringside_build_info{version=\"0.1.0\"} 1",
        "ringside_run_info{command=\"ping\",pid=\"7\"} 1",
        "ringside_received_packets_total{interface=\"eth0\",queue=\"3\"} 11",
        "ringside_received_bytes_total{interface=\"eth0\",queue=\"3\"} 1100",
        "ringside_sent_packets_total{interface=\"eth0\",queue=\"3\"} 12",
        "ringside_transmit_kicks_total{interface=\"eth0\",queue=\"3\"} 13",
        "ringside_xdp_redirected_packets_total{interface=\"eth0\",queue=\"3\"} 42",
        "ringside_lost_packets_total{interface=\"eth0\",queue=\"3\",reason=\"rx_dropped\"} 15",
        "ringside_lost_packets_total{interface=\"eth0\",queue=\"3\",reason=\"rx_ring_full\"} 16",
        "ringside_xdp_passed_packets_total{interface=\"eth0\",queue=\"3\",reason=\"filter\"} 18",
        "ringside_ring_empty_total{interface=\"eth0\",queue=\"3\",ring=\"fill\"} 17",
        "ringside_umem_frames{interface=\"eth0\",queue=\"3\",place=\"fill\"} 256.0",
        "ringside_statistics_age_seconds{interface=\"eth0\",queue=\"3\"} 0.002",
        "ringside_uptime_seconds 1.5",
        "ringside_round_trip_seconds_bucket{le=\"0.000001\"} 1",
        "ringside_round_trip_seconds_bucket{le=\"0.000002\"} 2",
        "ringside_round_trip_seconds_bucket{le=\"0.00002\"} 3",
        "ringside_round_trip_seconds_bucket{le=\"1.0\"} 3",
        "ringside_round_trip_seconds_bucket{le=\"+Inf\"} 4",
        "ringside_round_trip_seconds_count 4",
    ] {
        assert!(text.lines().any(|known| known == line), "no {line:?} in {text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

/// What has not been told yet, or is not measured, is left out.
#[test]
fn what_is_not_known_is_no_zero() {
    let mut snapshot = example();
    snapshot.latency = None;
    snapshot.queues[0].frames = None;
    let text = text(snapshot, Format::OpenMetrics);
    assert!(!text.contains("round_trip") && !text.contains("place="), "{text}");
}

/// The dashboard only names metrics that there are.
#[test]
fn the_dashboard_is_of_these_metrics() {
    let text = text(example(), Format::OpenMetrics);
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let dashboard = std::fs::read_to_string(folder.join("grafana/ringside.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = Vec::new();
    collect(&json, &mut expressions);
    assert!(expressions.len() > 10, "{expressions:?}");
    for expression in expressions {
        let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names = Vec::from_iter(words.filter(|word| word.starts_with("ringside_")));
        assert!(!names.is_empty(), "{expression}");
        for name in names {
            assert!(
                text.lines()
                    .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))),
                "{name} of {expression} is no metric"
            );
        }
    }
}

/// All values of "expr" and of queries of variables, however deep.
fn collect(json: &serde_json::Value, expressions: &mut Vec<String>) {
    match json {
        serde_json::Value::Object(fields) => fields.iter().for_each(|(name, value)| match value {
            serde_json::Value::String(text) if name == "expr" || text.starts_with("label_values(") => {
                expressions.push(text.clone());
            }
            value => collect(value, expressions),
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, expressions)),
        _ => {}
    }
}

/// What scrapers get that know only the format before OpenMetrics: types of samples, none that it has not.
#[test]
fn the_older_format_names_samples() {
    let (new, old) = (text(example(), Format::OpenMetrics), text(example(), Format::Text));
    let samples = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(samples(&new), samples(&old), "the same samples");
    assert!(
        new.ends_with("# EOF\n") && !old.contains("# EOF") && !old.contains("# UNIT"),
        "{old}"
    );
    let mut typed = std::collections::HashSet::new();
    for line in old.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram", "untyped"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(old.contains(&format!("# HELP {name} ")), "{line}");
            assert!(typed.insert(name), "once: {line}");
        }
    }
    for line in samples(&old) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        assert!(
            typed.contains(name) || family.is_some_and(|family| typed.contains(family)),
            "{line}"
        );
    }
}
