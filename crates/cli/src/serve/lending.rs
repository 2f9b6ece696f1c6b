//! A server's interface, lent to a comparison: its own sockets are closed meanwhile, for a queue has one socket only.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::board::Board;
use crate::stop::Stop;

/// How long closing the sockets may take.
const CLOSING: Duration = Duration::from_secs(10);
/// How long the next comparison waits for them to be open again.
const OPENING: Duration = Duration::from_secs(5);
/// How often the server looks for its end meanwhile.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The server answers.
    Own,
    /// Somebody waits for the sockets to be closed.
    Wanted,
    /// They are.
    Lent,
    /// They may be opened again, and will be.
    Back,
}

/// Who has the interface.
pub(super) struct Lending {
    state: Mutex<State>,
    changed: Condvar,
    /// Ends what the server does with it now.
    part: Mutex<Stop>,
    whole: Stop,
}

/// The interface is lent for as long as this is there.
pub(super) struct Loan<'a>(&'a Lending);

impl Lending {
    pub(super) fn new(whole: Stop) -> Self {
        Self {
            state: Mutex::new(State::Own),
            changed: Condvar::new(),
            part: Mutex::new(whole.part()),
            whole,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, or for so long.
    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        match self.changed.wait_timeout(state, most) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// What ends the server's own use of it.
    pub(super) fn part(&self) -> Stop {
        self.part.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn borrow(&self, board: &Board) -> Result<Loan<'_>> {
        let mut state = self.state();
        // The one before is over, and who comes next need not know that the sockets are just being opened again.
        let open = Instant::now() + OPENING;
        while *state == State::Back && Instant::now() < open {
            state = self.wait(state, LOOK);
        }
        if *state != State::Own {
            bail!("a comparison has the interface, or has just had it: try again later");
        }
        if !board.is_empty() {
            bail!("sessions are under way, and a comparison takes the interface for itself: try again later");
        }
        *state = State::Wanted;
        self.part().set();
        let end = Instant::now() + CLOSING;
        while *state != State::Lent {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // They will be, and are opened again then.
                *state = State::Back;
                bail!("the server's sockets were not closed in time");
            }
            state = self.wait(state, left);
        }
        Ok(Loan(self))
    }

    /// The sockets are closed: waits until they may be opened again. False when nobody wanted them, or it is over.
    pub(super) fn lend_until_back(&self, over: impl Fn() -> bool) -> bool {
        let mut state = self.state();
        match *state {
            State::Wanted => *state = State::Lent,
            State::Back => {}
            State::Own | State::Lent => return false,
        }
        self.changed.notify_all();
        while *state != State::Back {
            if over() {
                return false;
            }
            state = self.wait(state, LOOK);
        }
        *self.part.lock().unwrap_or_else(PoisonError::into_inner) = self.whole.part();
        true
    }

    /// The sockets are open again.
    pub(super) fn is_back(&self) {
        *self.state() = State::Own;
        self.changed.notify_all();
    }

    /// Whether the server's own sockets are closed.
    pub(super) fn is_lent(&self) -> bool {
        *self.state() != State::Own
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        *self.0.state() = State::Back;
        self.0.changed.notify_all();
    }
}
