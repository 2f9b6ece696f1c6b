//! The part of a sweep over settings.

use maud::{Markup, html};
use ringside_measure::compare::Ratio;
use ringside_measure::schema::{KnobResult, SweepResult};
use ringside_measure::sweep::Verdict;

use super::figure::{self, Bar};
use super::units;
use super::words::{Sentence, said, warned};
use crate::sweep::{conclusion, figure as written, settings, verdict};

/// What to take, and what matters.
pub(super) fn words(sweep: &SweepResult) -> Vec<Sentence> {
    let mut all = vec![said(format!("{}: {}", sweep.objective, conclusion(sweep)))];
    for (of, text) in [
        (Verdict::Matters, "What matters here"),
        (Verdict::DoesNotMatter, "What does not"),
        (Verdict::CannotTell, "What cannot be told"),
    ] {
        let knobs: Vec<&str> = sweep
            .knobs
            .iter()
            .filter(|knob| knob.verdict == of)
            .map(|knob| knob.name.as_str())
            .collect();
        if !knobs.is_empty() {
            all.push(said(format!("{text}: {}.", knobs.join(", "))));
        }
    }
    for level in &sweep.unavailable {
        all.push(warned(format!(
            "Left out: {} {}: {}",
            level.knob, level.level, level.reason
        )));
    }
    all.extend(sweep.until_ci.iter().map(super::words::until));
    if sweep.interrupted {
        all.push(warned("It was ended before it was through.".to_owned()));
    }
    all
}

pub(super) fn part(sweep: &SweepResult) -> Markup {
    html! {
        p { (sweep.configurations.len()) " configurations, " (sweep.rounds) " rounds of " (units::time(sweep.round_duration_ns as f64)) " each, in another order each round. \
            A level's ratio is to the base level of its knob, over all settings of the others; intervals are of " (format!("{:.1}", sweep.confidence_percent)) " %, so wide that all of \
            them together hold with 95 %." }
        div.plots { @for knob in &sweep.knobs { (bars(sweep, knob)) } }
        div.wide { table {
            tr { th { "knob" } th { "level" } th { "× base" } th { "verdict" } }
            @for knob in &sweep.knobs { @for level in &knob.levels { tr {
                th { (knob.name) } td { (level.level) }
                td.number { (level.ratio_to_base.as_ref().map_or_else(|| if level.verdict.is_none() { "base".to_owned() } else { "–".to_owned() }, interval)) }
                td { (verdict(level.verdict.unwrap_or(knob.verdict))) }
            } } }
        } }
        details { summary { "Configurations" } div.wide { table {
            tr { th { "configuration" } th { (sweep.objective) } th { "× base [95 %]" } th { "rounds" } }
            @for one in &sweep.configurations { tr {
                th { (settings(&one.settings, sweep)) }
                @if let Some(figure) = one.figure {
                    td.number { (written(sweep, figure.median)) }
                    td.number { (one.ratio_to_base.as_ref().map_or_else(|| "base".to_owned(), interval)) }
                    td.number { (figure.rounds_used) }
                } @else { td colspan="3" { (one.failure.as_deref().unwrap_or("–")) } }
            } }
        } } }
        h3 { "The best configuration, for --config" }
        pre { (sweep.best.config) }
    }
}

/// Its levels with their intervals.
fn bars(sweep: &SweepResult, knob: &KnobResult) -> Markup {
    let bars: Vec<Bar> = knob
        .levels
        .iter()
        .enumerate()
        .filter_map(|(number, level)| {
            let ratio = level.ratio_to_base;
            Some(Bar {
                name: level.level.clone(),
                value: match number {
                    0 => 1.0,
                    _ => ratio?.median,
                },
                between: ratio.and_then(|ratio| ratio.low.zip(ratio.high)),
                note: ratio.map_or_else(|| "base".to_owned(), |ratio| interval(&ratio)),
                is_base: number == 0,
            })
        })
        .collect();
    let better = if sweep.more_is_better { "more" } else { "less" };
    figure::bars(
        &format!("{}: {}", knob.name, verdict(knob.verdict)),
        &format!("{} in proportion to the base: {better} is better", sweep.objective),
        &bars,
        figure::number,
    )
}

/// `1.07 [1.04–1.10]`
pub(super) fn interval(ratio: &Ratio) -> String {
    match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!(
            "{} [{}–{}]",
            units::digits(ratio.median),
            units::digits(low),
            units::digits(high)
        ),
        None => units::digits(ratio.median),
    }
}
