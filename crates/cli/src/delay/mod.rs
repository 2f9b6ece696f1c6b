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
mod budget;
mod csv;
mod heard;
mod overhead;
mod plan;
mod reference;
mod sender;
mod series;
mod table;
mod turn;
mod warnings;

use std::io::IsTerminal as _;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::compare::STEAL_LIMIT;
use ringside_measure::delay::{CStates, Wait};
use ringside_measure::probe::Clock;
use ringside_measure::schema::{ClockRead, DelayResult, Document, Outcome};
use ringside_nic::host::WakeUpLimit;

use crate::compare::order;
use crate::report::units::plural;
use crate::session::nanos;
use crate::stop::Stop;
use crate::{output, system};

pub(crate) use args::Args;

use bed::{Bed, Busy};
use budget::Budget;
use plan::{Machine, Plan};
use series::Series;
pub(crate) use series::cell_name;
use turn::Turn;

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
        "{}: {} in turn, {}, {}",
        bed.description(),
        plural(plan.had(), "cell"),
        plural(args.rounds, "round"),
        budget
    ));
    bed.notes.iter().for_each(output::note);
    if plan.switches_c_states_off() {
        output::note("/dev/cpu_dma_latency is held at 0 µs in the turns with C-states off, and closed after each");
    }

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
    let warnings = warnings::all(plan.warnings, &cells, impossible);
    let result = result(args, &bed, rounds, clock_read, &cells, warnings);
    let document = system::document(bed.record(), Outcome::Delay(result));
    let path: Vec<String> = [bed.description()].into_iter().chain(bed.notes.clone()).collect();
    let is_lab = bed.is_lab();
    // What is attached and mapped goes before the result is printed.
    drop(bed);
    let printed = print(args, &document, &path, is_lab);
    // Also if standard output has failed: one of them may have been the reason for a long run.
    if let Some(path) = &args.csv {
        csv::write(path, &cells)?;
    }
    printed?;
    if impossible != 0 {
        bail!(
            "{impossible} packets were dequeued before the XDP program saw them: the clocks of the CPUs do not agree, and no \
             figure is to be trusted"
        );
    }
    Ok(())
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
    cells.iter_mut().for_each(Series::end);
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

/// Prints the table, on standard output unless the JSON goes there.
fn print(args: &Args, document: &Document, path: &[String], is_lab: bool) -> Result<()> {
    let terminal = if args.output.json {
        std::io::stderr().is_terminal()
    } else {
        std::io::stdout().is_terminal()
    };
    let options = table::Options {
        path,
        is_lab,
        reference: args.reference,
        terminal,
    };
    let text = match args.verbose || args.output.json {
        true => table::render(document, &options),
        false => table::brief(document, &options),
    };
    if args.output.json {
        output::note(text.trim_end());
    }
    output::deliver_run(&args.output, document, &text, !args.verbose)
}
