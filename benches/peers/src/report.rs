//! The table that is printed and the file that is written.

use std::path::Path;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use ringside_measure::compare::{self, Figure, Ratio};
use serde::Serialize;

use crate::operation::Operation;
use crate::peers::{Missing, Role};
use crate::rounds::Series;

/// Everything that a run found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema: u32,
    kernel: String,
    slot_seconds: f64,
    settle_seconds: f64,
    operations: Vec<Outcome>,
}

/// What an operation's rounds gave.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    operation: Operation,
    unit: &'static str,
    rows: Vec<Row>,
    missing: Vec<Missing>,
    /// Ours in proportion to the best of the others: as they come, and tuned. Empty without ours.
    ours_to_best: Vec<ToBest>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    role: Role,
    figure: Figure,
    /// Median of the turns' 99th percentiles; ping-pong only.
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<Figure>,
    to_base: Ratio,
    /// Every round's value, and the share of CPU time that went to others.
    rounds: Vec<compare::Round>,
}

#[derive(Debug, Serialize)]
struct ToBest {
    /// Among which rows it is the best.
    among: &'static str,
    peer: String,
    ratio: Ratio,
}

impl Report {
    /// An empty report of a run with these times.
    pub(crate) fn new(slot: std::time::Duration, settle: std::time::Duration) -> Self {
        let uname = rustix::system::uname();
        Self {
            schema: 1,
            kernel: uname.release().to_string_lossy().into_owned(),
            slot_seconds: slot.as_secs_f64(),
            settle_seconds: settle.as_secs_f64(),
            operations: Vec::new(),
        }
    }

    /// Adds an operation's outcome.
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.operations.push(outcome);
    }

    /// Writes it as JSON.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The one table of all operations.
    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_header(["variant", "median", "spread", "to base [95 %]", "rounds"]);
        for outcome in &self.operations {
            table.add_row([outcome.operation.name()]);
            for row in &outcome.rows {
                table.add_row(row.cells(outcome.operation));
            }
            for best in &outcome.ours_to_best {
                let name = format!("  ringside ÷ best {} ({})", best.among, best.peer);
                table.add_row([name, String::new(), String::new(), ratio(&best.ratio)]);
            }
        }
        for column in 1..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = format!("{table}\n");
        for outcome in &self.operations {
            let name = outcome.operation.name();
            text += &format!("{name}: {}\n", outcome.operation.title());
            for row in &outcome.missing {
                text += &format!("  without {}: {}\n", row.name, row.why);
            }
        }
        text
    }
}

impl Outcome {
    /// Works an operation's series out. The first of them is the base.
    pub(crate) fn new(operation: Operation, series: Vec<Series>, mut missing: Vec<Missing>) -> Result<Self> {
        let base = series.first().context("no variant was measured")?.rounds.clone();
        let mut rows = Vec::new();
        for series in series {
            let (name, role) = (series.name.clone(), series.role);
            match Row::new(&base, series) {
                Ok(row) => rows.push(row),
                Err(error) if role == Role::Base => {
                    return Err(error).with_context(|| format!("{}: the base", operation.name()));
                }
                Err(error) => missing.push(Missing {
                    name,
                    why: error.to_string(),
                }),
            }
        }
        let ours_to_best = [
            best(operation, &rows, "peer", &[Role::Base, Role::Peer]),
            best(operation, &rows, "tuned peer", &[Role::Tuned]),
        ];
        let ours_to_best = ours_to_best.into_iter().flatten().collect::<Result<_, _>>()?;
        Ok(Self {
            operation,
            unit: operation.unit(),
            rows,
            missing,
            ours_to_best,
        })
    }
}

/// The row with the best median among those with these roles, and our ratio to it.
fn best(
    operation: Operation,
    rows: &[Row],
    among: &'static str,
    roles: &[Role],
) -> Option<Result<ToBest, ringside_measure::Error>> {
    let ours = rows.iter().find(|row| row.role == Role::Ours)?;
    let peers = rows.iter().filter(|row| roles.contains(&row.role));
    let by_median = |a: &&Row, b: &&Row| a.figure.median.total_cmp(&b.figure.median);
    let best = match operation {
        Operation::Ping => peers.min_by(by_median),
        Operation::Rx | Operation::Tx | Operation::Fwd => peers.max_by(by_median),
    }?;
    Some(compare::ratio(&best.rounds, &ours.rounds).map(|ratio| ToBest {
        among,
        peer: best.name.clone(),
        ratio,
    }))
}

impl Row {
    fn new(base: &[compare::Round], series: Series) -> Result<Self, ringside_measure::Error> {
        let p99 = match series.tails.is_empty() {
            true => None,
            false => Some(compare::figure(&series.tails)?),
        };
        Ok(Self {
            figure: compare::figure(&series.rounds)?,
            p99,
            to_base: compare::ratio(base, &series.rounds)?,
            name: series.name,
            role: series.role,
            rounds: series.rounds,
        })
    }

    fn cells(&self, operation: Operation) -> [String; 5] {
        let median = match (operation, &self.p99) {
            (Operation::Ping, Some(p99)) => {
                let [p50, p99] = [self.figure.median, p99.median].map(|ns| ns / 1000.0);
                format!("{p50:.2} µs (p99 {p99:.1})")
            }
            _ => format!("{:.3} M/s", self.figure.median / 1e6),
        };
        let spread = self
            .figure
            .spread_percent
            .map_or_else(String::new, |percent| format!("±{percent:.0} %"));
        let to_base = match self.role {
            Role::Base => "base".to_owned(),
            Role::Again | Role::Peer | Role::Tuned | Role::Ours => ratio(&self.to_base),
        };
        let rounds = format!("{} (−{})", self.figure.rounds_used, self.figure.rounds_left_out);
        [format!("  {}", self.name), median, spread, to_base, rounds]
    }
}

fn ratio(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2} [{low:.2}–{high:.2}]", ratio.median),
        _ => format!("{:.2}", ratio.median),
    }
}

#[cfg(test)]
mod tests;
