//! The command line of `ringside search`.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use ringside_measure::search::{Goal, Range};

use crate::args::{FlowArgs, OutputArgs, PortArgs, bad_value, bytes_in};
use crate::args::{count_in, rate, seconds, time_in};
use crate::compare::LabKind;
use crate::serve::RemoteArgs;

const EXAMPLES: &str = "\
Examples:
  ringside search eth0 --to 192.0.2.7          through the path to a `ringside echo` there and back
  ringside search eth0 --to 192.0.2.7 --receive eth1   in at eth0, out at eth1 of the device in between
  ringside search eth0 --to 192.0.2.7 --loss 0,0.5 --sizes 82,512,1514,imix
  ringside search eth0 --to 192.0.2.7 --method rfc2544 --trial 60s
  ringside search eth0 --to 192.0.2.7 --curve --burst 50 --soak 10min
  ringside search 192.0.2.7 --token-file ringside.token   to a host where `ringside serve` runs, and back
  ringside search 192.0.2.7 --token-file ringside.token --count-there   there only: the server counts
  ringside search 192.0.2.7 --token-file ringside.token --method rfc9097   capacity of a path of which nothing is known
  ringside search --lab veth --quick           on a test bed of its own, in half a minute";

/// What to search, on which path, and how exactly.
#[derive(Clone, Debug, clap::Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    /// Interface that the packets come out at, if not where they went in
    #[arg(long, value_name = "INTERFACE", conflicts_with = "lab")]
    pub(super) receive: Option<String>,
    /// Build a test bed and search on it: two network namespaces, a veth pair, a `ringside echo` at the other end
    #[arg(long, value_enum)]
    pub(super) lab: Option<LabKind>,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    /// The server counts what comes there, and sends nothing back: the rates of one direction, without latencies
    #[arg(long, conflicts_with_all = ["receive", "lab"])]
    pub(super) count_there: bool,
    #[command(flatten)]
    pub(super) output: OutputArgs,
    /// Print all figures: times for each goal, why a mode is not a better one, and the machines
    #[arg(short, long)]
    pub(super) verbose: bool,

    /// How rates are searched
    #[arg(long, value_enum, default_value_t = Method::Mlr)]
    pub(super) method: Method,
    /// Packets that may be lost, in percent, one search for all: 0 is the no-drop rate
    #[arg(long, value_delimiter = ',', default_value = "0,0.5", value_name = "PERCENT")]
    loss: Vec<f64>,
    /// Bytes of packets from the Ethernet header on, without FCS, such as 512 or 1.5k; imix: 7 of
    /// 60, 4 of 590, 1 of 1514; rfc2544: its seven sizes
    /// [default: 82; for --method rfc9097 1514]
    #[arg(long, value_delimiter = ',', value_name = "BYTES")]
    pub(super) sizes: Vec<Size>,
    /// The lowest rate that is of interest, in packets per second, such as 1000 or 10k
    #[arg(long, default_value_t = 1_000, value_name = "PPS", value_parser = rate)]
    from_rate: u64,
    /// The highest rate to try, in packets per second, such as 100k or 2M
    #[arg(long, default_value_t = 1_000_000, value_name = "PPS", value_parser = rate)]
    to_rate: u64,
    /// How far apart lower and upper bound may be in the end, in percent
    #[arg(long, default_value_t = 1.0, value_name = "PERCENT")]
    exact: f64,
    /// Duration of the trials that count
    #[arg(long, default_value = "500ms", value_name = "TIME", value_parser = duration)]
    trial: Duration,
    /// Duration of the first, shorter trials (mlr), such as 100ms [default: a fifth of --trial]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    first_trial: Option<Duration>,
    /// Time of trials after which a rate is certainly decided (mlr), such as 10s
    /// [default: 21 trials]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    sum: Option<Duration>,
    /// Trials that may be bad in percent of the time (mlr): with 50 a minority of disturbed ones does no harm
    #[arg(long, default_value_t = 50.0, value_name = "PERCENT")]
    exceed: f64,
    /// How often a trial with too much loss is repeated, up to 1k times, before its rate counts as
    /// too high (rfc2544, --burst)
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = count_in(0_u32..=u32::MAX))]
    pub(super) verify: u32,
    /// How long to wait for the last packets of a trial
    #[arg(long, default_value = "200ms", value_name = "TIME", value_parser = duration)]
    pub(super) drain: Duration,

    /// Latency at these percentages of each rate that was found
    #[arg(long, value_delimiter = ',', default_value = "10,50,90,100", value_name = "PERCENT")]
    pub(super) latency_at: Vec<f64>,
    /// Leave the latency out
    #[arg(long)]
    pub(super) no_latency: bool,
    /// Also how much is lost at each rate, from the highest downwards (RFC 2544, 26.3)
    #[arg(long)]
    pub(super) curve: bool,
    /// Also the longest burst that is taken whole, searched so many times, such as 50, which
    /// RFC 9004 wants, or 1k
    #[arg(long, value_name = "N", value_parser = count_in(1_u32..=u32::MAX))]
    pub(super) burst: Option<u32>,
    /// Also a long trial at the rate of the first goal, such as 10min
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) soak: Option<Duration>,
    /// Search also where packets are lost at the lowest rate
    #[arg(long)]
    pub(super) even_if_unstable: bool,
    /// Pieces of one second, of which the best is the capacity (rfc9097), such as 10 or 1k
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = count_in(1_u32..=3600))]
    pub(super) pieces: u32,
    /// Short trials, five of them a rate, bounds 5 % apart: to try it out
    #[arg(long)]
    pub(super) quick: bool,
    /// Seconds, or a time such as 30min, as a limit for everything together; what is known then is
    /// printed
    #[arg(short, long, default_value = "1800", value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Duration,
}

/// `--method`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Method {
    /// MLRsearch: all loss ratios at once, short trials first
    Mlr,
    /// Binary search with loss verification
    Rfc2544,
    /// Capacity of one direction, in bits per second of IP packets: the sender goes by what a `ringside serve` reports twenty
    /// times a second
    Rfc9097,
}

/// `--sizes`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Bytes(u32),
    Imix,
    Rfc2544,
}

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "imix" => Ok(Self::Imix),
            "rfc2544" => Ok(Self::Rfc2544),
            _ => bytes_in(0..=u32::MAX)(text)
                .map(Self::Bytes)
                .map_err(|error| format!("{error}, or imix, or rfc2544")),
        }
    }
}

/// A size or a mix, with the packets that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub(super) name: String,
    /// Bytes of each packet of one turn.
    pub(super) sizes: Vec<u32>,
}

/// The seven sizes of RFC 2544 for Ethernet, less the check sequence.
const RFC2544: [u32; 7] = [60, 124, 252, 508, 1020, 1276, 1514];

impl Args {
    /// What is wrong with the command line, told before anything is touched.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_one_way() && self.remote.server.is_none() {
            let option = if self.count_there {
                "--count-there"
            } else {
                "--method rfc9097"
            };
            bad_value!(
                "{option}: who counts there? Name a host where `ringside serve` runs in the interface's place, or with --server"
            );
        }
        match (self.port.interface.is_empty(), self.lab) {
            (true, None) => bad_value!("where? Give an interface, or --lab veth for a test bed of its own"),
            (false, Some(_)) => {
                bad_value!("--lab veth brings its own interfaces: leave the interface out")
            }
            _ => {}
        }
        for (name, percents) in [("--loss", &self.loss), ("--latency-at", &self.latency_at)] {
            let most = if name == "--loss" { 99.0 } else { 100.0 };
            if let Some(percent) = percents.iter().find(|percent| !(0.0..=most).contains(*percent)) {
                bad_value!("{name} {percent}: percentages from 0 to {most}");
            }
        }
        if !(0.01..=50.0).contains(&self.exact) {
            bad_value!("--exact {}: percentages from 0.01 to 50", self.exact);
        }
        if !(0.0..100.0).contains(&self.exceed) {
            bad_value!("--exceed {}: percentages from 0 to below 100", self.exceed);
        }
        self.range()?;
        // What a goal does not allow is told by its own words.
        ringside_measure::search::Mlr::new(self.range()?, self.goals())?;
        Ok(())
    }

    /// Whether a server counts what comes, instead of sending it back.
    pub(super) fn is_one_way(&self) -> bool {
        self.count_there || self.method == Method::Rfc9097
    }

    pub(super) fn range(&self) -> Result<Range> {
        Ok(Range::new(self.from_rate, self.to_rate)?)
    }

    /// The longest that is not interrupted at the end of `--time`.
    pub(super) fn longest_trial(&self) -> Duration {
        let pieces = Duration::from_secs(u64::from(self.pieces));
        self.trial.max(self.soak.unwrap_or_default()).max(pieces)
    }

    /// Duration of the trials that count.
    pub(super) fn trial_ns(&self) -> u64 {
        nanos(if self.quick {
            self.trial.min(Duration::from_millis(300))
        } else {
            self.trial
        })
    }

    pub(super) fn width(&self) -> f64 {
        if self.quick {
            self.exact.max(5.0) / 100.0
        } else {
            self.exact / 100.0
        }
    }

    /// A goal for each loss ratio.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let trial = self.trial_ns();
        let sum = self
            .sum
            .map_or(trial.saturating_mul(if self.quick { 5 } else { 21 }), nanos);
        let goal = |percent: &f64| Goal {
            loss_ratio: percent / 100.0,
            exceed_ratio: self.exceed / 100.0,
            width: self.width(),
            initial_trial_ns: self.first_trial.map_or(trial.div_ceil(5), nanos),
            final_trial_ns: trial,
            duration_sum_ns: sum,
        };
        self.loss.iter().map(goal).collect()
    }

    /// The packets to search with; `least` is what the smallest that holds a probe has, and whether something was raised to it.
    pub(super) fn mixes(&self, least: u32) -> (Vec<Mix>, bool) {
        let mut raised = false;
        let mut one = |bytes: u32| {
            raised |= bytes < least;
            bytes.max(least)
        };
        let mut mixes: Vec<Mix> = Vec::new();
        let usual = match self.method {
            Method::Mlr | Method::Rfc2544 => Size::Bytes(82),
            Method::Rfc9097 => Size::Bytes(1514),
        };
        let sizes = match &self.sizes[..] {
            [] => &[usual],
            sizes => sizes,
        };
        for size in sizes {
            match size {
                Size::Bytes(bytes) => mixes.push(Mix {
                    name: bytes.to_string(),
                    sizes: vec![*bytes],
                }),
                Size::Imix => mixes.push(Mix {
                    name: "imix".to_owned(),
                    sizes: [one(60); 7].into_iter().chain([590; 4]).chain([1514]).collect(),
                }),
                Size::Rfc2544 => mixes.extend(RFC2544.map(&mut one).map(|bytes| Mix {
                    name: bytes.to_string(),
                    sizes: vec![bytes],
                })),
            }
        }
        (mixes, raised)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn duration(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(7 * 24 * 3600);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?}: it takes 1us to a week"))
}
