//! Several ways to do the same, interleaved.

use serde::{Deserialize, Serialize};

use super::{LoadKind, Mode, Operation, UntilCi};
use crate::compare::{Figure, Ratio, Round};

/// A comparison: one table for each operation and size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CompareResult {
    /// How often each variant ran.
    pub rounds: u32,
    /// How long each time, in nanoseconds.
    pub round_duration_ns: u64,
    /// CPU steal in percent above which a round was left out.
    pub steal_limit_percent: f64,
    /// Time that the thread which waited most was ready to run and another process had its CPU, in
    /// percent of a turn: the median of the turns that count.
    #[serde(default)]
    pub cpu_wait_percent: Option<f64>,
    /// Turns that were measured a second time because of CPU steal; the second reading counts.
    #[serde(default)]
    pub turns_repeated: u32,
    /// The tables.
    pub tables: Vec<Table>,
    /// What became of `--until-ci`; left out where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ci: Option<UntilCi>,
}

/// The variants of one operation on the same path with the same size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Table {
    /// What was done.
    pub operation: Operation,
    /// Frames in bytes, from the Ethernet header on, without check sequence.
    pub frame_bytes: u64,
    /// Payload of a frame in bytes.
    pub payload_bytes: u64,
    /// What loaded the variants: a generator and its rate, or a schedule.
    pub load: String,
    /// Name of the variant that ratios are relative to.
    pub base: String,
    /// Name of the field that ratios and `rounds` are about, such as `packets_pps`.
    pub ratio_of: String,
    /// The variants, in order of the table.
    pub variants: Vec<Variant>,
    /// Each variant against itself, where it took part twice (A/A); left out where none did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aa: Vec<AaRatio>,
    /// Round trips under load, each beside its idle self in `variants`; left out where nobody asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub under_load: Vec<LoadedVariant>,
    /// The difference in percent from which on a ratio means something here: how far the intervals of `aa` reach from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_floor_percent: Option<f64>,
}

impl Table {
    /// Returns the best variant that an application can use, with its figure: the lowest median
    /// round trip of pings, otherwise the most packets per second. `xdp-limit` is excluded: it is
    /// the kernel's own limit. Returns `None` if no variant has a figure.
    #[must_use]
    pub fn best(&self) -> Option<(&Variant, Figure)> {
        let is_time = self.operation == Operation::Ping;
        let options = self.variants.iter().filter(|variant| variant.name != "xdp-limit");
        let figures = options.filter_map(|variant| {
            let figure = if is_time {
                variant.rtt_p50_ns
            } else {
                variant.packets_pps
            };
            Some((variant, figure?))
        });
        let order = |a: &(&Variant, Figure), b: &(&Variant, Figure)| a.1.median.total_cmp(&b.1.median);
        if is_time {
            figures.min_by(order)
        } else {
            figures.max_by(order)
        }
    }
}

/// The round trips of a variant while something loads its path. Figures are as those of a [`Variant`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadedVariant {
    /// Name of the variant.
    pub name: String,
    /// What loads the path.
    pub kind: LoadKind,
    /// Packets of the load per second that were asked for.
    pub load_pps: f64,
    /// Why there are no figures, if it could not run.
    pub failure: Option<String>,
    /// Packets lost, in percent of those sent.
    pub loss_percent: Option<Figure>,
    /// Median round trip.
    pub rtt_p50_ns: Option<Figure>,
    /// 99 % of the round trips took at most this long.
    pub rtt_p99_ns: Option<Figure>,
    /// Longest round trip of a round.
    pub rtt_max_ns: Option<Figure>,
    /// Round trips per minute: see [`Responsiveness`](super::Responsiveness).
    pub round_trips_per_minute: Option<Figure>,
    /// The medians in proportion to those of the same variant without load, paired by rounds.
    pub ratio_to_idle: Option<Ratio>,
    /// The rounds themselves.
    pub rounds: Vec<Round>,
}

/// A variant that took part twice, under two names, in proportion to itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AaRatio {
    /// Name of the variant.
    pub name: String,
    /// The second in proportion to the first, paired by rounds: 1 but for noise. `None` without a pair.
    pub ratio: Option<Ratio>,
    /// The rounds of the second; those of the first are the variant's.
    pub rounds: Vec<Round>,
}

/// One way to do it. Each figure is the median over the rounds used, with its spread: every round gives one value of it.
///
/// That holds for the shortest and the longest round trip, too: `median` of `rtt_max_ns` is the median of what was longest
/// in each round, `max` of it the longest of all rounds. A percentile is told only by rounds with samples enough for it:
/// `rounds_used` says by how many.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// The set-up that was found best for it, in words.
    pub set_up: String,
    /// The mode obtained, where it is AF_XDP or XDP.
    pub mode: Option<Mode>,
    /// Why there are no figures, if the variant could not run.
    pub failure: Option<String>,
    /// Packets per second.
    pub packets_pps: Option<Figure>,
    /// Bits per second on the wire, padding, check sequence, preamble and gap included.
    pub wire_bps: Option<Figure>,
    /// Bits per second of payload.
    pub payload_bps: Option<Figure>,
    /// Packets lost, in percent of those sent.
    pub loss_percent: Option<Figure>,
    /// CPU time in user code, in percent of one CPU, of all CPUs that took part together.
    pub cpu_user_percent: Option<Figure>,
    /// CPU time in system calls and kernel threads, in percent of one CPU.
    pub cpu_system_percent: Option<Figure>,
    /// CPU time in soft interrupts, in percent of one CPU.
    pub cpu_softirq_percent: Option<Figure>,
    /// The three together, round by round: the median of a sum is not the sum of the medians.
    pub cpu_busy_percent: Option<Figure>,
    /// Shortest round trip of a round.
    pub rtt_min_ns: Option<Figure>,
    /// Mean round trip of a round.
    pub rtt_mean_ns: Option<Figure>,
    /// Median round trip.
    pub rtt_p50_ns: Option<Figure>,
    /// 90 % of the round trips took at most this long.
    pub rtt_p90_ns: Option<Figure>,
    /// 99 % of the round trips took at most this long.
    pub rtt_p99_ns: Option<Figure>,
    /// 99.9 % of the round trips took at most this long.
    pub rtt_p99_9_ns: Option<Figure>,
    /// Longest round trip of a round.
    pub rtt_max_ns: Option<Figure>,
    /// Round trips per minute: see [`Responsiveness`](super::Responsiveness).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips_per_minute: Option<Figure>,
    /// In proportion to the base; `None` for the base itself.
    pub ratio_to_base: Option<Ratio>,
    /// The rounds themselves, so that ratios can be made again.
    pub rounds: Vec<Round>,
}
