//! A fill and completion ring pair, with the pool of frames behind it.
//!
//! The kernel has one pair for each queue of each interface (in each network namespace), however many sockets share that
//! queue and its UMEM. So has this library: a queue that is alone owns its pair and pays nothing for it; siblings, which
//! may be on different threads, take turns by a lock, once or twice a burst and never across a system call.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Violation;
use crate::ring::{CompletionRing, FillRing};
use crate::umem::Entry;
use crate::umem::pool::Pool;

/// One pair of rings and its frames.
pub(crate) struct Pair {
    pub(crate) fill: FillRing,
    pub(crate) completion: CompletionRing,
    pub(crate) pool: Pool,
    /// Frames that are kept in the fill ring.
    pub(crate) fill_target: u32,
}

impl Pair {
    /// Frames that the fill ring lacks: not to be spent on anything else.
    #[inline]
    pub(crate) fn wanted(&self) -> u32 {
        self.fill_target.saturating_sub(self.pool.in_fill())
    }

    /// Stocks the fill ring up to its target, as far as there are frames.
    #[inline]
    pub(crate) fn refill(&mut self) -> Result<(), Violation> {
        let wanted = self.wanted();
        if wanted == 0 {
            return Ok(());
        }
        let mut slots = self.fill.reserve(wanted)?;
        self.pool.lend_to_fill(&mut slots);
        Ok(())
    }

    /// Stocks the fill ring with the frames of dropped packets, which are the warmest; tells how many it took, from the
    /// first on. The others are for the pool.
    #[inline]
    pub(crate) fn recycle(&mut self, dropped: &[Entry]) -> Result<usize, Violation> {
        let wanted = self.wanted();
        if wanted == 0 {
            return Ok(0);
        }
        let mut slots = self.fill.reserve(wanted)?;
        Ok(self.pool.lend_dropped(dropped, &mut slots))
    }

    /// Frames that can be spent on sending, up to `most`, and how many were taken back from the kernel to have as many. Never
    /// those that the fill ring needs: a TX side that is stuck must not stop the receiving.
    #[inline]
    pub(crate) fn spare(&mut self, most: u32) -> Result<(u32, u32), Violation> {
        let reserved = self.wanted() as usize;
        let mut completed = 0;
        if self.pool.available() < most as usize + reserved {
            completed = self.complete()?;
            self.pool.collect_returned();
        }
        let spare = self.pool.available().saturating_sub(reserved);
        Ok((u32::try_from(spare).unwrap_or(u32::MAX).min(most), completed))
    }

    /// Takes back what the kernel is done sending; tells how many.
    #[inline]
    pub(crate) fn complete(&mut self) -> Result<u32, Violation> {
        let mut completed = 0;
        if self.pool.in_flight() != 0 {
            loop {
                let before = completed;
                completed += self.pool.take_from_completion(self.completion.peek(u32::MAX)?)?;
                // A second look costs a cache line that the kernel has just written: only when there was something.
                if completed == before || self.pool.in_flight() == 0 {
                    break;
                }
            }
            self.pool.give_surplus();
        }
        Ok(completed)
    }
}

/// A queue's way to its pair: its own, or one with siblings. Always one of the two.
pub(crate) struct PairRef {
    own: Option<Box<Pair>>,
    shared: Option<Arc<Mutex<Pair>>>,
}

impl PairRef {
    pub(crate) fn new(pair: Pair) -> Self {
        Self {
            own: Some(Box::new(pair)),
            shared: None,
        }
    }

    #[inline]
    pub(crate) fn lock(&mut self) -> Held<'_> {
        match (&mut self.own, &self.shared) {
            (Some(pair), _) => Held::Own(pair),
            (None, Some(pair)) => Held::Shared(pair.lock().unwrap_or_else(PoisonError::into_inner)),
            (None, None) => unreachable!("a pair is owned or shared"),
        }
    }

    /// The pair, if the queue is alone with it.
    #[inline]
    pub(crate) fn own(&mut self) -> Option<&mut Pair> {
        self.own.as_deref_mut()
    }

    /// Reads from the pair, also while it is only borrowed.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Pair) -> T) -> T {
        match (&self.own, &self.shared) {
            (Some(pair), _) => read(pair),
            (None, Some(pair)) => read(&pair.lock().unwrap_or_else(PoisonError::into_inner)),
            (None, None) => unreachable!("a pair is owned or shared"),
        }
    }

    /// A second way to the same pair. From here on both lock.
    pub(crate) fn share(&mut self) -> Self {
        if let Some(pair) = self.own.take() {
            self.shared = Some(Arc::new(Mutex::new(*pair)));
        }
        Self {
            own: None,
            shared: self.shared.clone(),
        }
    }
}

/// A pair while it is used.
pub(crate) enum Held<'p> {
    Own(&'p mut Pair),
    Shared(MutexGuard<'p, Pair>),
}

impl Deref for Held<'_> {
    type Target = Pair;

    #[inline]
    fn deref(&self) -> &Pair {
        match self {
            Self::Own(pair) => pair,
            Self::Shared(pair) => pair,
        }
    }
}

impl DerefMut for Held<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Pair {
        match self {
            Self::Own(pair) => pair,
            Self::Shared(pair) => pair,
        }
    }
}
