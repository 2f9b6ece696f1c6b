//! The page: one file, that asks for nothing.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::entry::Entry;
use super::metrics::{self, Metric};
use super::{charts, section, words};

const STYLE: &str = include_str!("page.css");

/// The whole page.
pub(super) fn render(title: &str, entries: &[Entry]) -> String {
    let several: Vec<&Entry> = entries.iter().filter(|entry| !entry.metrics().is_empty()).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // Nothing from anywhere: a report that is passed on tells nobody that it is read.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                meta name="color-scheme" content="light dark";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { h1 { (title) } }
                main {
                    section.summary {
                        @for entry in entries {
                            @if entries.len() > 1 { h2 { (entry.name) " · " (section::kind(entry)) } }
                            ul { @for sentence in words::of(entry) { li.warning[sentence.is_warning] { (sentence.text) } } }
                        }
                    }
                    @if several.len() > 1 { (side_by_side(&several)) }
                    @for entry in entries { (section::of(entry)) }
                }
                footer { "Made by ringside " (env!("CARGO_PKG_VERSION")) ". Times are CLOCK_MONOTONIC of the measuring host unless said otherwise; sizes are bytes \
                    of a frame without check sequence; “on the wire” adds 24 bytes a frame." }
            }
        }
    };
    page.into_string()
}

/// Figures and plots of several results in one frame; differences are to the first that has the figure.
fn side_by_side(entries: &[&Entry]) -> Markup {
    let columns: Vec<Vec<Metric>> = entries.iter().map(|entry| entry.metrics()).collect();
    let mut names: Vec<&str> = Vec::new();
    for metric in columns.iter().flatten() {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    html! {
        section {
            h2 { "Side by side" }
            div.wide { table {
                tr { th {} @for entry in entries { th { (entry.name) } } }
                @for name in names { (row(name, &columns)) }
            } }
            p { small { "Differences are to the first that has the figure. Single runs differ by chance: what a difference is worth, repeated and interleaved runs tell (" code { "ringside compare" } ")." } }
            (charts::of(entries))
        }
    }
}

fn row(name: &str, columns: &[Vec<Metric>]) -> Markup {
    let of = |column: &Vec<Metric>| column.iter().find(|metric| metric.name == name).cloned();
    let cells: Vec<Option<Metric>> = columns.iter().map(of).collect();
    let first = cells.iter().flatten().next().cloned();
    html! { tr {
        th { (name) }
        @for cell in &cells { td.number {
            @if let Some(metric) = cell {
                (metric.written())
                @if let Some((text, better)) = first.as_ref().and_then(|first| metrics::difference(first, metric)) {
                    br; small.better[better == Some(true)].worse[better == Some(false)] { (text) }
                }
            } @else { "–" }
        } }
    } }
}
