//! The part of the other end of a measurement between two hosts.

use maud::{Markup, html};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{ClockBasis, FarEnd, RunResult};

use super::units;
use super::words::{Sentence, said, warned};
use crate::output::{count, mode_name};
use crate::system;

/// What it was, in a sentence; what it counted; how its clock is known; why it was lost.
pub(super) fn words(far: &FarEnd) -> Vec<Sentence> {
    let mut all = vec![said(format!(
        "The far end, authenticated by {}: {}, {}.",
        far.authenticated_by,
        system::summary(&far.system),
        via(far)
    ))];
    if let Some(run) = &far.result {
        all.push(said(format!(
            "{} of {} packets came there{}.",
            count(run.packets.delivered() as f64),
            count(run.packets.sent as f64),
            lost(run)
        )));
    }
    for (times, way) in [(&far.there, "on the way there"), (&far.back, "on the way back")] {
        if let Some(p50) = times.as_ref().and_then(|times| times.raw?.p50_ns) {
            all.push(said(format!(
                "Half of the packets took at most {} {way}.",
                units::time(p50 as f64)
            )));
        }
    }
    if let Some(clock) = &far.clock {
        let basis = match clock.basis {
            ClockBasis::SameKernel => "both ends read one clock",
            ClockBasis::Synchronised => "both hosts' clocks are synchronised",
        };
        let within = format!(
            "Times of one direction are within {}: {basis}.",
            units::time(clock.uncertainty_ns as f64)
        );
        // What is less than its error says nothing.
        let least = [&far.there, &far.back]
            .into_iter()
            .flatten()
            .filter_map(|times| times.raw?.p50_ns)
            .min();
        all.push(match least.is_some_and(|least| least < clock.uncertainty_ns) {
            true => warned(format!("{within} That is more than the times themselves.")),
            false => said(within),
        });
    }
    if let Some(why) = &far.lost {
        all.push(warned(format!("The run ended early: {why}.")));
    }
    all
}

fn via(far: &FarEnd) -> String {
    let mut modes: Vec<&str> = far
        .interfaces
        .iter()
        .flat_map(|interface| &interface.queues)
        .map(|queue| mode_name(queue.mode))
        .collect();
    modes.sort_unstable();
    modes.dedup();
    match far.via.as_str() {
        "udp" => "a UDP socket of the kernel's".to_owned(),
        _ => format!("AF_XDP ({})", modes.join(", ")),
    }
}

fn lost(run: &RunResult) -> String {
    let losses: Vec<String> = run
        .packets
        .losses
        .iter()
        .filter(|loss| loss.count > 0)
        .map(|loss| format!("{} lost {}", count(loss.count as f64), loss.text))
        .collect();
    match losses.is_empty() {
        true => String::new(),
        false => format!("; {}", losses.join(", ")),
    }
}

/// Its figures as tables.
pub(super) fn part(far: &FarEnd) -> Markup {
    html! {
        h3 { "The far end" }
        div.wide { table {
            tr { th { "system" } td { (system::summary(&far.system)) } }
            tr { th { "through" } td { (via(far)) } }
            @for interface in &far.interfaces {
                tr { th { "interface" } td { (interface.driver.as_deref().unwrap_or("no driver name")) ", MTU " (interface.mtu_bytes) ", " (interface.rx_queues) " queues" } }
            }
            @if let Some(run) = &far.result {
                tr { th { "came there" } td.number { (count(run.packets.delivered() as f64)) " of " (count(run.packets.sent as f64)) } }
                @for loss in run.packets.losses.iter().filter(|loss| loss.count > 0) { tr { th { "lost: " (loss.text) } td.number { (count(loss.count as f64)) } } }
                @for cpu in &run.cpus {
                    tr { th { "CPU " (cpu.cpu) } td { (format!("user {:.0} %, system {:.0} %, softirq {:.0} %, stolen {:.0} %", cpu.user_percent, cpu.system_percent, cpu.softirq_percent, cpu.steal_percent)) } }
                }
            }
            @if let Some(clock) = &far.clock {
                tr { th { "clock ahead" } td { (clock.offset_ns) " ns, within " (clock.uncertainty_ns) " ns; seen " (clock.seen_offset_ns) " ns, give or take " (clock.seen_uncertainty_ns) } }
            }
        } }
        @if far.there.is_some() || far.back.is_some() { (directions(far)) }
    }
}

fn directions(far: &FarEnd) -> Markup {
    let rows = [("there", &far.there), ("back", &far.back)];
    let rows: Vec<_> = rows
        .into_iter()
        .filter_map(|(way, times)| Some((way, times.as_ref()?.raw?.figures())))
        .collect();
    html! {
        div.wide { table {
            @if let Some((_, figures)) = rows.first() { tr { th { "one way" } @for (name, _) in figures { th { (name) } } } }
            @for (way, figures) in &rows {
                tr { th { (way) } @for (_, ns) in figures { td.number { (ns.map_or_else(|| "–".to_owned(), units::time)) } } }
            }
        } }
    }
}

/// The times of each direction, for the plots.
pub(super) fn times(name: &str, far: &FarEnd) -> Vec<(String, Latency)> {
    let of = |times: &Option<ringside_measure::schema::LatencyResult>, way: &str| {
        let times = Latency::from_hdr(times.as_ref()?.raw_hdr.as_ref()?).ok()?;
        Some((format!("{name}, {way}"), times))
    };
    [of(&far.there, "there"), of(&far.back, "back")]
        .into_iter()
        .flatten()
        .collect()
}
