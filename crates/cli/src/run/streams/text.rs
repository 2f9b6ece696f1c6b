//! A schedule's figures, for people.

use std::fmt::Write as _;

use ringside_measure::schema::{ArrivalStamps, ClassReceived, ClassResult, ClassSent, ScheduleResult};

use crate::output::{microseconds, packets};

/// What was sent or came, class by class.
pub(crate) fn text(result: &ScheduleResult) -> String {
    let mut out = String::new();
    // Writing to a string does not fail.
    let mut line = |label: &str, text: String| _ = writeln!(out, "{label:<14} {text}");
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
    let clock = &result.clock_state;
    line(
        "clock",
        match (clock.offset_ns, &clock.by) {
            (Some(offset), Some(by)) => format!("at most {} off, by {by}", us(offset)),
            _ => "nobody knows how far it is off".to_owned(),
        },
    );
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
    for (number, what) in [
        (result.other_session_packets, "of other sessions"),
        (result.other_schedule_packets, "of another schedule"),
    ] {
        if let Some(number @ 1..) = number {
            line("left out", format!("{} packets {what}", packets(number)));
        }
    }
    for class in &result.classes {
        one(&mut out, class);
    }
    out
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
    let mut line = |label: &str, text: String| _ = writeln!(out, "{label:<14} {text}");
    line(
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
        "  window",
        format!(
            "{}, {}",
            misses(received.early_packets, received.early_most_ns, "came before it"),
            misses(received.late_packets, received.late_most_ns, "came after it")
        ),
    );
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
            line("", format!("{} {what}", packets(number)));
        }
    }
    for (label, times, of) in [
        ("  latency, us", &received.latency, "from the intended time"),
        ("  path, us", &received.path, "from the hand-over to the kernel"),
        ("  gap, us", &received.gap, "from packet to packet"),
    ] {
        if let Some(times) = times {
            line(label, format!("{}  ({of})", microseconds(times)));
        }
    }
    if let Some(jitter) = &received.jitter {
        line(
            "  jitter, us",
            format!(
                "{:.2} by RFC 3550 6.4.1 (smoothed), {:.2} mean difference from packet to packet",
                jitter.rfc3550_smoothed_ns / 1e3,
                jitter.mean_abs_consecutive_difference_ns / 1e3
            ),
        );
    }
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn us(ns: u64) -> String {
    format!("{} us", ns as f64 / 1e3)
}
