//! What other machines have to be for a lab, asked before anything is built: how they are reached, for how long their servers do something for a lab, and what
//! guests they start.

use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use ringside_measure::control::{Errand, LoadsEnd, Ready};

use super::plan::{At, Place, Plan, Serve, Way};
use super::{far_guests, load, schedule};
use crate::serve::RemoteArgs;

/// What it lacks of them, a sentence for each.
pub(super) fn lacks(plan: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    for (number, host) in plan.hosts.iter().enumerate() {
        let Place::Serve(serve) = &host.place else { continue };
        let at = |error: Error| format!("the host {} ({}): {error:#}", host.name, serve.at);
        match remote(serve).and_then(|remote| lacks_at(plan, number, &remote)) {
            Ok(lacks) => all.extend(lacks.into_iter().map(|lack| at(Error::msg(lack)))),
            Err(error) => all.push(at(error)),
        }
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

fn lacks_at(plan: &Plan, host: usize, remote: &RemoteArgs) -> Result<Vec<String>> {
    let way = Way::Serve(host);
    let schedule = plan.schedules.iter().find(|schedule| schedule.way == way);
    if let Some(schedule) = schedule
        && let Some(router) = remote.router()?
    {
        // Its streams would have the router's hardware address, and no tag behind it.
        return Ok(vec![format!(
            "the schedule {} goes to a host behind the router {router}: VLAN priorities and time slots end there. Put both hosts on one link, and name \
             the server by its address on that; probes and loads go through routers",
            schedule.name
        )]);
    }
    let is_steered = (plan.steerings.iter()).any(|steering| steering.at == At::There && steering.host == host);
    let is_loaded = load::receivers_at(plan, &plan.probes, way) != LoadsEnd::default();
    let has_guests = far_guests::machines(plan, Some(host)).next().is_some();
    if schedule.is_none() && !is_steered && !is_loaded && !has_guests {
        return Ok(Vec::new());
    }
    let told = bounds(remote)?;
    let mut lacks = far_guests::lacks(plan, host, &told)?;
    // A server that does nothing of that kind is the reason in a row, and one that is older does not tell.
    let most = told
        .ok()
        .map(|ready| ready.most_ns)
        .filter(|most_ns| *most_ns != u64::MAX);
    let (turn, most) = (plan.settle + plan.turn, most.map(Duration::from_nanos));
    if let Some(most) = most.filter(|most| turn > *most) {
        lacks.push(format!(
            "a turn of {turn:?} with `settle` is longer than its server does anything for a lab, {most:?}: take a shorter `turn`, or start \
             `ringside serve --lab` there with --max-time {}",
            turn.as_secs_f64().ceil()
        ));
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
