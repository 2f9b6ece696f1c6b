//! A clock for a packet's way: the CPU's counter, which follows CLOCK_MONOTONIC and is checked against it.

use std::fs;

use super::follow::{Follower, Lost};
use super::{Monotonic, Offset, Timestamp, Tsc, sys};

/// Reads CLOCK_MONOTONIC through the CPU's time stamp counter (TSC), at about half the price of `clock_gettime()`.
///
/// ```
/// use ringside_nic::clock::{FastClock, Monotonic, Timestamp};
///
/// let mut clock = FastClock::new(); // takes two milliseconds
/// let begin = clock.now();
/// let took = clock.now() - begin; // nanoseconds
/// assert!(took >= 0);
/// println!("{:?}, within {} ns of CLOCK_MONOTONIC", clock.source(), clock.bound_ns());
/// ```
///
/// Its times are [`Tsc`]'s and not CLOCK_MONOTONIC's: what leads from one to the other, and how wrong it may be, tells
/// [`offset`](Self::offset).
///
/// # How good it is
///
/// The rate is measured when it is made, and again while it is used: every 100 µs a reading is also a comparison with
/// CLOCK_MONOTONIC, from which the clock goes on (some 100 ns of work, a thousandth of the time). In between the kernel
/// may correct its own clock otherwise than before, by 2000 ppm at the most, which is 200 ns. So
/// [`bound_ns`](Self::bound_ns) is 200 to 300 ns, mostly for that, and [`worst_ns`](Self::worst_ns) is what the comparisons
/// have really found.
///
/// A comparison that finds more than is possible ends it (a counter that goes wrong, or a time server that moves the kernel's
/// clock faster than NTP does): from there on it reads the kernel's clock, as it does from
/// the start where the counter has no fixed rate (CPUID), the kernel does not trust it (its clock source is another one),
/// or the CPU is no x86-64. [`source`](Self::source) tells.
///
/// Times of one `FastClock` never go back. It belongs to one thread; two of them agree within their bounds.
#[derive(Debug, Clone)]
pub struct FastClock {
    follower: Follower,
    source: FastSource,
    /// It has read the counter.
    was_calibrated: bool,
    /// What was returned last.
    last_ns: u64,
}

/// What a [`FastClock`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FastSource {
    /// The time stamp counter.
    Tsc {
        /// Its rate.
        hz: u64,
    },
    /// CLOCK_MONOTONIC itself.
    Kernel {
        /// Why.
        reason: String,
    },
}

/// Tries to read the kernel's clock without being interrupted in between.
const ATTEMPTS: usize = 5;

impl FastClock {
    /// Calibrates one, for about two milliseconds, in which the CPU is busy.
    #[must_use]
    pub fn new() -> Self {
        match unusable() {
            Some(reason) => Self::of_kernel(reason),
            None => Self::calibrated(),
        }
    }

    /// One that reads CLOCK_MONOTONIC itself, say to compare.
    #[must_use]
    pub fn kernel() -> Self {
        Self::of_kernel("it was asked for".to_owned())
    }

    fn of_kernel(reason: String) -> Self {
        Self {
            follower: Follower::idle(),
            source: FastSource::Kernel { reason },
            was_calibrated: false,
            last_ns: 0,
        }
    }

    fn calibrated() -> Self {
        let mut follower = Follower::idle();
        loop {
            let (before, ns, after) = compare();
            match follower.calibrate(before, ns, after) {
                Ok(Some(hz)) => {
                    return Self {
                        follower,
                        source: FastSource::Tsc { hz },
                        was_calibrated: true,
                        last_ns: ns,
                    };
                }
                Ok(None) => std::hint::spin_loop(),
                Err(lost) => return Self::of_kernel(lost.to_string()),
            }
        }
    }

    /// The time. The CPU may take it some tens of nanoseconds before instructions in front of it are done.
    #[inline]
    pub fn now(&mut self) -> Timestamp<Tsc> {
        self.at(sys::counter())
    }

    /// The time, not before all loads in front of it are done, such as that of a packet's descriptor: as the kernel's
    /// clocks do it, and almost as dear.
    #[inline]
    pub fn now_in_order(&mut self) -> Timestamp<Tsc> {
        self.at(sys::counter_in_order())
    }

    #[inline]
    fn at(&mut self, count: u64) -> Timestamp<Tsc> {
        let ns = match self.follower.estimate(count) {
            Some(ns) => ns,
            None => self.check(),
        };
        self.last_ns = self.last_ns.max(ns);
        Timestamp::from_nanos(self.last_ns)
    }

    /// Compares with the kernel's clock, and returns that.
    #[cold]
    fn check(&mut self) -> u64 {
        if matches!(self.source, FastSource::Kernel { .. }) {
            return Timestamp::<Monotonic>::now().as_nanos();
        }
        let (before, ns, after) = compare();
        if let Err(lost) = self.follower.observe(before, ns, after) {
            self.source = FastSource::Kernel {
                reason: lost.to_string(),
            };
        }
        ns
    }

    /// What it reads.
    #[must_use]
    pub fn source(&self) -> &FastSource {
        &self.source
    }

    /// Why it reads the counter no more: a comparison has found more than is possible, and since then its times are those of the
    /// kernel's clock. `None` where it reads the counter, or never did.
    #[must_use]
    pub fn lost(&self) -> Option<&str> {
        match &self.source {
            FastSource::Kernel { reason } if self.was_calibrated => Some(reason),
            _ => None,
        }
    }

    /// How far a time of it may be from CLOCK_MONOTONIC, in nanoseconds; 0 where it is CLOCK_MONOTONIC. The largest bound
    /// of all times that it gave until now.
    #[must_use]
    pub fn bound_ns(&self) -> u64 {
        self.follower.bound_ns()
    }

    /// How far the comparisons have found it from CLOCK_MONOTONIC at the most, in nanoseconds: it was at least so far.
    #[must_use]
    pub fn worst_ns(&self) -> u64 {
        self.follower.worst_ns()
    }

    /// How often it was compared with CLOCK_MONOTONIC.
    #[must_use]
    pub fn checks(&self) -> u64 {
        self.follower.checks()
    }

    /// From its times to CLOCK_MONOTONIC: no distance, give or take the bound.
    #[must_use]
    pub fn offset(&self) -> Offset<Tsc, Monotonic> {
        Offset::new(0, self.bound_ns(), Timestamp::from_nanos(self.last_ns))
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

/// The kernel's clock between two readings of the counter, as close as it can be had.
fn compare() -> (u64, u64, u64) {
    let one = || {
        let before = sys::counter_in_order();
        let ns = Timestamp::<Monotonic>::now().as_nanos();
        (before, ns, sys::counter_in_order())
    };
    let mut best = one();
    for _ in 1..ATTEMPTS {
        // Nothing came in between: further tries would only cost.
        if best.2.wrapping_sub(best.0) < CLOSE {
            break;
        }
        let next = one();
        if next.2.wrapping_sub(next.0) <= best.2.wrapping_sub(best.0) {
            best = next;
        }
    }
    best
}

/// Cycles that a comparison takes without an interruption: below a microsecond on any CPU.
const CLOSE: u64 = 1_000;

/// Why the counter is none to go by.
fn unusable() -> Option<String> {
    if !sys::counter_is_invariant() {
        return Some("this CPU has no time stamp counter of constant rate".to_owned());
    }
    // The kernel knows whether the counters of all CPUs agree, and watches its own choice.
    match fs::read_to_string(crate::host::CLOCKSOURCE) {
        Ok(source) if source.trim() == "tsc" => None,
        Ok(source) => Some(format!(
            "the kernel's own clock source is {} and not tsc",
            source.trim()
        )),
        Err(error) => Some(format!(
            "what the kernel trusts cannot be read: {}: {error}",
            crate::host::CLOCKSOURCE
        )),
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Apart { off_ns, allowed_ns } => write!(
                f,
                "the time stamp counter went {off_ns} ns apart from CLOCK_MONOTONIC, where {allowed_ns} ns are possible"
            ),
            Self::NoRate => f.write_str("the time stamp counter has no rate that a CPU can have"),
        }
    }
}

#[cfg(test)]
#[path = "fast_tests.rs"]
mod tests;
