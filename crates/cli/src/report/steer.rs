//! The part of steering: where packets landed, and what was set.

use std::fmt::Write as _;

use maud::{Markup, html};
use ringside_measure::schema::SteerResult;

use super::units;
use super::words::{Sentence, said, warned};
use crate::steer::grid;

/// What was said.
pub(super) fn words(steer: &SteerResult) -> Vec<Sentence> {
    let sentence = |one: &ringside_measure::schema::SteerSentence| {
        let text = format!("{}.", one.text);
        if one.right { said(text) } else { warned(text) }
    };
    steer.sentences.iter().map(sentence).collect()
}

pub(super) fn part(steer: &SteerResult) -> Markup {
    html! {
        p { (steer.interface) @if let Some(driver) = &steer.driver { " (" (driver) ")" } ", " (units::time(steer.elapsed_ns as f64))
            @if let Some(sender) = &steer.sender { ", sent from " (sender) } "." }
        (table(steer))
        @if !steer.settings.is_empty() { div.wide { table {
            tr { th { "interface" } th { "set for the time of the run" } th { "to" } th { "read back" } }
            @for one in &steer.settings { tr { td { (one.interface) } td { (one.what) } td { (one.wanted) } td { (one.obtained) } } }
        } } }
    }
}

/// Queue × CPU × class.
pub(super) fn table(steer: &SteerResult) -> Markup {
    let rows = grid(steer);
    html! { div.wide { table {
        @for (number, row) in rows.iter().enumerate() { tr {
            @for cell in row { @if number == 0 { th { (cell) } } @else { td.number { (cell) } } }
        } }
    } } }
}

/// The same in Markdown.
pub(super) fn markdown(out: &mut String, steer: &SteerResult) {
    for (number, row) in grid(steer).iter().enumerate() {
        _ = writeln!(out, "{}| {} |", if number == 0 { "\n" } else { "" }, row.join(" | "));
        if number == 0 {
            _ = writeln!(out, "|{}", "---|".repeat(row.len()));
        }
    }
}

/// Each count: what, and packets.
pub(super) fn figures(steer: &SteerResult) -> Vec<(String, f64)> {
    let classes = steer
        .classes
        .iter()
        .map(|class| (class.flow.to_string(), &class.landings));
    let all = classes.chain([("all else".to_owned(), &steer.others)]);
    let of = |(name, landings): (String, &Vec<ringside_measure::schema::SteerLanding>)| {
        let one = |landing: &ringside_measure::schema::SteerLanding| {
            let place = format!("{name}: queue {}, CPU {}", landing.queue, landing.cpu);
            #[allow(clippy::cast_precision_loss, reason = "a count of packets")]
            let packets = landing.packets as f64;
            (place, packets)
        };
        landings.iter().map(one).collect::<Vec<_>>()
    };
    all.flat_map(of).collect()
}
