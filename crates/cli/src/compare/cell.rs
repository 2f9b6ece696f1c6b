//! What stands in a cell: a figure, and in a second line how much the rounds differ.
//!
//! ```text
//!   2.61 M     the median of the rounds
//!    ±2.6%     half the distance between their quartiles, in percent of the median
//! ```
//!
//! What is a percentage itself has its spread in percentage points: it may be 0, of which there is no percentage.

use ringside_measure::compare::{Figure, Ratio};

/// A rate or a time, its spread in percent of it.
pub(super) fn relative(figure: &Figure, text: impl Fn(f64) -> String) -> String {
    let spread = match (figure.spread_percent, figure.spread) {
        (Some(percent), _) => format!("{}%", two_digits(percent)),
        // Of zero there is no percentage.
        (None, Some(spread)) => text(spread),
        (None, None) => UNKNOWN.into(),
    };
    format!("{}\n±{spread}", text(figure.median))
}

/// Percentages, and their spreads in percentage points, with strokes between them; `None` if none is known.
pub(super) fn points(figures: &[Option<Figure>], text: impl Fn(f64) -> String) -> Option<String> {
    let joined = |cell: &dyn Fn(&Figure) -> String| {
        let cells = figures
            .iter()
            .map(|figure| figure.as_ref().map_or_else(|| "-".into(), cell));
        cells.collect::<Vec<String>>().join("/")
    };
    let spread = |figure: &Figure| format!("±{}", figure.spread.map_or_else(|| UNKNOWN.into(), &text));
    figures
        .iter()
        .any(Option::is_some)
        .then(|| format!("{}\n{}", joined(&|figure| text(figure.median)), joined(&spread)))
}

/// A ratio, and its interval instead of a spread.
pub(super) fn proportion(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{}\n[{}-{}]", decimals(ratio.median), decimals(low), decimals(high)),
        _ => format!("{}\n[{UNKNOWN}]", decimals(ratio.median)),
    }
}

/// In the place of a spread that too few rounds tell.
pub(super) const UNKNOWN: &str = "?";

/// `2.61 M`, `461 k`, `8.4 k`
pub(super) fn packets(pps: f64) -> String {
    if pps >= 1e6 {
        format!("{:.2} M", pps / 1e6)
    } else if pps >= 1e4 {
        format!("{:.0} k", pps / 1e3)
    } else if pps >= 1e3 {
        format!("{:.1} k", pps / 1e3)
    } else {
        format!("{pps:.0}")
    }
}

/// Gigabits.
pub(super) fn giga(bps: f64) -> String {
    digits(bps / 1e9)
}

/// Microseconds.
pub(super) fn micros(ns: f64) -> String {
    digits(ns / 1e3)
}

/// A share that may be small without being none.
pub(super) fn share(percent: f64) -> String {
    if percent > 0.0 && percent < 0.05 {
        "<0.1".into()
    } else {
        format!("{percent:.1}")
    }
}

/// A percentage that is known in coarse steps.
pub(super) fn coarse(percent: f64) -> String {
    format!("{percent:.0}")
}

/// Two or three digits that mean something.
fn digits(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else if value >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.3}")
    }
}

/// Of a ratio: 2 % are a difference, 0.2 are not.
fn decimals(ratio: f64) -> String {
    if ratio < 10.0 {
        format!("{ratio:.2}")
    } else {
        format!("{ratio:.1}")
    }
}

/// Of a spread.
fn two_digits(value: f64) -> String {
    if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;
