//! The default text of `ringside compare`: one line for each question, and the best options.
//! At most 80 columns wide.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringside_measure::compare::Figure;
use ringside_measure::schema::{CompareResult, Document, Operation, Outcome, Table, Variant};

use super::verdict::{Verdict, has_plain_udp};
use super::{cell, table};
use crate::output::wrapped_to;
use crate::system;

/// Columns of the narrowest terminal that is usual.
const COLUMNS: usize = 80;

/// Returns the summary. `path` describes the test bed or interfaces.
pub(super) fn render(document: &Document, path: &str) -> String {
    let Outcome::Compare(result) = &document.result else {
        return String::new();
    };
    let mut text = wrapped_to(
        COLUMNS,
        &format!("Path: {path}. {}.", system::summary(&document.system)),
        "",
    );
    text.push_str(&wrapped_to(COLUMNS, &basis(result), ""));
    text.push('\n');
    let questions: Vec<Question> = result.tables.iter().map(Question::new).collect();
    let several_sizes = {
        let sizes = |operation| {
            result
                .tables
                .iter()
                .filter(move |table| table.operation == operation)
                .count()
        };
        result.tables.iter().any(|table| sizes(table.operation) > 1)
    };
    let names: Vec<String> = questions.iter().map(|question| question.name(several_sizes)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    for (question, name) in questions.iter().zip(&names) {
        _ = writeln!(text, "  {name:width$}  {}", question.answer());
    }
    text.push('\n');
    text.push_str(&wrapped_to(COLUMNS, &conclusion(&questions), ""));
    for caveat in questions.iter().filter_map(Question::caveat) {
        text.push_str(&wrapped_to(COLUMNS, &caveat, ""));
    }
    for failure in failures(result) {
        text.push_str(&wrapped_to(COLUMNS, &failure, ""));
    }
    text
}

/// Returns the frame sizes, the number of rounds and the base of ratios, as a sentence.
fn basis(result: &CompareResult) -> String {
    let mut sizes: Vec<u64> = result.tables.iter().map(|table| table.frame_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let sizes: Vec<String> = sizes.iter().map(ToString::to_string).collect();
    let mut bases = result.tables.iter().map(has_plain_udp);
    let base = match (bases.clone().any(|plain| plain), bases.all(|plain| plain)) {
        (true, true) => "the best plain UDP socket",
        (true, false) => "the best plain UDP socket, or without one to the first option",
        (false, _) => "the first option with a figure, because plain UDP has none",
    };
    format!(
        "Frames of {} bytes without FCS. Medians of {} interleaved rounds; ratio to {base}, with \
         its 95 % interval.",
        sizes.join(" and "),
        result.rounds
    )
}

/// One table's question and its best option.
struct Question<'t> {
    table: &'t Table,
    best: Option<(&'t Variant, Figure)>,
}

impl<'t> Question<'t> {
    fn new(table: &'t Table) -> Self {
        let best = table.best();
        Self { table, best }
    }

    fn name(&self, with_size: bool) -> String {
        let name = match self.table.operation {
            Operation::Rx => "receive",
            Operation::Tx => "transmit",
            Operation::Ping => "round trip",
            _ => "send back",
        };
        if with_size {
            format!("{name} {}", self.table.frame_bytes)
        } else {
            name.to_owned()
        }
    }

    fn answer(&self) -> String {
        let Some((variant, figure)) = &self.best else {
            return "no option gave a figure".into();
        };
        let figure = match self.table.operation {
            Operation::Ping => format!("{} µs", cell::micros(figure.median)),
            _ => format!("{} packets/s", cell::packets(figure.median)),
        };
        let ratio = match &variant.ratio_to_base {
            Some(ratio) => format!("{} x {}", cell::proportion(ratio), self.table.base).replacen('\n', " ", 1),
            None if variant.name == self.table.base => "the base of ratios".into(),
            None => format!("no ratio to {}", self.table.base),
        };
        format!("{:16}  {figure:>16}  {ratio}", variant.name)
    }

    /// Returns the caveat of the best option's figure, if it has one.
    fn caveat(&self) -> Option<String> {
        let (variant, _) = self.best.as_ref()?;
        let caveat = table::caveat(variant, self.table.operation)?;
        Some(format!("{}: {caveat}.", variant.name))
    }
}

fn conclusion(questions: &[Question]) -> String {
    let mut verdicts: BTreeMap<Verdict, Vec<String>> = BTreeMap::new();
    for question in questions {
        let Some(verdict) = Verdict::of(question.table) else {
            continue;
        };
        let names = verdicts.entry(verdict).or_default();
        let name = question.name(false);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if verdicts.is_empty() {
        return "No option gave a figure.".into();
    }
    let parts = verdicts
        .iter()
        .map(|(verdict, names)| format!("{verdict} ({})", names.join(", ")));
    format!("Best here: {}.", parts.collect::<Vec<_>>().join("; "))
}

/// Returns one sentence for each reason for which variants failed.
fn failures(result: &CompareResult) -> Vec<String> {
    let mut failed: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for table in &result.tables {
        for variant in &table.variants {
            if let Some(reason) = &variant.failure {
                let name = Question::new(table).name(false);
                failed
                    .entry(reason)
                    .or_default()
                    .push(format!("{} ({name})", variant.name));
            }
        }
    }
    let sentence = |(reason, names): (&str, Vec<String>)| format!("Failed: {}: {reason}", names.join(", "));
    failed.into_iter().map(sentence).collect()
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
