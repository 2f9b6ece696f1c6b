//! Networks that have just changed hands between gateways: of two hosts one may send to the gateway that had the network, and the other
//! one to that which has it now, so that neither sees both sides of a connection that begins then.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Vni;
use crate::shard::{SHARDS, Shard};

/// Until when, by shard. Asked for only what would be refused.
#[derive(Debug)]
pub(super) struct Moving(Box<[AtomicU64]>);

impl Moving {
    pub(super) fn new() -> Self {
        Self((0..SHARDS).map(|_| AtomicU64::new(0)).collect())
    }

    pub(super) fn set(&self, shard: Shard, until: u64) {
        if let Some(place) = self.0.get(shard.number() as usize) {
            place.fetch_max(until, Ordering::Relaxed);
        }
    }

    pub(super) fn is(&self, vni: Vni, now: u64) -> bool {
        let place = self.0.get(Shard::of(vni).number() as usize);
        place.is_some_and(|until| now < until.load(Ordering::Relaxed))
    }
}
