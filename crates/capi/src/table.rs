//! Handles: numbers that are handed to C as pointers, and what they stand for.
//!
//! ```text
//!  63    48 47         16 15  12 11      0
//!  | "RD" | generation  | kind | slot    |       no address that a program can have: following it faults
//! ```
//!
//! A handle is never followed, only looked up, in slots that are never freed. A slot counts how often it was given back, so
//! that a closed handle is told from the one that has its place now. Whoever looks one up has it alone until done: a second
//! thread is told so, and does not wait.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::error::{Failure, rsd_error as Code};

/// Sleep before another attempt to enter a value that another thread uses.
const RETRY_INTERVAL: Duration = Duration::from_micros(1);

/// Open handles of one kind at the most.
pub(crate) const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 12;
const KIND_BITS: u32 = 4;
const GENERATION_SHIFT: u32 = SLOT_BITS + KIND_BITS;
const TAG: u64 = 0x5244 << 48;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("a handle takes 64 bits");

/// What a slot holds; in the lower bits of its state, the generation above them.
const VACANT: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
/// A panic went through a call on it: what it holds can only be closed.
const BROKEN: u64 = 3;
const HOLDS: u64 = 3;

/// On a cache line of its own, so that the queues of two threads do not slow each other down.
#[repr(align(64))]
struct Slot<T> {
    state: AtomicU64,
    value: UnsafeCell<Option<Box<T>>>,
}

impl<T> Slot<T> {
    const fn new() -> Self {
        Self {
            state: AtomicU64::new(VACANT),
            value: UnsafeCell::new(None),
        }
    }
}

/// All handles of one kind.
pub(crate) struct Table<T, const KIND: u64> {
    slots: [Slot<T>; SLOTS],
}

// SAFETY: a value is reached only by who has turned its slot's state to BUSY, one thread at a time; and it may go from one
// thread to another.
unsafe impl<T: Send, const KIND: u64> Sync for Table<T, KIND> {}

/// What a kind of handles is called.
const fn name(kind: u64) -> &'static str {
    match kind {
        PORT => "port",
        QUEUE => "queue",
        BTF => "BTF",
        _ => "layout",
    }
}

pub(crate) const PORT: u64 = 1;
pub(crate) const QUEUE: u64 = 2;
pub(crate) const BTF: u64 = 3;
pub(crate) const LAYOUT: u64 = 4;

/// A handle taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) slot: usize,
    generation: u64,
}

impl Key {
    /// The handle; nothing may be read or written there.
    #[allow(clippy::cast_possible_truncation, reason = "64 bits, as is checked above")]
    fn handle<H>(self, kind: u64) -> *mut H {
        let number = TAG | self.generation << GENERATION_SHIFT | kind << SLOT_BITS | self.slot as u64;
        ptr::without_provenance_mut(number as usize)
    }

    #[allow(clippy::cast_possible_truncation, reason = "some bits of it, on purpose")]
    fn of<H>(handle: *const H, kind: u64) -> Option<Self> {
        let number = handle.addr() as u64;
        let ours = number & 0xffff << 48 == TAG && number >> SLOT_BITS & ((1 << KIND_BITS) - 1) == kind;
        ours.then_some(Self {
            slot: number as usize % SLOTS,
            generation: number >> GENERATION_SHIFT & 0xffff_ffff,
        })
    }
}

/// The state of a slot of this generation.
fn state(generation: u64, holds: u64) -> u64 {
    generation << 2 | holds
}

impl<T: 'static, const KIND: u64> Table<T, KIND> {
    pub(crate) const fn new() -> Self {
        Self {
            slots: [const { Slot::new() }; SLOTS],
        }
    }

    /// Takes a value in, and gives its handle.
    pub(crate) fn insert<H>(&'static self, value: T) -> Result<*mut H, Failure> {
        for (at, slot) in self.slots.iter().enumerate() {
            let now = slot.state.load(Ordering::Relaxed);
            if now & HOLDS != VACANT {
                continue;
            }
            let taken = (slot.state).compare_exchange(now, state(now >> 2, BUSY), Ordering::Acquire, Ordering::Relaxed);
            if taken.is_ok() {
                // SAFETY: the slot is ours alone while it is busy.
                unsafe { *slot.value.get() = Some(Box::new(value)) };
                slot.state.store(state(now >> 2, IDLE), Ordering::Release);
                let generation = now >> 2;
                return Ok(Key { slot: at, generation }.handle(KIND));
            }
        }
        Err(Failure::new(
            Code::RSD_EFULL,
            format!("{SLOTS} handles for a {} are open, which is the most", name(KIND)),
        ))
    }

    /// Whose handle it is; no more is said than that it looks like one.
    fn slot<H>(&'static self, handle: *const H) -> Result<(Key, &'static Slot<T>), Failure> {
        if handle.is_null() {
            return Err(Failure::new(Code::RSD_EINVAL, format!("the {} is NULL", name(KIND))));
        }
        match Key::of(handle, KIND) {
            Some(key) => Ok((key, &self.slots[key.slot])),
            None => Err(Failure::new(
                Code::RSD_ECLOSED,
                format!("{:#x} is no handle of a {}", handle.addr(), name(KIND)),
            )),
        }
    }

    /// The value of a handle, for this thread alone until the result is dropped.
    #[inline]
    pub(crate) fn enter<H>(&'static self, handle: *const H) -> Result<Entered<T>, Failure> {
        self.enter_if(handle, false)
    }

    /// As [`enter`](Self::enter), also after a panic: to close it.
    pub(crate) fn enter_to_close<H>(&'static self, handle: *const H) -> Result<Entered<T>, Failure> {
        self.enter_if(handle, true)
    }

    /// Waits for other threads, which need the value for a moment only, and then calls
    /// [`enter`](Self::enter).
    pub(crate) fn enter_soon<H>(&'static self, handle: *const H) -> Result<Entered<T>, Failure> {
        self.retry_if(handle, false)
    }

    /// Waits likewise, and then calls [`enter_to_close`](Self::enter_to_close).
    pub(crate) fn close_soon<H>(&'static self, handle: *const H) -> Result<Entered<T>, Failure> {
        self.retry_if(handle, true)
    }

    fn retry_if<H>(&'static self, handle: *const H, broken: bool) -> Result<Entered<T>, Failure> {
        loop {
            match self.enter_if(handle, broken) {
                Err(failure) if failure.code == Code::RSD_EBUSY => thread::sleep(RETRY_INTERVAL),
                other => return other,
            }
        }
    }

    #[inline]
    fn enter_if<H>(&'static self, handle: *const H, broken: bool) -> Result<Entered<T>, Failure> {
        let (key, slot) = self.slot(handle)?;
        let busy = state(key.generation, BUSY);
        let take = |from| {
            (slot.state).compare_exchange(state(key.generation, from), busy, Ordering::Acquire, Ordering::Relaxed)
        };
        let taken = match take(IDLE) {
            Err(now) if broken && now == state(key.generation, BROKEN) => take(BROKEN),
            other => other,
        };
        match taken {
            Ok(was) => Ok(Entered { slot, key, was }),
            Err(now) => Err(refused(now, key, KIND)),
        }
    }
}

#[cold]
fn refused(now: u64, key: Key, kind: u64) -> Failure {
    let kind = name(kind);
    match now & HOLDS {
        BUSY if now >> 2 == key.generation => Failure::new(
            Code::RSD_EBUSY,
            format!("another thread is in a call with this {kind}: one thread at a time"),
        ),
        BROKEN if now >> 2 == key.generation => Failure::new(
            Code::RSD_EFAULT,
            format!("an earlier call with this {kind} failed for a fault of the library: it can only be closed"),
        ),
        _ => Failure::new(Code::RSD_ECLOSED, format!("this {kind} was closed, or never was one")),
    }
}

/// A value that its handle was looked up for; given back when dropped.
pub(crate) struct Entered<T: 'static> {
    slot: &'static Slot<T>,
    pub(crate) key: Key,
    /// The state to go back to.
    was: u64,
}

impl<T> Entered<T> {
    /// Ends the handle.
    pub(crate) fn remove(self) -> Box<T> {
        // SAFETY: the slot is ours alone while it is busy.
        let value = unsafe { (*self.slot.value.get()).take() };
        let next = state((self.key.generation + 1) & 0xffff_ffff, VACANT);
        self.slot.state.store(next, Ordering::Release);
        std::mem::forget(self);
        value.expect("a slot that is busy holds a value")
    }
}

impl<T> Deref for Entered<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the slot is ours alone while it is busy, which it is until we are dropped.
        unsafe { (*self.slot.value.get()).as_deref() }.expect("a slot that is busy holds a value")
    }
}

impl<T> DerefMut for Entered<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `&mut self` makes it exclusive.
        unsafe { (*self.slot.value.get()).as_deref_mut() }.expect("a slot that is busy holds a value")
    }
}

impl<T> Drop for Entered<T> {
    #[inline]
    fn drop(&mut self) {
        let next = match std::thread::panicking() {
            true => state(self.key.generation, BROKEN),
            false => self.was,
        };
        self.slot.state.store(next, Ordering::Release);
    }
}
