//! How much of what costs others is sent in a second.

use crate::Vni;

/// Nanoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000;

/// A token bucket that holds what one second gives, and begins full.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    /// How many there are, times [`SECOND`]; more than it can hold at first.
    credit: u64,
    /// When that was so, in nanoseconds.
    since: u64,
}

impl Allowance {
    pub(crate) const FULL: Self = Self {
        credit: u64::MAX,
        since: 0,
    };

    /// Takes one, if there is one, of so many a second.
    pub(crate) fn take(&mut self, now: u64, a_second: u32) -> bool {
        let rate = u64::from(a_second);
        let more = now.saturating_sub(self.since).saturating_mul(rate);
        let credit = self.credit.saturating_add(more).min(rate * SECOND);
        let may = credit >= SECOND;
        self.credit = if may { credit - SECOND } else { credit };
        self.since = now;
        may
    }
}

/// Networks whose numbers differ by a multiple of this share what is one's.
const PLACES: u32 = 1024;
/// How many networks' worth all may have together, beside what is each one's own.
const TOGETHER: u32 = 10;
/// Of what a network may have, one part of so many is its own: nobody else can take it.
const OWN: u32 = 10;

/// What networks draw on. None has more than its rate. All have [`TOGETHER`] times as much together; who finds that used up has the
/// [`OWN`]th part of its rate all the same, whatever the others do.
#[derive(Debug)]
pub(crate) struct Shares {
    together: Allowance,
    networks: Box<[Share]>,
}

#[derive(Debug, Clone, Copy)]
struct Share {
    most: Allowance,
    own: Allowance,
}

impl Shares {
    /// Memory is taken now.
    pub(crate) fn new() -> Self {
        let full = Share {
            most: Allowance::FULL,
            own: Allowance::FULL,
        };
        Self {
            together: Allowance::FULL,
            networks: vec![full; PLACES as usize].into(),
        }
    }

    /// Takes one for a network, if it may have one more of so many a second.
    pub(crate) fn take(&mut self, vni: Vni, now: u64, a_second: u32) -> bool {
        let Some(share) = self.networks.get_mut((vni.number() % PLACES) as usize) else {
            return false;
        };
        let own = (a_second / OWN).max(a_second.min(1));
        share.most.take(now, a_second)
            && (self.together.take(now, a_second.saturating_mul(TOGETHER)) || share.own.take(now, own))
    }
}

#[cfg(test)]
#[path = "allowance_tests.rs"]
mod tests;
