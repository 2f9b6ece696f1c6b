//! The command line of `ringside sweep`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ringside_measure::precision::UntilWidth;
use ringside_measure::schema;
use ringside_measure::sweep::{Better, Method, Plan};

use super::knob::KnobArg;
use crate::args::{OutputArgs, budget, bytes_in, count_in, width};
use crate::compare::{Bench, Operation, Reading, cpu_busy};

const EXAMPLES: &str = "\
Examples:
  ringside sweep --lab veth --knob batch=16,64,256 --knob wait=spin,poll
  ringside sweep --lab veth --for rtt-p50 --knob wait=spin,poll,busy-poll --knob batch=1,64
  ringside sweep --lab veth --for tx-rate --knob tx-budget=32,256 --write best.toml
  ringside sweep --lab veth --halving --time 300 --knob batch=16,64,256 --knob huge-pages=off,on
  ringside sweep --interface eth1,eth2@far --for fwd-rate --knob napi-defer=default,2:200
  ringside rx eth0 --config best.toml                  a run with what was found

A knob is an option of `ringside rx` about how an interface is opened; its levels are values of that option, `default` for
leaving it out, on and off for a switch. The first level is what the others are compared with, or the option's default
where that is among them. A knob with one level is a setting that holds for all.";

/// Which knobs to turn, on what, and for how long.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) bench: Bench,

    /// What is to be best
    #[arg(long = "for", value_enum, default_value_t = Objective::RxRate, value_name = "FIGURE")]
    pub(crate) objective: Objective,

    /// A knob and its levels, such as batch=16,64,1k: mode, wait, batch, frames, working-set,
    /// frame-size, ring, headroom, tx-budget, busy-poll-budget, napi-defer, threaded-napi,
    /// huge-pages, no-need-wakeup, unaligned, multi-buffer, cpus, priority
    #[arg(long = "knob", required = true, value_name = "NAME=LEVEL,LEVEL")]
    pub(crate) knobs: Vec<KnobArg>,

    /// Bytes of a packet, from the Ethernet header on, without FCS, such as 512 or 1.5k: a round
    /// trip has at least 82, for the probe has to fit
    #[arg(long, default_value_t = 64, value_name = "BYTES", value_parser = bytes_in(60_u16..=3000))]
    pub(crate) size: u16,

    /// Successive halving instead of the whole grid: the better half goes on for twice as long, until two are left
    #[arg(long)]
    pub(crate) halving: bool,

    /// Rounds of the race, such as 20 or 1k, with --halving of its first stage [default: as many as
    /// the time allows]
    #[arg(long, value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) rounds: Option<u32>,

    /// Fresh rounds, such as 20 or 1k, in which the best has to be better than the base once more:
    /// five at least, for an interval [default: a fifth of the time, or as many as --rounds; ten
    /// times at most that with --until-ci]
    #[arg(long, value_name = "ROUNDS", value_parser = count_in(1_u32..=u32::MAX))]
    pub(crate) confirm: Option<u32>,

    /// Seconds for all of it, or a time such as 2min, unless --rounds says how much
    #[arg(
        short,
        long,
        default_value = "120",
        value_name = "SECONDS",
        value_parser = budget,
        conflicts_with = "rounds"
    )]
    pub(crate) time: Duration,

    /// Confirm until the interval of the best against the base is narrower than this part of it, such as 1%, or the time is over
    #[arg(long, value_name = "PERCENT", value_parser = width)]
    pub(crate) until_ci: Option<UntilWidth>,

    /// Differences up to this many percent do not matter
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = percent)]
    pub(crate) margin: f64,

    /// Write the best configuration to this file, for --config of rx, tx, fwd, echo and ping
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,

    /// Print all figures, and what explains them
    #[arg(short, long)]
    pub(super) verbose: bool,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// `--for`. The names are a promise: they stand in results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Objective {
    /// Packets per second received, under more load than any socket takes
    RxRate,
    /// Packets per second sent
    TxRate,
    /// Packets per second sent back, under more load than any socket takes
    FwdRate,
    /// Median round trip, one packet under way, both ends with the same settings
    RttP50,
    /// The round trip that 99 % do not exceed
    RttP99,
    /// CPU time per packet received, of the sender's and the receiver's CPU together
    CpuPerPacket,
}

impl Objective {
    pub(crate) fn operation(self) -> Operation {
        match self {
            Self::RxRate | Self::CpuPerPacket => Operation::Rx,
            Self::TxRate => Operation::Tx,
            Self::FwdRate => Operation::Fwd,
            Self::RttP50 | Self::RttP99 => Operation::Ping,
        }
    }

    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RxRate => "rx-rate",
            Self::TxRate => "tx-rate",
            Self::FwdRate => "fwd-rate",
            Self::RttP50 => "rtt-p50",
            Self::RttP99 => "rtt-p99",
            Self::CpuPerPacket => "cpu-per-packet",
        }
    }

    /// The field of results that it is.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::RxRate | Self::TxRate | Self::FwdRate => "packets_pps",
            Self::RttP50 => "rtt_p50_ns",
            Self::RttP99 => "rtt_p99_ns",
            Self::CpuPerPacket => "cpu_ns",
        }
    }

    pub(crate) fn better(self) -> Better {
        match self {
            Self::RxRate | Self::TxRate | Self::FwdRate => Better::More,
            Self::RttP50 | Self::RttP99 | Self::CpuPerPacket => Better::Less,
        }
    }

    /// Of a turn.
    ///
    /// # Errors
    /// Where the turn was too short for it.
    pub(crate) fn of(self, reading: &Reading) -> anyhow::Result<f64> {
        let rtt = reading.rtt.as_ref();
        let value = match self {
            Self::RxRate | Self::TxRate | Self::FwdRate => Some(reading.pps),
            Self::RttP50 => rtt.and_then(|rtt| rtt.p50_ns).map(|ns| ns as f64),
            Self::RttP99 => rtt.and_then(|rtt| rtt.p99_ns).map(|ns| ns as f64),
            Self::CpuPerPacket => cpu_busy(reading).map(|ns| ns / reading.pps),
        };
        value.ok_or_else(|| {
            anyhow::anyhow!(
                "too few samples in a turn for {}: make it longer, with --slot-ms",
                self.name()
            )
        })
    }
}

impl Args {
    pub(crate) fn schema_operation(&self) -> schema::Operation {
        self.objective.operation().schema()
    }

    /// How much to measure, for so many configurations.
    pub(crate) fn plan(&self, configurations: usize) -> Plan {
        let turns = self.time.as_secs_f64() / self.bench.turn().as_secs_f64();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a handful of turns"
        )]
        let turns = turns as u64;
        // Who confirms until it is known does so for the rest of the time, or for ten times as long as the race.
        let more = if self.until_ci.is_some() { 10 } else { 1 };
        let confirm = self.confirm.unwrap_or_else(|| match self.rounds {
            Some(rounds) => rounds.max(10).saturating_mul(more),
            // Each round of it is two turns.
            None => u32::try_from(turns / 10)
                .unwrap_or(u32::MAX)
                .max(10)
                .saturating_mul(more),
        });
        let mut plan = Plan {
            method: if self.halving { Method::Halving } else { Method::Grid },
            rounds: self.rounds.unwrap_or(1),
            confirm,
            until: self.until_ci.clone(),
        };
        if self.rounds.is_none() {
            let race = turns - turns / 5;
            let fits = |rounds: u32| {
                let plan = Plan {
                    rounds,
                    confirm: 0,
                    until: None,
                    ..plan
                };
                plan.turns(configurations) <= race
            };
            plan.rounds = (1..=10_000).take_while(|rounds| fits(*rounds)).last().unwrap_or(1);
        }
        plan
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').trim().parse::<f64>() {
        Ok(percent) if (0.0..100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is no percentage from 0 to 100")),
    }
}
