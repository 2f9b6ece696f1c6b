//! The part of round trips with load and without.

use maud::{Markup, html};
use ringside_measure::compare::Figure;
use ringside_measure::latency::Latency;
use ringside_measure::schema::{LoadCondition, Table, UnderLoadResult};

use super::metrics::{self, Kind, Metric};
use super::units;
use super::words::{Sentence, said};
use crate::output::count;
use crate::run::ping::table::{interval, name, ratio};

/// A sentence a condition.
pub(super) fn words(result: &UnderLoadResult) -> Vec<Sentence> {
    let told = |condition: &LoadCondition| {
        let times = condition.latency.best()?;
        let answers = condition.responsiveness?;
        let p99 = times
            .p99_ns
            .map(|ns| format!(", 99 % at most {}", units::time(ns as f64)))
            .unwrap_or_default();
        Some(said(format!(
            "{}: half of the round trips took at most {}{p99}; {} round trips a minute ({:.4} ms).",
            capitalised(name(condition.kind)),
            units::time(times.p50_ns? as f64),
            count(answers.round_trips_per_minute),
            answers.round_trip_ms,
        )))
    };
    result.conditions.iter().filter_map(told).collect()
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Those of each condition.
#[allow(clippy::cast_precision_loss, reason = "for people")]
pub(super) fn metrics(result: &UnderLoadResult) -> Vec<Metric> {
    let mut all = Vec::new();
    for condition in &result.conditions {
        let prefix = format!("{}: RTT", name(condition.kind));
        all.extend(
            condition
                .latency
                .best()
                .iter()
                .flat_map(|times| metrics::of_times(&prefix, times)),
        );
        if let Some(answers) = condition.responsiveness {
            all.push(Metric {
                more_is_better: Some(true),
                ..Metric::new(
                    format!("{}: round trips per minute", name(condition.kind)),
                    answers.round_trips_per_minute,
                    Kind::Count,
                )
            });
        }
    }
    all
}

/// All round trips of each condition, from the intended sending where there is one.
pub(super) fn times(entry: &str, result: &UnderLoadResult) -> Vec<(String, Latency)> {
    let read = |condition: &LoadCondition| {
        let times = Latency::from_hdr(condition.latency.best_hdr()?).ok()?;
        Some((format!("{entry}, {}", name(condition.kind)), times))
    };
    result.conditions.iter().filter_map(read).collect()
}

pub(super) fn part(result: &UnderLoadResult) -> Markup {
    let time = |ns: Option<f64>| ns.map_or_else(|| "–".to_owned(), units::time);
    let rate = |pps: Option<f64>| pps.map_or_else(|| "–".to_owned(), units::short);
    html! {
        h3 { "Without load and with it" }
        p { (result.rounds) " rounds of " (units::time(result.turn_ns as f64)) " for each condition, in turn. Round trips from the intended \
            sending, or without a schedule from the real one; ratios are of the medians of the turns, paired by rounds, with a bootstrap 95 % interval." }
        div.wide { table {
            tr { th { "condition" } @for figure in ["min", "mean", "p50", "p90", "p99", "p99.9", "max"] { th { "RTT " (figure) } } th { "lost %" } th { "× idle [95 %]" }
                th { "round trips/min" } th { "ms" } th { "link sent, packets/s" } th { "link received, packets/s" } }
            @for condition in &result.conditions { tr {
                th { (name(condition.kind)) }
                @let figures = condition.latency.best().map_or([None; 7], |times| times.figures().map(|(_, ns)| ns));
                @for ns in figures { td.number { (time(ns)) } }
                td.number { (condition.probes.loss_ratio().map_or_else(|| "–".to_owned(), |lost| units::digits(lost * 100.0))) }
                td.number { (ratio(condition)) }
                td.number { (condition.responsiveness.map_or_else(|| "–".to_owned(), |answers| count(answers.round_trips_per_minute))) }
                td.number { (condition.responsiveness.map_or_else(|| "–".to_owned(), |answers| format!("{:.4}", answers.round_trip_ms))) }
                td.number { (rate(condition.link_tx_pps)) } td.number { (rate(condition.link_rx_pps)) }
            } }
        } }
        @for condition in &result.conditions { @if let Some(load) = &condition.load { p { (capitalised(name(condition.kind))) ": " (load) "." } } }
    }
}

/// Of a comparison: each variant idle and under load.
pub(super) fn compared(table: &Table) -> Markup {
    let time = |figure: &Option<Figure>| figure.map_or_else(|| "–".to_owned(), |figure| units::time(figure.median));
    let number = |figure: &Option<Figure>| figure.map_or_else(|| "–".to_owned(), |figure| count(figure.median));
    let ms = |figure: &Option<Figure>| {
        figure.map_or_else(|| "–".to_owned(), |figure| format!("{:.4}", 60_000.0 / figure.median))
    };
    html! {
        h3 { "Without load and with it" }
        div.wide { table {
            tr { th { "variant" } th { "condition" } th { "RTT p50" } th { "RTT p99" } th { "RTT max" } th { "× idle [95 %]" } th { "round trips/min" } th { "ms" } }
            @for variant in table.variants.iter().filter(|variant| variant.failure.is_none()) {
                tr {
                    th { (variant.name) } td { "idle" }
                    @for figure in [&variant.rtt_p50_ns, &variant.rtt_p99_ns, &variant.rtt_max_ns] { td.number { (time(figure)) } }
                    td.number { "base" } td.number { (number(&variant.round_trips_per_minute)) } td.number { (ms(&variant.round_trips_per_minute)) }
                }
                @for loaded in table.under_load.iter().filter(|loaded| loaded.name == variant.name) { tr {
                    th { (loaded.name) } td { (name(loaded.kind)) }
                    @for figure in [&loaded.rtt_p50_ns, &loaded.rtt_p99_ns, &loaded.rtt_max_ns] { td.number { (time(figure)) } }
                    td.number { (loaded.ratio_to_idle.map_or_else(|| "–".to_owned(), |ratio| interval(&ratio))) }
                    td.number { (number(&loaded.round_trips_per_minute)) } td.number { (ms(&loaded.round_trips_per_minute)) }
                } }
            }
        } }
    }
}
