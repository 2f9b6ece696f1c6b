//! The command line of `ringside delay`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, ValueEnum};
use ringside_measure::delay::{CStates, Cell, Core, Wait};
use ringside_measure::probe::DEFAULT_PORT;
use ringside_xsk::{BusyPoll, Filter, Mode};

use crate::args::{OutputArgs, WaitArg, bad_value, count_in, seconds, time_in};
use crate::compare::LabKind;
use crate::napi::Defer;

const EXAMPLES: &str = "\
Examples:
  ringside delay --lab veth                    all cells on a test bed of its own, in two and a half minutes
  ringside delay --lab veth --reference        the same beside the numbers of the reference measurement
  ringside delay --lab veth --waits poll --samples 100000 --interval 200us --csv poll.csv
  ringside delay eth1                          of packets that another host sends, such as
                                               ringside tx eth0 --to 192.0.2.7 --rate 1000
  ringside delay eth1 --queue 2 --other-cpu 5 --json

Each cell has its turn, round after round. Turns in which the hypervisor took more than 4 % of the CPU time are left out,
counted and made up for.";

/// What to measure, on what, and for how long.
#[derive(Debug, clap::Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = EXAMPLES, allow_negative_numbers = true, group(ArgGroup::new("path").required(true)))]
pub(crate) struct Args {
    /// Network interface that packets come to
    #[arg(group = "path", value_name = "INTERFACE")]
    place: Option<String>,

    /// The same as an option
    #[arg(long, group = "path", value_name = "INTERFACE")]
    interface: Option<String>,

    /// Build a test bed and measure on it: two network namespaces, a veth pair, and a paced sender
    #[arg(long, value_enum, group = "path")]
    pub(super) lab: Option<LabKind>,

    /// Ways to wait for packets
    #[arg(long, value_enum, value_delimiter = ',', default_value = "spin,poll,busy-poll")]
    waits: Vec<WaitArg>,

    /// Whether the application runs on the CPU that runs NAPI
    #[arg(long, value_enum, value_delimiter = ',', default_value = "same,other")]
    cores: Vec<CoreArg>,

    /// How deep CPUs may sleep
    #[arg(long, value_enum, value_delimiter = ',', default_value = "as-is,off")]
    c_states: Vec<CStatesArg>,

    /// Samples of each cell; p99.9 needs 10k
    #[arg(long, default_value_t = 10_000, value_name = "N",
          value_parser = count_in(1_u64..=1_000_000_000))]
    pub(super) samples: u64,

    /// How often each cell has its turn, up to 1k
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = count_in(1_u32..=1000))]
    pub(super) rounds: u32,

    /// Mean time between two packets of the test bed's sender; gaps are from half to one and a half of it [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = gap)]
    interval: Option<Duration>,

    /// Seconds, or a time such as 2min, as a limit for all cells together, even if samples are
    /// missing then [default: with --lab twice what they take, else 300]
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Option<Duration>,

    /// The CPU that sends, and so runs NAPI, on the test bed [default: the first one]. Of an interface it is found
    #[arg(long, value_name = "CPU")]
    pub(super) napi_cpu: Option<u32>,

    /// The application's CPU where it is not NAPI's [default: one of another core]
    #[arg(long, value_name = "CPU")]
    pub(super) other_cpu: Option<u32>,

    /// The queue that packets come to [default: the one that most of them come to]
    #[arg(short, long, conflicts_with = "lab", value_name = "QUEUE")]
    pub(super) queue: Option<u32>,

    /// Packets to take, as for `rx`; the others go up the kernel's stack [default: udp:29620, where ringside tx sends to]
    #[arg(long, conflicts_with = "lab", value_name = "FILTER")]
    filter: Option<Filter>,

    /// auto, or one that must be had: zero-copy, native, generic
    #[arg(short, long, default_value = "auto")]
    pub(super) mode: Mode,

    /// SCHED_FIFO priority of the application, 1 to 98 [default: the normal scheduler]
    #[arg(long, value_name = "PRIORITY", value_parser = clap::value_parser!(i32).range(1..=98))]
    pub(super) priority: Option<i32>,

    /// Packets per busy-poll, such as 64 or 1k
    #[arg(long, default_value_t = 64, value_name = "PACKETS",
          value_parser = count_in(1_u32..=65535))]
    busy_poll_budget: u32,

    /// Keep the interface's interrupts off for so many empty polls, so many microseconds each, such
    /// as 2:200 or 2:200us, in the cells that busy-poll. Put back after each
    #[arg(long, value_name = "POLLS:MICROS")]
    pub(super) napi_defer: Option<Defer>,

    /// Show the figures of the reference measurement beside those of here
    #[arg(long)]
    pub(super) reference: bool,

    /// Write the histogram of every cell to a file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,

    /// Print all figures, and what explains them
    #[arg(short, long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// `--cores`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CoreArg {
    /// On the CPU that runs NAPI
    Same,
    /// On another one
    Other,
}

/// `--c-states`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CStatesArg {
    /// As the machine is set
    AsIs,
    /// Off: /dev/cpu_dma_latency is held at 0
    Off,
}

impl Args {
    /// The interface to measure on; none for a test bed.
    pub(super) fn interface(&self) -> Option<&str> {
        self.place.as_deref().or(self.interface.as_deref())
    }

    /// The cells that are asked for, in the order of the table.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let wait = |wait| match wait {
            Wait::Spin => WaitArg::Spin,
            Wait::Poll => WaitArg::Poll,
            Wait::BusyPoll => WaitArg::BusyPoll,
        };
        let core = |core| match core {
            Core::Same => CoreArg::Same,
            Core::Other => CoreArg::Other,
        };
        let c_states = |c_states| match c_states {
            CStates::AsIs => CStatesArg::AsIs,
            CStates::Off => CStatesArg::Off,
        };
        Cell::all()
            .filter(|cell| self.waits.contains(&wait(cell.wait)))
            .filter(|cell| self.cores.contains(&core(cell.core)))
            .filter(|cell| self.c_states.contains(&c_states(cell.c_states)))
            .collect()
    }

    /// Refuses what only a test bed has: the parser does not ask for `--lab` beside an interface, which excludes it.
    pub(super) fn check(&self) -> Result<()> {
        let options = [
            ("--interval", self.interval.is_some()),
            ("--napi-cpu", self.napi_cpu.is_some()),
        ];
        match options.into_iter().find(|(_, given)| *given) {
            Some((option, _)) if self.lab.is_none() => {
                bad_value!("{option} is the test bed's: it needs --lab veth; of an interface that is as others send")
            }
            _ => Ok(()),
        }
    }

    /// Mean time between two packets of the test bed's sender.
    pub(super) fn interval(&self) -> Duration {
        self.interval.unwrap_or(Duration::from_millis(1))
    }

    pub(super) fn filter(&self) -> Filter {
        self.filter.unwrap_or(Filter::UdpPort(DEFAULT_PORT))
    }

    pub(super) fn busy_poll(&self) -> BusyPoll {
        BusyPoll::with_budget(self.busy_poll_budget)
    }
}

/// Below, the sender would not sleep any more.
fn gap(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(50)..=Duration::from_secs(10);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?} is no interval; it takes 50us to 10s"))
}
