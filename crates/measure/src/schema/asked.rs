//! What a run asked the driver for about the packets it sent, and what came of it.

use serde::{Deserialize, Serialize};

use crate::latency::{Latency, Summary};
use crate::probe::Clock;

/// When packets left, against when they were handed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TxStampsResult {
    /// The clock of the stamps.
    pub clock: Clock,
    /// Who took them: `software`, the kernel when the driver let go of the packet, or `hardware`.
    pub source: String,
    /// Of so many packets one was to get a stamp.
    pub sampled_one_in_packets: u32,
    /// Packets sent.
    pub wanted_packets: u64,
    /// Those for which the kernel was asked.
    pub asked_packets: u64,
    /// Those that came back with a stamp.
    pub stamped_packets: u64,
    /// Those that came back without.
    pub unstamped_packets: u64,
    /// Those that did not come back until the end.
    pub outstanding_packets: u64,
    /// Stamps that nobody had room for.
    pub unread_packets: u64,
    /// Stamps before their packet was handed over, left out.
    pub impossible_packets: u64,
    /// Packets with a stamp, of those that wanted one.
    pub coverage_percent: Option<f64>,
    /// From the hand-over of a packet, or of its burst, until it left.
    pub hand_over: Option<Summary>,
    /// All of these as a histogram (HdrHistogram V2, compressed, base64).
    pub hand_over_hdr: Option<String>,
    /// How far each may be off, because stamp and hand-over are by different clocks; `None` where they are by one.
    pub uncertainty_ns: Option<u64>,
}

impl TxStampsResult {
    /// Fills in the times.
    #[must_use]
    pub fn with_times(mut self, times: &Latency) -> Self {
        self.hand_over = times.summary();
        self.hand_over_hdr = times.to_hdr();
        self
    }
}

/// Who filled in the packets' checksums, which were sent in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ChecksumBy {
    /// The device.
    Device,
    /// The device, or the kernel where it has no such offload.
    DeviceOrKernel,
    /// The kernel.
    Kernel,
}

/// Through what a cyclic sender sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// An XDP socket.
    #[default]
    AfXdp,
    /// A packet socket.
    AfPacket,
}

/// Times at which packets were to be sent, and not before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LaunchResult {
    /// From the deadline, at which a packet is handed over, to its launch time.
    pub lead_ns: u64,
    /// Who keeps to it.
    pub kept_by: LaunchBy,
    /// Packets that were taken, and thrown away because their time was over; `None` where nobody tells.
    pub missed_packets: Option<u64>,
}

/// Who keeps to a launch time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LaunchBy {
    /// The device.
    Device,
    /// The queueing discipline etf.
    Etf,
    /// The queueing discipline taprio, by whose gates a packet leaves in its window, not at its time.
    Taprio,
    /// The thread that sends, which waits for each: there is nobody else.
    Thread,
    /// Nobody that says so: it goes along with the packet to a driver that does not tell whether it looks at it.
    Unknown,
    /// Nobody.
    Nobody,
}
