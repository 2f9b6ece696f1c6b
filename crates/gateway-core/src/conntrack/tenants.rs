//! How many connections each network has, and may have.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Vni;

/// Networks of a chunk.
const CHUNK: usize = 1 << 12;
/// Chunks for all numbers that a network can have.
const CHUNKS: usize = (1 << 24) / CHUNK;

/// A network's count and limit.
#[derive(Debug, Default)]
struct Tenant {
    connections: AtomicU32,
    /// Of its own, plus one; 0 for none.
    limit: AtomicU32,
}

/// The counts of all networks.
///
/// Chunks come into being when one of their networks has its first connection: 32 KiB for 4096 of them, the one
/// allocation that a packet can cause, and seldom more than a few in a gateway's life.
#[derive(Debug)]
pub(super) struct Tenants {
    chunks: Box<[OnceLock<Box<[Tenant]>>]>,
    limit: AtomicU32,
}

impl Tenants {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            limit: limit.into(),
        }
    }

    /// Counts one more. False, and not counted, if there are as many as there may be.
    pub(super) fn enter(&self, vni: Vni) -> bool {
        let tenant = self.tenant(vni);
        let limit = match tenant.limit.load(Ordering::Relaxed) {
            0 => self.limit.load(Ordering::Relaxed),
            own => own - 1,
        };
        let entered = tenant.connections.fetch_add(1, Ordering::Relaxed) < limit;
        if !entered {
            tenant.connections.fetch_sub(1, Ordering::Relaxed);
        }
        entered
    }

    pub(super) fn leave(&self, vni: Vni) {
        self.tenant(vni).connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self, vni: Vni) -> u32 {
        let (chunk, at) = place(vni);
        let chunk = self.chunks[chunk].get();
        chunk.map_or(0, |chunk| chunk[at].connections.load(Ordering::Relaxed))
    }

    /// Of those that have none of their own.
    pub(super) fn limit_each(&self, limit: u32) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub(super) fn limit(&self, vni: Vni, limit: Option<u32>) {
        let limit = limit.map_or(0, |limit| limit.saturating_add(1));
        self.tenant(vni).limit.store(limit, Ordering::Relaxed);
    }

    fn tenant(&self, vni: Vni) -> &Tenant {
        let (chunk, at) = place(vni);
        let new = || std::iter::repeat_with(Tenant::default).take(CHUNK).collect();
        &self.chunks[chunk].get_or_init(new)[at]
    }
}

fn place(vni: Vni) -> (usize, usize) {
    let number = vni.number() as usize;
    (number / CHUNK, number % CHUNK)
}
