//! Whether the figures of a result can be: asked of every result before it is told, and of every one that is read.
//!
//! It looks at the JSON, so that whatever has the fields of a distribution is checked, wherever it stands and whoever wrote it.

use serde_json::{Map, Value};

use crate::Error;
use crate::latency::{Latency, SAMPLES_BEYOND};

/// Percentiles, from low to high, and one sample in how many lies beyond each.
const PERCENTILES: [(&str, f64); 6] = [
    ("p50_ns", 2.0),
    ("p90_ns", 10.0),
    ("p99_ns", 100.0),
    ("p99_9_ns", 1_000.0),
    ("p99_99_ns", 10_000.0),
    ("p99_999_ns", 100_000.0),
];

/// Histograms, and the distributions that they are of.
const HISTOGRAMS: [(&str, &str); 9] = [
    ("raw_hdr", "raw"),
    ("corrected_hdr", "corrected"),
    ("hand_over_hdr", "hand_over"),
    ("delay_hdr", "delay"),
    ("times_hdr", "times"),
    ("whole_hdr", "whole"),
    ("latency_hdr", "latency"),
    ("gap_hdr", "gap"),
    ("path_hdr", "path"),
];

/// Round trips of a variant over its rounds, from short to long.
const ROUND_TRIPS: [&str; 6] = [
    "rtt_min_ns",
    "rtt_p50_ns",
    "rtt_p90_ns",
    "rtt_p99_ns",
    "rtt_p99_9_ns",
    "rtt_max_ns",
];

/// Checks all distributions of a result: min ≤ p50 ≤ … ≤ max, min ≤ mean ≤ max, percentiles only of samples enough, a histogram with
/// as many samples as its figures are of, medians within their ends and intervals.
///
/// # Errors
/// [`Error::Unsound`] that names the first place where that is not so.
///
/// ```
/// use ringside_measure::schema::check;
/// use serde_json::json;
///
/// let times = json!({"samples": 30, "min_ns": 5, "mean_ns": 7.5, "stddev_ns": 1.0, "p50_ns": 7, "max_ns": 12});
/// assert!(check(&json!({ "raw": times })).is_ok());
/// let mut wrong = times;
/// wrong["mean_ns"] = json!(4.5);
/// let error = check(&json!({ "raw": wrong })).unwrap_err().to_string();
/// assert!(error.contains("raw: mean_ns is 4.5, and min_ns is 5"), "{error}");
/// ```
pub fn check(result: &Value) -> Result<(), Error> {
    walk(result, "")
}

fn walk(value: &Value, at: &str) -> Result<(), Error> {
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(index, item)| walk(item, &format!("{at}[{index}]"))),
        Value::Object(fields) => {
            look(fields).map_err(|what| Error::Unsound {
                at: if at.is_empty() { "result".into() } else { at.into() },
                what,
            })?;
            fields.iter().try_for_each(|(name, item)| {
                let dot = if at.is_empty() { "" } else { "." };
                walk(item, &format!("{at}{dot}{name}"))
            })
        }
        _ => Ok(()),
    }
}

fn look(fields: &Map<String, Value>) -> Result<(), String> {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    if fields.contains_key("min_ns") && fields.contains_key("max_ns") {
        distribution(fields)?;
    }
    for (low, middle, high) in [
        ("min", "median", "max"),
        ("low", "median", "high"),
        ("min_packets", "mean_packets", "max_packets"),
    ] {
        let chain = [low, middle, high].map(|name| (name, number(name)));
        if fields.contains_key(low) && fields.contains_key(middle) {
            ascending(chain)?;
        }
    }
    if let Some(spread) = number("spread").filter(|spread| *spread < 0.0) {
        return Err(format!("spread is {spread}"));
    }
    for (histogram, times) in HISTOGRAMS {
        if let (Some(text), Some(samples)) = (
            fields.get(histogram).and_then(Value::as_str),
            fields.get(times).and_then(|times| times.get("samples")?.as_u64()),
        ) {
            let latency = Latency::from_hdr(text).map_err(|error| format!("{histogram}: {error}"))?;
            if latency.samples() != samples {
                return Err(format!(
                    "{histogram} has {} samples, and {times} {samples}",
                    latency.samples()
                ));
            }
        }
    }
    ledger(fields)?;
    over_rounds(fields)
}

/// Packets sent, received and lost, where they stand beside what nobody knows of, and those of a sequence.
fn ledger(fields: &Map<String, Value>) -> Result<(), String> {
    let count = |of: &Value, name: &str| of.get(name).and_then(Value::as_i64);
    if let Some(packets) = fields.get("packets")
        && let Some(told) = fields.get("unaccounted_packets").and_then(Value::as_i64)
        && let Some(sent) = count(packets, "sent")
        && let Some(delivered) = count(packets, "received").or_else(|| count(packets, "transmitted"))
        && let Some(losses) = packets.get("losses").and_then(Value::as_array)
    {
        let lost: i64 = losses.iter().filter_map(|loss| count(loss, "count")).sum();
        let missing = sent - delivered - lost;
        if missing != told {
            return Err(format!(
                "unaccounted_packets is {told}, and {sent} sent - {delivered} delivered - {lost} lost are {missing}"
            ));
        }
    }
    if let Some(sequence) = fields.get("sequence")
        && let (Some(sent), Some(received), Some(lost)) = (
            count(sequence, "sent"),
            count(sequence, "received"),
            count(sequence, "lost"),
        )
        && sent - received != lost
    {
        return Err(format!(
            "sequence.lost is {lost}, and {sent} sent - {received} received are {}",
            sent - received
        ));
    }
    Ok(())
}

/// One distribution.
fn distribution(fields: &Map<String, Value>) -> Result<(), String> {
    let number = |name: &str| fields.get(name).and_then(Value::as_f64);
    let ends = [("min_ns", number("min_ns")), ("max_ns", number("max_ns"))];
    ascending([ends[0], ("mean_ns", number("mean_ns")), ends[1]])?;
    let percentiles = PERCENTILES.map(|(name, _)| (name, number(name)));
    ascending(std::iter::once(ends[0]).chain(percentiles).chain([ends[1]]))?;
    if let Some(stddev) = number("stddev_ns").filter(|stddev| *stddev < 0.0) {
        return Err(format!("stddev_ns is {stddev}"));
    }
    let Some(samples) = number("samples") else {
        return Ok(());
    };
    if samples < 1.0 {
        return Err("it has figures and no samples".into());
    }
    for (name, one_in) in PERCENTILES {
        if number(name).is_some() && samples < one_in * SAMPLES_BEYOND as f64 {
            return Err(format!("{name} is told of {samples} samples: too few"));
        }
    }
    Ok(())
}

/// Medians over rounds keep their order where each is of the same rounds.
fn over_rounds(fields: &Map<String, Value>) -> Result<(), String> {
    let rounds = |name: &str| fields.get(name)?.get("rounds_used")?.as_u64();
    let Some(all) = rounds(ROUND_TRIPS[0]) else {
        return Ok(());
    };
    let median = |name: &'static str| {
        let figure = fields.get(name).filter(|_| rounds(name) == Some(all));
        (name, figure.and_then(|figure| figure.get("median")?.as_f64()))
    };
    ascending(ROUND_TRIPS.map(median))?;
    ascending(["rtt_min_ns", "rtt_mean_ns", "rtt_max_ns"].map(median))
}

/// Those that are there never go down.
fn ascending<'n>(chain: impl IntoIterator<Item = (&'n str, Option<f64>)>) -> Result<(), String> {
    let mut last: Option<(&str, f64)> = None;
    for (name, value) in chain {
        let Some(value) = value else { continue };
        match last {
            Some((before, least)) if value < least => {
                return Err(format!("{name} is {value}, and {before} is {least}"));
            }
            _ => last = Some((name, value)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "sound_tests.rs"]
mod tests;
