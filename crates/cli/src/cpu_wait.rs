//! How long threads of processes wait for a CPU while something is measured.

use std::time::Instant;

use ringside_nic::host::ThreadWaits;

/// The waits of some processes' threads since a point in time.
pub(crate) struct CpuWait {
    begun: Instant,
    waits: Vec<(u32, ThreadWaits)>,
}

impl CpuWait {
    /// Reads the waits of this process's threads until now.
    pub(crate) fn of_this_process() -> Self {
        Self::of([std::process::id()])
    }

    /// Reads the waits of the threads of some processes until now.
    pub(crate) fn of(processes: impl IntoIterator<Item = u32>) -> Self {
        Self {
            // Before the readings, so that no wait is outside of the time.
            begun: Instant::now(),
            waits: processes.into_iter().map(|pid| (pid, ThreadWaits::of(pid))).collect(),
        }
    }

    /// Returns the share of the time since, 0 to 1, that the thread which waited most was ready to
    /// run and had no CPU. `None` where the kernel does not report it.
    pub(crate) fn share(&self) -> Option<f64> {
        let reported = self.waits.iter().filter(|(_, then)| *then != ThreadWaits::default());
        let longest_ns = reported
            .map(|(pid, then)| ThreadWaits::of(*pid).longest_since(then))
            .max()?;
        // The kernel adds a wait when it ends, all of one that began before the first reading.
        Some((longest_ns as f64 / self.begun.elapsed().as_nanos().max(1) as f64).min(1.0))
    }
}
