//! Sentences about a lab that both table and page have.

use ringside_measure::latency::{Jitter, SAMPLES_BEYOND, Summary};
use ringside_measure::schema::{ClockState, LabCell, LabLoad, LabRedirected, LabSchedule, LabTap};

use super::units;

/// What TCP streams and iperf3 were asked for and did; `None` of what is no such load.
pub(crate) fn rate(load: &LabLoad) -> Option<String> {
    let bits = |bits: f64| format!("{}bit/s", units::short(bits));
    let arrived = |received: f64| format!(", of which {} arrived", bits(received));
    let asked = load.asked_bits_per_s;
    Some(format!(
        "sent {}{}{}{}",
        bits(load.sent_bits_per_s?),
        asked.map_or_else(String::new, |asked| format!(" of {} asked for", bits(asked))),
        load.received_bits_per_s.map_or_else(String::new, arrived),
        load.requests_per_s.map_or_else(String::new, |rate| format!(
            ", {} requests/s were answered",
            units::short(rate)
        ))
    ))
}

/// What went past the stack of a guest's host.
pub(crate) fn redirected(of: &LabRedirected) -> String {
    format!(
        "XDP redirected {} packets to the guest and {} from it; {} and {} were the kernel's",
        of.to_guest_packets, of.from_guest_packets, of.to_guest_passed_packets, of.from_guest_passed_packets
    )
}

/// Packets a second that a guest took, their mean length in bytes, and for how long those that waited in its device's ring were its work, in
/// nanoseconds: places taken × time for each. Where seldom one waits the guest is idle meanwhile, and that is not known.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
pub(crate) fn taken(of: &LabTap) -> (f64, Option<f64>, Option<f64>) {
    let rate = of.packets as f64 / (of.time_ns.max(1) as f64 / 1e9);
    let is_some = of.packets > 0;
    (
        rate,
        is_some.then(|| of.bytes as f64 / of.packets as f64),
        of.waiting
            .filter(|waiting| is_some && waiting.mean_packets >= 1.0)
            .map(|waiting| waiting.mean_packets / rate * 1e9),
    )
}

/// What went through the device that a guest's NIC is behind.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
pub(crate) fn tap(of: &LabTap) -> String {
    let (rate, bytes, wait_ns) = taken(of);
    let mut text = format!("the guest took {} packets/s", units::short(rate));
    if let Some(bytes) = bytes {
        text += &format!(" of {bytes:.0} bytes on average");
    }
    if of.dropped_packets != 0 {
        let least = if of.dropped_at_least { "at least " } else { "" };
        text += &format!(", {least}{} were dropped", of.dropped_packets);
    }
    if let Some(waiting) = of.waiting {
        let work = wait_ns.map_or_else(String::new, |ns| format!(", {} of work for the guest", units::time(ns)));
        text += &format!(
            "; one that came found {} of {} places of the ring taken on average{work}, and {} found it full",
            units::digits(waiting.mean_packets),
            waiting.places,
            waiting.full_packets
        );
    }
    text
}

/// What the queueing discipline threw away, if it did.
pub(crate) fn missed(of: &LabSchedule) -> Option<String> {
    let missed = of.missed_packets.filter(|missed| *missed > 0)?;
    Some(format!(
        "the queueing discipline threw {missed} of all classes away, too late for their time"
    ))
}

/// Percentiles that some cells are too short for; `None` if there are none.
pub(crate) fn too_few(cells: impl Iterator<Item = Summary> + Clone) -> Option<String> {
    /// One sample in so many is beyond.
    const LEVELS: [(&str, u64); 3] = [("p50", 2), ("p99", 100), ("p99.9", 1_000)];
    let all = cells.clone().count();
    let of = |(name, one_in): (&str, u64)| {
        let needed = one_in * SAMPLES_BEYOND;
        let few = cells.clone().filter(|times| times.samples < needed);
        let (count, fewest) = (few.clone().count(), few.map(|times| times.samples).min()?);
        let has = if count == 1 { "has" } else { "have" };
        Some(format!(
            "{name} takes {needed} probes, and {count} of {} {has} fewer ({fewest} at the least)",
            units::plural(all, "cell")
        ))
    };
    let told: Vec<String> = LEVELS.into_iter().filter_map(of).collect();
    (!told.is_empty()).then(|| {
        let told = told.join("; ");
        format!("Percentiles of too few probes are not shown: {told}")
    })
}

/// How right the clocks of a schedule's ends are; `None` where nobody knows and nobody has asked.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
pub(crate) fn clocks(of: &LabSchedule) -> Option<String> {
    let clocks = of.clocks.as_deref()?;
    let time = |ns: u64| units::time(ns as f64);
    let asked = clocks.most_offset_ns;
    if clocks.is_one {
        return asked
            .map(|_| "both ends have one clock, which is not off itself: max-clock-offset refuses nothing".to_owned());
    }
    let known = |state: &ClockState, whose: &str| match (state.offset_ns, state.by.as_deref()) {
        (Some(offset), Some(by)) => format!("{whose} CLOCK_TAI is at most {} off, by {by}", time(offset)),
        _ => format!("nobody knows how far {whose} CLOCK_TAI is off"),
    };
    let ends = [&clocks.talker, &clocks.listener];
    if asked.is_none() && ends.iter().all(|state| state.offset_ns.is_none()) {
        return None;
    }
    let apart = clocks.apart_ns.zip(clocks.apart_uncertainty_ns);
    let apart = apart.map(|(apart, uncertainty)| {
        let apart = time(apart.unsigned_abs());
        format!("; by the packets they are {apart} apart, ± {}", time(uncertainty))
    });
    let asked = asked.map(|most| format!("; {} was asked for", time(most)));
    Some(format!(
        "{}, {}{}{}",
        known(ends[0], "the talker's"),
        known(ends[1], "the listener's"),
        apart.unwrap_or_default(),
        asked.unwrap_or_default()
    ))
}

/// Inter-packet latency of a class.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
pub(crate) fn gap(of: &LabSchedule) -> Option<String> {
    let gap = of.gap?;
    let time = |ns: u64| units::time(ns as f64);
    Some(match gap.p99_ns {
        None => format!("from packet to packet {} to {}", time(gap.min_ns), time(gap.max_ns)),
        Some(p99) => format!(
            "from packet to packet {} in half of all, {} in p99",
            time(gap.p50_ns.unwrap_or(p99)),
            time(p99)
        ),
    })
}

/// How much the latency of a class changes from packet to packet.
pub(crate) fn jitter(of: &Jitter) -> String {
    format!(
        "jitter {} by RFC 3550 and {} as the mean difference",
        units::time(of.rfc3550_smoothed_ns),
        units::time(of.mean_abs_consecutive_difference_ns)
    )
}

/// Why a class has windows, and no latencies.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
pub(crate) fn by_the_fastest(of: &LabCell) -> String {
    let known = match of.clock {
        Some(clock) if clock.contradiction_ns > 0 => "does not run evenly".to_owned(),
        Some(clock) => format!(
            "is known to ± {}, worse than asked for",
            units::time(clock.uncertainty_ns as f64)
        ),
        None => "is not known".to_owned(),
    };
    format!("the other end's clock {known}: no latencies, and windows are counted from the fastest packet on")
}

#[cfg(test)]
#[path = "lab_words_tests.rs"]
mod tests;
