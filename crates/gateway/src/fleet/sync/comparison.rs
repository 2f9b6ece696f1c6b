//! Everything that etcd holds, listed beside the watch and compared with what was told.

use std::collections::HashMap;
use std::time::Duration;

use super::listing::Listing;
use super::{Action, Next, PAGES, Page, Pair, Sync, Tell};
use crate::fleet::key::Key;

/// A comparison that is under way.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) listing: Listing,
    /// Changed since it began, and when.
    pub(super) touched: HashMap<Key, u64>,
    /// The first page, until the watch is as far.
    pub(super) held: Option<Page>,
    /// Since when it is.
    pub(super) reached: Option<Duration>,
}

impl Sync {
    /// A list of what its copy holds would be of so many pages: the first comparison is as much later as those after it. Of many that
    /// start at the same time not all compare at once.
    #[must_use]
    pub fn with_pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self.compare_at = self.began;
        // A copy does not say which values could not be read.
        if !self.mark.as_ref().is_some_and(|mark| mark.has_unread) {
            self.compare_at += self.chance.up_to(self.between(pages));
        }
        self
    }

    fn between(&self, pages: u32) -> Duration {
        self.timing.compare * (pages / PAGES).max(1)
    }

    /// Not before its time: not when others do it, for they may have started at the same time; and so that all that there is costs no more
    /// than some pages would.
    pub(super) fn compare_later(&mut self, now: Duration, pages: u32) {
        self.comparison = None;
        self.pages = pages;
        let time = self.between(pages);
        let quarter = time / 4;
        self.compare_at = now + time - quarter + self.chance.up_to(2 * quarter);
    }

    /// Begins a comparison when it is time, and goes on with one.
    pub(super) fn compare(&mut self, now: Duration) {
        let told = self.told;
        match &mut self.comparison {
            None if now >= self.compare_at && self.synced.is_some() => {
                self.comparison = Some(Comparison {
                    listing: Listing::new(told),
                    touched: HashMap::new(),
                    held: None,
                    reached: None,
                });
                self.compare(now);
            }
            None => {}
            Some(comparison) => {
                let settled = comparison
                    .reached
                    .is_some_and(|since| now >= since + self.timing.settle);
                if settled && let Some(page) = comparison.held.take() {
                    comparison.reached = None;
                    self.compared(now, page);
                } else if comparison.held.is_none() {
                    let ask = comparison.listing.ask(now, told);
                    self.next.extend(ask.map(Action::List).map(Next::Do));
                }
            }
        }
    }

    /// A page of a comparison, when the watch has told as much. What has changed since is left out.
    pub(super) fn compared(&mut self, now: Duration, page: Page) {
        let Some(comparison) = &mut self.comparison else { return };
        let done = comparison.listing.take(now, &page);
        let pages = comparison.listing.pages;
        let revision = comparison.listing.revision.unwrap_or(page.revision);
        let touched = &comparison.touched;
        let told = self.told;
        let is_newer = |key: &Key| touched.get(key).is_some_and(|changed| *changed > revision);
        let known: Vec<Pair> = (page.pairs.into_iter())
            .filter(|pair| pair.revision <= told && !Key::parse(&pair.key).is_some_and(|key| is_newer(&key)))
            .collect();
        let sweep = done.map(|(_, mut keep)| {
            keep.extend(touched.keys().copied());
            keep
        });
        let items = self.read(&known);
        self.act(Action::Tell(Tell::Items { items, compare: true }));
        if let Some(keep) = sweep {
            self.act(Action::Tell(Tell::Sweep { keep, compare: true }));
            self.counts.compared += 1;
            self.compare_later(now, pages);
        }
    }
}
