//! Which networks are other gateways', and how many packets of them came here all the same.
//!
//! They are sent on, so that a host with an old map loses nothing, and counted: by workers, and by the fast path, whose entries
//! of these networks are marked (`datapath/cache.rs`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ringside_gateway_core::Vni;
use ringside_gateway_core::shard::{SHARDS, Shard};

const WORDS: usize = SHARDS as usize / 64;

/// See the module. Without a fleet no network is another's.
#[derive(Debug)]
pub struct Foreign {
    is_member: AtomicBool,
    /// A bit for each shard: it is this gateway's.
    owned: [AtomicU64; WORDS],
    /// How often that has changed.
    changes: AtomicU64,
    packets: AtomicU64,
}

impl Foreign {
    pub(super) fn new() -> Self {
        Self {
            is_member: AtomicBool::new(false),
            owned: [const { AtomicU64::new(0) }; WORDS],
            changes: AtomicU64::new(0),
            packets: AtomicU64::new(0),
        }
    }

    /// From now on these are this gateway's, and all others are not. Those of which it was otherwise.
    pub fn set(&self, is_owned: impl Fn(Shard) -> bool) -> Vec<Shard> {
        let mut owned = [0; WORDS];
        for shard in Shard::all().filter(|shard| is_owned(*shard)) {
            let number = shard.number() as usize;
            owned[number / 64] |= 1_u64 << (number % 64);
        }
        let was_none = !self.is_member.swap(true, Ordering::Relaxed);
        let mut others = [0; WORDS];
        for ((place, word), other) in self.owned.iter().zip(owned).zip(&mut others) {
            *other = place.swap(word, Ordering::Relaxed) ^ word;
        }
        if was_none || others != [0; WORDS] {
            // Who sees this number sees what it stands for.
            self.changes.fetch_add(1, Ordering::Release);
        }
        let is_other = |shard: &Shard| {
            let number = shard.number() as usize;
            others
                .get(number / 64)
                .is_some_and(|word| word & (1_u64 << (number % 64)) != 0)
        };
        Shard::all().filter(is_other).collect()
    }

    /// How often it has changed which networks are other gateways'.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Some network may be another's.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        self.is_member.load(Ordering::Relaxed)
    }

    /// A network is another's.
    #[must_use]
    pub fn is(&self, vni: Vni) -> bool {
        let number = Shard::of(vni).number() as usize;
        let word = self
            .owned
            .get(number / 64)
            .map_or(0, |word| word.load(Ordering::Relaxed));
        self.is_possible() && word & (1_u64 << (number % 64)) == 0
    }

    /// So many more packets of others' networks.
    pub fn count(&self, packets: u64) {
        if packets > 0 {
            self.packets.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Packets of others' networks that came here.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_owned_is_anothers() {
        let foreign = Foreign::new();
        let all: Vec<Vni> = (0..5000).filter_map(Vni::new).collect();
        assert!(all.iter().all(|vni| !foreign.is(*vni)), "there is no fleet");
        assert_eq!(foreign.changes(), 0);
        let is_owned = |shard: Shard| shard.number().is_multiple_of(3);
        let changed = foreign.set(is_owned);
        assert_eq!(
            changed,
            Shard::all().filter(|shard| is_owned(*shard)).collect::<Vec<_>>()
        );
        assert!(all.iter().all(|vni| foreign.is(*vni) != is_owned(Shard::of(*vni))));
        assert_eq!(foreign.changes(), 1);
        assert_eq!(foreign.set(is_owned), [], "as it was");
        assert_eq!(foreign.changes(), 1, "as it was");
        let changed = foreign.set(|_| true);
        assert!(changed.iter().all(|shard| !is_owned(*shard)) && !changed.is_empty());
        assert_eq!(foreign.changes(), 2);
        assert!(all.iter().all(|vni| !foreign.is(*vni)));
        foreign.count(2);
        foreign.count(3);
        assert_eq!(foreign.packets(), 5);
    }
}
