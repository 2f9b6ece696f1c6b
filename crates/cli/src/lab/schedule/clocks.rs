//! How right the clocks of a schedule's ends are, by whose word, and whether that is what the lab file asks for (`max-clock-offset`).
//!
//! Each end is asked as `ringside talker` and `ringside listener` ask by themselves: ptp4l, the NIC's clock, the kernel. What they say is of no use
//! where it is wrong, for instance where one of two hosts alone was told the number of leap seconds: so the packets of the turn have a say, too.

use anyhow::{Context as _, Result, ensure};
use ringside_measure::control::Errand;
use ringside_measure::schema::{ClockState, LabClocks};

use super::{Remote, errand};
use crate::lab::plan::{Host, Plan, Schedule, Way};
use crate::left::Left;
use crate::run::streams::{clock_state, refusal, us};
use crate::serve::RemoteArgs;
use crate::stop::Stop;

/// What the clocks of this machine and of another one lack for the schedules between them, a sentence for each.
///
/// # Errors
/// When the other one cannot be asked.
pub(in crate::lab) fn lacks(plan: &Plan, host: usize, remote: &RemoteArgs) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for schedule in plan.schedules.iter().filter(|of| of.way == Way::Serve(host)) {
        let Some(most) = schedule.most_clock_offset_ns else {
            continue;
        };
        let there = asked(remote)?;
        let way = remote.way()?.context("a server has an address")?;
        let here = clock_state(&schedule.ptp, &way.interface);
        let of = |host: &Host, state: &ClockState| refusal(state, most).map(|why| format!("{}: {why}", host.named()));
        let [near, far] = [schedule.from, host].map(|number| &plan.hosts[number]);
        let whys: Vec<String> = [of(near, &here), of(far, &there)].into_iter().flatten().collect();
        if !whys.is_empty() {
            all.push(format!("{}: {}", asks(schedule, most), whys.join("; ")));
        }
    }
    Ok(all)
}

/// What a server says of its clock.
fn asked(remote: &RemoteArgs) -> Result<ClockState> {
    let remote = Remote {
        args: remote,
        left: Left::default(),
    };
    let far = errand(&remote, Errand::Clock, &Stop::default()).context("asking how right its clock is")?;
    let told = far.finish(0);
    if let Some(why) = told.lost {
        anyhow::bail!("{why}");
    }
    Ok(*told
        .clock_state
        .context("its server does not tell how right its clock is")?)
}

fn asks(schedule: &Schedule, most: u64) -> String {
    format!("the schedule {} with max-clock-offset {}", schedule.name, us(most))
}

/// What is known of both clocks when a turn is over. `apart`: how far the listener's CLOCK_TAI is ahead by the packets, and how well that is known.
///
/// # Errors
/// Where it is worse than asked for: such a turn does not count.
pub(super) fn judge(
    schedule: &Schedule,
    [talker, listener]: [&ClockState; 2],
    apart: Option<(i64, u64)>,
) -> Result<LabClocks> {
    let clocks = LabClocks {
        most_offset_ns: schedule.most_clock_offset_ns,
        is_one: matches!(schedule.way, Way::Link { .. }),
        talker: talker.clone(),
        listener: listener.clone(),
        apart_ns: apart.map(|apart| apart.0),
        apart_uncertainty_ns: apart.map(|apart| apart.1),
    };
    let Some(most) = clocks.most_offset_ns.filter(|_| !clocks.is_one) else {
        return Ok(clocks);
    };
    for (state, whose) in [(talker, "talker"), (listener, "listener")] {
        if let Some(why) = refusal(state, most) {
            anyhow::bail!("{}: at the {whose} {why}", asks(schedule, most));
        }
    }
    // Each may be off by so much to its side.
    let at_least = apart.map_or(0, |(apart, uncertainty)| {
        apart.unsigned_abs().saturating_sub(uncertainty)
    });
    ensure!(
        at_least <= most.saturating_mul(2),
        "{}: both ends say that their clocks are right, and by the packets they are {} apart at least: was only one of the hosts told the number \
         of leap seconds?",
        asks(schedule, most),
        us(at_least)
    );
    Ok(clocks)
}

/// Of several turns: of each clock the worst that was told.
pub(in crate::lab) fn together<'c>(all: impl Iterator<Item = &'c LabClocks>) -> Option<LabClocks> {
    let worse = |a: ClockState, b: &ClockState| match (a.offset_ns, b.offset_ns) {
        (Some(was), Some(is)) if is <= was => a,
        (None, _) => a,
        _ => b.clone(),
    };
    all.cloned().reduce(|all, more| {
        let is_further = more.apart_ns.map(i64::unsigned_abs) > all.apart_ns.map(i64::unsigned_abs);
        let of = if is_further { &more } else { &all };
        LabClocks {
            apart_ns: of.apart_ns,
            apart_uncertainty_ns: of.apart_uncertainty_ns,
            talker: worse(all.talker, &more.talker),
            listener: worse(all.listener, &more.listener),
            ..all
        }
    })
}

#[cfg(test)]
#[path = "clocks_tests.rs"]
mod tests;
