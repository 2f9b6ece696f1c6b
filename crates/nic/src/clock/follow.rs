//! How a counter follows a clock: arithmetic only, fed with readings.
//!
//! ```text
//!   clock ns │                        ╱· next comparison: what was predicted here against what the clock shows
//!            │                   ╱·
//!            │              ╱·          the rate is that from `reference` to the last comparison
//!            │  base ──▶ ·              100 µs later the next is due
//!            │      ╱·
//!            │  · reference             0.1 to 0.2 s ago, once it runs for so long
//!            └──────────────────────── counter
//! ```

/// Times between comparisons are estimated.
#[derive(Debug, Clone)]
pub(super) struct Follower {
    /// What estimates start from.
    base: Anchor,
    /// Nanoseconds a count, times 2³².
    rate: u64,
    /// Counts from the base on for which there are estimates; 0: none.
    span: u64,
    rate_error_ppb: u64,
    reference: Option<Anchor>,
    /// The next reference, when it is old enough.
    candidate: Anchor,
    bound_ns: u64,
    worst_ns: u64,
    checks: u64,
}

/// The clock showed `ns`, give or take the uncertainty, when the counter was at `count`.
#[derive(Debug, Clone, Copy, Default)]
struct Anchor {
    count: u64,
    ns: u64,
    uncertainty_ns: u64,
}

/// The counter is none to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    /// It is further from the clock than any correction of the clock can explain.
    Apart { off_ns: u64, allowed_ns: u64 },
    /// It does not count as a CPU's.
    NoRate,
}

/// Time between comparisons.
const SPAN_NS: u64 = 100_000;

/// For how long the first rate is measured.
const CALIBRATION_NS: u64 = 2_000_000;

/// For how long it is tried.
const PATIENCE_NS: u64 = 200_000_000;

/// How old the reference is at least, once there has been time enough.
const BASELINE_NS: u64 = 100_000_000;

/// How much the clock's rate may change: from the largest correction in one direction to the largest in the other, see
/// `MOST_CORRECTION_PPB`.
const MOST_CHANGE_PPB: u64 = 2 * super::MOST_CORRECTION_PPB as u64;

/// Slower or faster is no CPU's counter.
const RATES_HZ: std::ops::RangeInclusive<u64> = 10_000_000..=100_000_000_000;

const BILLION: u128 = 1_000_000_000;

impl Follower {
    /// One that estimates nothing yet.
    pub(super) fn idle() -> Self {
        Self {
            base: Anchor::default(),
            rate: 0,
            span: 0,
            rate_error_ppb: 0,
            reference: None,
            candidate: Anchor::default(),
            bound_ns: 0,
            worst_ns: 0,
            checks: 0,
        }
    }

    /// What the clock shows at this count; `None` when a comparison is due.
    #[inline]
    pub(super) fn estimate(&self, count: u64) -> Option<u64> {
        // One from before the base, which another CPU's counter may show, is far ahead here.
        let passed = count.wrapping_sub(self.base.count);
        // Below 2^64: see `span_of`.
        (passed < self.span).then(|| self.base.ns + (passed.wrapping_mul(self.rate) >> 32))
    }

    /// Takes a reading of the clock between two of the counter, until the rate is known: then it is told, in counts a second.
    pub(super) fn calibrate(&mut self, before: u64, ns: u64, after: u64) -> Result<Option<u64>, Lost> {
        let width = after.wrapping_sub(before);
        let count = before.wrapping_add(width / 2);
        let Some(first) = &self.reference else {
            // Its uncertainty has to wait for the rate: until then it is in counts.
            self.reference = Some(Anchor {
                count,
                ns,
                uncertainty_ns: width,
            });
            return Ok(None);
        };
        let baseline = ns.saturating_sub(first.ns);
        if baseline < CALIBRATION_NS {
            return Ok(None);
        }
        let rate = rate(first, count, ns).ok_or(Lost::NoRate)?;
        let hz = (BILLION << 32) / u128::from(rate);
        let hz = u64::try_from(hz).map_err(|_| Lost::NoRate)?;
        if !RATES_HZ.contains(&hz) {
            return Err(Lost::NoRate);
        }
        let first = Anchor {
            uncertainty_ns: half(first.uncertainty_ns, rate),
            ..*first
        };
        let now = Anchor {
            count,
            ns,
            uncertainty_ns: half(width, rate),
        };
        // Interrupted at one of its ends: longer, it matters less.
        if first.uncertainty_ns + now.uncertainty_ns > baseline / 1_000 {
            return if baseline < PATIENCE_NS {
                Ok(None)
            } else {
                Err(Lost::NoRate)
            };
        }
        self.reference = Some(first);
        self.candidate = now;
        self.go_on_from(first, now, rate);
        Ok(Some(hz))
    }

    /// Takes a reading of the clock between two of the counter, compares, and goes on from there.
    pub(super) fn observe(&mut self, before: u64, ns: u64, after: u64) -> Result<(), Lost> {
        let Some(reference) = self.reference else { return Ok(()) };
        let width = after.wrapping_sub(before);
        // The thread went to a CPU whose counter is behind: such a comparison tells nothing, and the next is due at once.
        if width > u64::MAX / 2 {
            return Ok(());
        }
        self.checks += 1;
        let mut now = Anchor {
            count: before.wrapping_add(width / 2),
            ns,
            uncertainty_ns: half(width, self.rate),
        };
        // From a base that is ahead of it the difference is below zero.
        let passed = now.count.wrapping_sub(self.base.count).cast_signed();
        let passed_ns = (i128::from(passed) * i128::from(self.rate)) >> 32;
        let predicted = i128::from(self.base.ns) + passed_ns;
        let off_ns = u64::try_from((i128::from(ns) - predicted).unsigned_abs()).unwrap_or(u64::MAX);
        let passed_ns = u64::try_from(passed_ns.unsigned_abs()).unwrap_or(u64::MAX);
        let of_prediction = self.base.uncertainty_ns.saturating_add(self.may_drift(passed_ns));
        let allowed_ns = now.uncertainty_ns.saturating_add(of_prediction);
        if off_ns > allowed_ns {
            self.span = 0;
            return Err(Lost::Apart { off_ns, allowed_ns });
        }
        // What was predicted for long after the span nobody was given.
        if passed_ns <= 2 * SPAN_NS {
            self.worst_ns = self.worst_ns.max(off_ns.saturating_sub(now.uncertainty_ns));
        }
        // Interrupted: what was predicted is the better reading.
        if of_prediction < now.uncertainty_ns
            && let Ok(ns) = u64::try_from(predicted)
        {
            now.ns = ns;
            now.uncertainty_ns = of_prediction;
        }
        let ns = now.ns;
        let reference = match ns.saturating_sub(self.candidate.ns) < BASELINE_NS {
            true => reference,
            false => {
                let next = std::mem::replace(&mut self.candidate, now);
                self.reference = Some(next);
                next
            }
        };
        if let Some(rate) = rate(&reference, now.count, ns) {
            self.go_on_from(reference, now, rate);
        }
        Ok(())
    }

    fn go_on_from(&mut self, reference: Anchor, now: Anchor, rate: u64) {
        let baseline = u128::from(now.ns.saturating_sub(reference.ns).max(1));
        let ends = u128::from(reference.uncertainty_ns + now.uncertainty_ns);
        self.rate_error_ppb = u64::try_from(ends * BILLION / baseline).unwrap_or(u64::MAX);
        self.base = now;
        self.rate = rate;
        self.span = span_of(rate);
        // One more for what the division cuts off.
        let bound = now.uncertainty_ns.saturating_add(self.may_drift(SPAN_NS)) + 1;
        self.bound_ns = self.bound_ns.max(bound);
    }

    /// What estimate and clock can come apart by in such a time.
    fn may_drift(&self, ns: u64) -> u64 {
        let ppb = u128::from(MOST_CHANGE_PPB) + u128::from(self.rate_error_ppb);
        u64::try_from((u128::from(ns) * ppb).div_ceil(BILLION)).unwrap_or(u64::MAX / 2)
    }

    pub(super) fn bound_ns(&self) -> u64 {
        self.bound_ns
    }

    pub(super) fn worst_ns(&self) -> u64 {
        self.worst_ns
    }

    pub(super) fn checks(&self) -> u64 {
        self.checks
    }
}

/// Nanoseconds a count, times 2³², from there to here; `None` where either stands still or goes back.
fn rate(from: &Anchor, count: u64, ns: u64) -> Option<u64> {
    let counts = count.wrapping_sub(from.count);
    let ns = ns.checked_sub(from.ns)?;
    if ns == 0 || counts == 0 || counts > u64::MAX / 2 {
        return None;
    }
    u64::try_from((u128::from(ns) << 32) / u128::from(counts))
        .ok()
        .filter(|rate| *rate != 0)
}

/// Half of so many counts in nanoseconds, and one for what a reading cuts off.
fn half(counts: u64, rate: u64) -> u64 {
    let ns = (u128::from(counts) * u128::from(rate)) >> 33;
    u64::try_from(ns).unwrap_or(u64::MAX / 4).saturating_add(2)
}

/// Counts in [`SPAN_NS`]. Times the rate that is `SPAN_NS` × 2³², far below 2⁶⁴, so products need no more than 64 bits.
fn span_of(rate: u64) -> u64 {
    (SPAN_NS << 32) / rate
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
