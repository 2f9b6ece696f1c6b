//! The command line of `ringside tune`.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;
use ringside_nic::{Coalescing, Knob};

use super::report::Mode;
use crate::args::{List, bad_value, count_in, list, list_or_none, micros};

const EXAMPLES: &str = "\
Examples:
  ringside tune eth0                           show; change nothing
  ringside tune eth0 --latency --dry-run       what would be changed, and what cannot be had here
  ringside tune eth0 --latency -- ringside ping eth0 --to 192.0.2.7 -t 10
  ringside tune eth0 --gro off --coalesce rx-usecs=0,adaptive-rx=off
  ringside tune eth0 --irq-cpus 2,3 --rps none --xps 2-3
  ringside tune --undo                         put back what was left in place

With a command behind -- the changes are made, the command is run, and they are put back, also when it fails; with --hold
they last until Ctrl-C. Without either they stay until --undo, or until the machine is restarted. A run that is killed
leaves nothing for good: the next start of ringside puts it back.";

/// What to change, for how long, and how to tell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    /// Network interface
    pub(super) interface: Option<String>,
    /// All that shortens the way of a packet: CPUs that do not sleep, the governor performance, no coalescing, no GRO and no
    /// RPS. What cannot be had here is told and left out
    #[arg(long)]
    pub(super) latency: bool,
    /// Microseconds, or a time such as 1ms, that a CPU may take to wake up (/dev/cpu_dma_latency,
    /// held open); 0: CPUs only poll. With a command or --hold
    #[arg(long, value_name = "MICROS", value_parser = micros)]
    pub(super) dma_latency: Option<u32>,
    /// Frequency governor of all CPUs, such as performance
    #[arg(long, value_name = "NAME", value_parser = word)]
    pub(super) governor: Option<String>,
    /// CPUs for the interrupts of the interface's queues, one for each in turn
    #[arg(long, value_name = "LIST", value_parser = list)]
    pub(super) irq_cpus: Option<List>,
    /// Kernel threads poll the interface's queues, on these CPUs if any are given; off: the software interrupt does
    #[arg(long, value_name = "CPUS|off", value_parser = threads, num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub(super) threaded_napi: Option<Threads>,
    /// CPUs to spread received packets over (RPS), all queues; none: the CPU that received them
    #[arg(long, value_name = "LIST|none", value_parser = list_or_none)]
    pub(super) rps: Option<List>,
    /// CPUs for the transmit queues (XPS), one for each in turn; none: as the kernel chooses
    #[arg(long, value_name = "LIST|none", value_parser = list_or_none)]
    pub(super) xps: Option<List>,
    /// Interrupt coalescing, such as rx-usecs=50us,adaptive-rx=off, microseconds without a unit;
    /// also rx-frames, tx-usecs, tx-frames, adaptive-tx
    #[arg(long, value_name = "NAME=VALUE,…", value_parser = coalescing, value_delimiter = ',')]
    pub(super) coalesce: Vec<(Coalescing, String)>,
    /// Generic receive offload
    #[arg(long, value_name = "on|off", value_parser = switch)]
    pub(super) gro: Option<String>,
    /// An offload by the kernel's name (ethtool -k), such as tx-tcp-segmentation=off
    #[arg(long, value_name = "NAME=on|off,…", value_parser = offload, value_delimiter = ',')]
    pub(super) offload: Vec<(Knob, String)>,
    /// Tell what would be changed, and change nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Put back at Ctrl-C instead of leaving it in place
    #[arg(long)]
    pub(super) hold: bool,
    /// Put back what was left in place, for this interface or for all
    #[arg(long)]
    pub(super) undo: bool,
    /// Print JSON (schema ringside.tune/1) to standard output
    #[arg(long)]
    pub(super) json: bool,
    /// Write the same to a file, in addition
    #[arg(long, value_name = "FILE")]
    pub(super) json_file: Option<PathBuf>,
    /// Command to run with the changes
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// `--threaded-napi`
#[derive(Debug, Clone)]
pub(super) enum Threads {
    Off,
    /// Pinned, if there are any CPUs.
    On(Vec<u32>),
}

impl Args {
    /// Whether any change is asked for.
    fn changes(&self) -> bool {
        self.latency
            || self.dma_latency.is_some()
            || self.governor.is_some()
            || self.irq_cpus.is_some()
            || self.threaded_napi.is_some()
            || self.rps.is_some()
            || self.xps.is_some()
            || !self.coalesce.is_empty()
            || self.gro.is_some()
            || !self.offload.is_empty()
    }

    /// Returns the CPUs that options name.
    pub(super) fn cpus(&self) -> impl Iterator<Item = (&'static str, &[u32])> {
        let threads = match &self.threaded_napi {
            Some(Threads::On(cpus)) => Some(cpus),
            Some(Threads::Off) | None => None,
        };
        let lists = [
            ("--irq-cpus", &self.irq_cpus),
            ("--rps", &self.rps),
            ("--xps", &self.xps),
        ];
        let lists = lists
            .into_iter()
            .filter_map(|(option, list)| Some((option, list.as_ref()?.0.as_slice())));
        lists.chain(threads.map(|cpus| ("--threaded-napi", cpus.as_slice())))
    }

    pub(super) fn mode(&self) -> Result<Mode> {
        let command = !self.command.is_empty();
        if !self.changes() {
            if command || self.hold || self.dry_run {
                bad_value!("nothing is to be changed: give --latency, or single changes such as --gro off");
            }
            return Ok(Mode::Show);
        }
        if self.dry_run {
            return Ok(Mode::DryRun);
        }
        if command && self.hold {
            bad_value!("--hold and a command: the changes last as long as the command does");
        }
        if command && self.json {
            bad_value!("--json and a command: standard output is the command's; write to a file with --json-file");
        }
        Ok(match (command, self.hold) {
            (true, _) => Mode::Command,
            (_, true) => Mode::Hold,
            _ => Mode::Kept,
        })
    }

    pub(super) fn nothing_with_undo(&self) -> Result<()> {
        if self.changes() || self.hold || self.dry_run || !self.command.is_empty() {
            bad_value!("--undo puts back what was left in place, and does nothing else");
        }
        Ok(())
    }

    /// Whether somebody is there to hold a device open meanwhile.
    pub(super) fn lasts(&self) -> bool {
        self.hold || !self.command.is_empty()
    }
}

fn word(text: &str) -> Result<String, String> {
    let good = !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    good.then(|| text.to_owned())
        .ok_or_else(|| format!("{text:?} is no name"))
}

fn threads(text: &str) -> Result<Threads, String> {
    match text {
        "off" => Ok(Threads::Off),
        "" => Ok(Threads::On(Vec::new())),
        _ => list(text).map(|List(cpus)| Threads::On(cpus)),
    }
}

fn switch(text: &str) -> Result<String, String> {
    match text {
        "on" | "off" => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is neither on nor off")),
    }
}

fn pair(text: &str) -> Result<(&str, &str), String> {
    text.split_once('=')
        .ok_or_else(|| format!("{text:?} is not NAME=VALUE"))
}

fn coalescing(text: &str) -> Result<(Coalescing, String), String> {
    let (name, value) = pair(text)?;
    let field = name.parse::<Coalescing>()?;
    match field {
        Coalescing::AdaptiveRx | Coalescing::AdaptiveTx => switch(value).map(|value| (field, value)),
        Coalescing::RxUsecs | Coalescing::TxUsecs => Ok((field, micros(value)?.to_string())),
        _ => Ok((field, count_in(0..=u32::MAX)(value)?.to_string())),
    }
}

fn offload(text: &str) -> Result<(Knob, String), String> {
    let (name, value) = pair(text)?;
    Ok((Knob::offload(name), switch(value)?))
}
