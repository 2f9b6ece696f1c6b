//! What a queue checks about itself: the ledger of its frames, and the process that opened it.

use super::Queue;
use crate::error::{Error, Violation};
use crate::ledger::Ledger;
use crate::socket::Bound;
use crate::umem::at_most;

/// Whether the frames are checked at this burst. A check takes a few hundred instructions. In a debug
/// build it takes some for each frame, so later bursts are checked less often than the first ones.
#[inline]
pub(super) fn is_due(burst: u32) -> bool {
    let bursts = match burst {
        _ if !cfg!(debug_assertions) => 1024,
        ..=256 => 16,
        257.. => 256,
    };
    burst.is_multiple_of(bursts)
}

impl Queue {
    /// Where all frames of the queue's UMEM are.
    ///
    /// ```no_run
    /// # fn look(queue: &ringside_xsk::Queue) -> Result<(), ringside_xsk::Error> {
    /// let ledger = queue.ledger()?;
    /// eprintln!("{ledger}"); // free 190, fill 256, rx 0, user 2, tx 60, completion 4
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Poisoned`] when the frames do not add up, which makes the queue unusable.
    pub fn ledger(&self) -> Result<Ledger, Error> {
        self.check_process()?;
        // Not `sound()`: an error that is to be told is left for a call that does something.
        if let Some(violation) = self.poison.get() {
            return Err(self.poisoned(*violation));
        }
        self.count_frames().map_err(|violation| {
            _ = self.poison.set(violation);
            self.poisoned(violation)
        })
    }

    fn count_frames(&self) -> Result<Ledger, Violation> {
        // Of a burst that was forgotten the frames go back with the next call.
        let forgotten = self.inbox.iter().filter(|entry| !entry.is_the_users()).count();
        self.bound.ledger(self.partial.len(), forgotten, self.bursts)
    }

    /// What is checked from time to time.
    #[cold]
    pub(super) fn audit(&mut self) -> Result<(), Error> {
        let ledger = self.count_frames();
        self.check(ledger).map(drop)
    }
}

impl Queue {
    /// Returns whether this process opened the queue, and is not a child of it.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.opener.is_this_process()
    }

    /// Checks that this process opened the queue, and is not a child of it. Reads memory only.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`] in a child of `fork()`.
    #[inline]
    pub fn check_process(&self) -> Result<(), Error> {
        self.opener.check(&self.report.interface, self.report.queue)
    }
}

impl Bound {
    /// `partial` frames are of a packet that has not wholly arrived, `forgotten` ones of packets
    /// that nobody has. The kernel's index on the fill and the TX ring is not looked at: it moves
    /// it up late, behind the packet that it received or sent already.
    /// <https://elixir.bootlin.com/linux/v6.18/source/net/xdp/xsk.c#L353>
    fn ledger(&self, partial: usize, forgotten: usize, nth: u32) -> Result<Ledger, Violation> {
        // Before the lock: what a sibling receives meanwhile is not on this ring.
        let rx = match &self.rx {
            Some(rx) => rx.filled()?,
            None => 0,
        };
        self.pair.read(|pair| {
            let completion = pair.completion.filled()?;
            let pool = &pair.pool;
            #[cfg(debug_assertions)]
            debug_assert_eq!(pool.audit_all(), Ok(()), "the book is kept at every step");
            pool.audit_sample(nth as usize)?;
            at_most("on the RX ring", rx as usize, pool.in_fill() as usize)?;
            at_most("on the completion ring", completion as usize, pool.in_flight() as usize)?;
            let user = pool.elsewhere()?;
            at_most("of packets that the queue has", partial + forgotten, user as usize)?;
            let [partial, forgotten] = [partial, forgotten].map(|frames| u32::try_from(frames).unwrap_or(u32::MAX));
            let (fill, tx) = (pool.in_fill() - rx, pool.in_flight() - completion);
            // From the rest, not counted: frames go home on other threads meanwhile.
            let free = self.umem.geometry().frames() - user - fill - rx - tx - completion;
            Ok(Ledger {
                free: free + forgotten,
                fill,
                rx: rx + partial,
                user: user - partial - forgotten,
                tx,
                completion,
            })
        })
    }
}
