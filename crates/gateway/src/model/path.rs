//! What the control plane wants of the data path.

use std::fmt;

use ringside_gateway_core::table::Neighbor;
use ringside_gateway_core::{DropReason, TenantAddress};

/// The data path, as the control plane sees it.
///
/// It reads [`super::Tables`] by itself; these calls tell it what to do about caches. They come from one thread, in the
/// order of the changes, after the tables have changed, and before anybody has an answer: the time that they take is a
/// caller's. A cache that is filled from the tables after a call is as new as the call.
pub trait DataPath: fmt::Debug + Send + Sync {
    /// These neighbours are so now, or gone (None). An address may come more than once; the last one holds.
    fn changed(&self, neighbors: &[(TenantAddress, Option<Neighbor>)]);

    /// What was decided by rules before this generation may no longer hold.
    fn policy_changed(&self, generation: u64);

    /// To be taken out of service, or back.
    fn drain(&self, drain: bool);

    /// False if a worker has not come round for so long that only a restart helps: then the watchdog is not told any more
    /// that all is well.
    fn is_alive(&self) -> bool;

    /// What it has counted since its start.
    fn counters(&self) -> Counters;
}

/// What a data path has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// The XDP program.
    pub fast: PathCounters,
    /// The workers.
    pub slow: PathCounters,
    /// Packets that the XDP program handed to workers, by cause; causes that there are none of may be left out.
    pub handed_up: Vec<(&'static str, u64)>,
    /// Entries of the fast path's cache.
    pub cache_entries: u64,
    /// Entries that it has room for.
    pub cache_capacity: u64,
    /// Entries that made room for others.
    pub cache_evicted: u64,
    /// Entries, of neighbours or connections, that there was no room for.
    pub cache_refused: u64,
    /// The workers.
    pub workers: Vec<WorkerLoad>,
}

/// What one of the two ways of packets has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathCounters {
    /// Packets that were sent on.
    pub forwarded_packets: u64,
    /// Their bytes, from the outer Ethernet header on.
    pub forwarded_bytes: u64,
    /// Packets that were answered.
    pub answered_packets: u64,
    /// Packets that were handed to the kernel.
    pub passed_packets: u64,
    /// Packets that were dropped, by reason; reasons that there are none of may be left out.
    pub dropped_packets: Vec<(DropReason, u64)>,
}

/// How busy a worker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Its interface and queue.
    pub name: String,
    /// Thousandths of its time in which it had packets, over the last second or so.
    pub permille: u16,
}

/// A gateway without interfaces: it keeps what it is told, and forwards nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDataPath;

impl DataPath for NoDataPath {
    fn changed(&self, _: &[(TenantAddress, Option<Neighbor>)]) {}

    fn policy_changed(&self, _: u64) {}

    fn drain(&self, _: bool) {}

    fn is_alive(&self) -> bool {
        true
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}
