//! Sentences about a lab that both table and page have.

use ringside_measure::schema::{LabLoad, LabRedirected};

use super::units;

/// What iperf3 was asked for and did; `None` of what is no such load.
pub(crate) fn rate(load: &LabLoad) -> Option<String> {
    let bits = |bits: f64| format!("{}bit/s", units::short(bits));
    let arrived = |received: f64| format!(", of which {} arrived", bits(received));
    let asked = load.asked_bits_per_s;
    Some(format!(
        "sent {}{}{}",
        bits(load.sent_bits_per_s?),
        asked.map_or_else(String::new, |asked| format!(" of {} asked for", bits(asked))),
        load.received_bits_per_s.map_or_else(String::new, arrived)
    ))
}

/// What went past the stack of a guest's host.
pub(crate) fn redirected(of: &LabRedirected) -> String {
    format!(
        "XDP redirected {} packets to the guest and {} from it; {} and {} were the kernel's",
        of.to_guest_packets, of.from_guest_packets, of.to_guest_passed_packets, of.from_guest_passed_packets
    )
}
