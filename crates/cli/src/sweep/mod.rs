//! `ringside sweep`: which settings matter here, and which are best.
//!
//! What is measured is a turn of `ringside compare`, on the same path, with AF_XDP set up as each configuration says. What to
//! measure next and what it means is decided in [`ringside_measure::sweep`].

mod args;
mod brief;
mod have;
mod knob;
mod result;
mod table;

use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::compare::Round;
use ringside_measure::schema::{Outcome, SweepResult};
use ringside_measure::sweep::{Design, Knob, Sweep};

pub(crate) use args::Args;
use have::Knobs;
pub(crate) use table::{conclusion, figure, settings, verdict};

use crate::args::PortArgs;
use crate::compare::{Bed, Contender, Kind, Load, Operation, Reading, cpu_wait_percent};
use crate::stop::Stop;
use crate::{output, system};

/// The smallest packet with a probe over IPv4.
const SMALLEST_PROBE: u16 = 82;

/// The part of the time after which the race ends, whatever was planned: the rest is to confirm.
const RACE: f64 = 0.85;

/// Sweeps, prints what was found, and writes it.
///
/// # Errors
/// When the path cannot be had, no knob has two levels here, or the base itself does not work.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.bench.check_cpus()?;
    output::check(&args.output)?;
    if let Some(path) = &args.write {
        output::check_file("--write", path)?;
    }
    // Said before anything is built.
    let turned: Vec<Knob> = args.knobs.iter().map(|knob| knob.0.clone()).collect();
    Design::new(turned.iter().filter(|knob| knob.levels.len() > 1).cloned().collect())?;
    let stop = Stop::on_signals().context("listening for signals")?;
    let frame_bytes = match args.objective.operation() {
        Operation::Ping => args.size.max(SMALLEST_PROBE),
        _ => args.size,
    };
    let bed = Bed::open(&args.bench, &[frame_bytes])?;
    let knobs = Knobs::of(args, &bed, &stop)?;
    for level in &knobs.unavailable {
        let text = format!(
            "left out: {} {} cannot be had here: {}",
            level.knob, level.level, level.reason
        );
        output::note(output::wrapped(&text, "").trim_end());
    }
    if knobs.turned.is_empty() {
        bail!("sweep: no knob has two levels that can be had here, for the reasons above");
    }
    let design = Design::new(knobs.turned.clone())?;
    let plan = args.plan(design.len());
    let mut racer = Racer::new(args, &bed, &knobs, &design, frame_bytes, &stop)?;
    let mut sweep = Sweep::new(design, plan.clone(), args.objective.better());
    output::note(table::plan(args, &bed.description(), &sweep, &plan));
    let interrupted = racer.drive(&mut sweep)?;

    let found = sweep.found(args.margin / 100.0);
    if found.standings.iter().all(|standing| standing.rounds.is_empty()) || sweep.is_given_up(0) {
        let reason = racer.failure.iter().flatten().next().cloned().unwrap_or_default();
        bail!("sweep: the base configuration gave no figure, so there is nothing to compare with. {reason}");
    }
    let result = result::of(args, frame_bytes, &sweep, &found, &racer.failure, knobs, interrupted)?;
    let result = SweepResult {
        cpu_wait_percent: cpu_wait_percent(&racer.readings),
        ..result
    };
    let document = system::document(bed.records(), Outcome::Sweep(Box::new(result)));
    let notes = bed.notes();
    // What is attached and mapped goes before anything is told.
    drop(bed);
    let Outcome::Sweep(result) = &document.result else {
        return Ok(());
    };
    if let Some(path) = &args.write {
        crate::files::write(path, &result.best.config)
            .with_context(|| format!("writing the best configuration to {}", path.display()))?;
    }
    let text = match args.verbose || args.output.json {
        true => table::render(&document, &notes),
        false => brief::render(&document),
    };
    if args.output.json {
        output::note(text.trim_end());
    }
    output::deliver_run(&args.output, &document, &text, !args.verbose)
}

/// Takes turns.
struct Racer<'a> {
    args: &'a Args,
    bed: &'a Bed,
    frame_bytes: u16,
    stop: &'a Stop,
    /// What each configuration is.
    settings: Vec<PortArgs>,
    /// The generator, once it was needed.
    load: Option<Load>,
    /// What each failed of last.
    failure: Vec<Option<String>>,
    /// All turns.
    readings: Vec<Reading>,
}

impl<'a> Racer<'a> {
    fn new(
        args: &'a Args,
        bed: &'a Bed,
        knobs: &Knobs,
        design: &Design,
        frame_bytes: u16,
        stop: &'a Stop,
    ) -> Result<Self> {
        let settings = (0..design.len()).map(|one| knobs.settings(args, &result::levels(design, one)));
        Ok(Self {
            args,
            bed,
            frame_bytes,
            stop,
            settings: settings.collect::<Result<Vec<_>>>()?,
            load: None,
            failure: vec![None; design.len()],
            readings: Vec::new(),
        })
    }

    /// Turn by turn until it is through, the time, or a signal; whether one of the latter two ended it.
    fn drive(&mut self, sweep: &mut Sweep) -> Result<bool> {
        let bar = ProgressBar::new_spinner()
            .with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a constant template"));
        let (started, mut racing) = (Instant::now(), true);
        while let Some(configuration) = sweep.wanted() {
            let (round, confirms) = sweep.progress();
            bar.set_message(match confirms {
                true => format!("round {round}: confirming"),
                false => format!("round {round}: {} configurations", sweep.left()),
            });
            bar.tick();
            let reading = self.turn(configuration);
            // What a signal interrupted was not measured.
            if self.stop.is_set() {
                break;
            }
            sweep.record(reading);
            if self.args.rounds.is_none() {
                let passed = started.elapsed().as_secs_f64() / self.args.time.as_secs_f64();
                if passed >= 1.0 {
                    break;
                }
                if passed >= RACE && std::mem::take(&mut racing) && !confirms {
                    sweep.end_race();
                }
            }
        }
        bar.finish_and_clear();
        if self.stop.is_set() {
            output::note("ended early: the results so far");
        }
        // Who confirms until the time is over was not interrupted by that.
        Ok(self.stop.is_set() || sweep.wanted().is_some() && !sweep.progress().1)
    }

    fn turn(&mut self, configuration: usize) -> Option<Round> {
        let kind = Kind::AfXdpNative;
        let operation = self.args.objective.operation();
        let contender = Contender::new(self.bed, &self.args.bench, operation, kind, self.frame_bytes);
        let reading = contender
            .tuned(&self.settings[configuration])
            .turn(&mut self.load, self.stop)
            .and_then(|reading| {
                let value = self.args.objective.of(&reading)?;
                self.readings.push(reading);
                Ok(Round {
                    value,
                    steal: reading.steal,
                })
            });
        match reading {
            Ok(round) => Some(round),
            Err(error) => {
                self.failure[configuration] = Some(format!("{error:#}"));
                None
            }
        }
    }
}
