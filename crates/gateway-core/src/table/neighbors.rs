//! The table of neighbours: shards of slots, found through a directory that is replaced whole.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Cache};
use foldhash::fast::RandomState;
use ringside_wire::MacAddr;

use super::hosts::HostId;
use super::slot::{EMPTY, Key, Narrow, Slot, Wide, head, is_live};
use crate::TenantAddress;

/// Shards of a family. More make a shorter pause of writers when one is built anew, and a larger directory.
const SHARDS: usize = 256;
/// Slots of a shard that is built: as if it held at least this many.
const SMALLEST: usize = 8;
/// Look-ups that are under way at once. What a core keeps in flight is less, 10 to 48 lines.
const BURST: usize = 32;

/// What is known of a tenant's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Neighbor {
    /// Its MAC address in its own network.
    pub mac: MacAddr,
    /// The host where it lives.
    pub host: HostId,
    /// The set of rules that is bound to it; 0 for none.
    pub policy: u32,
    /// Given by the control plane; a lower one never takes the place of a higher.
    pub version: u64,
}

/// What came of [`NeighborWriter::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// The address was not known before.
    New,
    /// The address was known, and is something newer now. What it was.
    Replaced(Neighbor),
    /// The same version was there already, so nothing was done.
    Known,
    /// This, which is newer, was there already, so nothing was done.
    Older(Neighbor),
}

/// What came of [`NeighborWriter::remove`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removed {
    /// What it was.
    Gone(Neighbor),
    /// The address was not known.
    Unknown,
    /// This, which is newer, was put there since, so it stays.
    Older(Neighbor),
}

/// All neighbours: read by [`NeighborReader`]s, changed through one [`NeighborWriter`] at a time.
///
/// ```
/// use ringside_gateway_core::table::{HostId, Neighbor, Neighbors, Put};
/// use ringside_gateway_core::{TenantAddress, Vni};
///
/// let neighbors = Neighbors::new();
/// let address = TenantAddress::new(Vni::new(42).unwrap(), "10.0.0.7".parse()?);
/// let mac = "02:00:00:00:00:07".parse()?;
/// let neighbor = Neighbor { mac, host: HostId(3), policy: 0, version: 1 };
/// assert_eq!(neighbors.write().put(address, neighbor), Put::New);
///
/// let mut reader = neighbors.reader();
/// let mut found = [None; 2];
/// let elsewhere = TenantAddress { vni: Vni::new(43).unwrap(), ..address };
/// reader.look_up(&[address, elsewhere], &mut found);
/// assert_eq!(found, [Some(neighbor), None]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Neighbors {
    v4: Family<Narrow>,
    v6: Family<Wide>,
    hashes: RandomState,
}

impl Neighbors {
    /// A table without neighbours.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A reader, for one thread.
    #[must_use]
    pub fn reader(&self) -> NeighborReader {
        NeighborReader {
            v4: Cache::new(Arc::clone(&self.v4.directory)),
            v6: Cache::new(Arc::clone(&self.v6.directory)),
            hashes: self.hashes.clone(),
        }
    }

    /// The right to change the table; waits for others who have it.
    pub fn write(&self) -> NeighborWriter<'_> {
        NeighborWriter {
            v4: self.v4.write(&self.hashes),
            v6: self.v6.write(&self.hashes),
            hashes: &self.hashes,
        }
    }

    /// How many neighbours there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the slots take.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.v4.memory() + self.v6.memory()
    }

    #[cfg(test)]
    pub(super) fn family_memory(&self) -> [usize; 2] {
        [self.v4.memory(), self.v6.memory()]
    }

    /// Calls for each neighbour. What changes meanwhile may be seen as it was, as it is, or, if it is put anew, twice.
    pub fn for_each(&self, mut each: impl FnMut(TenantAddress, Neighbor)) {
        self.v4.for_each(&mut each);
        self.v6.for_each(&mut each);
    }
}

impl std::fmt::Debug for Neighbors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Neighbors")
            .field("len", &self.len())
            .field("memory", &self.memory())
            .finish_non_exhaustive()
    }
}

fn key(hashes: &RandomState, address: &TenantAddress) -> Key {
    let mut hasher = hashes.build_hasher();
    let (head, address) = match address.ip {
        IpAddr::V4(ip) => (head(address.vni, u32::from(ip)), [0, 0]),
        IpAddr::V6(ip) => {
            let [a, b, c, d, e, f, g, h, low @ ..] = ip.octets();
            let parts = [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(low)];
            hasher.write_u64(parts[0]);
            hasher.write_u64(parts[1]);
            // Mostly what tells addresses of a network apart: the rest of the slot is seldom read in vain.
            let [.., i, j, k, l] = low;
            (head(address.vni, u32::from_be_bytes([i, j, k, l])), parts)
        }
    };
    hasher.write_u64(head);
    Key {
        head,
        address,
        hash: hasher.finish(),
    }
}

/// A reader of the table, for one thread. It never waits, whatever writers do.
///
/// A reader that is not used keeps alive what it saw last: use it, or drop it.
#[derive(Clone)]
pub struct NeighborReader {
    v4: Reader<Narrow>,
    v6: Reader<Wide>,
    hashes: RandomState,
}

impl NeighborReader {
    /// Finds all of a burst at once: about the price of one look-up that misses the cache, for each 10 or so.
    ///
    /// # Panics
    /// If `found` is shorter than `addresses`.
    pub fn look_up(&mut self, addresses: &[TenantAddress], found: &mut [Option<Neighbor>]) {
        assert!(found.len() >= addresses.len(), "a place for each answer");
        let (v4, v6) = (self.v4.load(), self.v6.load());
        for (addresses, found) in addresses.chunks(BURST).zip(found.chunks_mut(BURST)) {
            let mut first = [(Key::NONE, 0); BURST];
            // Nothing here waits for what another round loads, so all loads are under way together.
            for (first, address) in first.iter_mut().zip(addresses) {
                let key = key(&self.hashes, address);
                let head = match address.ip {
                    IpAddr::V4(_) => v4.head_at_home(&key),
                    IpAddr::V6(_) => v6.head_at_home(&key),
                };
                *first = (key, head);
            }
            for ((address, (key, head)), found) in addresses.iter().zip(&first).zip(found) {
                *found = match address.ip {
                    IpAddr::V4(_) => v4.find(key, *head),
                    IpAddr::V6(_) => v6.find(key, *head),
                };
            }
        }
    }

    /// Finds one.
    pub fn find(&mut self, address: TenantAddress) -> Option<Neighbor> {
        let mut found = [None];
        self.look_up(&[address], &mut found);
        found[0]
    }
}

impl std::fmt::Debug for NeighborReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NeighborReader").finish_non_exhaustive()
    }
}

/// The right to change the table. Readers see each change when it is made, whole.
pub struct NeighborWriter<'a> {
    v4: FamilyWriter<'a, Narrow>,
    v6: FamilyWriter<'a, Wide>,
    hashes: &'a RandomState,
}

impl NeighborWriter<'_> {
    /// Makes known where an address lives, unless something newer is known.
    pub fn put(&mut self, address: TenantAddress, neighbor: Neighbor) -> Put {
        let key = key(self.hashes, &address);
        match address.ip {
            IpAddr::V4(_) => self.v4.put(&key, &neighbor),
            IpAddr::V6(_) => self.v6.put(&key, &neighbor),
        }
    }

    /// Forgets an address, unless what is known is newer than `version`.
    pub fn remove(&mut self, address: TenantAddress, version: u64) -> Removed {
        let key = key(self.hashes, &address);
        match address.ip {
            IpAddr::V4(_) => self.v4.remove(&key, version),
            IpAddr::V6(_) => self.v6.remove(&key, version),
        }
    }

    /// Binds another set of rules to an address; its version stays. False if the address is not known.
    pub fn set_policy(&mut self, address: TenantAddress, policy: u32) -> bool {
        let key = key(self.hashes, &address);
        let with = |neighbor: Neighbor| Neighbor { policy, ..neighbor };
        match address.ip {
            IpAddr::V4(_) => self.v4.change(&key, with),
            IpAddr::V6(_) => self.v6.change(&key, with),
        }
    }
}

impl std::fmt::Debug for NeighborWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NeighborWriter").finish_non_exhaustive()
    }
}

impl Key {
    const NONE: Self = Self {
        head: EMPTY,
        address: [0; 2],
        hash: 0,
    };

    fn shard(&self) -> usize {
        usize::from(self.hash.to_be_bytes()[0])
    }

    /// Where its way through the slots of its shard begins.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "below the number of slots, which is a usize"
    )]
    fn home(&self, slots: usize) -> usize {
        ((u128::from(self.hash << 8) * slots as u128) >> 64) as usize
    }
}

type Reader<S> = Cache<Arc<ArcSwap<Directory<S>>>, Arc<Directory<S>>>;

/// Shards of slots. Each has room: there is an empty slot on everybody's way.
struct Directory<S> {
    shards: Box<[Arc<[S]>]>,
}

impl<S: Slot> Directory<S> {
    fn head_at_home(&self, key: &Key) -> u64 {
        let shard = &self.shards[key.shard()];
        shard[key.home(shard.len())].head()
    }

    /// The neighbour of a key, of which the head at home is known.
    fn find(&self, key: &Key, head: u64) -> Option<Neighbor> {
        let shard = &self.shards[key.shard()];
        find(shard, key, head).map(|at| shard[at].neighbor())
    }
}

/// Where a key's slot is, from what was read at its home on.
fn find<S: Slot>(shard: &[S], key: &Key, mut head: u64) -> Option<usize> {
    let mut at = key.home(shard.len());
    loop {
        if head == key.head && shard[at].is_of(key) {
            return Some(at);
        }
        if head == EMPTY {
            return None;
        }
        at = if at + 1 == shard.len() { 0 } else { at + 1 };
        head = shard[at].head();
    }
}

/// Slots of which `live` are to be taken: less than half, so that a third as many may come before the next time.
fn build<S: Slot>(live: usize) -> Arc<[S]> {
    let slots = live.max(SMALLEST) * 20 / 9;
    std::iter::repeat_with(S::default).take(slots).collect()
}

/// Slots that may be taken, dead ones included: with more, ways get long.
fn most(slots: usize) -> usize {
    slots * 7 / 10
}

fn first_empty<S: Slot>(shard: &[S], key: &Key) -> usize {
    let mut at = key.home(shard.len());
    while shard[at].head() != EMPTY {
        at = if at + 1 == shard.len() { 0 } else { at + 1 };
    }
    at
}

/// Slots of a shard that are not empty.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    live: usize,
    dead: usize,
}

struct Family<S> {
    directory: Arc<ArcSwap<Directory<S>>>,
    taken: Mutex<Box<[Taken]>>,
}

impl<S: Slot> Default for Family<S> {
    fn default() -> Self {
        let shards = std::iter::repeat_with(|| build(0)).take(SHARDS).collect();
        Self {
            directory: Arc::new(ArcSwap::from_pointee(Directory { shards })),
            taken: Mutex::new([Taken::default(); SHARDS].into()),
        }
    }
}

impl<S: Slot> Family<S> {
    fn write<'a>(&'a self, hashes: &'a RandomState) -> FamilyWriter<'a, S> {
        // A change is whole before and after each line that can panic: only memory can run out.
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        FamilyWriter {
            directory: &self.directory,
            current: self.directory.load_full(),
            taken,
            hashes,
        }
    }

    fn len(&self) -> usize {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().map(|taken| taken.live).sum()
    }

    fn memory(&self) -> usize {
        self.directory
            .load()
            .shards
            .iter()
            .map(|shard| size_of_val(&**shard))
            .sum()
    }

    fn for_each(&self, each: &mut impl FnMut(TenantAddress, Neighbor)) {
        let directory = self.directory.load_full();
        for slot in directory.shards.iter().flat_map(|shard| shard.iter()) {
            let head = slot.head();
            if is_live(head) {
                each(slot.address(head), slot.neighbor());
            }
        }
    }
}

struct FamilyWriter<'a, S> {
    directory: &'a ArcSwap<Directory<S>>,
    /// What is published, without asking for it each time.
    current: Arc<Directory<S>>,
    taken: MutexGuard<'a, Box<[Taken]>>,
    hashes: &'a RandomState,
}

impl<S: Slot> FamilyWriter<'_, S> {
    fn existing(&self, key: &Key) -> Option<(&S, Neighbor)> {
        let shard = &self.current.shards[key.shard()];
        let at = find(shard, key, self.current.head_at_home(key))?;
        Some((&shard[at], shard[at].neighbor()))
    }

    fn put(&mut self, key: &Key, neighbor: &Neighbor) -> Put {
        let before = self.existing(key).map(|(_, before)| before);
        match before {
            Some(before) if before.version > neighbor.version => return Put::Older(before),
            Some(before) if before.version == neighbor.version => return Put::Known,
            _ => {}
        }
        self.insert(key, neighbor);
        before.map_or(Put::New, Put::Replaced)
    }

    fn change(&mut self, key: &Key, with: impl FnOnce(Neighbor) -> Neighbor) -> bool {
        let Some((_, before)) = self.existing(key) else {
            return false;
        };
        let after = with(before);
        if after != before {
            self.insert(key, &after);
        }
        true
    }

    fn remove(&mut self, key: &Key, version: u64) -> Removed {
        match self.existing(key) {
            None => Removed::Unknown,
            Some((_, before)) if before.version > version => Removed::Older(before),
            Some((slot, before)) => {
                slot.bury();
                let taken = &mut self.taken[key.shard()];
                taken.live -= 1;
                taken.dead += 1;
                Removed::Gone(before)
            }
        }
    }

    /// Puts a neighbour there, and buries the one that was there.
    fn insert(&mut self, key: &Key, neighbor: &Neighbor) {
        let at = key.shard();
        let taken = self.taken[at];
        if taken.live + taken.dead + 1 > most(self.current.shards[at].len()) {
            self.rebuild(at);
        }
        let shard = &self.current.shards[at];
        let old = find(shard, key, self.current.head_at_home(key));
        let new = first_empty(shard, key);
        shard[new].fill(key, neighbor);
        let taken = &mut self.taken[at];
        if let Some(old) = old {
            // Behind the new one's release: who no longer finds the old one finds the new.
            shard[old].bury();
            taken.dead += 1;
        } else {
            taken.live += 1;
        }
    }

    /// Builds a shard anew, with room and without dead slots, and publishes it.
    fn rebuild(&mut self, at: usize) {
        let taken = &mut self.taken[at];
        let shard = build::<S>(taken.live + 1);
        for slot in self.current.shards[at].iter() {
            let head = slot.head();
            if is_live(head) {
                let key = key(self.hashes, &slot.address(head));
                shard[first_empty(&shard, &key)].fill(&key, &slot.neighbor());
            }
        }
        taken.dead = 0;
        let mut shards = self.current.shards.clone();
        shards[at] = shard;
        self.current = Arc::new(Directory { shards });
        self.directory.store(Arc::clone(&self.current));
    }
}
