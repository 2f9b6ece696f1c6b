//! Reports without plots: Markdown to paste, CSV to calculate with.

use std::fmt::Write as _;

use ringside_measure::compare::Figure;
use ringside_measure::schema::{Outcome, SweepResult, Table};

use super::entry::{Content, Entry};
use super::metrics::{self, Kind, Metric};
use super::{figures, section, settings, units, words};

/// Summary and tables.
pub(super) fn markdown(title: &str, entries: &[Entry]) -> String {
    let mut out = format!("# {}\n", cell(title));
    for entry in entries {
        _ = writeln!(out, "\n## {} · {}\n", cell(&entry.name), cell(section::kind(entry)));
        for sentence in words::of(entry) {
            _ = writeln!(
                out,
                "- {}{}",
                if sentence.is_warning { "**Note:** " } else { "" },
                cell(&sentence.text)
            );
        }
        if let Content::Ours(document) = &entry.content {
            match &document.result {
                Outcome::Compare(compare) => compare.tables.iter().for_each(|table| comparison(&mut out, table)),
                Outcome::Delay(delay) => {
                    out.push_str(
                        "\n| cell | min | mean | p50 | p90 | p99 | p99.9 | max |\n|---|---|---|---|---|---|---|---|\n",
                    );
                    for cell in &delay.cells {
                        let times = cell.delay.map_or([None; 7], |times| times.figures().map(|(_, ns)| ns));
                        let times = times.map(|ns| ns.map_or_else(|| "–".to_owned(), units::time));
                        _ = writeln!(
                            out,
                            "| {} | {} |",
                            crate::delay::cell_name(cell.cell()),
                            times.join(" | ")
                        );
                    }
                }
                Outcome::Sweep(sweep) => swept(&mut out, sweep),
                Outcome::Trace(trace) => super::stages::markdown(&mut out, trace),
                Outcome::Steer(steer) => super::steer::markdown(&mut out, steer),
                Outcome::Lab(lab) => super::lab_stages::markdown(&mut out, lab),
                Outcome::Run(_) | Outcome::Search(_) => {}
            }
            _ = writeln!(out, "\n`{}`", document.command_line.join(" "));
        }
    }
    let with_figures: Vec<(&Entry, Vec<Metric>)> = entries
        .iter()
        .map(|entry| (entry, entry.metrics()))
        .filter(|(_, metrics)| !metrics.is_empty())
        .collect();
    if !with_figures.is_empty() {
        side_by_side(&mut out, &with_figures);
    }
    out
}

fn side_by_side(out: &mut String, entries: &[(&Entry, Vec<Metric>)]) {
    _ = write!(out, "\n## Figures\n\n| |");
    for (entry, _) in entries {
        _ = write!(out, " {} |", cell(&entry.name));
    }
    _ = writeln!(out, "\n|---|{}", "---|".repeat(entries.len()));
    let mut names: Vec<&str> = Vec::new();
    for metric in entries.iter().flat_map(|(_, metrics)| metrics) {
        if !names.contains(&metric.name.as_str()) {
            names.push(&metric.name);
        }
    }
    for name in names {
        let of = |metrics: &Vec<Metric>| metrics.iter().find(|metric| metric.name == name).cloned();
        let row: Vec<Option<Metric>> = entries.iter().map(|(_, metrics)| of(metrics)).collect();
        let first = row.iter().flatten().next().cloned();
        _ = write!(out, "| {name} |");
        for metric in &row {
            let written = metric.as_ref().map_or_else(|| "–".to_owned(), Metric::written);
            let difference = first
                .as_ref()
                .zip(metric.as_ref())
                .and_then(|(first, metric)| metrics::difference(first, metric));
            let difference = difference.map(|(text, _)| format!(" ({text})")).unwrap_or_default();
            _ = write!(out, " {written}{difference} |");
        }
        out.push('\n');
    }
}

fn comparison(out: &mut String, table: &Table) {
    _ = writeln!(
        out,
        "\n### {}, {} bytes\n\n| variant | {} | × {} [95 %] |\n|---|---|---|",
        words::operation(table.operation),
        table.frame_bytes,
        if table.ratio_of.starts_with("rtt") {
            "median round trip"
        } else {
            "packets/s"
        },
        cell(&table.base)
    );
    for variant in &table.variants {
        let figure = match &variant.failure {
            Some(failure) => cell(failure),
            None if table.ratio_of.starts_with("rtt") => told(variant.rtt_p50_ns, units::time),
            None => told(variant.packets_pps, units::short),
        };
        _ = writeln!(
            out,
            "| {} | {figure} | {} |",
            cell(&variant.name),
            section::ratio(variant, &table.base)
        );
    }
    if !table.aa.is_empty() {
        against_itself(out, table);
    }
}

/// What each level does, and the best configuration as a file.
fn swept(out: &mut String, sweep: &SweepResult) {
    _ = writeln!(
        out,
        "\n| knob | level | × base [{:.1} %] | verdict |\n|---|---|---|---|",
        sweep.confidence_percent
    );
    for knob in &sweep.knobs {
        for level in &knob.levels {
            let ratio = level
                .ratio_to_base
                .as_ref()
                .map_or_else(|| "–".to_owned(), settings::interval);
            let verdict = level.verdict.map_or("base", crate::sweep::verdict);
            _ = writeln!(
                out,
                "| {} | {} | {ratio} | {verdict} |",
                cell(&knob.name),
                cell(&level.level)
            );
        }
    }
    _ = writeln!(out, "\n```toml\n{}```", sweep.best.config);
}

/// Each variant against itself.
fn against_itself(out: &mut String, table: &Table) {
    out.push_str("\n| A/A | × itself [95 %] |\n|---|---|\n");
    for aa in &table.aa {
        let ratio = aa.ratio.as_ref().map_or_else(|| "–".to_owned(), settings::interval);
        _ = writeln!(out, "| {} | {ratio} |", cell(&aa.name));
    }
}

fn told(figure: Option<Figure>, write: fn(f64) -> String) -> String {
    let Some(figure) = figure else { return "–".to_owned() };
    let spread = figure
        .spread_percent
        .map(|percent| format!(" ± {} %", units::digits(percent)))
        .unwrap_or_default();
    write(figure.median) + &spread
}

/// Text in a cell: what would end it is written so that it does not.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

/// A line a figure: result, figure, value, unit.
pub(super) fn csv(entries: &[Entry]) -> String {
    let mut out = "result,figure,value,unit\n".to_owned();
    for entry in entries {
        for metric in figures::of(entry) {
            line(&mut out, &entry.name, &metric.name, metric.value, unit(metric.kind));
        }
    }
    out
}

fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Count | Kind::Ratio => "1",
        Kind::Packets => "packets",
        Kind::PacketsPerSecond => "1/s",
        Kind::BitsPerSecond => "bit/s",
        Kind::Nanoseconds => "ns",
        Kind::Percent => "%",
    }
}

fn line(out: &mut String, name: &str, figure: &str, value: f64, unit: &str) {
    _ = writeln!(out, "{},{},{value},{unit}", quoted(name), quoted(figure));
}

/// RFC 4180. A spreadsheet takes a text that begins with one of these for a formula.
fn quoted(text: &str) -> String {
    let text = if text.starts_with(['=', '+', '-', '@']) {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_table_is_escaped() {
        assert_eq!(cell("a|b\nc<d"), "a\\|b c&lt;d");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("=1+1"), "'=1+1");
    }
}
