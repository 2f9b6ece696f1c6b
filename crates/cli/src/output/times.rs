//! How long probes took, and how late they were sent, for people.

use ringside_measure::latency::Jitter;
use ringside_measure::pace::LATE_NS;
use ringside_measure::schema::{LatencyResult, SenderLateness};

use super::{Lines, microseconds, packets};

/// How late the sender was.
pub(super) fn sender(out: &mut Lines, lateness: &SenderLateness) {
    out.pair(
        "sender, µs",
        format!(
            "{}  (sent after the scheduled time; {} packets were late by more than an interval \
             and {} µs)",
            microseconds(&lateness.times),
            packets(lateness.late_packets),
            LATE_NS / 1_000
        ),
    );
}

/// Round trips.
pub(super) fn text(out: &mut Lines, latency: &LatencyResult) {
    if let Some(raw) = &latency.raw {
        out.pair(
            "RTT, µs",
            format!(
                "{}  ({} samples, from the real sending)",
                microseconds(raw),
                packets(raw.samples)
            ),
        );
    }
    if let Some(corrected) = &latency.corrected {
        out.pair(
            "RTT, µs",
            format!(
                "{}  (from the intended sending: corrected for coordinated omission)",
                microseconds(corrected)
            ),
        );
    }
    if let Some(jitter) = &latency.jitter {
        self::jitter(out, jitter, "of consecutive RTTs");
    }
}

/// Prints jitter; `of` says what the mean difference is of.
pub(super) fn jitter(out: &mut Lines, jitter: &Jitter, of: &str) {
    out.pair(
        "jitter, µs",
        format!(
            "{:.2} by RFC 3550 6.4.1 (smoothed), {:.2} mean difference {of}",
            jitter.rfc3550_smoothed_ns / 1e3,
            jitter.mean_abs_consecutive_difference_ns / 1e3
        ),
    );
}
