//! Where the packets of a run went, for people.

use ringside_measure::counters::Ledger;
use ringside_measure::schema::{LinkEvent, Operation, QueueCounters, RunResult};
use ringside_measure::schema::{XdpStatistics, XdpVerdicts};

use super::{Lines, packets};

pub(super) fn text(out: &mut Lines, result: &RunResult) {
    let ledger = &result.packets;
    let share = |number| percent(ledger, number);
    if let Some(sequence) = &result.sequence {
        out.pair(
            "probes",
            format!(
                "{} sent, {} received, {} lost ({:.4} %), {} duplicated, {} out of order (RFC 4737)",
                packets(sequence.sent),
                packets(sequence.received),
                packets(sequence.lost),
                share(sequence.lost),
                packets(sequence.duplicated),
                packets(sequence.reordered),
            ),
        );
    }
    let (begin, end) = ends(result);
    let not_sent = match ledger.not_sent() {
        0 => String::new(),
        some => format!("{} due and not sent, ", packets(some)),
    };
    let sum = match result.unaccounted_packets {
        0 => "adds up to the packet".to_owned(),
        off => format!("{off} in no counter (below zero: they came from elsewhere)"),
    };
    out.pair(
        "ledger",
        format!(
            "{not_sent}{} {begin} = {} {end} + {} lost: {sum}",
            packets(ledger.sent),
            packets(ledger.delivered()),
            packets(ledger.lost()),
        ),
    );
    for loss in ledger.losses.iter().filter(|loss| loss.count != 0) {
        out.pair(
            "lost",
            format!("{} ({:.4} %): {}", packets(loss.count), share(loss.count), loss.text),
        );
    }
    faults(out, result);
    advice(out, result);
    passed(out, result, true);
}

/// The losses, each with its cause, and what does not add up.
pub(super) fn brief(out: &mut Lines, result: &RunResult) {
    let ledger = &result.packets;
    let lost = ledger.lost();
    let of = format!("{} of {} packets", packets(lost), packets(ledger.sent));
    let percent = percent(ledger, lost);
    let causes: Vec<_> = ledger.losses.iter().filter(|loss| loss.count != 0).collect();
    match causes[..] {
        [] => out.pair("lost", of),
        [only] => out.pair("lost", format!("{of} ({percent:.4} %): {}", only.text)),
        [..] => out.pair("lost", format!("{of} ({percent:.4} %)")),
    }
    for loss in causes.iter().filter(|_| causes.len() > 1) {
        out.pair("", format!("{}: {}", packets(loss.count), loss.text));
    }
    if result.unaccounted_packets != 0 {
        out.pair(
            "unaccounted",
            format!(
                "{} packets, which no counter knows (below zero: they came from elsewhere)",
                result.unaccounted_packets
            ),
        );
    }
    if let Some(sequence) = result.sequence.filter(|seen| seen.duplicated + seen.reordered != 0) {
        out.pair(
            "order",
            format!(
                "{} duplicated, {} out of order (RFC 4737)",
                packets(sequence.duplicated),
                packets(sequence.reordered)
            ),
        );
    }
    faults(out, result);
    advice(out, result);
    passed(out, result, false);
}

/// Returns a number of packets in percent of those that were sent.
#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn percent(ledger: &Ledger, number: u64) -> f64 {
    number as f64 * 100.0 / ledger.sent.max(1) as f64
}

fn faults(out: &mut Lines, result: &RunResult) {
    for fault in result.xdp_faults.iter().flatten() {
        out.pair(
            "XDP",
            format!("{} {} on {}", packets(fault.packets), fault.what, fault.interface),
        );
    }
}

/// What the first and the last count of a ledger are.
fn ends(result: &RunResult) -> (&'static str, &'static str) {
    let mut events = result.link_events.iter().flatten().map(|change| change.event);
    let is_gone = events.any(|event| matches!(event, LinkEvent::Removed | LinkEvent::Moved));
    match result.operation {
        Operation::Tx | Operation::Talker if is_gone => (
            "handed over",
            "sent (by their frames, which came back: the link's counters are gone with it)",
        ),
        Operation::Rx | Operation::Echo => ("redirected to the sockets", "received"),
        Operation::Fwd => ("redirected to the sockets", "left by the link"),
        Operation::Impair => ("redirected to the sockets or copied", "left by the links"),
        Operation::Tx | Operation::Talker => ("handed over", "left by the link"),
        Operation::Listener => ("sent by their numbers", "received"),
        Operation::Ping => ("sent", "answered"),
    }
}

fn advice(out: &mut Lines, result: &RunResult) {
    // A queue that only sends has no XDP program. A NIC with zero-copy has all frames that such a
    // queue keeps for the host, and looks for more.
    let receives = |queue: &&QueueCounters| {
        let has_program = queue.xdp_verdicts.is_some();
        has_program || queue.received_packets != 0
    };
    let kernel = |field: fn(&XdpStatistics) -> u64| {
        let queues = result.queues.iter().filter(receives);
        let counters = queues.filter_map(|queue| queue.xdp_statistics.as_ref());
        counters.map(field).sum::<u64>()
    };
    if kernel(|counters| counters.rx_fill_ring_empty_descs) != 0 {
        out.pair(
            "advice",
            "rx_fill_ring_empty: packets arrived faster than frames became free; use more frames: \
             --frames N",
        );
    }
    match result.queues.iter().map(|queue| queue.rx_starved).sum::<u64>() {
        0 => {}
        times => {
            let times = match times {
                1 => "once".to_owned(),
                times => format!("{} times", packets(times)),
            };
            let text = format!(
                "the NIC had no frame to receive into, {times}: with zero-copy it then drops \
                 packets for this host, too; use more frames: --frames N"
            );
            out.pair("host", text);
        }
    }
    if kernel(|counters| counters.rx_ring_full) != 0 {
        out.pair(
            "advice",
            "rx_ring_full: packets came faster than they were taken: give a larger ring: --ring N",
        );
    }
}

/// Prints the packets that the XDP program did not redirect: they went up the stack, and are no
/// part of the sum. Without `all` only those that may be missed.
fn passed(out: &mut Lines, result: &RunResult, all: bool) {
    let sum = |field: fn(&XdpVerdicts) -> u64| {
        let verdicts = result.queues.iter().filter_map(|queue| queue.xdp_verdicts.as_ref());
        verdicts.map(field).sum::<u64>()
    };
    let by_filter = sum(|verdicts| verdicts.passed_filter_packets);
    // The user has not chosen the filter of these two.
    let has_own_filter = matches!(result.operation, Operation::Ping | Operation::Echo);
    let is_expected = has_own_filter || by_filter <= result.packets.delivered();
    let passed = [
        ("by the filter", if all || !is_expected { by_filter } else { 0 }),
        (
            "ARP or ND",
            if all {
                sum(|verdicts| verdicts.passed_neighbour_packets)
            } else {
                0
            },
        ),
        (
            "queue without a socket",
            sum(|verdicts| verdicts.passed_unbound_packets),
        ),
        ("malformed", sum(|verdicts| verdicts.passed_malformed_packets)),
    ];
    let told: Vec<String> = passed
        .iter()
        .filter(|(_, number)| *number != 0)
        .map(|(why, number)| format!("{} {why}", packets(*number)))
        .collect();
    if !told.is_empty() {
        out.pair("up the stack", told.join(", "));
    }
}
