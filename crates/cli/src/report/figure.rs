//! Plots as SVG, coloured by the page's style sheet: so one plot is right in light, in dark and on paper.

use maud::{Markup, html};

use super::units;

/// In units of the drawing; the page scales it to the width that there is.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 46.0;
/// Width of a letter, in the widest usual font.
const LETTER: f64 = 7.4;

/// Colours of the style sheet; more lines than that begin anew, with dashes.
const COLOURS: usize = 8;

/// How an axis is divided.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// Evenly.
    Linear { low: f64, high: f64 },
    /// By powers of ten; both ends above zero.
    Log { low: f64, high: f64 },
    /// Shares of all samples by how many nines they have: 0.9, 0.99, 0.999 are equally far apart.
    Nines { most: f64 },
}

/// An axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) label: String,
    pub(super) scale: Scale,
    /// How a value on it is written.
    pub(super) write: fn(f64) -> String,
}

/// A line of a plot.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

impl Scale {
    /// An even axis that holds all values, and zero.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max);
        let step = step_of(high);
        Self::Linear {
            low: 0.0,
            high: (high / step).ceil().max(1.0) * step,
        }
    }

    /// Powers of ten around all values above zero.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            return Self::Log { low: 1.0, high: 10.0 };
        }
        // Halves of a power on either side, so that little is empty.
        let low = 10f64.powf((low.log10() * 2.0).floor() / 2.0);
        let high = 10f64.powf((high.log10() * 2.0).ceil() / 2.0);
        Self::Log {
            low,
            high: high.max(low * 10.0),
        }
    }

    /// Where a value is, 0 to 1.
    pub(super) fn at(self, value: f64) -> f64 {
        let share = match self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high } => (value.max(low) / low).log10() / (high / low).log10(),
            Self::Nines { most } => nines(value) / most,
        };
        share.clamp(0.0, 1.0)
    }

    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { low, high } => {
                let step = step_of(high - low);
                let mut ticks = Vec::new();
                let mut tick = low;
                while tick <= high + step / 2.0 {
                    ticks.push(tick);
                    tick += step;
                }
                ticks
            }
            Self::Log { low, high } => {
                let mut ticks = Vec::new();
                let mut power = 10f64.powf(low.log10().floor());
                while power <= high * 1.001 {
                    let wide = high / low > 2_000.0;
                    for factor in if wide { &[1.0][..] } else { &[1.0, 2.0, 5.0] } {
                        ticks.push(power * factor);
                    }
                    power *= 10.0;
                }
                ticks.retain(|tick| *tick >= low * 0.999 && *tick <= high * 1.001);
                ticks
            }
            Self::Nines { most } => {
                // With many nines there is no room for two labels so close to each other.
                let mut ticks = if most > 4.5 { vec![0.0] } else { vec![0.0, 0.5] };
                let mut one_in = 10.0;
                while nines(1.0 - 1.0 / one_in) <= most + 1e-9 {
                    ticks.push(1.0 - 1.0 / one_in);
                    one_in *= 10.0;
                }
                ticks
            }
        }
    }
}

/// How many nines a share has: 1 for 90 %, 2 for 99 %.
pub(super) fn nines(share: f64) -> f64 {
    -(1.0 - share.min(1.0 - 1e-9)).log10()
}

/// A round step of which there are four to ten in so much.
fn step_of(range: f64) -> f64 {
    if range <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((range / 4.0).log10().floor());
    let step = [5.0, 2.5, 2.0, 1.0]
        .into_iter()
        .find(|factor| power * factor * 4.0 <= range * 1.0001);
    power * step.unwrap_or(1.0)
}

/// A plot of lines with a legend below.
pub(super) fn lines(title: &str, x: &Axis, y: &Axis, lines: &[Line]) -> Markup {
    let across = |value: f64| LEFT + x.scale.at(value) * (WIDTH - LEFT - RIGHT);
    let down = |value: f64| HEIGHT - BOTTOM - y.scale.at(value) * (HEIGHT - TOP - BOTTOM);
    html! {
        figure {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (title) ": " (y.label) " by " (x.label) } {
                @for tick in y.scale.ticks() {
                    line.grid x1=(LEFT) x2=(WIDTH - RIGHT) y1=(px(down(tick))) y2=(px(down(tick))) {}
                    text.tick x=(LEFT - 6.0) y=(px(down(tick) + 4.0)) text-anchor="end" { ((y.write)(tick)) }
                }
                (ticks_below(x.scale, x.write, across, [TOP, HEIGHT - BOTTOM]))
                text.label x=((LEFT + WIDTH - RIGHT) / 2.0) y=(HEIGHT - 8.0) text-anchor="middle" { (x.label) }
                text.label transform={ "translate(13 " ((TOP + HEIGHT - BOTTOM) / 2.0) ") rotate(-90)" } text-anchor="middle" { (y.label) }
                @for (index, line) in lines.iter().enumerate() {
                    polyline class=(class(index)) points=(points(&line.points, across, down)) { title { (line.name) } }
                }
            }
            @if lines.len() > 1 {
                ul.legend { @for (index, line) in lines.iter().enumerate() { li { span.swatch.{ (class(index)) } {} (line.name) } } }
            }
        }
    }
}

/// Draws the grid lines of a horizontal axis, with labels on as many as have room: all, every
/// second, every third.
pub(super) fn ticks_below(
    scale: Scale,
    write: fn(f64) -> String,
    across: impl Fn(f64) -> f64,
    [top, bottom]: [f64; 2],
) -> Markup {
    let ticks = scale.ticks().into_iter();
    let ticks: Vec<(f64, String)> = ticks.map(|at| (across(at), write(at))).collect();
    let every = label_every(&ticks);
    html! {
        @for (index, (x, label)) in ticks.iter().enumerate() {
            line.grid x1=(px(*x)) x2=(px(*x)) y1=(top) y2=(bottom) {}
            @if index % every == 0 {
                text.tick x=(px(*x)) y=(bottom + 18.0) text-anchor="middle" { (label) }
            }
        }
    }
}

/// Returns the width of the column of names in front of bars: as much as the longest takes.
#[allow(clippy::cast_precision_loss, reason = "letters of a name")]
pub(super) fn width_of_names<'n>(names: impl Iterator<Item = &'n str>) -> f64 {
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0);
    (longest as f64 * LETTER + 14.0).clamp(60.0, 240.0)
}

/// Returns the smallest step at which no two labels of a horizontal axis overlap.
fn label_every(ticks: &[(f64, String)]) -> usize {
    const GAP: f64 = 6.0;
    #[allow(clippy::cast_precision_loss, reason = "letters of a label")]
    let half = |label: &str| label.chars().count() as f64 * LETTER / 2.0;
    let has_room = |step: &usize| {
        let labelled: Vec<&(f64, String)> = ticks.iter().step_by(*step).collect();
        let mut pairs = labelled.windows(2);
        pairs.all(|pair| pair[1].0 - pair[0].0 >= half(&pair[0].1) + half(&pair[1].1) + GAP)
    };
    (1..ticks.len()).find(has_room).unwrap_or(ticks.len().max(1))
}

fn class(index: usize) -> String {
    let dashed = if index >= COLOURS { " dashed" } else { "" };
    format!("c{}{dashed}", index % COLOURS)
}

fn points(points: &[(f64, f64)], across: impl Fn(f64) -> f64, down: impl Fn(f64) -> f64) -> String {
    let places: Vec<String> = points
        .iter()
        .map(|&(x, y)| format!("{},{}", px(across(x)), px(down(y))))
        .collect();
    places.join(" ")
}

/// A tenth of a unit is finer than any screen.
pub(super) fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// A bar with its interval.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    /// Its interval, if it has one.
    pub(super) between: Option<(f64, f64)>,
    /// What stands behind it.
    pub(super) note: String,
    /// What the others are compared with.
    pub(super) is_base: bool,
}

/// Horizontal bars on an axis that begins with zero.
pub(super) fn bars(title: &str, label: &str, bars: &[Bar], write: fn(f64) -> String) -> Markup {
    const ROW: f64 = 30.0;
    const NOTE: f64 = 148.0;
    let scale = Scale::from_zero(
        bars.iter()
            .map(|bar| bar.between.map_or(bar.value, |(_, high)| high.max(bar.value))),
    );
    let name = width_of_names(bars.iter().map(|bar| bar.name.as_str()));
    let across = |value: f64| name + scale.at(value) * (WIDTH - name - NOTE);
    #[allow(clippy::cast_precision_loss, reason = "rows of a plot")]
    let rows: Vec<(f64, &Bar)> = bars
        .iter()
        .enumerate()
        .map(|(row, bar)| (row as f64 * ROW + TOP, bar))
        .collect();
    let bottom = rows.last().map_or(TOP, |(top, _)| top + ROW);
    html! {
        figure {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (bottom + BOTTOM) } role="img" aria-label={ (title) ": " (label) } {
                (ticks_below(scale, write, across, [TOP, bottom]))
                @for (top, bar) in rows {
                    text.name x=(name - 6.0) y=(top + 19.0) text-anchor="end" { (bar.name) }
                    rect class=(if bar.is_base { "base" } else { "c0" }) x=(name) y=(top + 6.0) height="18" width=(px(across(bar.value) - name)) {
                        title { (bar.name) ": " (bar.note) }
                    }
                    @if let Some((low, high)) = bar.between {
                        line.whisker x1=(px(across(low))) x2=(px(across(high))) y1=(top + 15.0) y2=(top + 15.0) {}
                        @for end in [low, high] {
                            line.whisker x1=(px(across(end))) x2=(px(across(end))) y1=(top + 11.0) y2=(top + 19.0) {}
                        }
                    }
                    text.note x=(WIDTH - NOTE + 8.0) y=(top + 19.0) { (bar.note) }
                }
                text.label x=((name + WIDTH - NOTE) / 2.0) y=(bottom + 36.0) text-anchor="middle" { (label) }
            }
        }
    }
}

/// How a share is written on an axis of nines: `50 %`, `99.9 %`.
pub(super) fn percent(share: f64) -> String {
    if share == 0.0 {
        "min".to_owned()
    } else {
        format!("{} %", trimmed(share * 100.0))
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.5}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// How a time in nanoseconds is written on an axis.
pub(super) fn time(ns: f64) -> String {
    let text = units::time(ns);
    text.replace(".00 ", " ").replace(".0 ", " ")
}

/// How a number is written on an axis.
pub(super) fn number(value: f64) -> String {
    let text = units::short(value);
    match text.split_once(' ') {
        Some((number, prefix)) => format!("{} {prefix}", trim(number)),
        None => trim(&text).to_owned(),
    }
}

fn trim(number: &str) -> &str {
    if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_ticks_that_hold_all_values() {
        let even = Scale::from_zero([3.0, 870.0].into_iter());
        assert_eq!(
            even.ticks().iter().map(|tick| number(*tick)).collect::<Vec<_>>(),
            ["0", "250", "500", "750", "1 k"]
        );
        assert_eq!((even.at(0.0), even.at(500.0), even.at(1_000.0)), (0.0, 0.5, 1.0));
        let log = Scale::log([2_300.0, 870_000.0, 0.0].into_iter());
        assert!(log.at(2_300.0) > 0.0 && log.at(870_000.0) < 1.0);
        let ticks: Vec<String> = log.ticks().into_iter().map(time).collect();
        assert_eq!(
            ticks,
            [
                "1 µs", "2 µs", "5 µs", "10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms"
            ]
        );
        let shares: Vec<String> = Scale::Nines { most: 4.0 }.ticks().into_iter().map(percent).collect();
        assert_eq!(shares, ["min", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
        assert!((Scale::Nines { most: 4.0 }.at(0.99) - 0.5).abs() < 1e-9);
        // Nothing to show is no reason to fail.
        assert_eq!(Scale::from_zero(std::iter::empty()).ticks().len(), 5);
        assert!(!Scale::log(std::iter::empty()).ticks().is_empty());
    }

    #[test]
    fn labels_that_would_overlap_are_left_out() {
        let ticks = |step: f64| -> Vec<(f64, String)> {
            let at = |number: i32| (f64::from(number) * step, format!("{number}.00 ms"));
            (0..8).map(at).collect()
        };
        let every = [80.0, 40.0, 20.0, 1.0].map(|step| label_every(&ticks(step)));
        assert_eq!(every, [1, 2, 3, 8]);
        assert_eq!((label_every(&ticks(1.0)[..1]), label_every(&[])), (1, 1));
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let line = Line {
            name: "<script>".to_owned(),
            points: vec![(0.0, 0.0), (1.0, 1.0)],
        };
        let axis = Axis {
            label: "a & b".to_owned(),
            scale: Scale::Linear { low: 0.0, high: 1.0 },
            write: number,
        };
        let plot = lines("\"t\"", &axis, &axis, &[line]).into_string();
        assert!(plot.contains("&lt;script&gt;") && plot.contains("a &amp; b") && !plot.contains("<script"));
    }
}
