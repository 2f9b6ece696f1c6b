//! The matrix, of the turns that are kept.

use anyhow::{Context as _, Result};
use ringside_measure::compare::{self, Ratio, Round, STEAL_LIMIT, steal_limit};
use ringside_measure::latency::{Jitter, Latency, Summary};
use ringside_measure::probe::Clock;
use ringside_measure::schema::{
    LabCell, LabLoad, LabMachine, LabRedirected, LabRestart, LabResult, LabSchedule, LabStages, LabSteering,
    LabWindows, LatencyResult, LoadKind,
};
use ringside_measure::steer;

use ringside_netlab::guest::Accelerator;

use super::file::Text;
use super::folder::{Folder, Measured, Outcome, Turn};
use super::passed;
use super::plan::{Place, Plan};
use super::run::Cell;
use super::schedule::clocks;
use super::stages;
use crate::report::lab_stages;
use crate::session::nanos;

/// A round whose median is told, and the number of the round.
type Medians = Vec<(u32, Round)>;

/// The result of a run, finished or not.
pub(super) fn of(plan: &Plan, text: &Text, folder: &Folder) -> Result<LabResult> {
    let cells = Cell::all(plan);
    let medians: Vec<Medians> = (0..cells.len()).map(|number| medians(turns(folder, number))).collect();
    let told: Vec<LabCell> = cells
        .iter()
        .enumerate()
        .map(|(number, cell)| {
            let like = |probe: usize, is_loaded| {
                let wanted = Cell {
                    probe,
                    is_loaded,
                    ..*cell
                };
                cells.iter().position(|cell| *cell == wanted).map(|at| &medians[at])
            };
            // Of a path that is measured one way only there may be no base.
            let idle = like(cell.probe, false).filter(|_| cell.is_loaded);
            let of = plan.base(cell.probe, cell.is_loaded);
            let base = like(of, cell.is_loaded).filter(|_| cell.probe != of);
            let ratio = |of: Option<&Medians>| paired(of?, &medians[number]);
            let mut told = one(plan, *cell, turns(folder, number))
                .with_context(|| format!("the turns in {}", folder.path().display()))?;
            (told.ratio_to_idle, told.ratio_to_base) = (ratio(idle), ratio(base));
            told.base = told
                .ratio_to_base
                .filter(|_| of != 0)
                .map(|_| plan.probes[of].name.clone());
            Ok(told)
        })
        .collect::<Result<_>>()?;
    let stages: Vec<LabStages> = stages::all(plan)
        .into_iter()
        .filter_map(|part| {
            let name = &plan.probes[part.probe].name;
            let is_it = |stages: &&LabStages| stages.path == *name && stages.condition == part.condition();
            folder.stages.iter().find(is_it).cloned()
        })
        .collect();
    let begun = folder.turns.iter().map(|turn| turn.round + 1).max().unwrap_or(0);
    Ok(LabResult {
        title: plan.title.clone(),
        rounds: begun,
        turn_ns: nanos(plan.turn),
        steal_limit_percent: STEAL_LIMIT * 100.0,
        base: plan.probes.first().map(|probe| probe.name.clone()).unwrap_or_default(),
        machines: machines(plan)
            .into_iter()
            .chain(folder.guests.iter().cloned())
            .collect(),
        warnings: warnings(plan, &told, &stages, folder),
        interrupted: begun < plan.rounds || folder.turns.len() < cells.len() || stages.len() < stages::all(plan).len(),
        stages,
        cells: told,
        restarts: folder.restarts.clone(),
        file: text.text.clone(),
    })
}

/// The turns of a cell, by rounds.
fn turns(folder: &Folder, cell: usize) -> Vec<&Turn> {
    let mut turns: Vec<&Turn> = folder.turns.iter().filter(|turn| turn.cell == cell).collect();
    turns.sort_by_key(|turn| turn.round);
    turns
}

fn measured<'t>(turns: &[&'t Turn]) -> Vec<(u32, &'t Measured)> {
    let measured = turns.iter().filter_map(|turn| match &turn.outcome {
        Outcome::Measured(measured) => Some((turn.round, &**measured)),
        Outcome::Failed(_) => None,
    });
    measured.collect()
}

#[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns")]
fn medians(turns: Vec<&Turn>) -> Medians {
    let of = |(round, measured): (u32, &Measured)| {
        let value = measured.corrected?.p50_ns? as f64;
        Some((
            round,
            Round {
                value,
                steal: measured.steal,
            },
        ))
    };
    measured(&turns).into_iter().filter_map(of).collect()
}

/// Rounds in proportion to those of the same number.
fn paired(base: &Medians, of: &Medians) -> Option<Ratio> {
    let pairs = base.iter().filter_map(|(round, base)| {
        let (_, of) = of.iter().find(|(other, _)| other == round)?;
        Some((*base, *of))
    });
    let (base, of): (Vec<Round>, Vec<Round>) = pairs.unzip();
    compare::ratio(&base, &of).ok()
}

fn one(plan: &Plan, cell: Cell, turns: Vec<&Turn>) -> Result<LabCell> {
    let probe = &plan.probes[cell.probe];
    let all = measured(&turns);
    let limit = steal_limit(all.iter().map(|(_, turn)| turn.steal));
    let counting = all.iter().map(|(_, turn)| *turn);
    let counting: Vec<&Measured> = counting.filter(|turn| turn.steal <= limit).collect();
    let failures: Vec<&String> = turns
        .iter()
        .filter_map(|turn| match &turn.outcome {
            Outcome::Failed(why) => Some(why),
            Outcome::Measured(_) => None,
        })
        .collect();
    let number = |turns: usize| u32::try_from(turns).unwrap_or(u32::MAX);
    let unavailable = match (counting.is_empty(), failures.last()) {
        (false, _) => None,
        (true, Some(why)) => Some((*why).clone()),
        (true, None) => Some("it has not had its turn".to_owned()),
    };
    let raw = merged(
        counting
            .iter()
            .filter_map(|turn| turn.raw_hdr.as_ref().zip(turn.raw.as_ref())),
    )?;
    let corrected = merged(
        counting
            .iter()
            .filter_map(|turn| turn.corrected_hdr.as_ref().zip(turn.corrected.as_ref())),
    )?;
    Ok(LabCell {
        path: probe.name.clone(),
        description: probe.description.clone(),
        condition: match cell.is_loaded {
            true => LoadKind::Foreign,
            false => LoadKind::Idle,
        },
        loads: loads(&counting),
        unavailable,
        probes: counting.iter().map(|turn| turn.probes).sum(),
        not_sent_probes: counting.iter().map(|turn| turn.not_sent_probes).sum(),
        latency: LatencyResult {
            kind: cell.kind,
            clock: match probe.scheduled {
                Some(_) => Clock::Tai,
                None => Clock::Monotonic,
            },
            raw: raw.summary(),
            corrected: corrected.summary(),
            raw_hdr: raw.to_hdr(),
            corrected_hdr: corrected.to_hdr(),
            // Only of classes, each of which is one stream in every turn.
            jitter: Jitter::together(counting.iter().filter_map(|turn| turn.jitter)),
            impossible_packets: counting.iter().map(|turn| turn.impossible_packets).sum(),
        },
        rounds: medians(turns.clone()).into_iter().map(|(_, round)| round).collect(),
        turns_measured: number(all.len()),
        turns_disturbed: number(all.iter().filter(|(_, turn)| turn.steal > STEAL_LIMIT).count()),
        turns_left_out: number(all.len() - counting.len()),
        turns_repeated: all.iter().map(|(_, turn)| turn.repeats).sum(),
        failed_turns: u32::try_from(failures.len()).unwrap_or(u32::MAX),
        failure: failures.last().map(|why| (*why).clone()),
        waiting_percent: match probe.scheduled {
            Some(_) => None,
            None => mean(counting.iter().map(|turn| turn.waiting * 100.0)),
        },
        clock: counting
            .iter()
            .filter_map(|turn| turn.clock)
            .max_by_key(|clock| clock.uncertainty_ns),
        ratio_to_idle: None,
        ratio_to_base: None,
        base: None,
        schedule: windows(&counting)?,
        steering: steering(&counting),
        redirected: counting
            .iter()
            .filter_map(|turn| turn.redirected)
            .reduce(|all, more| LabRedirected {
                to_guest_packets: all.to_guest_packets + more.to_guest_packets,
                to_guest_passed_packets: all.to_guest_passed_packets + more.to_guest_passed_packets,
                from_guest_packets: all.from_guest_packets + more.from_guest_packets,
                from_guest_passed_packets: all.from_guest_passed_packets + more.from_guest_passed_packets,
            }),
        tap: passed::together(counting.iter().filter_map(|turn| turn.tap)),
    })
}

/// Of a class of a schedule: the windows of all turns.
fn windows(turns: &[&Measured]) -> Result<Option<LabSchedule>> {
    let all = || turns.iter().filter_map(|turn| turn.schedule.as_ref());
    let Some(first) = all().next() else { return Ok(None) };
    let gap = merged(all().filter_map(|one| one.gap_hdr.as_ref().zip(one.gap.as_ref())))?;
    Ok(Some(LabSchedule {
        skipped_packets: all().map(|one| one.skipped_packets).sum(),
        early_packets: all().map(|one| one.early_packets).sum(),
        late_packets: all().map(|one| one.late_packets).sum(),
        late_most_ns: all().filter_map(|one| one.late_most_ns).max(),
        missed_packets: all()
            .filter_map(|one| one.missed_packets)
            .reduce(|all, more| all + more),
        windows: match all().all(|one| one.windows.is_by_clock()) {
            true => LabWindows::Clock,
            false => LabWindows::Fastest,
        },
        gap: gap.summary(),
        gap_hdr: gap.to_hdr(),
        clocks: clocks::together(all().filter_map(|one| one.clocks.as_deref())).map(Box::new),
        ..first.clone()
    }))
}

/// What landed where in all turns, for each end that was steered.
fn steering(turns: &[&Measured]) -> Vec<LabSteering> {
    let Some(first) = turns.first() else { return Vec::new() };
    let of = |(at, one): (usize, &LabSteering)| {
        let seen = turns
            .iter()
            .filter_map(|turn| turn.steering.get(at).map(|one| &one.seen));
        Some(LabSteering {
            seen: steer::together(seen)?,
            ..one.clone()
        })
    };
    first.steering.iter().enumerate().filter_map(of).collect()
}

fn merged<'t>(all: impl Iterator<Item = (&'t String, &'t Summary)>) -> Result<Latency> {
    let mut together = Latency::new();
    for (hdr, summary) in all {
        together.merge(&Latency::from_hdr_and(hdr, summary)?);
    }
    Ok(together)
}

/// What the loads did in the mean of the turns.
fn loads(turns: &[&Measured]) -> Vec<LabLoad> {
    let Some(first) = turns.first() else { return Vec::new() };
    let of = |(at, load): (usize, &LabLoad)| {
        let each = || turns.iter().filter_map(move |turn| turn.loads.get(at));
        LabLoad {
            sent_pps: mean(each().filter_map(|load| load.sent_pps)),
            received_pps: mean(each().filter_map(|load| load.received_pps)),
            sent_bits_per_s: mean(each().filter_map(|load| load.sent_bits_per_s)),
            received_bits_per_s: mean(each().filter_map(|load| load.received_bits_per_s)),
            requests_per_s: mean(each().filter_map(|load| load.requests_per_s)),
            ..load.clone()
        }
    };
    first.loads.iter().enumerate().map(of).collect()
}

#[allow(clippy::cast_precision_loss, reason = "some turns")]
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn machines(plan: &Plan) -> Vec<LabMachine> {
    let hosts = plan.hosts.iter().enumerate().filter_map(|(number, host)| {
        let (kind, is_here) = match host.place {
            // How it came up is known.
            Place::Guest(_) => return None,
            Place::Namespace => ("namespace", true),
            Place::Here => ("here", true),
            Place::Serve(_) => ("serve", false),
        };
        Some(LabMachine {
            name: host.name.clone(),
            kind: kind.to_owned(),
            cpu: is_here.then(|| plan.cpu(number)),
            attachment: None,
            accelerator: None,
            kernel_release: None,
        })
    });
    hosts.collect()
}

fn warnings(plan: &Plan, cells: &[LabCell], stages: &[LabStages], folder: &Folder) -> Vec<String> {
    let mut all = Vec::new();
    let is_emulated = |guest: &&LabMachine| guest.accelerator.as_deref() == Some(Accelerator::Tcg.name());
    let emulated: Vec<&str> = folder
        .guests
        .iter()
        .filter(is_emulated)
        .map(|guest| guest.name.as_str())
        .collect();
    if !emulated.is_empty() {
        all.push(format!(
            "the CPUs of {} are emulated (tcg): their times say nothing about hardware, only how these paths compare with each other here",
            emulated.join(", ")
        ));
    }
    let waited = cells
        .iter()
        .filter(|cell| cell.condition == LoadKind::Idle)
        .filter_map(|cell| {
            Some((
                cell.waiting_percent.filter(|percent| *percent > STEAL_LIMIT * 100.0)?,
                cell,
            ))
        })
        .max_by(|a, b| a.0.total_cmp(&b.0));
    if let Some((percent, cell)) = waited {
        all.push(format!(
            "a thread of a probe was ready and kept off its CPU for {percent:.0} % of the time, worst in {}, {}, idle: something else \
             ran there",
            cell.path,
            cell.latency.kind.name()
        ));
    }
    let impossible = |cell: &&LabCell| cell.latency.impossible_packets != 0;
    if let Some((cell, clock)) = cells
        .iter()
        .filter(impossible)
        .find_map(|cell| Some((cell, cell.clock?)))
    {
        all.push(format!(
            "{} packets of {} came before they were due or sent by the other end's clock, which is known to ± {} ns: they are not among its times",
            cell.latency.impossible_packets, cell.path, clock.uncertainty_ns
        ));
    }
    let by_one_clock = cells.iter().filter(|cell| cell.clock.is_none());
    let impossible: u64 = by_one_clock.map(|cell| cell.latency.impossible_packets).sum();
    if impossible != 0 {
        all.push(format!(
            "{impossible} probes were received before they were sent: the clocks of the CPUs do not agree, and no figure is to be \
             trusted"
        ));
    }
    let not_sent = cells.iter().filter(|cell| cell.schedule.is_none());
    let not_sent: u64 = not_sent.map(|cell| cell.not_sent_probes).sum();
    if not_sent != 0 {
        all.push(format!(
            "{not_sent} probes were due while an answer was waited for that never came, and were not sent"
        ));
    }
    let short = |cell: &&LabCell| {
        let load = cell
            .loads
            .iter()
            .find_map(|load| Some((load.sent_pps?, load.received_pps?)));
        load.is_some_and(|(sent, received)| received < sent * 0.99)
    };
    let stolen = stages.iter().filter(|of| of.steal_percent > STEAL_LIMIT * 100.0);
    let stolen: Vec<&str> = stolen.map(|of| of.path.as_str()).collect();
    if !stolen.is_empty() {
        all.push(format!(
            "the hypervisor took more than {:.0} % of the CPU time from the traced turns of {}: it is in whatever stage it struck",
            STEAL_LIMIT * 100.0,
            stolen.join(", ")
        ));
    }
    all.extend(stages.iter().filter_map(lab_stages::left_out));
    if let Some(of) = stages
        .iter()
        .find(|of| of.clock.is_some_and(|clock| clock.contradiction_ns > 0))
    {
        all.push(format!(
            "the clock of the guest of {} does not run evenly: how its stages lie beside the host's is not known as well as is told",
            of.path
        ));
    }
    if let Some(cell) = cells.iter().find(short) {
        all.push(format!(
            "less of the load arrived than was sent, as beside {}: the path was full",
            cell.path
        ));
    }
    let slow = |cell: &&LabCell| {
        let mut rates = cell
            .loads
            .iter()
            .filter_map(|load| Some((load.sent_bits_per_s?, load.asked_bits_per_s?)));
        rates.any(|(sent, asked)| sent < asked * 0.9)
    };
    if let Some(cell) = cells.iter().find(slow) {
        all.push(format!(
            "a load sent less than nine tenths of what it was asked for, as beside {}: that was another one than the file says",
            cell.path
        ));
    }
    let taps = || cells.iter().filter_map(|cell| cell.tap);
    if plan.rings && taps().next().is_some() && taps().all(|tap| tap.waiting.is_none()) {
        all.push(
            "what waits in TAP devices was to be counted, and nothing of it was seen: the run has said why".to_owned(),
        );
    }
    if !folder.restarts.is_empty() {
        let of = |of: &LabRestart| format!("{} in {}: {}", of.guest, of.turn, of.reason);
        let of: Vec<String> = folder.restarts.iter().map(of).collect();
        all.push(format!(
            "turns repeated, because a guest ended in them and was started again: {} ({})",
            of.len(),
            of.join("; ")
        ));
    }
    let later = "turns after that may have been measured with it";
    all.extend(folder.left.iter().map(|left| format!("{left}; {later}")));
    let is_past = |cell: &&LabCell| {
        let lane = cell.redirected.filter(|_| cell.unavailable.is_none());
        lane.is_some_and(|lane| lane.to_guest_packets < cell.probes.received)
    };
    if let Some(cell) = cells.iter().find(is_past) {
        all.push(format!(
            "probes of {} did not take the express lane but the bridge beside it: express in the lab file names other packets",
            cell.path
        ));
    }
    all
}

#[cfg(test)]
#[path = "result_tests.rs"]
mod tests;
