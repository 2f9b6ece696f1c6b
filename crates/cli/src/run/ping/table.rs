//! Round trips without load and with it, for people.

use comfy_table::{CellAlignment, Table, presets};
use ringside_measure::compare::Ratio;
use ringside_measure::latency::Summary;
use ringside_measure::schema::{LoadCondition, LoadKind, UnderLoadResult};

use crate::output::{count, packets, wrapped};
use crate::report::units::plural;

/// The name of a condition.
pub(crate) fn name(kind: LoadKind) -> &'static str {
    match kind {
        LoadKind::Idle => "idle",
        LoadKind::SelfInduced => "self-induced load",
        LoadKind::Foreign => "foreign load",
    }
}

/// `1.42 [1.17-1.53]`
pub(crate) fn ratio(condition: &LoadCondition) -> String {
    match condition.ratio_to_idle {
        None if condition.kind == LoadKind::Idle => "base".into(),
        None => "-".into(),
        Some(ratio) => interval(&ratio),
    }
}

/// A ratio with its interval, where it has one.
pub(crate) fn interval(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.2} [{low:.2}-{high:.2}]", ratio.median),
        _ => format!("{:.2}", ratio.median),
    }
}

/// `8,571,428 (0.0070 ms)`
pub(crate) fn responsiveness(condition: &LoadCondition) -> String {
    condition.responsiveness.map_or_else(
        || "-".into(),
        |answers| {
            format!(
                "{} ({:.4} ms)",
                count(answers.round_trips_per_minute),
                answers.round_trip_ms
            )
        },
    )
}

/// What the link carried, and what of it was the load; `None` where neither is known.
#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn carried(condition: &LoadCondition) -> Option<String> {
    let mut parts = Vec::new();
    if let (Some(sent), Some(received)) = (condition.link_tx_pps, condition.link_rx_pps) {
        parts.push(format!(
            "link sent {} packets/s, received {}",
            count(sent),
            count(received)
        ));
    }
    if let Some(sent) = condition.load_sent_packets {
        let back = condition.load_received_packets;
        let back = back.map_or(String::new(), |back| format!(", {} came back", packets(back)));
        parts.push(format!("load: {} packets sent{back}", packets(sent)));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// How fast the path answered, what the link carried, and what loaded it.
fn about(condition: &LoadCondition) -> String {
    let answered = format!("{} round trips/min", responsiveness(condition));
    let parts = [Some(answered), carried(condition), condition.load.clone()];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("{}: {}", name(condition.kind), parts.join("; "))
}

/// A table of all conditions, and whether there was a load.
pub(crate) fn brief(result: &UnderLoadResult) -> String {
    let mut text = table(result);
    let loaded = result
        .conditions
        .iter()
        .filter(|condition| condition.kind != LoadKind::Idle);
    for condition in loaded {
        if let Some(carried) = carried(condition) {
            text.push_str(&wrapped(&format!("{}: {carried}", name(condition.kind)), "  "));
        }
    }
    text + &wrapped(&legend(result), "  ")
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn table(result: &UnderLoadResult) -> String {
    let mut grid = Table::new();
    grid.load_style(presets::ASCII_FULL_CONDENSED);
    grid.set_header([
        "",
        "probes",
        "lost\n%",
        "RTT µs\nmin",
        "\np50",
        "\np90",
        "\np99",
        "\np99.9",
        "\nmax",
        "x idle\n[95 %]",
    ]);
    for condition in &result.conditions {
        let us = |of: fn(&Summary) -> Option<u64>| {
            let ns = condition.latency.best().as_ref().and_then(of);
            ns.map_or_else(|| "-".into(), |ns| format!("{:.2}", ns as f64 / 1e3))
        };
        grid.add_row([
            name(condition.kind).to_owned(),
            count(condition.probes.sent as f64),
            condition
                .probes
                .loss_ratio()
                .map_or_else(|| "-".into(), |lost| format!("{:.3}", lost * 100.0)),
            us(|all| Some(all.min_ns)),
            us(|all| all.p50_ns),
            us(|all| all.p90_ns),
            us(|all| all.p99_ns),
            us(|all| all.p99_9_ns),
            us(|all| Some(all.max_ns)),
            ratio(condition),
        ]);
    }
    for column in grid.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("\n{grid}\n")
}

/// A table of all conditions, and what is to be known about it.
pub(crate) fn text(result: &UnderLoadResult) -> String {
    let mut text = table(result);
    for condition in &result.conditions {
        text.push_str(&wrapped(&about(condition), "  "));
    }
    let legend = format!(
        "{} Round trips per minute: of the mean without the longest 5 %.",
        legend(result)
    );
    text + &wrapped(&legend, "  ")
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn legend(result: &UnderLoadResult) -> String {
    let is_corrected = |condition: &LoadCondition| condition.latency.corrected.is_some();
    let from = match result.conditions.iter().any(is_corrected) {
        true => "the intended sending",
        false => "the sending, without a schedule",
    };
    format!(
        "RTT from {from}; {} of {:.1} s each, in turn; x idle: medians of the turns, paired \
         by rounds. - : too few samples.",
        plural(result.rounds, "round"),
        result.turn_ns as f64 / 1e9
    )
}
