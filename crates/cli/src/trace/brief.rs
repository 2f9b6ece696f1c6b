//! The result of a trace on one screen: how long packets took, and the longest stages.

use ringside_measure::schema::{Document, Outcome, TracedPath};

use crate::output::brief::{entry, first_of};
use crate::output::{tail, wrapped_to};
use crate::report::lab_stages::longest;

/// Renders a few lines for each receiver.
pub(super) fn render(document: &Document, description: &str) -> String {
    let Outcome::Trace(result) = &document.result else {
        return String::new();
    };
    let mut text = wrapped_to(80, description, "");
    text.extend(result.paths.iter().map(path));
    let hooks: Vec<&str> = result.missing.iter().map(|hook| hook.hook.as_str()).collect();
    if !hooks.is_empty() {
        text += &entry("missing hooks", &hooks.join(", "));
    }
    text + &first_of("warning", &result.warnings)
}

fn path(path: &TracedPath) -> String {
    let name = path.receiver.as_deref().unwrap_or("packets");
    if let Some(failure) = &path.failure {
        return entry(name, &format!("not available: {failure}"));
    }
    let times = path.whole.as_ref().map_or_else(String::new, tail);
    let mut text = entry(name, &format!("{times} ({} packets)", path.traced_packets));
    text += &entry("", &format!("longest: {}", longest(path)));
    if let Some(cost) = &path.cost {
        text += &entry(
            "",
            &format!("with tracing it takes {:.2} times as long", cost.ratio.median),
        );
    }
    if let Some(record) = &path.recorded {
        text += &entry(
            "",
            &format!(
                "stopped: packet {} took {:.2} µs, more than {:.2} µs",
                record.sequence,
                record.whole_ns as f64 / 1e3,
                record.bound_ns as f64 / 1e3
            ),
        );
    }
    text
}
