//! The part of a trace: stages of packets' ways.

use std::fmt::Write as _;

use maud::{Markup, html};
use ringside_measure::schema::{StageResult, TraceResult, TracedPath};

use super::units;
use super::words::{Sentence, said, warned};
use crate::trace::{measured_words, stage_name};

fn name(path: &TracedPath) -> &str {
    path.receiver.as_deref().unwrap_or("packets of others")
}

/// Where most of the time went, and what is not known.
pub(super) fn words(trace: &TraceResult) -> Vec<Sentence> {
    let mut all = Vec::new();
    for path in &trace.paths {
        if let Some(failure) = &path.failure {
            all.push(warned(format!("{}: not to be had: {failure}", name(path))));
            continue;
        }
        let longest = path.stages.iter().max_by(|a, b| a.part_ns.total_cmp(&b.part_ns));
        if let (Some(whole), Some(longest)) = (&path.whole, longest) {
            all.push(said(format!(
                "{}: {} on average; most of it, {:.0} %, in the stage \"{}\".",
                name(path),
                units::time(whole.mean_ns),
                longest.part_percent,
                stage_name(longest)
            )));
        }
    }
    for path in &trace.paths {
        let Some(slow) = &path.slow else { continue };
        if let Some(culprit) = slow.culprits.first() {
            all.push(said(format!(
                "{}: the slowest 0.1 % had {} {} on their CPUs for {} more than others.",
                name(path),
                culprit.kind_name(),
                culprit.name,
                units::time(culprit.more_ns())
            )));
        }
    }
    for hook in &trace.missing {
        all.push(warned(format!(
            "Missing: {} ({}): {}.",
            hook.hook, hook.tells, hook.reason
        )));
    }
    all.extend(trace.warnings.iter().map(|warning| warned(format!("{warning}."))));
    all
}

pub(super) fn part(trace: &TraceResult) -> Markup {
    html! { @for path in trace.paths.iter().filter(|path| path.failure.is_none()) {
        h3 { (name(path)) ", " (path.traced_packets) " packets" }
        (table(path))
        @if let Some(cost) = &path.cost {
            p { "With tracing × " (format!("{:.2}", cost.ratio.median)) " of the time without." }
        }
    } }
}

/// Its stages, and what they add up to.
pub(super) fn table(path: &TracedPath) -> Markup {
    html! {
        div.wide { table {
            tr { th { "stage" } th { "at" } th { "packets" } th { "min" } th { "p50" } th { "p99" } th { "p99.9" } th { "max" } th { "part of the mean" } }
            @for stage in &path.stages { (row(stage)) }
        } }
        p { "Sum of the stages " (units::time(path.sum_mean_ns)) ", whole " (units::time(path.whole.map_or(0.0, |whole| whole.mean_ns)))
            ", clock error " (units::time(path.clock_error_ns as f64)) "." }
        @if let Some(measured) = &path.measured { p { (measured_words(measured)) "." } }
    }
}

fn row(stage: &StageResult) -> Markup {
    html! { tr {
        th { (stage_name(stage)) } td { (stage.interface.as_deref().unwrap_or("")) }
        td.number { (stage.times.map_or(0, |times| times.samples)) }
        @for figure in [0, 2, 4, 5, 6] {
            td.number { (stage.times.and_then(|times| times.figures()[figure].1).map_or_else(|| "–".to_owned(), units::time)) }
        }
        td.number {
            (units::time(stage.part_ns)) " (" (format!("{:.1}", stage.part_percent)) " %)"
            @if let Some(ns) = stage.uncertainty_ns { " ± " (units::time(ns as f64)) }
        }
    } }
}

pub(super) fn markdown(out: &mut String, trace: &TraceResult) {
    for path in trace.paths.iter().filter(|path| path.failure.is_none()) {
        markdown_of(out, path, name(path));
    }
}

/// One way, called so.
pub(super) fn markdown_of(out: &mut String, path: &TracedPath, name: &str) {
    _ = writeln!(out, "\n{name}, {} packets\n", path.traced_packets);
    out.push_str(
        "| stage | min | mean | p50 | p90 | p99 | p99.9 | max | part |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for stage in &path.stages {
        let times = stage.times.map_or([None; 7], |times| times.figures().map(|(_, ns)| ns));
        let times = times.map(|ns| ns.map_or_else(|| "–".to_owned(), units::time));
        let uncertain = stage.uncertainty_ns.map(|ns| format!(" ± {}", units::time(ns as f64)));
        _ = writeln!(
            out,
            "| {} | {} | {:.1} %{} |",
            stage_name(stage),
            times.join(" | "),
            stage.part_percent,
            uncertain.unwrap_or_default()
        );
    }
}

/// Way and stage, figure, nanoseconds.
pub(super) fn figures(trace: &TraceResult) -> Vec<(String, &'static str, f64)> {
    let of = |path| figures_of(path, name(path));
    trace.paths.iter().flat_map(of).collect()
}

/// Those of one way, called so.
pub(super) fn figures_of(path: &TracedPath, name: &str) -> Vec<(String, &'static str, f64)> {
    let mut all = Vec::new();
    for stage in &path.stages {
        let Some(times) = stage.times else { continue };
        let what = format!("{name}: {}", stage_name(stage));
        let figures = times.figures().into_iter().chain([("part", Some(stage.part_ns))]);
        all.extend(figures.filter_map(|(figure, ns)| Some((what.clone(), figure, ns?))));
    }
    all
}
