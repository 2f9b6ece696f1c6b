//! Turn by turn, round by round: every cell in each round, every other round backwards, each turn kept before the next begins.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::schema::{LabClock, LabRestart, LatencyKind};

use super::bed::Bed;
use super::folder::{Folder, Measured, Outcome, Turn as Kept};
use super::load::Running;
use super::one_way;
use super::plan::{Plan, Probe, Way};
use super::prober::Schedule;
use super::schedule;
use super::stages;
use super::steered::Steered;
use super::turn::{Reading, Turn};
use crate::clock::now_ns;
use crate::compare::{self, Bench, Contender, Operation, order};
use crate::left::Left;
use crate::output;
use crate::stop::Stop;

/// A cell that failed so often and never worked has no further turn.
const FAILURES: usize = 2;

/// Highest number of tries of a turn that the hypervisor takes the machine away from.
pub(super) const TRIES: u32 = 4;

/// How often a turn is repeated in which a guest has ended.
const RESTARTS: u32 = 2;

/// Numbers that a turn may have for its sessions.
const SESSIONS: u32 = 4;

/// A path under one condition, by one kind of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    /// Number of the probe.
    pub(super) probe: usize,
    pub(super) kind: LatencyKind,
    pub(super) is_loaded: bool,
}

impl Cell {
    /// All of a lab, in order of the file: idle and loaded next to each other.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let mut cells = Vec::new();
        for (number, probe) in plan.probes.iter().enumerate() {
            for &kind in &probe.measures {
                cells.extend(probe.conditions().map(|is_loaded| Self {
                    probe: number,
                    kind,
                    is_loaded,
                }));
            }
        }
        cells
    }

    /// In words.
    pub(super) fn name(self, plan: &Plan) -> String {
        let kind = self.kind.name();
        format!(
            "{}, {kind}, {}",
            plan.probes[self.probe].name,
            condition(self.is_loaded)
        )
    }
}

pub(super) fn condition(is_loaded: bool) -> &'static str {
    if is_loaded { "loaded" } else { "idle" }
}

/// Measures what is missing of a run.
///
/// # Errors
/// When the lab itself fails: a link that is gone, a load that ends, a disk that is full, an interruption. A cell that cannot be had
/// is no error: its turns are kept as failed.
pub(super) fn measure(plan: &Plan, bed: &mut Bed, folder: &mut Folder, stop: &Stop) -> Result<()> {
    let cells = Cell::all(plan);
    let all = cells.len() * plan.rounds as usize;
    let bar = progress(all + stages::all(plan).len());
    bar.set_position((folder.turns.len() + folder.stages.len()) as u64);
    #[allow(clippy::cast_possible_truncation, reason = "any number that another run has not")]
    let mut session = now_ns() as u32;
    for round in 0..plan.rounds {
        for number in order(cells.len(), round) {
            let cell = cells[number];
            if folder.has(round, number) || is_given_up(folder, number) {
                continue;
            }
            let name = cell.name(plan);
            begins(&bar, format!("round {}: {name}", round + 1));
            let together = together(plan, &cells, number);
            let (turn, repeats) = until_quiet(|| {
                let turn = with_guests(plan, bed, (&name, folder, &bar, stop), |bed| {
                    session = session.wrapping_add(SESSIONS);
                    one(plan, bed, cell, session, stop)
                })?;
                let stolen = stolen(&turn);
                if let Some(steal) = stolen {
                    let percent = steal * 100.0;
                    let told = format_args!("{name}: the hypervisor took {percent:.0} % of the CPU time");
                    bar.suspend(|| output::note(told));
                }
                Ok((turn, stolen.is_none()))
            })?;
            let outcomes = match turn {
                Ok(measured) => measured
                    .into_iter()
                    .map(|measured| Outcome::Measured(Box::new(Measured { repeats, ..measured })))
                    .collect(),
                Err(Fault::Cell(error)) => {
                    // What is broken for all is not this cell's fault.
                    bed.check(plan)?;
                    if stop.is_set() {
                        bail!("interrupted");
                    }
                    bar.suspend(|| output::note(format_args!("{name}: {error:#}")));
                    vec![Outcome::Failed(format!("{error:#}")); together.len()]
                }
                Err(Fault::Lab(error)) => {
                    // A load ends with the guest that it is for.
                    bed.check(plan)?;
                    return Err(error.context(name));
                }
            };
            for (cell, outcome) in together.into_iter().zip(outcomes) {
                // Some of them may be there already, of a run that was killed between two.
                if !folder.has(round, cell) {
                    folder.add(Kept { round, cell, outcome })?;
                    bar.inc(1);
                }
            }
        }
    }
    stages::measure(plan, bed, folder, session.wrapping_add(SESSIONS), (&bar, stop))?;
    bar.finish_and_clear();
    Ok(())
}

/// Numbers of the cells that have their turn with one: the classes of its schedule, in their order; else itself.
fn together(plan: &Plan, cells: &[Cell], number: usize) -> Vec<usize> {
    let schedule = |cell: &Cell| plan.probes[cell.probe].scheduled.map(|of| of.schedule);
    let cell = cells[number];
    match schedule(&cell) {
        None => vec![number],
        of => {
            let is_it = |other: &Cell| schedule(other) == of && other.is_loaded == cell.is_loaded;
            (0..cells.len()).filter(|other| is_it(&cells[*other])).collect()
        }
    }
}

/// Tries a turn until one is quiet, or there were enough; the last one, and how many were before it.
fn until_quiet<T>(mut one: impl FnMut() -> Result<(T, bool)>) -> Result<(T, u32)> {
    let mut repeats = 0;
    loop {
        let (turn, is_quiet) = one()?;
        if is_quiet || repeats + 1 == TRIES {
            return Ok((turn, repeats));
        }
        repeats += 1;
    }
}

/// Tries a turn until no guest ends in it, at most [`RESTARTS`] times more. Guests that have ended
/// are started again.
///
/// # Errors
/// When a guest does not start again, and when that cannot be written down.
pub(super) fn with_guests<T>(
    plan: &Plan,
    bed: &mut Bed,
    (name, folder, bar, stop): (&str, &mut Folder, &ProgressBar, &Stop),
    mut one: impl FnMut(&Bed) -> Result<T, Fault>,
) -> Result<Result<T, Fault>> {
    let mut restarts = 0;
    loop {
        let turn = one(bed);
        keep_left(bed.left(), folder, bar)?;
        if turn.is_ok() || stop.is_signal() {
            return Ok(turn);
        }
        let ended = bed.ended_guests();
        let Some((last, reason)) = ended.last().cloned() else {
            return Ok(turn);
        };
        let machines: Vec<usize> = ended.iter().map(|(machine, _)| *machine).collect();
        for (machine, reason) in ended {
            let guest = &plan.guests[machine].name;
            let told = format!("the guest {guest} has ended and is started again; {reason}");
            bar.suspend(|| output::note(format_args!("{name}: {told}")));
            folder.add_restart(LabRestart {
                guest: guest.clone(),
                turn: name.to_owned(),
                reason,
            })?;
        }
        bed.restart_guests(plan, &machines)?;
        if restarts == RESTARTS {
            let (guest, tries) = (&plan.guests[last].name, restarts + 1);
            let why = anyhow!("the guest {guest} ended in each of {tries} tries; {reason}");
            return Ok(Err(Fault::Cell(why)));
        }
        restarts += 1;
    }
}

/// The share of the CPU time that the hypervisor took during a turn, if that is too much for it to count.
fn stolen(turn: &Result<Vec<Measured>, Fault>) -> Option<f64> {
    let measured = turn.as_ref().ok()?.iter();
    let steal = measured.map(|measured| measured.steal).fold(0.0, f64::max);
    (steal > STEAL_LIMIT).then_some(steal)
}

fn progress(all: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {pos}/{len} turns, about {eta} left  {msg}");
    ProgressBar::new(all as u64).with_style(style.expect("a constant template"))
}

/// Says and keeps what could not be undone of a turn that is over, whatever came of it.
pub(super) fn keep_left(left: &Left, folder: &mut Folder, bar: &ProgressBar) -> Result<()> {
    let left = left.take();
    for sentence in &left {
        bar.suspend(|| output::note(format_args!("not undone: {sentence}")));
    }
    folder.add_left(left)
}

/// Tells which turn begins: a bar on a terminal, elsewhere a line for each.
pub(super) fn begins(bar: &ProgressBar, turn: String) {
    if bar.is_hidden() {
        let (done, all) = (bar.position(), bar.length().unwrap_or(0));
        output::note(format_args!("turn {} of {all}, {turn}", done + 1));
    }
    bar.set_message(turn);
}

fn is_given_up(folder: &Folder, cell: usize) -> bool {
    let turns = folder.turns.iter().filter(|turn| turn.cell == cell);
    let failed = turns
        .clone()
        .filter(|turn| matches!(turn.outcome, Outcome::Failed(_)))
        .count();
    failed >= FAILURES && failed == turns.count()
}

/// Whose fault it is.
pub(super) enum Fault {
    /// Only this cell's.
    Cell(anyhow::Error),
    /// The lab cannot go on.
    Lab(anyhow::Error),
}

/// One turn of one cell, or of all classes of a schedule.
fn one(plan: &Plan, bed: &Bed, cell: Cell, session: u32, stop: &Stop) -> Result<Vec<Measured>, Fault> {
    let probe = &plan.probes[cell.probe];
    // In front of all sockets: they remember which queue they have sent by.
    let steered = Steered::begin(plan, bed, probe, stop).map_err(Fault::Cell)?;
    let mut loads = match cell.is_loaded {
        true => match bed.has(probe.way) {
            Ok(()) => Running::start(plan, bed, probe).map_err(Fault::Lab)?,
            Err(error) => return Err(Fault::Cell(error)),
        },
        false => Running::default(),
    };
    let before = bed.passed(probe.way).map_err(Fault::Lab)?;
    let readings = match probe.scheduled {
        Some(of) => schedule::turn(plan, bed, &plan.schedules[of.schedule], (session, &mut loads, stop)),
        None => turn(plan, bed, probe, cell.kind, (session, &mut loads, stop))
            .and_then(|reading| Ok(vec![measured(plan, bed, cell, reading)?])),
    };
    let mut readings = match readings {
        Err(error) if loads.is_broken() => return Err(Fault::Lab(error)),
        readings => readings.map_err(Fault::Cell)?,
    };
    let after = bed.passed(probe.way).map_err(Fault::Lab)?;
    let steering = steered.end().map_err(Fault::Cell)?;
    let loads = loads.end().map_err(Fault::Lab)?;
    for reading in &mut readings {
        reading.loads.clone_from(&loads);
    }
    if let Some(first) = readings.first_mut() {
        first.steering = steering;
        if let Some((before, after)) = before.zip(after) {
            (first.redirected, first.tap) = after.since(&before);
        }
    }
    Ok(readings)
}

fn measured(plan: &Plan, bed: &Bed, cell: Cell, mut reading: Reading) -> Result<Measured> {
    let probe = &plan.probes[cell.probe];
    let mut clock = None;
    let other_clock = match probe.way {
        Way::Link { .. } => None,
        Way::Serve(_) => Some(None),
        Way::Guest(guest) => Some(Some(guest)),
    };
    if let (LatencyKind::OneWay, Some(guest)) = (cell.kind, other_clock) {
        let (times, mapping) = one_way::times(&reading.trips, probe.uncertainty)?;
        reading.times = times;
        clock = Some(one_way::clock(&mapping, plan, bed, guest));
    }
    told(&reading, clock).context("no probe came through")
}

fn told(reading: &Reading, clock: Option<LabClock>) -> Option<Measured> {
    let (raw, corrected) = (reading.times.raw(), reading.times.corrected());
    Some(Measured {
        probes: reading.probes,
        not_sent_probes: reading.not_sent,
        impossible_packets: reading.times.impossible(),
        raw: Some(raw.summary()?),
        raw_hdr: Some(raw.to_hdr()?),
        corrected: Some(corrected.summary()?),
        corrected_hdr: Some(corrected.to_hdr()?),
        steal: reading.steal,
        repeats: 0,
        waiting: reading.waiting,
        clock,
        loads: Vec::new(),
        schedule: None,
        jitter: None,
        steering: Vec::new(),
        redirected: None,
        tap: None,
    })
}

/// One turn of a probe; of one way to a guest or another machine the round trips, with the far end's times.
pub(super) fn turn(
    plan: &Plan,
    bed: &Bed,
    probe: &Probe,
    kind: LatencyKind,
    (session, loads, stop): (u32, &mut Running<'_>, &Stop),
) -> Result<Reading> {
    let made;
    let path = match probe.way {
        Way::Link { .. } => {
            made = bed.path(probe.way)?;
            &made
        }
        Way::Serve(host) => bed.far(host)?,
        Way::Guest(guest) => bed.guest(guest)?,
    };
    let bench = bench(plan, probe);
    let contender = contender(path, &bench, probe);
    let _tag = contender.tag()?;
    let schedule = Schedule {
        // One way to a guest is a part of a round trip.
        wants_stamps: kind == LatencyKind::OneWay && path.turns.is_some(),
        ..pace(plan, probe, path)?
    };
    let turns = path.turns.as_ref();
    let start = turns.map(|_| contender.start()).transpose()?;
    let turn = Turn {
        bed: path,
        bench: &bench,
        contender,
        schedule: &schedule,
        session,
        loads,
        stop,
    };
    match turns.zip(start) {
        None => turn.run(kind),
        Some((turns, start)) => {
            turns.begin(start)?;
            let reading = turn.run_to_far();
            // Whatever came of it here: the far end's part is closed, and its own words say more.
            let far = turns.end()?;
            match far.lost {
                Some(why) => bail!("at the far end: {why}"),
                None => reading,
            }
        }
    }
}

pub(super) fn pace(plan: &Plan, probe: &Probe, path: &compare::Bed) -> Result<Schedule> {
    let (flow, frame) = path.frame(true, probe.frame_bytes.into())?;
    Ok(Schedule {
        rate: probe.rate,
        settle: plan.settle,
        turn: plan.turn,
        count: probe.count,
        sleeps: probe.sleeps,
        payload_len: frame.len() - flow.header_len(),
        wants_stamps: false,
    })
}

/// Where both ends of a path run, and for how long.
pub(super) fn bench(plan: &Plan, probe: &Probe) -> Bench {
    let far_cpu = match probe.way {
        Way::Link { link, back } => {
            let [a, b] = plan.links[link].ends;
            plan.cpu(if back { a } else { b })
        }
        // Where another machine's server runs, its own CPUs count: the first is there.
        Way::Serve(_) | Way::Guest(_) => 0,
    };
    Bench {
        lab: None,
        interface: None,
        slot: plan.turn,
        cpus: [plan.cpu(probe.from), far_cpu],
    }
}

/// What has its turn on a path.
pub(super) fn contender<'a>(path: &'a compare::Bed, bench: &'a Bench, probe: &Probe) -> Contender<'a> {
    Contender::new(path, bench, Operation::Ping, probe.kind, probe.frame_bytes)
        .to(probe.far_kind)
        .sleeping(probe.sleeps)
        .tagged(probe.pcp)
        .prioritised(probe.priority)
}

/// How long all turns take at least.
pub(super) fn time(plan: &Plan) -> Duration {
    let cells = Cell::all(plan);
    let first = |number: &usize| together(plan, &cells, *number).first() == Some(number);
    let count = |turns: usize| u32::try_from(turns).unwrap_or(u32::MAX);
    let turns = count((0..cells.len()).filter(first).count()).saturating_mul(plan.rounds);
    let traced = stages::all(plan)
        .into_iter()
        .map(|part| stages::time(plan, &plan.probes[part.probe]));
    (plan.turn + plan.settle) * turns + traced.sum::<Duration>()
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
