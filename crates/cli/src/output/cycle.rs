//! How deadlines were kept, for people.

use ringside_measure::probe::Clock;
use ringside_measure::schema::{CycleResult, LaunchBy, LaunchResult, Via};

use super::{Lines, microseconds, packets, tail, times};

/// The deadlines that were missed, and how late packets were sent.
pub(super) fn brief(out: &mut Lines, cycle: &CycleResult, asked_for_launch: bool) {
    missed(out, cycle);
    if let Some(transmit) = &cycle.transmit {
        out.pair("after deadline", tail(transmit));
    }
    let is_missed = |launch: &LaunchResult| launch.missed_packets.is_some_and(|missed| missed != 0);
    if let Some(launch) = &cycle.launch
        && (asked_for_launch || is_missed(launch))
    {
        launches(out, launch);
    }
}

/// All figures of the deadlines.
pub(super) fn text(out: &mut Lines, cycle: &CycleResult) {
    missed(out, cycle);
    if let Some(wake_up) = &cycle.wake_up {
        let early = cycle.early_ns.map_or(String::new(), |ns| {
            #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
            let us = ns as f64 / 1e3;
            format!("; learned to ask {us:.1} µs early")
        });
        out.pair(
            "wake-up, µs",
            format!("{}  (from the time asked for{early})", microseconds(wake_up)),
        );
    }
    if let Some(ready) = &cycle.ready {
        out.pair("ready, µs", format!("{}  (from the deadline)", microseconds(ready)));
    }
    if let Some(transmit) = &cycle.transmit {
        out.pair(
            "sent, µs",
            format!(
                "{}  (from the deadline until the kernel had it; stddev {:.2})",
                microseconds(transmit),
                transmit.stddev_ns / 1e3
            ),
        );
    }
    if let Some(launch) = &cycle.launch {
        launches(out, launch);
    }
    if let Some(jitter) = &cycle.jitter {
        times::jitter(out, jitter, "from packet to packet");
    }
}

/// Prints the number of deadlines, and of those that were missed.
fn missed(out: &mut Lines, cycle: &CycleResult) {
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let (period, missed) = (
        cycle.period_ns as f64 / 1e3,
        (cycle.late_cycles + cycle.skipped_cycles) as f64 * 100.0 / cycle.due_cycles.max(1) as f64,
    );
    let clock = match cycle.clock {
        Clock::Tai => "CLOCK_TAI",
        _ => "CLOCK_MONOTONIC",
    };
    out.pair(
        "deadlines",
        format!(
            "{} every {period:.1} µs of {clock}{}, {missed:.4} % missed: {} late, {} skipped",
            packets(cycle.due_cycles),
            match cycle.via {
                Via::AfXdp => "",
                Via::AfPacket => " through AF_PACKET",
            },
            packets(cycle.late_cycles),
            packets(cycle.skipped_cycles),
        ),
    );
}

fn launches(out: &mut Lines, launch: &LaunchResult) {
    let by = match launch.kept_by {
        LaunchBy::Device => "by the device, if tc-etf has switched its offload on",
        LaunchBy::Etf => "by the queueing discipline etf",
        LaunchBy::Taprio => "by the gates of the queueing discipline taprio: in their windows, not at their times",
        LaunchBy::Thread => "by the sending thread, which waits for each",
        LaunchBy::Unknown => "by nobody that says so: the driver does not offer it, and most likely sends at once",
        LaunchBy::Nobody => "by nobody: packets leave at once",
    };
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    let lead = launch.lead_ns as f64 / 1e3;
    let missed = launch.missed_packets.map_or(String::new(), |missed| {
        format!("; {} missed theirs and were thrown away", packets(missed))
    });
    out.pair(
        "launch times",
        format!("{lead:.1} µs after the deadline, kept {by}{missed}"),
    );
}
