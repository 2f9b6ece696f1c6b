//! The result as text.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use ringside_measure::latency::Summary;
use ringside_measure::schema::{CapacityRecord, Document, FoundRate, LatencyKind, Outcome, SearchResult, SearchTable};

use crate::output::brief::{far_end, header};
use crate::output::{count, wrapped_to};
use crate::report::units::plural;
use crate::system;

/// Renders the rates that were found, and the times at parts of the first; with `verbose` those of
/// all.
pub(super) fn render(document: &Document, verbose: bool) -> String {
    let Outcome::Search(result) = &document.result else {
        return String::new();
    };
    let mut out = match verbose {
        true => format!("{}\n", system::summary(&document.system)),
        false => format!("{}\n", header(&document.interfaces, None)),
    };
    for table in &result.tables {
        out += &one(table, result, verbose);
    }
    if let Some(far) = &document.far {
        let far = match verbose {
            true => crate::serve::text(far),
            false => far_end(far, true),
        };
        out += &format!("\n{far}");
    }
    if result.interrupted {
        out += "\nEnded before everything was found: what is not finished is marked.\n";
    }
    out
}

fn capacity_of(found: &CapacityRecord) -> String {
    let mbit = |bps: f64| format!("{:.1}", bps / 1e6);
    let Some(most) = found.capacity_bps else {
        return "  no second was whole: nothing can be said about the capacity\n".to_owned();
    };
    let mut out = wrapped_to(
        80,
        &format!(
            "capacity {} Mbit/s of IP packets in the best second (RFC 9097); {} of {} packets \
             came, {} reordered, {} twice",
            mbit(most),
            count(found.received_packets as f64),
            count(found.sent_packets as f64),
            count(found.reordered_packets as f64),
            count(found.duplicated_packets as f64)
        ),
        "  ",
    );
    let pieces: Vec<String> = found.pieces_bps.iter().map(|&bps| mbit(bps)).collect();
    out += &wrapped_to(80, &format!("by seconds: {}", pieces.join(" ")), "  ");
    if found.limited_by_sender {
        out += "  the sender did not get out all that it was to send: the path may have more\n";
    }
    out
}

fn one(table: &SearchTable, result: &SearchResult, verbose: bool) -> String {
    let mut out = format!(
        "\nPackets of {} bytes without FCS; {}, {:.1} s of sending\n",
        table.name,
        plural(table.trials, "trial"),
        table.trial_time_ns as f64 / 1e9
    );
    if table.repeated_trials != 0 {
        let repeated = count(table.repeated_trials as f64);
        out += &wrapped_to(
            80,
            &format!(
                "{repeated} of the trials repeated one that lost packets while other processes \
                 had the CPU"
            ),
            "  ",
        );
    }
    if let Some(stability) = table.stability {
        _ = writeln!(
            out,
            "  at {} packets/s: {} of {} trials without loss, {} of {} packets lost",
            count(stability.load_pps as f64),
            stability.trials - stability.bad_trials,
            stability.trials,
            count(stability.lost_packets as f64),
            count(stability.intended_packets as f64)
        );
    }
    if let Some(capacity) = &table.capacity {
        out += &capacity_of(capacity);
    }
    if let Some(refused) = &table.refused {
        out += &wrapped_to(80, refused, "  ");
        return out;
    }
    if !table.goals.is_empty() {
        out += &rates(table, result);
    }
    let timed = table.goals.iter().filter(|goal| !goal.latency.is_empty());
    for goal in timed.take(if verbose { usize::MAX } else { 1 }) {
        out += &latency(goal, result.kind, verbose);
    }
    if !table.curve.is_empty() {
        let mut grid = grid(["packets/s", "sent", "lost %"]);
        for point in &table.curve {
            grid.add_row([
                count(point.load_pps as f64),
                count(point.sent_packets as f64),
                format!("{:.3}", point.loss_percent),
            ]);
        }
        _ = writeln!(out, "Lost at each rate (RFC 2544, 26.3)\n{}", aligned(grid));
    }
    if let Some(burst) = &table.burst {
        let whole = if burst.unlimited == burst.searches {
            " (the longest that was tried)"
        } else {
            ""
        };
        let corrected = burst
            .corrected_buffer_ns
            .map(|ns| format!(", {:.3} ms less what is forwarded meanwhile (RFC 9004)", ns / 1e6));
        out += &wrapped_to(
            80,
            &format!(
                "Longest burst without loss at {} packets/s: {:.0} packets on average, {} to \
                 {}{whole}; a buffer of {:.3} ms{}",
                count(burst.rate_pps as f64),
                burst.mean_packets,
                burst.min_packets,
                burst.max_packets,
                burst.implied_buffer_ns / 1e6,
                corrected.unwrap_or_default()
            ),
            "",
        );
    }
    if let Some(soak) = &table.soak {
        _ = writeln!(
            out,
            "Soak: {} packets/s for {:.0} s: {} of {} lost ({:.4} %)",
            count(soak.load_pps as f64),
            soak.duration_ns as f64 / 1e9,
            count(soak.intended_packets.saturating_sub(soak.received_packets) as f64),
            count(soak.intended_packets as f64),
            soak.loss_percent
        );
    }
    out
}

fn rates(table: &SearchTable, result: &SearchResult) -> String {
    let mut grid = grid([
        "lost at most",
        "packets/s",
        "Gbit/s wire",
        "highest that\nholds",
        "lowest that\ndoes not",
    ]);
    let rate = |pps: Option<u64>, none: &str| pps.map_or_else(|| none.to_owned(), |pps| count(pps as f64));
    for goal in &table.goals {
        grid.add_row([
            format!("{} %", goal.loss_percent),
            goal.throughput_pps.map_or_else(|| "-".to_owned(), count),
            goal.wire_bps
                .map_or_else(|| "-".to_owned(), |bps| format!("{:.3}", bps / 1e9)),
            rate(goal.lower_pps, "-"),
            rate(goal.upper_pps, "-"),
        ]);
    }
    let remarks = table.goals.iter().map(|goal| match remark(goal, result) {
        none if none.is_empty() => none,
        remark => wrapped_to(80, &format!("{} %: {remark}", goal.loss_percent), "  "),
    });
    let remarks: String = remarks.collect();
    format!("{}\n{remarks}", aligned(grid))
}

fn remark(goal: &FoundRate, result: &SearchResult) -> String {
    let mut all = Vec::new();
    if !goal.finished {
        all.push("not finished");
    }
    if goal.finished && goal.upper_pps.is_none() {
        all.push("the highest rate that was tried holds: --to-rate");
    }
    if goal.finished && goal.lower_pps.is_none() && goal.upper_pps == Some(result.min_pps) {
        all.push("not even the lowest rate");
    }
    if goal.limited_by_sender {
        all.push("the sender's limit, not the path's");
    }
    all.join("; ")
}

/// Renders the times at parts of a rate; without `verbose` the median, the tail and the maximum.
fn latency(goal: &FoundRate, kind: LatencyKind, verbose: bool) -> String {
    let is_shown = |name: &str| verbose || ["p50", "p99", "max"].contains(&name);
    let names = ["min", "mean", "p50", "p90", "p99", "p99.9", "max"];
    let mut grid = grid(["% of the rate", "packets/s", "lost %"]);
    let shown = names.into_iter().filter(|name| is_shown(name));
    grid.set_header(["% of the rate", "packets/s", "lost %"].into_iter().chain(shown));
    for at in &goal.latency {
        let mut row = vec![
            format!("{}", at.percent),
            count(at.trial.load_pps as f64),
            format!("{:.3}", at.trial.loss_percent),
        ];
        let times = names.into_iter().zip(times(at.corrected.as_ref()));
        row.extend(times.filter(|(name, _)| is_shown(name)).map(|(_, time)| time));
        grid.add_row(row);
    }
    let which = match kind {
        LatencyKind::RoundTrip => "Round trips",
        LatencyKind::OneWay => "One-way times",
    };
    format!(
        "{which} in µs, from the intended sending, at parts of the rate with {} % loss\n{}\n",
        goal.loss_percent,
        aligned(grid)
    )
}

fn times(times: Option<&Summary>) -> [String; 7] {
    let micros = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", ns / 1e3));
    let Some(times) = times else {
        return [const { String::new() }; 7];
    };
    times.figures().map(|(_, ns)| micros(ns))
}

fn grid<const N: usize>(head: [&str; N]) -> Table {
    let mut grid = Table::new();
    grid.load_style(presets::ASCII_FULL_CONDENSED).set_header(head);
    grid
}

fn aligned(mut grid: Table) -> Table {
    for column in grid.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid
}
