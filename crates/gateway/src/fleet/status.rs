//! How a gateway fares with its fleet's state: for health, metrics, and who wants to change something.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringside_gateway_core::TenantAddress;

use super::backlog::Backlog;
use super::key::Key;
use super::space::FULL;
use super::sync::{Barrier, Counts, State};

/// Damaged keys, and lost ports, that are named.
const NAMED: usize = 5;

/// A question to etcd that has been without an answer for so long is a problem. Questions come once
/// a second: it is said within two.
const UNANSWERED: Duration = Duration::from_secs(1);

/// See the module. All counters begin with the start of the program.
#[derive(Debug)]
pub struct Status {
    /// And when it was last all well, or the start.
    state: Mutex<(State, Instant)>,
    /// So long it may be behind without anybody being told.
    silence: Duration,
    /// What the copy on the disk has to take yet.
    pub(crate) backlog: Backlog,
    /// The revision of etcd that tables and data path have.
    pub applied: AtomicU64,
    /// The highest that etcd is known to have.
    pub known: AtomicU64,
    proof: Mutex<Proof>,
    /// For how many milliseconds etcd has not answered a question.
    unanswered: AtomicU64,
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
    /// The damaged ones, for who asks: they say where tenants are, and are in no log.
    damaged_keys: Mutex<Vec<Key>>,
    /// Ports that hold though etcd lacks them, and some of them: see `model/book/lost.rs`.
    lost: Mutex<(usize, Vec<TenantAddress>)>,
    /// Of these, ports that were put back into etcd.
    pub restored: AtomicU64,
    /// Whose tables have this revision knows all that the fleet knew when it began to follow; 0: it is not known yet which that is.
    pub(crate) complete: AtomicU64,
    /// [`Status::lag`] is more than the operator allows.
    stale: AtomicBool,
    /// What needs attention of the part that this gateway takes in its fleet.
    member: Mutex<Vec<String>>,
    /// A word when the state has changed.
    pub(crate) news: tokio::sync::Notify,
    /// etcd takes nothing.
    full: AtomicBool,
    /// What health says if the fleet's time in etcd is no number, and no gateway could write it
    /// again.
    clock_problem: Mutex<Option<String>>,
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

/// When nothing of etcd was missing in the tables, for sure.
#[derive(Debug)]
struct Proof {
    at: Instant,
    /// There has been one: before, it is the time of the start.
    is_given: bool,
    /// Up to which revision everything was told, and when etcd had nothing more, where the tables may not have it yet.
    next: Option<(u64, Instant)>,
}

impl Status {
    /// `silence`: without a sign of life for so long something is wrong.
    pub(crate) fn new(silence: Duration) -> Self {
        let zero = || AtomicU64::new(0);
        let now = Instant::now();
        Self {
            state: Mutex::new((State::Behind, now)),
            silence,
            backlog: Backlog::default(),
            applied: zero(),
            known: zero(),
            proof: Mutex::new(Proof {
                at: now,
                is_given: false,
                next: None,
            }),
            unanswered: zero(),
            resumed: zero(),
            relisted: zero(),
            compared: zero(),
            diverged: zero(),
            damaged: zero(),
            newer: zero(),
            damaged_keys: Mutex::default(),
            lost: Mutex::default(),
            restored: zero(),
            complete: zero(),
            stale: AtomicBool::new(false),
            member: Mutex::default(),
            news: tokio::sync::Notify::new(),
            full: AtomicBool::new(false),
            clock_problem: Mutex::default(),
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
        self.state.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// How old the last proof is that nothing of etcd is missing in the tables.
    #[must_use]
    pub fn lag(&self) -> Duration {
        self.proof(None).0.elapsed()
    }

    /// So long what is known is young enough, after that limit. None as long as etcd has never been followed since the start.
    pub(crate) fn left_of(&self, limit: Option<Duration>) -> Option<Duration> {
        let (at, is_given) = self.proof(None);
        let left = limit.map_or(Duration::MAX, |limit| limit.saturating_sub(at.elapsed()));
        is_given.then_some(left)
    }

    /// Everything up to this revision was told, and etcd had nothing more at a time.
    pub(crate) fn prove(&self, told: u64, at: Instant) {
        self.proof(Some((told, at)));
    }

    fn proof(&self, news: Option<(u64, Instant)>) -> (Instant, bool) {
        let applied = self.applied.load(Ordering::Relaxed);
        let mut proof = self.proof.lock().unwrap_or_else(PoisonError::into_inner);
        // One after the other: where there is always something on its way, the newest never is in the tables.
        for _ in 0..2 {
            if let Some((_, at)) = proof.next.take_if(|(told, _)| *told <= applied) {
                (proof.at, proof.is_given) = (at, true);
            }
            proof.next = proof.next.or(news);
        }
        (proof.at, proof.is_given)
    }

    /// Whether the tables have what etcd had when it was begun to follow, if that is news.
    pub(crate) fn look(&self, barrier: &mut Barrier) -> Option<bool> {
        let complete = Some(self.complete.load(Ordering::Relaxed)).filter(|revision| *revision > 0);
        barrier.look(&self.state(), complete, self.applied.load(Ordering::Relaxed))
    }

    /// Why nothing can be changed now; None if it can.
    #[must_use]
    pub fn refusal(&self) -> Option<Arc<str>> {
        let (state, since) = self.state.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match state {
            State::Behind if since.elapsed() > self.silence => Some(
                format!(
                    "what etcd holds has to be listed anew, and for {} s has not come to its end: packets go on with what was known then, and changes \
                     are taken when it has, or by another gateway",
                    since.elapsed().as_secs()
                )
                .into(),
            ),
            State::Behind | State::Following => self.is_full().then(|| FULL.into()),
            State::CutOff(why) => {
                let lag = self.lag().as_secs();
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
                    "packets go on with the last good state, and what etcd says is not believed: {why}"
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

    pub(crate) fn set_clock_problem(&self, problem: Option<String>) {
        let mut known = self.clock_problem.lock().unwrap_or_else(PoisonError::into_inner);
        if *known == problem {
            return;
        }
        match &problem {
            Some(problem) => tracing::error!("{problem}"),
            None => tracing::info!("the fleet's time in etcd can be read again"),
        }
        *known = problem;
    }

    /// True while nothing has been known for sure for longer than this.
    pub(crate) fn limit_age(&self, limit: Option<Duration>) -> bool {
        let lag = self.lag();
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

    /// Why changes wait though nothing is wrong with this gateway and its disk; None: nothing is
    /// known of that.
    pub(crate) fn holds_up(&self) -> Option<String> {
        // Then it is said why changes are refused.
        if self.refusal().is_some() {
            return None;
        }
        let unanswered = Duration::from_millis(self.unanswered.load(Ordering::Relaxed));
        (unanswered >= UNANSWERED).then(|| {
            format!(
                "etcd has not answered for {:.1} s: changes wait for it, packets go on; if that \
                 lasts, look whether most of its members run and reach each other",
                unanswered.as_secs_f64()
            )
        })
    }

    pub(crate) fn set_unanswered(&self, time: Duration) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.unanswered.store(milliseconds, Ordering::Relaxed);
    }

    /// What needs attention, for people.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        problems.extend(self.holds_up());
        problems.extend(self.backlog.problem());
        problems.extend(self.member.lock().unwrap_or_else(PoisonError::into_inner).clone());
        if self.stale.load(Ordering::Relaxed) {
            let lag = self.lag().as_secs();
            problems.push(format!(
                "tenants' packets are dropped (stale): for {lag} s it has not been known whether anything of etcd is missing, which is more than \
                 store.etcd.forward-stale-seconds"
            ));
        }
        problems.extend(
            self.clock_problem
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
        );
        let damaged = self.damaged.load(Ordering::Relaxed);
        if damaged > 0 {
            let keys = self.damaged_keys();
            let names = keys.iter().take(NAMED).map(|key| format!("{key}: {}", key.objects()));
            let names: Vec<String> = names.collect();
            let more = if keys.len() > NAMED { "; …" } else { "" };
            problems.push(format!(
                "{damaged} values in etcd cannot be read ({}{more}): `ringside gateway repaired` \
                 writes them anew with what this gateway knows of them; so does whatever puts one \
                 of their objects (`ringside gateway put`, apply, load), which is to be done for \
                 those that this gateway does not know. Until then what was known of them holds, \
                 and ports of which nothing is known allow nothing",
                names.join("; ")
            ));
        }
        let (lost, some) = &*self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = some.first() {
            let names: Vec<String> = some.iter().map(ToString::to_string).collect();
            let more = if *lost > some.len() { ", …" } else { "" };
            problems.push(format!(
                "{lost} ports are missing in etcd though no gateway has deleted them ({}{more}): \
                 they hold as they were known, and other gateways may not know them; put each \
                 again, or delete it (`ringside gateway delete port {} {}`)",
                names.join(", "),
                first.vni.number(),
                first.ip,
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

    /// Keys whose values cannot be read, in order.
    pub(crate) fn damaged_keys(&self) -> Vec<Key> {
        self.damaged_keys.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes notice of how many ports are lost; `lost` also names so many of them.
    pub(crate) fn set_lost(&self, lost: impl FnOnce(usize) -> (usize, Vec<TenantAddress>)) {
        let now = lost(NAMED);
        let mut known = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 < now.0 {
            // Health names them: they say where tenants are.
            tracing::error!(
                ports = now.0,
                "ports are missing in etcd that no gateway has deleted: they hold"
            );
        }
        *known = now;
    }

    /// Number of ports that hold though etcd lacks them.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn set_member(&self, problems: Vec<String>) {
        *self.member.lock().unwrap_or_else(PoisonError::into_inner) = problems;
    }

    /// Takes notice of how it fares, and logs what is news.
    pub(crate) fn set(&self, state: State, known: u64, counts: Counts, (damaged, newer): (&BTreeSet<Key>, usize)) {
        let stored = [
            (&self.known, known),
            (&self.resumed, counts.resumed),
            (&self.relisted, counts.relisted),
            (&self.compared, counts.compared),
            (&self.newer, newer as u64),
        ];
        for (place, value) in stored {
            place.store(value, Ordering::Relaxed);
        }
        self.damaged.store(damaged.len() as u64, Ordering::Relaxed);
        let mut keys = self.damaged_keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.iter().eq(damaged) {
            *keys = damaged.iter().copied().collect();
        }
        drop(keys);
        let mut known_as = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, well) = &mut *known_as;
        if *before == State::Following {
            *well = Instant::now();
        }
        if *before != state {
            match &state {
                State::Behind => tracing::info!("all of etcd's state is listed"),
                State::Following => tracing::info!(revision = known, "etcd's state is known, and followed"),
                State::CutOff(why) if matches!(*before, State::CutOff(_)) => tracing::debug!(why, "still cut off"),
                // No packet was forwarded yet, and the API is not offered.
                State::CutOff(why) if self.applied.load(Ordering::Relaxed) == 0 => {
                    tracing::error!(
                        why,
                        "this gateway knows no state of its fleet yet, and waits for etcd's"
                    );
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A proof counts when the tables have what it is about, whoever waits for whom meanwhile; the lag is that of the moment.
    #[test]
    fn the_lag_is_that_of_the_tables() {
        let status = Status::new(SECOND);
        let began = Instant::now();
        let ago = |seconds| began.checked_sub(seconds * SECOND).unwrap();
        assert!(status.lag() < SECOND);
        assert_eq!(status.left_of(Some(60 * SECOND)), None, "that it has begun is no proof");
        status.proof.lock().unwrap().at = ago(100);
        // Told and not yet in the tables; what is told later does not put it off.
        status.prove(7, ago(50));
        status.prove(9, ago(20));
        assert!(status.lag() >= 100 * SECOND);
        status.applied.store(8, Ordering::Relaxed);
        assert!((50 * SECOND..52 * SECOND).contains(&status.lag()), "{:?}", status.lag());
        status.prove(9, ago(10));
        assert!(status.lag() >= 50 * SECOND);
        status.applied.store(9, Ordering::Relaxed);
        assert!((10 * SECOND..12 * SECOND).contains(&status.lag()), "{:?}", status.lag());
        let left = status.left_of(Some(60 * SECOND)).unwrap();
        assert!((48 * SECOND..=50 * SECOND).contains(&left), "{left:?}");
        assert_eq!(status.left_of(Some(SECOND)), Some(Duration::ZERO));
        assert_eq!(status.left_of(None), Some(Duration::MAX));
        // Also where nobody tells anything any more.
        std::thread::sleep(SECOND / 10);
        assert!(status.lag() >= 10 * SECOND + SECOND / 10);
    }

    /// As where one is put right and another one is damaged in one transaction.
    #[test]
    fn other_damaged_keys_are_known_though_they_are_as_many() {
        let status = Status::new(SECOND);
        for id in [1, 2] {
            let damaged = BTreeSet::from([Key::Group(ringside_gateway_core::policy::GroupId(id))]);
            status.set(State::Following, 1, Counts::default(), (&damaged, 0));
            assert_eq!(status.damaged_keys(), damaged.into_iter().collect::<Vec<_>>());
            assert!(status.problems().concat().contains(&format!("security group {id})")));
        }
    }

    #[test]
    fn who_stays_behind_takes_no_change_and_says_so() {
        let status = Status::new(10 * SECOND);
        let set = |state| status.set(state, 1, Counts::default(), (&BTreeSet::new(), 0));
        let age = || {
            let mut state = status.state.lock().unwrap();
            state.1 = state.1.checked_sub(20 * SECOND).unwrap();
        };
        set(State::Behind);
        assert_eq!(status.refusal(), None, "not at once");
        age();
        assert!(status.refusal().unwrap().contains("has to be listed anew"));
        set(State::Following);
        assert_eq!(status.refusal(), None);
        age();
        set(State::Behind);
        assert_eq!(status.refusal(), None, "it was well until now");
    }
}
