//! What a sweep found, on one screen.

use std::fmt::Write as _;

use ringside_measure::schema::{Document, KnobResult, Outcome};

use super::table::{conclusion, failed, proportion, title, verdict};
use crate::output::brief::{entry, first_of};
use crate::output::{until, wrapped_to};
use crate::report::units::plural;

/// Renders the best configuration and what each knob is worth.
pub(super) fn render(document: &Document) -> String {
    let Outcome::Sweep(result) = &document.result else {
        return String::new();
    };
    let mut text = wrapped_to(80, &conclusion(result), "");
    let options = result.best.config.lines();
    for line in options.filter(|line| !line.starts_with('#')) {
        _ = writeln!(text, "  {line}");
    }
    let basis = format!(
        "{}, frames of {} bytes; ratios to the base, {:.1} % intervals",
        title(result),
        result.frame_bytes,
        result.confidence_percent
    );
    text += &entry("measured", &basis);
    for knob in &result.knobs {
        text += &entry(&knob.name, &levels(knob));
    }
    if let not_available @ 1.. = result.unavailable.len() {
        text += &entry(
            "left out",
            &format!("{}: not available here", plural(not_available, "level")),
        );
    }
    let failures = failed(result).map(|(configuration, why)| format!("{configuration}: {why}"));
    text += &first_of("failed", &failures.collect::<Vec<_>>());
    if let Some(until_ci) = &result.until_ci {
        text += &wrapped_to(80, &until(until_ci), "");
    }
    if result.interrupted {
        text += "It was ended before it was through.\n";
    }
    text
}

/// `matters: 8 base, 64 1.53 [1.40-1.66]`
fn levels(knob: &KnobResult) -> String {
    let levels = knob.levels.iter();
    let levels = levels.map(|level| format!("{} {}", level.level, proportion(level)));
    format!("{}: {}", verdict(knob.verdict), levels.collect::<Vec<_>>().join(", "))
}
