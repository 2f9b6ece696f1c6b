//! The result for people.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table as Grid, presets};
use ringside_measure::latency::Summary;
use ringside_measure::schema::{DelayCell, DelayResult, Document, IdleUse, Outcome, System};
use ringside_nic::host::CpuTimes;

use super::reference;
use super::series::{c_states_name, cell_name, core_name, wait_name};
use crate::output::brief::{entry, first_of};
use crate::output::{wrapped, wrapped_to};
use crate::report::units::plural;
use crate::system;

const TITLE: &str = "Delay from the XDP program to the application's dequeue, µs";

/// Parts of a table beside its figures.
pub(super) struct Options<'a> {
    /// The path in words, and what is to be known about it.
    pub(super) path: &'a [String],
    pub(super) is_lab: bool,
    pub(super) reference: bool,
    pub(super) terminal: bool,
}

/// Renders the percentiles of each cell, on one screen.
pub(super) fn brief(document: &Document, options: &Options<'_>) -> String {
    let Outcome::Delay(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{TITLE}\n");
    for line in options.path {
        text += &wrapped_to(80, line, "");
    }
    let mut grid = grid(options.terminal);
    grid.set_header(["wait", "core", "C-states", "p50", "p99", "max", "samples"]);
    for cell in result.cells.iter().filter(|cell| cell.unavailable.is_none()) {
        let mut row = row(cell);
        let shown = [0, 1, 2, 5, 7, 9, 11].map(|column| row.get(column).cloned());
        row = shown.into_iter().flatten().collect();
        grid.add_row(row);
    }
    align(&mut grid);
    _ = writeln!(text, "{grid}");
    for (cells, why) in not_available(result) {
        text += &entry("not available", &format!("{}: {why}", plural(cells, "cell")));
    }
    let incomplete = result.cells.iter().filter(|cell| left_out(cell).is_some()).count();
    if incomplete > 0 {
        text += &entry(
            "left out",
            &format!("packets or turns of {}", plural(incomplete, "cell")),
        );
    }
    if options.reference {
        text += &beside_reference(result, options.terminal);
    }
    text + &first_of("warning", &result.warnings)
}

/// Returns why cells were not available, each reason with the number of its cells.
fn not_available(result: &DelayResult) -> Vec<(usize, &str)> {
    let mut reasons: Vec<(usize, &str)> = Vec::new();
    for why in result.cells.iter().filter_map(|cell| cell.unavailable.as_deref()) {
        match reasons.iter_mut().find(|(_, other)| *other == why) {
            Some((cells, _)) => *cells += 1,
            None => reasons.push((1, why)),
        }
    }
    reasons
}

fn beside_reference(result: &DelayResult, terminal: bool) -> String {
    let mut grid = grid(terminal);
    reference::fill(&mut grid, result);
    format!("\nBeside the reference, ns: mean, and min - max below it\n{grid}\n")
}

/// Renders the machine, the path, the table, and what to know about it.
pub(super) fn render(document: &Document, options: &Options<'_>) -> String {
    let Outcome::Delay(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n", system::summary(&document.system));
    _ = writeln!(text, "{}", machine(&document.system));
    for line in options.path {
        text.push_str(&wrapped(line, ""));
    }
    _ = write!(text, "\n{TITLE}\n");
    _ = writeln!(text, "{}", figures(result, options.terminal));
    for cell in &result.cells {
        if let Some(reason) = &cell.unavailable {
            text.push_str(&wrapped(
                &format!("{}: not available: {reason}", cell_name(cell.cell())),
                "  ",
            ));
        }
        if let Some(left_out) = left_out(cell) {
            text.push_str(&wrapped(&format!("{}: {left_out}", cell_name(cell.cell())), "  "));
        }
    }
    if options.reference {
        text.push_str(&beside_reference(result, options.terminal));
        text.push_str(&wrapped(reference::LEGEND, ""));
    }
    _ = write!(text, "\n{}", legend(result, options.is_lab));
    for warning in &result.warnings {
        text.push_str(&wrapped(&format!("Warning: {warning}."), ""));
    }
    text
}

/// Preemption and idle states.
fn machine(system: &System) -> String {
    let preemption = system.preemption.as_deref().unwrap_or("no preemption of the kernel");
    let state = |state: &ringside_measure::schema::CState| {
        let off = if state.disabled { ", switched off" } else { "" };
        format!("{} ({} µs{off})", state.name, state.exit_latency_ns / 1000)
    };
    let states: Vec<String> = system.c_states.iter().map(state).collect();
    match states.is_empty() {
        true => format!("{preemption}; the kernel reports no C-states (no cpuidle)"),
        false => format!("{preemption}; C-states (exit latency): {}", states.join(", ")),
    }
}

fn grid(terminal: bool) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    grid
}

fn figures(result: &DelayResult, terminal: bool) -> Grid {
    let mut grid = grid(terminal);
    grid.set_header([
        "wait",
        "core",
        "C-states",
        "min",
        "mean",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "stddev",
        "samples",
        "CPU %\nusr/sys/irq",
        "thread\nCPU %",
        "sleeps/s",
    ]);
    for cell in &result.cells {
        grid.add_row(row(cell));
    }
    align(&mut grid);
    grid
}

/// Aligns all columns behind the names of a cell.
fn align(grid: &mut Grid) {
    for column in grid.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn row(cell: &DelayCell) -> Vec<Cell> {
    let mut cells = vec![
        Cell::new(wait_name(cell.wait)),
        Cell::new(core_name(cell.core)),
        Cell::new(c_states_name(cell.c_states)),
    ];
    let Some(delay) = &cell.delay else {
        cells.push(Cell::new("-"));
        return cells;
    };
    cells.extend(times(delay).map(Cell::new));
    cells.push(Cell::new(delay.samples));
    let cpu = cell.cpu.map(|cpu| {
        format!(
            "{:.0}/{:.0}/{:.0}",
            cpu.user_percent, cpu.system_percent, cpu.softirq_percent
        )
    });
    let thread = cell.thread_percent.map(|percent| format!("{percent:.1}"));
    for text in [cpu, thread, sleeps(cell)] {
        cells.push(Cell::new(text.unwrap_or_else(|| "-".into())));
    }
    cells
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn times(delay: &Summary) -> [String; 8] {
    let us = |ns: u64| micros(ns as f64);
    let percentile = |value: Option<u64>| value.map_or_else(|| "-".into(), us);
    [
        us(delay.min_ns),
        micros(delay.mean_ns),
        percentile(delay.p50_ns),
        percentile(delay.p90_ns),
        percentile(delay.p99_ns),
        percentile(delay.p99_9_ns),
        us(delay.max_ns),
        micros(delay.stddev_ns),
    ]
}

/// To a nanosecond below ten microseconds, then to a tenth of a percent.
pub(super) fn micros(ns: f64) -> String {
    match ns {
        ..10_000.0 => format!("{:.3}", ns / 1e3),
        10_000.0..100_000.0 => format!("{:.2}", ns / 1e3),
        _ => format!("{:.1}", ns / 1e3),
    }
}

/// How often the application's CPU went to sleep, without the states that only look busy.
#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn sleeps(cell: &DelayCell) -> Option<String> {
    let asleep = |state: &&IdleUse| state.name != "POLL";
    let entries: u64 = cell.idle.iter().filter(asleep).map(|state| state.entries).sum();
    let elapsed: f64 = cell.measured_ns as f64 / 1e9;
    (!cell.idle.is_empty() && elapsed > 0.0).then(|| format!("{:.0}", entries as f64 / elapsed))
}

/// What is not in the distribution, if that is more than the warm-up.
fn left_out(cell: &DelayCell) -> Option<String> {
    let parts = [
        (cell.lost_packets, "lost"),
        (cell.elsewhere_packets, "on another core than meant"),
        (cell.impossible_packets, "dequeued before the XDP program saw them"),
        (cell.without_hints_packets, "without hints"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(packets, _)| *packets != 0)
        .map(|(packets, what)| format!("{packets} {what}"))
        .collect();
    let turns = cell.turns.iter().filter(|turn| turn.left_out).count();
    let turns = (turns != 0).then(|| format!("{} left out for CPU steal", plural(turns, "turn")));
    let packets = (!parts.is_empty()).then(|| format!("left out, packets: {}", parts.join(", ")));
    // Where nothing was sampled it is the reason already.
    let failed = cell.failure.as_ref().filter(|_| cell.unavailable.is_none());
    let failed_turns = plural(cell.failed_turns, "turn");
    let failed = failed.map(|reason| format!("{failed_turns} failed: {reason}"));
    let all: Vec<String> = packets.into_iter().chain(turns).chain(failed).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

fn legend(result: &DelayResult, is_lab: bool) -> String {
    let mut text = wrapped(
        &format!(
            "Both stamps are CLOCK_MONOTONIC: the XDP program's, and the application's as soon as the packet is out of the \
             ring. Reading it takes {:.1} ns at the least and {:.1} in the median; each delay has about one such reading in it, \
             which is not taken off. \"-\": too few samples for it (p99.9 needs 10000).",
            result.clock_read.min_ns, result.clock_read.median_ns
        ),
        "",
    );
    text.push_str(&wrapped(
        &format!(
            "core: same as NAPI's, or another, as the packets' own stamps tell. CPU %: of the application's CPU, whoever worked \
             there, counted in ticks of {} ms; thread: the application alone, by the scheduler's clock. sleeps/s: how often that \
             CPU went into an idle state other than POLL. {}, a turn of each cell in each.",
            1000 / CpuTimes::ticks_per_second().max(1),
            plural(result.rounds, "round")
        ),
        "",
    ));
    if is_lab {
        text.push_str(&wrapped(
            "On a veth NAPI runs in the system call of the sender, which has a real-time priority: on the same core the way \
             back from it and the switch to the application are part of the delay, where with a NIC it is the way back from \
             the interrupt.",
            "",
        ));
    }
    text
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
