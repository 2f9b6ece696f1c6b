//! The tables for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use ringside_measure::compare::{Figure, Ratio};
use ringside_measure::schema::{CompareResult, Document, Operation, Outcome, Table, Variant};

use crate::system;

/// Everything that is told: the machine, the path, the tables, and what to know about them.
pub(super) fn render(document: &Document, notes: &[String], terminal: bool) -> String {
    let Outcome::Compare(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n", system::summary(&document.system));
    for note in notes {
        text.push_str(&wrapped(note, ""));
    }
    for table in &result.tables {
        _ = write!(text, "\n{}", one(table, terminal));
    }
    _ = write!(text, "\n{}", legend(result));
    text
}

fn one(table: &Table, terminal: bool) -> String {
    let ping = table.operation == Operation::Ping;
    let mut text = format!(
        "{}, frames of {} bytes without FCS ({} of payload); {}\n",
        name(table.operation),
        table.frame_bytes,
        table.payload_bytes,
        table.load
    );
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    let ratio = format!("x {}\n[95 %]", table.base);
    let rates = ["packets/s\n± spread", "Gbit/s\nwire", "Gbit/s\npayload", "lost\n%"];
    let times = ["RTT p50 µs\n± spread", "min", "p90", "p99", "p99.9", "max", "lost\n%"];
    let columns: &[&str] = if ping { &times } else { &rates };
    let cpu = "CPU %\nusr/sys/irq";
    let header = ["variant"]
        .into_iter()
        .chain(columns.iter().copied())
        .chain([cpu, &ratio]);
    grid.set_header(header);
    for variant in &table.variants {
        grid.add_row(cells(variant, ping, variant.name == table.base));
    }
    for column in grid.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    _ = writeln!(text, "{grid}");
    // One line for all that failed for the same reason.
    let reasons: BTreeSet<&str> = table
        .variants
        .iter()
        .filter_map(|variant| variant.failure.as_deref())
        .collect();
    for reason in reasons {
        let failed = table
            .variants
            .iter()
            .filter(|variant| variant.failure.as_deref() == Some(reason));
        let names: Vec<&str> = failed.map(|variant| variant.name.as_str()).collect();
        text.push_str(&wrapped(&format!("{}: failed: {reason}", names.join(", ")), "  "));
    }
    for variant in &table.variants {
        if let Some(caveat) = caveat(variant, table.operation).filter(|_| variant.failure.is_none()) {
            text.push_str(&wrapped(&format!("{}: {caveat}", variant.name), "  "));
        }
    }
    text
}

fn cells(variant: &Variant, ping: bool, is_base: bool) -> Vec<Cell> {
    let mut cells = vec![Cell::new(&variant.name)];
    let mut add = |text: Option<String>| cells.push(Cell::new(text.unwrap_or_else(|| "-".into())));
    if variant.failure.is_some() {
        add(Some("failed".into()));
        return cells;
    }
    let us = |ns: f64| digits(ns / 1e3);
    if ping {
        add(variant
            .rtt_p50_ns
            .map(|figure| format!("{} {}", us(figure.median), spread(&figure))));
        // The shortest and the longest of all rounds: a median of maxima means nothing.
        add(variant.rtt_min_ns.map(|figure| us(figure.min)));
        for figure in [variant.rtt_p90_ns, variant.rtt_p99_ns, variant.rtt_p99_9_ns] {
            add(figure.map(|figure| us(figure.median)));
        }
        add(variant.rtt_max_ns.map(|figure| us(figure.max)));
    } else {
        add(variant
            .packets_pps
            .map(|figure| format!("{} {}", packets(figure.median), spread(&figure))));
        for figure in [variant.wire_bps, variant.payload_bps] {
            add(figure.map(|figure| digits(figure.median / 1e9)));
        }
    }
    add(variant.loss_percent.map(|figure| format!("{:.1}", figure.median)));
    let stages = [
        variant.cpu_user_percent,
        variant.cpu_system_percent,
        variant.cpu_softirq_percent,
    ];
    let stages = stages.map(|figure| figure.map_or_else(|| "-".into(), |figure| format!("{:.0}", figure.median)));
    add(Some(stages.join("/")));
    add(if is_base {
        Some("base".into())
    } else {
        variant.ratio_to_base.as_ref().map(proportion)
    });
    cells
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Rx => "Receive",
        Operation::Tx => "Transmit",
        Operation::Fwd => "Forward (send back)",
        Operation::Echo => "Echo",
        Operation::Ping => "Ping",
    }
}

/// What a figure does not say by itself.
fn caveat(variant: &Variant, operation: Operation) -> Option<&'static str> {
    match (variant.name.as_str(), operation) {
        ("udp-gso", _) => Some(
            "64 packets go through the stack as one, and are cut in front of the veth because its peer has XDP; without \
             XDP they would cross it uncut, which no wire does",
        ),
        ("udp-blocking", Operation::Ping) => Some(
            "each packet wakes the other CPU; on a virtual machine that alone can take 100 µs and more, and is the \
             hypervisor's time rather than the socket's",
        ),
        _ => None,
    }
}

fn legend(result: &CompareResult) -> String {
    let seconds = result.round_duration_ns as f64 / 1e9;
    let left_out: usize = result
        .tables
        .iter()
        .flat_map(|table| &table.variants)
        .filter_map(|variant| variant.packets_pps)
        .map(|figure| figure.rounds_left_out)
        .sum();
    let mut text = wrapped(
        &format!(
            "Medians of {} interleaved rounds of {seconds} s, ± half the distance between the quartiles; {left_out} \
             turns left out for CPU steal above {} %. A ratio whose interval holds 1 is no difference. CPU: sender's and \
             receiver's together, in percent of one CPU, generator and sink included.",
            result.rounds, result.steal_limit_percent
        ),
        "",
    );
    if result.tables.iter().any(|table| table.operation == Operation::Ping) {
        text.push_str("Ping: ratios are of the median round trip: below 1 is faster. \"-\": too few samples for it.\n");
    }
    text
}

/// Lines of a length that can be read, each after `indent`.
fn wrapped(text: &str, indent: &str) -> String {
    const COLUMNS: usize = 100;
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column == 0 {
            out.push_str(indent);
            column = indent.len();
        } else if column + 1 + length > COLUMNS {
            _ = write!(out, "\n{indent}");
            column = indent.len();
        } else {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

fn spread(figure: &Figure) -> String {
    figure
        .spread_percent
        .map_or_else(String::new, |percent| format!("±{percent:>2.0}%"))
}

fn proportion(ratio: &Ratio) -> String {
    let two = |value: f64| {
        if value < 10.0 {
            format!("{value:.2}")
        } else {
            format!("{value:.1}")
        }
    };
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{} [{}-{}]", two(ratio.median), two(low), two(high)),
        _ => two(ratio.median),
    }
}

/// `2.61 M`, `461 k`
fn packets(pps: f64) -> String {
    if pps >= 1e6 {
        format!("{:.2} M", pps / 1e6)
    } else if pps >= 1e3 {
        format!("{:.0} k", pps / 1e3)
    } else {
        format!("{pps:.0}")
    }
}

/// Three digits that mean something.
fn digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
