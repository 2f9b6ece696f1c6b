//! The result of a lab on one screen: a row for each path, time and load.

use comfy_table::{CellAlignment, ContentArrangement};
use ringside_measure::schema::{Document, LabCell, Outcome};

use super::table::{grid, row};
use crate::output::brief::{entry, first_of};
use crate::output::wrapped_to;

/// Rows that leave room for what else is to be said.
const MAX_ROWS: usize = 12;

/// Columns of the whole matrix that are shown: path, time, load, p50, p99, lost, and times idle.
const COLUMNS: [(usize, &str); 7] = [
    (0, "path"),
    (1, "time"),
    (2, "load"),
    (5, "p50"),
    (6, "p99"),
    (10, "lost %"),
    (11, "x idle"),
];

/// Renders the medians and tails of all cells, in microseconds, and how many have none.
pub(super) fn render(document: &Document, terminal: bool) -> String {
    let Outcome::Lab(result) = &document.result else {
        return String::new();
    };
    let mut text = wrapped_to(80, &format!("{}, times in µs", result.title), "");
    let cells = result.cells.iter();
    let (measured, missing): (Vec<&LabCell>, Vec<&LabCell>) = cells.partition(|cell| cell.unavailable.is_none());
    let mut grid = grid(terminal);
    // Long names of paths are wrapped.
    grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(80);
    grid.set_header(COLUMNS.map(|(_, name)| name));
    for cell in measured.iter().take(MAX_ROWS) {
        let row = row(cell);
        // Without the interval.
        grid.add_row(COLUMNS.map(|(column, _)| row[column].split(" [").next().unwrap_or_default().to_owned()));
    }
    for column in grid.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text += &format!("{grid}\n");
    if let more @ 1.. = measured.len().saturating_sub(MAX_ROWS) {
        text += &entry("not shown", &format!("{more} more rows"));
    }
    let about = |cell: &LabCell, why: &Option<String>| Some(format!("{}: {}", cell.path, why.as_ref()?));
    let reasons = missing.iter().filter_map(|cell| about(cell, &cell.unavailable));
    text += &first_of("not available", &reasons.collect::<Vec<_>>());
    let failures = measured.iter().filter(|cell| cell.failed_turns > 0);
    let failures = failures.filter_map(|cell| about(cell, &cell.failure));
    text += &first_of("failed turns", &failures.collect::<Vec<_>>());
    for wrong in wrong_sentences(&result.cells) {
        text += &entry("WRONG", &wrong);
    }
    text + &first_of("warning", &result.warnings)
}

/// Returns what landed elsewhere than asked for, each sentence once.
fn wrong_sentences(cells: &[LabCell]) -> Vec<String> {
    let ends = cells.iter().flat_map(|cell| &cell.steering);
    let sentences = ends.flat_map(|end| end.seen.sentences.iter().map(move |sentence| (end, sentence)));
    let wrong = sentences.filter(|(_, sentence)| !sentence.right && !sentence.unknown);
    let mut wrong: Vec<String> = wrong
        .map(|(end, sentence)| format!("{} at {}: {}", end.name, end.host, sentence.text))
        .collect();
    wrong.sort_unstable();
    wrong.dedup();
    wrong
}
