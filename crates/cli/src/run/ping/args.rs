//! What loads the path, on the command line.

use clap::{Args, ValueEnum};
use ringside_measure::schema::LoadKind;

use crate::args::{bytes_in, count_in, rate};

/// Probes a second where the command line gives no rate: few enough to be no load, enough for p99.9 in a few seconds.
const PROBES: u64 = 2000;

#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// The same probes without load and with it, in turn, side by side: self for packets of the probes' own flow, which are
    /// answered too; foreign for another flow [default: both]
    #[arg(long, value_name = "KINDS", num_args = 0..=1, require_equals = true, value_delimiter = ',',
          default_missing_value = "self,foreign", conflicts_with_all = ["count", "until_ci"])]
    pub(crate) under_load: Option<Vec<LoadArg>>,
    /// Packets of the load per second, such as 100k or 2M [default: as fast as it can]
    #[arg(long, value_name = "PPS", value_parser = rate, requires = "under_load")]
    pub(crate) load_rate: Option<u64>,
    /// Bytes of its packets, from the Ethernet header on, without FCS, such as 512 or 1.5k
    #[arg(long, default_value_t = 1024, value_name = "BYTES", requires = "under_load",
          value_parser = bytes_in(64_u32..=9216))]
    pub(crate) load_size: u32,
    /// UDP port that foreign load goes to: 9, discard, where the kernel throws it away
    #[arg(long, default_value_t = 9, value_name = "PORT", requires = "under_load", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) load_port: u16,
    /// A command for the shell that loads the path instead, such as 'iperf3 -c 192.0.2.7 -t 60'; it is ended with its turn
    #[arg(long, value_name = "COMMAND", requires = "under_load", conflicts_with = "load_port")]
    pub(crate) load_command: Option<String>,
    /// How often each has its turn, up to 1k, of one second, or of what is given with --time
    /// divided by them all
    #[arg(long, default_value_t = 5, value_name = "N", requires = "under_load",
          value_parser = count_in(1_u32..=1000))]
    pub(crate) rounds: u32,
}

impl LoadArgs {
    /// The rate of the probes where the command line gives neither a rate nor a depth: without a schedule, a probe that waits
    /// for room behind the load would not be late but later.
    pub(crate) fn probe_rate(&self) -> Option<u64> {
        self.under_load.as_ref().map(|_| PROBES)
    }
}

/// `--under-load`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadArg {
    /// In the probes' own flow
    #[value(name = "self")]
    Own,
    /// In another
    Foreign,
}

impl LoadArg {
    pub(crate) fn schema(self) -> LoadKind {
        match self {
            Self::Own => LoadKind::SelfInduced,
            Self::Foreign => LoadKind::Foreign,
        }
    }
}
