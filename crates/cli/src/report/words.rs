//! The summary: what came out, in sentences.

use ringside_measure::compare::{Ratio, STEAL_LIMIT};
use ringside_measure::schema::{
    CompareResult, DelayResult, Document, ImpairedDirection, LatencyResult, Operation, Outcome, RunResult, Table,
    UntilCi,
};

use super::entry::{Content, Entry};
use super::units;
use crate::compare::Verdict;
use crate::output::{count, mode_name};
use crate::validity;

/// A sentence, and whether it is a warning.
pub(super) struct Sentence {
    pub(super) text: String,
    pub(super) is_warning: bool,
}

/// All that is to be said of an entry.
pub(super) fn of(entry: &Entry) -> Vec<Sentence> {
    let mut all = what_came_out(entry);
    if let Content::Ours(document) = &entry.content
        && let Some(reasons) = validity::trouble(document)
    {
        all.insert(0, warned(format!("INVALID: {reasons}.")));
    }
    all
}

fn what_came_out(entry: &Entry) -> Vec<Sentence> {
    match &entry.content {
        Content::Ours(document) => {
            let mut all = match &document.result {
                Outcome::Run(run) => of_run(document, run),
                Outcome::Compare(compare) => of_compare(compare),
                Outcome::Delay(delay) => of_delay(delay),
                Outcome::Search(search) => super::rates::words(search),
                Outcome::Sweep(sweep) => super::settings::words(sweep),
                Outcome::Trace(trace) => super::stages::words(trace),
                Outcome::Lab(lab) => super::lab::words(lab),
                Outcome::Steer(steer) => super::steer::words(steer),
            };
            all.extend(document.far.iter().flat_map(|far| super::far::words(far)));
            all
        }
        Content::Foreign(foreign) => {
            let figures: Vec<String> = foreign
                .metrics
                .iter()
                .take(4)
                .map(|metric| format!("{} {}", metric.name, metric.written()))
                .collect();
            vec![
                said(format!("{}: {}.", foreign.title, figures.join(", "))),
                said(foreign.note.to_owned()),
            ]
        }
    }
}

pub(super) fn said(text: String) -> Sentence {
    Sentence {
        text,
        is_warning: false,
    }
}

pub(super) fn warned(text: String) -> Sentence {
    Sentence { text, is_warning: true }
}

fn of_run(document: &Document, run: &RunResult) -> Vec<Sentence> {
    let mut all = Vec::new();
    let seconds = units::time(run.duration_ns as f64);
    let size = run
        .frame_bytes
        .map(|bytes| format!(" of {bytes} bytes"))
        .unwrap_or_default();
    let how = how(document);
    for (rates, did) in [(&run.received, "received"), (&run.transmitted, "sent")] {
        let of_interest = match run.operation {
            Operation::Rx | Operation::Listener => did == "received",
            Operation::Tx | Operation::Talker => did == "sent",
            Operation::Fwd | Operation::Echo | Operation::Impair => true,
            Operation::Ping => false,
        };
        if let Some(rates) = rates.filter(|_| of_interest) {
            let (packets, bits) = (units::short(rates.packets_pps), units::short(rates.wire_bps));
            let seconds = rates
                .span_ns
                .map_or_else(|| seconds.clone(), |ns| units::time(ns as f64));
            all.push(said(format!(
                "{packets} packets{size} a second were {did} over {seconds}{how}: {bits}bit/s on the wire."
            )));
        }
    }
    all.extend(run.under_load.iter().flat_map(super::loaded::words));
    // With load and without there are times of several conditions.
    let latency = run.latency.as_ref().filter(|_| run.under_load.is_none());
    if let Some(times) = latency.and_then(|latency| latency.raw) {
        let p50 = times
            .p50_ns
            .map(|ns| format!("half of the round trips took at most {}", units::time(ns as f64)));
        let p99 = times
            .p99_ns
            .map(|ns| format!("99 % at most {}", units::time(ns as f64)));
        let longest = format!("the longest {}", units::time(times.max_ns as f64));
        let parts: Vec<String> = p50.into_iter().chain(p99).chain([longest]).collect();
        let samples = count(times.samples as f64);
        all.push(said(format!(
            "Of {samples} probes{size} over {seconds}{how} {}.",
            parts.join(", ")
        )));
    }
    all.extend(latency.and_then(|latency| held_up(run, latency)).map(warned));
    if let Some(cycle) = &run.cycle {
        let missed = cycle.late_cycles + cycle.skipped_cycles;
        let text = format!(
            "{} of {} deadlines, {} apart, were missed.",
            count(missed as f64),
            count(cycle.due_cycles as f64),
            units::time(cycle.period_ns as f64)
        );
        all.push(Sentence {
            text,
            is_warning: missed > 0,
        });
    }
    all.extend(run.until_ci.iter().map(until));
    if let Some(impair) = &run.impair {
        all.extend(impair.directions.iter().map(impaired));
    }
    all.push(ledger(run));
    if run.link_flaps.unwrap_or(0) > 0 {
        let down = units::time(run.link_down_ns.unwrap_or(0) as f64);
        all.push(warned(format!(
            "The link went down {}, for {down} in all.",
            units::plural(run.link_flaps.unwrap_or(0), "time")
        )));
    }
    let steal = run.cpus.iter().map(|cpu| cpu.steal_percent).fold(0.0, f64::max);
    // Later versions judge it themselves.
    if document.validity.is_none() && steal > STEAL_LIMIT * 100.0 {
        all.push(warned(format!(
            "Disturbed: the hypervisor took {} % of a CPU away. Figures of a quiet machine are better.",
            units::digits(steal)
        )));
    }
    all
}

/// Says so if probes waited before they were sent, and who made them wait.
fn held_up(run: &RunResult, latency: &LatencyResult) -> Option<String> {
    let (raw, corrected) = (latency.raw?.p99_ns?, latency.corrected?.p99_ns?);
    if corrected <= raw + raw / 2 {
        return None;
    }
    let who = match run.sender_lateness {
        None => "Probes left after their time".to_owned(),
        Some(sender) if sender.times.p99_ns.unwrap_or(sender.times.max_ns) >= (corrected - raw) / 2 => {
            format!(
                "The sender was late, by up to {}",
                units::time(sender.times.max_ns as f64)
            )
        }
        Some(_) => "The path stalled".to_owned(),
    };
    Some(format!(
        "{who}: from the time at which probes were meant to be sent, 99 % took up to {}.",
        units::time(corrected as f64)
    ))
}

/// What a box did in one direction.
fn impaired(way: &ImpairedDirection) -> Sentence {
    let counts = &way.counts;
    let number = |packets: u64| count(packets as f64);
    let mut text = format!(
        "From {} to {} ({}): of {} packets {} were lost on purpose, {} found the queue full, {} were doubled, {} damaged, {} left out of \
         order.",
        way.from,
        way.to,
        way.settings,
        number(counts.offered),
        number(counts.dropped),
        number(counts.queue_dropped),
        number(counts.duplicated),
        number(counts.corrupted),
        number(counts.reordered)
    );
    let not_meant = counts.overflowed + counts.uncopied + way.too_long_packets + way.link_down_packets;
    if not_meant != 0 {
        text += &format!(
            " Not on purpose, {} could not be held, doubled or sent.",
            number(not_meant)
        );
    }
    Sentence {
        text,
        is_warning: not_meant != 0,
    }
}

/// ` with AF_XDP in native copy mode`
fn how(document: &Document) -> String {
    let mut modes: Vec<&str> = document
        .interfaces
        .iter()
        .flat_map(|interface| &interface.queues)
        .map(|queue| mode_name(queue.mode))
        .collect();
    modes.sort_unstable();
    modes.dedup();
    if modes.is_empty() {
        String::new()
    } else {
        format!(" by AF_XDP ({})", modes.join(", "))
    }
}

fn ledger(run: &RunResult) -> Sentence {
    let ledger = &run.packets;
    let (sent, delivered) = (count(ledger.sent as f64), count(ledger.delivered() as f64));
    let lost = ledger.lost();
    let vanished = run.unaccounted_packets;
    match (lost, vanished) {
        (0, 0) if ledger.sent == ledger.delivered() => {
            let by = match ledger.transmitted {
                Some(_) => "left by the link",
                None => "received",
            };
            said(format!("No packet was lost: {sent} sent, {delivered} {by}."))
        }
        (0, 0) => said("All packets are accounted for.".to_owned()),
        (_, 0) => {
            let most = ledger
                .losses
                .iter()
                .max_by_key(|loss| loss.count)
                .map(|loss| loss.text.to_string())
                .unwrap_or_default();
            let share = units::digits(lost as f64 * 100.0 / ledger.sent.max(1) as f64);
            warned(format!(
                "{} packets ({share} %) were lost, most of them counted as {most}; all are accounted for.",
                count(lost as f64)
            ))
        }
        (_, vanished) => warned(format!(
            "{} packets are not accounted for: no counter knows of them.",
            count(vanished.unsigned_abs() as f64)
        )),
    }
}

/// What an operation is called.
pub(super) fn operation(operation: Operation) -> &'static str {
    match operation {
        Operation::Rx => "Receive",
        Operation::Tx => "Transmit",
        Operation::Fwd => "Send back",
        Operation::Echo => "Echo",
        Operation::Ping => "Ping",
        Operation::Impair => "Impair",
        Operation::Talker => "Talker",
        Operation::Listener => "Listener",
    }
}

/// What each table shows, and what a ratio means on this machine.
fn of_compare(compare: &CompareResult) -> Vec<Sentence> {
    let mut all: Vec<Sentence> = compare.tables.iter().filter_map(best).map(said).collect();
    all.extend(compare.tables.iter().filter_map(noise).map(said));
    all.extend(compare.until_ci.iter().map(until));
    all
}

/// What was measured until it was known well enough.
pub(super) fn until(until_ci: &UntilCi) -> Sentence {
    Sentence {
        text: crate::output::until(until_ci),
        is_warning: !until_ci.reached,
    }
}

fn noise(table: &Table) -> Option<String> {
    let what = format!("{}, {} bytes", operation(table.operation), table.frame_bytes);
    Some(format!(
        "{what}: {}",
        crate::compare::nothing(table.noise_floor_percent?)
    ))
}

/// Returns the verdict on a table, with the figure of its best option and the ratio to the base.
fn best(table: &Table) -> Option<String> {
    let is_ping = table.ratio_of.starts_with("rtt");
    let (best, figure) = table.best()?;
    let figure = figure.median;
    let written = if is_ping {
        format!("{} (median round trip)", units::time(figure))
    } else {
        format!("{} packets/s", units::short(figure))
    };
    let what = format!("{}, {} bytes", operation(table.operation), table.frame_bytes);
    let ratio = match &best.ratio_to_base {
        Some(ratio) => format!(", {} × {}", ratio_in_words(ratio), table.base),
        None => String::new(),
    };
    Some(match Verdict::of(table)? {
        Verdict::Best(name) => format!("{what}: {name} is best with {written}{ratio}."),
        open => format!("{what}: {open}. {} gave {written}{ratio}.", best.name),
    })
}

fn ratio_in_words(ratio: &Ratio) -> String {
    let median = units::digits(ratio.median);
    match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("{median} [{}–{}]", units::digits(low), units::digits(high)),
        None => median,
    }
}

fn of_delay(delay: &DelayResult) -> Vec<Sentence> {
    let measured = || delay.cells.iter().filter_map(|cell| Some((cell, cell.delay?)));
    let mut all = Vec::new();
    let ends = [
        (
            "shortest",
            measured().min_by(|a, b| a.1.mean_ns.total_cmp(&b.1.mean_ns)),
        ),
        ("longest", measured().max_by(|a, b| a.1.mean_ns.total_cmp(&b.1.mean_ns))),
    ];
    for (which, cell) in ends {
        if let Some((cell, times)) = cell {
            all.push(said(format!(
                "The {which} way from the XDP program to the application: {}, {} on average, {} at most.",
                crate::delay::cell_name(cell.cell()),
                units::time(times.mean_ns),
                units::time(times.max_ns as f64)
            )));
        }
    }
    all.extend(delay.warnings.iter().cloned().map(warned));
    all
}

#[cfg(test)]
#[path = "words_tests.rs"]
mod tests;
