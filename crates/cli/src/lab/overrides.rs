//! What the command line changes of a lab: how many rounds, how long a turn, and which of its
//! probes and schedules.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::file::{File, Named};
use crate::args::{bad_value, count_in, time_in};

/// Changes of a lab for one run.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Overrides {
    /// Give each cell this many turns, such as 20 or 1k [default: the lab file's rounds]
    #[arg(long, value_name = "N", value_parser = count_in(1_u32..=10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rounds: Option<u32>,
    /// Measure for this long in a turn, such as 250ms or 2s [default: the lab file's turn]
    #[arg(long, value_name = "DURATION", value_parser = turn)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) turn: Option<Duration>,
    /// Measure only these probes and schedules, by their names in the lab file. Guests and other
    /// machines that they do not take are left out
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) only: Vec<String>,
}

/// A time of the range that `turn` in a lab file has.
fn turn(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(3600);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?} is out of range: 1us to 60min"))
}

impl Overrides {
    /// Returns the options that ask for it.
    pub(super) fn options(&self) -> String {
        let mut all = Vec::new();
        all.extend(self.rounds.map(|rounds| format!("--rounds {rounds}")));
        all.extend(self.turn.map(|turn| format!("--turn {}us", turn.as_micros())));
        if !self.only.is_empty() {
            all.push(format!("--only {}", self.only.join(",")));
        }
        match all.is_empty() {
            true => "neither --rounds, --turn nor --only".to_owned(),
            false => all.join(" "),
        }
    }

    /// Leaves out of a file what is not to be measured, and what only that takes.
    ///
    /// # Errors
    /// For a name that is none of a probe or a schedule.
    pub(super) fn select(&self, name: &str, file: &mut File) -> Result<()> {
        if self.only.is_empty() {
            return Ok(());
        }
        let probes = file.probe.iter().map(|probe| &probe.name);
        let all = probes.chain(file.schedule.iter().map(|schedule| &schedule.name));
        let known: Vec<&str> = all.map(named).collect();
        if let Some(unknown) = self.only.iter().find(|wanted| !known.contains(&wanted.as_str())) {
            bad_value!(
                "--only {unknown}: the lab {name} has no probe or schedule of that name; it has {}",
                known.join(", ")
            );
        }
        let is_wanted = |name: &Named| self.only.iter().any(|wanted| wanted == named(name));
        file.probe.retain(|probe| is_wanted(&probe.name));
        file.schedule.retain(|schedule| is_wanted(&schedule.name));
        leave_out_unused(file);
        Ok(())
    }
}

fn named(name: &Named) -> &str {
    &name.get_ref().0
}

/// Leaves out loads, steering, guests and other machines that no probe and no schedule takes. Hosts
/// of this machine stay: they cost nothing, and by their order they have their CPUs.
fn leave_out_unused(file: &mut File) {
    let has_all_loads = file.probe.iter().any(|probe| probe.loads.is_none());
    let has_all_loads = has_all_loads || !file.schedule.is_empty();
    let loads = file.probe.iter().filter_map(|probe| probe.loads.as_ref());
    let loads: BTreeSet<String> = loads
        .flat_map(|names| names.get_ref())
        .map(|name| named(name).to_owned())
        .collect();
    file.load
        .retain(|load| has_all_loads || loads.contains(named(&load.name)));

    let of_probes = file.probe.iter().filter_map(|probe| probe.steering.as_ref());
    let of_schedules = file.schedule.iter().filter_map(|schedule| schedule.steering.as_ref());
    let steering = of_probes.chain(of_schedules).flatten();
    let steering: BTreeSet<String> = steering.map(|name| named(name).to_owned()).collect();
    file.steering.retain(|one| steering.contains(named(&one.name)));

    let mut machines: BTreeSet<String> = BTreeSet::new();
    let mut takes = |name: &Named| machines.insert(named(name).to_owned());
    for probe in &file.probe {
        takes(&probe.from);
        takes(&probe.to);
    }
    for schedule in &file.schedule {
        takes(&schedule.from);
        takes(&schedule.to);
    }
    for load in &file.load {
        load.from
            .iter()
            .chain(&load.to)
            .chain(&load.guest)
            .for_each(|name| _ = takes(name));
    }
    for steering in &file.steering {
        steering
            .host
            .iter()
            .chain(&steering.guest)
            .for_each(|name| _ = takes(name));
    }
    // The machine that a NIC is in is that of a guest before.
    for guest in file.guest.iter().rev() {
        if machines.contains(named(&guest.name)) {
            machines.insert(named(&guest.host).to_owned());
            machines.extend(guest.machine.iter().map(|name| named(name).to_owned()));
        }
    }
    let is_taken = |name: &Named| machines.contains(named(name));
    let unused = file.guest.iter().filter(|guest| !is_taken(&guest.name));
    let uplinks: BTreeSet<String> = unused
        .filter_map(|guest| Some(named(guest.uplink.as_ref()?).to_owned()))
        .collect();
    file.link
        .retain(|link| link.name.as_ref().is_none_or(|name| !uplinks.contains(named(name))));
    file.guest.retain(|guest| is_taken(&guest.name));
    file.host.retain(|host| host.serve.is_none() || is_taken(&host.name));
}

#[cfg(test)]
#[path = "overrides_tests.rs"]
mod tests;
