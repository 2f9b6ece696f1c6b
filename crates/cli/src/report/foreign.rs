//! Results of iperf3 and sockperf, so that what a user has stands beside ours.

use anyhow::{Context as _, Result, bail};
use ringside_measure::latency::Latency;
use serde_json::Value;

use super::metrics::{Kind, Metric, of_times};

/// What is known of another tool's result.
#[derive(Debug)]
pub(super) struct Foreign {
    /// Tool and version, and what it did.
    pub(super) title: String,
    /// What it was told to do, as it says.
    pub(super) set_up: Vec<(String, String)>,
    pub(super) metrics: Vec<Metric>,
    /// Packets per second over time, in seconds.
    pub(super) packet_rates: Vec<(f64, f64)>,
    pub(super) times: Option<Latency>,
    /// What a reader has to know of these figures.
    pub(super) note: &'static str,
}

/// JSON of `iperf3 --json`; `None` if it is something else.
pub(super) fn iperf3(value: &Value) -> Option<Result<Foreign>> {
    let version = value.pointer("/start/version").and_then(Value::as_str);
    let error = value.get("error").and_then(Value::as_str);
    match (version, error) {
        (Some(version), None) if version.starts_with("iperf") => Some(iperf3_ended(version, value)),
        (_, Some(error)) if value.get("schema").is_none() => {
            Some(Err(anyhow::anyhow!("iperf3 ended with the error: {error}")))
        }
        _ => None,
    }
}

fn iperf3_ended(version: &str, value: &Value) -> Result<Foreign> {
    let protocol = value
        .pointer("/start/test_start/protocol")
        .and_then(Value::as_str)
        .unwrap_or("TCP");
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_f64);
    let received = number("/end/sum_received/bits_per_second").filter(|rate| *rate > 0.0);
    let sent = number("/end/sum_sent/bits_per_second").or_else(|| number("/end/sum/bits_per_second"));
    if received.is_none() && sent.is_none() {
        bail!("there are no sums at its end: was it interrupted?");
    }
    let seconds = number("/end/sum_sent/seconds")
        .or_else(|| number("/end/sum/seconds"))
        .unwrap_or(0.0);
    let packets = number("/end/sum_sent/packets")
        .or_else(|| number("/end/sum/packets"))
        .filter(|_| protocol == "UDP");
    let lost = number("/end/sum_received/lost_packets").or_else(|| number("/end/sum/lost_packets"));
    let mut metrics = Vec::new();
    let mut add = |name, value: Option<f64>, kind| metrics.extend(value.map(|value| Metric::new(name, value, kind)));
    let rate = |packets: Option<f64>| packets.filter(|_| seconds > 0.0).map(|packets| packets / seconds);
    add(
        "received",
        rate(packets.zip(lost).map(|(packets, lost)| packets - lost)),
        Kind::PacketsPerSecond,
    );
    add("received, payload", received, Kind::BitsPerSecond);
    add("sent", rate(packets), Kind::PacketsPerSecond);
    add("sent, payload", sent, Kind::BitsPerSecond);
    let percent = packets
        .zip(lost)
        .filter(|(packets, _)| *packets > 0.0)
        .map(|(packets, lost)| lost * 100.0 / packets);
    add("lost", percent, Kind::Percent);
    add(
        "jitter (RFC 3550)",
        number("/end/sum_received/jitter_ms")
            .filter(|_| packets.is_some())
            .map(|ms| ms * 1e6),
        Kind::Nanoseconds,
    );
    let rtts = ["min_rtt", "mean_rtt", "max_rtt"].map(|field| number(&format!("/end/streams/0/sender/{field}")));
    if let [Some(min), Some(mean), Some(max)] = rtts
        && !(min <= mean && mean <= max)
    {
        bail!("its RTT of {mean} µs on average is not between {min} and {max} µs: that cannot be");
    }
    for (name, field) in [("RTT min", "min_rtt"), ("RTT mean", "mean_rtt"), ("RTT max", "max_rtt")] {
        let rtt = number(&format!("/end/streams/0/sender/{field}")).filter(|rtt| *rtt > 0.0);
        add(name, rtt.map(|us| us * 1e3), Kind::Nanoseconds);
    }
    add(
        "TCP segments sent again",
        number("/end/sum_sent/retransmits"),
        Kind::Count,
    );
    add(
        "CPU, of one",
        number("/end/cpu_utilization_percent/host_total"),
        Kind::Percent,
    );
    let intervals = value
        .get("intervals")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let point = |interval: &Value| {
        let of = |field: &str| interval.pointer(&format!("/sum/{field}")).and_then(Value::as_f64);
        Some(((of("start")? + of("end")?) / 2.0, of("packets")? / of("seconds")?))
    };
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let set_up = [
        ("protocol", text("/start/test_start/protocol")),
        ("bytes of a write", text("/start/test_start/blksize")),
        ("streams", text("/start/test_start/num_streams")),
        (
            "asked for, bit/s (0: all there is)",
            text("/start/test_start/target_bitrate"),
        ),
        ("to", text("/start/connecting_to/host")),
        ("system", text("/start/system_info")),
    ];
    Ok(Foreign {
        title: format!("{version}, {protocol}"),
        set_up: set_up
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)))
            .collect(),
        metrics,
        packet_rates: intervals.iter().filter_map(point).collect(),
        times: None,
        note: "iperf3 counts payload, and its RTT is the TCP stack's own; its CPU is that of the sending process.",
    })
}

/// A log of `sockperf --full-log`; `None` if it is something else.
pub(super) fn sockperf(text: &str) -> Option<Result<Foreign>> {
    let (head, rows) = text.split_once("packet, txTime(sec), rxTime(sec), latency(usec)")?;
    Some(sockperf_log(head, rows))
}

fn sockperf_log(head: &str, rows: &str) -> Result<Foreign> {
    let mut times = Latency::new();
    let mut ends: Option<(u64, u64)> = None;
    for row in rows
        .lines()
        .map(str::trim)
        .filter(|row| row.starts_with(|first: char| first.is_ascii_digit()))
    {
        let mut fields = row.split(',').map(str::trim).skip(1);
        let mut stamp = || {
            fields
                .next()
                .and_then(nanoseconds)
                .with_context(|| format!("reading sockperf's log: the row {row:?} has no two stamps"))
        };
        let (sent, received) = (stamp()?, stamp()?);
        let rtt = received.checked_sub(sent).with_context(|| {
            format!("reading sockperf's log: in the row {row:?} an answer came before its question")
        })?;
        times.record(rtt);
        ends = Some(ends.map_or((sent, received), |(first, last)| (first.min(sent), last.max(received))));
    }
    let summary = times.summary().context("reading sockperf's log: it has no rows")?;
    let mut metrics = Vec::new();
    let seconds = ends.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9);
    if seconds > 0.0 {
        metrics.push(Metric::new(
            "received",
            summary.samples as f64 / seconds,
            Kind::PacketsPerSecond,
        ));
    }
    let counted = |name: &str| {
        let after = head.split_once(&format!("# {name} = "))?.1;
        after
            .split(|end: char| !end.is_ascii_digit())
            .next()?
            .parse::<f64>()
            .ok()
    };
    if let Some(dropped) = counted("dropped messages") {
        let all = dropped + summary.samples as f64;
        metrics.push(Metric::new("lost", dropped * 100.0 / all, Kind::Percent));
    }
    metrics.extend(of_times("RTT", &summary));
    let parameters = head.lines().find_map(|line| {
        line.trim()
            .strip_prefix("test was performed using the following parameters: ")
    });
    Ok(Foreign {
        title: "sockperf".to_owned(),
        set_up: parameters
            .map(|text| ("parameters".to_owned(), text.to_owned()))
            .into_iter()
            .collect(),
        metrics,
        packet_rates: Vec::new(),
        times: Some(times),
        note: "sockperf's own latency is half of the round trip unless it is told otherwise; here are whole round trips, from its stamps of sending and \
               receiving.",
    })
}

/// `2.404029680`, exactly.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = fraction.get(..9).unwrap_or(fraction);
    let nanos: u64 = format!("{digits:0<9}").parse().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(nanos)
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
