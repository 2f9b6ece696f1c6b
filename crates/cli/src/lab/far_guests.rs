//! Guests that other machines' servers start for a lab, and end with it.
//!
//! ```text
//!  this machine ── wire ── interface there │ attachment │ NIC of the guest ── ringside serve --lab --trace
//!                    └──── ringside serve --lab-guests
//! ```
//!
//! One that is up is a machine with a server as any other: probes, loads, schedules and stages reach it as they reach that. What is left is to have it
//! there, for the time of the run.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::control::{Errand, GuestEnd, GuestNic, GuestUp, Ready, Token};
use ringside_measure::schema::LabMachine;
use ringside_netlab::attach::Way as Join;
use ringside_netlab::guest::Accelerator;
use ringside_nic::Route;

use super::machine::Lacks;
use super::plan::{FarGuest, Plan, Way};
use super::schedule::{Remote, errand};
use super::{bed, guests, load, machine, run};
use crate::compare;
use crate::serve::{self, Far, RemoteArgs};
use crate::stop::Stop;

/// How long it is tried to reach the server in a guest, which listens already.
const REACH: Duration = Duration::from_secs(20);

/// A machine that is up there, until this is dropped.
pub(super) struct Lodging {
    /// Of the host that its first NIC is.
    machine: usize,
    far: Far,
    up: GuestUp,
    /// What its servers want to be told.
    token: Token,
}

/// The NICs of a machine: numbers of hosts.
fn nics(plan: &Plan, machine: usize) -> impl Iterator<Item = (usize, &FarGuest)> {
    let all = plan.hosts.iter().enumerate();
    all.filter_map(move |(number, host)| Some((number, host.lodger().filter(|there| there.guest.machine == machine)?)))
}

/// The machines at another machine's server, or at all of them.
pub(super) fn machines(plan: &Plan, host: Option<usize>) -> impl Iterator<Item = usize> + '_ {
    let all = plan.hosts.iter().enumerate();
    all.filter_map(move |(number, at)| {
        let there = at.lodger()?;
        let is_its = there.guest.machine == number && host.is_none_or(|host| there.guest.host == host);
        is_its.then_some(number)
    })
}

/// What is asked of its server.
fn end(plan: &Plan, machine: usize, token: String) -> Result<GuestEnd> {
    let of = &plan.hosts[machine].lodger().context("a guest elsewhere")?.guest;
    let nic = |(_, there): (usize, &FarGuest)| GuestNic {
        interface: there.interface.clone(),
        attachment: there.guest.attachment.name().to_owned(),
        address: there.address.0,
        prefix: there.address.1,
        queues: there.guest.queues,
        queue_len: there.guest.queue_len,
        is_generic: there.guest.is_generic,
        express: (there.guest.attachment == Join::Express).then(|| there.guest.express.to_string()),
    };
    let ways: Vec<Way> = nics(plan, machine).map(|(number, _)| Way::Serve(number)).collect();
    let has_iperf3 = |way: &Way| !load::receivers_at(plan, &plan.probes, *way).iperf3.is_empty();
    Ok(GuestEnd {
        name: of.name.clone(),
        nics: nics(plan, machine).map(nic).collect(),
        kernel: of.kernel.clone(),
        cpus: of.cpus,
        memory_mib: of.memory_mib,
        acceleration: of.acceleration.name().to_owned(),
        qdiscs: guests::qdiscs(plan, |way| ways.contains(&way))
            .into_iter()
            .map(str::to_owned)
            .collect(),
        iperf3: ways.iter().any(has_iperf3),
        token,
    })
}

/// What a host's server does not allow of its guests, and what cannot be reached there; NICs that its machine cannot join are rows.
pub(super) fn lacks(plan: &Plan, host: usize, told: &Result<Ready>) -> Result<Lacks> {
    let ready = match told {
        Ok(ready) => ready,
        Err(why) => return Ok(Lacks::all(format!("it starts no guests: {why:#}"))),
    };
    let Some(allowed) = &ready.guests else {
        let why = "it starts no guests: start `ringside serve` there with --lab --lab-guests INTERFACE";
        return Ok(Lacks::all(why.to_owned()));
    };
    let mut lacks = Lacks::default();
    let all: Vec<usize> = machines(plan, Some(host)).collect();
    if all.len() > usize::try_from(allowed.most).unwrap_or(usize::MAX) {
        lacks.whole.push(format!(
            "{} guests with a machine of their own are asked for, its server allows {} (--max-guests)",
            all.len(),
            allowed.most
        ));
    }
    let mut uplinks = BTreeSet::new();
    for machine in all {
        let name = &plan.hosts[machine].name;
        // Nobody is told this one.
        let end = end(plan, machine, "0".repeat(Token::LEAST))?;
        if let Err(why) = end.check(allowed) {
            lacks.whole.push(format!("the guest {name}: {why}"));
            continue;
        }
        let all = end.nics.iter().filter_map(|nic| allowed.uplink(nic).ok());
        for uplink in all.filter(|uplink| !uplinks.insert(uplink.name.as_str())) {
            lacks.whole.push(format!(
                "the guest {name}: another one is to be joined to {}: each takes an interface of its own",
                uplink.name
            ));
        }
        for (number, there) in nics(plan, machine) {
            let why = |why: String| format!("the guest {}: {why}", there.guest.name);
            if let Err(error) = reaches(there) {
                lacks.whole.push(why(format!("{error:#}")));
            }
            if let Some(lack) = allowed.lacking.get(there.guest.attachment.name()) {
                lacks
                    .rows
                    .push((machine::over(plan, Way::Serve(number)), why(lack.clone())));
            }
        }
    }
    let (time, most) = (run::time(plan), Duration::from_nanos(ready.most_ns));
    if time > most {
        lacks.whole.push(format!(
            "the run takes {time:?} at least, and its server has guests for no longer than {most:?}: take fewer rounds or shorter turns, or start \
             `ringside serve` there with --max-time {}",
            (time * 2).as_secs()
        ));
    }
    Ok(lacks)
}

/// Whether the address of a NIC is one that leads to it.
fn reaches(there: &FarGuest) -> Result<()> {
    let address = IpAddr::V4(there.address.0);
    let advice = "give it one of a network that an interface of this machine is on, and the guest's host";
    let route = Route::to(address).with_context(|| format!("no way leads to {address}: {advice}"))?;
    ensure!(!route.is_local, "{address} is this machine's own address: {advice}");
    if let Some(router) = route.gateway {
        bail!("{address} is behind the router {router}, and the guest knows none: {advice}");
    }
    Ok(())
}

impl Lodging {
    /// Has a machine's server start it, and waits until it is up.
    pub(super) fn begin(plan: &Plan, machine: usize, remote: &Remote<'_>, stop: &Stop) -> Result<Self> {
        let drawn = serve::random_token()?;
        let asked = Errand::Guest(end(plan, machine, drawn.clone())?);
        let far = errand(remote, asked, stop)?;
        let up = far.ready.guest.clone();
        Ok(Self {
            machine,
            far,
            up: up.context("its server does not say that the guest is up: it is of another version")?,
            token: Token::new(&drawn)?,
        })
    }

    /// The paths to its NICs, by the numbers of their hosts; or why there is none.
    pub(super) fn reach(&self, plan: &Plan, stop: &Stop) -> Result<Vec<(usize, Result<compare::Bed, String>)>> {
        let is_emulated = self.up.accelerator.as_deref() == Some(Accelerator::Tcg.name());
        type Path = (usize, Result<compare::Bed, String>);
        let reach = |((number, there), lack): ((usize, &FarGuest), &Option<String>)| -> Result<Path> {
            if let Some(why) = lack {
                return Ok((number, Err(why.clone())));
            }
            let dial = || {
                let remote = RemoteArgs {
                    token: Some(self.token.clone()),
                    ..RemoteArgs::at(there.address.0)
                };
                bed::dial(remote, stop)
            };
            let path = guests::until_reached(REACH, is_emulated, stop, dial);
            let path = path.with_context(|| format!("reaching {}", plan.hosts[number].named()))?;
            Ok((number, Ok(path)))
        };
        nics(plan, self.machine).zip(&self.up.lacks).map(reach).collect()
    }

    /// Whether it is still there, by what its server says.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        match self.far.lost() {
            Some(why) => bail!("{}: {why}", plan.hosts[self.machine].named()),
            None => Ok(()),
        }
    }

    /// For the result.
    pub(super) fn told<'l>(&'l self, plan: &'l Plan) -> impl Iterator<Item = LabMachine> + 'l {
        nics(plan, self.machine).map(|(number, there)| LabMachine {
            name: plan.hosts[number].name.clone(),
            kind: "guest".to_owned(),
            cpu: None,
            attachment: Some(there.guest.attachment.name().to_owned()),
            accelerator: self.up.accelerator.clone(),
            kernel_release: self.up.kernel_release.clone(),
        })
    }
}
