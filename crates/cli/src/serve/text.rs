//! The far end of a result as text.

use std::fmt::Write as _;

use ringside_measure::counters::Ledger;
use ringside_measure::latency::Summary;
use ringside_measure::schema::{ClockBasis, ClockOffset, FarEnd, LatencyResult};

use crate::output::{microseconds, mode_name, packets};
use crate::system;

/// Some lines about it, labels in front as of the rest of a result.
pub(crate) fn text(far: &FarEnd) -> String {
    let mut out = String::new();
    let mut pair = |label: &str, value: &str| _ = writeln!(out, "{label:<14} {value}");
    let via = match far.via.as_str() {
        "udp" => "a UDP socket".to_owned(),
        _ => "XDP sockets".to_owned(),
    };
    pair(
        "far end",
        &format!(
            "{}; {via}, authenticated by {}",
            system::summary(&far.system),
            far.authenticated_by
        ),
    );
    for interface in &far.interfaces {
        let modes: Vec<String> = interface
            .queues
            .iter()
            .map(|queue| format!("{}:{}", queue.queue, mode_name(queue.mode)))
            .collect();
        let queues = if modes.is_empty() {
            String::new()
        } else {
            format!(", queues {}", modes.join(" "))
        };
        pair("", &format!("{} (MTU {}){queues}", interface.name, interface.mtu_bytes));
    }
    if let Some(result) = &far.result {
        pair("", &came_there(&result.packets));
    }
    if let Some(lost) = &far.lost {
        pair("", &format!("lost: {lost}"));
    }
    if let Some(clock) = &far.clock {
        pair("clocks", &clocks(clock));
    }
    for (label, times) in [("there, µs", &far.there), ("back, µs", &far.back)] {
        if let Some(times) = times {
            pair(label, &format!("{}  (one way)", one_way(times, microseconds)));
        }
    }
    out
}

/// `98 of 100 packets came there`
pub(crate) fn came_there(ledger: &Ledger) -> String {
    format!(
        "{} of {} packets came there",
        packets(ledger.delivered()),
        packets(ledger.sent)
    )
}

fn clocks(clock: &ClockOffset) -> String {
    let basis = match clock.basis {
        ClockBasis::SameKernel => "both ends read one clock of one kernel",
        ClockBasis::Synchronised => "both kernels' clocks are synchronised",
    };
    format!(
        "{basis}: the far one is {} ns ahead, one-way times are within {} ns; seen over the control connection: {} ns, give or take {}",
        clock.offset_ns, clock.uncertainty_ns, clock.seen_offset_ns, clock.seen_uncertainty_ns
    )
}

/// The times of one direction, as `written` has them.
pub(crate) fn one_way(times: &LatencyResult, written: impl Fn(&Summary) -> String) -> String {
    match &times.raw {
        Some(summary) => written(summary),
        None => "no packet had the far end's stamps".to_owned(),
    }
}
