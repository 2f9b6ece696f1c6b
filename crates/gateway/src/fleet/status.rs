//! How a gateway fares with its fleet's state: for health, metrics, and who wants to change something.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::key::Key;
use super::space::FULL;
use super::sync::{Barrier, Counts, State};

/// Damaged keys that are named.
const NAMED: usize = 5;

/// See the module. All counters begin with the start of the program.
#[derive(Debug)]
pub struct Status {
    state: Mutex<State>,
    /// Why the copy on the disk cannot be written.
    copy: Mutex<Option<String>>,
    /// The revision of etcd that tables and data path have.
    pub applied: AtomicU64,
    /// The highest that etcd is known to have.
    pub known: AtomicU64,
    /// How old the last proof is that nothing is missing.
    pub lag_milliseconds: AtomicU64,
    /// Watches that were begun again where the last one ended.
    pub resumed: AtomicU64,
    /// Lists because what had to be watched, or was being listed, was compacted.
    pub relisted: AtomicU64,
    /// Comparisons with all that etcd holds.
    pub compared: AtomicU64,
    /// Objects that a comparison found otherwise, and put right.
    pub diverged: AtomicU64,
    /// Keys whose values cannot be read.
    pub damaged: AtomicU64,
    /// Keys whose values were written by a newer program.
    pub newer: AtomicU64,
    /// Some of the damaged ones, for who asks: they say where tenants are, and are in no log.
    damaged_keys: Mutex<Vec<String>>,
    /// Whose tables have this revision knows all that the fleet knew when it began to follow; 0: it is not known yet which that is.
    pub(crate) complete: AtomicU64,
    /// [`Status::lag_milliseconds`] is more than the operator allows.
    stale: AtomicBool,
    /// What needs attention of the part that this gateway takes in its fleet.
    member: Mutex<Option<String>>,
    /// A word when the state has changed.
    pub(crate) news: tokio::sync::Notify,
    /// etcd takes nothing.
    full: AtomicBool,
    /// Bytes of etcd's database, at the member that is asked.
    pub database_bytes: AtomicU64,
    /// Those of them that hold something.
    pub database_used: AtomicU64,
    /// A word when etcd has refused something for want of room.
    pub(crate) refused: tokio::sync::Notify,
    /// Transactions that were made.
    pub transactions: AtomicU64,
    /// Those that met another's, and were made anew.
    pub conflicts: AtomicU64,
}

impl Status {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            state: Mutex::new(State::Behind),
            copy: Mutex::new(None),
            applied: zero(),
            known: zero(),
            lag_milliseconds: zero(),
            resumed: zero(),
            relisted: zero(),
            compared: zero(),
            diverged: zero(),
            damaged: zero(),
            newer: zero(),
            damaged_keys: Mutex::default(),
            complete: zero(),
            stale: AtomicBool::new(false),
            member: Mutex::new(None),
            news: tokio::sync::Notify::new(),
            full: AtomicBool::new(false),
            database_bytes: zero(),
            database_used: zero(),
            refused: tokio::sync::Notify::new(),
            transactions: zero(),
            conflicts: zero(),
        }
    }

    /// How it fares.
    #[must_use]
    pub fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the tables have what etcd had when it was begun to follow, if that is news.
    pub(crate) fn look(&self, barrier: &mut Barrier) -> Option<bool> {
        let complete = Some(self.complete.load(Ordering::Relaxed)).filter(|revision| *revision > 0);
        barrier.look(&self.state(), complete, self.applied.load(Ordering::Relaxed))
    }

    /// Why nothing can be changed now; None if it can.
    #[must_use]
    pub fn refusal(&self) -> Option<Arc<str>> {
        match self.state() {
            State::Behind | State::Following => self.is_full().then(|| FULL.into()),
            State::CutOff(why) => {
                let lag = self.lag_milliseconds.load(Ordering::Relaxed) / 1000;
                Some(
                    format!(
                        "etcd cannot be reached since {lag} s ({why}): packets go on with what was known then, and changes are taken when it \
                         is back"
                    )
                    .into(),
                )
            }
            State::Rejected(why) => Some(
                format!(
                    "what etcd says is not believed: {why}. Packets go on with the last good state. If etcd is right, stop this gateway, \
                     remove the file store.path, and start it"
                )
                .into(),
            ),
        }
    }

    /// True while etcd's database is full, and takes nothing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        if self.full.swap(is_full, Ordering::Relaxed) == is_full {
            return;
        }
        if is_full {
            tracing::error!("{FULL}");
            self.refused.notify_one();
        } else {
            tracing::info!("etcd's database is not full any more, as far as is known: changes are taken");
        }
    }

    /// True while nothing has been known for sure for longer than this.
    pub(crate) fn limit_age(&self, limit: Option<Duration>) -> bool {
        let lag = Duration::from_millis(self.lag_milliseconds.load(Ordering::Relaxed));
        let is_stale = limit.is_some_and(|limit| lag >= limit);
        if self.stale.swap(is_stale, Ordering::Relaxed) != is_stale {
            match is_stale {
                true => tracing::error!(
                    seconds = lag.as_secs(),
                    "what is known of etcd's state is too old: packets are dropped"
                ),
                false => tracing::info!("etcd's state is known for sure again: packets go on"),
            }
        }
        is_stale
    }

    /// What needs attention, for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(self.copy.lock().unwrap_or_else(PoisonError::into_inner).clone());
        problems.extend(self.member.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if self.stale.load(Ordering::Relaxed) {
            let lag = self.lag_milliseconds.load(Ordering::Relaxed) / 1000;
            problems.push(format!(
                "tenants' packets are dropped (stale): for {lag} s it has not been known whether anything of etcd is missing, which is more than \
                 store.etcd.forward-stale-seconds"
            ));
        }
        let damaged = self.damaged.load(Ordering::Relaxed);
        if damaged > 0 {
            let keys = self.damaged_keys.lock().unwrap_or_else(PoisonError::into_inner);
            let more = if damaged > keys.len() as u64 { ", …" } else { "" };
            problems.push(format!(
                "{damaged} values in etcd cannot be read ({}{more}): delete these keys, and put the objects anew; until then what was known of \
                 them holds, and ports of which nothing is known allow nothing",
                keys.join(", ")
            ));
        }
        let newer = self.newer.load(Ordering::Relaxed);
        if newer > 0 {
            problems.push(format!(
                "{newer} values in etcd were written by a newer version of this program: what was known of them holds, and is changed by gateways of \
                 that version only; ports of which nothing is known allow nothing. Put that version here, too"
            ));
        }
        let diverged = self.diverged.load(Ordering::Relaxed);
        if diverged > 0 {
            problems.push(format!(
                "{diverged} objects were other than etcd has them, and were put right: a fault of this program, or of etcd; please tell"
            ));
        }
        problems
    }

    pub(crate) fn set_copy(&self, problem: Option<String>) {
        *self.copy.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    pub(crate) fn set_member(&self, problem: Option<String>) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Takes notice of how it fares, and logs what is news.
    pub(crate) fn set(
        &self,
        state: State,
        known: u64,
        lag: Duration,
        counts: Counts,
        (damaged, newer): (impl ExactSizeIterator<Item = Key>, usize),
    ) {
        let stored = [
            (&self.known, known),
            (
                &self.lag_milliseconds,
                u64::try_from(lag.as_millis()).unwrap_or(u64::MAX),
            ),
            (&self.resumed, counts.resumed),
            (&self.relisted, counts.relisted),
            (&self.compared, counts.compared),
            (&self.newer, newer as u64),
        ];
        for (place, value) in stored {
            place.store(value, Ordering::Relaxed);
        }
        let count = damaged.len() as u64;
        if self.damaged.swap(count, Ordering::Relaxed) != count {
            let mut keys: Vec<String> = damaged.take(NAMED).map(|key| key.to_string()).collect();
            keys.sort();
            *self.damaged_keys.lock().unwrap_or_else(PoisonError::into_inner) = keys;
        }
        let mut before = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *before != state {
            match &state {
                State::Behind => tracing::info!("all of etcd's state is listed"),
                State::Following => tracing::info!(revision = known, "etcd's state is known, and followed"),
                State::CutOff(why) if matches!(*before, State::CutOff(_)) => tracing::debug!(why, "still cut off"),
                State::CutOff(why) => {
                    tracing::error!(why, "etcd cannot be reached; packets go on, nothing can be changed")
                }
                State::Rejected(why) => {
                    tracing::error!(why, "what etcd says is not believed; the last good state holds")
                }
            }
            *before = state;
            self.news.notify_one();
        }
    }
}
