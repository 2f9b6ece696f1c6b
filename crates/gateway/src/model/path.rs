//! What the control plane wants of the data path.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringside_gateway_core::conntrack::Timeouts;
use ringside_gateway_core::table::Encapsulation;
use ringside_gateway_core::{DropReason, TenantAddress, Vni};
use tokio::sync::mpsc;

/// The data path, as the control plane sees it.
///
/// It reads [`super::Tables`] by itself; these calls tell it what to do about caches. They come from one thread, in the
/// order of the changes, after the tables have changed, and before anybody has an answer: the time that they take is a
/// caller's. A cache that is filled from the tables after a call is as new as the call. Neighbours
/// that change together with rules change in the tables after [`DataPath::policy_changed`].
pub trait DataPath: fmt::Debug + Send + Sync {
    /// What is known of these addresses is something else now, or nothing. One may come more than once.
    fn changed(&self, addresses: &[TenantAddress]);

    /// What rules have decided before in these networks, each of which comes once, may no longer hold: rules are others now that are
    /// bound to addresses there, or others are bound to an address. Where that is the first or the last one, senders begin or cease to
    /// count.
    fn policy_changed(&self, networks: &[Vni]);

    /// Goes by these from now on, and loses no packet by that; nor a connection that had packets, where time-outs are shorter than before.
    ///
    /// # Errors
    /// Why it cannot: then it goes by what it went by before.
    fn set(&self, settings: &PathSettings, timeouts: &Timeouts) -> anyhow::Result<()>;

    /// To be taken out of service, or back.
    fn drain(&self, drain: bool);

    /// What is known is too old to go by, or no longer is: tenants' packets are dropped as [`DropReason::Stale`]. And for how long from now
    /// it may be gone by without a daemon, whoever starts meanwhile; None: no longer than was said before. It is said again and again.
    fn set_stale(&self, is_stale: bool, longest: Option<Duration>);

    /// False if a worker has not come round for so long that only a restart helps: then the watchdog is not told any more
    /// that all is well.
    fn is_alive(&self) -> bool;

    /// False while no packet can come to it, or leave it: none of its interfaces is there with a link.
    fn has_link(&self) -> bool;

    /// What is wrong with it now, and what to do, for people.
    fn problems(&self) -> Vec<String>;

    /// What it has counted since its start.
    fn counters(&self) -> Counters;

    /// Shows packets, until nobody listens any more.
    ///
    /// # Errors
    /// [`CannotTrace`].
    fn trace(&self, filter: TraceFilter, to: mpsc::Sender<Traced>) -> Result<(), CannotTrace>;
}

/// What can be changed while packets are forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathSettings {
    /// How long the fast path goes on without a daemon.
    pub unowned: Duration,
    /// Geneve options (class, type) that may be critical.
    pub known_options: Vec<(u16, u8)>,
    /// Drop what does not come from where its sender lives.
    pub source_check: bool,
    /// Choose the outer UDP source port by the tenant's flow.
    pub derive_source_port: bool,
    /// ICMP errors a second to the tenants of one network, of one worker, at the most:
    /// [`Settings::errors_per_second`](ringside_gateway_core::decide::Settings::errors_per_second).
    pub errors_per_second: u32,
    /// How long a packet waits for its host's MAC address.
    pub patience: Duration,
}

impl Default for PathSettings {
    /// A minute, no options, what is sent as it came and from anywhere, a hundred errors.
    fn default() -> Self {
        Self {
            unowned: Duration::from_secs(60),
            known_options: Vec::new(),
            source_check: false,
            derive_source_port: false,
            errors_per_second: 100,
            // Longer than the kernel waits before it asks for a MAC address once more.
            patience: Duration::from_millis(2500),
        }
    }
}

/// Which packets are shown: all, unless something is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TraceFilter {
    /// Only those of this network.
    pub vni: Option<Vni>,
    /// Only those from or to this address of a tenant, and questions by or for it.
    pub ip: Option<IpAddr>,
    /// Only those that are dropped.
    pub drops: Option<Drops>,
}

/// Which packets that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drops {
    /// All of them.
    Any,
    /// Those that are dropped for this reason.
    For(DropReason),
}

/// A packet at one stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traced {
    /// When: CLOCK_MONOTONIC in nanoseconds.
    pub time: u64,
    /// True: the XDP program; false: a worker.
    pub is_fast: bool,
    /// The interface that it came by.
    pub interface: Arc<str>,
    /// The receive queue that it came on.
    pub queue: u32,
    /// Its network, if it could be read.
    pub vni: Option<u32>,
    /// What was decided, in a few words.
    pub decision: String,
    /// Its length in bytes, as it came.
    pub length: u32,
    /// Its first bytes, as it came.
    pub bytes: Vec<u8>,
    /// Packets before it that could not be shown.
    pub lost: u64,
}

/// Why packets cannot be shown.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CannotTrace {
    /// There is no data path.
    #[error("no packets are forwarded: path.interface is not configured")]
    NoPath,
    /// One at a time.
    #[error("somebody else traces packets at the moment")]
    Busy,
    /// The kernel says no.
    #[error("{0}")]
    Failed(Arc<str>),
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
    /// Entries of the fast path's cache of neighbours.
    pub cache_entries: u64,
    /// Entries that it has room for.
    pub cache_capacity: u64,
    /// Entries that made room for others.
    pub cache_evicted: u64,
    /// Entries that there was no room for.
    pub cache_refused: u64,
    /// Entries that were other than the tables, and were put right.
    pub cache_diverged: u64,
    /// The fast path's cache of connections, one direction each.
    pub connection_cache: CacheCounters,
    /// The workers that run.
    pub workers: Vec<WorkerLoad>,
    /// What happened to the interface: what, and how often.
    pub interface_events: Vec<(&'static str, u64)>,
    /// What routers have said of packets that were too long for them: what became of it, and how often.
    pub path_mtu: Vec<(&'static str, u64)>,
    /// Hosts to which less gets than the port sends, as far as is known.
    pub limited_hosts: u64,
    /// ICMP errors that say that a packet of the gateway did not reach its host, by cause.
    pub unreachable_messages: Vec<(&'static str, u64)>,
    /// Hosts that do not get what the gateway sends, as ICMP errors say at present.
    pub unreachable_hosts: Vec<UnreachableHost>,
    /// How often workers found no room where they tell others what is to be done, by queue. They tell it again: hosts that packets
    /// wait for a moment later, the rest with the next packet.
    pub queue_full: Vec<(&'static str, u64)>,
    /// ICMP errors to tenants: what became of them, and how many.
    pub icmp_errors: Vec<(&'static str, u64)>,
    /// Direct paths, if hosts are told of them.
    pub direct: Option<DirectCounters>,
}

/// A host that does not get what the gateway sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreachableHost {
    /// Its address.
    pub host: IpAddr,
    /// What the packets are sent in.
    pub encapsulation: Encapsulation,
    /// The UDP port they are sent to.
    pub udp_port: u16,
    /// What the last ICMP error says.
    pub cause: &'static str,
    /// Its sender: the host, or a router.
    pub from: IpAddr,
    /// ICMP errors so far.
    pub messages: u64,
}

/// How full a cache of the fast path is, and what became of what there was no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounters {
    /// Entries: if they are many, as of up to some seconds ago.
    pub entries: u64,
    /// Entries that it has room for.
    pub capacity: u64,
    /// Entries that made room for others.
    pub evicted: u64,
    /// Entries that there was no room for.
    pub refused: u64,
    /// Entries that the kernel refused for another reason, such as too little memory.
    pub failed: u64,
}

/// Hosts that were told where what they send goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectCounters {
    /// Hosts with receivers that they were told of, for which that holds.
    pub pairs: u64,
    /// Notices that were sent.
    pub sent: u64,
    /// Those that could not be.
    pub failed: u64,
    /// Those that there would have been too many of.
    pub held_back: u64,
}

/// What one of the two ways of packets has counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PathCounters {
    /// Packets that came.
    pub received_packets: u64,
    /// Their bytes, from the outer Ethernet header on.
    pub received_bytes: u64,
    /// Packets that were sent on.
    pub forwarded_packets: u64,
    /// Their bytes, from the outer Ethernet header on.
    pub forwarded_bytes: u64,
    /// Packets that were answered.
    pub answered_packets: u64,
    /// Packets that were handed to the kernel.
    pub passed_packets: u64,
    /// Packets that were dropped, by reason; reasons that there are none of may be left out. Those that were found out
    /// [afterwards](DropReason::is_afterwards) are among those that were sent on or answered, too.
    pub dropped_packets: Vec<(DropReason, u64)>,
    /// Their bytes, as they came. Those dropped as `worker-busy` never came to a worker, and of those dropped as `transmit-lost` nobody
    /// tells: their bytes are in none of these.
    pub dropped_bytes: u64,
}

impl PathCounters {
    /// Packets about which it was decided that they are dropped.
    #[must_use]
    pub fn refused_packets(&self) -> u64 {
        let refused = self
            .dropped_packets
            .iter()
            .filter(|(reason, _)| !reason.is_afterwards());
        refused.map(|(_, packets)| packets).sum()
    }
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
    fn changed(&self, _: &[TenantAddress]) {}

    fn policy_changed(&self, _: &[Vni]) {}

    fn set(&self, _: &PathSettings, _: &Timeouts) -> anyhow::Result<()> {
        Ok(())
    }

    fn drain(&self, _: bool) {}

    fn set_stale(&self, _: bool, _: Option<Duration>) {}

    fn is_alive(&self) -> bool {
        true
    }

    fn has_link(&self) -> bool {
        true
    }

    fn problems(&self) -> Vec<String> {
        Vec::new()
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn trace(&self, _: TraceFilter, _: mpsc::Sender<Traced>) -> Result<(), CannotTrace> {
        Err(CannotTrace::NoPath)
    }
}
