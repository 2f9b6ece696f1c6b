//! The part of a search for rates.

use maud::{Markup, html};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{CapacityRecord, FoundRate, SearchResult, SearchTable};

use super::figure::{self, Axis, Line, Scale};
use super::words::{Sentence, said, warned};
use super::{charts, units};
use crate::output::count;

/// A sentence a rate.
pub(super) fn words(search: &SearchResult) -> Vec<Sentence> {
    let mut all = Vec::new();
    for table in &search.tables {
        if let Some(refused) = &table.refused {
            all.push(warned(format!("{} bytes: {refused}", table.name)));
        }
        all.extend(table.capacity.iter().flat_map(capacity_words));
        for goal in &table.goals {
            let what = format!("{} bytes, at most {} % lost", table.name, goal.loss_percent);
            all.push(match goal.throughput_pps {
                Some(rate) => said(format!("{what}: {} packets/s.", units::short(rate))),
                None => warned(format!("{what}: no rate was found.")),
            });
            if goal.limited_by_sender {
                all.push(warned(format!("{what}: that is the sender's limit, not the path's.")));
            }
        }
    }
    if search.interrupted {
        all.push(warned("It was ended before everything was found.".to_owned()));
    }
    all
}

fn capacity_words(found: &CapacityRecord) -> Vec<Sentence> {
    let Some(most) = found.capacity_bps else {
        return vec![warned(
            "No second was whole: nothing can be said about the capacity.".to_owned(),
        )];
    };
    let mut all = vec![said(format!(
        "Capacity there: {}bit/s of IP packets in the best of {} seconds (RFC 9097); {} of {} packets came.",
        units::short(most),
        found.pieces_bps.len(),
        count(found.received_packets as f64),
        count(found.sent_packets as f64)
    ))];
    if found.limited_by_sender {
        all.push(warned(
            "The sender did not get out all that it was to send: the path may have more.".to_owned(),
        ));
    }
    all
}

pub(super) fn part(search: &SearchResult) -> Markup {
    html! {
        p { "Rates from " (count(search.min_pps as f64)) " to " (count(search.max_pps as f64)) " packets/s, by " (search.method) "." }
        @for table in &search.tables { (one(table)) }
    }
}

fn one(table: &SearchTable) -> Markup {
    let rate = |pps: Option<u64>| pps.map_or_else(|| "–".to_owned(), |pps| count(pps as f64));
    html! {
        h3 { "Packets of " (table.name) " bytes" }
        @if let Some(refused) = &table.refused { p { (refused) } }
        @if let Some(found) = &table.capacity {
            div.wide { table {
                tr { th { "second" } @for number in 1..=found.pieces_bps.len() { th { (number) } } }
                tr { th { "bit/s of IP packets" } @for bps in &found.pieces_bps { td.number { (units::short(*bps)) } } }
            } }
        }
        @if !table.goals.is_empty() {
            div.wide { table {
                tr { th { "lost at most" } th { "packets/s" } th { "bit/s on the wire" } th { "highest that holds" } th { "lowest that does not" } }
                @for goal in &table.goals { tr {
                    th { (goal.loss_percent) " %" }
                    td.number { (goal.throughput_pps.map_or_else(|| "–".to_owned(), count)) }
                    td.number { (goal.wire_bps.map_or_else(|| "–".to_owned(), units::short)) }
                    td.number { (rate(goal.lower_pps)) }
                    td.number { (rate(goal.upper_pps)) @if !goal.finished { br; small { "not finished" } } }
                } }
            } }
        }
        div.plots {
            @for goal in &table.goals { (latency(goal)) }
            @if !table.curve.is_empty() { (curve(table)) }
        }
        @if let Some(burst) = &table.burst {
            p { "Longest burst without loss at " (count(burst.rate_pps as f64)) " packets/s: " (count(burst.mean_packets)) " packets on average, "
                (burst.min_packets) " to " (burst.max_packets) " in " (burst.searches) " searches: a buffer of " (units::time(burst.implied_buffer_ns)) "." }
        }
        @if let Some(soak) = &table.soak {
            p { "Soak: " (count(soak.load_pps as f64)) " packets/s for " (units::time(soak.duration_ns as f64)) ", " (soak.loss_percent) " % lost." }
        }
    }
}

/// Time over nines at each part of the rate.
fn latency(goal: &FoundRate) -> Markup {
    let read = |hdr: &Option<String>| hdr.as_ref().and_then(|text| Latency::from_hdr(text).ok());
    let times: Vec<(String, Latency)> = goal
        .latency
        .iter()
        .filter_map(|at| Some((format!("{} % of the rate", at.percent), read(&at.corrected_hdr)?)))
        .collect();
    if times.is_empty() {
        return html! {};
    }
    charts::nines(
        &format!("Time over nines, {} % of loss allowed", goal.loss_percent),
        &times,
    )
}

fn curve(table: &SearchTable) -> Markup {
    let points: Vec<(f64, f64)> = table
        .curve
        .iter()
        .rev()
        .map(|point| (point.load_pps as f64, point.loss_percent))
        .collect();
    let x = Axis {
        label: "packets per second".to_owned(),
        scale: Scale::from_zero(points.iter().map(|point| point.0)),
        write: figure::number,
    };
    let y = Axis {
        label: "% lost".to_owned(),
        scale: Scale::from_zero(points.iter().map(|point| point.1)),
        write: figure::number,
    };
    figure::lines(
        "Lost at each rate",
        &x,
        &y,
        &[Line {
            name: table.name.clone(),
            points,
        }],
    )
}
