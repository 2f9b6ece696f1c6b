//! Which of a guest's virtual CPUs slept when a packet was there, when it was woken up for it, and when it ran: by what the host's scheduler does with
//! their threads.

use std::collections::HashMap;

use super::{Place, Point, Stamp};

/// What the scheduler does with a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduled {
    /// It is to run.
    Woken,
    /// It gets a CPU.
    On,
    /// It is off its CPU: it sleeps, or somebody else is to run.
    Off,
}

/// Virtual CPUs whose threads are watched, by the guest's numbers.
#[derive(Debug, Default)]
pub struct Vcpus(HashMap<u32, Vec<Change>>);

#[derive(Debug, Clone, Copy)]
struct Change {
    ns: u64,
    what: Scheduled,
    cpu: u32,
}

impl Vcpus {
    /// None is watched.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on all changes of a virtual CPU's thread are told.
    pub fn watch(&mut self, vcpu: u32) {
        self.0.entry(vcpu).or_default();
    }

    /// Something was done with the thread of a virtual CPU, by or on a CPU of the host, at a time in nanoseconds of its CLOCK_MONOTONIC; in about the order of
    /// time. Of one that is not watched it is nothing.
    pub fn changed(&mut self, vcpu: u32, ns: u64, what: Scheduled, cpu: u32) {
        let Some(changes) = self.0.get_mut(&vcpu) else { return };
        let at = changes
            .iter()
            .rposition(|change| change.ns <= ns)
            .map_or(0, |at| at + 1);
        changes.insert(at, Change { ns, what, cpu });
    }

    /// How a packet came to the virtual CPU that its first stamp in the guest names, between the host's last point before the guest, and the guest's first, which is known to `uncertain_ns`: its kick and
    /// when it ran, or that it was awake. Nothing where that is not known. Times are between the two points; the second is by how much one was moved for that.
    pub(super) fn enter(&self, last: &Stamp, first: &Stamp, uncertain_ns: u64) -> (Vec<Stamp>, u64) {
        let Some(changes) = self.0.get(&first.place.cpu) else {
            return (Vec::new(), 0);
        };
        let mut found = way_in(changes, last.ns, first.ns, true);
        if found.is_empty() {
            found = way_in(changes, last.ns, first.ns + uncertain_ns, false);
        }
        let moved_ns = found.iter().map(|(_, ns, _)| ns.saturating_sub(first.ns)).max();
        let stamp = |(point, ns, cpu): (Point, u64, Option<u32>)| Stamp {
            ns: ns.min(first.ns),
            point,
            place: Place {
                cpu: cpu.unwrap_or(last.place.cpu),
                ..Place::default()
            },
        };
        (found.into_iter().map(stamp).collect(), moved_ns.unwrap_or(0))
    }
}

/// Point, time and CPU. What counts is the last time that it was woken up before the guest saw the packet, or the first one after that.
fn way_in(changes: &[Change], from_ns: u64, to_ns: u64, is_last: bool) -> Vec<(Point, u64, Option<u32>)> {
    let begin = changes.partition_point(|change| change.ns <= from_ns);
    let end = changes.partition_point(|change| change.ns <= to_ns).max(begin);
    let kicked = |at: &usize| changes[*at].what == Scheduled::Woken && !is_on(changes, *at);
    let kick = match is_last {
        true => (begin..end).rfind(kicked),
        false => (begin..end).find(kicked),
    };
    let is_asleep = !is_on(changes, begin);
    let since = kick.unwrap_or(begin);
    let runs = changes[since..end].iter().find(|change| change.what == Scheduled::On);
    let entered = runs.map(|runs| (Point::Entered, runs.ns, Some(runs.cpu)));
    match kick {
        Some(at) => {
            let kicked = (Point::Kick, changes[at].ns, Some(changes[at].cpu));
            // Else it was woken up for something that comes later.
            entered.map(|entered| vec![kicked, entered]).unwrap_or_default()
        }
        None if is_asleep => entered.into_iter().collect(),
        None => vec![(Point::Awake, from_ns, None)],
    }
}

/// Whether it has a CPU just before a change: by what was before, or else by what comes next. One of which nothing is told runs all the time, or sleeps: but then
/// it takes no packets.
fn is_on(changes: &[Change], at: usize) -> bool {
    let is_switch = |change: &&Change| change.what != Scheduled::Woken;
    let before = changes[..at].iter().rfind(is_switch);
    let after = changes[at..].iter().find(is_switch);
    match (before, after) {
        (Some(before), _) => before.what == Scheduled::On,
        (None, Some(after)) => after.what == Scheduled::Off,
        (None, None) => true,
    }
}

#[cfg(test)]
#[path = "vcpu_tests.rs"]
mod tests;
