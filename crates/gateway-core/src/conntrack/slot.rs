//! Slots for connections: words that anybody may read at any time, and only who holds the stripe's
//! lock believes.
//!
//! ```text
//!   0 … 4  key                                  8  when seen last
//!   5      chain 32 · serial 32                 9  generation
//!   6      before 32 · after 32                 10 profiles 32 · 32
//!   7      placed 32 · 16 · state 8 · marks 8   11 … 15 TCP
//! ```
//! They are atomic so that a burst can fetch the slots it will need before it takes the first lock:
//! see [`super::Conntrack::look_ahead`]. Under the lock they are plain memory.

use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

use super::entry::Entry;
use super::key::Key;
use super::state::State;
use super::tcp::Tcp;
use crate::policy::ProfileId;
use crate::words::{halves, joined};

/// Words of a slot.
const WORDS: usize = 16;

/// Slots, which take memory when they are first used.
#[derive(Debug)]
pub(super) struct Slots {
    words: Box<[AtomicU64]>,
    /// Word with which the first slot begins, so that each is two cache lines that are fetched
    /// together.
    first: usize,
}

impl Slots {
    /// Returns this many slots with zeros.
    ///
    /// # Panics
    ///
    /// If there is no memory for them.
    pub(super) fn new(count: usize) -> Self {
        // The kernel has zeros for the pages of a large allocation when they are first touched. The
        // allocator would write them itself for a type of this alignment.
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(count * WORDS + WORDS - 1);
        let words = words.expect("memory for connections");
        let misaligned = words.as_ptr().addr() % Slot::BYTES / size_of::<AtomicU64>();
        Self {
            first: (WORDS - misaligned) % WORDS,
            words,
        }
    }

    fn all(&self) -> &[[AtomicU64; WORDS]] {
        let (slots, _) = self.words[self.first..].as_chunks();
        slots
    }

    pub(super) fn len(&self) -> usize {
        self.all().len()
    }

    pub(super) fn get(&self, slot: u32) -> Option<Slot<'_>> {
        self.all().get(slot as usize).map(Slot)
    }
}

/// A slot: two cache lines that are fetched together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot<'a>(&'a [AtomicU64; WORDS]);

const CHAIN: usize = 5;
const LIST: usize = 6;
const PLACED: usize = 7;
const SEEN: usize = 8;
const GENERATION: usize = 9;
const PROFILES: usize = 10;
const TCP: usize = 11;

impl Slot<'_> {
    pub(super) const BYTES: usize = WORDS * size_of::<AtomicU64>();

    fn load(&self, at: usize) -> u64 {
        self.0[at].load(Ordering::Relaxed)
    }

    fn store(&self, at: usize, word: u64) {
        self.0[at].store(word, Ordering::Relaxed);
    }

    /// Brings both lines near. What it returns is only there to be waited for.
    pub(super) fn fetch(&self) -> u64 {
        self.load(0) ^ self.load(SEEN)
    }

    pub(super) fn is_of(&self, key: &Key) -> bool {
        (0..).zip(key.words()).all(|(at, word)| self.load(at) == *word)
    }

    /// All but what holds the stripe together.
    pub(super) fn entry(&self) -> Entry {
        let [.., state, marks] = self.load(PLACED).to_be_bytes();
        let key = [0, 1, 2, 3, 4].map(|at| self.load(at));
        Entry {
            key: Key::from_words(key),
            state: State::from_byte(state),
            marks,
            seen: self.load(SEEN),
            generation: self.load(GENERATION),
            profiles: halves(self.load(PROFILES)).map(ProfileId::new),
            tcp: Tcp::from_words([0, 1, 2, 3, 4].map(|at| self.load(TCP + at))),
        }
    }

    /// Writes what [`Slot::entry`] reads, but the key.
    pub(super) fn put(&self, entry: &Entry) {
        let placed = self.load(PLACED) >> 32 << 32;
        self.store(
            PLACED,
            placed | u64::from(entry.state as u8) << 8 | u64::from(entry.marks),
        );
        self.store(SEEN, entry.seen);
        self.store(GENERATION, entry.generation);
        let profiles = entry.profiles.map(|profile| profile.map_or(0, ProfileId::number));
        self.store(PROFILES, joined(profiles));
        for (at, word) in (TCP..).zip(entry.tcp.to_words()) {
            self.store(at, word);
        }
    }

    pub(super) fn put_key(&self, key: &Key) {
        for (at, word) in (0..).zip(key.words()) {
            self.store(at, *word);
        }
    }

    /// The next of the same hash, or the next free one; and how many connections have been here.
    pub(super) fn chain(&self) -> [u32; 2] {
        halves(self.load(CHAIN))
    }

    pub(super) fn set_chain(&self, next: u32, serial: u32) {
        self.store(CHAIN, joined([next, serial]));
    }

    /// Its neighbours in the list of its state.
    pub(super) fn list(&self) -> [u32; 2] {
        halves(self.load(LIST))
    }

    pub(super) fn set_list(&self, before: u32, after: u32) {
        self.store(LIST, joined([before, after]));
    }

    /// When it was put at the end of its list, in ticks.
    pub(super) fn placed(&self) -> u32 {
        let [placed, _] = halves(self.load(PLACED));
        placed
    }

    pub(super) fn set_placed(&self, ticks: u32) {
        let [_, rest] = halves(self.load(PLACED));
        self.store(PLACED, joined([ticks, rest]));
    }
}
