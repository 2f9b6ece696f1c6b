//! What `ringside impair` is to do and what it has done, for people.

use std::fmt::{self, Display, Write as _};
use std::time::Duration;

use ringside_measure::impair::{Pick, Settings, Spread, Unit};
use ringside_measure::latency::Summary;
use ringside_measure::pace::LATE_NS;
use ringside_measure::schema::{ImpairResult, ImpairedDirection};

use crate::output::{microseconds, packets, tail};

/// What was done in each direction.
pub(crate) fn text(result: &ImpairResult) -> String {
    let mut out = format!("impaired       {} packets, seed {}\n", result.matching, result.seed);
    for direction in &result.directions {
        one(&mut out, direction);
    }
    out
}

/// The counts of each direction, and how late packets left if the path is not the one asked for.
pub(crate) fn brief(result: &ImpairResult) -> String {
    let mut out = String::new();
    for direction in &result.directions {
        counts(&mut out, &format!("{} -> {}", direction.from, direction.to), direction);
        let is_late = |late: &&Summary| late.p99_ns.unwrap_or(late.max_ns) > LATE_NS;
        if let Some(late) = direction.late.as_ref().filter(is_late) {
            _ = writeln!(out, "{:<14} {}", "left late by", tail(late));
        }
    }
    out
}

fn one(out: &mut String, direction: &ImpairedDirection) {
    let ImpairedDirection { from, to, .. } = direction;
    // Writing to a string does not fail.
    let line = |out: &mut String, label: &str, text: String| {
        _ = writeln!(out, "{label:<14} {text}");
    };
    line(out, &format!("{from} -> {to}"), direction.settings.clone());
    counts(out, "", direction);
    for (label, summary) in [
        ("  asked, µs", &direction.asked),
        ("  held, µs", &direction.held),
        ("  late, µs", &direction.late),
    ] {
        if let Some(summary) = summary.as_ref().filter(|summary| summary.max_ns != 0) {
            line(out, label, microseconds(summary));
        }
    }
}

fn counts(out: &mut String, label: &str, direction: &ImpairedDirection) {
    let counts = &direction.counts;
    let mut line = |label: &str, text: String| _ = writeln!(out, "{label:<14} {text}");
    line(
        label,
        format!(
            "{} came, {} lost, {} passed, {} doubled, {} out of order (RFC 4737)",
            packets(counts.offered),
            packets(counts.dropped),
            packets(counts.passed),
            packets(counts.duplicated),
            packets(counts.reordered)
        ),
    );
    let others: Vec<String> = [
        (counts.queue_dropped, "found the queue full"),
        (counts.corrupted, "damaged"),
        (counts.not_overtaken, "held back in vain: too few came behind them"),
        (counts.overflowed, "found no room: give more with --hold"),
        (counts.uncopied, "could not be doubled: give more room with --hold"),
        (direction.too_long_packets, "too long to send"),
        (direction.link_down_packets, "lost because the link was down"),
        (direction.left_packets, "still held at the end"),
        (direction.unimpaired_packets, "others, handed on as they came"),
    ]
    .into_iter()
    .filter(|(number, _)| *number != 0)
    .map(|(number, what)| format!("{} {what}", packets(number)))
    .collect();
    if !others.is_empty() {
        line("", others.join(", "));
    }
}

/// Settings, for people.
pub(super) struct InWords<'a>(pub(super) &'a Settings);

impl Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.0;
        let mut words = String::new();
        let mut say = |what: fmt::Arguments<'_>| {
            let comma = if words.is_empty() { "" } else { ", " };
            write!(words, "{comma}{what}")
        };
        for (what, pick) in [
            ("loss", settings.loss),
            ("corruption", settings.corrupt),
            ("duplication", settings.duplicate),
        ] {
            if pick != Pick::Never {
                say(format_args!("{what} {}", Picked(pick)))?;
            }
        }
        if let Some(rate) = settings.rate {
            let unit = match rate.unit {
                Unit::Packets => "packets",
                Unit::Bits => "bits",
            };
            say(format_args!("{} {unit}/s, queue {}", rate.per_second, rate.queue))?;
        }
        if settings.delay_ns != 0 || settings.jitter_ns != 0 {
            let time = Duration::from_nanos(settings.delay_ns);
            let around = Duration::from_nanos(settings.jitter_ns);
            let (by, overtaking) = (
                match settings.spread {
                    Spread::Uniform => "±",
                    Spread::Normal => "normally ±",
                },
                if settings.overtaking { ", overtaking" } else { "" },
            );
            match settings.jitter_ns {
                0 => say(format_args!("delay {time:?}"))?,
                _ => say(format_args!("delay {time:?} {by} {around:?}{overtaking}"))?,
            }
        }
        if settings.reorder != Pick::Never {
            say(format_args!(
                "{} held back by {}",
                Picked(settings.reorder),
                settings.reorder_by
            ))?;
        }
        f.write_str(if words.is_empty() { "as it comes" } else { &words })
    }
}

/// A choice of packets, as the command line has it.
struct Picked(Pick);

impl Display for Picked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| share * 100.0;
        match self.0 {
            Pick::Never => f.write_str("none"),
            Pick::Share(share) => write!(f, "{}%", percent(share)),
            Pick::Every(number) => write!(f, "every:{number}"),
            Pick::Bursts {
                enter,
                leave,
                bad,
                good,
            } => write!(
                f,
                "burst:{}%,{}%,{}%,{}%",
                percent(enter),
                percent(leave),
                percent(bad),
                percent(good)
            ),
        }
    }
}
