//! What a sweep found, for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table as Grid, presets};
use ringside_measure::compare::{Figure, ROUNDS_FOR_INTERVAL, Ratio};
use ringside_measure::schema::{ConfigurationResult, Document, LevelResult, Outcome, SweepResult};
use ringside_measure::sweep::{Method, Plan, Sweep, Verdict};

#[cfg(feature = "full")]
use super::Args;
use crate::output::{count, wrapped};
use crate::report::units::plural;
use crate::system;

/// Configurations that are shown one by one.
const SHOWN: usize = 8;

/// What will be done, and what it cannot tell.
#[cfg(feature = "full")]
pub(super) fn plan(args: &Args, path: &str, sweep: &Sweep, plan: &Plan) -> String {
    let design = sweep.design();
    let knobs: Vec<String> = design
        .knobs()
        .iter()
        .map(|knob| format!("{} {}", knob.name, knob.levels.join(",")))
        .collect();
    let seconds = match args.rounds {
        Some(_) => plan.turns(design.len()) as f64 * args.bench.turn().as_secs_f64(),
        None => args.time.as_secs_f64(),
    };
    let (method, rounds) = match plan.method {
        Method::Grid => ("all of them", plural(plan.rounds, "round")),
        Method::Halving => ("by halves", format!("{} first", plural(plan.rounds, "round"))),
    };
    let mut text = wrapped(
        &format!(
            "{path}: {} of {}; {method}, {rounds}, {} ms each, about {seconds:.0} s in all",
            plural(design.len(), "configuration"),
            knobs.join("; "),
            args.bench.slot.as_secs_f64() * 1e3
        ),
        "",
    );
    let compared: usize = design.knobs().iter().map(|knob| knob.levels.len() - 1).sum();
    // The sign test: all values on one side of 1, either side.
    let needed = (1..64_u32).find(|rounds| 2.0 * 0.5_f64.powi(rounds.cast_signed()) <= 0.05 / compared as f64);
    if let Some(needed) = needed.filter(|needed| plan.method == Method::Grid && plan.rounds < *needed) {
        let time = args.bench.turn().as_secs_f64() * design.len() as f64 * f64::from(needed) * 1.25;
        text += &wrapped(
            &format!(
                "note: {} are too few for single knobs: {needed} are needed, --time {:.0}, or \
                 --halving",
                plural(plan.rounds, "round"),
                (time / 10.0).ceil() * 10.0
            ),
            "",
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// The whole result.
pub(super) fn render(document: &Document, notes: &[String]) -> String {
    let Outcome::Sweep(result) = &document.result else {
        return String::new();
    };
    let mut text = format!("{}\n", system::summary(&document.system));
    for note in notes {
        text += &wrapped(note, "");
    }
    for level in &result.unavailable {
        text += &wrapped(
            &format!("Left out: {} {}: {}", level.knob, level.level, level.reason),
            "",
        );
    }
    _ = writeln!(
        text,
        "\n{} of frames of {} bytes\n{}",
        title(result),
        result.frame_bytes,
        knobs(result)
    );
    _ = writeln!(text, "{}", standings(result));
    for (configuration, failure) in failed(result) {
        text += &wrapped(&format!("{configuration}: failed: {failure}"), "  ");
    }
    text += &best(result);
    text += &wrapped(
        &format!(
            "A knob's ratio is its figure in proportion to that of its base level, over all settings of the others, with an interval of {:.1} %: \
             so wide that all of them together hold with 95 %. Within {} % on either side of 1 a knob does not matter here; it cannot be told \
             where the interval holds 1 and more than that. Figures are medians of the rounds; ratios of configurations are paired by \
             rounds, and those of many: the best of them is lucky, too, which fresh rounds correct. Rounds left out for CPU steal above {} %: {}.",
            result.confidence_percent,
            result.margin_percent,
            result.steal_limit_percent,
            left_out(result),
        ),
        "",
    );
    if let Some(until) = &result.until_ci {
        text += &wrapped(&crate::output::until(until), "");
    }
    if result.interrupted {
        text += "It was ended before it was through.\n";
    }
    text
}

pub(super) fn title(result: &SweepResult) -> String {
    let what = match result.figure_of.as_str() {
        "packets_pps" => "packets per second, more is better",
        "cpu_ns" => "CPU time per packet, less is better",
        "rtt_p99_ns" => "round trip, 99 % of them, less is better",
        _ => "median round trip, less is better",
    };
    format!("{} ({what})", result.objective)
}

/// A figure with its unit.
pub(crate) fn figure(result: &SweepResult, value: f64) -> String {
    match result.figure_of.as_str() {
        "packets_pps" => format!("{} packets/s", count(value)),
        "cpu_ns" => format!("{value:.0} ns"),
        _ => format!("{:.2} µs", value / 1e3),
    }
}

/// What a verdict is called.
pub(crate) fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Matters => "matters",
        Verdict::DoesNotMatter => "does not matter here",
        Verdict::CannotTell => "cannot tell",
    }
}

fn knobs(result: &SweepResult) -> Grid {
    let mut grid = grid();
    let ratio = format!("x base\n[{:.1} %]", result.confidence_percent);
    grid.set_header(["knob", "level", ratio.as_str(), "verdict"]);
    for knob in &result.knobs {
        for (number, level) in knob.levels.iter().enumerate() {
            let (name, of_knob) = match number {
                0 => (knob.name.as_str(), verdict(knob.verdict)),
                _ => ("", ""),
            };
            grid.add_row([
                name.to_owned(),
                level.level.clone(),
                proportion(level),
                of_knob.to_owned(),
            ]);
        }
    }
    right(grid, &[2])
}

pub(super) fn proportion(level: &LevelResult) -> String {
    match (&level.ratio_to_base, level.verdict) {
        (_, None) => "base".to_owned(),
        (Some(ratio), _) => interval(ratio),
        (None, _) => "-".to_owned(),
    }
}

/// The best of them, and the base.
fn standings(result: &SweepResult) -> String {
    let mut order: Vec<&ConfigurationResult> = result
        .configurations
        .iter()
        .filter(|one| one.figure.is_some())
        .collect();
    let gain = |one: &&ConfigurationResult| {
        let ratio = one.ratio_to_base.map_or(1.0, |ratio| ratio.median);
        if result.more_is_better { ratio } else { 1.0 / ratio }
    };
    order.sort_by(|a, b| gain(b).total_cmp(&gain(a)));
    let base = result.configurations.first();
    let is_base = |one: &ConfigurationResult| base.is_some_and(|base| std::ptr::eq(base, one));
    let shown = order
        .iter()
        .enumerate()
        .filter(|(place, one)| *place < SHOWN || is_base(one));
    let mut grid = grid();
    grid.set_header(["configuration", "figure", "±", "x base\n[95 %]", "rounds"]);
    for (_, one) in shown {
        let Some(of) = one.figure else { continue };
        let ratio = match is_base(one) {
            true => "base".to_owned(),
            false => one.ratio_to_base.as_ref().map_or_else(|| "-".to_owned(), interval),
        };
        grid.add_row([
            name(one, result),
            figure(result, of.median),
            spread(&of),
            ratio,
            of.rounds_used.to_string(),
        ]);
    }
    let more = order.len().saturating_sub(SHOWN);
    let more = if more > 0 {
        format!("and {more} more, which are in the JSON\n")
    } else {
        String::new()
    };
    format!("{}\n{more}", right(grid, &[1, 2, 3, 4]))
}

fn spread(figure: &Figure) -> String {
    figure
        .spread_percent
        .map_or_else(|| "?".to_owned(), |percent| format!("{percent:.1}%"))
}

/// `batch 256, wait spin`: what is turned.
fn name(one: &ConfigurationResult, result: &SweepResult) -> String {
    settings(&one.settings, result)
}

/// The same of any settings, in the order of the knobs.
pub(crate) fn settings(settings: &std::collections::BTreeMap<String, String>, result: &SweepResult) -> String {
    let levels = result
        .knobs
        .iter()
        .filter_map(|knob| Some(format!("{} {}", knob.name, settings.get(&knob.name)?)));
    levels.collect::<Vec<_>>().join(", ")
}

pub(super) fn failed(result: &SweepResult) -> impl Iterator<Item = (String, &str)> {
    let failed = result
        .configurations
        .iter()
        .filter_map(|one| Some((one, one.failure.as_deref()?)));
    failed.map(|(one, failure)| (name(one, result), failure))
}

fn left_out(result: &SweepResult) -> usize {
    let figures = result.configurations.iter().filter_map(|one| one.figure);
    figures.map(|figure| figure.rounds_left_out).sum()
}

/// What to take, and what it is worth.
pub(crate) fn conclusion(result: &SweepResult) -> String {
    let best = &result.best;
    let of = best
        .figure
        .map(|of| format!(", {}", figure(result, of.median)))
        .unwrap_or_default();
    let what = format!("{}{of}", settings(&best.settings, result));
    match (best.is_base, &best.confirmation, &best.not_confirmed) {
        (false, Some(ratio), _) => format!(
            "Best: {what}; {} x the base in {} fresh rounds.",
            interval(ratio),
            ratio.rounds_used
        ),
        (false, None, _) => format!("Best: {what}."),
        (true, Some(ratio), Some(other)) if ratio.low.is_none() => format!(
            "Best: the base, {what}. {} looked better in the race; {} fresh rounds are too few to tell, {ROUNDS_FOR_INTERVAL} are needed.",
            settings(other, result),
            ratio.rounds_used
        ),
        (true, ratio, Some(other)) => format!(
            "Best: the base, {what}. {} looked better in the race, but fresh rounds do not bear it out ({}).",
            settings(other, result),
            ratio.as_ref().map_or_else(
                || "there were none".to_owned(),
                |ratio| format!("{} x the base", interval(ratio))
            )
        ),
        (true, _, None) => format!("Best: the base, {what}: nothing is clearly better."),
    }
}

fn best(result: &SweepResult) -> String {
    let mut text = wrapped(&conclusion(result), "");
    for line in result.best.config.lines() {
        _ = writeln!(text, "  {line}");
    }
    text.push('\n');
    text
}

fn grid() -> Grid {
    let mut grid = Grid::new();
    grid.load_style(presets::ASCII_FULL_CONDENSED);
    grid
}

fn right(mut grid: Grid, columns: &[usize]) -> Grid {
    for (number, column) in grid.column_iter_mut().enumerate() {
        if columns.contains(&number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    grid
}

/// `1.07 [1.04-1.10]`
pub(super) fn interval(ratio: &Ratio) -> String {
    match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("{:.2} [{low:.2}-{high:.2}]", ratio.median),
        None => format!("{:.2} [?]", ratio.median),
    }
}
