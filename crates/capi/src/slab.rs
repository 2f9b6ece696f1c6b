//! Packets that C keeps: each in a cell, which its token names.
//!
//! Cells are never freed, so a token that was used up can be looked at whenever; a cell counts how often it was given back.
//! They are there before they are needed: each queue that is opened asks for as many as it has frames. Any thread may take
//! what is in a cell, once.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ringside_xsk::Frame;

/// Cells that are made at a time, and how many times at the most.
const CHUNK: u32 = 1 << 10;
const CHUNKS: usize = 1 << 12;

/// The lower bits of a cell's state; above them is its generation.
const FREE: u32 = 0;
const KEPT: u32 = 1;
const BUSY: u32 = 2;
const BITS: u32 = 2;

struct Cell {
    state: AtomicU32,
    /// The free cell behind this free one: its number and one; 0 is none.
    next: AtomicU32,
    frame: UnsafeCell<Option<Frame>>,
}

// SAFETY: the frame is reached only by who has turned the state to BUSY, or has taken the cell off the list of free ones; and
// frames may go from thread to thread.
unsafe impl Sync for Cell {}

static CELLS: [OnceLock<Box<[Cell]>>; CHUNKS] = [const { OnceLock::new() }; CHUNKS];

/// The first free cell, as [`Cell::next`], below a count of changes: otherwise a list that came back to its first cell while
/// one looked away would be taken for the same.
static HEAD: AtomicU64 = AtomicU64::new(0);

/// How many chunks there are, and how many cells the open queues have asked for.
static GROWTH: Mutex<(usize, usize)> = Mutex::new((0, 0));

fn cell(number: u32) -> Option<&'static Cell> {
    let chunk = CELLS.get((number / CHUNK) as usize)?.get()?;
    chunk.get((number % CHUNK) as usize)
}

/// Sees to it that there are so many cells more. They are used in whatever order, so all that counts is the sum.
pub(crate) fn reserve(frames: usize) {
    let mut growth = GROWTH.lock().unwrap_or_else(PoisonError::into_inner);
    growth.1 += frames;
    while growth.0 * (CHUNK as usize) < growth.1 && grow(&mut growth.0) {}
}

/// A queue that had asked for so many cells was closed.
pub(crate) fn unreserve(frames: usize) {
    let mut growth = GROWTH.lock().unwrap_or_else(PoisonError::into_inner);
    growth.1 = growth.1.saturating_sub(frames);
}

/// Makes one chunk; false when there are as many as there can be.
fn grow(chunks: &mut usize) -> bool {
    let Some(place) = CELLS.get(*chunks) else { return false };
    let made = (0..CHUNK).map(|_| Cell {
        state: AtomicU32::new(FREE),
        next: AtomicU32::new(0),
        frame: UnsafeCell::new(None),
    });
    _ = place.set(made.collect());
    #[allow(clippy::cast_possible_truncation, reason = "at most CHUNKS")]
    let first = *chunks as u32 * CHUNK;
    *chunks += 1;
    for number in first..first + CHUNK {
        push(number);
    }
    true
}

/// Puts a cell on the list of free ones.
fn push(number: u32) {
    let Some(cell) = cell(number) else { return };
    let mut head = HEAD.load(Ordering::Relaxed);
    loop {
        #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
        cell.next.store(head as u32, Ordering::Relaxed);
        let new = changed(head) | u64::from(number + 1);
        match HEAD.compare_exchange_weak(head, new, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(now) => head = now,
        }
    }
}

/// Takes a cell off the list of free ones.
fn pop() -> Option<u32> {
    let mut head = HEAD.load(Ordering::Acquire);
    loop {
        #[allow(clippy::cast_possible_truncation, reason = "the lower half")]
        let number = (head as u32).checked_sub(1)?;
        // Somebody else may take it meanwhile; what `next` says then is not used, for the head has changed.
        let next = cell(number)?.next.load(Ordering::Relaxed);
        let new = changed(head) | u64::from(next);
        match HEAD.compare_exchange_weak(head, new, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => return Some(number),
            Err(now) => head = now,
        }
    }
}

/// The upper half of a changed head.
fn changed(head: u64) -> u64 {
    (head >> 32).wrapping_add(1) << 32
}

/// What names a kept packet: a generation and a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// 30 bits.
    pub(crate) generation: u32,
    pub(crate) cell: u32,
}

/// Keeps a packet.
///
/// # Errors
///
/// The packet, when there are as many as there can be.
pub(crate) fn keep(frame: Frame) -> Result<Kept, Frame> {
    let number = match pop() {
        Some(number) => number,
        // Packets of queues that were closed are still kept: their cells are in use, but nobody asks for them.
        None => {
            let mut growth = GROWTH.lock().unwrap_or_else(PoisonError::into_inner);
            let grown = grow(&mut growth.0);
            drop(growth);
            match pop().filter(|_| grown) {
                Some(number) => number,
                None => return Err(frame),
            }
        }
    };
    let Some(cell) = cell(number) else { return Err(frame) };
    // SAFETY: it was on the list of free cells, from which we took it; nobody else turns a free one to anything.
    unsafe { *cell.frame.get() = Some(frame) };
    let generation = cell.state.load(Ordering::Relaxed) >> BITS;
    cell.state.store(generation << BITS | KEPT, Ordering::Release);
    Ok(Kept {
        generation,
        cell: number,
    })
}

/// Takes hold of a kept packet; `None` when it is none any more, or another thread has hold of it.
pub(crate) fn claim(kept: Kept) -> Option<Claimed> {
    let cell = cell(kept.cell)?;
    let [from, to] = [KEPT, BUSY].map(|holds| kept.generation << BITS | holds);
    let taken = (cell.state).compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
    taken.ok().map(|_| Claimed { cell, kept })
}

/// A kept packet in this thread's hands. Dropped with the packet in it, it is kept on; without, its token is used up.
pub(crate) struct Claimed {
    cell: &'static Cell,
    kept: Kept,
}

impl Claimed {
    /// The packet, unless it was taken.
    pub(crate) fn frame(&mut self) -> &mut Option<Frame> {
        // SAFETY: the cell is ours alone while it is busy, which it is until we are dropped.
        unsafe { &mut *self.cell.frame.get() }
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if self.frame().is_some() {
            let state = self.kept.generation << BITS | KEPT;
            self.cell.state.store(state, Ordering::Release);
        } else {
            let next = self.kept.generation.wrapping_add(1);
            self.cell.state.store(next << BITS | FREE, Ordering::Release);
            push(self.kept.cell);
        }
    }
}
