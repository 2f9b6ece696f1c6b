//! A list of everything, page after page, as of one revision.

use std::collections::HashSet;
use std::time::Duration;

use super::{Action, Page, kinds};
use crate::fleet::key::Key;

#[derive(Debug)]
pub(super) struct Listing {
    /// As of which revision; None before the first page.
    pub(super) revision: Option<u64>,
    /// Less than that is not believed.
    pub(super) least: u64,
    kind: usize,
    after: Option<Vec<u8>>,
    seen: HashSet<Key>,
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
            seen: HashSet::new(),
            due: Some(Duration::ZERO),
        }
    }

    pub(super) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Asks for the same page again, at a time.
    pub(super) const fn retry(&mut self, at: Duration) {
        self.due = Some(at);
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
            revision: self.revision,
        })
    }

    /// Takes a page. With the last one, the revision and all keys.
    pub(super) fn take(&mut self, page: &Page) -> Option<(u64, HashSet<Key>)> {
        let revision = *self.revision.get_or_insert(page.revision);
        self.seen
            .extend(page.pairs.iter().filter_map(|pair| Key::parse(&pair.key)));
        if page.more {
            self.after = page.pairs.last().map(|pair| pair.key.clone());
        } else {
            self.after = None;
            self.kind += 1;
        }
        self.due = Some(Duration::ZERO);
        (self.kind == kinds().len()).then(|| (revision, std::mem::take(&mut self.seen)))
    }
}
