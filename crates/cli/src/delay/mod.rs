//! `ringside delay`: from the XDP program to the application, in every way to wait, on NAPI's CPU and on another, with CPUs
//! that sleep and without.
//!
//! ```text
//!   NAPI's CPU          software interrupt: XDP program stamps the packet (hints) ── copy, RX ring, wake-up
//!                                              │◀──────────── the delay ──────────────▶│
//!   application's CPU                                          asleep or looking ──── dequeued: stamp
//! ```
//!
//! One queue is open for the whole run. The cells have their turns on it, round after round, every other round backwards.

mod args;
mod bed;
mod csv;
mod overhead;
mod plan;
mod reference;
mod sender;
mod series;
mod table;
mod turn;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::delay::{CStates, Wait};
use ringside_measure::probe::Clock;
use ringside_measure::schema::{ClockRead, DelayResult, Document, Outcome};
use ringside_nic::host::WakeUpLimit;

use crate::compare::order;
use crate::session::nanos;
use crate::stop::Stop;
use crate::{output, system};

pub(crate) use args::Args;

use bed::{Bed, Busy};
use plan::{Machine, Plan};
use series::Series;
pub(crate) use series::cell_name;
use turn::Turn;

/// Beside the packets: threads that start and end.
const OVERHEAD: Duration = Duration::from_millis(30);
/// What a turn may take beyond twice its time.
const PATIENCE: Duration = Duration::from_secs(1);
/// Medians of turns that differ by less are what turns are like.
const FAR_APART: f64 = 1.25;
/// All cells together, where others send and no time was given.
const LONGEST: Duration = Duration::from_secs(300);

/// Measures, prints the table, and writes JSON and CSV.
///
/// # Errors
/// When the path cannot be had, nothing was sampled, or the clocks did not agree; a cell that cannot be had is a row of the
/// table with its reason.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    let machine = Machine::read()?;
    machine.check(args)?;
    output::check(&args.output)?;
    if let Some(path) = &args.csv {
        output::check_file("--csv", path)?;
    }
    let stop = Stop::on_signals().context("listening for signals")?;
    let mut bed = Bed::open(args, &machine, &stop)?;
    let plan = Plan::new(args, &machine, bed.napi_cpu)?;
    let budget = Budget::new(args, &bed, plan.had());
    output::note(format_args!(
        "{}: {} cells in turn, {} rounds, {}",
        bed.description(),
        plan.had(),
        args.rounds,
        budget
    ));
    bed.notes.iter().for_each(output::note);

    let clock_read = plan.clock_read()?;
    let mut cells: Vec<Series> = plan.cells.iter().cloned().map(Series::new).collect();
    let rounds = interleave(args, &budget, &mut bed, &mut cells, &stop);
    if stop.is_signal() {
        output::note("ended early: the results so far");
    }
    if cells.iter().all(Series::is_empty) {
        let reason = cells.iter().find_map(Series::unavailable).unwrap_or_default();
        bail!("nothing was sampled: {reason}");
    }
    let impossible: u64 = cells.iter().map(Series::impossible).sum();
    let warnings = warnings(plan.warnings, &cells, impossible);
    let result = result(args, &bed, rounds, clock_read, &cells, warnings);
    let document = system::document(bed.record(), Outcome::Delay(result));
    let path: Vec<String> = [bed.description()].into_iter().chain(bed.notes.clone()).collect();
    let is_lab = bed.is_lab();
    // What is attached and mapped goes before anything is told.
    drop(bed);
    let told = tell(args, &document, &path, is_lab);
    // Also if standard output has failed: one of them may have been the reason for a long run.
    if let Some(path) = &args.csv {
        csv::write(path, &cells)?;
    }
    told?;
    if impossible != 0 {
        bail!(
            "{impossible} packets were dequeued before the XDP program saw them: the clocks of the CPUs do not agree, and no \
             figure is to be trusted"
        );
    }
    Ok(())
}

/// How much time there is.
struct Budget {
    interval: Duration,
    /// Samples of a turn.
    want: u64,
    warm_up: u64,
    /// A turn at the most.
    turn: Duration,
    /// All of it, as it is expected.
    expected: Duration,
    /// All of it at the most.
    most: Duration,
}

impl Budget {
    fn new(args: &Args, bed: &Bed, cells: usize) -> Self {
        let interval = bed.interval();
        let want = args.samples.div_ceil(u64::from(args.rounds));
        let turns = u32::try_from(cells).unwrap_or(u32::MAX).saturating_mul(args.rounds);
        let take = |packets: u64| interval.saturating_mul(u32::try_from(packets).unwrap_or(u32::MAX));
        let one = take(want + warm_up(want)).saturating_add(OVERHEAD);
        let patient = one.saturating_mul(2).saturating_add(PATIENCE);
        let time = args.time.or((!bed.is_lab()).then_some(LONGEST));
        let turn = match time {
            Some(time) => patient.min(time / turns.max(1)),
            None => patient,
        };
        // Where there is no time for all samples, the warm-up must not take what there is.
        let fits = turn.as_nanos() / interval.as_nanos().max(1);
        let fits = u64::try_from(fits).unwrap_or(u64::MAX);
        let warm_up = warm_up(want.min(fits)).min(fits / 4);
        Self {
            interval,
            want,
            warm_up,
            turn,
            expected: one.min(turn).saturating_mul(turns),
            most: time.unwrap_or(patient.saturating_mul(turns)),
        }
    }

    fn is_short(&self) -> bool {
        self.interval.as_secs_f64() * (self.want as f64) > self.turn.as_secs_f64()
    }
}

/// A twentieth: enough for caches, and not for much of the time.
fn warm_up(samples: u64) -> u64 {
    (samples / 20).clamp(10, 200)
}

impl std::fmt::Display for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} samples and {} packets of warm-up a turn; about {:.0} s, {:.0} s at the most",
            self.want,
            self.warm_up,
            self.expected.as_secs_f64(),
            self.most.as_secs_f64().ceil()
        )?;
        match self.is_short() {
            true => f.write_str("; not all samples fit into that time: give more with --time"),
            false => Ok(()),
        }
    }
}

/// Turn by turn, round by round, until all samples are there, the time is over, or a signal comes; how many rounds were begun.
fn interleave(args: &Args, budget: &Budget, bed: &mut Bed, cells: &mut [Series], stop: &Stop) -> u32 {
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a constant template"));
    let over = Instant::now() + budget.most;
    let (mut round, mut number) = (0, 0);
    // As many rounds again to make up for turns that were left out.
    while round < args.rounds * 2 && !stop.is_set() {
        let spare = round >= args.rounds;
        for index in order(cells.len(), round) {
            let series = &mut cells[index];
            let missing = args.samples.saturating_sub(series.samples());
            let left = over.saturating_duration_since(Instant::now());
            if stop.is_set() || series.is_given_up() || missing == 0 || left.is_zero() {
                continue;
            }
            if spare && !series.has_left_out() {
                continue;
            }
            let Ok(place) = series.place else { continue };
            bar.set_message(format!("round {}: {}", round + 1, cell_name(series.cell)));
            bar.tick();
            number += 1;
            let turn = Turn {
                cell: series.cell,
                place,
                number,
                want: budget.want.min(missing),
                warm_up: budget.warm_up,
                longest: budget.turn.min(left),
                priority: args.priority,
            };
            series.add(one(args, bed, &turn, stop));
        }
        round += 1;
        let is_done = |series: &Series| series.is_given_up() || series.samples() >= args.samples;
        if cells.iter().all(is_done) || (round >= args.rounds && !cells.iter().any(Series::has_left_out)) {
            break;
        }
    }
    bar.finish_and_clear();
    round
}

/// One turn, with CPUs kept awake if the cell is about that.
fn one(args: &Args, bed: &mut Bed, turn: &Turn, stop: &Stop) -> Result<turn::Reading> {
    let _awake = match turn.cell.c_states {
        CStates::Off => Some(WakeUpLimit::hold(0)?),
        CStates::AsIs => None,
    };
    let busy = (turn.cell.wait == Wait::BusyPoll).then(|| Busy {
        options: args.busy_poll(),
        deferral: args.napi_defer.map(|defer| defer.0),
    });
    bed.turn(turn, busy, stop)
}

impl Plan {
    /// What reading the clock costs on a CPU of the application's.
    fn clock_read(&self) -> Result<ClockRead> {
        let place = self.cells.iter().find_map(|planned| planned.place.as_ref().ok());
        overhead::clock_read(place.context("a cell that can be had")?.application)
    }
}

/// All that a reader of the figures has to know.
fn warnings(mut warnings: Vec<String>, cells: &[Series], impossible: u64) -> Vec<String> {
    if let Some(warning) = cells.iter().find_map(Series::busy_warning) {
        warnings.push(format!(
            "{warning}. The cells of busy-poll show what its system calls cost on top of spinning"
        ));
    }
    if let Some(reason) = cells.iter().find_map(|series| series.unprivileged.as_ref()) {
        warnings.push(format!(
            "the test bed's sender has no real-time priority ({reason}): where it shares the CPU with an application that \
             spins, packets come less evenly"
        ));
    }
    let disturbance = cells.iter().filter_map(Series::disturbance).fold(0.0, f64::max);
    if disturbance > STEAL_LIMIT * 100.0 {
        warnings.push(format!(
            "disturbed: other processes had the CPU of a spinning application for up to {disturbance:.0} % of the time; on a \
             quiet machine the upper percentiles and the longest delays are lower"
        ));
    }
    warnings.extend(unsteady(cells));
    if impossible != 0 {
        warnings.push(format!(
            "{impossible} packets were dequeued before the XDP program saw them: the clocks of the CPUs do not agree"
        ));
    }
    warnings
}

/// Turns of one cell whose medians are far apart: a distribution over all of them is that of several machines.
#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn unsteady(cells: &[Series]) -> Option<String> {
    let medians = cells.iter().filter_map(|series| {
        let (least, most) = series.medians()?;
        Some((series.cell, least as f64, most as f64))
    });
    let apart: Vec<_> = medians.filter(|(_, least, most)| *most > least * FAR_APART).collect();
    let ratio = |(_, least, most): &(_, f64, f64)| most / least.max(1.0);
    let worst = apart.iter().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
    let &(cell, least, most) = worst;
    Some(format!(
        "the machine was not the same all the time: in {} of the cells the medians of the turns differ by more than a quarter, \
         most in {}, from {} to {} us (JSON has every turn)",
        apart.len(),
        cell_name(cell),
        table::micros(least),
        table::micros(most)
    ))
}

fn result(
    args: &Args,
    bed: &Bed,
    rounds: u32,
    clock_read: ClockRead,
    cells: &[Series],
    warnings: Vec<String>,
) -> DelayResult {
    DelayResult {
        clock: Clock::Monotonic,
        clock_read,
        interval_ns: bed.is_lab().then(|| nanos(args.interval())),
        observed_interval_ns: bed.observed.map(nanos),
        rounds,
        steal_limit_percent: STEAL_LIMIT * 100.0,
        cells: cells.iter().map(Series::cell).collect(),
        warnings,
    }
}

/// The table for people, on standard output unless the JSON goes there.
fn tell(args: &Args, document: &Document, path: &[String], is_lab: bool) -> Result<()> {
    let terminal = if args.output.json {
        std::io::stderr().is_terminal()
    } else {
        std::io::stdout().is_terminal()
    };
    let told = table::Told {
        path,
        is_lab,
        reference: args.reference,
        terminal,
    };
    let text = table::render(document, &told);
    if args.output.json {
        output::note(text.trim_end());
    }
    output::deliver(&args.output, document, &text)
}

#[cfg(test)]
mod tests {
    use super::series::tests::{cell, reading, series};
    use super::*;

    #[test]
    fn turns_that_are_far_apart_are_told() {
        let steady = || {
            let mut steady = series(cell());
            steady.add(Ok(reading(1_000..1_200, 0.0)));
            steady.add(Ok(reading(1_100..1_300, 0.0)));
            // Left out, and so it does not matter what it was.
            steady.add(Ok(reading(9_000..9_200, 0.5)));
            steady
        };
        assert_eq!(unsteady(&[steady()]), None);
        let mut moody = steady();
        moody.add(Ok(reading(3_000..3_200, 0.0)));
        let told = unsteady(&[steady(), moody]).expect("a warning");
        assert!(told.contains("in 1 of the cells"), "{told}");
        assert!(
            told.contains("spin, other core, C-states as is, from 1.099 to 3.09"),
            "{told}"
        );
    }
}
