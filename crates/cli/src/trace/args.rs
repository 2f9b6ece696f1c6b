//! The command line of `ringside trace`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use ringside_measure::probe::HEADER_LEN;

use crate::args::{OutputArgs, bad_value, bytes_in, count, count_in, rate, seconds, time_in};
use crate::compare::Bench;

const EXAMPLES: &str = "\
Examples:
  ringside trace --lab veth                        a UDP socket that sleeps, on a test bed of its own, in five seconds
  ringside trace --interface eth1,eth2@far --receivers udp-spin,af-xdp-native   two ports, the second in a namespace
  ringside trace --session any -t 10               what others send and receive here: ringside ping, tx, echo
  ringside trace --lab veth --stop-above 500us -t 60   until a packet takes longer, and what went on on its CPUs then

Turns with and without tracing alternate, so that what tracing costs is known. Times are of CLOCK_MONOTONIC, in the kernel and
outside. What a kernel has no hook for is told, and missing.";

/// What to trace, for how long, and what to tell.
#[derive(Debug, clap::Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) bench: Bench,

    /// Trace the probes of others that are sent and received on this machine, in all its namespaces: those of a session, by its
    /// number, or any
    #[arg(long, group = "path", value_name = "ID|any", value_parser = session)]
    pub(super) session: Option<Session>,

    /// What receives, one after the other
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "udp-blocking",
        value_name = "KINDS",
        conflicts_with = "session"
    )]
    pub(super) receivers: Vec<Receiver>,

    /// Packets per second, such as 1000 or 10k, at uneven times
    #[arg(long, default_value_t = 1000, value_name = "PPS", value_parser = rate, conflicts_with = "session")]
    pub(super) rate: u64,

    /// Bytes of a packet from the Ethernet header on, without FCS, such as 512 or 1.5k
    #[arg(long, default_value_t = 128, value_name = "BYTES", conflicts_with = "session",
          value_parser = bytes_in(82_u16..=1514))]
    pub(super) size: u16,

    /// Seconds for each receiver, or a time such as 500ms or 2min
    #[arg(short, long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    pub(super) time: Duration,

    /// Packets to be traced for each receiver, such as 10k, if there are as many in the time
    #[arg(short = 'n', long, value_name = "PACKETS", value_parser = count)]
    pub(super) count: Option<u64>,

    /// Trace one packet in so many, such as 100 or 1k
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = count_in(1_u32..=u32::MAX))]
    pub(super) one_of: u32,

    /// Trace all the time: no turns without, and nothing about what tracing costs
    #[arg(long, conflicts_with = "session")]
    pub(super) no_cost: bool,

    /// Do not look for what else the CPUs do
    #[arg(long)]
    pub(super) no_disturbers: bool,

    /// Stop when a packet takes longer than this, such as 500us, and show what went on on its CPUs
    #[arg(long, value_name = "TIME", value_parser = bound)]
    pub(super) stop_above: Option<Duration>,

    /// Write what is seen into a file until told to end, for `ringside lab`, which runs this in guests
    #[arg(long, value_name = "FILE", requires = "session", hide = true)]
    pub(super) events: Option<PathBuf>,

    /// Print all figures, and what explains them
    #[arg(short, long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(super) output: OutputArgs,
}

/// `--session`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    Any,
    One(u32),
}

/// `--receivers`. The names are a promise: they stand in results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Receiver {
    /// UDP socket, sleeping in the system call
    UdpBlocking,
    /// UDP socket, asked again and again
    UdpSpin,
    /// Packet socket, mapped ring, looked at again and again
    AfPacket,
    /// AF_XDP, native XDP, looked at again and again
    AfXdpNative,
    /// AF_XDP, native XDP, sleeping in poll()
    AfXdpPoll,
    /// AF_XDP, generic XDP, looked at again and again
    AfXdpGeneric,
    /// AF_XDP, native XDP with zero-copy, looked at again and again
    AfXdpZeroCopy,
}

impl Receiver {
    /// The name on the command line and in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UdpBlocking => "udp-blocking",
            Self::UdpSpin => "udp-spin",
            Self::AfPacket => "af-packet",
            Self::AfXdpNative => "af-xdp-native",
            Self::AfXdpPoll => "af-xdp-poll",
            Self::AfXdpGeneric => "af-xdp-generic",
            Self::AfXdpZeroCopy => "af-xdp-zero-copy",
        }
    }

    pub(super) fn is_udp(self) -> bool {
        matches!(self, Self::UdpBlocking | Self::UdpSpin)
    }
}

impl Args {
    /// Said before anything is built.
    pub(super) fn check(&self) -> Result<()> {
        if self.no_disturbers && self.stop_above.is_some() {
            bad_value!("--stop-above shows what the CPUs did, which --no-disturbers leaves out: take one of the two");
        }
        if self.session.is_none() && !self.no_cost && self.time < self.bench.turn() * 2 {
            bad_value!(
                "-t {:.1}: there is no time for a turn with and one without tracing, {:.0} ms each: a longer time, a shorter \
                 --slot-ms, or --no-cost",
                self.time.as_secs_f64(),
                self.bench.turn().as_secs_f64() * 1e3
            );
        }
        Ok(())
    }

    /// Mean time between two packets.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(1) / u32::try_from(self.rate).unwrap_or(u32::MAX)
    }
}

fn session(text: &str) -> Result<Session, String> {
    if text == "any" {
        return Ok(Session::Any);
    }
    text.parse().map(Session::One).map_err(|_| {
        format!(
            "{text:?} is neither the number of a session (0 to 4294967295; ringside's own is its process id) nor any"
        )
    })
}

fn bound(text: &str) -> Result<Duration, String> {
    let range = Duration::from_micros(1)..=Duration::from_secs(60);
    time_in(&range, text)?.ok_or_else(|| format!("{text:?} is no bound; it takes 1us to 60s"))
}

/// So that a payload always has room for a probe.
const _: () = assert!(82 - 14 - 20 - 8 >= HEADER_LEN);
