//! A time and, in its type, the clock that it was read from.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::marker::PhantomData;
use std::ops::{Add, Sub};
use std::time::Duration;

use super::{Clock, KernelClock, sys};

/// A reading of a clock, in nanoseconds since the clock's zero.
///
/// Two of one clock can be subtracted and compared:
///
/// ```
/// use ringside_nic::clock::{Monotonic, Tai, Timestamp};
///
/// let (a, b) = (Timestamp::<Tai>::from_nanos(1_000), Timestamp::<Tai>::from_nanos(250));
/// assert_eq!(a - b, 750);
/// assert_eq!(b - a, -750);
/// assert!(b < a);
/// let begin = Timestamp::<Monotonic>::now();
/// assert!(Timestamp::now() >= begin);
/// ```
///
/// Two of different clocks cannot:
///
/// ```compile_fail,E0308
/// use ringside_nic::clock::{Monotonic, Tai, Timestamp};
///
/// let (a, b) = (Timestamp::<Tai>::from_nanos(1_000), Timestamp::<Monotonic>::from_nanos(250));
/// let _ = a - b;
/// ```
///
/// ```compile_fail,E0308
/// use ringside_nic::clock::{Monotonic, Tai, Timestamp};
///
/// let (a, b) = (Timestamp::<Tai>::from_nanos(1_000), Timestamp::<Monotonic>::from_nanos(250));
/// let _ = b < a;
/// ```
///
/// Nor does one turn into the other without an [`Offset`](super::Offset):
///
/// ```compile_fail,E0308
/// use ringside_nic::clock::{Monotonic, Tai, Timestamp};
///
/// let a: Timestamp<Monotonic> = Timestamp::<Tai>::now();
/// ```
pub struct Timestamp<C> {
    ns: u64,
    clock: PhantomData<fn() -> C>,
}

impl<C> Timestamp<C> {
    /// A time that is known to be of this clock: from a descriptor, a map, a packet.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self { ns, clock: PhantomData }
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }

    /// The time from `earlier` to this; `None` if that is the later one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Option<Duration> {
        self.ns.checked_sub(earlier.ns).map(Duration::from_nanos)
    }
}

impl<C: KernelClock> Timestamp<C> {
    /// Reads the clock, mostly without a system call (vDSO).
    #[must_use]
    #[inline]
    #[doc(alias = "clock_gettime")]
    pub fn now() -> Self {
        let (seconds, nanos) = sys::gettime(C::ID);
        Self::from_nanos(total(seconds, nanos))
    }

    /// Sleeps until the clock shows this time, or a signal comes. It does not when that is over. Waking up comes on top:
    /// microseconds to milliseconds, see [`WakeUpLimit`](crate::host::WakeUpLimit).
    ///
    /// # Errors
    ///
    /// What `clock_nanosleep()` answers for clocks that cannot be slept by: `EOPNOTSUPP` for CLOCK_MONOTONIC_RAW.
    #[doc(alias = "clock_nanosleep")]
    pub fn sleep_until(self) -> io::Result<()> {
        let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        sys::sleep_until(C::ID, part(self.ns / 1_000_000_000), part(self.ns % 1_000_000_000))
    }
}

/// Times before a clock's zero do not come out of the kernel.
#[inline]
pub(super) fn total(seconds: i64, nanos: i64) -> u64 {
    let part = |value: i64| u64::try_from(value).unwrap_or(0);
    part(seconds).saturating_mul(1_000_000_000).saturating_add(part(nanos))
}

/// Nanoseconds, below zero where the right one is the later. More than 292 years do not fit and saturate.
impl<C> Sub for Timestamp<C> {
    type Output = i64;

    fn sub(self, other: Self) -> i64 {
        match self.ns.checked_sub(other.ns) {
            Some(later) => i64::try_from(later).unwrap_or(i64::MAX),
            None => i64::try_from(other.ns - self.ns).map_or(i64::MIN, |earlier| -earlier),
        }
    }
}

/// Saturates at the end of the clock, after 584 years.
impl<C> Add<Duration> for Timestamp<C> {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self::from_nanos(self.ns.saturating_add(ns))
    }
}

// Derived, these would ask the same of the clock, which is never there.

impl<C> Clone for Timestamp<C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for Timestamp<C> {}

impl<C> PartialEq for Timestamp<C> {
    fn eq(&self, other: &Self) -> bool {
        self.ns == other.ns
    }
}

impl<C> Eq for Timestamp<C> {}

impl<C> PartialOrd for Timestamp<C> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Timestamp<C> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ns.cmp(&other.ns)
    }
}

impl<C> Hash for Timestamp<C> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ns.hash(state);
    }
}

impl<C: Clock> fmt::Debug for Timestamp<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns of {}", self.ns, C::NAME)
    }
}

#[cfg(test)]
#[path = "timestamp_tests.rs"]
mod tests;
