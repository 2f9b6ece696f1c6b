//! A part of the table: entries, chains of equal hashes, and a list for each state.
//!
//! ```text
//!  heads[hash] ── entry ── entry ── …                   chain
//!  lists[state]: first ⇄ entry ⇄ entry ⇄ … ⇄ last       in the order in which they were put there
//! ```
//! All of a state have the same time-out, so a list is in the order in which its connections end: who looks for one that
//! has ended, or for the oldest of a state, looks at its first. A packet does not move its connection to the end of the
//! list, which would touch two more cache lines; only the first after an eighth of the time-out does. So a connection that
//! has ended is seen to have, at the latest, an eighth of the time-out after that (and [`Limits::idle`](super::Limits::idle) later
//! still if it was looked at, and not idle yet, when room was needed). Whoever finds one before that sees that it has ended, too.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Counts;
use super::entry::{Entry, NONE};
use super::key::Key;
use super::slot::{Slot, Slots};
use super::state::{Rank, State};

/// Nanoseconds of a tick, as a shift: about a millisecond. 32 bits of them are 52 days.
const TICK: u32 = 20;

/// The time in ticks.
#[allow(clippy::cast_possible_truncation, reason = "ticks wrap; only differences count")]
pub(super) fn ticks(now: u64) -> u32 {
    (now >> TICK) as u32
}

/// A part of the table, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Stripe {
    /// Written under the lock only, as the slots are.
    heads: Box<[AtomicU32]>,
    slots: Slots,
    held: Mutex<Held>,
}

/// What is under the lock.
#[derive(Debug)]
struct Held {
    /// Slots that were used until now; those behind never were.
    used: u32,
    free: u32,
    lists: [List; State::COUNT],
    counts: Counts,
}

/// The connections of a state.
#[derive(Debug, Clone, Copy)]
struct List {
    first: u32,
    last: u32,
    len: u32,
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
            heads: (0..most.next_power_of_two()).map(|_| AtomicU32::new(NONE)).collect(),
            slots: Slots::new(most),
            held: Mutex::new(Held {
                used: 0,
                free: NONE,
                lists: [EMPTY; State::COUNT],
                counts: Counts::default(),
            }),
        }
    }

    /// Returns the bytes that the index and the slots take that were used until now.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.heads) + self.lock().used() as usize * Slot::BYTES
    }

    /// Returns the bytes that all of them take.
    pub(super) fn max_memory(&self) -> usize {
        size_of_val(&*self.heads) + self.slots.len() * Slot::BYTES
    }

    /// Waits for who has the lock. A panic under it leaves nothing half done that matters more than all further packets.
    pub(super) fn lock(&self) -> Part<'_> {
        Part {
            stripe: self,
            held: self.held.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The first slot that is to be looked at for a hash, without the lock: only a guess when it is
    /// used.
    pub(super) fn guess(&self, hash: u64) -> u32 {
        self.heads[self.head(hash)].load(Ordering::Relaxed)
    }

    /// Brings a slot near.
    pub(super) fn fetch(&self, slot: u32) -> u64 {
        self.slots.get(slot).map_or(0, |slot| slot.fetch())
    }

    #[allow(clippy::cast_possible_truncation, reason = "masked below")]
    fn head(&self, hash: u64) -> usize {
        // The lower bits chose the stripe.
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    fn slot(&self, slot: u32) -> Slot<'_> {
        self.slots.get(slot).expect("a slot of this stripe")
    }
}

/// A stripe whose lock is held.
#[derive(Debug)]
pub(super) struct Part<'a> {
    stripe: &'a Stripe,
    held: MutexGuard<'a, Held>,
}

impl Part<'_> {
    pub(super) fn counts(&mut self) -> &mut Counts {
        &mut self.held.counts
    }

    pub(super) fn count(&self, state: State) -> u32 {
        self.held.lists[state.at()].len
    }

    /// Slots that were used until now, free ones among them.
    pub(super) fn used(&self) -> u32 {
        self.held.used
    }

    /// The connection in a slot, and how many have been there with it. None for a free one.
    pub(super) fn told(&self, slot: u32) -> Option<(Entry, u32)> {
        let place = self.stripe.slot(slot);
        let [_, serial] = place.chain();
        (!self.is_free(slot)).then(|| (place.entry(), serial))
    }

    pub(super) fn entry(&self, slot: u32) -> Entry {
        self.stripe.slot(slot).entry()
    }

    pub(super) fn put(&mut self, slot: u32, entry: &Entry) {
        self.stripe.slot(slot).put(entry);
    }

    pub(super) fn serial(&self, slot: u32) -> u32 {
        let [_, serial] = self.stripe.slot(slot).chain();
        serial
    }

    /// True if it is still that connection.
    pub(super) fn is_named(&self, slot: u32, serial: u32) -> bool {
        slot < self.held.used && self.serial(slot) == serial && !self.is_free(slot)
    }

    pub(super) fn find(&self, key: &Key, hash: u64) -> Option<u32> {
        let mut slot = self.stripe.guess(hash);
        while slot != NONE {
            let place = self.stripe.slot(slot);
            if place.is_of(key) {
                return Some(slot);
            }
            [slot, _] = place.chain();
        }
        None
    }

    /// True if another connection fits in.
    pub(super) fn has_room(&self) -> bool {
        self.held.free != NONE || (self.held.used as usize) < self.stripe.slots.len()
    }

    /// Puts in a connection, where there is room.
    pub(super) fn insert(&mut self, entry: &Entry, hash: u64, now: u64) -> u32 {
        let slot = if self.held.free == NONE {
            let slot = self.held.used;
            self.held.used += 1;
            slot
        } else {
            let slot = self.held.free;
            [self.held.free, _] = self.stripe.slot(slot).chain();
            slot
        };
        let head = &self.stripe.heads[self.stripe.head(hash)];
        let place = self.stripe.slot(slot);
        // Places that were never used begin with 0, and no name has that.
        let serial = self.serial(slot).max(1);
        place.set_chain(head.load(Ordering::Relaxed), serial);
        place.put_key(&entry.key);
        place.put(entry);
        head.store(slot, Ordering::Relaxed);
        self.append(slot, entry.state, now);
        slot
    }

    /// Takes out a connection.
    pub(super) fn remove(&mut self, slot: u32, state: State, hash: u64) {
        self.unlink(slot, state);
        let head = &self.stripe.heads[self.stripe.head(hash)];
        let [next, serial] = self.stripe.slot(slot).chain();
        let mut at = head.load(Ordering::Relaxed);
        if at == slot {
            head.store(next, Ordering::Relaxed);
        } else {
            loop {
                let place = self.stripe.slot(at);
                let [behind, serial] = place.chain();
                if behind == slot {
                    place.set_chain(next, serial);
                    break;
                }
                at = behind;
            }
        }
        let place = self.stripe.slot(slot);
        place.set_chain(self.held.free, serial.wrapping_add(1).max(1));
        // No live one stands before itself.
        place.set_list(slot, NONE);
        self.held.free = slot;
    }

    fn is_free(&self, slot: u32) -> bool {
        let [before, _] = self.stripe.slot(slot).list();
        before == slot
    }

    /// Moves it from the list of a state to the end of another's, or of the same.
    pub(super) fn move_to(&mut self, slot: u32, from: State, to: State, now: u64) {
        self.unlink(slot, from);
        self.append(slot, to, now);
    }

    /// When it was put at the end of its list, in ticks.
    pub(super) fn placed(&self, slot: u32) -> u32 {
        self.stripe.slot(slot).placed()
    }

    /// The first in the list of a state: none was put there before it.
    pub(super) fn first(&self, state: State) -> Option<u32> {
        let first = self.held.lists[state.at()].first;
        (first != NONE).then_some(first)
    }

    /// The one behind another in its list.
    pub(super) fn behind(&self, slot: u32) -> Option<u32> {
        let [_, after] = self.stripe.slot(slot).list();
        (after != NONE).then_some(after)
    }

    /// The connection of a rank that was put into its list before all others.
    pub(super) fn oldest(&self, rank: Rank, now: u64) -> Option<u32> {
        let states = State::ALL.iter().filter(|state| state.rank() == rank);
        let firsts = states.filter_map(|state| self.first(*state));
        firsts.max_by_key(|slot| ticks(now).wrapping_sub(self.placed(*slot)).cast_signed())
    }

    fn append(&mut self, slot: u32, state: State, now: u64) {
        let list = &mut self.held.lists[state.at()];
        let last = list.last;
        list.last = slot;
        list.len += 1;
        if last == NONE {
            list.first = slot;
        } else {
            let [before, _] = self.stripe.slot(last).list();
            self.stripe.slot(last).set_list(before, slot);
        }
        let place = self.stripe.slot(slot);
        place.set_list(last, NONE);
        place.set_placed(ticks(now));
    }

    fn unlink(&mut self, slot: u32, state: State) {
        let [before, after] = self.stripe.slot(slot).list();
        let list = &mut self.held.lists[state.at()];
        list.len -= 1;
        if before == NONE {
            list.first = after;
        }
        if after == NONE {
            list.last = before;
        }
        if before != NONE {
            let place = self.stripe.slot(before);
            let [further, _] = place.list();
            place.set_list(further, after);
        }
        if after != NONE {
            let place = self.stripe.slot(after);
            let [_, further] = place.list();
            place.set_list(before, further);
        }
    }
}
