//! The command line of `ringside compare`.

use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, ValueEnum};
use ringside_measure::precision::UntilWidth;

use super::under::Under;
use super::variant::{Kind, Operation};
use crate::args::{OutputArgs, bad_value, budget, bytes_in, count_in, rate, time_or, width};
use crate::pin::check_online;
use crate::run::ping::LoadArg;
use crate::serve::RemoteArgs;

/// Opening and taking down: for estimates only.
const OVERHEAD: Duration = Duration::from_millis(150);

const EXAMPLES: &str = "\
Examples:
  ringside compare --lab veth                          everything, on a test bed of its own, in a minute
  ringside compare --lab veth --operations rx --sizes 64,512,1514
  ringside compare --lab veth --rounds 20 --json-file result.json
  ringside compare --lab veth --aa --operations rx     each variant twice: from which difference on a ratio means something
  ringside compare --lab veth --operations ping --until-ci 2% --time 300
  ringside compare --lab veth --operations ping --load   round trips idle and under load, side by side
  ringside compare --interface eth1,eth2               two ports of this machine with a cable between them
  ringside compare --interface eth1,eth2@far           the same, the second in a namespace: UDP takes part too
  ringside compare 192.0.2.7 --token-file ringside.token   to a host where `ringside serve` runs

Each variant in its best set-up, in turn, for many short rounds; ratios are medians over the rounds with a bootstrap
95 % interval. Rounds in which the hypervisor took more than 4 % of the CPU time are left out and counted.";

/// What to compare, on what, and for how long.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) bench: Bench,

    /// What to compare
    #[arg(long, value_delimiter = ',', default_value = "rx,tx,fwd,ping")]
    pub(crate) operations: Vec<Operation>,

    /// Bytes of a frame, from the Ethernet header on, without the frame check sequence (FCS), such
    /// as 512 or 1.5k: a ping has at least 82, for the probe has to fit
    #[arg(long, value_delimiter = ',', default_value = "64", value_name = "BYTES",
          value_parser = bytes_in(60_u16..=3000))]
    pub(crate) sizes: Vec<u16>,

    /// Only these variants [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) variants: Vec<Kind>,

    /// Number of turns of each variant, such as 20 or 1k [default: as often as the time allows]
    #[arg(long, value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) rounds: Option<u32>,

    /// Seconds for all of it, or a time such as 2min, unless --rounds says how many; one round is
    /// always done
    #[arg(
        short,
        long,
        default_value = "60",
        value_name = "SECONDS",
        value_parser = budget,
        conflicts_with = "rounds"
    )]
    pub(crate) time: Duration,

    /// Each variant twice, under two names, in the same interleaving (A/A): what differs is noise
    #[arg(long)]
    pub(crate) aa: bool,

    /// Round trips also under load, in turn: self for packets through the asker's own socket, which are answered too, foreign for
    /// those of another socket [default: both]
    #[arg(long, value_name = "KINDS", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_value = "self,foreign")]
    pub(crate) load: Option<Vec<LoadArg>>,

    /// Packets of the load per second, such as 100k or 2M
    #[arg(long, default_value_t = 100_000, value_name = "PPS", value_parser = rate, requires = "load")]
    pub(crate) load_rate: u64,

    /// Further rounds until the interval of every ratio is narrower than this part of it, such as 2%, or the time or the rounds are
    /// over
    #[arg(long, value_name = "PERCENT", value_parser = width)]
    pub(crate) until_ci: Option<UntilWidth>,

    /// Print the tables of all variants instead of the summary; also with --aa, --load and --until-ci
    #[arg(short, long)]
    pub(crate) verbose: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// A host where `ringside serve INTERFACE` runs: packets go there from the interface that the route to it leaves by
    #[arg(value_name = "HOST", group = "path")]
    pub(crate) host: Option<String>,

    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
}

/// A path between two ends, and a turn on it: what takes turns has this in common.
#[derive(Debug, Clone, clap::Args)]
#[command(group(ArgGroup::new("path").required(true)))]
pub(crate) struct Bench {
    /// Build a test bed and measure on it: two network namespaces and a veth pair between them
    #[arg(long, value_enum, group = "path")]
    pub(crate) lab: Option<LabKind>,

    /// Measure on two interfaces that reach each other, each as NAME or NAME@NAMESPACE: packets go from A to B. XDP and tc programs
    /// are attached to them meanwhile, nothing else is changed; their other traffic is dropped (but for ARP and IPv6
    /// neighbour discovery where XDP does it)
    #[arg(long, value_name = "A,B", group = "path", value_parser = pair)]
    pub(crate) interface: Option<[String; 2]>,

    /// Milliseconds measured in a turn, or a time such as 200ms or 1s
    #[arg(long = "slot-ms", value_name = "MILLIS", default_value = "200", value_parser = slot)]
    pub(crate) slot: Duration,

    /// The sender's and the receiver's CPU
    #[arg(long, default_value = "0,1", value_name = "S,R", value_parser = cpus)]
    pub(crate) cpus: [u32; 2],
}

/// A test bed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabKind {
    /// Two namespaces and a veth pair
    Veth,
}

impl Bench {
    /// The far end of a turn, on one of its CPUs.
    pub(crate) fn far(cpu: u32) -> Self {
        Self {
            lab: None,
            interface: None,
            slot: Duration::ZERO,
            cpus: [cpu; 2],
        }
    }

    /// The CPU that senders, generators and who asks run on.
    pub(crate) fn sender_cpu(&self) -> u32 {
        self.cpus[0]
    }

    /// The CPU that receivers and who answers run on.
    pub(crate) fn receiver_cpu(&self) -> u32 {
        self.cpus[1]
    }

    /// Time before a slot: caches and the scheduler get used to the variant.
    pub(crate) fn settle(&self) -> Duration {
        Duration::from_millis(60).min(self.slot / 2)
    }

    /// About what a turn takes: opening, settling and taking down beside the slot itself.
    pub(crate) fn turn(&self) -> Duration {
        self.slot + self.settle() + OVERHEAD
    }

    /// Said before anything is built.
    pub(crate) fn check_cpus(&self) -> Result<()> {
        check_online("--cpus S,R", &self.cpus)?;
        if self.sender_cpu() == self.receiver_cpu() {
            eprintln!(
                "note: sender and receiver share CPU {}: neither shows what it can do",
                self.sender_cpu()
            );
        }
        Ok(())
    }
}

impl Args {
    /// Returns true if the user requested what only the tables show.
    pub(crate) fn wants_tables(&self) -> bool {
        self.verbose || self.aa || self.load.is_some() || self.until_ci.is_some()
    }

    /// The conditions under which round trips are measured besides idle.
    pub(crate) fn under(&self) -> Vec<Under> {
        let mut all: Vec<Under> = Vec::new();
        for kind in self.load.iter().flatten().map(|load| load.schema()) {
            if all.iter().all(|under| under.kind != kind) {
                all.push(Under {
                    kind,
                    rate: self.load_rate,
                });
            }
        }
        all
    }

    /// Said before anything is built.
    pub(crate) fn check(&self) -> Result<()> {
        if self.load.is_some() && !self.operations.contains(&Operation::Ping) {
            bad_value!("--load: only round trips are measured under load: add ping to --operations");
        }
        Ok(())
    }
}

fn slot(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(60);
    time_or(Duration::from_millis(1), &range, text)
        .ok_or_else(|| format!("{text:?} is no time of a turn; write milliseconds, 10 to 60000"))
}

fn pair(text: &str) -> Result<[String; 2], String> {
    match text.split_once(',') {
        Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') && a != b => Ok([a.into(), b.into()]),
        _ => Err("two different interfaces, with a comma between them, are needed".into()),
    }
}

fn cpus(text: &str) -> Result<[u32; 2], String> {
    let parse = |cpu: &str| cpu.parse().map_err(|error| format!("{cpu:?}: {error}"));
    match text.split_once(',') {
        Some((sender, receiver)) => Ok([parse(sender)?, parse(receiver)?]),
        None => Err("two CPUs, with a comma between them, are needed: the sender's and the receiver's".into()),
    }
}
