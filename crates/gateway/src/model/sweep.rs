//! The end of a list: what has no key that was listed goes. It is done part by part, for each neighbour is looked at, and what comes
//! meanwhile is not to wait for all of them.

use std::collections::HashSet;
use std::time::Duration;

use ringside_gateway_core::table::Neighbors;

use super::book::{Book, Made};
use crate::fleet::key::Key;
use crate::fleet::sync::Mark;

/// A sweep that is under way.
#[derive(Debug)]
pub(super) struct Sweep {
    /// What was listed, and what was told since.
    keep: HashSet<Key>,
    compare: bool,
    /// Parts that are done; the first one is all that is no neighbour.
    done: usize,
    /// What a comparison had to put right.
    diverged: usize,
    /// What the tables have when it is over.
    reached: Option<(u64, Option<Mark>)>,
    /// How long the last part took, and for how long others have had the tables since.
    part: Duration,
    waited: Duration,
}

/// What is to be told when it is over.
#[derive(Debug)]
pub(super) struct End {
    pub(super) diverged: usize,
    pub(super) reached: Option<(u64, Option<Mark>)>,
}

impl Sweep {
    pub(super) fn new(keep: HashSet<Key>, compare: bool) -> Self {
        Self {
            keep,
            compare,
            done: 0,
            diverged: 0,
            reached: None,
            part: Duration::ZERO,
            waited: Duration::ZERO,
        }
    }

    /// These were told meanwhile: they are there, or are gone already.
    pub(super) fn keep(&mut self, keys: impl Iterator<Item = Key>) {
        self.keep.extend(keys);
    }

    /// Whether a revision is not yet what the tables have: not at the end of a list, as long as there is something left that was not
    /// listed. It is told with the end.
    pub(super) fn holds_up(&mut self, revision: u64, mark: &Option<Mark>) -> bool {
        if !self.compare {
            self.reached = Some((revision, mark.clone()));
        }
        !self.compare
    }

    /// The next part.
    pub(super) fn part(&mut self, book: &mut Book) -> Vec<Made> {
        let made = match self.done.checked_sub(1) {
            None => book.sweep_policy(&self.keep),
            Some(part) => book.sweep_neighbors(part, &self.keep),
        };
        self.done += 1;
        let made = match self.done > Neighbors::PARTS && !self.compare {
            true => [made, book.forget_unreachable_lost()].concat(),
            false => made,
        };
        self.diverged += if self.compare { made.len() } else { 0 };
        made
    }

    /// What is to be told, if that was the last part.
    pub(super) fn end(&mut self) -> Option<End> {
        (self.done > Neighbors::PARTS).then(|| End {
            diverged: self.diverged,
            reached: self.reached.take(),
        })
    }

    pub(super) const fn took(&mut self, time: Duration) {
        (self.part, self.waited) = (time, Duration::ZERO);
    }

    /// Others have had the tables for so long. True if it is its turn again: it takes half of the time at the most.
    pub(super) fn has_waited(&mut self, time: Duration) -> bool {
        self.waited += time;
        self.waited >= self.part
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
