//! What other machines have to be for a lab, asked before anything is built: how they are reached, for how long their servers do something for a lab, and what
//! guests they start.

use std::time::Duration;

use anyhow::{Context as _, Result};
use ringside_measure::control::{Errand, LoadsEnd, Ready};

use super::file::Address;
use super::machine::Lacks;
use super::plan::{At, Place, Plan, Probe, Serve, Way};
use super::{far_guests, load, schedule};
use crate::serve::RemoteArgs;

/// What it lacks of them.
pub(super) fn lacks(plan: &Plan) -> Lacks {
    let mut all = Lacks::default();
    for (number, host) in plan.hosts.iter().enumerate() {
        let Place::Serve(serve) = &host.place else { continue };
        let at = |why: String| format!("{}: {why}", host.named());
        let found = remote(serve).and_then(|remote| {
            let lacks = lacks_at(plan, number, &remote)?;
            // Who does nothing for a lab, or not for as long, is not asked for more.
            let is_had = lacks.whole.is_empty() && lacks.rows.is_empty();
            let clocks = if is_had {
                schedule::clocks::lacks(plan, number, &remote)?
            } else {
                Vec::new()
            };
            Ok((lacks, clocks))
        });
        match found {
            Ok((lacks, clocks)) => {
                all.whole.extend(clocks);
                all.whole.extend(lacks.whole.into_iter().map(at));
                all.rows
                    .extend(lacks.rows.into_iter().map(|(probes, why)| (probes, at(why))));
            }
            Err(error) => all.whole.push(at(format!("{error:#}"))),
        }
    }
    for (number, guest) in plan.guests.iter().enumerate() {
        let Some((_, Address(address, _))) = guest.nic else {
            continue;
        };
        // Without a route to it there is no router, either: that is told when it is reached.
        let lacks = behind_router(plan, Way::Guest(number), &RemoteArgs::at(address))
            .ok()
            .flatten();
        let at = |lack: String| format!("the guest {} ({address}): {lack}", guest.name);
        all.whole.extend(lacks.map(at));
    }
    all
}

/// How a `ringside serve` is reached.
pub(super) fn remote(serve: &Serve) -> Result<RemoteArgs> {
    let pin = serve.pin.as_deref().map(str::parse).transpose();
    Ok(RemoteArgs {
        server: Some(serve.at.clone()),
        token_file: serve.token_file.as_ref().map(Into::into),
        pin: pin.map_err(|error| anyhow::anyhow!("pin: {error}"))?,
        tls: serve.tls,
        ..RemoteArgs::default()
    })
}

/// What goes by a VLAN priority, and would cross a router, which sends packets on without their tag. Those of a schedule would not even have the right
/// hardware address.
fn behind_router(plan: &Plan, way: Way, remote: &RemoteArgs) -> Result<Option<String>> {
    let schedules = plan.schedules.iter().filter(|schedule| schedule.way == way);
    let tagged = (plan.probes.iter()).filter(|probe| probe.way == way && probe.pcp.is_some());
    let by_link: Vec<String> = schedules
        .map(|schedule| format!("the schedule {}", schedule.name))
        .chain(tagged.map(|probe| format!("the probe {} with its `pcp`", probe.name)))
        .collect();
    if by_link.is_empty() {
        return Ok(None);
    }
    let go = if by_link.len() == 1 { "goes" } else { "go" };
    Ok(remote.router()?.map(|router| {
        format!(
            "{} {go} to a host behind the router {router}: VLAN priorities and time slots end there. Put both hosts on one link, and name the \
             server by its address on that; probes without a `pcp` and loads go through routers",
            by_link.join(", ")
        )
    }))
}

fn lacks_at(plan: &Plan, host: usize, remote: &RemoteArgs) -> Result<Lacks> {
    let way = Way::Serve(host);
    if let Some(why) = behind_router(plan, way, remote)? {
        return Ok(Lacks::all(why));
    }
    let is_there = |number: &usize| {
        let steering = &plan.steerings[*number];
        steering.at == At::There && steering.host == host
    };
    let is_done_there = |probe: &Probe| {
        let is_class = probe.scheduled.is_some() && probe.way == way;
        is_class || probe.steering.iter().any(is_there)
    };
    let done_there: Vec<usize> = (plan.probes.iter().enumerate())
        .filter_map(|(number, probe)| is_done_there(probe).then_some(number))
        .collect();
    let is_loaded = load::receivers_at(plan, &plan.probes, way) != LoadsEnd::default();
    let is_asked = is_loaded || !done_there.is_empty();
    let has_guests = far_guests::machines(plan, Some(host)).next().is_some();
    if !is_asked && !has_guests {
        return Ok(Lacks::default());
    }
    let told = bounds(remote)?;
    let mut lacks = match has_guests {
        true => far_guests::lacks(plan, host, &told)?,
        false => Lacks::default(),
    };
    let turn = plan.settle + plan.turn;
    match told.map(|ready| ready.most_ns) {
        // Loads go to what is started there by hand.
        Err(_) if done_there.is_empty() => {}
        Err(why) => lacks.rows.push((done_there, format!("{why:#}"))),
        // Who is older does not tell.
        Ok(u64::MAX) => {}
        Ok(most_ns) => {
            let most = Duration::from_nanos(most_ns);
            if is_asked && turn > most {
                lacks.whole.push(format!(
                    "a turn of {turn:?} with `settle` is longer than its server does anything for a lab, {most:?}: take a shorter `turn`, or start \
                     `ringside serve --lab` there with --max-time {}",
                    turn.as_secs_f64().ceil()
                ));
            }
        }
    }
    Ok(lacks)
}

/// What a server allows, or why it does nothing for a lab.
fn bounds(remote: &RemoteArgs) -> Result<Result<Ready>> {
    let dialled = remote.dial()?.context("a server has an address")?;
    // Nothing to do, and the answer has what it allows.
    let nothing = schedule::start(Errand::Loads(LoadsEnd::default()))?;
    Ok(dialled.start(nothing).map(|far| {
        let ready = far.ready.clone();
        far.finish(0);
        ready
    }))
}
