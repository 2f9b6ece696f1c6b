//! What the hypervisor takes while packets are traced: no hook sees it, but the kernel counts it.

use ringside_measure::trace::{Disturber, Stolen};
use ringside_nic::host::CpuTimes;

use crate::clock::now_ns;

/// How often it is looked at the most: the counters have ticks of 10 ms, and reading them takes longer the more CPUs there are.
const EVERY_NS: u64 = 4_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// Looks at the counters of all CPUs.
pub(super) struct Steal {
    stolen: Stolen,
    next_ns: u64,
}

impl Steal {
    /// `None` where nothing was ever taken since the machine came up: then there is no hypervisor, or none that says so.
    pub(super) fn watch() -> Option<Self> {
        let times = CpuTimes::read().ok()?;
        if times.sum().steal == 0 {
            return None;
        }
        let mut stolen = Stolen::new(SECOND_NS / CpuTimes::ticks_per_second().max(1));
        let now_ns = now_ns();
        stolen.read(now_ns, counters(&times));
        Some(Self {
            stolen,
            next_ns: now_ns + EVERY_NS,
        })
    }

    /// What was taken since the last look.
    pub(super) fn look(&mut self) -> Vec<Disturber> {
        let now_ns = now_ns();
        if now_ns < self.next_ns {
            return Vec::new();
        }
        self.next_ns = now_ns + EVERY_NS;
        // Of no consequence for packets: without it there are only the hooks.
        let times = CpuTimes::read().unwrap_or_default();
        self.stolen.read(now_ns, counters(&times))
    }
}

fn counters(times: &CpuTimes) -> impl Iterator<Item = (u32, u64)> {
    times.cpus.iter().map(|(cpu, time)| (*cpu, time.steal))
}
