//! The table of neighbours: in memory that the program shares, written and read without a system call.
//!
//! `gateway_table.h` tells how it is laid out, and how packets find what is in it beside its being written (as under the kernel's
//! sequence counters, <https://docs.kernel.org/locking/seqlock.html>).

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use libbpf_rs::{MapCore, MapHandle};

use super::NAME;
use super::layout::{self, CachedNeighbor, Entry, LAYOUT, NeighborKey};
use crate::error::{Error, Result};
use crate::sys::Shared;

/// Places side by side.
const GROUP: u32 = 4;
/// Places that an address can have.
const CHOICES: u32 = 2 * GROUP;
/// Places for every five neighbours that there is room for: with fewer, moving them takes longer and looks at more lines.
const PLACES_OF_FIVE: u64 = 7;
/// To make room for one, so many others are moved, and one more.
const DEEP: u32 = 2;
/// Entries that were moved, as far as they are remembered for who reads in parts.
const MOST_MOVES: usize = 4096;

/// Words of a value: `struct neighbor`.
const VALUE: usize = 5;
type Value = [u64; VALUE];

/// One place, a line of the CPU's cache: `struct neighbor_slot`.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    version: AtomicU32,
    network: AtomicU32,
    address: [AtomicU64; 2],
    value: [AtomicU64; VALUE],
}

/// A key as it lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key {
    network: u32,
    address: [u64; 2],
}

impl Key {
    fn of(key: &NeighborKey, bytes: &mut Vec<u8>) -> Self {
        bytes.clear();
        key.write(bytes);
        let network = bytes.first_chunk().map_or(0, |network| u32::from_ne_bytes(*network));
        Self {
            network,
            address: words(&bytes[size_of::<u32>()..]),
        }
    }

    fn read(self) -> Option<NeighborKey> {
        let mut bytes = [0; NeighborKey::LEN];
        bytes[..4].copy_from_slice(&self.network.to_ne_bytes());
        bytes[4..12].copy_from_slice(&self.address[0].to_ne_bytes());
        bytes[12..].copy_from_slice(&self.address[1].to_ne_bytes());
        NeighborKey::read(&bytes)
    }
}

/// As many words as there are bytes for.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes));
    }
    words
}

impl Slot {
    fn is_free(&self) -> bool {
        self.network.load(Ordering::Relaxed) == 0
    }

    fn key(&self) -> Key {
        Key {
            network: self.network.load(Ordering::Relaxed),
            address: [0, 1].map(|word: usize| self.address[word].load(Ordering::Relaxed)),
        }
    }

    fn value(&self) -> Value {
        std::array::from_fn(|word| self.value[word].load(Ordering::Relaxed))
    }

    /// In place of what is there, so that who reads meanwhile knows that it was changed; if it is the same, it was not. Network 0 makes
    /// it free.
    fn put(&self, key: Key, value: Value) {
        let version = self.version.load(Ordering::Relaxed);
        if version & 1 == 0 && self.key() == key && self.value() == value {
            return;
        }
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.network.store(key.network, Ordering::Relaxed);
        for (word, now) in self.address.iter().zip(key.address) {
            word.store(now, Ordering::Relaxed);
        }
        for (word, now) in self.value.iter().zip(value) {
            word.store(now, Ordering::Relaxed);
        }
        self.version.store((version | 1).wrapping_add(1), Ordering::Release);
    }

    fn clear(&self) {
        let nothing = Key {
            network: 0,
            address: [0; 2],
        };
        self.put(nothing, [0; VALUE]);
    }
}

/// How large a table is, and where in it a key can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Of this table alone: nobody knows before which keys meet.
    pub(super) seed: u64,
    /// Neighbours that it takes.
    pub(super) room: u32,
}

impl Shape {
    /// With a seed of its own.
    pub(super) fn new(room: u32) -> Self {
        Self {
            seed: RandomState::new().hash_one(room),
            room,
        }
    }

    /// `struct state`, with these settings in force.
    pub(super) fn state(self, active: u32) -> Vec<u8> {
        let (seed, room) = (self.seed.to_ne_bytes(), self.room.to_ne_bytes());
        let head = [LAYOUT.to_ne_bytes(), active.to_ne_bytes()].concat();
        [&head[..], &seed, &room, &[0; 4]].concat()
    }

    /// What such a state says.
    pub(super) fn of(state: &[u8]) -> Option<Self> {
        let (seed, room) = (layout::long(state, 8)?, layout::word(state, 16)?);
        Some(Self { seed, room })
    }

    /// Groups of [`GROUP`] places.
    pub(super) fn groups(self) -> u32 {
        let places = u64::from(self.room) * PLACES_OF_FIVE / 5;
        let groups = places.div_ceil(GROUP.into()) + 1;
        u32::try_from(groups).unwrap_or(u32::MAX / GROUP)
    }

    /// Entries of the map.
    pub(super) fn places(self) -> u32 {
        self.groups().saturating_mul(GROUP)
    }

    /// `hash_of()`.
    fn hash(self, key: Key) -> u64 {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        const MORE: u64 = 0xd6e8_feb8_6659_fd93;
        let Key {
            network,
            address: [first, second],
        } = key;
        let network = u64::from(network) << 32 | u64::from(network);
        let hash = (first ^ self.seed).wrapping_mul(MIX);
        let hash = ((hash ^ hash >> 32) ^ second ^ network).wrapping_mul(MORE);
        let hash = (hash ^ hash >> 29).wrapping_mul(MIX);
        hash ^ hash >> 32
    }

    /// `place_of()`: so many places of the first half, and then of the other.
    fn place(self, hash: u64, nth: u32) -> usize {
        let half = if nth < GROUP {
            hash & u64::from(u32::MAX)
        } else {
            hash >> 32
        };
        let group = (half * u64::from(self.groups())) >> 32;
        let in_group = (half ^ u64::from(nth)) & u64::from(GROUP - 1);
        usize::try_from(group * u64::from(GROUP) + in_group).unwrap_or(usize::MAX)
    }
}

/// Where tenants' addresses live, for their owner. Any thread may use it at any time; of processes only one may, for a table
/// is written without asking the kernel.
#[derive(Debug)]
pub struct NeighborTable {
    map: MapHandle,
    shape: Shape,
    places: Shared<Slot>,
    writer: Mutex<Writer>,
}

/// What only who writes knows.
#[derive(Debug, Default)]
struct Writer {
    entries: u32,
    /// Entries that made room for others: the last of them, and how many there were.
    moves: Vec<Key>,
    moved: u64,
}

impl Writer {
    fn moved(&mut self, key: Key) {
        if self.moves.len() == MOST_MOVES {
            self.moves.drain(..MOST_MOVES / 2);
        }
        self.moves.push(key);
        self.moved += 1;
    }
}

impl NeighborTable {
    /// Of a map with as many entries of [`Slot`]'s layout as this shape has.
    ///
    /// # Errors
    ///
    /// [`Error::Map`] if the kernel does not share it, or it has another size.
    pub(super) fn open(map: MapHandle, shape: Shape) -> Result<Self> {
        let failed = |source| Error::map(NAME, "neighbors", "sharing", source);
        if map.max_entries() != shape.places() || map.value_size() as usize != size_of::<Slot>() {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        }
        let places = Shared::new(&map, shape.places() as usize).map_err(failed)?;
        let mut entries = 0;
        for slot in places.all() {
            // Its writer was killed in the midst of it.
            if slot.version.load(Ordering::Relaxed) & 1 == 1 {
                slot.clear();
            }
            entries += u32::from(!slot.is_free());
        }
        Ok(Self {
            map,
            shape,
            places,
            writer: Mutex::new(Writer {
                entries,
                ..Writer::default()
            }),
        })
    }

    pub(super) fn map(&self) -> &MapHandle {
        &self.map
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns whether there is an entry under a key.
    #[must_use]
    pub fn contains(&self, key: &NeighborKey) -> bool {
        let _held = self.lock();
        self.find(Key::of(key, &mut Vec::with_capacity(NeighborKey::LEN)))
            .is_some()
    }

    fn find(&self, key: Key) -> Option<&Slot> {
        let hash = self.shape.hash(key);
        let mut places = (0..CHOICES).map(|nth| &self.places.all()[self.shape.place(hash, nth)]);
        places.find(|slot| slot.key() == key)
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        // Nothing that can panic is done between two states of an entry.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries that are there.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().entries as usize
    }

    /// There are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts entries in, in place of those that are there under the same keys. How many there was room for: the others are
    /// not in the table. (One whose places are all taken by others that have no other place is refused, too: so far there was none.)
    pub fn put(&self, entries: &[(NeighborKey, CachedNeighbor)]) -> usize {
        let mut writer = self.lock();
        let mut bytes = Vec::with_capacity(CachedNeighbor::LEN);
        let mut done = 0;
        for (key, value) in entries {
            let key = Key::of(key, &mut bytes);
            bytes.clear();
            value.write(&mut bytes);
            done += usize::from(self.put_one(&mut writer, key, words(&bytes)));
        }
        done
    }

    fn put_one(&self, writer: &mut Writer, key: Key, value: Value) -> bool {
        let hash = self.shape.hash(key);
        let all = self.places.all();
        let mut free = None;
        for nth in 0..CHOICES {
            let slot = &all[self.shape.place(hash, nth)];
            if slot.is_free() {
                free = free.or(Some(slot));
            } else if slot.key() == key {
                slot.put(key, value);
                return true;
            }
        }
        if writer.entries >= self.shape.room {
            return false;
        }
        let Some(slot) = free.or_else(|| self.make_room(writer, hash, DEEP)) else {
            return false;
        };
        slot.put(key, value);
        writer.entries += 1;
        true
    }

    /// Makes one of this key's places free: moves who is there to another place of its own, and who is there before, as deep
    /// as this.
    fn make_room(&self, writer: &mut Writer, hash: u64, deep: u32) -> Option<&Slot> {
        let all = self.places.all();
        for nth in 0..CHOICES {
            let from = &all[self.shape.place(hash, nth)];
            let (key, value) = (from.key(), from.value());
            let its = self.shape.hash(key);
            let free = || {
                let places = (0..CHOICES).map(|nth| &all[self.shape.place(its, nth)]);
                places.into_iter().find(|slot| slot.is_free())
            };
            let to = match free() {
                None if deep > 0 => self.make_room(writer, its, deep - 1),
                free => free,
            };
            if let Some(to) = to {
                // It is in both for a moment, so that nobody misses it.
                to.put(key, value);
                from.clear();
                writer.moved(key);
                return Some(from);
            }
        }
        None
    }

    /// Removes entries, and says how many were there.
    pub fn remove(&self, keys: &[NeighborKey]) -> usize {
        let mut writer = self.lock();
        let mut bytes = Vec::with_capacity(NeighborKey::LEN);
        let before = writer.entries;
        for key in keys {
            let key = Key::of(key, &mut bytes);
            if let Some(slot) = self.find(key) {
                slot.clear();
                writer.entries -= 1;
            }
        }
        (before - writer.entries) as usize
    }

    /// Reads all that is there, in no order. Who is called must not come back here: it is locked meanwhile.
    pub fn for_each(&self, mut each: impl FnMut(NeighborKey, CachedNeighbor)) {
        let _held = self.lock();
        for slot in self.places.all() {
            read(slot, &mut each);
        }
    }

    /// Reads so many entries from where it ended the last time; fewer when it comes to the end, and then begins anew the next
    /// time. Entries may be changed and removed between two calls; none that stays is left out, and what was
    /// moved or put anew may come twice. Who is called must not come back here: it is locked meanwhile.
    pub fn read_on(&self, hand: &mut TableHand, count: usize, mut each: impl FnMut(NeighborKey, CachedNeighbor)) {
        let writer = self.lock();
        let all = self.places.all();
        if hand.seed != self.shape.seed {
            *hand = TableHand {
                seed: self.shape.seed,
                ..TableHand::default()
            };
        }
        if hand.is_new() {
            hand.moved = writer.moved;
        }
        let mut left = count;
        while left > 0
            && let Some(slot) = all.get(hand.next)
        {
            left -= usize::from(read(slot, &mut each));
            hand.next += 1;
        }
        if hand.next < all.len() {
            return;
        }
        // What was moved from behind it to before it.
        let missed = usize::try_from(writer.moved - hand.moved).unwrap_or(usize::MAX);
        if missed > writer.moves.len() {
            // Too many to be known: once more.
            (hand.next, hand.moved, hand.again) = (0, writer.moved, true);
            return;
        }
        for key in &writer.moves[writer.moves.len() - missed..] {
            if let Some(slot) = self.find(*key) {
                read(slot, &mut each);
            }
        }
        *hand = TableHand::default();
    }
}

fn read(slot: &Slot, each: &mut impl FnMut(NeighborKey, CachedNeighbor)) -> bool {
    if slot.is_free() {
        return false;
    }
    let bytes = slot.value().map(u64::to_ne_bytes);
    if let (Some(key), Some(value)) = (slot.key().read(), CachedNeighbor::read(bytes.as_flattened())) {
        each(key, value);
    }
    true
}

/// A position in a table, for [`NeighborTable::read_on`]. A new one, and one of another table, is
/// that of the first entry.
#[derive(Debug, Default)]
pub struct TableHand {
    /// Identifies the table.
    seed: u64,
    next: usize,
    /// Entries that had been moved when it began.
    moved: u64,
    again: bool,
}

impl TableHand {
    /// It begins with the first entry the next time: nothing has been read yet, or all.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.next == 0 && !self.again
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
