//! Whether a pool's counts and the book of frames agree.

use super::book::Owner;
use super::pool::Pool;
use crate::error::Violation;

/// Free frames that one look in a release build takes a sample of.
const SAMPLE: usize = 16;

impl Pool {
    /// Frames of the UMEM that are neither free, nor with the kernel through this pool's pair.
    pub(crate) fn elsewhere(&self) -> Result<u32, Violation> {
        let frames = self.umem().geometry().frames();
        let here = self.held() + self.umem().unclaimed();
        at_most("free or with the kernel", here, frames as usize)?;
        Ok(frames - count(here))
    }

    /// A few of the free frames, others each time: none may be with the kernel.
    pub(crate) fn audit_sample(&self, nth: usize) -> Result<(), Violation> {
        let free = self.free();
        let start = (nth * SAMPLE).checked_rem(free.len()).unwrap_or(0);
        let wrong = free[start..]
            .iter()
            .take(SAMPLE)
            .filter(|&&frame| !self.umem().book().is(frame, Owner::User))
            .count();
        at_most("free and with the kernel at once", wrong, 0)
    }

    /// All of it: no frame is free twice or free and with the kernel at once, and the counts are those of the book.
    #[cfg(debug_assertions)]
    pub(crate) fn audit_all(&self) -> Result<(), Violation> {
        let (mut twice, mut lent) = (0, 0);
        let mut seen = self.seen.borrow_mut();
        seen.fill(false);
        for &frame in self.free() {
            let at = frame.0 as usize;
            twice += usize::from(seen[at]);
            seen[at] = true;
            lent += usize::from(!self.umem().book().is(frame, Owner::User));
        }
        drop(seen);
        at_most("free twice", twice, 0)?;
        at_most("free and with the kernel at once", lent, 0)?;
        let (received, sent) = self.umem().book().lent(self.pair());
        for (place, found, expected) in [
            ("received into, by the book", received, self.in_fill()),
            ("sent, by the book", sent, self.in_flight()),
        ] {
            if found != expected as usize {
                return Err(Violation::Ledger {
                    place,
                    found: count(found),
                    most: expected,
                });
            }
        }
        Ok(())
    }
}

/// `found` frames are in a place where `most` can be.
pub(crate) fn at_most(place: &'static str, found: usize, most: usize) -> Result<(), Violation> {
    if found <= most {
        return Ok(());
    }
    Err(Violation::Ledger {
        place,
        found: count(found),
        most: count(most),
    })
}

fn count(frames: usize) -> u32 {
    u32::try_from(frames).unwrap_or(u32::MAX)
}
