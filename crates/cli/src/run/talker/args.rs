//! The options of `ringside talker`.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ringside_measure::schedule::{Class, nanos};

use crate::args::{FlowArgs, PortArgs, RunArgs, ViaArg, count, period};
use crate::run::streams::{ClockArgs, ScheduleArgs};

const EXAMPLES: &str = "\
Examples:
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:100us:200:2,3:200us:300us:1000
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us --via af-xdp --cpus 1 --priority 80
  ringside talker eth0 --to-mac 02:00:00:00:00:01 --class 5:0us:300us --vlan 10 -t 10 --json
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us --qdisc taprio
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us --qdisc etf --lead 500us --delta 200us
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us --max-clock-offset 1us
  ringside talker eth0 --to 192.0.2.7 --class 5:0us:300us,3:300us:300us --fault late:5:350us";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct TalkerArgs {
    #[command(flatten)]
    pub(crate) port: PortArgs,
    #[command(flatten)]
    pub(crate) run: RunArgs,
    #[command(flatten)]
    pub(crate) flow: FlowArgs,
    #[command(flatten)]
    pub(crate) schedule: ScheduleArgs,
    #[command(flatten)]
    pub(crate) clock: ClockArgs,
    /// VLAN of the packets; 0: their tag has only a priority
    #[arg(long, value_name = "ID", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4094))]
    pub(crate) vlan: u16,
    /// What it sends through: a packet socket for each class, with SO_TXTIME where etf or taprio is there to keep times, or an XDP
    /// socket, with launch times where the NIC keeps them. Where nobody does, the thread waits for each packet
    #[arg(long, value_enum, default_value_t = ViaArg::AfPacket)]
    pub(crate) via: ViaArg,
    /// Queueing disciplines to install for the time of the run, in place of the kernel's own
    #[arg(long, value_enum, default_value_t = QdiscArg::AsItIs)]
    pub(crate) qdisc: QdiscArg,
    /// Where somebody keeps times: hand packets over so long before
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = period)]
    pub(crate) lead: Duration,
    /// With --qdisc etf: it gives a packet to the driver so long before its time, and throws away what it gets later than that
    #[arg(long, value_name = "TIME", default_value = "200us", value_parser = period)]
    pub(crate) delta: Duration,
    /// With --qdisc etf: have the NIC keep the times
    #[arg(long)]
    pub(crate) etf_offload: bool,
    /// Wait for deadlines spinning, a core at 100 % [default: asleep, woken as early as waking up has taken lately]
    #[arg(long)]
    pub(crate) spin: bool,
    /// Sleep until the deadline itself, and be late by what waking up takes
    #[arg(long, conflicts_with = "spin")]
    pub(crate) sleep: bool,
    /// Do something wrong, to see that the listener finds it: late:PCP:TIME, such as late:5:350us,
    /// sends a class so much later than due, omit:PCP:N, such as omit:5:1k, leaves out each Nth
    /// packet of it
    #[arg(long, value_name = "FAULT")]
    pub(crate) fault: Vec<Fault>,
}

/// `--qdisc`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum QdiscArg {
    /// Install nothing
    AsItIs,
    /// Each class in a TX queue of its own, as far as there are some
    Mqprio,
    /// The same with etf, which keeps each packet until its time
    Etf,
    /// The same with gates that are open in the class's window only
    Taprio,
}

/// `--fault`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Late { pcp: u8, ns: u64 },
    Omit { pcp: u8, each: u64 },
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no fault; write late:PCP:TIME or omit:PCP:N");
        let mut parts = text.split(':');
        let (Some(kind), Some(pcp), Some(what), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(wrong());
        };
        let pcp = pcp.parse().map_err(|_| wrong())?;
        match kind {
            "late" => Ok(Self::Late { pcp, ns: nanos(what)? }),
            "omit" => Ok(Self::Omit {
                pcp,
                each: count(what)?,
            }),
            _ => Err(wrong()),
        }
    }
}

impl TalkerArgs {
    /// By how much a class is sent later, on purpose.
    pub(super) fn later_ns(&self, class: &Class) -> u64 {
        let later = self.fault.iter().filter_map(|fault| match fault {
            Fault::Late { pcp, ns } if *pcp == class.pcp => Some(*ns),
            _ => None,
        });
        later.sum()
    }

    /// Each how manieth packet of a class is left out, on purpose.
    pub(super) fn omit(&self, class: &Class) -> Option<u64> {
        self.fault.iter().find_map(|fault| match fault {
            Fault::Omit { pcp, each } if *pcp == class.pcp => Some(*each),
            _ => None,
        })
    }
}
