//! The result for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use ringside_measure::latency::Summary;
use ringside_measure::schema::{
    Document, FlightRecord, MeasuredWhole, Outcome, SlowResult, StageResult, TraceCost, TraceResult, TracedPath,
};

use crate::output::wrapped;
use crate::system;

/// Stages and disturbers of slow packets that are told.
const MOST_TOLD: usize = 6;
/// Events around a recorded packet that are told.
const MOST_RECORDED: usize = 40;

/// Everything: the machine, each way, and what to know about it.
pub(super) fn render(document: &Document, description: &str, terminal: bool) -> String {
    let Outcome::Trace(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n", system::summary(&document.system));
    text.push_str(&wrapped(description, ""));
    for path in &result.paths {
        way(&mut text, path, terminal);
    }
    text.push('\n');
    legend(&mut text, result);
    text
}

fn way(text: &mut String, path: &TracedPath, terminal: bool) {
    let name = path.receiver.as_deref().unwrap_or("Packets of others");
    if let Some(failure) = &path.failure {
        text.push_str(&wrapped(&format!("\n{name}: not to be had: {failure}"), ""));
        return;
    }
    _ = writeln!(text, "\n{name}: {} packets, µs", path.traced_packets);
    _ = writeln!(text, "{}", stages(path, terminal));
    _ = writeln!(
        text,
        "Sum of the stages {:.3} µs, whole {:.3} µs on average; clock error {:.3} µs.",
        path.sum_mean_ns / 1e3,
        path.whole.map_or(0.0, |whole| whole.mean_ns) / 1e3,
        micros(path.clock_error_ns)
    );
    if let Some(measured) = &path.measured {
        _ = writeln!(text, "{}.", measured_words(measured));
    }
    if let (Some(sent), Some(received)) = (path.sent_packets, path.received_packets) {
        _ = writeln!(
            text,
            "Of {sent} packets in all {received} came; {} of the traced ones are incomplete and left out.",
            path.incomplete_packets
        );
    } else if path.incomplete_packets > 0 {
        _ = writeln!(text, "{} packets are incomplete and left out.", path.incomplete_packets);
    }
    if let Some(cost) = &path.cost {
        text.push_str(&wrapped(&costs(cost), ""));
    }
    text.push_str(&slow_words(path));
}

/// What the same packets took as the measuring program takes their time.
pub(crate) fn measured_words(measured: &MeasuredWhole) -> String {
    format!(
        "Measured by the program itself, the same {} packets: {:.3} µs on average; the stages are {:+.3} µs apart from that, of one packet {:.3} µs at the most",
        measured.packets,
        measured.mean_ns / 1e3,
        measured.apart_mean_ns / 1e3,
        micros(measured.apart_max_ns)
    )
}

/// What the CPUs did during the slowest packets, and around the one that tracing stopped at.
pub(crate) fn slow_words(path: &TracedPath) -> String {
    let mut text = String::new();
    if let Some(slow) = &path.slow {
        slowest(&mut text, slow);
    }
    if let Some(record) = &path.recorded {
        recorded(&mut text, record);
    }
    text
}

fn stages(path: &TracedPath, terminal: bool) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    grid.set_header([
        "stage", "at", "packets", "min", "p50", "p90", "p99", "p99.9", "max", "part", "%",
    ]);
    for stage in &path.stages {
        let mut cells = vec![
            Cell::new(stage_name(stage)),
            Cell::new(stage.interface.as_deref().unwrap_or("")),
        ];
        cells.extend(times(stage.times.as_ref()).map(Cell::new));
        cells.push(Cell::new(format!("{:.2}", stage.part_ns / 1e3)));
        cells.push(Cell::new(format!("{:.1}", stage.part_percent)));
        grid.add_row(cells);
    }
    let mut cells = vec![Cell::new("whole"), Cell::new("")];
    cells.extend(times(path.whole.as_ref()).map(Cell::new));
    cells.push(Cell::new(format!(
        "{:.2}",
        path.whole.map_or(0.0, |whole| whole.mean_ns) / 1e3
    )));
    cells.push(Cell::new("100.0"));
    grid.add_row(cells);
    for column in grid.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid
}

/// A stage by its name and, on a way of several hops, which of them.
pub(crate) fn stage_name(stage: &StageResult) -> String {
    hop_name(stage.hop, &stage.name)
}

fn hop_name(hop: u32, name: &str) -> String {
    match hop {
        0 => name.to_owned(),
        hop => format!("{}: {name}", hop + 1),
    }
}

fn times(summary: Option<&Summary>) -> [String; 7] {
    let Some(times) = summary else {
        return ["0", "-", "-", "-", "-", "-", "-"].map(str::to_owned);
    };
    let us = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.2}", micros(ns)));
    [
        times.samples.to_string(),
        us(Some(times.min_ns)),
        us(times.p50_ns),
        us(times.p90_ns),
        us(times.p99_ns),
        us(times.p99_9_ns),
        us(Some(times.max_ns)),
    ]
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

fn costs(cost: &TraceCost) -> String {
    let interval = cost.ratio.low.zip(cost.ratio.high);
    let interval = interval.map_or_else(
        || "too few turns for an interval".to_owned(),
        |(low, high)| format!("95 % interval {low:.2} to {high:.2}"),
    );
    format!(
        "Tracing costs: from the send call to the application {:.2} µs with it and {:.2} µs without (medians of {} turns each), x \
         {:.2}, {interval}.",
        cost.on_ns.median / 1e3,
        cost.off_ns.median / 1e3,
        cost.ratio.rounds_used,
        cost.ratio.median
    )
}

fn slowest(text: &mut String, slow: &SlowResult) {
    _ = writeln!(
        text,
        "The slowest 0.1 %: {} packet(s) of {:.2} µs and more.",
        slow.packets,
        micros(slow.from_ns)
    );
    let stages = slow.stages.iter().take(MOST_TOLD).map(|stage| {
        let name = hop_name(stage.hop, &stage.name);
        format!(
            "{name} {:.2} µs instead of {:.2} µs",
            stage.slow_mean_ns / 1e3,
            stage.mean_ns / 1e3
        )
    });
    let stages: Vec<String> = stages.collect();
    if !stages.is_empty() {
        text.push_str(&wrapped(&format!("Longer than usual: {}.", stages.join("; ")), "  "));
    }
    let culprits = slow.culprits.iter().take(MOST_TOLD).map(|culprit| {
        format!(
            "{} {} ({:.2} µs of a packet, usually {:.2} µs; in {:.0} % of them, usually {:.0} %)",
            culprit.kind_name(),
            culprit.name,
            culprit.slow_mean_ns / 1e3,
            culprit.usual_mean_ns / 1e3,
            culprit.slow_percent,
            culprit.usual_percent
        )
    });
    let culprits: Vec<String> = culprits.collect();
    let told = match culprits.is_empty() {
        true if slow.usual_packets == 0 => "On their CPUs: there are too few packets to compare with.".to_owned(),
        true => "On their CPUs: nothing that there is not usually.".to_owned(),
        false => format!("On their CPUs, more than usual: {}.", culprits.join("; ")),
    };
    text.push_str(&wrapped(&told, "  "));
}

fn recorded(text: &mut String, record: &FlightRecord) {
    _ = writeln!(
        text,
        "Stopped: packet {} took {:.2} µs, more than {:.2} µs. In µs from its first point on:",
        record.sequence,
        micros(record.whole_ns),
        micros(record.bound_ns)
    );
    let mut lines: Vec<(i64, String)> = Vec::new();
    for point in &record.points {
        let at = point.at_ns.cast_signed();
        lines.push((
            at,
            format!(
                "  {:>10.2}  CPU {}  {}",
                micros(point.at_ns),
                point.cpu,
                point.point.name()
            ),
        ));
    }
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let signed = |ns: i64| ns as f64 / 1e3;
    let from = record.events.len().saturating_sub(MOST_RECORDED);
    for event in record.events.iter().skip(from) {
        let number = match event.kind {
            ringside_measure::trace::DisturberKind::Task => format!(" ({})", event.id),
            _ => String::new(),
        };
        let took = signed(event.to_ns - event.from_ns);
        let line = format!(
            "  {:>10.2}  CPU {}    {} {}{number}, {took:.2} µs",
            signed(event.from_ns),
            event.cpu,
            event.kind.name(),
            event.name
        );
        lines.push((event.from_ns, line));
    }
    lines.sort_by_key(|(at, _)| *at);
    for (_, line) in lines {
        _ = writeln!(text, "{line}");
    }
    if from > 0 {
        _ = writeln!(text, "  and {from} earlier, in the JSON");
    }
}

fn legend(text: &mut String, result: &TraceResult) {
    let told = "A stage is from its point to the next one that the packet passed; part: its share of the mean of the whole, over all packets. \
                These add up. Remainder: around points that single packets lack.";
    text.push_str(&wrapped(told, ""));
    if let Some(steal) = result.steal_percent.filter(|steal| *steal >= 0.1) {
        let told = format!("The hypervisor took {steal:.1} % of the CPU time: it is in whatever stage it struck.");
        text.push_str(&wrapped(&told, ""));
    }
    for hook in &result.missing {
        text.push_str(&wrapped(
            &format!("Missing: {} ({}): {}.", hook.hook, hook.tells, hook.reason),
            "",
        ));
    }
    for warning in &result.warnings {
        text.push_str(&wrapped(&format!("Warning: {warning}."), ""));
    }
}
