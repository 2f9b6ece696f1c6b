//! The time from the XDP program, in the software interrupt, to the application's dequeue.
//!
//! It depends on how the application waits, on whether it shares the CPU that runs NAPI, and on how deep CPUs may sleep: the
//! three dimensions of a [`Cell`].
//!
//! ```text
//!   NAPI      XDP program ── copy, RX ring ── wake-up ─┐
//!             xdp_ns, xdp_cpu                          │
//!   application                 asleep or looking ─────┴─ dequeue
//!                                                         dequeued_ns, dequeued_cpu
//! ```
//!
//! What counts is what happened: a sample whose stamps tell of another CPU than the cell is about is not the cell's, and
//! one that ends before it began is no sample. Both are counted.
//!
//! ```
//! use ringside_measure::delay::{Core, Delays, Stamps, Verdict};
//!
//! let mut delays = Delays::new(Core::Same, 0);
//! let stamps = Stamps { xdp_ns: 1_000, xdp_cpu: 1, dequeued_ns: 3_500, dequeued_cpu: 1 };
//! assert_eq!(delays.record(stamps), Verdict::Sample);
//! assert_eq!(delays.record(Stamps { dequeued_cpu: 0, ..stamps }), Verdict::Elsewhere);
//! assert_eq!(delays.record(Stamps { dequeued_ns: 999, ..stamps }), Verdict::Impossible);
//! assert_eq!(delays.latency().summary().unwrap().max_ns, 2_500);
//! ```

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// What the application does while there is no packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// Looks at the ring again and again.
    Spin,
    /// Sleeps in `poll()` and is woken.
    Poll,
    /// Runs the driver's NAPI poll itself, by system calls, again and again.
    BusyPoll,
}

/// Where the application runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Core {
    /// On the CPU that runs NAPI, and with it the XDP program.
    Same,
    /// On another one.
    Other,
}

/// How deep CPUs may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CStates {
    /// As the machine is set.
    AsIs,
    /// Not at all: `/dev/cpu_dma_latency` is held at 0.
    Off,
}

/// One way to wait, in one place, with CPUs that sleep or do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// What the application does while there is no packet.
    pub wait: Wait,
    /// Where it runs.
    pub core: Core,
    /// How deep CPUs may sleep.
    pub c_states: CStates,
}

impl Cell {
    /// Returns whether the application spins on a CPU that no part of the measurement shares.
    #[must_use]
    pub fn has_own_cpu(self) -> bool {
        self.core == Core::Other && self.wait != Wait::Poll
    }

    /// All twelve, in the order of a table.
    pub fn all() -> impl Iterator<Item = Self> {
        let waits = [Wait::Spin, Wait::Poll, Wait::BusyPoll];
        let places = [Core::Same, Core::Other];
        waits.into_iter().flat_map(move |wait| {
            places
                .into_iter()
                .flat_map(move |core| [CStates::AsIs, CStates::Off].map(|c_states| Self { wait, core, c_states }))
        })
    }
}

/// When and where a packet was seen. Both times are of one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// When the XDP program saw it, in nanoseconds.
    pub xdp_ns: u64,
    /// On which CPU.
    pub xdp_cpu: u32,
    /// When the application had it, in nanoseconds.
    pub dequeued_ns: u64,
    /// On which CPU.
    pub dequeued_cpu: u32,
}

impl Stamps {
    /// Where the application ran, by what happened.
    #[must_use]
    pub fn core(self) -> Core {
        if self.xdp_cpu == self.dequeued_cpu {
            Core::Same
        } else {
            Core::Other
        }
    }
}

/// What became of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts.
    Sample,
    /// It was one of the first, which do not.
    WarmUp,
    /// It was not as the cell has it: see [`Stamps::core`].
    Elsewhere,
    /// It was dequeued before the XDP program saw it: the clocks do not agree.
    Impossible,
}

/// What was left out of a distribution.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// The first packets, while caches and predictors got used to it.
    pub warm_up: u64,
    /// Packets whose stamps tell of another core than the cell is about.
    pub elsewhere: u64,
    /// Packets that were dequeued before the XDP program saw them.
    pub impossible: u64,
    /// Packets that the XDP program told nothing about.
    pub without_hints: u64,
}

/// The delays of a cell, or of a turn of it.
#[derive(Debug, Clone)]
pub struct Delays {
    core: Core,
    /// Packets that still belong to the warm-up.
    warming: u64,
    latency: Latency,
    left_out: LeftOut,
}

impl Delays {
    /// None so far, of a cell whose application is there; the first `warm_up` packets will not count.
    #[must_use]
    pub fn new(core: Core, warm_up: u64) -> Self {
        Self {
            core,
            warming: warm_up,
            latency: Latency::new(),
            left_out: LeftOut::default(),
        }
    }

    /// Notes a packet. Does not allocate.
    pub fn record(&mut self, stamps: Stamps) -> Verdict {
        // Before all else: clocks that do not agree are wrong in the warm-up, too.
        let Some(delay) = stamps.dequeued_ns.checked_sub(stamps.xdp_ns) else {
            self.left_out.impossible += 1;
            return Verdict::Impossible;
        };
        if self.warming > 0 {
            self.warming -= 1;
            self.left_out.warm_up += 1;
            return Verdict::WarmUp;
        }
        if stamps.core() != self.core {
            self.left_out.elsewhere += 1;
            return Verdict::Elsewhere;
        }
        self.latency.record(delay);
        Verdict::Sample
    }

    /// Notes a packet without stamps.
    pub fn without_hints(&mut self) {
        self.left_out.without_hints += 1;
    }

    /// Adds those of another turn of the same cell.
    pub fn merge(&mut self, other: &Self) {
        self.latency.merge(&other.latency);
        self.left_out.warm_up += other.left_out.warm_up;
        self.left_out.elsewhere += other.left_out.elsewhere;
        self.left_out.impossible += other.left_out.impossible;
        self.left_out.without_hints += other.left_out.without_hints;
    }

    /// The distribution.
    #[must_use]
    pub fn latency(&self) -> &Latency {
        &self.latency
    }

    /// What is not in it.
    #[must_use]
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Packets that came, whatever became of them.
    #[must_use]
    pub fn packets(&self) -> u64 {
        let LeftOut {
            warm_up,
            elsewhere,
            impossible,
            without_hints,
        } = self.left_out;
        self.latency.samples() + warm_up + elsewhere + impossible + without_hints
    }
}

#[cfg(test)]
mod tests;
