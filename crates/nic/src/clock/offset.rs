//! From one clock to another: how far apart they are, and how well that is known.

use std::fmt;

use super::{Clock, KernelClock, Timestamp};

/// What clock `B` shows more than clock `A`, as it was measured.
///
/// Neither can be read at the very moment of the other. So `B` is read between two readings of `A`: at that moment `A` was
/// somewhere between these two, and the offset is known to half their distance.
///
/// ```text
///   A  ──a1────────────a2──▶        offset      = b − (a1 + a2) / 2
///   B  ────────b───────────▶        uncertainty = (a2 − a1) / 2, and 1 ns for what a reading cuts off
/// ```
///
/// Of several rounds the one with the smallest distance counts: what comes between two readings (an interrupt, the
/// hypervisor) can only make it larger.
///
/// It holds as long as nobody sets one of the clocks: CLOCK_REALTIME and CLOCK_TAI can be set, CLOCK_BOOTTIME goes on while
/// the machine is suspended and CLOCK_MONOTONIC does not. With time the clocks may also drift apart: [`Offset::convert`]
/// adds what that can come to.
pub struct Offset<A, B> {
    delta_ns: i64,
    uncertainty_ns: u64,
    at: Timestamp<A>,
    drift_ppb: u32,
    /// A function from one to the other, which is what it is.
    clocks: std::marker::PhantomData<fn(A) -> B>,
}

/// A time that was carried over from another clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Converted<C: Clock> {
    /// By the new clock.
    pub at: Timestamp<C>,
    /// How far the true time may be from it in either direction, in nanoseconds.
    pub uncertainty_ns: u64,
}

/// Rounds of a measurement. Each takes two or three readings, a hundred nanoseconds or so.
pub(super) const ROUNDS: usize = 17;

impl<A: KernelClock, B: KernelClock> Offset<A, B> {
    /// Measures it now, in some microseconds.
    #[must_use]
    pub fn measure() -> Self {
        let mut best: Option<Self> = None;
        let mut rounds = 0;
        // A round in which a clock was set back counts for nothing.
        while rounds < ROUNDS || best.is_none() {
            let before = Timestamp::<A>::now();
            let between = Timestamp::<B>::now();
            let after = Timestamp::<A>::now();
            best = Self::better(best, Self::bracketed(before, between, after));
            rounds += 1;
        }
        best.expect("the loop ends with one")
    }
}

impl<A: Clock, B: Clock> Offset<A, B> {
    /// From readings in this order; `None` if the first clock went back meanwhile, or the two are more than 292 years apart.
    #[must_use]
    pub fn bracketed(before: Timestamp<A>, between: Timestamp<B>, after: Timestamp<A>) -> Option<Self> {
        let width = after.as_nanos().checked_sub(before.as_nanos())?;
        let middle = before.as_nanos() + width / 2;
        let delta = i128::from(between.as_nanos()) - i128::from(middle);
        Some(Self::new(
            i64::try_from(delta).ok()?,
            width.div_ceil(2) + 1,
            Timestamp::from_nanos(middle),
        ))
    }

    /// `delta_ns` is what `B` shows more than `A`.
    pub(super) fn new(delta_ns: i64, uncertainty_ns: u64, at: Timestamp<A>) -> Self {
        Self {
            delta_ns,
            uncertainty_ns,
            at,
            drift_ppb: A::DRIFT_PPB.saturating_add(B::DRIFT_PPB),
            clocks: std::marker::PhantomData,
        }
    }

    /// The one that is better known.
    pub(super) fn better(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (&a, &b) {
            (Some(known), Some(new)) if new.uncertainty_ns >= known.uncertainty_ns => a,
            (_, Some(_)) => b,
            _ => a,
        }
    }

    /// With another assumption of how far the clocks drift apart: parts in 10⁹, that is nanoseconds a second.
    ///
    /// Without it two corrected clocks of the kernel do not, and a free one may run away by what the kernel corrects at the
    /// most: a microsecond in a millisecond. Whoever disciplines a PHC, or has measured it, knows better.
    #[must_use]
    pub fn with_drift_ppb(self, drift_ppb: u32) -> Self {
        Self { drift_ppb, ..self }
    }

    /// What `B` shows more than `A`, in nanoseconds.
    #[must_use]
    pub fn delta_ns(&self) -> i64 {
        self.delta_ns
    }

    /// How wrong [`delta_ns`](Self::delta_ns) may be in either direction, when it was measured.
    #[must_use]
    pub fn uncertainty_ns(&self) -> u64 {
        self.uncertainty_ns
    }

    /// When it was measured.
    #[must_use]
    pub fn measured_at(&self) -> Timestamp<A> {
        self.at
    }

    /// What `B` showed when `A` showed `time`; `None` outside of what `B` can show.
    #[must_use]
    pub fn convert(&self, time: Timestamp<A>) -> Option<Converted<B>> {
        Some(Converted {
            at: Timestamp::from_nanos(time.as_nanos().checked_add_signed(self.delta_ns)?),
            uncertainty_ns: self.uncertainty_at(time),
        })
    }

    /// The way back; `None` if it was measured before `B`'s zero.
    #[must_use]
    pub fn inverse(&self) -> Option<Offset<B, A>> {
        let at = self.at.as_nanos().checked_add_signed(self.delta_ns)?;
        let inverse = Offset::new(
            self.delta_ns.checked_neg()?,
            self.uncertainty_ns,
            Timestamp::from_nanos(at),
        );
        Some(inverse.with_drift_ppb(self.drift_ppb))
    }

    /// From `A` over `B` to `C`. The uncertainties add up, what the second has drifted since it was measured included.
    /// `None` outside of what the clocks can show.
    #[must_use]
    pub fn then<C: Clock>(&self, next: &Offset<B, C>) -> Option<Offset<A, C>> {
        let between = Timestamp::<B>::from_nanos(self.at.as_nanos().checked_add_signed(self.delta_ns)?);
        let uncertainty = self.uncertainty_ns.saturating_add(next.uncertainty_at(between));
        let whole = Offset::new(self.delta_ns.checked_add(next.delta_ns)?, uncertainty, self.at);
        Some(whole.with_drift_ppb(self.drift_ppb.saturating_add(next.drift_ppb)))
    }

    fn uncertainty_at(&self, time: Timestamp<A>) -> u64 {
        let age = u128::from(time.as_nanos().abs_diff(self.at.as_nanos()));
        let drift = (age * u128::from(self.drift_ppb)).div_ceil(1_000_000_000);
        let drift = u64::try_from(drift).unwrap_or(u64::MAX);
        self.uncertainty_ns.saturating_add(drift)
    }
}

impl<A, B> Clone for Offset<A, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, B> Copy for Offset<A, B> {}

impl<A: Clock, B: Clock> fmt::Debug for Offset<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} at {:?}, drift up to {} ppb", self.at, self.drift_ppb)
    }
}

/// `CLOCK_TAI - CLOCK_MONOTONIC = 37000000123 ns, give or take 21 ns`
impl<A: Clock, B: Clock> fmt::Display for Offset<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} - {} = {} ns, give or take {} ns",
            B::NAME,
            A::NAME,
            self.delta_ns,
            self.uncertainty_ns
        )
    }
}

#[cfg(test)]
#[path = "offset_tests.rs"]
mod tests;
