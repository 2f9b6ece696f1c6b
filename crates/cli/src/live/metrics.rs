//! A snapshot as metrics: OpenMetrics text, named by Prometheus' conventions.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use ringside_measure::live::{LiveQueue, Snapshot};

use super::http::Format;

/// Upper ends of the buckets of times, in nanoseconds.
const BUCKETS_NS: [u64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
];

/// The whole text of a scrape.
pub(super) fn text(snapshot: Snapshot, format: Format) -> String {
    let mut registry = Registry::with_prefix("ringside");
    let build = Info::new(vec![("version", snapshot.tool_version.clone())]);
    registry.register("build", "Version of the tool", build);
    let run = Info::new(vec![
        ("command", snapshot.command.clone()),
        ("pid", snapshot.pid.to_string()),
    ]);
    registry.register("run", "What runs", run);
    registry.register_collector(Box::new(Metrics(snapshot)));
    let mut text = String::new();
    // Writing to memory cannot fail.
    _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    match format {
        Format::OpenMetrics => text,
        Format::Text => in_the_older_format(&text),
    }
}

/// OpenMetrics names a family, the format before it its samples: `x_total` of a counter, `x_info`, which is a gauge. Units and the end
/// are not told there.
fn in_the_older_format(text: &str) -> String {
    // "# TYPE family type"; the help of a family stands before it.
    let types: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            _ = writeln!(out, "{line}");
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(what @ ("HELP" | "TYPE")), Some(family), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (suffix, kind) = match types.get(family) {
            Some(&"counter") => ("_total", "counter"),
            Some(&"info") => ("_info", "gauge"),
            Some(&"unknown") => ("", "untyped"),
            Some(&kind) => ("", kind),
            None => ("", rest),
        };
        let rest = if what == "TYPE" { kind } else { rest };
        _ = writeln!(out, "# {what} {family}{suffix} {rest}");
    }
    out
}

#[derive(Debug)]
struct Metrics(Snapshot);

/// A counter of each queue: name, help, whether it counts bytes, value.
type OfQueue = (&'static str, &'static str, bool, fn(&LiveQueue) -> u64);

const OF_QUEUES: [OfQueue; 11] = [
    ("received_packets", "Packets taken from the RX ring", false, |queue| {
        queue.counters.received_packets
    }),
    (
        "received",
        "Bytes of received packets, from the Ethernet header on",
        true,
        |queue| queue.received_bytes,
    ),
    ("sent_packets", "Packets put on the TX ring", false, |queue| {
        queue.counters.sent_packets
    }),
    (
        "sent",
        "Bytes of sent packets, from the Ethernet header on",
        true,
        |queue| queue.sent_bytes,
    ),
    (
        "completed_frames",
        "Frames that the kernel is done sending",
        false,
        |queue| queue.completed_frames,
    ),
    (
        "transmit_kicks",
        "System calls that told the kernel to send",
        false,
        |queue| queue.counters.kicks,
    ),
    (
        "waits",
        "System calls that waited for packets or polled for them",
        false,
        |queue| queue.counters.waits,
    ),
    ("wakeups", "Times that a poll was woken by a packet", false, |queue| {
        queue.wakeups
    }),
    ("empty_looks", "Looks at an empty RX ring", false, |queue| {
        queue.empty_looks
    }),
    ("busy_polls", "Turns of busy-polling", false, |queue| queue.busy_polls),
    (
        "xdp_redirected_packets",
        "Packets that the XDP program gave to the socket",
        false,
        |queue| {
            queue
                .counters
                .xdp_verdicts
                .map_or(0, |verdicts| verdicts.redirected_packets)
        },
    ),
];

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let encoder = &mut encoder;
        for (name, help, is_bytes, value) in OF_QUEUES {
            let unit = is_bytes.then_some(Unit::Bytes);
            let counts = snapshot.queues.iter().map(|queue| (labels(queue, None), value(queue)));
            counters(encoder, (name, help, unit.as_ref()), counts)?;
        }
        lost(encoder, snapshot)?;
        passed(encoder, snapshot)?;
        empty_rings(encoder, snapshot)?;
        frames(encoder, snapshot)?;
        slots(encoder, snapshot)?;
        ages(encoder, snapshot)?;
        uptime(encoder, snapshot)?;
        times(encoder, snapshot)
    }
}

type Labels = Vec<(&'static str, String)>;

/// Interface and queue, and one more.
fn labels(queue: &LiveQueue, more: Option<(&'static str, &str)>) -> Labels {
    let own = [
        ("interface", queue.counters.interface.clone()),
        ("queue", queue.counters.queue.to_string()),
    ];
    own.into_iter()
        .chain(more.map(|(name, value)| (name, value.to_owned())))
        .collect()
}

fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    counts: impl Iterator<Item = (Labels, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Counter)?;
    for (labels, count) in counts {
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help, unit): (&str, &str, Option<&Unit>),
    values: impl Iterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (labels, value) in values {
        ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn lost(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let counts = snapshot.queues.iter().flat_map(|queue| {
        let kernel = queue.counters.xdp_statistics.unwrap_or_default();
        [
            ("rx_dropped", kernel.rx_dropped),
            ("rx_ring_full", kernel.rx_ring_full),
            ("tx_invalid_descs", kernel.tx_invalid_descs),
        ]
        .map(|(reason, count)| (labels(queue, Some(("reason", reason))), count))
    });
    let help = "Packets that the socket lost, by the kernel's names: rx_dropped is no free frame in time, or too long";
    counters(encoder, ("lost_packets", help, None), counts)
}

fn passed(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let counts = snapshot.queues.iter().flat_map(|queue| {
        let verdicts = queue.counters.xdp_verdicts.unwrap_or_default();
        [
            ("filter", verdicts.passed_filter_packets),
            ("neighbour", verdicts.passed_neighbour_packets),
            ("unbound", verdicts.passed_unbound_packets),
            ("malformed", verdicts.passed_malformed_packets),
        ]
        .map(|(reason, count)| (labels(queue, Some(("reason", reason))), count))
    });
    let help = "Packets that the XDP program passed up the kernel's stack";
    counters(encoder, ("xdp_passed_packets", help, None), counts)
}

fn empty_rings(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let counts = snapshot.queues.iter().flat_map(|queue| {
        let kernel = queue.counters.xdp_statistics.unwrap_or_default();
        [
            ("fill", kernel.rx_fill_ring_empty_descs),
            ("tx", kernel.tx_ring_empty_descs),
        ]
        .map(|(ring, count)| (labels(queue, Some(("ring", ring))), count))
    });
    counters(
        encoder,
        ("ring_empty", "Times that the kernel found a ring empty", None),
        counts,
    )
}

fn frames(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let told = snapshot.queues.iter().filter_map(|queue| Some((queue, queue.frames?)));
    let values = told.flat_map(|(queue, frames)| {
        [
            ("free", frames.free),
            ("fill", frames.fill),
            ("rx", frames.rx),
            ("user", frames.user),
            ("tx", frames.tx),
            ("completion", frames.completion),
        ]
        .map(|(place, count)| (labels(queue, Some(("place", place))), f64::from(count)))
    });
    gauges(
        encoder,
        ("umem_frames", "Frames of the queue's UMEM, by where they are", None),
        values,
    )
}

fn slots(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let values = snapshot.queues.iter().flat_map(|queue| {
        let rings = queue.rings;
        [
            ("fill", rings.fill_slots),
            ("rx", rings.rx_slots),
            ("tx", rings.tx_slots),
            ("completion", rings.completion_slots),
        ]
        .map(|(ring, slots)| (labels(queue, Some(("ring", ring))), f64::from(slots)))
    });
    gauges(encoder, ("ring_slots", "Slots of the queue's rings", None), values)
}

#[allow(clippy::cast_precision_loss, reason = "times to 16 digits")]
fn ages(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let ages = snapshot
        .queues
        .iter()
        .map(|queue| (labels(queue, None), queue.age_ns as f64 / 1e9));
    let help = "How old the queue's counters are: a thread that sleeps tells late";
    gauges(encoder, ("statistics_age", help, Some(&Unit::Seconds)), ages)
}

#[allow(clippy::cast_precision_loss, reason = "times to 16 digits")]
fn uptime(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let uptime = ConstGauge::new(snapshot.uptime_ns as f64 / 1e9);
    let help = "For how long it has run";
    uptime.encode(encoder.encode_descriptor("uptime", help, Some(&Unit::Seconds), MetricType::Gauge)?)
}

fn times(encoder: &mut DescriptorEncoder<'_>, snapshot: &Snapshot) -> fmt::Result {
    let Some(Ok(times)) = snapshot.latency.as_ref().map(|latency| latency.histogram()) else {
        return Ok(());
    };
    let mut below = 0;
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for until in BUCKETS_NS {
        let all = times.at_most(until);
        #[allow(clippy::cast_precision_loss, reason = "round figures")]
        buckets.push((until as f64 / 1e9, all - below));
        below = all;
    }
    buckets.push((f64::INFINITY, times.samples() - below));
    let help = "Round trips, from the real sending";
    let mut metric: MetricEncoder<'_> =
        encoder.encode_descriptor("round_trip", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    metric.encode_histogram::<NoLabelSet>(times.sum_seconds(), times.samples(), &buckets, None)
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
