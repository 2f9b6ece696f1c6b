//! A shard: slots, and a byte of each slot's hash in front of them.
//!
//! ```text
//!   tags   ▏a7 3c 00 00 11 00 00 00▕  eight slots' bytes are a word; 00 is an empty slot
//!   slots  ▏ 0  1  .  .  4  .  .  .▕
//! ```
//! A look-up reads one word of tags, which many slots share and which mostly is in a cache, and then the one slot that has
//! the right byte: one miss, seldom two. An address that is not there mostly costs the word alone. Slots are taken in the
//! group that the hash says, or in the next one that has room; a group that has room ends the search.

use std::sync::atomic::{AtomicU64, Ordering};

use super::neighbors::Neighbor;
use super::slot::{Slot, address_of};
use crate::TenantAddress;
use crate::prefetch::prefetch;

/// Slots whose tags are a word.
const GROUP: usize = 8;
const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

pub(super) struct Shard<S> {
    tags: Box<[AtomicU64]>,
    slots: Box<[S]>,
}

/// What the tags say of where a hash is.
pub(super) enum Guess<'a, S> {
    /// It mostly is there.
    At(&'a S),
    Nowhere,
    /// One has to look closer.
    Unclear,
}

impl<S> Clone for Guess<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Guess<'_, S> {}

impl<S: Slot> Guess<'_, S> {
    /// Has the slot come into the cache. Of a burst in a loop of its own: a CPU goes on behind a fetch whose page it has to look for, as far as
    /// it looks ahead, and so finds the next ones.
    #[inline]
    pub(super) fn fetch(self) {
        if let Self::At(slot) = self {
            slot.fetch();
        }
    }
}

/// A byte of the hash that neither tells the shard nor, mostly, the group; never 0.
const fn tag(hash: u64) -> u8 {
    hash.to_be_bytes()[7] | 1
}

/// The tag in every byte.
const fn wanted(hash: u64) -> u64 {
    ONES * tag(hash) as u64
}

/// The slot of a group's lowest candidate.
fn slot(group: usize, candidates: u64) -> usize {
    group * GROUP + candidates.trailing_zeros() as usize / 8
}

/// The highest bit of each byte that is zero. A byte above one that is zero may be taken for one, too: a candidate more.
const fn zeros(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// The highest bit of the byte of each slot that may have a hash. An empty one never is among them, though its tag is next to the lowest
/// that there is: tags are odd, so that two of them differ by an even number.
const fn candidates(tags: u64, hash: u64) -> u64 {
    let differ = tags ^ wanted(hash);
    zeros(differ) & !(differ << 7)
}

impl<S: Slot> Shard<S> {
    /// With room for these.
    pub(super) fn new(neighbors: usize) -> Self {
        let groups = (neighbors * 9).div_ceil(7 * GROUP).max(1);
        Self {
            tags: std::iter::repeat_with(AtomicU64::default).take(groups).collect(),
            slots: std::iter::repeat_with(S::default).take(groups * GROUP).collect(),
        }
    }

    /// Slots that may be taken, dead ones included: with more, ways get long.
    pub(super) fn most(&self) -> usize {
        self.slots.len() * 7 / 9
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.tags) + size_of_val(&*self.slots)
    }

    /// The group in which a hash's way begins.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of groups, which is a usize"
    )]
    fn home(&self, hash: u64) -> usize {
        // The upper byte has told the shard.
        ((u128::from(hash << 8) * self.tags.len() as u128) >> 64) as usize
    }

    /// Has the tags of a hash's home come into the cache.
    #[inline]
    pub(super) fn fetch_tags(&self, hash: u64) {
        prefetch(&self.tags[self.home(hash)]);
    }

    /// The tags of a group. Who sees a tag sees all of its slot.
    fn tags(&self, group: usize) -> u64 {
        self.tags[group].load(Ordering::Acquire)
    }

    /// Where a hash is, by the tags of its home and, if that is full, of the next group, which mostly are in the same line.
    #[inline]
    pub(super) fn guess(&self, hash: u64) -> Guess<'_, S> {
        let home = self.home(hash);
        for group in [home, self.after(home)] {
            let tags = self.tags(group);
            match candidates(tags, hash) {
                0 if zeros(tags) != 0 => return Guess::Nowhere,
                0 => {}
                candidates => return Guess::At(&self.slots[slot(group, candidates)]),
            }
        }
        Guess::Unclear
    }

    /// The slot of an address, of which a guess was made, some time ago.
    #[inline]
    pub(super) fn find<'a>(&'a self, address: &TenantAddress, hash: u64, guess: Guess<'a, S>) -> Option<&'a S> {
        match guess {
            Guess::At(slot) if slot.is_of(address) == Some(true) => Some(slot),
            Guess::Nowhere => None,
            Guess::At(_) | Guess::Unclear => self.look(address, hash),
        }
    }

    /// The same for the slot of a narrow address's key.
    #[inline]
    pub(super) fn find_by<'a>(&'a self, key: u64, hash: u64, guess: Guess<'a, S>) -> Option<&'a S> {
        match guess {
            Guess::At(slot) if slot.is_of_key(key) => Some(slot),
            Guess::Nowhere => None,
            Guess::At(_) | Guess::Unclear => self.look(&address_of(key), hash),
        }
    }

    /// The slot of an address.
    ///
    /// A slot may die after its tag was read: who meets a dead slot of the address looks once more, and then sees all that was
    /// there before it died. No more dead ones than before: it has not been put there anew.
    pub(super) fn look(&self, address: &TenantAddress, hash: u64) -> Option<&S> {
        let (mut found, mut dead) = self.search(address, hash);
        while found.is_none() && dead != 0 {
            let before = dead;
            (found, dead) = self.search(address, hash);
            if dead == before {
                break;
            }
        }
        found
    }

    /// The live slot of an address, and how many dead ones of it were met.
    fn search(&self, address: &TenantAddress, hash: u64) -> (Option<&S>, usize) {
        let (mut group, mut dead) = (self.home(hash), 0);
        loop {
            let tags = self.tags(group);
            let mut candidates = candidates(tags, hash);
            while candidates != 0 {
                let slot = &self.slots[slot(group, candidates)];
                match slot.is_of(address) {
                    Some(true) => return (Some(slot), dead),
                    Some(false) => dead += 1,
                    None => {}
                }
                // All but the lowest.
                candidates &= candidates - 1;
            }
            if zeros(tags) != 0 {
                return (None, dead);
            }
            group = self.after(group);
        }
    }

    fn after(&self, group: usize) -> usize {
        if group + 1 == self.tags.len() { 0 } else { group + 1 }
    }

    /// Takes an empty slot. There has to be one: see [`Shard::most`]. For the one writer.
    pub(super) fn fill(&self, address: &TenantAddress, hash: u64, neighbor: &Neighbor) {
        let mut group = self.home(hash);
        let (tags, empty) = loop {
            let tags = self.tags(group);
            // Exact for the lowest one.
            match zeros(tags) {
                0 => group = self.after(group),
                empty => break (tags, empty.trailing_zeros() as usize / 8),
            }
        };
        self.slots[group * GROUP + empty].fill(address, neighbor);
        let tags = tags | u64::from(tag(hash)) << (8 * empty);
        self.tags[group].store(tags, Ordering::Release);
    }

    /// Its live slots.
    pub(super) fn live(&self) -> impl Iterator<Item = &S> {
        let groups = self.tags.iter().zip(self.slots.as_chunks::<GROUP>().0);
        groups.flat_map(|(tags, slots)| {
            let tags = tags.load(Ordering::Acquire).to_le_bytes();
            let taken = slots.iter().zip(tags).filter(|(_, tag)| *tag != 0);
            taken.map(|(slot, _)| slot).filter(|slot| slot.is_live())
        })
    }
}

#[cfg(test)]
mod tests {
    use ringside_wire::MacAddr;

    use super::*;
    use crate::Vni;
    use crate::table::HostId;
    use crate::table::slot::Narrow;

    /// A slot that nobody has filled is that of no address, also of the one that is all zeros, whose tag may be the lowest.
    #[test]
    fn what_is_empty_is_nobodys() {
        let (zero, other) = (
            address_of(0),
            TenantAddress::new(Vni::new(5).unwrap(), "10.0.0.1".parse().unwrap()),
        );
        let neighbor = Neighbor {
            mac: MacAddr::ZERO,
            host: HostId(1),
            policy: 0,
            version: 1,
        };
        for hash in [0x1234_5678_9abc_de00, 0x1234_5678_9abc_de01, 0x1234_5678_9abc_de03] {
            let shard: Shard<Narrow> = Shard::new(32);
            shard.fill(&other, hash, &neighbor);
            let guess = shard.guess(hash);
            assert!(shard.find(&zero, hash, guess).is_none(), "{hash:x}");
            assert!(shard.find_by(0, hash, guess).is_none());
            assert!(shard.look(&zero, hash).is_none());
            assert!(shard.find(&other, hash, guess).is_some());
        }
    }

    /// Whoever has read the tags before an address was put anew, once or twice, finds what it is now.
    #[test]
    fn old_tags_lead_to_what_is_new() {
        let address = TenantAddress::new(Vni::new(5).unwrap(), "10.0.0.1".parse().unwrap());
        let neighbor = |version| Neighbor {
            mac: MacAddr::ZERO,
            host: HostId(1),
            policy: 0,
            version,
        };
        for (hash, others) in [(0x1234_5678_9abc_def1, 0), (0x1234_5678_9abc_def1, 7)] {
            let shard: Shard<Narrow> = Shard::new(32);
            // Full groups: the new one is in another than the old one.
            for n in 0..others {
                let other = TenantAddress::new(Vni::new(6 + n).unwrap(), address.ip);
                shard.fill(&other, hash, &neighbor(0));
            }
            shard.fill(&address, hash, &neighbor(1));
            let early = shard.guess(hash);
            let found = |guess| shard.find(&address, hash, guess).map(|slot| slot.neighbor().version);
            assert_eq!(found(early), Some(1));
            for version in 2..4 {
                let old = shard.find(&address, hash, early).unwrap();
                shard.fill(&address, hash, &neighbor(version));
                assert!(found(early).is_some_and(|found| found >= version - 1));
                old.bury();
                assert_eq!(found(early), Some(version));
            }
            shard.find(&address, hash, early).unwrap().bury();
            assert_eq!(found(early), None, "gone is gone");
            assert_eq!(shard.live().count(), others as usize);
        }
    }
}
