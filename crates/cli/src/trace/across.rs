//! A path into a guest and back: this host's part and the guest's, which the guest records itself, on one axis of time.
//!
//! The guest's clock is brought to this host's by the packets themselves ([`ringside_measure::mapping`]): none was in the guest before it was
//! given to its device, and none came out before the guest had sent it.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::{Result, ensure};
use ringside_measure::mapping::{Bounds, Mapping};
use ringside_measure::schema;
use ringside_measure::trace::{
    Across, Breakdown, Correlator, Culprit, Disturber, DisturberKind, Id, Packet, Slowest, Stage, Timeline,
};
use serde::{Deserialize, Serialize};

use super::collect::{Collector, Seen, answer_of};
use super::ends::{Asker, Ends};
use super::path::{Observed, Setup, Traced, observe};
use super::result::{self, Names};
use crate::stop::Stop;

/// What a guest's recorder says when it records.
pub(crate) const RECORDING: &str = "recording";

/// What it says when a signal (SIGUSR1) had it stop for a while, or go on: for the which time.
pub(crate) fn told_to(is_on: bool, number: u32) -> String {
    let what = if is_on { "goes on" } else { "pauses" };
    format!("{what}, signal {number}.")
}

/// What a guest's recorder writes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Inside {
    /// Which start of which machine this is.
    pub(super) boot: String,
    /// Namespace, index and name.
    pub(super) interfaces: Vec<(u32, u32, String)>,
    pub(super) missing: Vec<schema::MissingHook>,
    pub(super) lost_events: u64,
    /// See [`Seen::row`].
    pub(super) events: Vec<[u64; 10]>,
    /// What had the guest's CPUs, by its clock.
    pub(super) disturbers: Vec<Row>,
    /// Of these there were too many to be written down.
    pub(super) forgotten_disturbers: u64,
}

impl Inside {
    /// Of this machine, with nothing seen yet.
    pub(super) fn here() -> Self {
        Self {
            boot: boot(),
            interfaces: Names::here().rows(),
            ..Self::default()
        }
    }
}

fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| String::new(), |id| id.trim().to_owned())
}

/// What is at the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Far<'n> {
    /// A guest of this machine.
    Guest,
    /// Another machine, by its name in the lab.
    Machine(&'n str),
}

impl Far<'_> {
    /// Where something is that is there.
    pub(crate) fn place(self) -> String {
        match self {
            Self::Guest => "in the guest".to_owned(),
            Self::Machine(name) => format!("at {name}"),
        }
    }

    /// What the way from one kernel to the other is called, and back, where it is not that of a guest.
    fn crossings(self) -> Option<[&'static str; 2]> {
        match self {
            Self::Guest => None,
            Self::Machine(_) => Some(["NICs and wire, there", "NICs and wire, back"]),
        }
    }
}

/// What had a CPU: kind, name, number, CPU, since when and until when.
pub(super) type Row = (DisturberKind, String, u32, u32, u64, u64);

/// As it is written into a file.
pub(super) fn row(of: Disturber) -> Row {
    (of.kind, of.name, of.id, of.cpu, of.from_ns, of.to_ns)
}

/// Whoever runs the recorder in the guest.
pub(crate) trait Guest {
    /// Has it stop for a while, or go on. False: it can not, and goes on.
    ///
    /// # Errors
    /// When it does not answer.
    fn trace(&mut self, is_on: bool) -> Result<bool>;

    /// Ends it; what it wrote.
    fn recorded(&mut self) -> Result<Vec<u8>>;
}

/// The recorder's arguments behind the program's name: it is ended by SIGINT.
pub(crate) fn record_line(session: u32, path: &str, disturbers: bool) -> Vec<String> {
    let session = session.to_string();
    let line = ["trace", "--session", &session, "--events", path, "-t", "600"];
    let more = (!disturbers).then_some("--no-disturbers");
    line.into_iter().chain(more).map(str::to_owned).collect()
}

/// What was traced of a way into a guest and back.
pub(crate) struct Crossed {
    pub(crate) traced: Traced,
    /// Hooks that the guest's kernel lacks.
    pub(crate) missing_inside: Vec<schema::MissingHook>,
    pub(crate) mapping: Mapping,
}

/// Has packets flow to a guest, which records what it sees of them, and answers.
///
/// # Errors
/// As `trace`; and when nothing was seen in the guest.
pub(crate) fn across(
    setup: &Setup<'_>,
    asker: Asker,
    names: &Names,
    (far, guest): (Far<'_>, &mut dyn Guest),
    watch: &mut dyn FnMut() -> Result<()>,
    stop: &Stop,
) -> Result<Crossed> {
    let make = |tracer: &ringside_bpf::Tracer| -> Result<Collector> {
        Ok(Collector::keeping(tracer.reader()?, setup.stop_above))
    };
    let mut goes_on = false;
    let mut elsewhere = |is_on| {
        goes_on |= !guest.trace(is_on)?;
        Ok(())
    };
    let mut observed = observe(setup, Ends::One(asker), make, (watch, &mut elsewhere), stop)?;
    let inside: Inside = serde_json::from_slice(&guest.recorded()?)?;
    ensure!(
        inside.boot != boot() || inside.boot.is_empty(),
        "the other end is on this machine: its kernel sees both ends as one; take namespaces and a link for that"
    );
    let mut seen = packets(&inside);
    let mut part = |id: Id| {
        let none = || Packet {
            id,
            stamps: Vec::new(),
            disorder_ns: 0,
            measured_ns: None,
        };
        seen.remove(&id).unwrap_or_else(none)
    };
    let kept = observed.collector.take_kept();
    let all: Vec<Across> = kept
        .into_iter()
        .map(|asked| {
            // Of the answer `heard` has the number, too.
            let id = answer_of(asked.back.id);
            Across {
                came: part(id),
                left: part(answer_of(id)),
                there: asked.there,
                back: asked.back,
            }
        })
        .collect();
    let count = |of: fn(&Across) -> &Packet| all.iter().filter(|packet| !of(packet).stamps.is_empty()).count();
    let mut bounds = Bounds::new();
    all.iter().for_each(|packet| packet.bound(&mut bounds));
    let mapping = bounds.fit().filter(|_| bounds.len() > 2);
    let Some(mapping) = mapping else {
        let missing: Vec<&str> = inside.missing.iter().map(|missing| missing.hook.as_str()).collect();
        let whose = match far {
            Far::Guest => "the guest".to_owned(),
            Far::Machine(name) => name.to_owned(),
        };
        let lacks = match missing.as_slice() {
            [] => String::new(),
            all => format!(", whose kernel lacks {}", all.join(", ")),
        };
        anyhow::bail!(
            "of {} packets that were answered the host's kernel saw {} on their way there, that of {whose} {} that came and {} that left{lacks}",
            all.len(),
            count(|packet| &packet.there),
            count(|packet| &packet.came),
            count(|packet| &packet.left)
        );
    };
    let mut breakdown = Breakdown::new();
    let vcpus = observed.collector.take_vcpus();
    let mut joined: Vec<Packet> = all.iter().filter_map(|packet| packet.join(&mapping, &vcpus)).collect();
    let incomplete = (all.len() - joined.len()) as u64;
    // The slowest are those of the figures.
    joined.retain(|packet| breakdown.record(packet));
    joined.retain(|packet| breakdown.is_complete(packet));
    let told: HashSet<u64> = joined.iter().map(|packet| packet.id.sequence).collect();
    let is_told = |packet: &Packet| told.contains(&packet.id.sequence);
    observed.collector.slowest.only(told.len() as u64, is_told);
    let culprits = culprits(&joined, &inside, &mapping, far);
    ensure!(
        breakdown.whole().samples() > 0,
        "no packet was seen on all parts of its way"
    );
    let names = names
        .clone()
        .and(Names::of_other(inside.interfaces.clone(), &far.place()));
    let lost_events = observed.lost_events + inside.lost_events;
    let mut path = result::of(&breakdown, &names, lost_events, Some(mapping.uncertainty_ns()));
    if let Some([there, back]) = far.crossings() {
        for stage in &mut path.stages {
            match stage.stage {
                Stage::IntoGuest => stage.name = there.to_owned(),
                Stage::OutOfGuest => stage.name = back.to_owned(),
                _ => {}
            }
        }
    }
    path.receiver = Some(setup.name.to_owned());
    path.cost = observed.cost()?;
    if let Some(cost) = &mut path.cost {
        cost.always_on = goes_on.then(|| far.place());
        cost.off.events += seen_in(&inside, &mapping, &observed);
    }
    path.slow = result::slow_here(&observed.collector);
    if let Some(slow) = &mut path.slow {
        slow.culprits.extend(culprits);
        slow.culprits.sort_by(|a, b| b.more_ns().total_cmp(&a.more_ns()));
    }
    path.recorded = observed.collector.flight.recorded.take();
    path.sent_packets = Some(observed.sent);
    path.received_packets = Some(observed.received);
    path.incomplete_packets += incomplete;
    Ok(Crossed {
        traced: Traced {
            path,
            missing: observed.missing,
        },
        missing_inside: inside.missing,
        mapping,
    })
}

/// What the other kernel told while nothing was to be traced: what its clock leaves open is left out.
fn seen_in(inside: &Inside, mapping: &Mapping, observed: &Observed) -> u64 {
    let seen: Vec<u64> = inside.events.iter().map(|row| mapping.here(row[0])).collect();
    let within = |(from, to): (u64, u64)| {
        let (from, to) = (
            from + mapping.uncertainty_ns(),
            to.saturating_sub(mapping.uncertainty_ns()),
        );
        seen.iter().filter(|ns| (from..to).contains(ns)).count() as u64
    };
    observed.untraced().map(within).sum()
}

/// CPUs of the guest have other numbers than the host's.
const GUEST_CPU: u32 = 1 << 31;

/// What took more time of the guest's CPUs during the slowest packets than during others. The reader of packets is their way, and no disturber.
fn culprits(joined: &[Packet], inside: &Inside, mapping: &Mapping, far: Far<'_>) -> Vec<Culprit> {
    let place = far.place();
    let mut all: Vec<Disturber> = inside
        .disturbers
        .iter()
        .map(|(kind, name, id, cpu, from_ns, to_ns)| Disturber {
            kind: *kind,
            name: format!("{name} {place}"),
            id: *id,
            cpu: cpu | GUEST_CPU,
            from_ns: mapping.here(*from_ns),
            to_ns: mapping.here(*to_ns),
        })
        .collect();
    // As they are told where they are told at once.
    all.sort_by_key(|disturber| disturber.to_ns);
    let mut timeline = Timeline::new();
    all.into_iter().for_each(|disturber| timeline.add(disturber));
    let own: BTreeSet<u32> = inside
        .events
        .iter()
        .filter_map(|row| Seen::of_row(row)?.reader())
        .collect();
    let own: Vec<u32> = own.into_iter().collect();
    let mut slowest = Slowest::new();
    for packet in joined {
        let mut packet = packet.clone();
        for stamp in &mut packet.stamps {
            if stamp.place.is_guest {
                stamp.place.cpu |= GUEST_CPU;
            }
        }
        slowest.record(&packet, &timeline, &own);
    }
    slowest.culprits()
}

/// What the guest's kernel saw, by requests and answers.
fn packets(inside: &Inside) -> HashMap<Id, Packet> {
    let mut correlator = Correlator::of_others();
    for seen in inside.events.iter().filter_map(Seen::of_row) {
        seen.tell(&mut correlator, true);
    }
    let all = correlator.settled(u64::MAX).into_iter();
    all.map(|packet| (packet.id, packet)).collect()
}

#[cfg(test)]
#[path = "across_tests.rs"]
mod tests;
