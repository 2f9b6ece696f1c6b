//! `ringside steer`: which queue and which CPU packets come to; set, verified by sending and counting, and put back.
//!
//! ```text
//!  settings.rs ── Changes::steer: rules, RSS, IRQs, RPS; at the sender's end XPS, egress-qos-map ── Installed: told, put back
//!  send.rs  a packet socket for each class ──▶ path ──▶ watch.rs  Landings: class × queue × CPU; /proc/interrupts, softnet
//!                                                          └─▶ measure::steer::judge: sentences ──▶ table.rs, JSON, report
//! ```

mod args;
mod errand;
mod runs;
mod send;
mod settings;
mod side;
mod table;
mod values;
mod watch;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ringside_measure::schema::{Outcome, SteerResult};

pub(crate) use args::Args;
pub(crate) use settings::{Installed, Settings};
pub(crate) use table::grid;
pub(crate) use values::{ClassArg, CpusArg, EgressArg, PinArg, RuleArg};
pub(crate) use watch::{Watch, judged};

use args::{Command, RunArgs, ShowArgs};
use send::{OWN_PORT, Pace};
use side::Side;

use crate::args::{OutputArgs, bad_value};
use crate::left::Left;
use crate::stop::Stop;
use crate::{output, system};

/// For so long the last packets are waited for.
const DRAIN: Duration = Duration::from_millis(500);

/// Shows, or steers and counts.
///
/// # Errors
/// What cannot be set, with the kernel's answer; nothing is left then.
pub(crate) fn run(args: &Args) -> Result<()> {
    let stop = Stop::on_signals().context("listening for signals")?;
    match &args.command {
        Command::Show(args) => show(args, &stop),
        Command::Run(args) => steer(args, &stop),
    }
}

fn show(args: &ShowArgs, stop: &Stop) -> Result<()> {
    output::check(&args.output)?;
    let side = Side::open(&args.interface)?;
    let watch = side.run(|| Watch::begin(&side.interface, &[], None))?;
    stop.sleep_until(Instant::now() + args.time);
    let result = side.run(|| watch.end(None, None, &mut []))?;
    tell((&args.output, true), &side, None, result)
}

fn steer(args: &RunArgs, stop: &Stop) -> Result<()> {
    let asked = args.asked()?;
    output::check(&args.output)?;
    let (lab, to, from) = match (&args.interface, args.lab) {
        (_, true) => {
            let (lab, to, from) = Side::lab()?;
            (Some(lab), to, Some(from))
        }
        (Some(name), false) => (
            None,
            Side::open(name)?,
            args.from.as_deref().map(Side::open).transpose()?,
        ),
        (None, false) => bad_value!("name the interface that receives, or give --lab"),
    };
    let mut installed: Vec<Installed> = Vec::new();
    for (side, settings) in [(Some(&to), &asked.receiving), (from.as_ref(), &asked.sending)] {
        let Some(side) = side else { continue };
        installed.extend(side.run(|| settings.install(&side.interface, &Left::default()))?);
    }
    installed.iter().for_each(Installed::note);
    let measured = measure(args, &asked.classes, (&to, from.as_ref()), stop, &mut installed);
    // Before the end is told: nothing is left behind then.
    installed.into_iter().rev().for_each(Installed::put_back);
    let result = measured?;
    let wrong = result
        .sentences
        .iter()
        .find(|sentence| !sentence.right)
        .map(|sentence| sentence.text.clone());
    tell((&args.output, args.verbose), &to, from.as_ref(), result)?;
    drop(lab);
    match wrong.filter(|_| args.require_right) {
        Some(text) => bail!("--require-right: {text}"),
        None => Ok(()),
    }
}

fn measure(
    args: &RunArgs,
    classes: &[ClassArg],
    (to, from): (&Side, Option<&Side>),
    stop: &Stop,
    installed: &mut [Installed],
) -> Result<SteerResult> {
    let addresses = to.addresses()?;
    let own = from.map(|_| OWN_PORT);
    let watch = to.run(|| Watch::begin(&to.interface, classes, own))?;
    let begun = Instant::now();
    let sent = match from {
        None => {
            stop.sleep_until(begun + args.time);
            None
        }
        Some(from) => {
            let pace = Pace {
                rate: args.rate,
                time: args.time,
                cpu: args.send_cpu,
                stop,
            };
            let sent = send::send(from, addresses, classes, &pace)?;
            let all: u64 = sent.iter().sum();
            ensure!(
                all > 0,
                "no packet could be sent from {}: is its link up?",
                from.interface
            );
            let limit = Instant::now() + DRAIN;
            while watch.arrived()? < all && Instant::now() < limit {
                std::thread::sleep(Duration::from_millis(2));
            }
            Some(sent)
        }
    };
    let sender = from.map(|from| from.interface.name().to_owned());
    let result = to.run(|| watch.end(sent.as_deref(), sender, installed))?;
    let unseen = result.xsk_not_counted.as_ref();
    let unseen = unseen.map(|why| format!(" (what AF_XDP sockets take cannot be counted here: {why})"));
    ensure!(
        from.is_some() || result.classes.iter().any(|class| class.arrived() > 0),
        "no packet of any class arrived on {} within {:.1} s: does somebody send? --from sends from a port of this machine{}",
        to.interface,
        begun.elapsed().min(args.time).as_secs_f64(),
        unseen.unwrap_or_default()
    );
    Ok(result)
}

fn tell((args, verbose): (&OutputArgs, bool), to: &Side, from: Option<&Side>, result: SteerResult) -> Result<()> {
    let record = |side: &Side| side.run(|| Ok(system::interface(&side.interface, &side.interface.state()?, None)));
    let records = [Some(to), from]
        .into_iter()
        .flatten()
        .map(record)
        .collect::<Result<_>>()?;
    let terminal = std::io::stdout().is_terminal();
    let text = match (args.json, verbose) {
        (true, _) => String::new(),
        (false, true) => table::render(&result, terminal),
        (false, false) => table::brief(&result),
    };
    let document = system::document(records, Outcome::Steer(Box::new(result)));
    output::deliver_run(args, &document, &text, !verbose)
}
