//! How much of what costs others is sent in a second.

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
