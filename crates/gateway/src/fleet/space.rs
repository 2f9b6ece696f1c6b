//! Whether etcd takes anything: how large its database is, and whether it says that it is full (its alarm NOSPACE).
//!
//! etcd that is full answers reads and watches, keeps leases alive and lets them run out, and refuses all that writes: changes, new leases,
//! a member's key, the map of shards. It goes on so until somebody makes room and takes the alarm back; that is looked for, so that changes
//! are taken again by themselves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::door::Door;
use super::status::Status;

/// What is said about it.
pub(crate) const FULL: &str = "etcd's database is full (alarm NOSPACE): packets go on and leases are kept, but etcd takes no change, no \
    new lease and no other map of shards until somebody makes room: etcdctl compact, etcdctl defrag, then etcdctl alarm disarm";

/// Between two looks, and while it is full: somebody waits for its end.
const PAUSES: [Duration; 2] = [Duration::from_secs(5), Duration::from_millis(500)];

/// What a member of etcd says about its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    /// Bytes of its file.
    pub(crate) bytes: u64,
    /// Those of them that hold something; a defragmentation frees the others.
    pub(crate) used: u64,
    pub(crate) is_full: bool,
}

/// Whether these words are etcd's for a full database.
pub(crate) fn is_full(words: &str) -> bool {
    words.contains("database space exceeded")
}

/// Keeps `status` up to date, for ever.
pub(crate) async fn watch(door: Door, status: Arc<Status>) {
    loop {
        let looked = match door.etcd().await {
            Ok(etcd) => etcd.space().await,
            Err(why) => Err(why),
        };
        match looked {
            Ok(space) => {
                status.database_bytes.store(space.bytes, Ordering::Relaxed);
                status.database_used.store(space.used, Ordering::Relaxed);
                status.set_full(space.is_full);
            }
            // It may be this gateway that may not ask: the next change shows how it is.
            Err(why) => {
                tracing::debug!(why, "how full etcd's database is cannot be found out");
                status.set_full(false);
            }
        }
        let pause = PAUSES[usize::from(status.is_full())];
        // Who was refused is here before the time.
        _ = tokio::time::timeout(pause, status.refused.notified()).await;
    }
}
