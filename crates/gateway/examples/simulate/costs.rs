//! What things cost, and where each figure comes from.
//!
//! *Measured*: `cargo run --release -p ringside-gateway --example etcd_costs`, etcd 3.4.23 on this repository's test machine (two cores of
//! an x86-64 server), CPU time of etcd's threads as the kernel counts it. *Docs*: docs/fleet.md and docs/performance.md, measured there.
//! *Assumed*: chosen, and an option of the program where it matters.

/// A second in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// A millisecond in nanoseconds.
pub(crate) const MILLISECOND: u64 = 1_000_000;

/// Times in nanoseconds, sizes in bytes.
#[derive(Debug, Clone)]
pub(crate) struct Costs {
    /// etcd's servers. Assumed.
    pub(crate) members: usize,
    /// Cores of each. Assumed.
    pub(crate) cores: usize,
    /// Bytes a second that each can send to clients. Assumed.
    pub(crate) wire: u64,
    /// A flush of the log to the disk. Assumed: 2 ms; the test machine's takes 0.3 to 4.
    pub(crate) sync: u64,
    /// From one host to another. Assumed: one site.
    pub(crate) way: u64,
    /// Without the leader, until there is another. etcd's default is 1 s; up to twice that. Assumed.
    pub(crate) election: u64,

    /// CPU of a linearizable read of a key. Measured, 16 at a time on a busy machine; fewer wait for each other where there are more.
    pub(crate) read: u64,
    /// CPU of a keep-alive of a lease. Measured.
    pub(crate) keep_alive: u64,
    /// CPU of a key of a page. Measured.
    pub(crate) page_key: u64,
    /// CPU of each key from the page's first to the end of what was asked for. Measured, 160 among 131,072 keys and 270 among 524,288: etcd
    /// 3.4 looks at all of them for each page.
    pub(crate) walked_key: u64,
    /// CPU of a transaction, with the read before. Measured.
    pub(crate) transaction: u64,
    /// CPU of each key of it, the read included. Measured.
    pub(crate) transaction_key: u64,
    /// CPU of a key's event for each watcher. Measured.
    pub(crate) event: u64,
    /// CPU of a message with events for each watcher. Measured.
    pub(crate) message: u64,

    /// Sent for a key of a page. Measured.
    pub(crate) page_bytes: u64,
    /// Sent for an event to each watcher. Measured.
    pub(crate) event_bytes: u64,
    /// Sent for an answer without content, and with each message. Measured: 28 to 40, without TCP and TLS.
    pub(crate) answer_bytes: u64,
    /// In the database for a key of 16 neighbours. Measured.
    pub(crate) key_database: u64,
    /// In the database for a change of a key, until it is compacted. Docs.
    pub(crate) change_database: u64,
    /// etcd's memory for a key, beside the database that it maps. Measured: 1130 less what the log of a load has of each.
    pub(crate) key_memory: u64,
    /// etcd's memory for a change of a key, until it is compacted: a revision in its index. Assumed.
    pub(crate) change_memory: u64,
    /// etcd's memory for a gateway: its connection and watch. Assumed.
    pub(crate) watcher_memory: u64,

    /// A gateway's time for a neighbour that has changed, from the watch to the map. Docs.
    pub(crate) apply: u64,
    /// A gateway's time for a neighbour that is as it was: it is looked up. Docs: 102 ns among eight million, and its part of the value.
    pub(crate) compare: u64,
    /// A gateway's memory for a neighbour. Docs.
    pub(crate) neighbor_memory: u64,
    /// The same over IPv6. Measured.
    pub(crate) neighbor_memory_v6: u64,
    /// Digits that a key has more over IPv6, in each event.
    pub(crate) key_bytes_v6: u64,
    /// A gateway's disk for a neighbour. Docs.
    pub(crate) neighbor_disk: u64,
}

/// Addresses of a key.
pub(crate) const OF_KEY: u64 = 16;
/// Keys of a page, transaction and message, as the gateway and etcd have them.
pub(crate) const PAGE: u64 = 8192;
pub(crate) const OPERATIONS: u64 = 128;
pub(crate) const MOST_REVISIONS: u64 = 1000;
/// What etcd takes unless it is told otherwise.
pub(crate) const DEFAULT_QUOTA: u64 = 2 << 30;

impl Default for Costs {
    fn default() -> Self {
        Self {
            members: 3,
            cores: 8,
            wire: 10_000_000_000 / 8,
            sync: 2 * MILLISECOND,
            way: 100_000,
            election: 2 * SECOND,
            read: 550_000,
            keep_alive: 100_000,
            page_key: 1_900,
            walked_key: 250,
            transaction: 430_000,
            transaction_key: 43_000,
            event: 650,
            message: 9_000,
            page_bytes: 272,
            event_bytes: 276,
            answer_bytes: 60,
            key_database: 344,
            change_database: 349,
            key_memory: 860,
            change_memory: 24,
            watcher_memory: 100_000,
            apply: 1366,
            compare: 150,
            neighbor_memory: 78,
            neighbor_memory_v6: 89,
            key_bytes_v6: 24,
            neighbor_disk: 49,
        }
    }
}
