//! The record of machine and interfaces that goes into every result, and the figures of its CPUs.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use ringside_measure::schema::{self, CState, CpuUse, Document, FarEnd, Mitigation, Outcome, QueueMode, SchemaName};
use ringside_nic::host::{CpuTime, CpuTimes, System};
use ringside_nic::{Interface, LinkState};
use ringside_xsk::{Path, PortReport};

/// Offloads that change what a packet test measures.
const OFFLOADS: [&str; 8] = [
    "rx-checksum",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "rx-gro",
    "rx-lro",
    "rx-vlan-hw-parse",
    "tx-generic-segmentation",
];

/// A result with everything that belongs beside it.
pub(crate) fn document(interfaces: Vec<schema::Interface>, result: Outcome) -> Document {
    document_with(interfaces, result, None)
}

/// A [`document`] with the counts of the far end, if there is a far end.
pub(crate) fn document_with(interfaces: Vec<schema::Interface>, result: Outcome, far: Option<FarEnd>) -> Document {
    Document {
        schema: SchemaName,
        tool_version: env!("CARGO_PKG_VERSION").into(),
        started_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs()),
        command_line: crate::config::command_line(),
        system: system(),
        interfaces,
        validity: crate::validity::end(&result, far.as_ref()),
        result,
        far: far.map(Box::new),
    }
}

/// The machine. What it does not tell stays empty.
pub(crate) fn system() -> schema::System {
    let Ok(host) = System::read() else {
        return schema::System::default();
    };
    let command_line = std::fs::read_to_string("/proc/cmdline").unwrap_or_default();
    schema::System {
        kernel_release: host.kernel,
        kernel_version: host.kernel_build,
        preemption: host.preemption,
        architecture: host.architecture,
        kernel_command_line: command_line.trim().to_owned(),
        hypervisor: (host.virtualised == Some(true)).then(|| host.machine.clone().unwrap_or_else(|| "unknown".into())),
        machine_model: host.machine,
        cpu_model: host.cpu_model.unwrap_or_default(),
        cpus_online: u32::try_from(host.cpus_online.len()).unwrap_or(u32::MAX),
        memory_bytes: host.memory_total,
        cpu_governor: host.governors.into_values().next(),
        c_states: host
            .idle
            .states
            .into_iter()
            .map(|state| CState {
                name: state.name,
                exit_latency_ns: state.latency_us.unwrap_or(0) * 1000,
                disabled: state.disabled,
            })
            .collect(),
        mitigations: host
            .vulnerabilities
            .into_iter()
            .map(|(name, status)| Mitigation { name, status })
            .collect(),
        clocksource: host.clocksource,
    }
}

/// One line about the machine.
pub(crate) fn summary(system: &schema::System) -> String {
    format!(
        "Linux {}, {} x {}{}",
        system.kernel_release,
        system.cpus_online,
        system.cpu_model,
        if system.hypervisor.is_some() {
            ", virtual machine"
        } else {
            ""
        }
    )
}

/// An interface as it was used. Call it in the interface's namespace.
pub(crate) fn interface(interface: &Interface, state: &LinkState, report: Option<&PortReport>) -> schema::Interface {
    let driver = interface.driver().ok();
    let offloads: BTreeMap<String, bool> = interface
        .features()
        .unwrap_or_default()
        .into_iter()
        .filter(|feature| OFFLOADS.contains(&feature.name.as_str()))
        .map(|feature| (feature.name, feature.active))
        .collect();
    schema::Interface {
        name: interface.name().to_owned(),
        firmware_version: driver
            .as_ref()
            .map(|driver| driver.firmware.clone())
            .filter(|text| !text.is_empty()),
        driver: driver.map(|driver| driver.name),
        mtu_bytes: state.mtu,
        link_speed_bps: None,
        rx_queues: interface.rx_queues().unwrap_or(state.num_rx_queues),
        tx_queues: interface.tx_queues().unwrap_or(state.num_tx_queues),
        offloads,
        queues: report.map(modes).unwrap_or_default(),
    }
}

/// The modes obtained.
fn modes(report: &PortReport) -> Vec<QueueMode> {
    let mode = |queue: &ringside_xsk::QueueReport| {
        let reasons = [&queue.refused_modes[..], &queue.notes].concat();
        QueueMode {
            queue: queue.queue,
            mode: mode(queue.path),
            reason: (!reasons.is_empty()).then(|| reasons.join("; ")),
            umem: Some(queue.umem),
            frames: Some(queue.frames),
            frame_size_bytes: Some(queue.frame_size),
            multi_buffer: Some(queue.multi_buffer),
        }
    };
    report.queues.iter().map(mode).collect()
}

/// A mode in the words of the result schema.
pub(crate) fn mode(path: Path) -> schema::Mode {
    match path {
        Path::ZeroCopy => schema::Mode::ZeroCopy,
        Path::NativeCopy => schema::Mode::NativeCopy,
        Path::Generic => schema::Mode::Generic,
        Path::Copy => schema::Mode::Copy,
    }
}

/// What each CPU did between two readings; CPUs that did nothing are left out.
pub(crate) fn cpu_use(before: &CpuTimes, after: &CpuTimes) -> Vec<CpuUse> {
    after
        .since(before)
        .cpus
        .iter()
        .filter(|(_, time)| time.busy() != 0)
        .map(|(cpu, time)| cpu_share(*cpu, time))
        .collect()
}

/// What a CPU did in a time, in percent of it.
pub(crate) fn cpu_share(cpu: u32, time: &CpuTime) -> CpuUse {
    let percent = |ticks| time.fraction(ticks).unwrap_or(0.0) * 100.0;
    CpuUse {
        cpu,
        user_percent: percent(time.user + time.nice),
        system_percent: percent(time.system),
        softirq_percent: percent(time.softirq + time.irq),
        steal_percent: percent(time.steal),
    }
}
