//! A list of everything, page after page, as of one revision.
//!
//! etcd looks at every key of the range that it is asked for, however few it is to bring (3.4 even makes a list of them): pages
//! of all that there is would cost it the square of that. So a page is asked for within some networks only, about twice as many
//! as the last one took.

use std::collections::HashSet;
use std::time::Duration;

use super::{Action, Page, kinds};
use crate::fleet::key::Key;

/// Networks of the first range of a kind.
const FIRST: u32 = 1024;
/// By how much a range grows in which there was not enough for a page.
const GROWTH: u32 = 16;
/// Networks that there can be.
const ALL: u32 = 1 << 24;
/// How often the size of a page is halved at the most.
const SMALLEST: u32 = 5;

#[derive(Debug)]
pub(super) struct Listing {
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
    /// Pages that were taken.
    pub(super) pages: u32,
    /// When the next page is asked for; None: it was.
    due: Option<Duration>,
}

impl Listing {
    /// Not begun.
    pub(super) fn new(least: u64) -> Self {
        Self {
            revision: None,
            least,
            kind: 0,
            after: None,
            from: 0,
            networks: FIRST,
            smaller: 0,
            seen: HashSet::new(),
            pages: 0,
            due: Some(Duration::ZERO),
        }
    }

    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Asks for the same page again, at a time, and for less of it: where an answer is late because many ask, as much again
    /// would be late again.
    pub(super) fn retry(&mut self, at: Duration) {
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
    pub(super) fn ask(&mut self, now: Duration, told: u64) -> Option<Action> {
        if now < self.due? {
            return None;
        }
        self.due = None;
        if self.revision.is_none() {
            self.least = self.least.max(told);
        }
        Some(Action::List {
            kind: kinds().get(self.kind)?,
            after: self.after.clone(),
            before: self.before(),
            smaller: self.smaller,
            revision: self.revision,
        })
    }

    /// Takes a page. With the last one, the revision and all keys.
    pub(super) fn take(&mut self, page: &Page) -> Option<(u64, HashSet<Key>)> {
        let revision = *self.revision.get_or_insert(page.revision);
        self.pages += 1;
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

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
