//! Tables that fit the terminal.

use std::io::IsTerminal as _;
use std::os::fd::AsFd;

use comfy_table::{CellAlignment, Table, presets};

/// Columns of a terminal that does not report its size.
const DEFAULT_COLUMNS: usize = 80;

/// Returns the number of columns of the terminal that shows the text of a result, or `None` if the
/// text goes elsewhere. With `json`, the JSON has standard output and the text standard error.
pub(crate) fn terminal_columns(json: bool) -> Option<usize> {
    let columns =
        |stream: &dyn AsFd| rustix::termios::tcgetwinsize(stream.as_fd()).map_or(0, |size| usize::from(size.ws_col));
    let (is_terminal, columns) = match json {
        true => (std::io::stderr().is_terminal(), columns(&std::io::stderr())),
        false => (std::io::stdout().is_terminal(), columns(&std::io::stdout())),
    };
    is_terminal.then_some(if columns == 0 { DEFAULT_COLUMNS } else { columns })
}

/// A table whose first column names its rows. Headers and cells may have several lines.
pub(crate) struct Grid {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Columns from the left that are aligned to the left.
    left: usize,
}

impl Grid {
    /// Makes a table without rows. All columns but the first `left` are aligned to the right.
    pub(crate) fn new<S: Into<String>>(left: usize, header: impl IntoIterator<Item = S>) -> Self {
        Self {
            header: header.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            left,
        }
    }

    /// Adds a row. Cells that are missing at its end are empty.
    pub(crate) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// Draws the table. On a terminal, columns that do not fit beside the others follow below, in
    /// a table of their own with the first column repeated.
    pub(crate) fn render(&self, terminal_columns: Option<usize>) -> String {
        let mut text = String::new();
        for part in self.parts(terminal_columns.unwrap_or(usize::MAX)) {
            let mut table = Table::new();
            table.load_style(match terminal_columns {
                Some(_) => presets::UTF8_FULL_CONDENSED,
                None => presets::ASCII_FULL_CONDENSED,
            });
            let cells = |row: &Vec<String>| -> Vec<String> {
                part.iter()
                    .map(|&at| row.get(at).cloned().unwrap_or_default())
                    .collect()
            };
            table.set_header(cells(&self.header));
            table.add_rows(self.rows.iter().map(cells));
            for (&at, column) in part.iter().zip(table.column_iter_mut()) {
                if at >= self.left {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            text += &format!("{table}\n");
        }
        text
    }

    /// Returns the indices of the columns of each part, none of which is wider than `width` if it
    /// has more than two columns.
    fn parts(&self, width: usize) -> Vec<Vec<usize>> {
        let mut parts = vec![vec![0]];
        // A border on the left, then each column with two blanks and a border.
        let first = 1 + self.width(0) + 3;
        let mut used = first;
        for at in 1..self.header.len() {
            let own = self.width(at) + 3;
            if used + own > width && used > first {
                parts.push(vec![0]);
                used = first;
            }
            parts.last_mut().expect("there is one").push(at);
            used += own;
        }
        parts
    }

    /// Returns the characters in the longest line of a column.
    fn width(&self, at: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(at));
        let lines = cells.chain([&self.header[at]]).flat_map(|cell| cell.lines());
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(1, ["name", "first\nfigure", "second", "third"]);
        grid.add(vec!["one".into(), "1.0\n± 2 %".into(), "22".into(), "333".into()]);
        grid.add(vec!["other".into(), "failed".into()]);
        grid
    }

    fn widest(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap()
    }

    #[test]
    fn stays_whole_where_it_fits() {
        let whole = grid().render(None);
        assert_eq!(whole.matches("name").count(), 1, "{whole}");
        let needed = widest(&whole);
        assert_eq!(grid().parts(needed).len(), 1);
        assert_eq!(grid().parts(needed - 1), [vec![0, 1, 2], vec![0, 3]]);
    }

    #[test]
    fn continues_below_on_a_narrow_terminal() {
        for columns in 20..60 {
            let text = grid().render(Some(columns));
            assert!(widest(&text) <= columns, "{columns}:\n{text}");
            for cell in ["1.0", "± 2 %", "22", "333", "failed"] {
                assert_eq!(text.matches(cell).count(), 1, "{columns}: {cell} in\n{text}");
            }
            let tables = text.matches("name").count();
            assert_eq!(text.matches("other").count(), tables, "{columns}:\n{text}");
        }
    }
}
