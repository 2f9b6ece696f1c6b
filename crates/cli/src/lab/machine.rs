//! What a lab takes of this machine, looked at before anything is built.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use ringside_netlab::attach::Attachment;
use ringside_netlab::find_program;
use ringside_netlab::guest::Guest;
use ringside_nic::Interface;
use ringside_nic::host::{Cap, Capabilities};

use super::guests;
use super::load::how_to_get;
use super::plan::{self, Place, Plan, Way, Work};
use crate::compare::Kind;

/// Has programs run on some CPUs, where no thread of ours starts them.
pub(super) const PINS: &str = "taskset";

/// What is missing for a lab.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    /// What nothing goes without, a sentence each.
    pub(super) whole: Vec<String>,
    /// What some probes go without, by their numbers: they are rows with the reason.
    pub(super) rows: Vec<(Vec<usize>, String)>,
}

impl Lacks {
    /// This, without which nothing goes.
    pub(super) fn all(why: String) -> Self {
        Self {
            whole: vec![why],
            ..Self::default()
        }
    }

    /// With those of something else.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.whole.extend(other.whole);
        self.rows.extend(other.rows);
        self
    }

    /// Why the lab cannot be run: what nothing goes without, and where no row is left that can be had all reasons.
    pub(super) fn reasons(&self, plan: &Plan) -> Vec<&str> {
        let of_rows = self.rows.iter().flat_map(|(probes, _)| probes);
        let lacking: BTreeSet<usize> = of_rows.copied().collect();
        let has_none = (0..plan.probes.len()).all(|number| lacking.contains(&number));
        let of_rows = self.rows.iter().map(|(_, why)| why.as_str()).filter(|_| has_none);
        self.whole.iter().map(String::as_str).chain(of_rows).collect()
    }

    /// The same, as an error of who wants to run it.
    pub(super) fn refuse(&self, plan: &Plan, name: &str) -> Result<()> {
        match self.reasons(plan).first() {
            Some(why) => bail!("the lab {name}: {why}"),
            None => Ok(()),
        }
    }
}

/// What this machine lacks.
pub(super) fn lacks(plan: &Plan) -> Lacks {
    let mut whole = Vec::new();
    let online = plan::online();
    for (what, cpu) in plan.cpus() {
        if !online.contains(&cpu) {
            whole.push(format!(
                "{what} is to be on CPU {cpu}, which is not online (online: {online:?})"
            ));
        }
    }
    let nics = plan.links.iter().filter_map(|link| link.nics());
    whole.extend(
        nics.flatten()
            .filter_map(|name| Some(Interface::by_name(name).err()?.to_string())),
    );
    for program in programs(plan) {
        if find_program(program).is_none() {
            whole.push(format!("the program {program} is not there: {}", how_to_get(program)));
        }
    }
    let (of_nics, of_modules) = guests::kernels_lack(plan);
    whole.extend(of_modules);
    let rows = attachments(plan, of_nics);
    // Of guests whose NICs could be joined.
    if plan.guests.len() > rows.len() {
        whole.extend(Guest::check().err().map(|error| error.to_string()));
    }
    whole.extend(capabilities(plan));
    Lacks { whole, rows }
}

/// Returns the programs that loads are made by.
pub(super) fn programs(plan: &Plan) -> BTreeSet<&str> {
    let all = plan.loads.iter();
    all.filter_map(|load| match &load.what {
        Work::Udp { .. } | Work::Tcp { .. } => None,
        Work::Iperf3 { .. } => Some("iperf3"),
        Work::Program { command, .. } => command.first().map(String::as_str),
    })
    .collect()
}

/// Returns the capabilities that every cell takes.
pub(super) fn needed_capabilities(plan: &Plan) -> Vec<Cap> {
    let builds = plan.hosts.iter().any(|host| matches!(host.place, Place::Namespace));
    // Of UDP and a schedule some goes without.
    let is_raw = |probe: &plan::Probe| !matches!(probe.kind, Kind::UdpBlocking | Kind::UdpSpin);
    let needed = [
        (Cap::SysAdmin, builds),
        (Cap::NetAdmin, builds),
        (Cap::NetRaw, plan.probes.iter().all(is_raw)),
    ];
    let needed = needed.into_iter().filter(|(_, is_needed)| *is_needed);
    needed.map(|(cap, _)| cap).collect()
}

/// Who may not do what every cell takes.
fn capabilities(plan: &Plan) -> Option<String> {
    let held = Capabilities::effective().ok()?;
    let missing = needed_capabilities(plan).into_iter().filter(|cap| !held.has(*cap));
    let missing: Vec<String> = missing.map(|cap| cap.to_string()).collect();
    (!missing.is_empty()).then(|| format!("this process lacks {}: run it as root", missing.join(", ")))
}

/// Attachments that this machine is seen to lack, and NICs that the guests' kernels have no driver for.
fn attachments(plan: &Plan, of_nics: Vec<(usize, String)>) -> Vec<(Vec<usize>, String)> {
    let lacks = |(number, guest): (usize, &plan::Guest)| {
        let config = guests::attachment(guest, number).ok()?;
        let why = Attachment::lacks(guest.attachment, &config).map(|why| format!("the guest {}: {why}", guest.name));
        let of_nic = || of_nics.iter().find(|(of, _)| *of == number).map(|(_, why)| why.clone());
        Some((over(plan, Way::Guest(number)), why.or_else(of_nic)?))
    };
    plan.guests.iter().enumerate().filter_map(lacks).collect()
}

/// Numbers of the probes over a way.
pub(super) fn over(plan: &Plan, way: Way) -> Vec<usize> {
    let all = plan.probes.iter().enumerate();
    all.filter(|(_, probe)| probe.way == way)
        .map(|(number, _)| number)
        .collect()
}
