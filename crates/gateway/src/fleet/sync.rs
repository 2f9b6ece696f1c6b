//! How a gateway follows etcd without a gap: what it asks, when it does not believe the answer, and what it tells the tables.
//! No sockets and no clock: `follow` does what this says, and tells it what came of that.
//!
//! ```text
//!            ┌────────────────── compacted ──────────────────┐
//!            ▼                                               │
//!   list, page after page at one revision R ──▶ sweep ──▶ watch from R+1 ──▶ each revision, whole
//!            ▲                                               │  ▲
//!   started without a mark                                   └──┘ silent, ended: watch from the last one told + 1
//!
//!   meanwhile   every second   a linearizable read: is there a quorum, and at which revision is it?
//!                              then a question on the watch: is it there, too?       both: nothing is missing
//!               now and then   all of it is listed again, and compared              divergence: counted, put right
//!   for good    a revision that goes backwards, another cluster: nothing is believed any more
//!   meanwhile   the key that says whose state it is, is gone or another: see `trust`
//! ```
//! A progress notification is taken for a sign of life and never for a place to go on from: etcd before 3.4.25 and 3.5.8 may
//! send one ahead of events that it has yet to send (<https://github.com/etcd-io/etcd/issues/15220>).

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::time::Duration;

use super::chance::Chance;
use super::item::Item;
use super::key::{FLEET, KINDS, Key};
use super::value;

mod barrier;
mod comparison;
mod listing;
mod terms;
mod trust;

pub use barrier::Barrier;
use comparison::Comparison;
pub(crate) use listing::Listing;
use listing::Vain;
use terms::Next;
pub use terms::{Action, Counts, Failed, Input, Mark, PAGES, Page, Pages, Pair, Pulse, State, Tell, Timing};
use trust::Rejection;

/// Times as often as else it asks whether all is well while it is not known yet what is missing of a copy.
const CATCHING_UP: u32 = 20;

#[derive(Debug)]
enum Phase {
    /// Nothing can be done before it is known whose state it is.
    Greeting,
    Listing(Listing),
    Watching(Watch),
    Rejected(Rejection),
}

#[derive(Debug)]
struct Watch {
    /// The last sign of life, or the beginning.
    alive: Duration,
    /// Since when etcd has not told that nothing is missing.
    proven: Duration,
    /// When it is begun, if it is not.
    begin: Option<Duration>,
    /// How far etcd says that it has told.
    progress: u64,
}

#[derive(Debug, Default)]
struct Heart {
    /// When it was asked last, and what was told at that time.
    asked: Option<(Duration, u64)>,
    next: Duration,
    /// When the last question that was answered had been asked, and the answer.
    answered: Option<(Duration, u64)>,
    error: Option<String>,
}

/// See the module.
#[derive(Debug)]
pub struct Sync {
    timing: Timing,
    prefix: String,
    chance: Chance,
    mark: Option<Mark>,
    /// Everything up to there was told.
    told: u64,
    /// See [`Sync::complete`].
    complete: Option<u64>,
    phase: Phase,
    comparison: Option<Comparison>,
    compare_at: Duration,
    /// Of the last list or comparison that came to its end, or of what a copy holds.
    pages: u32,
    heart: Heart,
    /// Until this revision the key that says whose state it is was another for a while.
    restored: u64,
    /// When etcd was last known to have nothing more to tell.
    synced: Option<Duration>,
    tries: u32,
    vain: Vain,
    began: Duration,
    next: VecDeque<Next>,
    counts: Counts,
    damaged: BTreeSet<Key>,
    /// Those that only a newer program can read.
    newer: HashSet<Key>,
}

impl Sync {
    /// Begins with what a mark says, or with nothing. `seed` spreads tries over time.
    #[must_use]
    pub fn new(timing: Timing, seed: u64, mark: Option<Mark>, now: Duration) -> Self {
        let sync = Self {
            timing,
            prefix: String::new(),
            chance: Chance::new(seed),
            told: mark.as_ref().and_then(|mark| mark.revision).unwrap_or(0),
            complete: None,
            mark,
            phase: Phase::Greeting,
            comparison: None,
            compare_at: now,
            pages: 0,
            heart: Heart::default(),
            restored: 0,
            synced: None,
            tries: 0,
            vain: Vain::default(),
            began: now,
            next: VecDeque::new(),
            counts: Counts::default(),
            damaged: BTreeSet::new(),
            newer: HashSet::new(),
        };
        sync.with_pages(0)
    }

    /// How it fares.
    #[must_use]
    pub fn state(&self, now: Duration) -> State {
        if let Phase::Rejected(rejection) = &self.phase {
            return State::Rejected(rejection.why.clone());
        }
        let answered = self.heart.answered.map_or(self.began, |(asked, _)| asked);
        if now.saturating_sub(answered) > self.timing.silence {
            let why = self.heart.error.clone();
            return State::CutOff(why.unwrap_or_else(|| "it does not answer".to_owned()));
        }
        match self.phase {
            Phase::Watching(_) => State::Following,
            _ => State::Behind,
        }
    }

    /// Everything up to this revision was told; 0: nothing was.
    #[must_use]
    pub const fn told(&self) -> u64 {
        self.told
    }

    /// Who has this revision knows all that etcd held at some time since the start, or since everything was listed anew. None: it is
    /// not known yet what a copy lacks, or what was compacted before it was told.
    #[must_use]
    pub const fn complete(&self) -> Option<u64> {
        self.complete
    }

    /// The highest revision that etcd is known to have.
    #[must_use]
    pub fn known(&self) -> u64 {
        self.heart.answered.map_or(0, |(_, revision)| revision).max(self.told)
    }

    /// When etcd was last asked for what was then known to be all; None: never yet.
    #[must_use]
    pub const fn proven(&self) -> Option<Duration> {
        self.synced
    }

    /// Whether a question is under way, or the last one had no good answer.
    #[must_use]
    pub(crate) const fn is_waiting(&self) -> bool {
        self.heart.asked.is_some() || self.heart.error.is_some()
    }

    /// How old the last proof is that nothing is missing.
    #[must_use]
    pub fn lag(&self, now: Duration) -> Duration {
        now.saturating_sub(self.synced.unwrap_or(self.began))
    }

    /// What was counted.
    #[must_use]
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Keys whose values cannot be read.
    pub const fn damaged(&self) -> &BTreeSet<Key> {
        &self.damaged
    }

    /// Keys whose values were written by a newer program.
    #[must_use]
    pub fn newer(&self) -> usize {
        self.newer.len()
    }

    /// Whose state it is, once that is known.
    #[must_use]
    pub const fn mark(&self) -> Option<&Mark> {
        self.mark.as_ref()
    }

    /// What is to be done now, if there is something.
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        if self.next.is_empty() {
            self.look(now);
        }
        Some(match self.next.pop_front()? {
            Next::Do(action) => action,
            Next::Read(pairs) => {
                let items = self.read(&pairs);
                Action::Tell(Tell::Items { items, compare: false })
            }
            Next::ReadPolicy(pairs) => {
                let items = self.read(&pairs);
                let keep = pairs.iter().filter_map(|pair| Key::parse(&pair.key)).collect();
                Action::Tell(Tell::Policy { items, keep })
            }
        })
    }

    /// When [`Sync::poll`] may have something without anything happening before.
    #[must_use]
    pub fn wake(&self) -> Duration {
        let mut wake = self.heart.next;
        let mut at = |time: Duration| wake = wake.min(time);
        match &self.phase {
            Phase::Greeting | Phase::Rejected(_) => {}
            Phase::Listing(listing) => listing.due().into_iter().for_each(&mut at),
            Phase::Watching(watch) => {
                at(watch.begin.unwrap_or(watch.alive + self.timing.silence));
                if watch.begin.is_none() && self.heart.error.is_none() {
                    at(watch.proven + self.timing.silence);
                }
                match &self.comparison {
                    None if self.synced.is_none() => {}
                    None => at(self.compare_at),
                    Some(comparison) => {
                        comparison.listing.due().into_iter().for_each(&mut at);
                        let settled = comparison.reached.map(|since| since + self.timing.settle);
                        settled.into_iter().for_each(&mut at);
                    }
                }
            }
        }
        wake
    }

    /// Takes notice of something.
    pub fn handle(&mut self, now: Duration, input: Input) {
        if let Phase::Rejected(_) = self.phase {
            if let Input::Pulse(pulse) = input {
                self.pulse_while_rejected(now, pulse);
            }
            return;
        }
        match input {
            Input::Pulse(pulse) => self.pulse(now, pulse),
            Input::Listed(listed) => self.listed(now, listed),
            Input::Watching => self.alive(now),
            Input::Progress(revision) => {
                self.alive(now);
                if let Phase::Watching(watch) = &mut self.phase {
                    watch.progress = watch.progress.max(revision);
                }
                self.prove(now, revision);
            }
            Input::Events(pairs) => {
                self.alive(now);
                self.events(now, pairs);
            }
            Input::Ended(Failed::Compacted) if self.restored > 0 => self.reject(format!(
                "its key {FLEET} was gone, and changes since this gateway's copy were compacted"
            )),
            Input::Ended(Failed::Compacted) => {
                tracing::info!(
                    told = self.told,
                    "what had to be watched was compacted; all of it is listed"
                );
                self.counts.relisted += 1;
                let took = self.vain.took.take();
                self.list(now, self.told, took);
            }
            Input::Ended(Failed::Other(why)) => self.again(now, why),
        }
    }

    fn act(&mut self, action: Action) {
        self.next.push_back(Next::Do(action));
    }

    fn alive(&mut self, now: Duration) {
        if let Phase::Watching(watch) = &mut self.phase {
            watch.alive = now;
            self.tries = 0;
        }
    }

    /// The watch has told everything up to a revision: perhaps all that there was when etcd was asked last.
    fn prove(&mut self, now: Duration, revision: u64) {
        let Phase::Watching(watch) = &mut self.phase else {
            return;
        };
        if let Some((asked, known)) = self.heart.answered
            && revision >= known
        {
            watch.proven = now;
            self.vain = Vain::default();
            self.synced = Some(asked);
            if revision >= self.restored {
                self.restored = 0;
            }
            self.complete.get_or_insert(self.told);
        }
        let reached = watch.progress.max(self.told);
        if let Some(comparison) = &mut self.comparison
            && comparison.reached.is_none()
            && comparison.held.as_ref().is_some_and(|page| page.revision <= reached)
        {
            comparison.reached = Some(now);
        }
    }

    /// How long to wait before the next try.
    fn pause(&mut self) -> Duration {
        let most = self.timing.retry * (1 << self.tries.min(5));
        self.tries += 1;
        // From a half to the whole of it.
        most / 2 + self.chance.up_to(most / 2)
    }

    /// The watch goes on from where it ended, soon.
    fn again(&mut self, now: Duration, why: String) {
        let pause = self.pause();
        if let Phase::Watching(watch) = &mut self.phase {
            tracing::debug!(why, "the watch is begun again");
            self.counts.resumed += 1;
            watch.begin = Some(now + pause);
        }
    }

    /// Everything is listed anew: at once, or later after one that `took` so long and was in vain.
    fn list(&mut self, now: Duration, least: u64, took: Option<Duration>) {
        self.comparison = None;
        self.complete = None;
        self.act(Action::Unwatch);
        let wait = self.vain.wait(took, &mut self.chance);
        self.phase = Phase::Listing(Listing::new(least).not_before(now + wait));
    }

    /// What has to be done because time has passed.
    fn look(&mut self, now: Duration) {
        let told = self.told;
        // One at a time, so that an answer belongs to its question; one that has not come back by then is given up, so early that the next
        // one may be in time: it may be asked elsewhere.
        let patience = self
            .heart
            .asked
            .map_or(now, |(asked, _)| asked + self.timing.silence / 2);
        if now >= self.heart.next && now < patience {
            self.heart.next = patience;
        } else if now >= self.heart.next {
            self.heart.asked = Some((now, told));
            self.heart.next = now + self.timing.pulse;
            self.act(Action::Pulse);
        }
        match &mut self.phase {
            Phase::Greeting | Phase::Rejected(_) => {}
            Phase::Listing(listing) => self.next.extend(listing.ask(now, told).map(Action::List).map(Next::Do)),
            Phase::Watching(watch) => {
                if let Some(begin) = watch.begin {
                    if now >= begin {
                        (watch.begin, watch.alive, watch.proven) = (None, now, now);
                        watch.progress = 0;
                        self.next.push_back(Next::Do(Action::Watch(told + 1)));
                    }
                } else if now >= watch.alive + self.timing.silence {
                    self.again(now, "it was silent for too long".to_owned());
                } else if now >= watch.proven + self.timing.silence && self.heart.error.is_none() {
                    self.again(now, "it stays behind what a quorum knows".to_owned());
                }
                self.compare(now);
            }
        }
    }

    /// What an answer, or none, says of etcd's health.
    fn note(&mut self, pulse: Result<Pulse, String>) -> Option<(Pulse, u64)> {
        // One that is too late for its question.
        let (asked, told) = self.heart.asked.take()?;
        // Packets wait for who catches up.
        let often = match self.phase {
            Phase::Watching(_) if self.complete.is_none() => CATCHING_UP,
            _ => 1,
        };
        self.heart.next = asked + self.timing.pulse / often;
        match pulse {
            Ok(pulse) => {
                self.heart.answered = Some((asked, pulse.revision));
                self.heart.error = None;
                Some((pulse, told))
            }
            Err(error) => {
                self.heart.error = Some(error);
                None
            }
        }
    }

    fn watch(&mut self, now: Duration) {
        self.phase = Phase::Watching(Watch {
            alive: now,
            proven: now,
            begin: Some(now),
            progress: 0,
        });
    }

    fn events(&mut self, now: Duration, pairs: Vec<Pair>) {
        let Phase::Watching(_) = self.phase else { return };
        let Some(last) = pairs.iter().map(|pair| pair.revision).max() else {
            return;
        };
        if let Some(old) = pairs.iter().find(|pair| pair.revision <= self.told) {
            let (old, told) = (old.revision, self.told);
            return self.reject(format!("it tells of revision {old} after {told}"));
        }
        if self.reject_if_other_fleet(&pairs) {
            return;
        }
        if let Some(comparison) = &mut self.comparison {
            let keys = pairs
                .iter()
                .filter_map(|pair| Some((Key::parse(&pair.key)?, pair.revision)));
            comparison.touched.extend(keys);
        }
        let items = self.read(&pairs);
        self.told = last;
        self.act(Action::Tell(Tell::Items { items, compare: false }));
        self.act(Action::Tell(Tell::Revision(last)));
        self.prove(now, last);
    }

    /// What pairs say. One that cannot be read changes nothing, but for ports that nothing is known of.
    fn read(&mut self, pairs: &[Pair]) -> Vec<Item> {
        let mut items = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let Some(key) = Key::parse(&pair.key) else { continue };
            match Item::read(key, pair.value.as_deref()) {
                Ok(item) => {
                    self.damaged.remove(&key);
                    self.newer.remove(&key);
                    items.push(item);
                }
                Err(reason) => {
                    self.counts.damaged += 1;
                    let is_newer = pair.value.as_deref().is_some_and(|value| value::is_newer(key, value));
                    let is_news = match is_newer {
                        true => {
                            self.damaged.remove(&key);
                            self.newer.insert(key)
                        }
                        false => {
                            self.newer.remove(&key);
                            self.damaged.insert(key)
                        }
                    };
                    if is_news {
                        // Health names the key, which says where a tenant is.
                        let (kind, revision) = (key.kind(), pair.revision);
                        tracing::error!(
                            kind,
                            revision,
                            reason,
                            "a value in etcd cannot be read; what was known holds"
                        );
                    }
                    if let Key::Ports(block) = key {
                        items.push(Item::DamagedPorts(block));
                    }
                }
            }
        }
        items
    }

    fn listed(&mut self, now: Duration, listed: Result<Page, Failed>) {
        let page = match listed {
            Ok(page) => page,
            Err(failed) => {
                let pause = self.pause();
                match (&mut self.phase, &mut self.comparison, failed) {
                    (Phase::Listing(listing), _, Failed::Compacted) => {
                        let (least, took) = (listing.least, listing.took);
                        self.counts.relisted += 1;
                        self.list(now, least, Some(took));
                    }
                    (Phase::Listing(listing), ..) => listing.retry(now + pause),
                    (_, Some(comparison), Failed::Other(_)) => comparison.listing.retry(now + pause),
                    // Another time, and no sooner because of it: where it is compacted, etcd has enough to do.
                    _ => self.compare_later(now, self.pages),
                }
                return;
            }
        };
        self.tries = 0;
        if matches!(self.phase, Phase::Listing(_)) {
            self.listed_all(now, page);
        } else if let Some(comparison) = &mut self.comparison {
            if comparison.listing.revision.is_some() {
                return self.compared(now, page);
            }
            if page.revision < comparison.listing.least {
                return self.reject(format!("its revision went back to {}", page.revision));
            }
            comparison.held = Some(page);
            self.prove(now, self.told);
        }
    }
}

/// The kinds of keys that are listed, in their order.
const fn kinds() -> [&'static str; 3] {
    KINDS
}

#[cfg(test)]
pub(crate) mod tests;
