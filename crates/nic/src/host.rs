//! Facts of the host: what stands beside every measured number, and what limits the process.

mod cpu_times;
mod limits;
mod system;

pub use cpu_times::{CpuTime, CpuTimes};
pub use limits::{Cap, Capabilities, CgroupMemory, cgroup_memory, memlock_limit};
pub use system::{CommandLine, Idle, IdleState, System};
