//! What was traced, for the result.

use std::collections::HashMap;
use std::fs;

use ringside_bpf::namespace;
use ringside_measure::latency::Latency;
use ringside_measure::schema::{MeasuredWhole, SlowResult, SlowStage, StageResult, TracedPath};
use ringside_measure::trace::{Breakdown, Place, Stage, StageTimes};

use super::collect::Collector;
use crate::compare::{Bed, Side};

/// What interfaces are called, by namespace and index, in a guest or here.
#[derive(Clone, Default)]
pub(crate) struct Names(HashMap<(bool, u32, u32), String>);

impl Names {
    /// Those of a path of our own.
    pub(super) fn of(bed: &Bed) -> Self {
        let mut names = HashMap::new();
        for side in [&bed.a, &bed.b] {
            names.insert(
                (false, namespace_of(side), side.interface.index()),
                side.interface.name().to_owned(),
            );
        }
        Self(names)
    }

    /// Those of this namespace.
    pub(crate) fn here() -> Self {
        let own = namespace();
        let mut names = HashMap::new();
        for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let index = fs::read_to_string(entry.path().join("ifindex")).ok();
            if let Some(index) = index.and_then(|text| text.trim().parse().ok()) {
                names.insert((false, own, index), name);
            }
        }
        Self(names)
    }

    /// With those of another namespace.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Namespace, index and name of each.
    pub(super) fn rows(&self) -> Vec<(u32, u32, String)> {
        let of = |(place, name): (&(bool, u32, u32), &String)| (place.1, place.2, name.clone());
        self.0.iter().map(of).collect()
    }

    /// Those of a guest or another machine, of such rows.
    pub(super) fn of_other(rows: Vec<(u32, u32, String)>, place: &str) -> Self {
        let of = |(namespace, index, name)| ((true, namespace, index), format!("{name} {place}"));
        Self(rows.into_iter().map(of).collect())
    }

    fn name(&self, place: Place) -> Option<String> {
        if place.interface == 0 {
            return None;
        }
        let known = self.0.get(&(place.is_guest, place.namespace, place.interface)).cloned();
        Some(known.unwrap_or_else(|| format!("if{} in net:[{}]", place.interface, place.namespace)))
    }
}

fn namespace_of(side: &Side) -> u32 {
    side.run(namespace)
}

/// The figures of what was collected.
pub(super) fn path(collector: &mut Collector, names: &Names, lost_events: u64) -> TracedPath {
    let Collector { breakdown, slowest, .. } = collector;
    slowest.only(breakdown.whole().samples(), |packet| breakdown.is_complete(packet));
    let path = of(&collector.breakdown, names, lost_events, None);
    let slow = slow(collector, &collector.breakdown.stages(), path.traced_packets);
    TracedPath {
        slow,
        recorded: collector.flight.recorded.clone(),
        ..path
    }
}

/// The figures of stages. What leads from one clock to another is as uncertain as is told.
#[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
pub(super) fn of(
    breakdown: &Breakdown,
    names: &Names,
    lost_events: u64,
    clock_uncertainty_ns: Option<u64>,
) -> TracedPath {
    let (whole, stages) = (breakdown.whole(), breakdown.stages());
    let packets = whole.samples();
    let mean = whole.summary().map_or(0.0, |summary| summary.mean_ns);
    let part = |times: &Latency| {
        let sum = times
            .summary()
            .map_or(0.0, |summary| summary.mean_ns * summary.samples as f64);
        sum / packets.max(1) as f64
    };
    let stage = |stage: &StageTimes| {
        let part_ns = part(&stage.latency);
        StageResult {
            hop: stage.hop,
            stage: stage.stage,
            name: stage.stage.name().to_owned(),
            interface: names.name(stage.place).filter(|_| at_interface(stage.stage)),
            times: stage.latency.summary(),
            times_hdr: stage.latency.to_hdr(),
            part_ns,
            part_percent: if mean > 0.0 { part_ns * 100.0 / mean } else { 0.0 },
            uncertainty_ns: clock_uncertainty_ns.filter(|_| is_between_clocks(stage.stage)),
        }
    };
    let (disordered_packets, clock_error_ns) = breakdown.disorder();
    TracedPath {
        receiver: None,
        failure: None,
        sent_packets: None,
        received_packets: None,
        traced_packets: packets,
        incomplete_packets: breakdown.incomplete(),
        lost_events,
        sum_mean_ns: stages.iter().map(|stage| part(&stage.latency)).sum(),
        stages: stages.iter().map(stage).collect(),
        whole: whole.summary(),
        whole_hdr: whole.to_hdr(),
        measured: measured(breakdown),
        end: breakdown.end(),
        disordered_packets,
        clock_error_ns,
        cost: None,
        slow: None,
        recorded: None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
fn measured(breakdown: &Breakdown) -> Option<MeasuredWhole> {
    let measured = breakdown.measured();
    let count = (measured.packets > 0).then_some(measured.packets as f64)?;
    Some(MeasuredWhole {
        packets: measured.packets,
        mean_ns: measured.sum_ns as f64 / count,
        apart_mean_ns: (measured.whole_ns as f64 - measured.sum_ns as f64) / count,
        apart_max_ns: measured.apart_ns,
    })
}

/// Whether a stage may begin by one clock and end by another.
fn is_between_clocks(stage: Stage) -> bool {
    match stage {
        Stage::IntoGuest | Stage::OutOfGuest => true,
        Stage::From(point) => point.is_of_vcpu(),
        Stage::Relay | Stage::Remainder => false,
    }
}

/// Whether a stage is at an interface: the others are the sender's or the reader's.
fn at_interface(stage: Stage) -> bool {
    use ringside_measure::trace::Point;
    match stage {
        Stage::From(point) => (Point::Queue..=Point::Ready).contains(&point) || point == Point::Ring,
        Stage::Relay | Stage::IntoGuest | Stage::OutOfGuest | Stage::Remainder => false,
    }
}

/// What this host's CPUs did during the slowest packets of a way that leads elsewhere, too: no stages, which are not whole here.
pub(super) fn slow_here(collector: &Collector) -> Option<SlowResult> {
    let slowest = collector.slowest.packets();
    Some(SlowResult {
        packets: slowest.len() as u64,
        from_ns: slowest.last()?.packet.whole_ns(),
        usual_packets: collector.slowest.usual_packets(),
        stages: Vec::new(),
        culprits: collector.slowest.culprits(),
    })
}

#[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
fn slow(collector: &Collector, stages: &[StageTimes], packets: u64) -> Option<SlowResult> {
    let slowest = collector.slowest.packets();
    let from_ns = slowest.last()?.packet.whole_ns();
    let mut alone = Breakdown::new();
    for slow in &slowest {
        alone.record(&slow.packet);
    }
    let count = slowest.len() as f64;
    let of = |times: &Latency, of: f64| times.summary().map_or(0.0, |sum| sum.mean_ns * sum.samples as f64 / of);
    let mut compared: Vec<SlowStage> = alone
        .stages()
        .iter()
        .map(|stage| {
            let usual = stages
                .iter()
                .find(|other| other.hop == stage.hop && other.stage == stage.stage);
            SlowStage {
                hop: stage.hop,
                name: stage.stage.name().to_owned(),
                slow_mean_ns: of(&stage.latency, count),
                mean_ns: usual.map_or(0.0, |usual| of(&usual.latency, packets.max(1) as f64)),
            }
        })
        .filter(|stage| stage.slow_mean_ns > stage.mean_ns)
        .collect();
    compared.sort_by(|a, b| (b.slow_mean_ns - b.mean_ns).total_cmp(&(a.slow_mean_ns - a.mean_ns)));
    Some(SlowResult {
        packets: slowest.len() as u64,
        from_ns,
        usual_packets: collector.slowest.usual_packets(),
        stages: compared,
        culprits: collector.slowest.culprits(),
    })
}
