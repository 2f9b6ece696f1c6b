//! Counters of everything at one moment.

use std::time::Duration;

use ringside_measure::live::Snapshot;
use ringside_nic::host::{CpuTimes, Interruptions};
use ringside_nic::{LinkStats, QueueKind};

use crate::caps::{Attached, Holder};

/// One look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Observation {
    /// When, by CLOCK_MONOTONIC.
    pub(super) at: Duration,
    /// Running commands of this network namespace.
    pub(super) processes: Vec<Snapshot>,
    /// How many more there are in other namespaces.
    pub(super) elsewhere: usize,
    pub(super) interfaces: Vec<InterfaceNow>,
    /// Processes of this namespace with AF_XDP sockets, and how many.
    pub(super) sockets: Vec<(Holder, usize)>,
    pub(super) cpus: Option<CpuTimes>,
    pub(super) hard: Option<Interruptions>,
    pub(super) soft: Option<Interruptions>,
    /// What could not be seen, and why.
    pub(super) notes: Vec<String>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct InterfaceNow {
    pub(super) name: String,
    /// Tells it from a later one of the same name.
    pub(super) index: u32,
    pub(super) driver: Option<String>,
    pub(super) up: bool,
    pub(super) carrier: bool,
    pub(super) mtu_bytes: u32,
    pub(super) xdp: Option<Attached>,
    pub(super) stats: LinkStats,
    pub(super) queues: Vec<QueueNow>,
    /// Numbers of its interrupts, and who handles them.
    pub(super) irqs: Vec<(u32, String)>,
    /// What went wrong with XDP since this began to look: in words, and how often.
    pub(super) events: Vec<(String, u64)>,
}

/// A queue of an interface, as the kernel and the driver tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QueueNow {
    pub(super) kind: QueueKind,
    pub(super) id: u32,
    pub(super) napi: Option<u32>,
    /// Whether an AF_XDP socket is bound; `None` where the kernel does not tell.
    pub(super) xsk: Option<bool>,
    /// Whose it is, where the kernel tells.
    pub(super) holder: Option<Holder>,
    /// Names of the driver's own, or of netdev netlink; and of the socket's drops, where the kernel tells.
    pub(super) counters: Vec<(String, u64)>,
}
