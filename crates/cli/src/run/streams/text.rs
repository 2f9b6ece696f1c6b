//! A schedule's figures, for people.

use std::fmt::Write as _;

use ringside_measure::schema::{ArrivalStamps, ClassReceived, ClassResult, ClassSent};
use ringside_measure::schema::{ClockState, ScheduleResult};

use crate::output::{microseconds, packets, tail};

/// What was sent or came in a line for each class, and what is wrong with the clock.
pub(crate) fn brief(result: &ScheduleResult) -> String {
    let mut out = String::new();
    let mut received = result.classes.iter().filter_map(|class| class.received.as_ref());
    let is_timed = received.any(|received| received.latency.is_some());
    if is_timed || result.clock_state.offset_ns.is_none() {
        line(&mut out, "clock", clock(&result.clock_state));
    }
    left_out(&mut out, result);
    for class in &result.classes {
        let label = format!("class {}", class.class.pcp);
        if let Some(sent) = &class.sent {
            line(&mut out, &label, sent_brief(sent));
        }
        if let Some(received) = &class.received {
            line(&mut out, &label, received_brief(received));
            odd(&mut out, received);
        }
    }
    out
}

fn sent_brief(sent: &ClassSent) -> String {
    let mut text = format!("sent {}", packets(sent.sent_packets));
    if sent.skipped_packets != 0 {
        text += &format!(", left out {} for which it was too late", packets(sent.skipped_packets));
    }
    if let Some(omitted) = sent.omitted_packets {
        text += &format!(", {} on purpose", packets(omitted));
    }
    text
}

fn received_brief(received: &ClassReceived) -> String {
    let mut text = format!(
        "received {}, lost {}",
        packets(received.received_packets),
        packets(received.lost_packets)
    );
    for (number, what) in [
        (received.skipped_packets, "skipped by the talker"),
        (received.duplicated_packets, "doubled"),
        (received.reordered_packets, "out of order"),
    ] {
        if number != 0 {
            text += &format!(", {what} {}", packets(number));
        }
    }
    text += &format!(
        ", outside the window {}",
        packets(received.early_packets + received.late_packets)
    );
    if let Some(latency) = &received.latency {
        text += &format!("; latency {}", tail(latency));
    }
    text
}

/// What was sent or came, class by class.
pub(crate) fn text(result: &ScheduleResult) -> String {
    let mut out = String::new();
    let mut line = |label: &str, text: String| line(&mut out, label, text);
    let vlan = match result.vlan_id {
        Some(0) => ", priority tags (VLAN 0)".to_owned(),
        Some(id) => format!(", VLAN {id}"),
        None => String::new(),
    };
    let session = result
        .session
        .map_or(String::new(), |session| format!(", session {session:08x}"));
    line(
        "schedule",
        format!("every {} of CLOCK_TAI{vlan}{session}", us(result.cycle_ns)),
    );
    line("clock", clock(&result.clock_state));
    for qdisc in &result.qdiscs {
        line("qdisc", qdisc.clone());
    }
    if let Some(stamps) = result.stamps {
        let by = match stamps {
            ArrivalStamps::Kernel => "the kernel, when a packet socket got the packet",
            ArrivalStamps::Xdp => "the XDP program",
        };
        let path = match result.path_ns {
            None | Some(0) => String::new(),
            Some(ns) => format!("; windows are {} later here, for the path", us(ns)),
        };
        line("stamps", format!("by {by}{path}"));
    }
    left_out(&mut out, result);
    for class in &result.classes {
        one(&mut out, class);
    }
    out
}

fn clock(state: &ClockState) -> String {
    match (state.offset_ns, &state.by) {
        (Some(offset), Some(by)) => format!("at most {} off, by {by}", us(offset)),
        _ => "nobody knows how far it is off".to_owned(),
    }
}

// Writing to a string does not fail.
fn line(out: &mut String, label: &str, text: String) {
    _ = writeln!(out, "{label:<14} {text}");
}

fn left_out(out: &mut String, result: &ScheduleResult) {
    for (number, what) in [
        (result.other_session_packets, "of other sessions"),
        (result.other_schedule_packets, "of another schedule"),
    ] {
        if let Some(number @ 1..) = number {
            line(out, "left out", format!("{} packets {what}", packets(number)));
        }
    }
}

fn one(out: &mut String, result: &ClassResult) {
    let class = &result.class;
    _ = writeln!(
        out,
        "{:<14} window of {} from {} on, {} packet(s) of {} bytes",
        format!("class {}", class.pcp),
        us(class.window_ns),
        us(class.offset_ns),
        class.packets_per_cycle,
        class.frame_bytes
    );
    if let Some(sent) = &result.sent {
        talker(out, sent);
    }
    if let Some(received) = &result.received {
        listener(out, received);
    }
}

fn talker(out: &mut String, sent: &ClassSent) {
    let mut text = format!(
        "{}, left out {} for which it was too late",
        packets(sent.sent_packets),
        packets(sent.skipped_packets)
    );
    if let Some(omitted) = sent.omitted_packets {
        text += &format!(", {} on purpose", packets(omitted));
    }
    if let Some(later) = sent.later_ns {
        text += &format!("; each {} later than due, on purpose", us(later));
    }
    if let Some(priority) = sent.socket_priority {
        text += &format!("; socket priority {priority}");
    }
    _ = writeln!(out, "{:<14} {text}", "  sent");
}

fn listener(out: &mut String, received: &ClassReceived) {
    line(
        out,
        "  received",
        format!(
            "{}, lost {}, skipped by the talker {}, doubled {}, out of order {} (RFC 4737)",
            packets(received.received_packets),
            packets(received.lost_packets),
            packets(received.skipped_packets),
            packets(received.duplicated_packets),
            packets(received.reordered_packets)
        ),
    );
    let misses = |number: u64, most: Option<u64>, when: &str| {
        let most = most.map_or(String::new(), |ns| format!(" (by {} at the most)", us(ns)));
        format!("{} {when}{most}", packets(number))
    };
    line(
        out,
        "  window",
        format!(
            "{}, {}",
            misses(received.early_packets, received.early_most_ns, "came before it"),
            misses(received.late_packets, received.late_most_ns, "came after it")
        ),
    );
    odd(out, received);
    for (label, times, of) in [
        ("  latency, µs", &received.latency, "from the intended time"),
        ("  path, µs", &received.path, "from the hand-over to the kernel"),
        ("  gap, µs", &received.gap, "from packet to packet"),
    ] {
        if let Some(times) = times {
            line(out, label, format!("{}  ({of})", microseconds(times)));
        }
    }
    if let Some(jitter) = &received.jitter {
        line(
            out,
            "  jitter, µs",
            format!(
                "{:.2} by RFC 3550 6.4.1 (smoothed), {:.2} mean difference from packet to packet",
                jitter.rfc3550_smoothed_ns / 1e3,
                jitter.mean_abs_consecutive_difference_ns / 1e3
            ),
        );
    }
}

/// Packets that are not as the talker sent them, or whose time is not known.
fn odd(out: &mut String, received: &ClassReceived) {
    for (number, what) in [
        (
            received.changed_pcp_packets,
            "had another priority in the VLAN tag than they were sent with",
        ),
        (
            received.untold_pcp_packets,
            "had no VLAN tag, or the NIC has taken it out (ethtool -K INTERFACE rxvlan off)",
        ),
        (
            received.impossible_packets,
            "came before they were due or sent, by the clocks: not timed",
        ),
        (received.too_old_packets, "were too old to be told from doubles"),
    ] {
        if number != 0 {
            line(out, "", format!("{} {what}", packets(number)));
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn us(ns: u64) -> String {
    format!("{} µs", ns as f64 / 1e3)
}
