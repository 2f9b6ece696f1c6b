//! What the process before has left goes on while this one starts.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringside_bpf::gateway::{Lease, PinnedLease};

use super::options::PathOptions;
use super::{attach, nanoseconds, worker};

/// Between two times that it is said.
const EVERY: Duration = Duration::from_secs(1);

/// The fast path of the process before, which keeps its word for `unowned-seconds` and then drops packets: a start that takes longer than
/// that says in time that somebody comes.
#[derive(Debug)]
pub struct Held {
    lease: PinnedLease,
    unowned: Duration,
    begun: Instant,
    said: Mutex<Option<Instant>>,
}

impl Held {
    /// None if it left nothing.
    #[must_use]
    pub fn of(options: &PathOptions) -> Option<Self> {
        let folder = attach::maps(options.pins.as_deref()?);
        let failed = |error: &_| tracing::warn!(%error, "what is pinned cannot be told that it goes on");
        let lease = PinnedLease::open(&folder).inspect_err(failed).ok()??;
        Some(Self {
            lease,
            unowned: options.settings.unowned,
            begun: Instant::now(),
            said: Mutex::new(None),
        })
    }

    /// For how long it goes on by itself.
    ///
    /// # Errors
    /// The kernel refuses the reading.
    pub(super) fn left(&self) -> ringside_bpf::Result<Lease> {
        self.lease.read()
    }

    /// It goes on for `unowned-seconds` from now, if its time is not over: then it does not begin anew, for who knows what has changed since.
    /// To be called as often as is known that the start goes on. It does nothing until the start has taken a fourth of that time: one that
    /// fails again and again, soon, is nobody who comes. And it does nothing beyond what the last one that ran has said: many starts, one after
    /// the other, are not somebody who comes either.
    pub fn renew(&self) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if self.begun.elapsed() < self.unowned / 4 || said.is_some_and(|said| said.elapsed() < EVERY) {
            return;
        }
        *said = Some(Instant::now());
        let renewed = self.lease.read().and_then(|lease| match lease.until > worker::now() {
            true => self.lease.set(prolonged(lease, self.unowned)),
            false => Ok(()),
        });
        if let Err(error) = renewed {
            tracing::warn!(%error, "what is pinned cannot be told that it goes on");
        }
    }
}

/// It goes on for so long from now, unless that is longer than the last one that ran has said.
pub(super) fn prolonged(lease: Lease, unowned: Duration) -> Lease {
    let wanted = worker::now().saturating_add(nanoseconds(unowned));
    Lease {
        until: wanted.min(lease.longest).max(lease.until),
        ..lease
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
