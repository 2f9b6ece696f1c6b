//! Rates that a path sustains.

use serde::{Deserialize, Serialize};

use super::LatencyKind;
use crate::latency::Summary;
use crate::search::{BackToBackResult, Outcome, StabilityResult, Trial};

/// A search, one table for each size of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SearchResult {
    /// How: `mlr` or `rfc2544`.
    pub method: String,
    /// The lowest rate of interest, in packets per second.
    pub min_pps: u64,
    /// The highest rate that was tried.
    pub max_pps: u64,
    /// Which time the latencies are.
    pub kind: LatencyKind,
    /// A signal or the time-out ended it: what is not finished says so.
    pub interrupted: bool,
    /// For how long the thread that waited most was ready to run and had no CPU, in percent of the
    /// time: of those that send and receive, and of the `ringside echo` of a test bed.
    #[serde(default)]
    pub cpu_wait_percent: Option<f64>,
    /// The tables, in the order in which they were searched.
    pub tables: Vec<SearchTable>,
}

/// What was found for packets of one size, or one mix.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SearchTable {
    /// Its name: bytes, or `imix`.
    pub name: String,
    /// Bytes of the packets that take turns, from the Ethernet header on, without check sequence.
    pub frame_bytes: Vec<u32>,
    /// Mean bytes that an Ethernet link is busy for with a packet: padding, check sequence, preamble and gap included.
    pub wire_bytes: f64,
    /// Trials at the lowest rate, before anything was searched.
    pub stability: Option<StabilityRecord>,
    /// Why nothing was searched, if nothing was.
    pub refused: Option<String>,
    /// What was found for each loss ratio.
    pub goals: Vec<FoundRate>,
    /// How much is lost at each rate, from the highest downwards.
    pub curve: Vec<TrialRecord>,
    /// The longest burst that is taken whole.
    pub burst: Option<BurstRecord>,
    /// A long trial.
    pub soak: Option<TrialRecord>,
    /// Capacity by the receiver's reports (RFC 9097); left out where it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRecord>,
    /// Trials in all.
    pub trials: u64,
    /// Trials that lost packets while other processes had the CPU, and were repeated.
    #[serde(default)]
    pub repeated_trials: u64,
    /// Time of trials in all, in nanoseconds.
    pub trial_time_ns: u64,
}

/// Losses at the lowest rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StabilityRecord {
    /// The rate, in packets per second.
    pub load_pps: u64,
    /// Trials.
    pub trials: u64,
    /// Trials that lost a packet.
    pub bad_trials: u64,
    /// Packets that were to be sent.
    pub intended_packets: u64,
    /// Packets that were lost.
    pub lost_packets: u64,
}

impl StabilityRecord {
    /// What trials at this rate have shown.
    #[must_use]
    pub fn of(load_pps: u64, seen: &StabilityResult) -> Self {
        Self {
            load_pps,
            trials: seen.trials as u64,
            bad_trials: seen.bad_trials as u64,
            intended_packets: seen.intended_packets,
            lost_packets: seen.lost_packets,
        }
    }
}

/// The rate that was found for a loss ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FoundRate {
    /// Packets that may be lost, in percent.
    pub loss_percent: f64,
    /// The highest rate that reaches it; `None`: not even the lowest of the range does.
    pub lower_pps: Option<u64>,
    /// The lowest rate that does not; `None`: the highest of the range does.
    pub upper_pps: Option<u64>,
    /// What is forwarded at `lower_pps`, in packets per second.
    pub throughput_pps: Option<f64>,
    /// That in bits per second on the wire.
    pub wire_bps: Option<f64>,
    /// The bounds are as close as was asked for, or at an end of the range.
    pub finished: bool,
    /// What is above is the sender's limit: it did not get out what it was to send.
    pub limited_by_sender: bool,
    /// Latency at parts of `lower_pps`.
    pub latency: Vec<LatencyAt>,
}

/// Latency at one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatencyAt {
    /// Percentage of the rate that was found.
    pub percent: f64,
    /// The trial.
    pub trial: TrialRecord,
    /// From the real sending.
    pub raw: Option<Summary>,
    /// From the intended sending.
    pub corrected: Option<Summary>,
    /// All of the corrected ones (HdrHistogram V2, compressed, base64).
    pub corrected_hdr: Option<String>,
}

/// One trial with what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TrialRecord {
    /// Packets per second that were to be sent.
    pub load_pps: u64,
    /// For how long, in nanoseconds.
    pub duration_ns: u64,
    /// Packets that were to be sent.
    pub intended_packets: u64,
    /// Packets that were sent.
    pub sent_packets: u64,
    /// Packets that came out of the path, each once.
    pub received_packets: u64,
    /// Those that did not, in percent of what was to be sent.
    pub loss_percent: f64,
}

impl TrialRecord {
    /// Of a trial and what came of it.
    #[must_use]
    pub fn of(trial: Trial, outcome: Outcome) -> Self {
        Self {
            load_pps: trial.load_pps,
            duration_ns: trial.duration_ns,
            intended_packets: outcome.intended,
            sent_packets: outcome.sent,
            received_packets: outcome.received,
            loss_percent: outcome.loss_ratio() * 100.0,
        }
    }
}

/// The longest burst that is taken whole.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct BurstRecord {
    /// Rate of the bursts, in packets per second.
    pub rate_pps: u64,
    /// Searches.
    pub searches: u64,
    /// Mean length, in packets.
    pub mean_packets: f64,
    /// The least.
    pub min_packets: u64,
    /// The greatest.
    pub max_packets: u64,
    /// Searches in which the longest burst that was tried was taken.
    pub unlimited: u64,
    /// Time of the mean burst, in nanoseconds (RFC 9004).
    pub implied_buffer_ns: f64,
    /// Less what is forwarded meanwhile, of a path without loss at the first goal's rate (RFC 9004); `None` where that was not found.
    pub corrected_buffer_ns: Option<f64>,
}

impl BurstRecord {
    /// Of searches with bursts at this rate, on a path that forwards `throughput_pps`.
    #[must_use]
    pub fn of(rate_pps: u64, found: &BackToBackResult, throughput_pps: Option<f64>) -> Self {
        Self {
            rate_pps,
            searches: found.searches as u64,
            mean_packets: found.mean_packets,
            min_packets: found.min_packets,
            max_packets: found.max_packets,
            unlimited: found.unlimited as u64,
            implied_buffer_ns: found.implied_buffer_ns,
            corrected_buffer_ns: throughput_pps.map(|throughput| found.corrected_buffer_ns(rate_pps, throughput)),
        }
    }
}

/// The capacity of one direction, by the receiver's reports (RFC 9097). Bits are those of IP packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CapacityRecord {
    /// The best second, as it came in; `None` where no second was whole.
    pub capacity_bps: Option<f64>,
    /// All of them, in order.
    pub pieces_bps: Vec<f64>,
    /// Bytes of the packets, from the Ethernet header on, without check sequence.
    pub frame_bytes: u64,
    /// The highest rate that was tried.
    pub highest_bps: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Packets that came, each once.
    pub received_packets: u64,
    /// Those that came after a later one.
    pub reordered_packets: u64,
    /// Packets that came once more.
    pub duplicated_packets: u64,
    /// The sender did not get out what it was to send: the path may have more.
    pub limited_by_sender: bool,
}
