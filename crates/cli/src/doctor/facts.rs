//! What is known of host, process and interface, before anybody judges it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use ringside_measure::schema;
use ringside_nic::host::{self, Cap, CpuTimes, WakeUpLimit};
use ringside_nic::{Coalescing, DeviceCapabilities, Driver, Flow, Interface, IrqUse, Knob, QueueKind, Rss};
use ringside_xsk::KernelCapabilities;
use serde::Serialize;

use super::tried::Test;
use crate::caps::{Holder, State};
use crate::{pin, system};

/// Everything that the rules look at.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) host: Host,
    pub(super) process: Process,
    pub(super) kernel: KernelCapabilities,
    pub(super) interface: Option<Nic>,
    /// All but loopback, where none was named.
    pub(super) interfaces: Vec<Brief>,
    /// The test on a veth pair; none if it was left out.
    pub(super) veth: Option<Test>,
    /// The test on the interface; none if it was not asked for.
    pub(super) live: Option<Test>,
}

/// The machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Host {
    #[serde(flatten)]
    pub(super) system: schema::System,
    pub(super) governors: BTreeMap<u32, String>,
    pub(super) smt_active: Option<bool>,
    pub(super) isolated_cpus: Vec<u32>,
    pub(super) nohz_full_cpus: Vec<u32>,
    pub(super) huge_pages_free: u64,
    pub(super) huge_page_bytes: u64,
    pub(super) bpf_jit: Option<bool>,
    /// The longest that CPUs may take to wake up, in microseconds, as somebody holds it; none where only root may know.
    pub(super) wake_up_limit_us: Option<u32>,
    /// What the hypervisor took of the CPUs' time for others: since boot, and during this examination.
    pub(super) steal_percent: f64,
    pub(super) steal_now_percent: f64,
}

/// This process.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Process {
    pub(super) program: PathBuf,
    #[serde(serialize_with = "names")]
    pub(super) capabilities: Vec<Cap>,
    /// None: no limit.
    pub(super) memlock_limit_bytes: Option<u64>,
    pub(super) cpus: Vec<u32>,
    /// What its control group leaves it; none without a limit.
    pub(super) cgroup_memory_left_bytes: Option<u64>,
}

/// A network interface.
#[derive(Debug, Serialize)]
pub(super) struct Nic {
    pub(super) name: String,
    pub(super) driver: Option<Driver>,
    /// Of a virtual link.
    pub(super) kind: Option<String>,
    pub(super) device: DeviceCapabilities,
    pub(super) state: State,
    /// Processes of this network namespace that have XDP sockets, on whichever interface.
    pub(super) socket_owners: Vec<Holder>,
    pub(super) rx_queues: u32,
    pub(super) tx_queues: u32,
    pub(super) offloads: BTreeMap<String, Offload>,
    /// Empty where the driver has none.
    pub(super) coalescing: BTreeMap<&'static str, String>,
    pub(super) irqs: Vec<IrqMap>,
    pub(super) rss: Option<Rss>,
    pub(super) flows: Vec<FlowQueue>,
}

/// An interface among others.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Brief {
    pub(super) name: String,
    pub(super) driver: Option<String>,
    pub(super) up: bool,
    pub(super) rx_queues: u32,
    #[serde(flatten)]
    pub(super) device: DeviceCapabilities,
}

/// An offload that packets of an AF_XDP program meet.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Offload {
    pub(super) on: bool,
    /// The driver does not let it be changed.
    pub(super) fixed: bool,
}

/// Where an interrupt goes.
#[derive(Clone, Debug, Serialize)]
pub(super) struct IrqMap {
    pub(super) number: u32,
    pub(super) name: String,
    /// The queues that it is for ("RX 0"), where the driver tells (Linux 6.8).
    pub(super) queues: Vec<String>,
    #[serde(flatten)]
    pub(super) usage: IrqUse,
}

/// The queue of a flow, by the NIC's table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FlowQueue {
    pub(super) flow: String,
    /// Somebody asked for it; otherwise an example.
    pub(super) asked: bool,
    pub(super) queue: Option<u32>,
    /// Why it cannot be told.
    pub(super) reason: Option<String>,
}

/// Offloads that change what such a program sees, or whether it can be loaded.
const OFFLOADS: [&str; 4] = ["rx-vlan-hw-parse", "rx-lro", "rx-gro-hw", "rx-gro"];

impl Host {
    /// As it was between two readings of its CPUs' times.
    pub(super) fn read(before: &CpuTimes) -> Result<Self> {
        let own = host::System::read()?;
        let now = CpuTimes::read()?;
        let stolen = |times: &CpuTimes| {
            let sum = times.sum();
            sum.fraction(sum.steal).unwrap_or(0.0) * 100.0
        };
        Ok(Self {
            system: system::system(),
            governors: own.governors,
            smt_active: own.smt_active,
            isolated_cpus: own.isolated,
            nohz_full_cpus: own.nohz_full,
            huge_pages_free: own.huge_pages_free,
            huge_page_bytes: own.huge_page_size,
            bpf_jit: own.bpf_jit,
            wake_up_limit_us: WakeUpLimit::now().ok(),
            steal_percent: stolen(&now),
            steal_now_percent: stolen(&now.since(before)),
        })
    }
}

impl Process {
    pub(super) fn read() -> Result<Self> {
        let held = host::Capabilities::effective()?;
        Ok(Self {
            program: std::env::current_exe().unwrap_or_else(|_| "ringside".into()),
            capabilities: Cap::ALL.into_iter().filter(|cap| held.has(*cap)).collect(),
            memlock_limit_bytes: host::memlock_limit(),
            cpus: pin::allowed()?,
            cgroup_memory_left_bytes: host::cgroup_memory().and_then(|group| group.available()),
        })
    }

    pub(super) fn has(&self, cap: Cap) -> bool {
        self.capabilities.contains(&cap)
    }
}

impl Nic {
    /// # Errors
    /// When it was removed. What driver or kernel do not tell is empty.
    pub(super) fn read(interface: &Interface, flows: &[Flow]) -> Result<Self> {
        let link = interface.state()?;
        let offload = |feature: ringside_nic::Feature| {
            let offload = Offload {
                on: feature.active,
                fixed: feature.fixed,
            };
            (feature.name, offload)
        };
        let coalescing = |field: Coalescing| Some((field.name(), interface.knob(&Knob::Coalescing { field }).ok()?));
        let state = State::read(interface)?;
        let irq = |irq: ringside_nic::Irq| IrqMap {
            usage: irq.usage(),
            queues: queues_of(&state, irq.number),
            number: irq.number,
            name: irq.name,
        };
        let irqs = interface.irqs()?.into_iter().map(irq).collect();
        let rss = interface.rss().ok().flatten();
        Ok(Self {
            name: link.name,
            driver: interface.driver().ok(),
            kind: link.kind,
            device: interface.device_capabilities()?,
            state,
            socket_owners: ringside_nic::owners::xdp_socket_owners()
                .into_iter()
                .filter(|owner| owner.same_namespace)
                .map(|owner| Holder {
                    pid: owner.pid,
                    command: owner.comm,
                })
                .collect(),
            rx_queues: interface.rx_queues()?,
            tx_queues: interface.tx_queues()?,
            offloads: interface
                .features()?
                .into_iter()
                .filter(|feature| OFFLOADS.contains(&feature.name.as_str()))
                .map(offload)
                .collect(),
            coalescing: Coalescing::ALL.into_iter().filter_map(coalescing).collect(),
            irqs,
            flows: super::flows::told(interface, rss.as_ref(), flows)?,
            rss,
        })
    }

    pub(super) fn offload(&self, name: &str) -> Option<Offload> {
        self.offloads.get(name).copied()
    }
}

impl Brief {
    /// Those of this network namespace.
    pub(super) fn all() -> Result<Vec<Self>> {
        let brief = |interface: &Interface| -> ringside_nic::Result<Self> {
            Ok(Self {
                name: interface.name().to_owned(),
                driver: interface.driver().ok().map(|driver| driver.name),
                up: interface.state()?.admin_up,
                rx_queues: interface.rx_queues()?,
                device: interface.device_capabilities()?,
            })
        };
        let all = Interface::all()?;
        let others = all.iter().filter(|interface| interface.name() != "lo");
        // One that is removed meanwhile is not there.
        Ok(others.filter_map(|interface| brief(interface).ok()).collect())
    }
}

/// The queues whose NAPI instance has this interrupt.
fn queues_of(state: &State, irq: u32) -> Vec<String> {
    let napis = state.napis.iter().flatten().filter(|napi| napi.irq == Some(irq));
    let napis: Vec<u32> = napis.map(|napi| napi.id).collect();
    let queues = state.queues.iter().flatten();
    queues
        .filter(|queue| queue.napi.is_some_and(|napi| napis.contains(&napi)))
        .map(|queue| {
            let kind = match queue.kind {
                QueueKind::Rx => "RX",
                QueueKind::Tx => "TX",
            };
            format!("{kind} {}", queue.id)
        })
        .collect()
}

fn names<S: serde::Serializer>(caps: &[Cap], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(caps.iter().map(ToString::to_string))
}
