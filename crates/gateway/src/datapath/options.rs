//! What the data path is to be.

use std::path::PathBuf;
use std::time::Duration;

use ringside_xsk::Mode;

/// What the data path is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// The interfaces that hosts are reached by, at least one.
    pub interfaces: Vec<String>,
    /// How its packets are had.
    pub mode: Mode,
    /// What is known goes to the fast path; otherwise workers decide about every packet.
    pub fast: bool,
    /// Threads that take what the fast path hands up; each has a share of the queues.
    pub workers: usize,
    /// CPUs that they are pinned to, one after the other.
    pub cpus: Vec<usize>,
    /// They never sleep.
    pub spin: bool,
    /// Where the fast path has names, so that it goes on while the daemon is started anew: a folder in a bpffs. None: it ends
    /// with the daemon.
    pub pins: Option<PathBuf>,
    /// How long it goes on without a daemon.
    pub unowned: Duration,
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// UDP port of Geneve.
    pub geneve_port: u16,
    /// Geneve options (class, type) that may be critical.
    pub known_options: Vec<(u16, u8)>,
    /// Drop what does not come from where its sender lives.
    pub source_check: bool,
    /// Choose the outer UDP source port by the tenant's flow.
    pub derive_source_port: bool,
    /// ICMP errors a second, of one worker, at the most.
    pub errors_per_second: u32,
    /// Neighbours in the fast path's cache.
    pub cached_neighbors: u32,
    /// Connections in the fast path's cache, one direction each.
    pub cached_connections: u32,
    /// How long a packet waits for its host's MAC address.
    pub patience: Duration,
}

impl Default for PathOptions {
    /// One worker, no interface, caches for a few thousand.
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            mode: Mode::Auto,
            fast: true,
            workers: 1,
            cpus: Vec::new(),
            spin: false,
            pins: None,
            unowned: Duration::from_secs(60),
            vxlan_port: 4789,
            geneve_port: 6081,
            known_options: Vec::new(),
            source_check: false,
            derive_source_port: false,
            errors_per_second: 100,
            cached_neighbors: 4096,
            cached_connections: 4096,
            // Longer than the kernel waits before it asks for a MAC address once more.
            patience: Duration::from_millis(2500),
        }
    }
}
