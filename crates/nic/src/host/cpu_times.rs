//! Where each CPU's time went, after `/proc/stat`.

use std::fs;
use std::io;
use std::ops::{Add, Sub};

use serde::Serialize;

use crate::{Error, Result};

/// Time of one CPU by kind, in ticks of `USER_HZ` (almost always 10 ms): see [`CpuTimes::ticks_per_second`].
///
/// The kernel accounts by sampling at its timer tick, unless it was built with precise accounting: over a short
/// span, or for work in step with the tick, the split is coarse.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CpuTime {
    /// Programs of normal priority, guests included.
    pub user: u64,
    /// Programs of lowered priority.
    pub nice: u64,
    /// The kernel on behalf of programs.
    pub system: u64,
    /// Nothing to do.
    pub idle: u64,
    /// Nothing to do while a disk is waited for.
    pub iowait: u64,
    /// Interrupt handlers.
    pub irq: u64,
    /// Software interrupts: most of the network receive path.
    pub softirq: u64,
    /// Taken by the hypervisor for others.
    pub steal: u64,
}

impl CpuTime {
    /// The sum of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.busy() + self.idle + self.iowait + self.steal
    }

    /// The sum of the kinds in which this host did something: all but idle, iowait and steal.
    #[must_use]
    pub fn busy(&self) -> u64 {
        self.user + self.nice + self.system + self.irq + self.softirq
    }

    /// What part of the total a number of ticks is, from 0 to 1; `None` if no tick passed.
    #[must_use]
    pub fn fraction(&self, ticks: u64) -> Option<f64> {
        let total = self.total();
        #[allow(clippy::cast_precision_loss, reason = "2^53 ticks are more than two million years")]
        (total > 0).then(|| ticks as f64 / total as f64)
    }

    fn map2(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            user: f(self.user, other.user),
            nice: f(self.nice, other.nice),
            system: f(self.system, other.system),
            idle: f(self.idle, other.idle),
            iowait: f(self.iowait, other.iowait),
            irq: f(self.irq, other.irq),
            softirq: f(self.softirq, other.softirq),
            steal: f(self.steal, other.steal),
        }
    }
}

impl Add for CpuTime {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.map2(other, u64::saturating_add)
    }
}

impl Sub for CpuTime {
    type Output = Self;

    /// Time that passed since an earlier reading. Never below zero: idle and iowait may run backwards a little
    /// (<https://docs.kernel.org/filesystems/proc.html>).
    fn sub(self, earlier: Self) -> Self {
        self.map2(earlier, u64::saturating_sub)
    }
}

/// Times of all online CPUs at one moment, or between two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CpuTimes {
    /// CPU number and its times, ascending.
    pub cpus: Vec<(u32, CpuTime)>,
}

impl CpuTimes {
    /// Reads the times since boot.
    ///
    /// # Errors
    ///
    /// [`Error::File`] without a mounted procfs.
    pub fn read() -> Result<Self> {
        let path = "/proc/stat";
        let text = fs::read_to_string(path).map_err(|source| Error::file("read", path, source))?;
        let times = Self::parse(&text);
        if times.cpus.is_empty() {
            return Err(Error::file("understand", path, io::Error::other("no CPU in it")));
        }
        Ok(times)
    }

    /// What passed since an earlier reading. CPUs that were not online at both moments are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let passed = |(cpu, now): &(u32, CpuTime)| earlier.cpu(*cpu).map(|then| (*cpu, *now - then));
        Self {
            cpus: self.cpus.iter().filter_map(passed).collect(),
        }
    }

    /// The times of one CPU; `None` if it is not online.
    #[must_use]
    pub fn cpu(&self, number: u32) -> Option<CpuTime> {
        self.cpus.iter().find(|(cpu, _)| *cpu == number).map(|(_, time)| *time)
    }

    /// The sum over all CPUs.
    #[must_use]
    pub fn sum(&self) -> CpuTime {
        self.cpus.iter().fold(CpuTime::default(), |sum, (_, time)| sum + *time)
    }

    /// Ticks in a second.
    #[doc(alias = "USER_HZ")]
    #[must_use]
    pub fn ticks_per_second() -> u64 {
        rustix::param::clock_ticks_per_second()
    }

    fn parse(text: &str) -> Self {
        let cpu = |line: &str| {
            let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
            // The line of the sum has no number: its first field is a time, and the line begins with a space.
            if line.as_bytes().get(3) == Some(&b' ') {
                return None;
            }
            let number = fields.next()?.parse().ok()?;
            let mut next = || fields.next().and_then(|field| field.parse().ok());
            let time = CpuTime {
                user: next()?,
                nice: next()?,
                system: next()?,
                idle: next()?,
                iowait: next()?,
                irq: next()?,
                softirq: next()?,
                // Guests' time, which follows, is contained in user and nice.
                steal: next()?,
            };
            Some((number, time))
        };
        Self {
            cpus: text.lines().filter_map(cpu).collect(),
        }
    }
}

#[cfg(test)]
#[path = "cpu_times_tests.rs"]
mod tests;
