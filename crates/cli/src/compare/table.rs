//! The tables for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ringside_measure::compare::Figure;
use ringside_measure::schema::{CompareResult, Document, Operation, Outcome, Table, Variant};
use ringside_nic::host::CpuTimes;

use super::cell::{self, UNKNOWN};
use crate::output::grid::Grid;
use crate::output::{self, wrapped_to};
use crate::run::ping::table::name as condition;
use crate::system;

/// Renders the machine, the path, the tables, and what to know about them, for a terminal of that
/// many columns or for a file.
pub(super) fn render(document: &Document, notes: &[String], columns: Option<usize>) -> String {
    let Outcome::Compare(result) = &document.result else {
        return String::new();
    };
    let mut text = wrap(columns, &system::summary(&document.system), "");
    for note in notes {
        text.push_str(&wrap(columns, note, ""));
    }
    for table in &result.tables {
        _ = write!(text, "\n{}", one(table, columns));
    }
    _ = write!(text, "\n{}", legend(result, columns));
    if let Some(until) = &result.until_ci {
        text.push_str(&wrap(columns, &output::until(until), ""));
    }
    text
}

/// Returns prose in lines that fit the terminal and are at most 100 columns wide.
fn wrap(columns: Option<usize>, text: &str, indent: &str) -> String {
    wrapped_to(columns.map_or(100, |columns| columns.min(100)), text, indent)
}

fn one(table: &Table, columns: Option<usize>) -> String {
    let ping = table.operation == Operation::Ping;
    let title = format!(
        "{}, frames of {} bytes without FCS ({} of payload); {}",
        name(table.operation),
        table.frame_bytes,
        table.payload_bytes,
        table.load
    );
    let mut text = wrap(columns, &title, "");
    let rates = ["packets/s", "Gbit/s\nwire", "Gbit/s\npayload"];
    let times = [
        "round\ntrips/s",
        "RTT µs\nmin",
        "\nmean",
        "\np50",
        "\np90",
        "\np99",
        "\np99.9",
        "\nmax",
    ];
    let figures: &[&str] = if ping { &times } else { &rates };
    let ratio = format!("x {}\n[95 %]", table.base);
    let header = ["variant"].into_iter().chain(figures.iter().copied()).chain([
        "lost\n%",
        "CPU %\nall",
        "CPU %\nusr/sys/irq",
        &ratio,
    ]);
    let mut grid = Grid::new(1, header);
    for variant in &table.variants {
        grid.add(cells(variant, ping, variant.name == table.base));
    }
    text += &grid.render(columns);
    // One line for all that failed for the same reason.
    let reasons: BTreeSet<&str> = table
        .variants
        .iter()
        .filter_map(|variant| variant.failure.as_deref())
        .collect();
    for reason in reasons {
        let failed = table
            .variants
            .iter()
            .filter(|variant| variant.failure.as_deref() == Some(reason));
        let names: Vec<&str> = failed.map(|variant| variant.name.as_str()).collect();
        text.push_str(&wrap(columns, &format!("{}: failed: {reason}", names.join(", ")), "  "));
    }
    for variant in &table.variants {
        let caveat = caveat(variant, table.operation).filter(|_| variant.failure.is_none());
        for caveat in caveat.map(str::to_owned).into_iter().chain(sparse(variant)) {
            text.push_str(&wrap(columns, &format!("{}: {caveat}", variant.name), "  "));
        }
    }
    text.push_str(&under_load(table, columns));
    text.push_str(&against_itself(table, columns));
    if let Some(extremes) = extremes(table) {
        text.push_str(&wrap(columns, &extremes, "  "));
    }
    text
}

/// Round trips idle and under load, side by side. Nothing where nobody asked.
fn under_load(table: &Table, columns: Option<usize>) -> String {
    if table.under_load.is_empty() {
        return String::new();
    }
    let header = [
        "variant",
        "load",
        "RTT µs\np50",
        "\np99",
        "\nmax",
        "lost\n%",
        "x idle\n[95 %]",
        "round\ntrips/min",
        "\nms",
    ];
    let mut grid = Grid::new(2, header);
    let median = |figure: &Option<Figure>, write: &dyn Fn(f64) -> String| {
        figure
            .as_ref()
            .map_or_else(|| UNKNOWN.to_owned(), |figure| write(figure.median))
    };
    for variant in table.variants.iter().filter(|variant| variant.failure.is_none()) {
        let loaded = table.under_load.iter().filter(|loaded| loaded.name == variant.name);
        let idle = [(
            &variant.rtt_p50_ns,
            &variant.rtt_p99_ns,
            &variant.rtt_max_ns,
            &variant.loss_percent,
            &variant.round_trips_per_minute,
        )];
        let idle = idle.map(|figures| ("idle", figures, "base".to_owned()));
        let loaded = loaded.map(|loaded| {
            let ratio = loaded
                .ratio_to_idle
                .as_ref()
                .map_or_else(|| UNKNOWN.to_owned(), cell::proportion);
            let figures = (
                &loaded.rtt_p50_ns,
                &loaded.rtt_p99_ns,
                &loaded.rtt_max_ns,
                &loaded.loss_percent,
                &loaded.round_trips_per_minute,
            );
            (condition(loaded.kind), figures, ratio)
        });
        for (condition, (p50, p99, max, lost, per_minute), ratio) in idle.into_iter().chain(loaded) {
            grid.add(vec![
                variant.name.clone(),
                condition.to_owned(),
                median(p50, &cell::micros),
                median(p99, &cell::micros),
                median(max, &cell::micros),
                median(lost, &cell::share),
                ratio,
                median(per_minute, &output::count),
                median(per_minute, &|per_minute| format!("{:.4}", 60_000.0 / per_minute)),
            ]);
        }
    }
    let rates: BTreeSet<String> = table
        .under_load
        .iter()
        .map(|loaded| output::count(loaded.load_pps))
        .collect();
    let mut text = grid.render(columns);
    text.push_str(&wrap(
        columns,
        &format!(
            "Load: {} packets/s. Round trips per minute: of the mean without the longest 5 %, in milliseconds beside it.",
            rates.into_iter().collect::<Vec<_>>().join(", ")
        ),
        "  ",
    ));
    for loaded in &table.under_load {
        if let Some(failure) = &loaded.failure {
            text.push_str(&wrap(
                columns,
                &format!("{}, {}: failed: {failure}", loaded.name, condition(loaded.kind)),
                "  ",
            ));
        }
    }
    text
}

/// What an A/A test says about ratios.
pub(crate) fn nothing(noise_floor_percent: f64) -> String {
    let most = 1.0 + noise_floor_percent / 100.0;
    format!(
        "a ratio between {:.2} and {most:.2} means nothing here, of this operation and size, with as many rounds: so far from 1 a variant \
         is from itself.",
        1.0 / most
    )
}

/// The A/A test: each variant against itself, and what follows for the ratios above. Nothing where none took part twice.
fn against_itself(table: &Table, columns: Option<usize>) -> String {
    if table.aa.is_empty() {
        return String::new();
    }
    let mut grid = Grid::new(1, ["A/A", "x itself\n[95 %]", "rounds"]);
    for aa in &table.aa {
        let (ratio, rounds) = match &aa.ratio {
            Some(ratio) => (cell::proportion(ratio), ratio.rounds_used.to_string()),
            None => ("-".into(), "0".into()),
        };
        grid.add(vec![aa.name.clone(), ratio, rounds]);
    }
    let ratios = || table.aa.iter().filter_map(|aa| aa.ratio);
    let off = ratios().filter(|ratio| ratio.is_clear(0.0)).count();
    let told = match table.noise_floor_percent {
        Some(percent) => format!("Noise: {}", nothing(percent)),
        None => "Noise: too few rounds to tell from which difference on a ratio means something.".into(),
    };
    let astray = match off {
        0 => String::new(),
        off => format!(
            " {off} of {} intervals do not hold 1, where they should: of 95 % intervals one in 20 does not, by chance.",
            table.aa.len()
        ),
    };
    grid.render(columns) + &wrap(columns, &(told + &astray), "  ")
}

/// Returns a row. A cell has two lines: the figure and its spread.
fn cells(variant: &Variant, ping: bool, is_base: bool) -> Vec<String> {
    let mut cells = vec![variant.name.clone()];
    let mut add = |text: Option<String>| cells.push(text.unwrap_or_else(|| "-".into()));
    if variant.failure.is_some() {
        add(Some("failed".into()));
        return cells;
    }
    add(variant.packets_pps.map(|figure| cell::relative(&figure, cell::packets)));
    if ping {
        for (_, figure) in times(variant) {
            add(figure.map(|figure| cell::relative(&figure, cell::micros)));
        }
    } else {
        for figure in [variant.wire_bps, variant.payload_bps] {
            add(figure.map(|figure| cell::relative(&figure, cell::giga)));
        }
    }
    let stages = [
        variant.cpu_user_percent,
        variant.cpu_system_percent,
        variant.cpu_softirq_percent,
    ];
    add(cell::points(&[variant.loss_percent], cell::share));
    add(cell::points(&[variant.cpu_busy_percent], cell::coarse));
    add(cell::points(&stages, cell::coarse));
    add(if is_base {
        Some("base".into())
    } else {
        variant.ratio_to_base.as_ref().map(cell::proportion)
    });
    cells
}

/// Round trips, as the columns have them.
fn times(variant: &Variant) -> [(&'static str, Option<Figure>); 7] {
    [
        ("min", variant.rtt_min_ns),
        ("mean", variant.rtt_mean_ns),
        ("p50", variant.rtt_p50_ns),
        ("p90", variant.rtt_p90_ns),
        ("p99", variant.rtt_p99_ns),
        ("p99.9", variant.rtt_p99_9_ns),
        ("max", variant.rtt_max_ns),
    ]
}

fn name(operation: Operation) -> &'static str {
    match operation {
        Operation::Rx => "Receive",
        Operation::Tx => "Transmit",
        Operation::Fwd => "Forward (send back)",
        Operation::Echo => "Echo",
        Operation::Ping => "Ping",
        Operation::Impair => "Impair",
        Operation::Talker => "Talker",
        Operation::Listener => "Listener",
    }
}

/// What a figure does not say by itself.
pub(super) fn caveat(variant: &Variant, operation: Operation) -> Option<&'static str> {
    match (variant.name.as_str(), operation) {
        ("udp-gso", _) => Some(
            "64 packets go through the stack as one, and are cut in front of the veth because its peer has XDP; without \
             XDP they would cross it uncut, which no wire does",
        ),
        ("udp-blocking", Operation::Ping) => Some(
            "each packet wakes the other CPU; on a virtual machine that alone can take 100 µs and more, and is the \
             hypervisor's time rather than the socket's",
        ),
        _ => None,
    }
}

/// Percentiles that only some of the rounds tell: the fast ones, which have more samples.
fn sparse(variant: &Variant) -> Option<String> {
    let all = variant.rtt_min_ns?.rounds_used;
    let some = times(variant)
        .into_iter()
        .filter_map(|(name, figure)| Some((name, figure?.rounds_used)))
        .filter(|(_, used)| *used < all)
        .map(|(name, used)| format!("{name} is of {used} of {all} rounds"))
        .collect::<Vec<String>>();
    (!some.is_empty()).then(|| format!("{}; the others have too few samples for it", some.join(", ")))
}

/// What no median tells: the very shortest and longest.
fn extremes(table: &Table) -> Option<String> {
    let ends = table.variants.iter().filter_map(|variant| {
        let (min, max) = (variant.rtt_min_ns?.min, variant.rtt_max_ns?.max);
        Some(format!("{} {}-{}", variant.name, cell::micros(min), cell::micros(max)))
    });
    let ends: Vec<String> = ends.collect();
    (!ends.is_empty()).then(|| format!("shortest and longest of all rounds, µs: {}", ends.join(", ")))
}

fn legend(result: &CompareResult, columns: Option<usize>) -> String {
    let seconds = result.round_duration_ns as f64 / 1e9;
    let left_out: usize = result
        .tables
        .iter()
        .flat_map(|table| &table.variants)
        .filter_map(|variant| variant.packets_pps)
        .map(|figure| figure.rounds_left_out)
        .sum();
    let tick = 1.0 / CpuTimes::ticks_per_second() as f64;
    let mut text = wrap(
        columns,
        &format!(
            "Every figure is the median of {} interleaved rounds of {seconds} s, and ± below it its spread: half the \
             distance between the rounds' quartiles, in percent of the figure where it says %, in percentage points for \
             losses and CPU. A ratio is the median of the rounds' ratios with its 95 % interval; one whose interval holds \
             1 is no difference. {UNKNOWN}: too few rounds to tell. Turns with CPU steal above {} %: \
             {} repeated, {left_out} left out.",
            result.rounds, result.steal_limit_percent, result.turns_repeated
        ),
        "",
    );
    text.push_str(&wrap(
        columns,
        &format!(
            "CPU: sender's and receiver's together, in percent of one CPU, generator and sink included. The kernel counts \
             it in steps of {} ms, {:.1} points of a round; what a system call does for softirq it counts here or there: \
             \"all\" is the sum.",
            tick * 1e3,
            tick / seconds * 100.0,
        ),
        "",
    ));
    if result.tables.iter().any(|table| table.operation == Operation::Ping) {
        text.push_str(&wrap(
            columns,
            "Ping: min and max are of a round, the median over the rounds as all others; the ends of all rounds stand \
             below the table. Ratios are of the median round trip: below 1 is faster. \"-\": too few samples for it.",
            "",
        ));
    }
    text
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
