//! Bars whose parts add up.

use maud::{Markup, html};

use super::figure::{self, Scale, px};
use super::units;

const WIDTH: f64 = 560.0;
const TOP: f64 = 12.0;
const ROW: f64 = 26.0;
const NOTE: f64 = 84.0;
const BELOW: f64 = 46.0;

/// A part of a bar.
pub(super) struct Part {
    /// What it is, for who points at it.
    pub(super) name: String,
    /// In nanoseconds.
    pub(super) ns: f64,
    /// Its class of colour.
    pub(super) class: &'static str,
}

/// A bar.
pub(super) struct Stack {
    pub(super) name: String,
    pub(super) parts: Vec<Part>,
}

impl Stack {
    fn whole(&self) -> f64 {
        self.parts.iter().map(|part| part.ns).sum()
    }
}

/// Bars of times, from zero, with what the colours stand for.
#[allow(clippy::cast_precision_loss, reason = "rows of a plot")]
pub(super) fn bars(title: &str, label: &str, stacks: &[Stack], legend: &[(&str, &str)]) -> Markup {
    let scale = Scale::from_zero(stacks.iter().map(Stack::whole));
    let left = figure::width_of_names(stacks.iter().map(|stack| stack.name.as_str()));
    let across = |value: f64| left + scale.at(value) * (WIDTH - left - NOTE);
    let bottom = stacks.len() as f64 * ROW + TOP;
    html! {
        figure {
            figcaption { (title) }
            svg viewBox={ "0 0 " (WIDTH) " " (bottom + BELOW) } role="img" aria-label={ (title) ": " (label) } {
                (figure::ticks_below(scale, figure::time, across, [TOP, bottom]))
                @for (row, stack) in stacks.iter().enumerate() {
                    @let top = row as f64 * ROW + TOP;
                    text.name x=(left - 6.0) y=(top + 17.0) text-anchor="end" { (stack.name) }
                    @for (from, part) in begins(stack) {
                        rect class=(part.class) x=(px(across(from))) y=(top + 4.0) height="18" width=(px(across(from + part.ns) - across(from))) {
                            title { (stack.name) ": " (part.name) ", " (units::time(part.ns)) }
                        }
                    }
                    text.note x=(px(across(stack.whole()) + 6.0)) y=(top + 17.0) { (units::time(stack.whole())) }
                }
                text.label x=((left + WIDTH - NOTE) / 2.0) y=(bottom + 36.0) text-anchor="middle" { (label) }
            }
            ul.legend { @for (class, what) in legend { li { span.swatch.{ (class) } {} (what) } } }
        }
    }
}

/// Where each part begins.
fn begins(stack: &Stack) -> impl Iterator<Item = (f64, &Part)> {
    stack.parts.iter().scan(0.0, |at, part| {
        let from = *at;
        *at += part.ns;
        Some((from, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_behind_each_other_and_names_are_text() {
        let part = |name: &str, ns, class| Part {
            name: name.to_owned(),
            ns,
            class,
        };
        let stack = Stack {
            name: "<a>".to_owned(),
            parts: vec![part("one", 300.0, "c0"), part("two", 700.0, "c3")],
        };
        assert_eq!(begins(&stack).map(|(from, _)| from).collect::<Vec<_>>(), [0.0, 300.0]);
        let plot = bars("t", "l", &[stack], &[("c0", "first"), ("c3", "other")]).into_string();
        assert!(
            plot.contains("&lt;a&gt;: two, 700 ns") && plot.contains("first"),
            "{plot}"
        );
        assert!(bars("t", "l", &[], &[]).into_string().contains("<svg"));
    }
}
