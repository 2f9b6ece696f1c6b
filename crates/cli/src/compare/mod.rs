//! `ringside compare`: what AF_XDP gains over UDP sockets and AF_PACKET, and what the kernel itself could do.
//!
//! ```text
//!   end A, sender's CPU                                  end B, receiver's CPU
//!   ───────────────────                                  ─────────────────────
//!   rx     generator in the kernel ────────────────────▶ the variant receives
//!   tx     the variant sends ──────────────────────────▶ sink in XDP counts
//!   fwd    generator ──────▶ … sink in XDP counts ◀───── the variant sends back
//!   ping   the variant asks ◀──────────────────────────▶ the variant answers
//! ```
//!
//! Every variant is opened, settles, is measured for a slot, and is taken down, in turn: A B C A B C …. Rates drift by
//! tens of percent within minutes, so only rounds of one run are compared, pair by pair.

mod bed;
mod cell;
mod contender;
mod far;
mod options;
mod report;
mod series;
mod slot;
mod summary;
mod table;
#[cfg(test)]
pub(crate) mod testing;
mod under;
mod variant;
mod verdict;

use std::fmt::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use ringside_measure::schema::{Document, FarEnd, Outcome};

use crate::args::bad_value;
use crate::output::grid::terminal_columns;
use crate::report::units::plural;
use crate::serve::{self, Turns};
use crate::stop::Stop;
use crate::{output, system};

pub(crate) use bed::{Bed, Side};
pub(crate) use contender::Contender;
pub(crate) use far::FarPart;
pub(crate) use options::{Args, Bench, LabKind};
pub(crate) use report::{cpu_busy, cpu_wait_percent};
pub(crate) use slot::{Load, Mark, Place, Reading, Threads, Worker};
pub(crate) use table::nothing;
pub(crate) use variant::{Kind, Operation};
pub(crate) use verdict::Verdict;

use series::Contest;

/// A round repeats at most one of this number of turns.
const TURNS_PER_REPEAT: usize = 4;

/// Compares, prints the table, and writes the JSON.
///
/// # Errors
/// When the path cannot be had, or nothing was sampled; a variant that fails is a row of the table with its reason.
pub(crate) fn run(args: &Args) -> Result<()> {
    args.check()?;
    args.check_cpus()?;
    output::check(&args.output)?;
    let stop = Stop::on_signals().context("listening for signals")?;
    let bed = match args.dial(&stop)? {
        Some(bed) => bed,
        None => Bed::open(&args.bench, &args.sizes)?,
    };
    let mut contests = Contest::all(args, &bed)?;
    if args.until_ci.is_some() && contests.iter().all(|contest| contest.series.len() < 2) {
        bad_value!("--until-ci: there is one variant and no ratio to wait for; name two at least, or add --aa");
    }
    eprintln!("{}", plan(args, &bed, &contests));
    if !bed.is_lab() {
        bed.notes().iter().skip(1).for_each(|note| eprintln!("{note}"));
    }

    let started = Instant::now();
    let (rounds, reached) = interleave(args, &bed, &mut contests, &stop);
    if stop.is_set() {
        eprintln!("ended early: the results so far");
    }
    if contests.iter().all(|contest| contest.is_empty()) {
        let reason = contests.iter().find_map(Contest::failure).unwrap_or_default();
        bail!(
            "nothing was sampled in {:.1} s. {reason}",
            started.elapsed().as_secs_f64()
        );
    }
    let far = bed.turns.as_ref().and_then(Turns::finish).map(|far| FarEnd {
        cpu_wait_percent: report::far_cpu_wait_percent(&contests),
        ..far
    });
    let result = report::result(args, rounds, reached, contests);
    let document = system::document_with(bed.records(), Outcome::Compare(result), far.clone());
    // What is attached and mapped goes before anything is told.
    let (path, notes) = (bed.description(), bed.notes());
    drop(bed);
    deliver(args, &document, &path, &notes)?;
    serve::lost(far.as_ref())
}

/// Returns the number of turns of a round.
fn turns(contests: &[Contest]) -> usize {
    contests.iter().map(|contest| contest.series.len()).sum()
}

fn plan(args: &Args, bed: &Bed, contests: &[Contest]) -> String {
    let turns = turns(contests);
    let round = args.bench.turn() * u32::try_from(turns).unwrap_or(u32::MAX);
    let total = match args.rounds {
        Some(rounds) => round * rounds,
        None => args.time.max(round),
    };
    format!(
        "{}: {} in turn, {} ms each, about {:.0} s a round and {:.0} s in all",
        bed.description(),
        plural(turns, "variant"),
        args.bench.slot.as_secs_f64() * 1e3,
        round.as_secs_f64(),
        total.as_secs_f64(),
    )
}

/// Turn by turn, round by round, until it is known well enough, the number of rounds, the time, or a signal; how many rounds were
/// begun, and whether it is known well enough.
fn interleave(args: &Args, bed: &Bed, contests: &mut [Contest], stop: &Stop) -> (u32, bool) {
    let bar = ProgressBar::new_spinner()
        .with_style(ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a constant template"));
    let started = Instant::now();
    let mut until = args.until_ci.clone();
    let max_repeats = turns(contests).div_ceil(TURNS_PER_REPEAT);
    let mut round = 0;
    loop {
        let begin = Instant::now();
        let mut repeats = max_repeats;
        for contest in &mut *contests {
            let (operation, frame_bytes) = (contest.operation, contest.frame_bytes);
            // Every other round backwards: nobody always comes after the same neighbour.
            for index in order(contest.series.len(), round) {
                if stop.is_set() {
                    break;
                }
                let series = &mut contest.series[index];
                bar.set_message(format!(
                    "round {}: {operation} {frame_bytes} {}",
                    round + 1,
                    series.kind
                ));
                bar.tick();
                if series.is_given_up() {
                    continue;
                }
                let contender =
                    Contender::new(bed, &args.bench, operation, series.kind, frame_bytes).under(series.under);
                series.measure(round, &mut repeats, || {
                    let reading = contender.turn(&mut contest.load, stop);
                    (!stop.is_set()).then_some(reading)
                });
            }
        }
        round += 1;
        let over = match args.rounds {
            Some(rounds) => round >= rounds,
            None => started.elapsed() + begin.elapsed() / 2 >= args.time,
        };
        let is_known = until
            .as_mut()
            .is_some_and(|until| until.is_reached(round as usize, || report::widest(contests)?.1));
        if over || is_known || stop.is_set() {
            bar.finish_and_clear();
            return (round, is_known);
        }
    }
}

pub(crate) fn order(count: usize, round: u32) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Prints the summary, or the tables where they were requested, and writes the JSON.
fn deliver(args: &Args, document: &Document, path: &str, notes: &[String]) -> Result<()> {
    let text = if args.wants_tables() {
        table::render(document, notes, terminal_columns(args.output.json))
    } else {
        let mut text = summary::render(document, path);
        text.push_str("Full tables: add -v");
        match &args.output.json_file {
            Some(file) => _ = writeln!(text, ", or `ringside report {} -o FILE.html`.", file.display()),
            None => text.push_str(".\n"),
        }
        text
    };
    if args.output.json {
        output::note(text.trim_end());
    }
    output::deliver(&args.output, document, &text)
}
