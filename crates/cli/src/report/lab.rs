//! The part of a lab: the matrix of its paths, and their plots.

use maud::{Markup, html};
use ringside_measure::latency::Latency;
use ringside_measure::schema::{LabCell, LabLoad, LabResult, LatencyKind, LoadKind};

use super::figure::{self, Bar};
use super::metrics::{self, Metric};
use super::settings::interval;
use super::words::{Sentence, said, warned};
use super::{charts, lab_stages, lab_words, units};
use crate::output::count;

/// What came out: the fastest path of each kind, what load does to it, and what is to be known.
pub(super) fn words(lab: &LabResult) -> Vec<Sentence> {
    let mut all: Vec<Sentence> = lab
        .warnings
        .iter()
        .map(|text| warned(format!("{}.", capitalised(text))))
        .collect();
    for kind in [LatencyKind::RoundTrip, LatencyKind::OneWay] {
        for condition in [LoadKind::Idle, LoadKind::Foreign] {
            let median = |cell: &&LabCell| cell.latency.corrected.and_then(|times| times.p50_ns);
            let cells = || of(lab, kind, condition).filter(|cell| median(cell).is_some());
            let (Some(least), Some(most)) = (cells().min_by_key(median), cells().max_by_key(median)) else {
                continue;
            };
            let told = |cell: &LabCell| {
                let times = cell.latency.corrected?;
                let p99 = times.p99_ns.map(|ns| format!(" (99 %: {})", units::time(ns as f64)));
                Some(format!(
                    "{} in {}{}",
                    cell.path,
                    units::time(times.p50_ns? as f64),
                    p99.unwrap_or_default()
                ))
            };
            if let (Some(least), Some(most)) = (told(least), told(most)) {
                let (kind, condition) = (capitalised(kind.name()), name(condition));
                all.push(said(match least == most {
                    true => format!("{kind}, {condition}: half of the probes by {least}."),
                    false => format!("{kind}, {condition}: half of the probes by {least}, the slowest, {most}."),
                }));
            }
        }
    }
    for cell in &lab.cells {
        let steered = cell.steering.iter().flat_map(|one| &one.seen.sentences);
        all.extend(
            steered
                .filter(|sentence| !sentence.right)
                .map(|sentence| warned(format!("{}: {}.", cell_name(cell), sentence.text))),
        );
        if let Some(why) = &cell.unavailable {
            all.push(warned(format!("{}: not to be had: {why}.", cell_name(cell))));
        }
    }
    all.extend(lab_stages::words(lab));
    if lab.interrupted {
        all.push(warned("It was ended before all rounds were through.".to_owned()));
    }
    all
}

fn of(lab: &LabResult, kind: LatencyKind, condition: LoadKind) -> impl Iterator<Item = &LabCell> + Clone {
    lab.cells
        .iter()
        .filter(move |cell| cell.latency.kind == kind && cell.condition == condition)
}

fn name(condition: LoadKind) -> &'static str {
    match condition {
        LoadKind::Idle => "idle",
        LoadKind::SelfInduced | LoadKind::Foreign => "loaded",
    }
}

/// `udp, round trip, idle`
pub(super) fn cell_name(cell: &LabCell) -> String {
    format!("{}, {}, {}", cell.path, cell.latency.kind.name(), name(cell.condition))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Those of each cell.
pub(super) fn metrics(lab: &LabResult) -> Vec<Metric> {
    let of = |cell: &LabCell| {
        let times = cell.latency.corrected?;
        Some(metrics::of_times(&cell_name(cell), &times).collect::<Vec<_>>())
    };
    lab.cells.iter().filter_map(of).flatten().collect()
}

pub(super) fn part(lab: &LabResult) -> Markup {
    let kinds = [LatencyKind::RoundTrip, LatencyKind::OneWay];
    html! {
        p { (lab.rounds) " rounds of " (units::time(lab.turn_ns as f64)) " for each cell, in turn: idle and loaded next to each other, every other round backwards. \
            Times are from the time at which a probe was to be sent to its reception by a program, by one clock; ratios are of the medians of the rounds, paired, \
            with a bootstrap 95 % interval. Turns in which the hypervisor took more than " (units::digits(lab.steal_limit_percent)) " % of the CPU time are left out, if others are quiet." }
        @if let Some(few) = lab_words::too_few(lab.cells.iter().filter_map(|cell| cell.latency.corrected)) { p { (few) "." } }
        @for kind in kinds { @if lab.cells.iter().any(|cell| cell.latency.kind == kind) { (matrix(lab, kind)) } }
        (taken(lab))
        (windows(lab))
        (steering(lab))
        (lab_stages::part(lab))
        h3 { "The lab" }
        div.wide { table {
            tr { th { "machine" } th { "what" } th { "CPU" } th { "kernel" } }
            @for machine in &lab.machines { tr {
                th { (machine.name) }
                td { (machine.kind) @if let Some(how) = &machine.attachment { ", " (how) } @if let Some(by) = &machine.accelerator { ", " (by) } }
                td.number { (machine.cpu.map_or_else(|| "–".to_owned(), |cpu| cpu.to_string())) }
                td { (machine.kernel_release.as_deref().unwrap_or("this machine's")) }
            } }
        } }
        @for load in loads(lab) { p { "Load " (load.name) ": " (load.description) "." } }
        @for cell in &lab.cells {
            @for load in &cell.loads { @if let Some(rate) = lab_words::rate(load) { p { (cell_name(cell)) ": the load " (load.name) " " (rate) "." } } }
            @if let Some(redirected) = &cell.redirected { p { (cell_name(cell)) ": " (lab_words::redirected(redirected)) "." } }
        }
        @for cell in &lab.cells { @if let Some(clock) = &cell.clock { p { (cell_name(cell)) ": " (lab_stages::clock_words(clock)) } } }
        details { summary { "The paths" } ul {
            @for cell in &lab.cells { @if cell.condition == LoadKind::Idle || !has_idle(lab, cell) { li { (cell_name(cell)) ": " (cell.description) } } }
        } }
        details { summary { "The lab file" } pre { (lab.file) } }
    }
}

/// Whether the same path has an idle cell by the same kind of time.
fn has_idle(lab: &LabResult, cell: &LabCell) -> bool {
    of(lab, cell.latency.kind, LoadKind::Idle).any(|other| other.path == cell.path)
}

/// What guests took, and what waited for them.
#[allow(clippy::cast_precision_loss, reason = "figures of three digits")]
fn taken(lab: &LabResult) -> Markup {
    let all = || lab.cells.iter().filter_map(|cell| Some((cell, cell.tap.as_ref()?)));
    let figure = |value: Option<f64>, text: fn(f64) -> String| value.map_or_else(|| "–".to_owned(), text);
    html! { @if all().next().is_some() {
        h3 { "What guests took" }
        div.wide { table {
            tr { @for head in ["cell", "packets/s", "bytes in a packet", "dropped", "found waiting, mean", "of places", "is work for", "found it full"] {
                th { (head) }
            } }
            @for (cell, tap) in all() {
                @let (rate, bytes, wait_ns) = lab_words::taken(tap);
                @let waiting = tap.waiting;
                tr {
                    th { (cell_name(cell)) }
                    td.number { (units::short(rate)) }
                    td.number { (figure(bytes, count)) }
                    td.number { @if tap.dropped_at_least { "≥ " } (tap.dropped_packets) }
                    td.number { (figure(waiting.map(|waiting| waiting.mean_packets), units::digits)) }
                    td.number { (figure(waiting.map(|waiting| waiting.places as f64), count)) }
                    td.number { (figure(wait_ns, units::time)) }
                    td.number { (figure(waiting.map(|waiting| waiting.full_packets as f64), count)) }
                }
            }
        } }
        p { "Packets that the device of this machine handed on to the guest, what was dropped in front of it, and what they found in its ring when they came. The work is the places taken \
            × the time that the guest took for each packet, where one place at least was taken on average. A macvtap device's ring cannot be seen." }
    } }
}

/// Classes of schedules.
fn windows(lab: &LabResult) -> Markup {
    let all = || {
        lab.cells
            .iter()
            .filter_map(|cell| Some((cell, cell.schedule.as_ref()?)))
    };
    html! { @if all().next().is_some() {
        h3 { "Windows" }
        div.wide { table {
            tr { @for head in ["class", "load", "window", "kept by", "left out", "before", "behind", "by at most", "packet to packet, p50", "p99", "jitter", "mean difference"] {
                th { (head) }
            } }
            @for (cell, of) in all() { tr {
                th { (cell.path) } td { (name(cell.condition)) }
                td { (units::time(of.class.window_ns as f64)) " from " (units::time(of.class.offset_ns as f64)) " on" }
                td { (format!("{:?}", of.kept_by).to_lowercase()) }
                @for packets in [of.skipped_packets, of.early_packets, of.late_packets] { td.number { (packets) } }
                @let gap = of.gap.as_ref();
                @for ns in [of.late_most_ns, gap.and_then(|gap| gap.p50_ns), gap.and_then(|gap| gap.p99_ns)] {
                    td.number { (ns.map_or_else(|| "–".to_owned(), |ns| units::time(ns as f64))) }
                }
                @let jitter = cell.latency.jitter.as_ref();
                @for ns in [jitter.map(|jitter| jitter.rfc3550_smoothed_ns), jitter.map(|jitter| jitter.mean_abs_consecutive_difference_ns)] {
                    td.number { (ns.map_or_else(|| "–".to_owned(), units::time)) }
                }
            } }
        } }
        p { "Packets that were left out, because their window was over before they could be sent, and those that arrived before and behind it; \
            from one packet's arrival to the next one's (inter-packet latency), which of a class with several packets in a cycle has two kinds, in a cycle and to the next one, \
            so that the median may be either; jitter of the latency by RFC 3550, which is that of the last turn, and \
            as the mean difference from packet to packet in all turns." }
        @for (cell, missed) in all().filter_map(|(cell, of)| Some((cell, lab_words::missed(of)?))) {
            p { (cell_name(cell)) ": " (missed) "." }
        }
        @for (cell, clocks) in all().filter_map(|(cell, of)| Some((cell, lab_words::clocks(of)?))) {
            p { (cell_name(cell)) ": " (clocks) "." }
        }
        @for (cell, _) in all().filter(|(_, of)| !of.windows.is_by_clock()) {
            p { (cell_name(cell)) ": " (lab_words::by_the_fastest(cell)) "." }
        }
    } }
}

/// Where packets landed.
fn steering(lab: &LabResult) -> Markup {
    let cells = lab
        .cells
        .iter()
        .flat_map(|cell| cell.steering.iter().map(move |one| (cell_name(cell), one)));
    let traced = lab.stages.iter().flat_map(|of| {
        let turn = format!("{}, the traced turn, {}", of.path, name(of.condition));
        of.steering.iter().map(move |one| (turn.clone(), one))
    });
    let all: Vec<_> = cells.chain(traced).collect();
    html! { @if !all.is_empty() {
        h3 { "Steering" }
        @for (turn, one) in all {
            h4 { (turn) ": " (one.name) " at " (one.host) }
            @for sentence in &one.seen.sentences { p { @if sentence.unknown { strong { "Unknown: " } } @else if !sentence.right { strong { "Wrong: " } } (sentence.text) "." } }
            (super::steer::part(&one.seen))
        }
    } }
}

/// Each load once.
fn loads(lab: &LabResult) -> Vec<&LabLoad> {
    let mut loads: Vec<&LabLoad> = Vec::new();
    for load in lab.cells.iter().flat_map(|cell| &cell.loads) {
        if loads.iter().all(|other| other.name != load.name) {
            loads.push(load);
        }
    }
    loads
}

/// Table and plots of one kind of time.
fn matrix(lab: &LabResult, kind: LatencyKind) -> Markup {
    let cells = || lab.cells.iter().filter(move |cell| cell.latency.kind == kind);
    let bars: Vec<Bar> = cells().filter_map(|cell| bar(lab, cell)).collect();
    let histogram = |cell: &LabCell| {
        let times = Latency::from_hdr(cell.latency.corrected_hdr.as_ref()?).ok()?;
        Some((format!("{}, {}", cell.path, name(cell.condition)), times))
    };
    let plot = |condition| of(lab, kind, condition).filter_map(histogram).collect::<Vec<_>>();
    let title = capitalised(kind.name());
    html! {
        h3 { (title) }
        (figure::bars(&format!("{title}: medians"), "median, whiskers to p99: shorter is better", &bars, figure::time))
        div.wide { table {
            tr { th { "path" } th { "load" } @for figure in ["min", "mean", "p50", "p90", "p99", "p99.9", "max", "std. dev."] { th { (figure) } }
                th { "probes" } th { "lost %" } th { "× idle [95 %]" } th { "× " (lab.base) " [95 %]" } th { "from sending, p50" } th { "p99" } }
            @for cell in cells() { (row(cell)) }
        } }
        div.plots {
            @for condition in [LoadKind::Idle, LoadKind::Foreign] {
                @let times = plot(condition);
                @if !times.is_empty() { (charts::nines(&format!("{title} over nines, {}", name(condition)), &times)) }
            }
        }
    }
}

fn bar(lab: &LabResult, cell: &LabCell) -> Option<Bar> {
    let times = cell.latency.corrected?;
    let p50 = times.p50_ns? as f64;
    Some(Bar {
        name: format!("{}, {}", cell.path, name(cell.condition)),
        value: p50,
        between: times.p99_ns.map(|p99| (p50, p99 as f64)),
        note: units::time(p50),
        is_base: cell.path == lab.base && cell.condition == LoadKind::Idle,
    })
}

fn row(cell: &LabCell) -> Markup {
    let none = || "–".to_owned();
    let time = |ns: Option<f64>| ns.map_or_else(none, units::time);
    let percentile = |ns: Option<u64>| time(ns.map(|ns| ns as f64));
    html! { tr {
        th { (cell.path) } td { (name(cell.condition)) }
        @if let Some(why) = &cell.unavailable {
            td colspan="14" { (why) }
        } @else if let Some(times) = cell.latency.corrected {
            @for ns in times.figures().map(|(_, ns)| ns).into_iter().chain([Some(times.stddev_ns)]) { td.number { (time(ns)) } }
            td.number { (count(times.samples as f64)) }
            td.number { (cell.probes.loss_ratio().map_or_else(none, |lost| units::digits(lost * 100.0))) }
            td.number { (cell.ratio_to_idle.as_ref().map_or_else(none, interval)) }
            td.number { (cell.ratio_to_base.as_ref().map_or_else(none, interval)) @if let Some(base) = &cell.base { " × " (base) } }
            td.number { (percentile(cell.latency.raw.and_then(|raw| raw.p50_ns))) }
            td.number { (percentile(cell.latency.raw.and_then(|raw| raw.p99_ns))) }
        } @else {
            td colspan="14" { "no times: the other end's clock is not known well enough" }
        }
    } }
}
