//! What a server does for a lab besides answering: where it is told that it may (`ringside serve --lab`).

use serde::{Deserialize, Serialize};

use super::GuestEnd;

/// What is to be done from [`Start`](super::Start) to [`Stop`](super::Stop), and is undone then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "errand", rename_all = "snake_case")]
pub enum Errand {
    /// Hear the streams of a schedule, or send them. What came of it is the result.
    Schedule(ScheduleEnd),
    /// Steer the server's interface, and count where packets land; told in [`FarEnd::steered`](crate::schema::FarEnd::steered).
    Steer(SteerEnd),
    /// Be the other end of loads; of none: only [`Ready`](super::Ready) is wanted, which has the server's bounds.
    Loads(LoadsEnd),
    /// Have a virtual machine there. It takes long until that is [`Ready`](super::Ready): both sides say meanwhile that they are there.
    Guest(GuestEnd),
    /// Tell how right the clock is there, and by whose word, in [`FarEnd::clock_state`](crate::schema::FarEnd::clock_state).
    Clock,
}

/// One end of a schedule, as `ringside listener` and `ringside talker` take it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleEnd {
    /// The talker's part; `None`: the listener's.
    pub talks: Option<Talk>,
    /// `af-packet` or `af-xdp`.
    pub via: String,
    /// Length of a cycle, in nanoseconds.
    pub cycle_ns: u64,
    /// The classes, as `--class` has them.
    pub classes: Vec<String>,
    /// It waits awake.
    pub spins: bool,
    /// The CPU that it runs on there; `None`: any.
    pub cpu: Option<u32>,
    /// A listener is to tell when each packet came, in [`FarEnd::arrivals`](crate::schema::FarEnd::arrivals).
    pub tells_arrivals: bool,
}

/// What only a talker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Talk {
    /// Hardware address of the listener, `xx:xx:xx:xx:xx:xx`.
    pub to_mac: String,
    /// For so long, in nanoseconds.
    pub duration_ns: u64,
    /// As `--qdisc` has it.
    pub qdisc: String,
}

/// Steering, by the words of `ringside steer run`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SteerEnd {
    /// Classes of packets that are counted, and where they are to land.
    pub class: Vec<String>,
    /// Rules of the NIC.
    pub rule: Vec<String>,
    /// Receive queues over which the NIC's hash spreads all else.
    pub rss: Vec<u32>,
    /// CPUs of receive queues' interrupts.
    pub irq: Vec<String>,
    /// CPUs over which the kernel spreads packets of receive queues.
    pub rps: Vec<String>,
    /// CPUs whose packets leave by transmit queues.
    pub xps: Vec<String>,
    /// Priorities in the tags of a VLAN device.
    pub egress: Vec<String>,
}

/// Receivers of loads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadsEnd {
    /// `ringside lab sink`.
    pub sink: bool,
    /// TCP ports of iperf3's servers.
    pub iperf3: Vec<u16>,
}
