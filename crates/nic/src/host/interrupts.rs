//! How often each CPU was interrupted, after `/proc/interrupts` and `/proc/softirqs`.

use std::fs;
use std::io;

use serde::Serialize;

use crate::{Error, Result};

/// Counters since boot, one for each kind of interrupt and each CPU.
///
/// Those of `/proc/softirqs` have 32 bits and wrap: only differences count ([`Interruptions::since`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Interruptions {
    /// The CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Name of the kind, and a count for each of the CPUs: an interrupt's number ("41") or a name ("NET_RX").
    pub kinds: Vec<(String, Vec<u32>)>,
}

impl Interruptions {
    /// The interrupts of devices, by number, and the CPUs' own, by name.
    ///
    /// # Errors
    ///
    /// [`Error::File`] without a mounted procfs.
    pub fn hard() -> Result<Self> {
        Self::read("/proc/interrupts")
    }

    /// The software interrupts, by name: "NET_RX" receives, "NET_TX" ends transmissions, among others.
    ///
    /// # Errors
    ///
    /// [`Error::File`] without a mounted procfs.
    pub fn soft() -> Result<Self> {
        Self::read("/proc/softirqs")
    }

    /// The counts of a kind, in the order of `cpus`.
    #[must_use]
    pub fn of(&self, kind: &str) -> Option<&[u32]> {
        let mut found = self.kinds.iter().filter(|(name, _)| name == kind);
        found.next().map(|(_, counts)| &counts[..])
    }

    /// How often a kind came since an earlier reading, by CPU. CPUs that were not online at both moments are left out.
    #[must_use]
    pub fn since(&self, earlier: &Self, kind: &str) -> Vec<(u32, u32)> {
        let (Some(now), Some(then)) = (self.of(kind), earlier.of(kind)) else {
            return Vec::new();
        };
        let before = |cpu| earlier.cpus.iter().position(|known| *known == cpu);
        let counts = self.cpus.iter().zip(now);
        counts
            .filter_map(|(&cpu, now)| Some((cpu, now.wrapping_sub(*then.get(before(cpu)?)?))))
            .collect()
    }

    fn read(path: &'static str) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|source| Error::file("read", path, source))?;
        Self::parse(&text).ok_or_else(|| Error::file("understand", path, io::Error::other("no CPU in its first line")))
    }

    /// A line of CPUs, then one for each kind: its name, a colon, the counts, and in `/proc/interrupts` who handles it.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cpus = lines.next()?.split_ascii_whitespace();
        let cpus: Vec<u32> = cpus.map_while(|cpu| cpu.strip_prefix("CPU")?.parse().ok()).collect();
        if cpus.is_empty() {
            return None;
        }
        let kinds = lines.filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let counts = rest.split_ascii_whitespace().take(cpus.len());
            // Those without a count for each CPU (ERR, MIS) are of the machine. Both files print what has 32 bits.
            let counts: Vec<u32> = counts.map_while(|count| count.parse().ok()).collect();
            (counts.len() == cpus.len()).then(|| (name.trim().to_owned(), counts))
        });
        Some(Self {
            kinds: kinds.collect(),
            cpus,
        })
    }
}

#[cfg(test)]
#[path = "interrupts_tests.rs"]
mod tests;
