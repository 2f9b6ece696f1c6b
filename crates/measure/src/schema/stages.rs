//! CPU time by stage: the application, the kernel on its behalf, soft interrupts.

use serde::{Deserialize, Serialize};

/// Where the CPUs' time went during a run, and what that is a packet.
///
/// The first three are of all CPUs together, whoever used them; `threads` says which of it was the run's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CpuStages {
    /// Packets that the run handled: received or sent, whichever is more.
    pub packets: u64,
    /// Programs' own code, in nanoseconds. The kernel counts in steps of `tick_ns`.
    pub user_ns: u64,
    /// System calls and kernel threads.
    pub system_ns: u64,
    /// Interrupts and soft interrupts, wherever they ran: on top of a program, or in `ksoftirqd`.
    pub softirq_ns: u64,
    /// Taken by the hypervisor.
    pub steal_ns: u64,
    /// The kernel's step.
    pub tick_ns: u64,
    /// The three a packet; `None` where too few packets passed for that, or CPUs mostly spun idle.
    pub per_packet: Option<StagesPerPacket>,
    /// The run's threads, and the kernel's that handle packets.
    pub threads: Vec<ThreadUse>,
    /// Cycles and instructions of the run's threads; `None` where there are no such counters.
    pub counters: Option<PerfCounts>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_counters: Option<String>,
}

/// Nanoseconds of CPU time a packet.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StagesPerPacket {
    /// Programs' own code.
    pub user_ns: f64,
    /// System calls and kernel threads.
    pub system_ns: f64,
    /// Interrupts and soft interrupts.
    pub softirq_ns: f64,
}

impl CpuStages {
    /// Returns the share of its time, 0 to 1, that the thread of the run which waited most for a
    /// CPU did so. `None` where the kernel does not report it. `run_ns` is the duration of the run:
    /// it counts for threads without a time of their own.
    #[must_use]
    pub fn longest_wait(&self, run_ns: u64) -> Option<f64> {
        let threads = self.threads.iter().filter(|thread| !thread.is_kernel);
        threads.filter_map(|thread| thread.wait(run_ns)).reduce(f64::max)
    }
}

/// What a thread used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ThreadUse {
    /// `worker 0`, `ksoftirqd/1`, `napi/eth0-8193`.
    pub name: String,
    /// One of the kernel's.
    pub is_kernel: bool,
    /// Time on a CPU in nanoseconds, exactly; soft interrupts on top of it are contained. `None` where the kernel does not tell.
    pub run_ns: Option<u64>,
    /// Time ready to run and without a CPU, in nanoseconds: others had it. `None` where the kernel
    /// does not tell.
    #[serde(default)]
    pub wait_ns: Option<u64>,
    /// Time between the two readings of these, in nanoseconds: of a thread of the run its whole
    /// part in it. `None` in results of versions that did not report it.
    #[serde(default)]
    pub elapsed_ns: Option<u64>,
    /// Of it its own code, as the kernel shares it out.
    pub user_ns: u64,
    /// Of it the kernel.
    pub system_ns: u64,
}

impl ThreadUse {
    /// Returns the share of its time, 0 to 1, that it was ready to run and had no CPU.
    #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
    fn wait(&self, run_ns: u64) -> Option<f64> {
        let elapsed_ns = self.elapsed_ns.unwrap_or(run_ns).max(1);
        // The kernel's clocks may differ by some nanoseconds, and a thread may wait before a run.
        Some((self.wait_ns? as f64 / elapsed_ns as f64).min(1.0))
    }
}

/// Counts of the CPU's performance counters, all threads of the run together, in user code and in the kernel on their behalf.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PerfCounts {
    /// Cycles in user code.
    pub user_cycles: u64,
    /// Cycles in the kernel.
    pub kernel_cycles: u64,
    /// Instructions in user code.
    pub user_instructions: u64,
    /// Instructions in the kernel.
    pub kernel_instructions: u64,
}

impl PerfCounts {
    /// With those of another thread.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            user_cycles: self.user_cycles + other.user_cycles,
            kernel_cycles: self.kernel_cycles + other.kernel_cycles,
            user_instructions: self.user_instructions + other.user_instructions,
            kernel_instructions: self.kernel_instructions + other.kernel_instructions,
        }
    }
}

impl CpuStages {
    /// Fewest packets with a cost of each: a step of the kernel's count, 10 ms mostly, is then 10 µs
    /// of each at the most.
    pub const MIN_PACKETS: u64 = 1_000;
    /// Longest mean CPU time that is a packet's cost. A packet takes some microseconds: above this,
    /// CPUs spun idle or other programs ran for most of the time.
    pub const MAX_NS_PER_PACKET: u64 = 100_000;

    /// Fills in what a packet cost, if [`MIN_PACKETS`](Self::MIN_PACKETS) passed and took
    /// [`MAX_NS_PER_PACKET`](Self::MAX_NS_PER_PACKET) on average at the most.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "times of less than 2^53 ns, three months")]
    pub fn over(mut self, packets: u64) -> Self {
        self.packets = packets;
        let busy_ns = self.user_ns + self.system_ns + self.softirq_ns;
        let longest_ns = packets.saturating_mul(Self::MAX_NS_PER_PACKET);
        let is_cost = packets >= Self::MIN_PACKETS && busy_ns <= longest_ns;
        self.per_packet = is_cost.then(|| StagesPerPacket {
            user_ns: self.user_ns as f64 / packets as f64,
            system_ns: self.system_ns as f64 / packets as f64,
            softirq_ns: self.softirq_ns as f64 / packets as f64,
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs that were busy for so long.
    fn busy(user_ns: u64) -> CpuStages {
        CpuStages {
            packets: 0,
            user_ns,
            system_ns: 0,
            softirq_ns: 0,
            steal_ns: 0,
            tick_ns: 10_000_000,
            per_packet: None,
            threads: Vec::new(),
            counters: None,
            no_counters: None,
        }
    }

    #[test]
    fn few_packets_have_no_cost() {
        assert_eq!(busy(1_000_000_000).over(5).per_packet, None);
        assert_eq!(busy(10_000_000).over(999).per_packet, None);
        let cost = busy(10_000_000).over(1_000).per_packet.expect("enough");
        assert!((cost.user_ns - 10_000.0).abs() < 1e-6, "{cost:?}");
    }

    #[test]
    fn a_thread_waits_for_a_share_of_its_own_time() {
        let thread = |wait_ns, elapsed_ns| ThreadUse {
            name: "worker 0".into(),
            is_kernel: false,
            run_ns: Some(1_000_000),
            wait_ns,
            elapsed_ns,
            user_ns: 0,
            system_ns: 0,
        };
        let stages = |threads: Vec<ThreadUse>| CpuStages { threads, ..busy(0) };
        let kernel = ThreadUse {
            is_kernel: true,
            ..thread(Some(9), Some(10))
        };
        assert_eq!(stages(vec![kernel.clone()]).longest_wait(10), None);
        let waits = [(3_000_000, 4_000_000), (5_000_000, 10_000_000)];
        let mut threads = waits.map(|(wait, elapsed)| thread(Some(wait), Some(elapsed))).to_vec();
        threads.extend([kernel, thread(None, Some(1))]);
        assert_eq!(stages(threads).longest_wait(1), Some(0.75));
        assert_eq!(stages(vec![thread(Some(11), Some(10))]).longest_wait(1), Some(1.0));
    }

    #[test]
    fn a_thread_without_a_time_of_its_own_waits_for_a_share_of_the_run() {
        let text = r#"{"name": "worker 0", "is_kernel": false, "run_ns": 1, "wait_ns": 6,
            "user_ns": 0, "system_ns": 0}"#;
        let threads = vec![serde_json::from_str(text).expect("a result of an older version")];
        let stages = CpuStages { threads, ..busy(0) };
        assert_eq!(stages.longest_wait(8), Some(0.75));
        assert_eq!(stages.longest_wait(1), Some(1.0), "it waited before the run, too");
    }

    #[test]
    fn spinning_is_no_cost_of_packets() {
        assert_eq!(busy(10_000_000_000).over(10_000).per_packet, None);
        assert!(busy(1_000_000_000).over(10_000).per_packet.is_some());
    }
}
