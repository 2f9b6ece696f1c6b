//! What other machines have to be for a lab, asked before anything is built: how they are reached, and for how long their servers do something for a lab.

use std::time::Duration;

use anyhow::{Context as _, Error, Result};
use ringside_measure::control::{Errand, LoadsEnd};

use super::plan::{At, Place, Plan, Serve, Way};
use super::{load, schedule};
use crate::serve::RemoteArgs;

/// What it lacks of them, a sentence for each.
pub(super) fn lacks(plan: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    for (number, host) in plan.hosts.iter().enumerate() {
        let Place::Serve(serve) = &host.place else { continue };
        let at = |error: Error| format!("the host {} ({}): {error:#}", host.name, serve.at);
        match remote(serve).and_then(|remote| lacks_at(plan, number, &remote)) {
            Ok(lacks) => all.extend(lacks.map(|lack| at(Error::msg(lack)))),
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

fn lacks_at(plan: &Plan, host: usize, remote: &RemoteArgs) -> Result<Option<String>> {
    let way = Way::Serve(host);
    let schedule = plan.schedules.iter().find(|schedule| schedule.way == way);
    if let Some(schedule) = schedule
        && let Some(router) = remote.router()?
    {
        // Its streams would have the router's hardware address, and no tag behind it.
        return Ok(Some(format!(
            "the schedule {} goes to a host behind the router {router}: VLAN priorities and time slots end there. Put both hosts on one link, and name \
             the server by its address on that; probes and loads go through routers",
            schedule.name
        )));
    }
    let is_steered = (plan.steerings.iter()).any(|steering| steering.at == At::There && steering.host == host);
    let is_loaded = load::receivers_at(plan, &plan.probes, way) != LoadsEnd::default();
    if schedule.is_none() && !is_steered && !is_loaded {
        return Ok(None);
    }
    let most = longest(remote)?;
    let turn = plan.settle + plan.turn;
    Ok(most.filter(|most| turn > *most).map(|most| {
        format!(
            "a turn of {turn:?} with `settle` is longer than its server does anything for a lab, {most:?}: take a shorter `turn`, or start \
             `ringside serve --lab` there with --max-time {}",
            turn.as_secs_f64().ceil()
        )
    }))
}

/// For how long a server does something for a lab; `None` if it does nothing of that kind, which is the reason in a row, or does not tell.
fn longest(remote: &RemoteArgs) -> Result<Option<Duration>> {
    let dialled = remote.dial()?.context("a server has an address")?;
    // Nothing to do, and the answer has what it allows.
    let nothing = schedule::start(Errand::Loads(LoadsEnd::default()))?;
    let Ok(far) = dialled.start(nothing) else {
        return Ok(None);
    };
    let most_ns = far.ready.most_ns;
    far.finish(0);
    Ok((most_ns != u64::MAX).then(|| Duration::from_nanos(most_ns)))
}
