//! A part of the table: entries, chains of equal hashes, and a list for each state.
//!
//! ```text
//!  heads[hash] ── entry ── entry ── …                   chain
//!  lists[state]: first ⇄ entry ⇄ entry ⇄ … ⇄ last       in the order in which they were put there
//! ```
//! All of a state have the same time-out, so a list is in the order in which its connections end: who looks for one that
//! has ended, or for the oldest of a state, looks at its first. A packet does not move its connection to the end of the
//! list, which would touch two more cache lines; only the first after an eighth of the time-out does. So a connection that
//! has ended is seen to have, at the latest, an eighth of the time-out after that. Whoever finds one before that sees that
//! it has ended, too.

use super::entry::{Entry, NONE};
use super::key::Key;
use super::state::{Rank, State};

/// Nanoseconds of a tick, as a shift: about a millisecond. 32 bits of them are 52 days.
const TICK: u32 = 20;

/// The time in ticks.
#[allow(clippy::cast_possible_truncation, reason = "ticks wrap; only differences count")]
pub(super) fn ticks(now: u64) -> u32 {
    (now >> TICK) as u32
}

/// The connections of a state.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// A part of the table. A lock is held around each use of it.
#[derive(Debug)]
pub(super) struct Stripe {
    heads: Box<[u32]>,
    /// Reserved once; what is not used yet is not even touched.
    entries: Vec<Entry>,
    most: usize,
    free: u32,
    lists: [List; State::COUNT],
}

impl Stripe {
    pub(super) fn new(most: usize) -> Self {
        const EMPTY: List = List {
            first: NONE,
            last: NONE,
            len: 0,
        };
        Self {
            // One and a half heads to a connection in the mean.
            heads: vec![NONE; most.next_power_of_two()].into(),
            entries: Vec::with_capacity(most),
            most,
            free: NONE,
            lists: [EMPTY; State::COUNT],
        }
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.heads) + self.entries.capacity() * size_of::<Entry>()
    }

    pub(super) fn count(&self, state: State) -> u32 {
        self.lists[state.at()].len
    }

    /// All places that were ever used, free ones among them.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(super) fn entry(&mut self, slot: u32) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// The entry of a name, if it is still that connection.
    pub(super) fn named(&mut self, slot: u32, serial: u32) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(slot as usize)?;
        (entry.serial == serial && !entry.is_free(slot)).then_some(entry)
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked below")]
    fn head(&self, hash: u64) -> usize {
        // The lower bits chose the stripe.
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    pub(super) fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        let mut slot = self.heads[self.head(hash)];
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.key == *key {
                return Some(slot);
            }
            slot = entry.chain;
        }
        None
    }

    /// True if another connection fits in.
    pub(super) fn has_room(&self) -> bool {
        self.free != NONE || self.entries.len() < self.most
    }

    /// Puts in a connection, where there is room. Its chain, list and serial number are set here.
    pub(super) fn insert(&mut self, mut entry: Entry, hash: u64, now: u64) -> u32 {
        let head = self.head(hash);
        entry.chain = self.heads[head];
        let slot = if self.free == NONE {
            entry.serial = 1;
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("fewer entries than a name has bits for")
        } else {
            let slot = self.free;
            let place = self.entry(slot);
            let next = place.chain;
            entry.serial = place.serial;
            *place = entry;
            self.free = next;
            slot
        };
        self.heads[head] = slot;
        self.append(slot, now);
        slot
    }

    /// Takes out a connection.
    pub(super) fn remove(&mut self, slot: u32, hash: u64) {
        self.unlink(slot);
        let head = self.head(hash);
        let next = self.entries[slot as usize].chain;
        if self.heads[head] == slot {
            self.heads[head] = next;
        } else {
            let mut at = self.heads[head];
            while self.entries[at as usize].chain != slot {
                at = self.entries[at as usize].chain;
            }
            self.entries[at as usize].chain = next;
        }
        let free = self.free;
        let entry = self.entry(slot);
        entry.chain = free;
        entry.before = slot; // No live entry stands before itself.
        entry.serial = entry.serial.wrapping_add(1).max(1);
        self.free = slot;
    }

    /// Makes it the last of a state's.
    pub(super) fn move_to(&mut self, slot: u32, state: State, now: u64) {
        self.unlink(slot);
        self.entry(slot).state = state;
        self.append(slot, now);
    }

    /// The first in the list of a state: none was put there before it.
    pub(super) fn first(&self, state: State) -> Option<u32> {
        let first = self.lists[state.at()].first;
        (first != NONE).then_some(first)
    }

    /// The one behind another in its list.
    pub(super) fn behind(&self, slot: u32) -> Option<u32> {
        let after = self.entries[slot as usize].after;
        (after != NONE).then_some(after)
    }

    /// The connection of a rank that was put into its list before all others.
    pub(super) fn oldest(&self, rank: Rank, now: u64) -> Option<u32> {
        let states = State::ALL.iter().filter(|state| state.rank() == rank);
        let firsts = states.filter_map(|state| self.first(*state));
        firsts.max_by_key(|slot| {
            ticks(now)
                .wrapping_sub(self.entries[*slot as usize].placed)
                .cast_signed()
        })
    }

    fn append(&mut self, slot: u32, now: u64) {
        let state = self.entries[slot as usize].state;
        let list = &mut self.lists[state.at()];
        let last = list.last;
        list.last = slot;
        list.len += 1;
        if last == NONE {
            list.first = slot;
        } else {
            self.entry(last).after = slot;
        }
        let entry = self.entry(slot);
        entry.before = last;
        entry.after = NONE;
        entry.placed = ticks(now);
    }

    fn unlink(&mut self, slot: u32) {
        let Entry {
            before, after, state, ..
        } = self.entries[slot as usize];
        let list = &mut self.lists[state.at()];
        list.len -= 1;
        if before == NONE {
            list.first = after;
        }
        if after == NONE {
            list.last = before;
        }
        if before != NONE {
            self.entry(before).after = after;
        }
        if after != NONE {
            self.entry(after).before = before;
        }
    }
}

impl Entry {
    /// True for a place without a connection.
    pub(super) fn is_free(&self, slot: u32) -> bool {
        self.before == slot
    }
}
