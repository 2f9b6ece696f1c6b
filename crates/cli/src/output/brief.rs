//! The result of a run on one screen: what was measured on what, the answer, and what was lost.
//!
//! What adds nothing to that is left to `--verbose`. Lines about what went wrong are there only if
//! it did.

use ringside_measure::pace::LATE_NS;
use ringside_measure::rate::Rates;
use ringside_measure::schema::{Document, FarEnd, Interface, LatencyResult, Mode};
use ringside_measure::schema::{Operation, QueueCounters, RunResult};

use super::{Lines, checksums, count, cycle, departures, duration, known_to, ledger, link, wrapped_to};
use super::{mode_name, packets, tail};
use crate::report::units::plural;

/// Below this share of the rate that was asked for, the text says so.
const REACHED: f64 = 0.99;

/// Renders the run.
pub(super) fn text(document: &Document, result: &RunResult) -> String {
    let mut out = Lines::default();
    out.line(header(&document.interfaces, result.frame_bytes));
    answer(&mut out, result);
    asked(&mut out, result);
    ledger::brief(&mut out, result);
    link(&mut out, result);
    late(&mut out, result);
    if let Some(far) = &document.far {
        // The causes of losses say it where there is one flow of packets.
        out.text.push_str(&far_end(far, result.under_load.is_some()));
    }
    if let Some(known) = &result.until_ci {
        out.pair("known", known_to(known));
    }
    if let Some(cycle) = &result.cycle {
        cycle::brief(&mut out, cycle, result.operation == Operation::Tx);
    }
    if let Some(schedule) = &result.schedule {
        out.text.push_str(&crate::run::streams::brief(schedule));
    }
    // The rest is there only where an option asked for it.
    if let Some(impair) = &result.impair {
        out.text.push_str(&crate::run::impair::brief(impair));
    }
    if let Some(hints) = &result.hints {
        out.text.push_str(&crate::run::hints::text(hints));
    }
    if let Some(by) = result.checksum_offload {
        out.pair("checksums", checksums(by));
    }
    if let Some(stamps) = &result.tx_stamps {
        departures(&mut out, stamps);
    }
    out.text
}

/// `eth0: native copy, 2 queues, 82-byte packets`
pub(crate) fn header(interfaces: &[Interface], frame_bytes: Option<u64>) -> String {
    let ports: Vec<String> = interfaces.iter().map(interface).collect();
    let size = frame_bytes.map_or(String::new(), |bytes| format!(", {bytes}-byte packets"));
    format!("{}{size}", ports.join("; "))
}

fn interface(interface: &Interface) -> String {
    let queues = interface.queues.iter().map(|queue| (queue.queue, queue.mode));
    port(&interface.name, &queues.collect::<Vec<_>>())
}

/// `eth0: native copy, 2 queues`
pub(super) fn port(name: &str, queues: &[(u32, Mode)]) -> String {
    let number = |many: usize| plural(many, "queue");
    let Some(&(_, first)) = queues.first() else {
        return format!("{name}: packet socket");
    };
    if queues.iter().all(|&(_, mode)| mode == first) {
        return format!("{name}: {}, {}", mode_name(first), number(queues.len()));
    }
    let each = queues
        .iter()
        .map(|&(queue, mode)| format!("{queue} {}", mode_name(mode)));
    format!("{name}: queues {}", each.collect::<Vec<_>>().join(", "))
}

/// Prints the round trip or the rates.
fn answer(out: &mut Lines, result: &RunResult) {
    let sum = |field: fn(&QueueCounters) -> u64| result.queues.iter().map(field).sum::<u64>();
    let received = |out: &mut Lines| {
        let packets = sum(|queue| queue.received_packets);
        rate(out, "received", result.received.as_ref(), packets, result.duration_ns);
    };
    let sent = |out: &mut Lines| {
        let packets = sum(|queue| queue.sent_packets);
        rate(out, "sent", result.transmitted.as_ref(), packets, result.duration_ns);
    };
    match result.operation {
        Operation::Ping => match (&result.under_load, &result.latency) {
            (Some(under_load), _) => out.text.push_str(&crate::run::ping::table::brief(under_load)),
            (None, Some(latency)) => round_trip(out, latency),
            (None, None) => {}
        },
        Operation::Rx | Operation::Listener => received(out),
        Operation::Tx | Operation::Talker => sent(out),
        Operation::Fwd | Operation::Impair | Operation::Echo => {
            received(out);
            sent(out);
        }
    }
}

fn round_trip(out: &mut Lines, latency: &LatencyResult) {
    let from = match latency.corrected {
        Some(_) => "scheduled",
        None => "real",
    };
    let text = match latency.best() {
        Some(times) => format!(
            "{} ({} answers, from the {from} sending)",
            tail(&times),
            packets(times.samples)
        ),
        None => "no answer came in time".to_owned(),
    };
    out.pair("round trip", text);
}

/// A rate from the first to the last packet.
fn rate(out: &mut Lines, label: &str, rates: Option<&Rates>, number: u64, run_ns: u64) {
    let all = match number {
        1 => "1 packet in".to_owned(),
        _ => format!("{} packets in", packets(number)),
    };
    out.pair(
        label,
        match rates {
            Some(rates) => format!(
                "{} packets/s, {} on the wire ({all} {})",
                count(rates.packets_pps),
                bits(rates.wire_bps),
                duration(rates.span_ns.unwrap_or(run_ns))
            ),
            None => format!("{all} {}", duration(run_ns)),
        },
    );
}

/// `1.488 Gbit/s`, `12.3 Mbit/s`
fn bits(bps: f64) -> String {
    match bps {
        1e9.. => format!("{:.3} Gbit/s", bps / 1e9),
        1e6.. => format!("{:.1} Mbit/s", bps / 1e6),
        _ => format!("{:.1} kbit/s", bps / 1e3),
    }
}

/// Prints what was to be sent and was not. Deadlines and classes say it of cycles and streams.
fn asked(out: &mut Lines, result: &RunResult) {
    if result.cycle.is_some() || result.schedule.is_some() {
        return;
    }
    if let not_sent @ 1.. = result.packets.not_sent() {
        out.pair("not sent", format!("{} packets that were due", packets(not_sent)));
    }
    let Some((target, rates)) = result.target_pps.zip(result.transmitted) else {
        return;
    };
    if rates.packets_pps < target * REACHED {
        out.pair(
            "asked for",
            format!(
                "{} packets/s, and {} were sent: {:.1} %",
                count(target),
                count(rates.packets_pps),
                rates.packets_pps * 100.0 / target
            ),
        );
    }
}

/// Returns an entry of a short text: a label, and lines of 80 columns behind it.
pub(crate) fn entry(label: &str, text: &str) -> String {
    let lines = wrapped_to(80, text, &" ".repeat(15));
    match label.len() {
        ..=14 => format!("{label:<14} {}", lines.trim_start()),
        _ => format!("{label}\n{lines}"),
    }
}

/// Returns an entry of the first of some texts, with the number of the others; empty without any.
pub(crate) fn first_of(label: &str, texts: &[String]) -> String {
    match texts {
        [] => String::new(),
        [only] => entry(label, only),
        [first, more @ ..] => entry(label, &format!("{first} (and {} more)", more.len())),
    }
}

fn late(out: &mut Lines, result: &RunResult) {
    if let Some(lateness) = result.sender_lateness.filter(|lateness| lateness.late_packets != 0) {
        out.pair(
            "sent late",
            format!(
                "{} packets by more than an interval and {} µs, {:.2} µs at the most",
                packets(lateness.late_packets),
                LATE_NS / 1_000,
                micros(lateness.times.max_ns)
            ),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// Renders what the far end used, and the times there and back, if there are some. With `counts`
/// also how many packets came there, if some did not.
pub(crate) fn far_end(far: &FarEnd, counts: bool) -> String {
    let mut out = Lines::default();
    let ports: Vec<String> = match far.via.as_str() {
        "udp" => vec!["a UDP socket".to_owned()],
        _ => far.interfaces.iter().map(interface).collect(),
    };
    out.pair("far end", ports.join("; "));
    let came = far.result.as_ref().map(|result| &result.packets);
    if let Some(came) = came.filter(|came| counts && came.delivered() < came.sent) {
        out.pair("", crate::serve::came_there(came));
    }
    if let Some(lost) = &far.lost {
        out.pair("", format!("lost: {lost}"));
    }
    let within = far.clock.filter(|clock| clock.uncertainty_ns != 0);
    let within = within.map_or(String::new(), |clock| {
        format!(", each within {:.2} µs by the two clocks", micros(clock.uncertainty_ns))
    });
    for (label, times) in [("one way there", &far.there), ("one way back", &far.back)] {
        if let Some(times) = times {
            out.pair(label, format!("{}{within}", crate::serve::one_way(times, tail)));
        }
    }
    out.text
}

#[cfg(test)]
#[path = "brief_tests.rs"]
mod tests;
