//! From a schedule to queueing disciplines.
//!
//! Packets of the classes have socket priorities from 8 on, which nobody else uses: the kernel gives its own traffic 0 to 7. So what is
//! not ours keeps its queue, and is not thrown away by etf.

use anyhow::{Context as _, Result, bail};
use ringside_measure::schedule::Schedule;
use ringside_nic::changes::{Changes, Protection, Undo};
use ringside_nic::{Etf, Gate, Gates, Interface, QdiscSetup, QueueRange};

use super::args::{QdiscArg, TalkerArgs};
use crate::output;
use crate::session::nanos;

/// The first of our socket priorities.
pub(super) const OURS: u8 = 8;

/// Installs what is asked for; it goes when the guard does.
pub(super) fn install(args: &TalkerArgs, interface: &Interface, schedule: &Schedule) -> Result<Option<Undo>> {
    if args.qdisc == QdiscArg::AsItIs {
        return Ok(None);
    }
    let queues = interface.tx_queues()?;
    let setup = plan(args, schedule, queues).with_context(|| format!("--qdisc on {interface}"))?;
    let kind = setup.kind();
    let (obtained, undo) = Changes::new().set_qdiscs(interface, &setup).with_context(|| {
        format!(
            "--qdisc: {kind}{} cannot be had here",
            if setup.etf.is_empty() { "" } else { " with etf" }
        )
    })?;
    output::note(format_args!("{interface}: {obtained}, put back at the end"));
    if let Protection::None { reason } = undo.protection() {
        output::note(format_args!("  if this process is killed it stays: {reason}"));
    }
    if obtained != setup {
        bail!("--qdisc on {interface}: the kernel has made something else of {setup}: {obtained}");
    }
    Ok(Some(undo))
}

/// Traffic class 0 is everybody else's, the others are the classes', in the order of their windows.
fn plan(args: &TalkerArgs, schedule: &Schedule, queues: u32) -> Result<QdiscSetup> {
    let classes = schedule.classes();
    let room = usize::try_from(queues).unwrap_or(usize::MAX).min(16);
    if room < 2 {
        bail!("it has one TX queue, and it takes two: one for the schedule and one for everything else (ethtool -L)");
    }
    let own = classes.len().min(room - 1);
    // Neighbours share where there are fewer queues than classes.
    let traffic_class = |index: usize| u8::try_from(1 + index * own / classes.len()).unwrap_or(1);
    let mut map = [0; 16];
    for (index, class) in classes.iter().enumerate() {
        map[usize::from(OURS + class.pcp)] = traffic_class(index);
    }
    let ranges = (0..=own).map(|number| QueueRange {
        count: 1,
        offset: u16::try_from(number).unwrap_or(0),
    });
    let gates = (args.qdisc == QdiscArg::Taprio).then(|| gates(schedule, traffic_class));
    let etf = (args.qdisc == QdiscArg::Etf).then(|| {
        let leaf = |number| Etf {
            queue: u16::try_from(number).unwrap_or(0),
            delta_ns: i32::try_from(nanos(args.delta)).unwrap_or(i32::MAX),
            offload: args.etf_offload,
        };
        (1..=own).map(leaf).collect()
    });
    Ok(QdiscSetup {
        map,
        queues: ranges.collect(),
        gates,
        etf: etf.unwrap_or_default(),
    })
}

/// In a class's window its gate is open alone, between the windows everybody else's.
fn gates(schedule: &Schedule, traffic_class: impl Fn(usize) -> u8) -> Gates {
    let mut entries = Vec::new();
    let mut add = |open: u32, mut ns: u64| {
        while ns > 0 {
            let interval_ns = u32::try_from(ns).unwrap_or(u32::MAX);
            entries.push(Gate { open, interval_ns });
            ns -= u64::from(interval_ns);
        }
    };
    let mut at = 0;
    for (index, class) in schedule.classes().iter().enumerate() {
        add(1, class.offset_ns - at);
        add(1 << traffic_class(index), class.window_ns);
        at = class.offset_ns + class.window_ns;
    }
    add(1, schedule.cycle_ns() - at);
    Gates {
        base_ns: 0,
        cycle_ns: i64::try_from(schedule.cycle_ns()).unwrap_or(i64::MAX),
        entries,
    }
}

#[cfg(test)]
#[path = "qdisc_tests.rs"]
mod tests;
