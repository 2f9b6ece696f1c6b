//! The fast path's cache is held against the tables now and then. What is other than they say is counted, and put right: packets go by it.
//!
//! The tables are changed before the cache is. So what is found otherwise is looked at again a while later: only what has stayed as it was,
//! and should not have, is wrong.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ringside_bpf::gateway::{CachedNeighbor, NeighborKey, TableHand};
use ringside_gateway_core::{TenantAddress, Vni};

use super::cache::{BATCH, Cache, Room, marked};

/// Between two looks through all of it.
const EVERY: Duration = Duration::from_secs(600);
/// Until what was found otherwise is looked at again.
const AGAIN: Duration = Duration::from_secs(2);
/// Between two parts: others want the cache as well.
const BETWEEN_PARTS: Duration = Duration::from_millis(20);
/// Entries that are looked at again at the most; others are found the next time.
const MOST: usize = 1 << 16;

/// How far it is.
#[derive(Debug)]
pub(super) struct Check {
    next: Instant,
    hand: TableHand,
    /// What was found otherwise, and how it was.
    others: HashMap<NeighborKey, CachedNeighbor>,
    /// It is looked at again.
    is_second: bool,
}

impl Check {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            next: now + EVERY,
            hand: TableHand::default(),
            others: HashMap::new(),
            is_second: false,
        }
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next
    }
}

impl Cache {
    /// Looks at the next part.
    pub(super) fn check(&mut self, check: &mut Check, now: Instant) {
        let mut part = Vec::with_capacity(BATCH);
        self.program
            .neighbors()
            .read_on(&mut check.hand, BATCH, |key, value| part.push((key, value)));
        let mut wrong = Vec::new();
        for (key, value) in part {
            // That it was used, and what its network is, is told by itself.
            let value = CachedNeighbor { used: true, ..value };
            if self.is_right(key, value) {
                continue;
            }
            if !check.is_second && check.others.len() < MOST {
                check.others.insert(key, marked(value, (false, false)));
            } else if check.others.get(&key) == Some(&marked(value, (false, false))) {
                // Once: what was moved meanwhile may come twice in a part.
                check.others.remove(&key);
                wrong.push(key);
            }
        }
        self.put_right(&wrong);
        check.next = match (check.hand.is_new(), check.is_second) {
            (false, _) => now + BETWEEN_PARTS,
            (true, false) if !check.others.is_empty() => {
                check.is_second = true;
                now + AGAIN
            }
            (true, _) => {
                *check = Check::new(now);
                check.next
            }
        };
    }

    fn is_right(&mut self, key: NeighborKey, value: CachedNeighbor) -> bool {
        let Some(address) = address(key) else { return false };
        let mut should_be = self.known(address);
        if let Some(should_be) = &mut should_be
            && self.waits_for_its_limit(address)
        {
            (should_be.mtu, should_be.mtu_until) = (value.mtu, value.mtu_until);
        }
        should_be.map(|should_be| marked(should_be, (value.foreign, value.guarded))) == Some(value)
    }

    fn put_right(&mut self, wrong: &[NeighborKey]) {
        if wrong.is_empty() {
            return;
        }
        self.diverged += wrong.len() as u64;
        tracing::error!(
            entries = wrong.len(),
            "the fast path's cache was other than the tables, and is put right"
        );
        let addresses: Vec<TenantAddress> = wrong.iter().filter_map(|key| address(*key)).collect();
        self.remove(wrong);
        self.refresh(&addresses, Room::Kept);
    }
}

fn address(key: NeighborKey) -> Option<TenantAddress> {
    Vni::new(key.vni).map(|vni| TenantAddress::new(vni, key.ip))
}
