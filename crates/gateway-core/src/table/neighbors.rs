//! The table of neighbours: shards of slots, found through a directory that is replaced whole.

use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Cache};
use foldhash::quality::RandomState;
use ringside_wire::MacAddr;

use super::hosts::HostId;
use super::shard::{Guess, Shard};
use super::slot::{Narrow, Slot, Wide};
use crate::TenantAddress;
use crate::words::joined;

/// Shards of a family. More make a shorter pause of writers when one is built anew, and a larger directory.
const SHARDS: usize = 256;
/// Neighbours for which a shard is built at the least.
const SMALLEST: usize = 8;
/// Look-ups that are under way at once. What a core keeps in flight is less, 10 to 48 lines.
const BURST: usize = 64;

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
        (0..Self::PARTS).for_each(|part| self.for_each_of(part, &mut each));
    }

    /// Parts of about the same size that [`Neighbors::for_each_of`] takes one at a time. An address is always of the same one.
    pub const PARTS: usize = SHARDS;

    /// As [`Neighbors::for_each`], of one part, below [`Neighbors::PARTS`].
    pub fn for_each_of(&self, part: usize, mut each: impl FnMut(TenantAddress, Neighbor)) {
        self.v4.for_each_of(part, &mut each);
        self.v6.for_each_of(part, &mut each);
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

#[inline]
fn hash_v4(hashes: &RandomState, key: u64) -> u64 {
    let mut hasher = hashes.build_hasher();
    hasher.write_u64(key);
    hasher.finish()
}

fn hash(hashes: &RandomState, address: &TenantAddress) -> u64 {
    match address.ip {
        IpAddr::V4(ip) => hash_v4(hashes, joined([address.vni.number(), u32::from(ip)])),
        IpAddr::V6(ip) => {
            let mut hasher = hashes.build_hasher();
            hasher.write_u128(u128::from(ip));
            hasher.write_u32(address.vni.number());
            hasher.finish()
        }
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
            let mut keys = [0; BURST];
            let mut narrow = 0;
            for (address, key) in addresses.iter().zip(&mut keys) {
                if let IpAddr::V4(ip) = address.ip {
                    *key = joined([address.vni.number(), u32::from(ip)]);
                    narrow += 1;
                }
            }
            if narrow == addresses.len() {
                v4.look_up_keys(&self.hashes, &keys[..narrow], found);
            } else {
                look_up_both((v4, v6), &self.hashes, addresses, found);
            }
        }
    }

    /// The same for addresses of IPv4 alone: network in the upper half, address in the lower.
    ///
    /// # Panics
    /// If `found` is shorter than `keys`.
    pub(crate) fn look_up_v4(&mut self, keys: &[u64], found: &mut [Option<Neighbor>]) {
        assert!(found.len() >= keys.len(), "a place for each answer");
        let v4 = self.v4.load();
        for (keys, found) in keys.chunks(BURST).zip(found.chunks_mut(BURST)) {
            v4.look_up_keys(&self.hashes, keys, found);
        }
    }

    /// Finds one.
    pub fn find(&mut self, address: TenantAddress) -> Option<Neighbor> {
        let hash = hash(&self.hashes, &address);
        match address.ip {
            IpAddr::V4(_) => self.v4.load().of(hash).look(&address, hash).map(Slot::neighbor),
            IpAddr::V6(_) => self.v6.load().of(hash).look(&address, hash).map(Slot::neighbor),
        }
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
        let hash = hash(self.hashes, &address);
        match address.ip {
            IpAddr::V4(_) => self.v4.put(&address, hash, &neighbor),
            IpAddr::V6(_) => self.v6.put(&address, hash, &neighbor),
        }
    }

    /// Forgets an address, unless what is known is newer than `version`.
    pub fn remove(&mut self, address: TenantAddress, version: u64) -> Removed {
        let hash = hash(self.hashes, &address);
        match address.ip {
            IpAddr::V4(_) => self.v4.remove(&address, hash, version),
            IpAddr::V6(_) => self.v6.remove(&address, hash, version),
        }
    }

    /// Binds another set of rules to an address; its version stays. False if the address is not known.
    pub fn set_policy(&mut self, address: TenantAddress, policy: u32) -> bool {
        let hash = hash(self.hashes, &address);
        let with = |neighbor: Neighbor| Neighbor { policy, ..neighbor };
        match address.ip {
            IpAddr::V4(_) => self.v4.change(&address, hash, with),
            IpAddr::V6(_) => self.v6.change(&address, hash, with),
        }
    }
}

impl std::fmt::Debug for NeighborWriter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NeighborWriter").finish_non_exhaustive()
    }
}

type Reader<S> = Cache<Arc<ArcSwap<Directory<S>>>, Arc<Directory<S>>>;

struct Directory<S> {
    shards: Box<[Arc<Shard<S>>; SHARDS]>,
}

/// Which shard a hash belongs to: its upper byte says.
fn shard_of(hash: u64) -> usize {
    usize::from(hash.to_be_bytes()[0])
}

impl<S: Slot> Directory<S> {
    #[inline]
    fn of(&self, hash: u64) -> &Shard<S> {
        &self.shards[shard_of(hash)]
    }
}

// In none of the four loops of these two does a round wait for what another one has come into the cache: all of it is under way
// together.

impl Directory<Narrow> {
    /// Finds as many as a burst has, or fewer.
    fn look_up_keys(&self, random: &RandomState, keys: &[u64], found: &mut [Option<Neighbor>]) {
        let (mut hashes, mut guesses) = ([0; BURST], [Guess::Nowhere; BURST]);
        for (key, hash) in keys.iter().zip(&mut hashes) {
            *hash = hash_v4(random, *key);
            self.of(*hash).fetch_tags(*hash);
        }
        for (hash, guess) in hashes.iter().zip(&mut guesses).take(keys.len()) {
            *guess = self.of(*hash).guess(*hash);
        }
        guesses.iter().take(keys.len()).for_each(|guess| guess.fetch());
        for ((key, (hash, guess)), found) in keys.iter().zip(hashes.iter().zip(&guesses)).zip(found) {
            *found = self.of(*hash).find_by(*key, *hash, *guess).map(Slot::neighbor);
        }
    }
}

/// The same of both families.
fn look_up_both(
    (v4, v6): (&Directory<Narrow>, &Directory<Wide>),
    random: &RandomState,
    addresses: &[TenantAddress],
    found: &mut [Option<Neighbor>],
) {
    let (mut hashes, mut guesses) = ([0; BURST], [OfEither::V4(Guess::Nowhere); BURST]);
    for (address, hash) in addresses.iter().zip(&mut hashes) {
        *hash = self::hash(random, address);
        match address.ip {
            IpAddr::V4(_) => v4.of(*hash).fetch_tags(*hash),
            IpAddr::V6(_) => v6.of(*hash).fetch_tags(*hash),
        }
    }
    for ((address, hash), guess) in addresses.iter().zip(&hashes).zip(&mut guesses) {
        *guess = match address.ip {
            IpAddr::V4(_) => OfEither::V4(v4.of(*hash).guess(*hash)),
            IpAddr::V6(_) => OfEither::V6(v6.of(*hash).guess(*hash)),
        };
    }
    for guess in guesses.iter().take(addresses.len()) {
        match guess {
            OfEither::V4(guess) => guess.fetch(),
            OfEither::V6(guess) => guess.fetch(),
        }
    }
    let known = hashes.iter().zip(&guesses);
    for ((address, (hash, guess)), found) in addresses.iter().zip(known).zip(found) {
        *found = match *guess {
            OfEither::V4(guess) => v4.of(*hash).find(address, *hash, guess).map(Slot::neighbor),
            OfEither::V6(guess) => v6.of(*hash).find(address, *hash, guess).map(Slot::neighbor),
        };
    }
}

#[derive(Clone, Copy)]
enum OfEither<'a> {
    V4(Guess<'a, Narrow>),
    V6(Guess<'a, Wide>),
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
        let shards = Box::new(std::array::from_fn(|_| Arc::new(Shard::new(SMALLEST))));
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
        self.directory.load().shards.iter().map(|shard| shard.memory()).sum()
    }

    fn for_each_of(&self, part: usize, each: &mut impl FnMut(TenantAddress, Neighbor)) {
        let directory = self.directory.load_full();
        for slot in directory.shards.get(part).iter().flat_map(|shard| shard.live()) {
            each(slot.address(), slot.neighbor());
        }
    }
}

/// Neighbours that a shard gets room for when it has to be built anew for so many: more by so many 1024ths, from the first shard to the last.
const fn room(neighbors: usize, shard: usize, [first, last]: [usize; 2]) -> usize {
    neighbors + neighbors * (first + (last - first) * shard / SHARDS) / 1024
}

struct FamilyWriter<'a, S> {
    directory: &'a ArcSwap<Directory<S>>,
    /// What is published, without asking for it each time.
    current: Arc<Directory<S>>,
    taken: MutexGuard<'a, Box<[Taken]>>,
    hashes: &'a RandomState,
}

impl<S: Slot> FamilyWriter<'_, S> {
    fn existing(&self, address: &TenantAddress, hash: u64) -> Option<(&S, Neighbor)> {
        let slot = self.current.of(hash).look(address, hash)?;
        Some((slot, slot.neighbor()))
    }

    fn put(&mut self, address: &TenantAddress, hash: u64, neighbor: &Neighbor) -> Put {
        let before = self.existing(address, hash).map(|(_, before)| before);
        match before {
            Some(before) if before.version > neighbor.version => return Put::Older(before),
            Some(before) if before.version == neighbor.version => return Put::Known,
            _ => {}
        }
        self.insert(address, hash, neighbor);
        before.map_or(Put::New, Put::Replaced)
    }

    fn change(&mut self, address: &TenantAddress, hash: u64, with: impl FnOnce(Neighbor) -> Neighbor) -> bool {
        let Some((_, before)) = self.existing(address, hash) else {
            return false;
        };
        let after = with(before);
        if after != before {
            self.insert(address, hash, &after);
        }
        true
    }

    fn remove(&mut self, address: &TenantAddress, hash: u64, version: u64) -> Removed {
        match self.existing(address, hash) {
            None => Removed::Unknown,
            Some((_, before)) if before.version > version => Removed::Older(before),
            Some((slot, before)) => {
                slot.bury();
                let taken = &mut self.taken[shard_of(hash)];
                taken.live -= 1;
                taken.dead += 1;
                Removed::Gone(before)
            }
        }
    }

    /// Puts a neighbour there, and buries the one that was there.
    fn insert(&mut self, address: &TenantAddress, hash: u64, neighbor: &Neighbor) {
        let at = shard_of(hash);
        let taken = self.taken[at];
        if taken.live + taken.dead + 1 > self.current.shards[at].most() {
            self.rebuild(at);
        }
        let shard = &self.current.shards[at];
        let old = self.existing(address, hash).map(|(slot, _)| slot);
        shard.fill(address, hash, neighbor);
        if let Some(old) = old {
            // Behind the new one's release: who no longer finds the old one finds the new.
            old.bury();
        }
        let replaced = old.is_some();
        let taken = &mut self.taken[at];
        if replaced {
            taken.dead += 1;
        } else {
            taken.live += 1;
        }
    }

    /// Builds a shard anew, with room and without dead slots, and publishes it.
    fn rebuild(&mut self, at: usize) {
        let taken = &mut self.taken[at];
        let shard = Shard::new(room(taken.live + 1, at, S::SPARE));
        for slot in self.current.shards[at].live() {
            let address = slot.address();
            shard.fill(&address, hash(self.hashes, &address), &slot.neighbor());
        }
        taken.dead = 0;
        let mut shards = self.current.shards.clone();
        shards[at] = Arc::new(shard);
        self.current = Arc::new(Directory { shards });
        self.directory.store(Arc::clone(&self.current));
    }
}
