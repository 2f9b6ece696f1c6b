//! A list of everything, page after page, as of one revision.
//!
//! etcd looks at every key of the range that it is asked for, however few it is to bring (3.4 even makes a list of them): pages
//! of all that there is would cost it the square of that. So a page is asked for within some networks only, about twice as many
//! as the last one took.

use std::collections::HashSet;
use std::time::Duration;

use super::{Action, Next, Page, Pages, Pair, Phase, Sync, Tell, kinds};
use crate::fleet::chance::Chance;
use crate::fleet::key::Key;

/// Networks of the first range of a kind.
const FIRST: u32 = 1024;
/// By how much a range grows in which there was not enough for a page.
const GROWTH: u32 = 16;
/// Networks that there can be.
const ALL: u32 = 1 << 24;
/// How often the size of a page is halved at the most.
const SMALLEST: u32 = 5;

/// How often in a row the time doubles by which a list is put off.
const DOUBLED: u32 = 3;

/// Lists one after the other that were in vain: what they list, or what was to be watched after them, was compacted first. Where many list at a time each takes
/// longer, perhaps than history is kept, and all of them would begin anew for ever. So some wait until others are through.
#[derive(Debug, Default)]
pub(super) struct Vain {
    times: u32,
    /// What a list took that has ended, until it is known that nothing is missing behind it.
    pub(super) took: Option<Duration>,
}

impl Vain {
    /// How long to wait before the next list, behind one that took so long and was in vain; None: there was none.
    pub(super) fn wait(&mut self, took: Option<Duration>, chance: &mut Chance) -> Duration {
        let Some(took) = took else { return Duration::ZERO };
        self.times = (self.times + 1).min(DOUBLED);
        let wait = chance.up_to(took * (1 << self.times));
        tracing::warn!(
            took = took.as_secs_f64(),
            wait = wait.as_secs_f64(),
            "what was listed was compacted before all was told; etcd is to keep its history for longer than a list takes"
        );
        wait
    }
}

#[derive(Debug)]
pub(crate) struct Listing {
    /// As of which revision; None before the first page.
    pub(super) revision: Option<u64>,
    /// Less than that is not believed.
    pub(super) least: u64,
    kind: usize,
    after: Option<Vec<u8>>,
    /// The network that the range begins in, how many it takes, and the one that it ends before.
    from: u32,
    networks: u32,
    /// How often the size of pages was halved, for they were late.
    smaller: u32,
    seen: HashSet<Key>,
    /// Groups and ports that were listed: they are told together.
    policy: Vec<Pair>,
    /// Pages that were taken.
    pub(super) pages: u32,
    /// For how long pages were waited for that came.
    pub(super) took: Duration,
    asked: Duration,
    /// When the next page is asked for; None: it was.
    due: Option<Duration>,
}

impl Listing {
    /// Not begun.
    pub(crate) fn new(least: u64) -> Self {
        Self {
            revision: None,
            least,
            kind: 0,
            after: None,
            from: 0,
            networks: FIRST,
            smaller: 0,
            seen: HashSet::new(),
            policy: Vec::new(),
            pages: 0,
            took: Duration::ZERO,
            asked: Duration::ZERO,
            due: Some(Duration::ZERO),
        }
    }

    /// Begins then.
    pub(super) const fn not_before(mut self, at: Duration) -> Self {
        self.due = Some(at);
        self
    }

    pub(crate) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Asks for the same page again, at a time, and for less of it: where an answer is late because many ask, as much again
    /// would be late again.
    pub(crate) fn retry(&mut self, at: Duration) {
        self.due = Some(at);
        self.smaller = (self.smaller + 1).min(SMALLEST);
    }

    /// The network that the range ends before. None: it has all that there is of its kind.
    fn end(&self) -> Option<u32> {
        // Groups are in no network, and few.
        let end = self.from.saturating_add(self.networks);
        (self.kind > 0 && end < ALL).then_some(end)
    }

    fn before(&self) -> Option<Vec<u8>> {
        let kind = *kinds().get(self.kind)?;
        self.end().map(|end| format!("{kind}{end:06x}").into_bytes())
    }

    /// Asks for the next page if it is time. `told`: what was told by now, which the first page cannot be older than.
    pub(crate) fn ask(&mut self, now: Duration, told: u64) -> Option<Pages> {
        if now < self.due? {
            return None;
        }
        self.due = None;
        self.asked = now;
        if self.revision.is_none() {
            self.least = self.least.max(told);
        }
        Some(Pages {
            kind: kinds().get(self.kind)?,
            after: self.after.clone(),
            before: self.before(),
            smaller: self.smaller,
            revision: self.revision,
        })
    }

    /// All that comes from now on is of neighbours.
    pub(super) fn is_at_neighbors(&self) -> bool {
        self.kind + 1 >= kinds().len()
    }

    /// Keeps what a page, which was just taken, has of groups and ports. With the last of these, all of them.
    pub(super) fn policy(&mut self, pairs: Vec<Pair>) -> Option<Vec<Pair>> {
        self.policy.extend(pairs);
        self.is_at_neighbors().then(|| std::mem::take(&mut self.policy))
    }

    /// Takes a page. With the last one, the revision and all keys.
    pub(crate) fn take(&mut self, now: Duration, page: &Page) -> Option<(u64, HashSet<Key>)> {
        let revision = *self.revision.get_or_insert(page.revision);
        self.pages += 1;
        self.took += now.saturating_sub(self.asked);
        self.smaller = self.smaller.saturating_sub(1);
        self.seen
            .extend(page.pairs.iter().filter_map(|pair| Key::parse(&pair.key)));
        if page.more {
            if let Some(last) = page.pairs.last() {
                self.after = Some(last.key.clone());
                let network = Key::parse(&last.key).and_then(Key::network).unwrap_or(self.from);
                self.networks = network.saturating_sub(self.from).saturating_add(1).saturating_mul(2);
                self.from = network;
            }
        } else if let (Some(end), Some(before)) = (self.end(), self.before()) {
            self.after = Some(before);
            self.networks = self.networks.saturating_mul(GROWTH);
            self.from = end;
        } else {
            self.after = None;
            self.kind += 1;
            (self.from, self.networks) = (0, FIRST);
        }
        self.due = Some(Duration::ZERO);
        (self.kind == kinds().len()).then(|| (revision, std::mem::take(&mut self.seen)))
    }
}

impl Sync {
    /// A page of all that there is, to be told.
    pub(super) fn listed_all(&mut self, now: Duration, page: Page) {
        let Phase::Listing(listing) = &mut self.phase else {
            return;
        };
        if listing.revision.is_none() {
            if page.revision < listing.least {
                let least = listing.least;
                return self.reject(format!("its revision went back from {least} to {}", page.revision));
            }
            self.next.push_back(Next::Do(Action::Tell(Tell::Begin)));
        }
        let of_neighbors = listing.is_at_neighbors();
        let done = listing.take(now, &page);
        let (pages, took) = (listing.pages, listing.took);
        let read = match of_neighbors {
            true => Some(Next::Read(page.pairs)),
            false => listing.policy(page.pairs).map(Next::ReadPolicy),
        };
        if done.is_none() {
            let next = listing.ask(now, self.told);
            self.next.extend(next.map(Action::List).map(Next::Do));
        }
        self.next.extend(read);
        if let Some((revision, keep)) = done {
            self.act(Action::Tell(Tell::Sweep { keep, compare: false }));
            self.act(Action::Tell(Tell::Revision(revision)));
            self.told = revision;
            self.complete = Some(revision);
            self.vain.took = Some(took);
            self.watch(now);
            self.compare_later(now, pages);
        }
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
