//! Tables for tests of texts.

use ringside_measure::compare::{Figure, Ratio};
use ringside_measure::schema::{Operation, Table, Variant};

fn figure(median: f64) -> Option<Figure> {
    Some(Figure {
        median,
        min: median,
        max: median,
        spread: Some(0.0),
        spread_percent: Some(0.0),
        rounds_used: 6,
        rounds_left_out: 0,
    })
}

pub(crate) fn ratio(median: f64, low: f64, high: f64) -> Option<Ratio> {
    Some(Ratio {
        median,
        low: Some(low),
        high: Some(high),
        rounds_used: 6,
        rounds_left_out: 0,
    })
}

pub(crate) fn rate(name: &str, pps: f64, ratio_to_base: Option<Ratio>) -> Variant {
    Variant {
        name: name.into(),
        packets_pps: figure(pps),
        ratio_to_base,
        ..Variant::default()
    }
}

pub(crate) fn time(name: &str, p50_ns: f64, ratio_to_base: Option<Ratio>) -> Variant {
    Variant {
        rtt_p50_ns: figure(p50_ns),
        ..rate(name, 1e9 / p50_ns, ratio_to_base)
    }
}

pub(crate) fn table(operation: Operation, variants: Vec<Variant>) -> Table {
    Table {
        operation,
        frame_bytes: if operation == Operation::Ping { 82 } else { 64 },
        payload_bytes: 22,
        load: "a load".into(),
        base: "udp-blocking".into(),
        ratio_of: "packets_pps".into(),
        variants,
        under_load: Vec::new(),
        aa: Vec::new(),
        noise_floor_percent: None,
    }
}
