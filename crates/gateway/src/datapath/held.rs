//! What the process before has left goes on while this one starts.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringside_bpf::gateway::PinnedLease;

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
    /// Not beyond that.
    until: Option<Instant>,
    said: Mutex<Option<Instant>>,
}

impl Held {
    /// None if it left nothing. What goes on must not for longer than `longest` from now, if that is given: what it knows is too old then.
    #[must_use]
    pub fn of(options: &PathOptions, longest: Option<Duration>) -> Option<Self> {
        let folder = attach::maps(options.pins.as_deref()?);
        let failed = |error: &_| tracing::warn!(%error, "what is pinned cannot be told that it goes on");
        let lease = PinnedLease::open(&folder).inspect_err(failed).ok()??;
        Some(Self {
            lease,
            unowned: options.settings.unowned,
            begun: Instant::now(),
            until: longest.map(|longest| Instant::now() + longest),
            said: Mutex::new(None),
        })
    }

    /// It goes on for `unowned-seconds` from now, if its time is not over: then it does not begin anew, for who knows what has changed since.
    /// To be called as often as is known that the start goes on. It does nothing until the start has taken a fourth of that time: one that
    /// fails again and again, soon, is nobody who comes.
    pub fn renew(&self) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if self.begun.elapsed() < self.unowned / 4 || said.is_some_and(|said| said.elapsed() < EVERY) {
            return;
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        *said = Some(Instant::now());
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let more = left.map_or(self.unowned, |left| left.min(self.unowned));
        let renewed = self.lease.until().and_then(|until| match until > worker::now() {
            true => self
                .lease
                .set(worker::now().saturating_add(nanoseconds(more)).max(until)),
            false => Ok(()),
        });
        if let Err(error) = renewed {
            tracing::warn!(%error, "what is pinned cannot be told that it goes on");
        }
    }
}

#[cfg(test)]
#[path = "held_tests.rs"]
mod tests;
