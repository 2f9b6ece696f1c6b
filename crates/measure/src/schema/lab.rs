//! Paths of a lab: each idle and under load, there and back and one way, in turn.

use serde::{Deserialize, Serialize};

use super::{ClockState, LatencyResult, LaunchBy, LoadKind, MissingHook, SteerResult, TracedPath};
use crate::compare::{Ratio, Round};
use crate::latency::Summary;
use crate::schedule::Class;
use crate::sequence::Counts;

/// The matrix of a lab: path × {idle, loaded} × {round trip, one way}.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabResult {
    /// What the lab file calls itself.
    pub title: String,
    /// How often each cell had its turn.
    pub rounds: u32,
    /// How long each time, in nanoseconds.
    pub turn_ns: u64,
    /// CPU steal in percent above which a turn was left out.
    pub steal_limit_percent: f64,
    /// Name of the path that ratios are relative to.
    pub base: String,
    /// The machines, in order of the file.
    pub machines: Vec<LabMachine>,
    /// The cells, in order of the file: of each path the round trip idle and loaded, then one way.
    pub cells: Vec<LabCell>,
    /// Where the time of packets went, of the paths that were to be traced: idle and loaded, each in a turn of its own, after those that are
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<LabStages>,
    /// Guests that ended in a turn and were started again. The turn was repeated; one that a guest
    /// ended in each time failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restarts: Vec<LabRestart>,
    /// What a reader has to know.
    pub warnings: Vec<String>,
    /// It was ended before all rounds were through.
    pub interrupted: bool,
    /// The lab file, whole: what repeats the run.
    pub file: String,
}

/// A guest that ended in a turn and was started again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabRestart {
    /// Name of the guest; with several NICs, of the first one.
    pub guest: String,
    /// The turn, such as `udp, round trip, loaded`.
    pub turn: String,
    /// The last that its console said.
    pub reason: String,
}

/// A host or a guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabMachine {
    /// Its name.
    pub name: String,
    /// `namespace`, `here`, `serve` or `guest`.
    pub kind: String,
    /// CPU of this machine that its end of a path runs on; `None` where that is another machine's.
    pub cpu: Option<u32>,
    /// How a guest is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// What a guest's CPUs are made of: times of `tcg` say nothing about hardware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Release of its kernel, where that is not this machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_release: Option<String>,
}

/// One path under one condition, by one kind of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabCell {
    /// Name of the path: of the probe in the lab file.
    pub path: String,
    /// The path in words.
    pub description: String,
    /// Idle, or loaded ([`LoadKind::Foreign`]).
    pub condition: LoadKind,
    /// What the loads did, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LabLoad>,
    /// Why there are no times, if there are none.
    pub unavailable: Option<String>,
    /// The probes of the turns that count.
    pub probes: Counts,
    /// Probes that the schedule wanted sent while an answer was waited for that never came.
    pub not_sent_probes: u64,
    /// Their times, all turns that count together; `raw` is from the real sending, `corrected` from the intended one.
    pub latency: LatencyResult,
    /// The median of each turn, from the intended sending, in nanoseconds. A turn with too few samples has none.
    pub rounds: Vec<Round>,
    /// Turns that were measured.
    #[serde(default)]
    pub turns_measured: u32,
    /// Those of them in which the hypervisor took too much of the CPU time in each try.
    #[serde(default)]
    pub turns_disturbed: u32,
    /// Turns left out for CPU steal in each try; 0 where there would be none left.
    pub turns_left_out: u32,
    /// Tries of turns that were repeated for CPU steal, and do not count.
    #[serde(default)]
    pub turns_repeated: u32,
    /// Turns that failed.
    pub failed_turns: u32,
    /// Why the last of them did.
    pub failure: Option<String>,
    /// Share of the time, in percent, that a thread of a probe was ready to run and another had its CPU; the worst thread's, over all
    /// turns that count.
    pub waiting_percent: Option<f64>,
    /// The far clock, where the times take two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<LabClock>,
    /// The medians in proportion to those of the same path idle, paired by rounds; `None` for that itself.
    pub ratio_to_idle: Option<Ratio>,
    /// The medians in proportion to those of the base under the same condition; `None` for that itself.
    pub ratio_to_base: Option<Ratio>,
    /// Of a class of a schedule: its windows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<LabSchedule>,
    /// Where its packets landed, at each end that was steered for the time of its turns; of a schedule at its first class.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<LabSteering>,
    /// To a guest that is attached by XDP: what its programs redirected in the turns that count, settling included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirected: Option<LabRedirected>,
    /// To a guest whose NIC is behind a device of this machine: what that took in the turns that count, settling included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<LabTap>,
    /// Name of the path that `ratio_to_base` is relative to, where that is not the lab's: the first one beside the same loads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

/// A class of a schedule under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabSchedule {
    /// The class.
    #[serde(flatten)]
    pub class: Class,
    /// Who kept its times.
    pub kept_by: LaunchBy,
    /// Packets that were left out: their window was over before they could be sent.
    pub skipped_packets: u64,
    /// Packets that came before their window.
    pub early_packets: u64,
    /// Packets that came after their window.
    pub late_packets: u64,
    /// By how much at the most.
    pub late_most_ns: Option<u64>,
    /// Of all classes together: packets that the queueing discipline said it threw away, too late for their time; `None` where nobody tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed_packets: Option<u64>,
    /// From when on windows are counted at the receiver.
    #[serde(default, skip_serializing_if = "LabWindows::is_by_clock")]
    pub windows: LabWindows,
    /// From one packet's arrival to the next one's: inter-packet latency, by the receiver's clock alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Summary>,
    /// All of these as a histogram (HdrHistogram V2, compressed, base64).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_hdr: Option<String>,
    /// How right the clocks are that its times are kept by, of all turns the worst.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clocks: Option<Box<LabClocks>>,
}

/// The clocks of both ends of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabClocks {
    /// How far CLOCK_TAI of either may be off at the most, where the lab file asks for that.
    pub most_offset_ns: Option<u64>,
    /// Both are one clock, of one machine: nothing can be off between them, whatever that clock shows.
    pub is_one: bool,
    /// What is known of the talker's.
    pub talker: ClockState,
    /// What is known of the listener's.
    pub listener: ClockState,
    /// How far the listener's CLOCK_TAI is ahead of the talker's by the packets of the turn; `None` of one clock, and where one of them does not run evenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart_ns: Option<i64>,
    /// How far that may be wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apart_uncertainty_ns: Option<u64>,
}

/// From when on a class's windows are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LabWindows {
    /// When they begin by the sender's clock, which is the receiver's, or is known to `clock.uncertainty_ns`.
    #[default]
    Clock,
    /// When the fastest packet of the turn came that was due at a window's begin, or would have: the two clocks are not known well
    /// enough. So none is early.
    Fastest,
}

impl LabWindows {
    /// By the clock.
    #[must_use]
    pub fn is_by_clock(&self) -> bool {
        *self == Self::Clock
    }
}

/// An end that was steered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabSteering {
    /// Name of the steering in the lab file.
    pub name: String,
    /// The host where it is.
    pub host: String,
    /// What was set, what landed where, and what is to be said of it, of all turns that count together. Without counts where only threads
    /// were pinned.
    pub seen: SteerResult,
}

/// Where the time of packets went on a path under one condition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabStages {
    /// Name of the path: of the probe in the lab file.
    pub path: String,
    /// Idle, or loaded.
    pub condition: LoadKind,
    /// Whether packets were traced there and back: to a guest. One way otherwise.
    pub is_round_trip: bool,
    /// What the loads did, where there are any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<LabLoad>,
    /// Why there are no stages, if there are none.
    pub unavailable: Option<String>,
    /// The stages; `receiver` is the path's name.
    pub traced: Option<TracedPath>,
    /// Hooks that were missing, in a guest with the guest's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingHook>,
    /// The guest's clock, by which its stages were brought on the host's axis of time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<LabClock>,
    /// Where its packets landed, at each end that was steered for the time of the turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steering: Vec<LabSteering>,
    /// CPU time that the hypervisor took meanwhile, in percent of all CPUs' time.
    pub steal_percent: f64,
}

/// How far another machine's CLOCK_MONOTONIC is ahead of this one's, by what must have been before what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabClock {
    /// At the end of the turn, in nanoseconds.
    pub offset_ns: i64,
    /// By how much it runs faster, in millionths.
    pub rate_ppm: f64,
    /// How far the offset may be wrong in either direction at any moment of the turn, in nanoseconds: what the bounds leave.
    pub uncertainty_ns: u64,
    /// By how much bounds contradict each other; above 0 a clock does not run evenly, and the uncertainty does not hold.
    pub contradiction_ns: u64,
    /// Bounds that it is known by: two for each packet.
    pub bounds: u64,
    /// The uncertainty of the best of some questions over the control channel, for comparison.
    pub asked_uncertainty_ns: Option<u64>,
    /// How far its offset is from this one.
    pub asked_apart_ns: Option<u64>,
}

/// A load while it was on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabLoad {
    /// Its name.
    pub name: String,
    /// What it was to do.
    pub description: String,
    /// Packets per second that it sent; `None` where nobody counts.
    pub sent_pps: Option<f64>,
    /// Those that arrived.
    pub received_pps: Option<f64>,
    /// Bits per second that it was to send, of all its TCP streams or iperf3's: payload. `None` where it goes as fast as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_bits_per_s: Option<f64>,
    /// What it sent of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_bits_per_s: Option<f64>,
    /// What arrived of it; `None` where nobody tells, as in a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received_bits_per_s: Option<f64>,
    /// Requests that were answered, a second, of all streams of such a load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<f64>,
}

/// What the XDP programs of a guest's attachment redirected, and what they left to the kernel: packets of the probes and of everything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabRedirected {
    /// Packets to the guest that were redirected.
    pub to_guest_packets: u64,
    /// Packets to the guest that were not: on the express lane's uplink the bridge has them.
    pub to_guest_passed_packets: u64,
    /// Packets from the guest that were redirected.
    pub from_guest_packets: u64,
    /// Packets from the guest that were not.
    pub from_guest_passed_packets: u64,
}

/// What went to a guest through the device of this machine that its NIC is behind: packets of the probes and of everything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabTap {
    /// In what time, in nanoseconds.
    pub time_ns: u64,
    /// Packets that the guest's side took. One that GRO or the sender has left whole counts once, however long it is.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that were dropped in front of it, most of them for want of room: by the device's own count, and, of a burst that XDP redirects, of which
    /// that one counts one, by the kernel's tracepoint.
    pub dropped_packets: u64,
    /// That tracepoint cannot be used, so it may be more. Results from before it was used do not say so, and have one packet of each such burst.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dropped_at_least: bool,
    /// What they found waiting in front of them, where that was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<LabWaiting>,
}

/// What packets found waiting in a ring that they came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LabWaiting {
    /// Packets that came.
    pub packets: u64,
    /// How many waited there on average, seen by those that came.
    pub mean_packets: f64,
    /// How many of those that came found no room.
    pub full_packets: u64,
    /// How many there is room for.
    pub places: u64,
}

#[cfg(test)]
#[path = "lab_tests.rs"]
pub(crate) mod tests;
