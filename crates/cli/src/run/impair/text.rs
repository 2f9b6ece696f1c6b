//! The result of `ringside impair`, for people.

use std::fmt::Write as _;

use ringside_measure::schema::{ImpairResult, ImpairedDirection};

use crate::output::{microseconds, packets};

/// What was done in each direction.
pub(crate) fn text(result: &ImpairResult) -> String {
    let mut out = format!("impaired       {} packets, seed {}\n", result.matching, result.seed);
    for direction in &result.directions {
        one(&mut out, direction);
    }
    out
}

fn one(out: &mut String, direction: &ImpairedDirection) {
    let ImpairedDirection { from, to, counts, .. } = direction;
    // Writing to a string does not fail.
    let mut line = |label: &str, text: String| _ = writeln!(out, "{label:<14} {text}");
    line(&format!("{from} -> {to}"), direction.settings.clone());
    line(
        "",
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
    for (label, summary) in [
        ("  asked, us", &direction.asked),
        ("  held, us", &direction.held),
        ("  late, us", &direction.late),
    ] {
        if let Some(summary) = summary.as_ref().filter(|summary| summary.max_ns != 0) {
            line(label, microseconds(summary));
        }
    }
}
