//! Ringside beside other AF_XDP programs, on the same path, interleaved, as ratios.
//!
//! For each operation every variant gets a pair of namespaces and a process of its own, started
//! once and stopped (SIGSTOP) except in its turn. A round is one short turn for every variant, the
//! base first; what a variant gains over the base is judged within a round, because the machine's
//! speed drifts between rounds. All packets are counted by the kernel on the veth, so that no
//! program's own counting has to be believed.
//!
//! ```text
//! peers run                          all operations, about three minutes
//! peers run --only rx --rounds 30
//! ```

mod children;
mod counters;
mod disturbance;
mod lab;
mod load;
mod operation;
mod ours;
mod peers;
mod report;
mod rounds;
mod run;
mod turn;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::operation::Operation;

#[derive(Debug, Parser)]
#[command(name = "peers", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure and print one table.
    Run(Settings),
    /// Tell which variants are there, and why others are not.
    List,
}

/// How to measure.
#[derive(Debug, clap::Args)]
struct Settings {
    /// Operations, separated by commas; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Operation>,
    /// Variants whose name contains one of these; all by default. The base always runs.
    #[arg(long, value_delimiter = ',')]
    variants: Vec<String>,
    /// One more row of ours with these options, such as "--batch 256"; may be repeated.
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
    also: Vec<String>,
    /// Who makes the packets that are received and forwarded.
    #[arg(long, value_enum, default_value_t)]
    load: load::Source,
    /// Rounds for each operation.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(5..=1000))]
    rounds: u16,
    /// Seconds measured in each turn. Many short turns beat few long ones, and the load makes a
    /// pause after some 0.3 s.
    #[arg(long, default_value = "0.2", value_parser = seconds)]
    slot: Duration,
    /// Seconds that a variant runs before it is measured.
    #[arg(long, default_value = "0.03", value_parser = seconds)]
    settle: Duration,
    /// Where the results go as JSON.
    #[arg(long, default_value = "out/bench.json")]
    json: PathBuf,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Run(settings) => run::run(&settings),
        Command::List => run::list(),
    }
}

fn seconds(text: &str) -> Result<Duration> {
    let value: f64 = text.parse().context("not a number of seconds")?;
    anyhow::ensure!((0.01..=10.0).contains(&value), "between 0.01 and 10 seconds");
    Ok(Duration::from_secs_f64(value))
}
