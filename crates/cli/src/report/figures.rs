//! All figures of a result, each with a name and a unit: what the CSV has, and what `--fail-if`
//! looks at.

use ringside_measure::latency::Summary;
use ringside_measure::schema::{ClassResult, DelayResult, LabResult, Outcome, SearchTable, SweepResult, Table};

use super::entry::{Content, Entry};
use super::metrics::{Kind, Metric};
use super::{lab, lab_stages, stages, steer, words};

/// Those by which results are put side by side come first.
pub(super) fn of(entry: &Entry) -> Vec<Metric> {
    let mut all = entry.metrics();
    let Content::Ours(document) = &entry.content else {
        return all;
    };
    match &document.result {
        Outcome::Run(run) => {
            let classes = run.schedule.iter().flat_map(|of| &of.classes);
            all.extend(classes.flat_map(class));
        }
        Outcome::Compare(compare) => all.extend(compare.tables.iter().flat_map(compared)),
        Outcome::Delay(delay) => all.extend(delayed(delay)),
        Outcome::Search(search) => all.extend(search.tables.iter().flat_map(searched)),
        Outcome::Sweep(sweep) => all.extend(swept(sweep)),
        Outcome::Trace(trace) => all.extend(stages::figures(trace).into_iter().map(staged)),
        Outcome::Steer(steer) => {
            let landed = steer::figures(steer).into_iter();
            all.extend(landed.map(|(name, packets)| Metric::new(name, packets, Kind::Packets)));
        }
        Outcome::Lab(lab) => all.extend(of_lab(lab)),
    }
    all
}

/// Figures of a distribution and its tail, such as `NAME: p99`.
fn times<'t>(name: &'t str, times: &Summary) -> impl Iterator<Item = Metric> + use<'t> {
    let all = times.figures().into_iter().chain(times.tail());
    all.filter_map(move |(figure, ns)| Some(staged((name.to_owned(), figure, ns?))))
}

fn staged((name, figure, ns): (String, &str, f64)) -> Metric {
    Metric::new(format!("{name}: {figure}"), ns, Kind::Nanoseconds)
}

/// A class of a schedule at the listener.
#[allow(clippy::cast_precision_loss, reason = "counts of packets")]
fn class(of: &ClassResult) -> Vec<Metric> {
    let Some(received) = &of.received else {
        return Vec::new();
    };
    let name = format!("PCP {}", of.class.pcp);
    let counts = [
        ("received", received.received_packets),
        ("lost", received.lost_packets),
        ("outside of the window", received.violations()),
    ];
    let count = |(what, packets)| Metric::new(format!("{name}: {what}"), packets as f64, Kind::Packets);
    let counts = counts.map(count);
    let mut all = counts.to_vec();
    all.extend(received.latency.iter().flat_map(|latency| times(&name, latency)));
    all.extend(received.jitter.map(|jitter| {
        Metric::new(
            format!("{name}: jitter (RFC 3550)"),
            jitter.rfc3550_smoothed_ns,
            Kind::Nanoseconds,
        )
    }));
    all
}

fn compared(table: &Table) -> Vec<Metric> {
    let what = format!("{}, {} bytes", words::operation(table.operation), table.frame_bytes);
    let mut all = Vec::new();
    for variant in &table.variants {
        let figures = [
            ("packets", variant.packets_pps, Kind::PacketsPerSecond),
            ("on the wire", variant.wire_bps, Kind::BitsPerSecond),
            ("lost", variant.loss_percent, Kind::Percent),
            ("CPU", variant.cpu_busy_percent, Kind::Percent),
            ("RTT p50", variant.rtt_p50_ns, Kind::Nanoseconds),
            ("RTT p99", variant.rtt_p99_ns, Kind::Nanoseconds),
        ];
        let name = |figure: &str| format!("{what}: {}: {figure}", variant.name);
        for (figure, of, kind) in figures {
            all.extend(of.map(|of| Metric::new(name(figure), of.median, kind)));
        }
        all.extend(
            variant
                .ratio_to_base
                .map(|ratio| Metric::new(name("ratio"), ratio.median, Kind::Ratio)),
        );
    }
    for loaded in &table.under_load {
        let name = format!(
            "{what}: {}: {}",
            loaded.name,
            crate::run::ping::table::name(loaded.kind)
        );
        let figures = [("RTT p50", loaded.rtt_p50_ns), ("RTT p99", loaded.rtt_p99_ns)].into_iter();
        all.extend(
            figures.filter_map(|(figure, of)| {
                Some(Metric::new(format!("{name}: {figure}"), of?.median, Kind::Nanoseconds))
            }),
        );
    }
    all
}

fn delayed(delay: &DelayResult) -> Vec<Metric> {
    let of = |cell: &ringside_measure::schema::DelayCell| {
        let name = crate::delay::cell_name(cell.cell());
        cell.delay.map(|delay| times(&name, &delay).collect::<Vec<_>>())
    };
    delay.cells.iter().filter_map(of).flatten().collect()
}

/// What was found for each loss, and what a path takes besides.
fn searched(table: &SearchTable) -> Vec<Metric> {
    let mut all = Vec::new();
    for goal in &table.goals {
        let name = format!("{} bytes, {} % lost", table.name, goal.loss_percent);
        let rates = [
            ("throughput", goal.throughput_pps, Kind::PacketsPerSecond),
            ("on the wire", goal.wire_bps, Kind::BitsPerSecond),
        ];
        for (what, rate, kind) in rates {
            all.extend(rate.map(|rate| Metric::new(format!("{name}: {what}"), rate, kind)));
        }
        for at in &goal.latency {
            let name = format!("{name}: at {} %", at.percent);
            all.extend(at.corrected.iter().flat_map(|latency| times(&name, latency)));
        }
    }
    let bytes = &table.name;
    all.extend(table.burst.iter().map(|burst| {
        let name = format!("{bytes} bytes: longest burst");
        Metric::new(name, burst.mean_packets, Kind::Packets)
    }));
    all.extend(table.soak.iter().map(|soak| {
        let name = format!("{bytes} bytes: soak: lost");
        Metric::new(name, soak.loss_percent, Kind::Percent)
    }));
    let capacity = table.capacity.as_ref().and_then(|found| found.capacity_bps);
    all.extend(capacity.map(|bps| {
        let name = format!("{bytes} bytes: capacity");
        Metric::new(name, bps, Kind::BitsPerSecond)
    }));
    all
}

fn swept(sweep: &SweepResult) -> Vec<Metric> {
    let mut all = Vec::new();
    for knob in &sweep.knobs {
        for level in &knob.levels {
            let name = format!("{} {}: {}, ratio", knob.name, level.level, sweep.objective);
            all.extend(
                level
                    .ratio_to_base
                    .map(|ratio| Metric::new(name, ratio.median, Kind::Ratio)),
            );
        }
    }
    all
}

fn of_lab(result: &LabResult) -> Vec<Metric> {
    let lost = |cell: &ringside_measure::schema::LabCell| {
        let percent = cell.probes.loss_ratio()? * 100.0;
        Some(Metric::new(
            format!("{} lost", lab::cell_name(cell)),
            percent,
            Kind::Percent,
        ))
    };
    let lost = result.cells.iter().filter_map(lost);
    lost.chain(lab_stages::figures(result).into_iter().map(staged))
        .collect()
}
