//! What the data path is to be.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ringside_xsk::Mode;

use crate::model::PathSettings;
use crate::notice::{self, Key};

/// What the data path is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathOptions {
    /// The interfaces that hosts are reached by, at least one.
    pub interfaces: Vec<String>,
    /// Addresses that hosts of a fleet send to: one of the interfaces has each of them, unless
    /// something in between translates.
    pub fleet_addresses: Vec<IpAddr>,
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
    /// UDP port of VXLAN.
    pub vxlan_port: u16,
    /// UDP port of Geneve.
    pub geneve_port: u16,
    /// Room of the fast path's cache of neighbours: within this, for twice as many as are known at
    /// the start.
    pub cached_neighbors: RangeInclusive<u32>,
    /// Room of the fast path's cache of connections.
    pub cached_connections: u32,
    /// The fast path checks the sequence and acknowledgment numbers of TCP. Not where other
    /// gateways may have segments of the same connection.
    pub check_windows: bool,
    /// What can be changed while it runs.
    pub settings: PathSettings,
    /// Hosts that send much are told where it goes.
    pub direct: Option<DirectOptions>,
}

/// Which hosts are told, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectOptions {
    /// UDP port that they listen at.
    pub port: u16,
    /// Packets a second to one receiver, from which on a host is told.
    pub packets_per_second: u32,
    /// Hosts that are told a second, all in all.
    pub notices_per_second: u32,
    /// How long what they are told holds.
    pub lifetime: Duration,
    /// What notices are sealed with.
    pub key: Option<Key>,
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self {
            port: notice::PORT,
            packets_per_second: 10_000,
            notices_per_second: 100,
            lifetime: Duration::from_secs(60),
            key: None,
        }
    }
}

impl Default for PathOptions {
    /// One worker, no interface, caches for a few thousand.
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            fleet_addresses: Vec::new(),
            mode: Mode::Auto,
            fast: true,
            workers: 1,
            cpus: Vec::new(),
            spin: false,
            pins: None,
            vxlan_port: 4789,
            geneve_port: 6081,
            cached_neighbors: 4096..=4096,
            cached_connections: 4096,
            check_windows: false,
            settings: PathSettings::default(),
            direct: None,
        }
    }
}
