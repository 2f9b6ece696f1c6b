//! The command line of `ringside impair`.

use std::time::Duration;

use anyhow::Result;
use ringside_measure::impair::{Pick, Rate, Settings, Spread, Unit};

use super::select::Matching;
use super::values::{Jitter, Packets, PerSecond, Reorder, Side, Sided, Time, time};
use crate::args::{PortArgs, RunArgs, bad_value, count_in};
use crate::session::nanos;

const EXAMPLES: &str = "\
Examples:
  ringside impair eth0,eth1 --loss 1%          a wire that loses one packet in a hundred, both ways
  ringside impair eth0,eth1 --delay 10ms --jitter 2ms --seed 7
  ringside impair eth0,eth1 --loss there=burst:0.1%,20% --delay back=5ms
  ringside impair eth0,eth1 --reorder 1%:3 --duplicate every:1000 --only there
  ringside impair eth0,eth1 --rate 100mbit --limit 200 --match udp:5201
  ringside impair eth0,eth1 --loss 0.5% -t 60 --json-file box.json";

/// What is done to which packets.
#[derive(Debug, clap::Args)]
// A negative number is a nonsense value, not an unknown option.
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct ImpairArgs {
    #[command(flatten)]
    pub(super) port: PortArgs,
    #[command(flatten)]
    pub(super) run: RunArgs,
    /// Packets to impair: all (but ARP and IPv6 neighbour discovery), udp, or udp:PORT for those from or to that port; the others
    /// are handed on as they come
    #[arg(long = "match", default_value = "all", value_name = "PACKETS")]
    pub(super) matching: Matching,
    /// Packets to lose: 1%, every:10k for the 10000th, 20000th and so on, or
    /// burst:ENTER%,LEAVE%[,BAD%[,GOOD%]] for bursts
    /// (Gilbert and Elliott: the chances to turn bad and good again, and the losses in each, 100% and 0%). `there=` or `back=` in
    /// front of this and the values below is for one direction
    #[arg(long, value_name = "[SIDE=]PACKETS")]
    loss: Vec<Sided<Packets>>,
    /// Packets to send twice, the copy directly behind: 1%, every:10k
    #[arg(long, value_name = "[SIDE=]PACKETS")]
    duplicate: Vec<Sided<Packets>>,
    /// Packets to damage, such as 1% or every:10k: a bit is turned, of the UDP payload, or else of
    /// what follows the Ethernet header
    #[arg(long, value_name = "[SIDE=]PACKETS")]
    corrupt: Vec<Sided<Packets>>,
    /// Packets to hold back until N later ones have left: 1%:3 or every:10k:3
    #[arg(long, value_name = "[SIDE=]PACKETS:N")]
    reorder: Vec<Sided<Reorder>>,
    /// Longest time that such a packet waits for them
    #[arg(long, default_value = "100ms", value_name = "TIME", value_parser = time)]
    reorder_wait: Duration,
    /// Time that each packet takes, such as 10ms
    #[arg(long, value_name = "[SIDE=]TIME")]
    delay: Vec<Sided<Time>>,
    /// By how much the delay varies: evenly up to so much less or more, such as 2ms, or normal:TIME
    /// for a normal distribution with this standard deviation
    #[arg(long, value_name = "[SIDE=]TIME")]
    jitter: Vec<Sided<Jitter>>,
    /// Packets with less delay overtake those before them [default: they wait for them, as in a queue]
    #[arg(long)]
    overtaking: bool,
    /// The link's rate: 100kpps, or 64kbit, 100mbit, 1gbit a second, of frames without FCS
    #[arg(long, value_name = "[SIDE=]RATE")]
    rate: Vec<Sided<PerSecond>>,
    /// Packets that may wait for the rate, such as 200 or 10k; what finds as many there is dropped
    #[arg(long, default_value_t = 1000, value_name = "PACKETS", requires = "rate",
          value_parser = count_in(0_u32..=1 << 20))]
    limit: u32,
    /// Direction to impair: there is from the first interface to the second
    #[arg(long, value_enum, default_value_t = Side::Both)]
    only: Side,
    /// With the same seed the same packets meet the same
    #[arg(long, default_value_t = 1)]
    pub(super) seed: u64,
    /// Packets to have memory for, such as 10k, in each direction, while they are held
    /// [default: 4096, or what --rate, --limit and --delay come to]
    #[arg(long, value_name = "PACKETS", value_parser = count_in(1_u32..=1 << 22))]
    hold: Option<u32>,
}

/// The directions, in order.
const WAYS: [Side; 2] = [Side::There, Side::Back];

impl ImpairArgs {
    /// Both interfaces.
    pub(super) fn interfaces(&self) -> Result<[&str; 2]> {
        let given = &self.port.interface;
        match given.split_once(',') {
            Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') => {
                if a == b {
                    bad_value!("{given}: a wire needs two interfaces, and these are one");
                }
                Ok([a, b])
            }
            _ => bad_value!("{given:?}: name the two interfaces to hand packets on between, such as eth0,eth1"),
        }
    }

    /// What is done in each direction.
    pub(super) fn settings(&self) -> [Settings; 2] {
        WAYS.map(|way| {
            if !self.only.has(way) {
                return Settings::default();
            }
            let pick = |given: &[Sided<Packets>]| last(given, way).map_or(Pick::Never, |packets| packets.0);
            let reorder = last(&self.reorder, way);
            let jitter = last(&self.jitter, way);
            Settings {
                loss: pick(&self.loss),
                duplicate: pick(&self.duplicate),
                corrupt: pick(&self.corrupt),
                reorder: reorder.map_or(Pick::Never, |reorder| reorder.packets),
                reorder_by: reorder.map_or(1, |reorder| reorder.by),
                reorder_wait_ns: nanos(self.reorder_wait),
                delay_ns: last(&self.delay, way).map_or(0, |time| nanos(time.0)),
                jitter_ns: jitter.map_or(0, |jitter| nanos(jitter.time)),
                spread: jitter.map_or(Spread::Uniform, |jitter| jitter.spread),
                overtaking: self.overtaking,
                rate: last(&self.rate, way).map(|rate| Rate {
                    per_second: rate.per_second,
                    unit: rate.unit,
                    queue: self.limit as usize,
                }),
            }
        })
    }

    /// Packets to have memory for in each direction, and where memory is short.
    pub(super) fn hold(&self, settings: &[Settings; 2]) -> Result<[u32; 2]> {
        let needed = settings.iter().map(needed).max().unwrap_or(0);
        let at_least = u32::try_from(needed).unwrap_or(u32::MAX);
        match self.hold {
            Some(hold) if u64::from(hold) < needed => bad_value!(
                "--hold {hold}: with this --rate, --limit and --delay {needed} packets are held at a time: give --hold {needed}, or less of \
                 the others"
            ),
            Some(hold) => Ok([hold; 2]),
            None => match [4096, 1024].map(|default| at_least.max(default)) {
                hold if hold[0] <= 1 << 22 => Ok(hold),
                _ => bad_value!(
                    "this --rate, --limit and --delay hold {needed} packets at a time, and {} is the most: give less of them",
                    1 << 22
                ),
            },
        }
    }
}

/// What was given last for a direction.
fn last<T: Copy>(given: &[Sided<T>], way: Side) -> Option<T> {
    given
        .iter()
        .rev()
        .find(|given| given.side.has(way))
        .map(|given| given.value)
}

/// Packets that a direction holds at least when it is used fully: those that wait for the rate, and those on their way behind it.
/// Where the rate is one of bits as many as are of 1514 bytes; without one nobody knows.
fn needed(settings: &Settings) -> u64 {
    let Some(rate) = settings.rate else { return 0 };
    let packets_per_second = match rate.unit {
        Unit::Packets => rate.per_second,
        Unit::Bits => rate.per_second / (1514 * 8),
    };
    let longest = u128::from(settings.delay_ns) + u128::from(settings.jitter_ns);
    let on_the_way = u128::from(packets_per_second) * longest / 1_000_000_000;
    let waiting = rate.queue as u64 + settings.reorder_by + 1;
    u64::try_from(on_the_way).unwrap_or(u64::MAX).saturating_add(waiting)
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
