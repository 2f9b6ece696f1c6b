//! A fleet that is larger than any machine here: gateways, each with the very machines by which the real one follows etcd
//! (`ringside_gateway::fleet::sync`) and takes part in its fleet (`fleet::shards`), and an etcd that is reckoned: what each thing costs was
//! measured with a real one (`costs.rs`). Time is not real, and everything follows from the seed.
//!
//! `cargo run --release -p ringside-gateway --example simulate -- --gateways 1000 --neighbors 100M --seed 1`
//!
//! ```text
//!   writers ─▶ etcd: log, CPUs, wires, leases ─▶ lists and watches ─▶ Sync ─▶ tables of cells
//!     4         members, leader, compaction       late, lost, cut     1,000    each stands for many keys
//!               members' keys under leases, map ─▶ watches ─▶ Shards ─▶ who owns what
//! ```
//! No shard may be taken from a gateway that lives, or be given to one that is not ready. At each revision that a gateway's tables are told of they must hold what etcd held then, none may go back to an older state, and in the
//! end all must hold what etcd holds; otherwise the program fails, and
//! so it does where a fault was not got over within `--patience-seconds`.

mod costs;
mod gateway;
mod log;
mod measure;
mod queue;
mod registry;
mod report;
mod scenario;
mod seats;
mod server;
#[cfg(test)]
mod tests;
mod world;
mod writers;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ringside_gateway::fleet::sync::Timing;

use costs::{Costs, MILLISECOND, SECOND};
use report::Report;
use scenario::{ALL, Director, SMALL, Step};
use world::{Setup, World};

/// Simulate a fleet of gateways on etcd through everything that can go wrong.
#[derive(Debug, Parser)]
struct Args {
    /// Gateways
    #[arg(long, default_value_t = 1000)]
    gateways: usize,
    /// Neighbours, with k, M or G for thousands, millions, and so on
    #[arg(long, default_value = "100M", value_parser = number)]
    neighbors: u64,
    /// Changes a second
    #[arg(long, default_value = "10k", value_parser = number)]
    churn: u64,
    /// What chance follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these phases, by what their names have in them
    #[arg(long)]
    only: Vec<String>,
    /// etcd's members
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Cores of each
    #[arg(long, default_value_t = 8)]
    cores: usize,
    /// What each can send, Gbit/s
    #[arg(long, default_value_t = 10)]
    gigabits: u64,
    /// A flush to its disk, in microseconds
    #[arg(long, default_value_t = 2000)]
    flush_us: u64,
    /// No fault lasts longer, in seconds; a minute at the most
    #[arg(long, default_value_t = 60)]
    hold_seconds: u64,
    /// Between two comparisons of a gateway, in seconds
    #[arg(long, default_value_t = 600)]
    compare_seconds: u64,
    /// With another member of etcd for so many seconds a gateway asks its first one again
    #[arg(long, default_value_t = 300)]
    balance_seconds: u64,
    /// Between two compactions, in seconds
    #[arg(long, default_value_t = 300)]
    compact_seconds: u64,
    /// etcd's limit for its database, GiB
    #[arg(long, default_value_t = 8)]
    quota_gib: u64,
    /// How long a fault may take to be over, in seconds
    #[arg(long, default_value_t = 1200)]
    patience_seconds: u64,
    /// Ask for pages as it was once done: among all keys, and always of the same size
    #[arg(long)]
    walk_all: bool,
    /// What is told within this time is told together, in milliseconds
    #[arg(long)]
    grain_ms: Option<u64>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

fn number(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{text:?}: {error}"))?;
    (number.checked_mul(factor)).ok_or_else(|| format!("{text:?} is too large"))
}

impl Args {
    fn setup(&self) -> Setup {
        let default = Costs::default();
        Setup {
            gateways: self.gateways.max(1),
            neighbors: self.neighbors.max(1024),
            churn: self.churn,
            seed: self.seed,
            timing: Timing {
                compare: Duration::from_secs(self.compare_seconds),
                ..Timing::default()
            },
            balance: Duration::from_secs(self.balance_seconds),
            request: 5 * SECOND,
            compaction: self.compact_seconds.max(1) * SECOND,
            walks_all: self.walk_all,
            quota: self.quota_gib << 30,
            // About as many messages a second, whatever the size.
            grain: MILLISECOND * self.grain_ms.unwrap_or(self.gateways as u64 / 50).clamp(1, 1000),
            patience: self.patience_seconds * SECOND,
            told_since: Some(std::time::Instant::now()),
            costs: Costs {
                members: self.members.max(1),
                cores: self.cores.max(1),
                wire: self.gigabits.max(1) * 1_000_000_000 / 8,
                sync: self.flush_us * 1000,
                ..default
            },
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    // Those that are the same at any size are there for who names them.
    let named = SMALL.into_iter().filter(|_| !args.only.is_empty());
    let steps = ALL
        .into_iter()
        .chain(named)
        .map(|step| Step {
            hold: step.hold.min(args.hold_seconds * SECOND),
            ..step
        })
        .filter(|step| args.only.is_empty() || args.only.iter().any(|only| step.name.contains(only)))
        .collect();
    let mut world = World::new(args.setup());
    world.run(&mut Director::new(steps));
    let report = Report::new(&mut world);
    if args.json {
        println!("{:#}", report.json());
    } else {
        print!("{}", report.text());
    }
    let problem = report.problem();
    if let Some(problem) = &problem {
        eprintln!("simulate: {problem}");
    }
    match problem {
        None => ExitCode::SUCCESS,
        Some(_) => ExitCode::FAILURE,
    }
}
