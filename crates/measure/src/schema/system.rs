//! What a result was measured on. Without it a number cannot be compared with another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The machine and its settings. The host's name is left out on purpose: results are shared.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct System {
    /// Kernel release, as `uname -r` tells.
    pub kernel_release: String,
    /// Kernel build, as `uname -v` tells: preemption model among other things.
    pub kernel_version: String,
    /// When the kernel lets a task of higher priority have the CPU: `PREEMPT_RT`, `PREEMPT`, `PREEMPT_DYNAMIC`, where it is
    /// known with the mode that was chosen at run time; `None` for a kernel that yields its CPU by itself.
    #[serde(default)]
    pub preemption: Option<String>,
    /// Machine architecture, as `uname -m` tells.
    pub architecture: String,
    /// Boot parameters of the kernel.
    pub kernel_command_line: String,
    /// Product name of the machine; `None` where the firmware tells none.
    pub machine_model: Option<String>,
    /// The hypervisor, `None` on bare metal.
    pub hypervisor: Option<String>,
    /// CPU model.
    pub cpu_model: String,
    /// Logical CPUs online.
    pub cpus_online: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Frequency governor, `None` where the kernel does not scale frequency.
    pub cpu_governor: Option<String>,
    /// Idle states of the first CPU.
    pub c_states: Vec<CState>,
    /// The kernel's list of CPU vulnerabilities and what it does about them.
    pub mitigations: Vec<Mitigation>,
    /// Clock source of the kernel.
    pub clocksource: Option<String>,
}

/// An idle state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CState {
    /// Its name, such as `C6`.
    pub name: String,
    /// How long it takes to wake up, in nanoseconds.
    pub exit_latency_ns: u64,
    /// It is switched off.
    pub disabled: bool,
}

/// What the kernel says about a vulnerability.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Mitigation {
    /// Its name, such as `spectre_v2`.
    pub name: String,
    /// The kernel's text.
    pub status: String,
}

/// A network interface as it was used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Its firmware.
    pub firmware_version: Option<String>,
    /// Largest IP packet, in bytes.
    pub mtu_bytes: u32,
    /// Link speed in bits per second, `None` where the driver tells none (veth tells a made-up one).
    pub link_speed_bps: Option<u64>,
    /// Receive queues.
    pub rx_queues: u32,
    /// Transmit queues.
    pub tx_queues: u32,
    /// Offloads that matter, on or off.
    pub offloads: BTreeMap<String, bool>,
    /// The queues used, each with the mode obtained.
    pub queues: Vec<QueueMode>,
}

/// How packets get from driver to user space and back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The NIC writes to user memory.
    ZeroCopy,
    /// XDP in the driver, packets copied once.
    NativeCopy,
    /// XDP behind the driver, in the kernel's stack.
    Generic,
    /// Transmit only, copied by the kernel; no XDP program takes part.
    Copy,
}

/// The mode obtained on one queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct QueueMode {
    /// The queue.
    pub queue: u32,
    /// The mode.
    pub mode: Mode,
    /// Why it is this one, if it is not the first that was tried.
    pub reason: Option<String>,
    /// Identity of the UMEM within the run: queues with the same number share one. `None`, as all that follows, where
    /// it is not told.
    pub umem: Option<u64>,
    /// Frames of the UMEM, or the queue's share of them.
    pub frames: Option<u32>,
    /// Size of a frame, in bytes.
    pub frame_size_bytes: Option<u32>,
    /// Whether a packet may be in several frames.
    pub multi_buffer: Option<bool>,
}
