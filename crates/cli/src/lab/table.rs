//! A lab for people: what it would do, what came out, and what there is.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use comfy_table::{CellAlignment, Table as Grid, presets};
use ringside_measure::schema::{Document, LabCell, LabResult, LoadKind, Outcome};

use super::file::Text;
use super::folder::State;
use super::load::describe;
use super::plan::{Place, Plan};
use super::run::{Cell, condition, kind_name, time};
use super::study;
use crate::output::wrapped;
use crate::report::{lab_stages, units};
use crate::system;

/// One line before a run.
pub(super) fn summary(plan: &Plan, folder: &Path) -> String {
    format!(
        "{}: {} cells, {} rounds of {} each, about {} at least; into {}",
        plan.title,
        Cell::all(plan).len(),
        plan.rounds,
        units::time(plan.turn.as_secs_f64() * 1e9),
        duration(time(plan).as_secs()),
        folder.display()
    )
}

/// What a lab would do.
pub(super) fn plan(plan: &Plan) -> String {
    let mut text = format!("{}\n\n", plan.title);
    for (number, host) in plan.hosts.iter().enumerate() {
        let what = match &host.place {
            Place::Namespace => format!("a namespace, its probes on CPU {}", plan.cpu(number)),
            Place::Here => format!("this machine, its probes on CPU {}", plan.cpu(number)),
            Place::Serve(serve) => format!("another machine, where `ringside serve` runs: {}", serve.at),
        };
        _ = writeln!(text, "host   {}: {what}", host.name);
    }
    for guest in &plan.guests {
        let (host, how) = (&plan.hosts[guest.host].name, guest.attachment.name());
        let machine = match plan.guests.get(guest.machine).filter(|other| other.name != guest.name) {
            Some(other) => format!("one more NIC of {}", other.name),
            None => format!("{} CPUs, {} MiB", guest.cpus, guest.memory_mib),
        };
        _ = writeln!(text, "guest  {} of {host}: {how}, {machine}", guest.name);
    }
    for link in &plan.links {
        let [a, b] = link.ends.map(|host| plan.hosts[host].name.as_str());
        let name = link.name.as_ref().map(|name| format!("{name}, ")).unwrap_or_default();
        let queues = if link.queues == 1 {
            "1 queue".to_owned()
        } else {
            format!("{} queues", link.queues)
        };
        _ = writeln!(text, "link   {name}{a} to {b}: veth, {queues}, MTU {}", link.mtu);
    }
    for load in &plan.loads {
        _ = writeln!(text, "load   {}: {}", load.name, describe(load));
    }
    for probe in &plan.probes {
        let kinds: Vec<&str> = probe.measures.iter().map(|kind| kind_name(*kind)).collect();
        text += &wrapped(
            &format!(
                "probe  {}: {}; {}{}",
                probe.name,
                probe.description,
                kinds.join(" and "),
                if probe.is_traced { "; stages" } else { "" }
            ),
            "",
        );
    }
    _ = writeln!(
        text,
        "\n{} cells, {} rounds of {} each: about {} at least",
        Cell::all(plan).len(),
        plan.rounds,
        units::time(plan.turn.as_secs_f64() * 1e9),
        duration(time(plan).as_secs())
    );
    for note in plan.notes() {
        text += &wrapped(&format!("Note: {note}."), "");
    }
    text
}

/// The matrix.
pub(super) fn render(document: &Document, terminal: bool) -> String {
    let Outcome::Lab(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n{}\n\n", system::summary(&document.system), result.title);
    _ = writeln!(text, "{}", matrix(result, terminal));
    for cell in &result.cells {
        let name = name(cell);
        if let Some(why) = &cell.unavailable {
            text += &wrapped(&format!("{name}: not to be had: {why}"), "  ");
        } else if let Some(why) = cell.failure.as_ref().filter(|_| cell.failed_turns > 0) {
            text += &wrapped(
                &format!("{name}: {} turns failed, the last one: {why}", cell.failed_turns),
                "  ",
            );
        }
    }
    if !result.stages.is_empty() {
        text += "\nWhere the time goes, traced in turns of their own; all stages are in the report:\n";
        for stages in &result.stages {
            text += &wrapped(&lab_stages::line(stages), "  ");
        }
    }
    for cell in &result.cells {
        if let Some(clock) = &cell.clock {
            let uncertainty = units::time(clock.uncertainty_ns as f64);
            let told = format!("{}: by the guest's clock, known to ± {uncertainty}", name(cell));
            text += &wrapped(&told, "  ");
        }
    }
    text += "\n";
    text += &wrapped(
        &format!(
            "Times in us, from the time at which a probe was to be sent to its reception by a program; {} rounds of {}, in turn. Ratios are \
             of the medians of the rounds, paired, with a bootstrap 95 % interval; \"-\": too few samples.",
            result.rounds,
            units::time(result.turn_ns as f64)
        ),
        "",
    );
    for warning in &result.warnings {
        text += &wrapped(&format!("Warning: {warning}."), "");
    }
    text
}

fn name(cell: &LabCell) -> String {
    format!(
        "{}, {}, {}",
        cell.path,
        kind_name(cell.latency.kind),
        condition(cell.condition != LoadKind::Idle)
    )
}

fn matrix(result: &LabResult, terminal: bool) -> Grid {
    let mut grid = Grid::new();
    grid.load_style(if terminal {
        presets::UTF8_FULL_CONDENSED
    } else {
        presets::ASCII_FULL_CONDENSED
    });
    let base = format!("x {}", result.base);
    grid.set_header([
        "path", "time", "load", "min", "mean", "p50", "p99", "p99.9", "max", "stddev", "lost %", "x idle", &base,
    ]);
    for cell in result.cells.iter().filter(|cell| cell.unavailable.is_none()) {
        grid.add_row(row(cell));
    }
    for column in grid.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    grid
}

fn row(cell: &LabCell) -> Vec<String> {
    let times = cell.latency.corrected;
    let none = || "-".to_owned();
    let micros = |ns: Option<f64>| ns.map_or_else(none, |ns| units::digits(ns / 1e3));
    let figure = |name: &str| {
        let figures = times.map(|times| times.figures());
        micros(figures.and_then(|all| all.into_iter().find(|(other, _)| *other == name)?.1))
    };
    let ratio = |ratio: &Option<ringside_measure::compare::Ratio>| match ratio {
        Some(ratio) => match ratio.low.zip(ratio.high) {
            Some((low, high)) => format!(
                "{} [{}-{}]",
                units::digits(ratio.median),
                units::digits(low),
                units::digits(high)
            ),
            None => units::digits(ratio.median),
        },
        None => none(),
    };
    vec![
        cell.path.clone(),
        kind_name(cell.latency.kind).to_owned(),
        condition(cell.condition != LoadKind::Idle).to_owned(),
        figure("min"),
        figure("mean"),
        figure("p50"),
        figure("p99"),
        figure("p99.9"),
        figure("max"),
        micros(times.map(|times| times.stddev_ns)),
        cell.probes
            .loss_ratio()
            .map_or_else(none, |lost| units::digits(lost * 100.0)),
        ratio(&cell.ratio_to_idle),
        ratio(&cell.ratio_to_base),
    ]
}

/// The studies, and the runs of a folder.
pub(super) fn list(folder: &Path, runs: Vec<(PathBuf, Result<State>)>) -> Result<String> {
    let mut text = "Studies, for `ringside lab run NAME`:\n".to_owned();
    for (name, file) in study::ALL {
        let plan = Plan::read(&Text {
            name: name.to_owned(),
            text: file.to_owned(),
        })?;
        _ = writeln!(
            text,
            "  {name:<16} {} ({})",
            plan.title,
            duration(time(&plan).as_secs())
        );
    }
    if runs.is_empty() {
        _ = writeln!(text, "\nNo runs in {}.", folder.display());
        return Ok(text);
    }
    _ = writeln!(text, "\nRuns in {}:", folder.display());
    for (path, state) in runs {
        let state = match state {
            Ok(state) => format!("{}, {}", state.title, progress(&state)),
            Err(error) => format!("cannot be read: {error:#}"),
        };
        _ = writeln!(text, "  {}  {state}", path.display());
    }
    Ok(text)
}

fn progress(state: &State) -> String {
    match state {
        State { is_finished: true, .. } => "finished".to_owned(),
        State {
            is_running: true,
            turns,
            of,
            ..
        } => format!("running, {turns} of {of} turns"),
        State { turns, of, .. } => format!("ended after {turns} of {of} turns; --resume goes on"),
    }
}

/// `45 s`, `3 min`
fn duration(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{} s", seconds.max(1)),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}
