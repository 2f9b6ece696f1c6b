//! Steering: where classes of packets were to land, and where they did.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was set, what arrived where, and what is to be said of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerResult {
    /// The interface where packets were counted.
    pub interface: String,
    /// Its driver.
    pub driver: Option<String>,
    /// The interface that sent; `None` where somebody else did.
    pub sender: Option<String>,
    /// For how long it was counted.
    pub elapsed_ns: u64,
    /// What was set for the time of the run, as the kernel told it then.
    pub settings: Vec<SteerSetting>,
    /// The NIC's rules during the run, others' too; `None` where the driver has no such rules.
    pub rules: Option<Vec<SteerRule>>,
    /// The queues that the NIC's hash chooses from; empty where the driver tells of none.
    pub rss_queues: Vec<u32>,
    /// The classes, in the order of the command line or file.
    pub classes: Vec<SteerClass>,
    /// Where packets of no class landed.
    pub others: Vec<SteerLanding>,
    /// The receive queues.
    pub queues: Vec<SteerQueue>,
    /// The CPUs' software interrupts.
    pub cpus: Vec<SteerCpu>,
    /// Why packets that XDP gave to AF_XDP sockets are in no count but the driver's; `None`: they are among the landings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xsk_not_counted: Option<String>,
    /// Threads that were pinned: where they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<SteerThread>,
    /// What came out, in words.
    pub sentences: Vec<SteerSentence>,
}

/// Which packets a class or a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SteerFlow {
    /// A VLAN tag with this priority code point.
    VlanPriority(u8),
    /// UDP to this port.
    UdpPort(u16),
    /// Something else: somebody's rule.
    Other,
}

impl fmt::Display for SteerFlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VlanPriority(pcp) => write!(f, "PCP {pcp}"),
            Self::UdpPort(port) => write!(f, "UDP port {port}"),
            Self::Other => f.write_str("other packets"),
        }
    }
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerSetting {
    /// On which interface.
    pub interface: String,
    /// What.
    pub what: String,
    /// What it was to be.
    pub wanted: String,
    /// What the kernel said that it was.
    pub obtained: String,
}

/// A rule of the NIC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerRule {
    /// Where it stands.
    pub location: u32,
    /// Which packets.
    pub flow: SteerFlow,
    /// To which queue; `None`: to none.
    pub queue: Option<u32>,
}

/// A class of packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerClass {
    /// Which packets.
    pub flow: SteerFlow,
    /// The receive queue that was asked for.
    pub wanted_queue: Option<u32>,
    /// The CPU that was asked for, on which the stack is to work on them, or XDP for an AF_XDP socket.
    pub wanted_cpu: Option<u32>,
    /// Packets that were sent; `None` where somebody else sent.
    pub sent_packets: Option<u64>,
    /// Where they landed.
    pub landings: Vec<SteerLanding>,
}

/// Packets in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerLanding {
    /// Receive queue.
    pub queue: u32,
    /// CPU on which the stack worked on them, or XDP.
    pub cpu: u32,
    /// Who got them.
    #[serde(default, skip_serializing_if = "SteerTo::is_stack")]
    pub to: SteerTo,
    /// How many.
    pub packets: u64,
}

/// Who gets packets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SteerTo {
    /// The kernel's stack, behind RPS.
    #[default]
    Stack,
    /// An AF_XDP socket, from native XDP, zero-copy or not: in front of RPS.
    Xsk,
    /// An AF_XDP socket, from generic XDP, behind RPS.
    XskGeneric,
}

impl SteerTo {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_stack(&self) -> bool {
        *self == Self::Stack
    }
}

/// A receive queue and its interrupt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerQueue {
    /// Its number.
    pub queue: u32,
    /// Its interrupt; `None` for a virtual link, and where nobody tells.
    pub irq: Option<u32>,
    /// What that is called.
    pub irq_name: Option<String>,
    /// The CPUs that may handle it.
    pub irq_cpus: Vec<u32>,
    /// How often each CPU did during the run, without those that never did.
    pub interrupts: Vec<SteerCount>,
    /// Packets during the run by the driver's own counters, which also count what an XDP program takes away; `None` where it has none.
    pub driver_packets: Option<u64>,
    /// The CPUs that RPS spreads its packets over; empty: it is off.
    pub rps_cpus: Vec<u32>,
}

/// How often, on a CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerCount {
    /// The CPU.
    pub cpu: u32,
    /// How often.
    pub count: u64,
}

/// What a CPU did for packets during the run, of all interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerCpu {
    /// The CPU.
    pub cpu: u32,
    /// Software interrupts to receive (NET_RX).
    pub net_rx: u64,
    /// How often another CPU gave it packets by RPS (`/proc/net/softnet_stat`).
    pub received_rps: u64,
}

/// A thread that was pinned, looked at again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerThread {
    /// Its number.
    pub id: u32,
    /// Its name, such as `CPU 0/KVM`.
    pub name: String,
    /// The CPUs that it was to run on.
    pub wanted_cpus: Vec<u32>,
    /// For how long it ran.
    pub ran_ns: u64,
    /// How often it was seen on each CPU: looks since the last one of which it had run.
    pub seen: Vec<SteerCount>,
}

/// Something to be said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SteerSentence {
    /// Whether it is as it was asked for.
    pub right: bool,
    /// Whether that cannot be seen; it is not right then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    /// The sentence.
    pub text: String,
}

impl SteerClass {
    /// Packets that landed anywhere.
    #[must_use]
    pub fn arrived(&self) -> u64 {
        self.landings.iter().map(|landing| landing.packets).sum()
    }
}

impl SteerSentence {
    /// `ok`, `WRONG`, or `unknown`.
    #[must_use]
    pub fn mark(&self) -> &'static str {
        match (self.right, self.unknown) {
            (true, _) => "ok",
            (false, false) => "WRONG",
            (false, true) => "unknown",
        }
    }
}

impl SteerResult {
    /// Whether each class landed where it was asked for, and nothing else there.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.sentences.iter().all(|sentence| sentence.right)
    }
}
