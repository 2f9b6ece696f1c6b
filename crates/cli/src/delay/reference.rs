//! The numbers of the reference measurement, for `--reference`: delays from the XDP program to the application on hosts with
//! Intel NICs, each of a spinning and of a woken application.

use ringside_measure::delay::{CStates, Cell, Core, Wait};
use ringside_measure::latency::Summary;
use ringside_measure::schema::DelayResult;

use comfy_table::{CellAlignment, Table as Grid};

/// Mean, min and max in nanoseconds.
type Figures = [u64; 3];

/// The systems, as the columns are named.
const SYSTEMS: [&str; 3] = ["igc, A", "igc, B", "igb, RT1"];

/// What each of them is.
pub(super) const LEGEND: &str = "Reference: A has C-states, B has none; igc is Intel i225. RT1 is a PREEMPT_RT kernel with Intel i210. There \
the packet comes by the NIC's interrupt, over a wire.";

struct Row {
    wait: Wait,
    core: Core,
    figures: [Figures; 3],
}

const ROWS: [Row; 4] = [
    Row {
        wait: Wait::Spin,
        core: Core::Same,
        figures: [[1575, 849, 2123], [1402, 805, 2867], [2577, 2129, 4155]],
    },
    Row {
        wait: Wait::Spin,
        core: Core::Other,
        figures: [[2639, 2337, 4019], [1056, 419, 2798], [788, 551, 1473]],
    },
    Row {
        wait: Wait::Poll,
        core: Core::Same,
        figures: [[22_881, 21_190, 30_619], [3177, 2210, 9136], [6209, 5644, 8178]],
    },
    Row {
        wait: Wait::Poll,
        core: Core::Other,
        figures: [[50_353, 47_420, 56_156], [4095, 3029, 10_595], [5239, 4463, 7390]],
    },
];

/// The table's rows into a grid: what was measured here, and there.
pub(super) fn fill(grid: &mut Grid, result: &DelayResult) {
    let mut header = vec!["test".to_owned(), "core".to_owned()];
    for column in ["here,\nC-states as is", "here,\nC-states off"]
        .into_iter()
        .chain(SYSTEMS)
    {
        header.push(column.to_owned());
    }
    grid.set_header(header);
    for row in ROWS {
        let (test, core) = match (row.wait, row.core) {
            (Wait::Spin, Core::Same) => ("spin", "same"),
            (Wait::Spin, Core::Other) => ("spin", "remote"),
            (_, Core::Same) => ("wakeup", "same"),
            (_, Core::Other) => ("wakeup", "remote"),
        };
        let mut cells = vec![test.to_owned(), core.to_owned()];
        for c_states in [CStates::AsIs, CStates::Off] {
            let here = result
                .cells
                .iter()
                .find(|cell| {
                    let Row { wait, core, .. } = row;
                    cell.cell() == Cell { wait, core, c_states }
                })
                .and_then(|cell| cell.delay.as_ref());
            cells.push(here.map_or_else(|| "-".into(), |delay| shown(own(delay))));
        }
        cells.extend(row.figures.map(shown));
        grid.add_row(cells);
    }
    for column in grid.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn own(delay: &Summary) -> Figures {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean of times, far below 2^53 ns and not below zero"
    )]
    [delay.mean_ns.round() as u64, delay.min_ns, delay.max_ns]
}

/// Mean, and the ends below it.
fn shown([mean, min, max]: Figures) -> String {
    format!("{mean}\n{min} - {max}")
}
