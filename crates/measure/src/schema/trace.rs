//! Where the time of packets went, stage by stage.

use serde::{Deserialize, Serialize};

use crate::compare::{Figure, Ratio};
#[cfg(doc)]
use crate::latency::Latency;
use crate::latency::Summary;
use crate::probe::Clock;
use crate::trace::{Culprit, DisturberKind, Point, Stage};

/// The stages of the ways of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceResult {
    /// The clock of all stamps, in the kernel and outside.
    pub clock: Clock,
    /// One packet in so many was traced.
    pub one_of: u32,
    /// Time between two packets of the tool's own sender; `None` where others send.
    pub interval_ns: Option<u64>,
    /// Hooks that this kernel does not offer, or not to us, and what is not known without them.
    pub missing: Vec<MissingHook>,
    /// CPU time that the hypervisor took during the trace, in percent of all CPUs' time: it is in no stage of its own.
    pub steal_percent: Option<f64>,
    /// The ways that were traced: one for each receiver.
    pub paths: Vec<TracedPath>,
    /// What a reader of the figures has to know.
    pub warnings: Vec<String>,
}

/// A hook that is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingHook {
    /// `tracepoint net:net_dev_queue`, `fentry __dev_direct_xmit`.
    pub hook: String,
    /// What it would have told.
    pub tells: String,
    /// Why it is not there.
    pub reason: String,
}

/// One way of packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TracedPath {
    /// The receiver's kind, as `--receivers` has it; `None` where others receive.
    pub receiver: Option<String>,
    /// Why there are no figures, if there are none.
    pub failure: Option<String>,
    /// Packets that were sent while tracing; `None` where others send.
    pub sent_packets: Option<u64>,
    /// Packets that came to the application while tracing; `None` where others receive.
    pub received_packets: Option<u64>,
    /// Packets whose stages are in the figures.
    pub traced_packets: u64,
    /// Packets that began or ended elsewhere than the others: lost, or cut off by the end of the trace. In no figure.
    pub incomplete_packets: u64,
    /// Events that were lost because they came faster than they were read.
    pub lost_events: u64,
    /// The stages in their order; the last one is the remainder.
    pub stages: Vec<StageResult>,
    /// From the first point to the last.
    pub whole: Option<Summary>,
    /// All of it as a histogram (HdrHistogram V2, compressed, base64; [`Latency::from_hdr`] reads it).
    pub whole_hdr: Option<String>,
    /// The sum of all stages a packet, in nanoseconds: what `whole` has as its mean, by other stamps.
    pub sum_mean_ns: f64,
    /// The same packets' times as the measuring program takes them by itself; `None` where others send and receive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredWhole>,
    /// Where the way ends.
    pub end: Option<Point>,
    /// Packets with stamps before their cause; these were moved.
    pub disordered_packets: u64,
    /// By how much at the most: the clock error of the stages.
    pub clock_error_ns: u64,
    /// What tracing itself costs; `None` where it was not measured.
    pub cost: Option<TraceCost>,
    /// The slowest packets, and what went on on their CPUs.
    pub slow: Option<SlowResult>,
    /// What went on around the packet at which the trace was stopped.
    pub recorded: Option<FlightRecord>,
}

/// A stage of the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StageResult {
    /// From which transmission on, counted from 0.
    pub hop: u32,
    /// Which.
    pub stage: Stage,
    /// In words.
    pub name: String,
    /// The interface where it begins; `None` where it is at none.
    pub interface: Option<String>,
    /// Its times, of the packets that have it; `None` if none has.
    pub times: Option<Summary>,
    /// All of them as a histogram.
    pub times_hdr: Option<String>,
    /// Its part in the mean of the whole, over all packets, in nanoseconds. These add up.
    pub part_ns: f64,
    /// The same in percent.
    pub part_percent: f64,
    /// It goes from one machine's clock to another's: by how much each of its times may be wrong, in nanoseconds. What one direction has too
    /// much the other has too little. `None` where one clock was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncertainty_ns: Option<u64>,
}

/// What packets took as the measuring program takes their time, from when they were to be sent until it had them or their answers: to be held against the sum of
/// their stages, which is made of other stamps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MeasuredWhole {
    /// Packets: those of the stages.
    pub packets: u64,
    /// Their mean, in nanoseconds.
    pub mean_ns: f64,
    /// By how much `whole` of the stages is more on average.
    pub apart_mean_ns: f64,
    /// By how much the two differ of one packet at the most: within the clock error at either end.
    pub apart_max_ns: u64,
}

/// What tracing costs: the time from sending to the application, or back to it, without it and with it, in turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TraceCost {
    /// Median of the medians of the turns without tracing, in nanoseconds.
    pub off_ns: Figure,
    /// The same with tracing.
    pub on_ns: Figure,
    /// With in proportion to without.
    pub ratio: Ratio,
    /// The turns without tracing, and those with it.
    #[serde(default)]
    pub off: CostTurns,
    /// See `off`.
    #[serde(default)]
    pub on: CostTurns,
    /// Where tracing went on in the turns without, so that what it costs there is in both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub always_on: Option<String>,
}

/// Turns that are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CostTurns {
    /// How many.
    pub turns: u64,
    /// Packets that came in them.
    pub packets: u64,
    /// What this kernel's tracing programs told in them, of packets and of what had the CPUs. Of turns without tracing also what another kernel on the
    /// way told of packets: nothing where all have stopped.
    pub events: u64,
}

/// The slowest packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowResult {
    /// How many: 0.1 %.
    pub packets: u64,
    /// The fastest of them, in nanoseconds.
    pub from_ns: u64,
    /// Packets that they are compared with.
    pub usual_packets: u64,
    /// The stages that took more of them than of all packets, in nanoseconds on average, most first.
    pub stages: Vec<SlowStage>,
    /// What went on on their CPUs that does not usually, most first.
    pub culprits: Vec<Culprit>,
}

/// A stage of the slowest packets.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SlowStage {
    /// From which transmission on.
    pub hop: u32,
    /// In words.
    pub name: String,
    /// Its mean in the slowest packets.
    pub slow_mean_ns: f64,
    /// Its mean in all packets.
    pub mean_ns: f64,
}

/// A packet that took too long, and what went on on its CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlightRecord {
    /// The bound that it exceeded.
    pub bound_ns: u64,
    /// What it took.
    pub whole_ns: u64,
    /// Session of its probe.
    pub session: u32,
    /// Its number.
    pub sequence: u64,
    /// The points that it passed, and when, from its first one on.
    pub points: Vec<RecordedPoint>,
    /// What its CPUs did from a millisecond before it until its end.
    pub events: Vec<RecordedEvent>,
}

/// A point of a recorded packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedPoint {
    /// Since its first point.
    pub at_ns: u64,
    /// Which.
    pub point: Point,
    /// On which CPU.
    pub cpu: u32,
}

/// Something that had a CPU meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RecordedEvent {
    /// Since the packet's first point; below zero: before it.
    pub from_ns: i64,
    /// Until then.
    pub to_ns: i64,
    /// On which CPU.
    pub cpu: u32,
    /// What kind of thing.
    pub kind: DisturberKind,
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u32,
}
