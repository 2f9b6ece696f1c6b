//! Facts of the host: what stands beside every measured number, and what limits the process.

mod cpu;
mod cpu_times;
mod interrupts;
mod latency;
mod limits;
mod system;
mod thread_time;

pub use cpu::{IdleUse, idle_use, siblings};
pub use cpu_times::{CpuTime, CpuTimes};
pub use interrupts::Interruptions;
pub use latency::WakeUpLimit;
pub use limits::{Cap, Capabilities, CgroupMemory, cgroup_memory, memlock_limit};
pub(crate) use system::CLOCKSOURCE;
pub use system::{CommandLine, Idle, IdleState, System, clocksource};
pub use thread_time::{ThreadTime, ThreadWaits, packet_threads};

use crate::{Knob, Result};

/// The present value of a knob of the host.
///
/// # Errors
///
/// [`Error::File`](crate::Error::File) with `ENOENT` where there is no such interrupt or governor, or the knob is an interface's.
pub fn knob(knob: &Knob) -> Result<String> {
    knob.read_host()
}
