//! The system's record, which belongs beside every result.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::{Error, Result, cpus};

/// What a host is and how it is set, as far as it decides about latency and throughput.
///
/// A fact that the host does not tell is `None` or empty, never a guess.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct System {
    /// Kernel release ("6.18.44").
    pub kernel: String,
    /// Kernel build ("#1 SMP PREEMPT_DYNAMIC …"), which names the preemption model.
    pub kernel_build: String,
    /// When the kernel lets a task of higher priority have the CPU: "PREEMPT_RT", "PREEMPT", or "PREEMPT_DYNAMIC", with the
    /// mode that was chosen at run time where it is known ("PREEMPT_DYNAMIC (full)"); `None` for a kernel whose tasks yield
    /// by themselves (none, voluntary).
    pub preemption: Option<String>,
    /// Machine architecture ("x86_64").
    pub architecture: String,
    /// CPU model.
    pub cpu_model: Option<String>,
    /// Numbers of the CPUs that are online.
    pub cpus_online: Vec<u32>,
    /// Whether cores run several threads each.
    pub smt_active: Option<bool>,
    /// CPUs without ordinary tasks, as they are in force (`isolcpus`).
    pub isolated: Vec<u32>,
    /// CPUs without a timer tick while they run one task, as they are in force (`nohz_full`).
    pub nohz_full: Vec<u32>,
    /// Frequency governor of each CPU that has one; empty where the hypervisor or the firmware decides.
    pub governors: BTreeMap<u32, String>,
    /// What an idle CPU does.
    pub idle: Idle,
    /// CPU vulnerabilities that affect this host, and what is done about them.
    pub vulnerabilities: BTreeMap<String, String>,
    /// Source of the kernel's clock ("tsc", "kvm-clock", …).
    pub clocksource: Option<String>,
    /// Settings of the kernel's command line that matter.
    pub command_line: CommandLine,
    /// Memory in bytes.
    pub memory_total: u64,
    /// Free huge pages of the default size.
    pub huge_pages_free: u64,
    /// The default huge page size in bytes; zero without huge pages.
    pub huge_page_size: u64,
    /// Whether BPF programs are compiled; interpreted they are several times slower. `None` where only root may know.
    pub bpf_jit: Option<bool>,
    /// Whether this is a virtual machine; `None` if the CPU does not tell.
    pub virtualised: Option<bool>,
    /// Maker and product of the machine or its hypervisor, where the firmware tells.
    pub machine: Option<String>,
}

/// What an idle CPU does: the deeper its sleep, the longer a packet waits for it to wake up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Idle {
    /// The driver ("intel_idle", "acpi_idle", "haltpoll", …).
    pub driver: Option<String>,
    /// What chooses the state ("menu", "haltpoll", …).
    pub governor: Option<String>,
    /// The states of CPU 0, from shallow to deep.
    pub states: Vec<IdleState>,
}

/// An idle state of CPU 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IdleState {
    /// Its name ("POLL", "C1", "C6", …).
    pub name: String,
    /// How long leaving it takes, in microseconds, after the firmware or the driver.
    pub latency_us: Option<u64>,
    /// Whether it is switched off.
    pub disabled: bool,
}

/// Settings of the kernel's command line that matter for latency, as written there; `None` if absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommandLine {
    /// CPUs without ordinary tasks.
    pub isolcpus: Option<String>,
    /// CPUs without a timer tick while they run one task.
    pub nohz_full: Option<String>,
    /// CPUs without RCU callbacks.
    pub rcu_nocbs: Option<String>,
    /// CPUs that handle interrupts.
    pub irqaffinity: Option<String>,
    /// How the CPU's idle loop waits ("poll", …).
    pub idle: Option<String>,
    /// What is done against CPU vulnerabilities ("off", "auto", …).
    pub mitigations: Option<String>,
    /// The preemption model that was chosen ("none", "full", …).
    pub preempt: Option<String>,
    /// Deepest idle state of intel_idle.
    pub intel_idle_max_cstate: Option<String>,
    /// Deepest idle state of the processor driver.
    pub processor_max_cstate: Option<String>,
}

/// Where the kernel tells which one it is.
pub(crate) const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// The source of the kernel's clock now ("tsc", "kvm-clock", …): it may change while the machine runs, when the kernel finds
/// that it cannot be trusted. `None` where it is not told.
#[must_use]
pub fn clocksource() -> Option<String> {
    line(Path::new(CLOCKSOURCE))
}

impl System {
    /// Reads the record. Needs no privileges and takes about a millisecond.
    ///
    /// # Errors
    ///
    /// [`Error::File`] without a mounted procfs.
    pub fn read() -> Result<Self> {
        Self::read_below(Path::new("/"))
    }

    /// Reads the record of a tree, so that tests can have other machines.
    fn read_below(root: &Path) -> Result<Self> {
        let names = rustix::system::uname();
        let proc = |name: &str| {
            let path = root.join("proc").join(name);
            fs::read_to_string(&path).map_err(|source| Error::file("read", path, source))
        };
        let (cpuinfo, meminfo) = (proc("cpuinfo")?, proc("meminfo")?);
        let sys = root.join("sys");
        let cpu = sys.join("devices/system/cpu");
        let build = names.version().to_string_lossy().into_owned();
        let command_line = CommandLine::parse(&proc("cmdline")?);
        // Only root may look, where it is mounted and not locked down.
        let chosen = line(&sys.join("kernel/debug/sched/preempt"));
        let cpus = |name: &str| line(&cpu.join(name)).map(|list| cpus::parse(&list)).unwrap_or_default();
        let cpus_online = cpus("online");
        let governor = |number: &u32| {
            line(&cpu.join(format!("cpu{number}/cpufreq/scaling_governor"))).map(|governor| (*number, governor))
        };
        Ok(Self {
            kernel: names.release().to_string_lossy().into_owned(),
            preemption: preemption(&build, chosen.as_deref(), command_line.preempt.as_deref()),
            kernel_build: build,
            architecture: names.machine().to_string_lossy().into_owned(),
            cpu_model: field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "Model")),
            smt_active: line(&cpu.join("smt/active")).map(|active| active == "1"),
            isolated: cpus("isolated"),
            nohz_full: cpus("nohz_full"),
            governors: cpus_online.iter().filter_map(governor).collect(),
            idle: Idle::read(&cpu),
            vulnerabilities: vulnerabilities(&cpu.join("vulnerabilities")),
            clocksource: line(&root.join(CLOCKSOURCE.trim_start_matches('/'))),
            command_line,
            memory_total: kibibytes(&meminfo, "MemTotal"),
            huge_pages_free: field(&meminfo, "HugePages_Free")
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
            huge_page_size: kibibytes(&meminfo, "Hugepagesize"),
            bpf_jit: line(&root.join("proc/sys/net/core/bpf_jit_enable")).map(|mode| mode != "0"),
            // x86 sets the flag in every virtual machine; others have no such field.
            virtualised: field(&cpuinfo, "flags")
                .map(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor")),
            machine: machine(&sys.join("class/dmi/id")),
            cpus_online,
        })
    }
}

impl Idle {
    fn read(cpu: &Path) -> Self {
        // Numbered from zero without gaps, while a directory listing has no order.
        let states = (0..)
            .map(|number| cpu.join(format!("cpu0/cpuidle/state{number}")))
            .map_while(|state| {
                Some(IdleState {
                    name: line(&state.join("name"))?,
                    latency_us: line(&state.join("latency")).and_then(|latency| latency.parse().ok()),
                    disabled: line(&state.join("disable")).is_some_and(|disabled| disabled != "0"),
                })
            })
            .collect();
        // "current_governor_ro" is the older name, where switching was not compiled in.
        let governor =
            line(&cpu.join("cpuidle/current_governor")).or_else(|| line(&cpu.join("cpuidle/current_governor_ro")));
        Self {
            driver: line(&cpu.join("cpuidle/current_driver")).filter(|driver| driver != "none"),
            governor,
            states,
        }
    }
}

impl CommandLine {
    fn parse(text: &str) -> Self {
        // The kernel takes the last of several, and "_" for "-".
        let value = |name: &str| {
            let arguments = text.split_ascii_whitespace().take_while(|argument| *argument != "--");
            arguments
                .filter_map(|argument| argument.split_once('='))
                .filter(|(key, _)| key.replace('-', "_") == name)
                .map(|(_, value)| value.to_owned())
                .last()
        };
        Self {
            isolcpus: value("isolcpus"),
            nohz_full: value("nohz_full"),
            rcu_nocbs: value("rcu_nocbs"),
            irqaffinity: value("irqaffinity"),
            idle: value("idle"),
            mitigations: value("mitigations"),
            preempt: value("preempt"),
            intel_idle_max_cstate: value("intel_idle.max_cstate"),
            processor_max_cstate: value("processor.max_cstate"),
        }
    }
}

/// The preemption model by the build's name, the file of the scheduler ("none (voluntary) full") and the command line.
fn preemption(build: &str, chosen: Option<&str>, asked: Option<&str>) -> Option<String> {
    // Kernels before 5.4 with the real-time patches call it "PREEMPT RT".
    let words = build.replace("PREEMPT RT", "PREEMPT_RT");
    let model = words
        .split_ascii_whitespace()
        .find(|word| word.starts_with("PREEMPT"))?;
    let in_force = chosen.and_then(|modes| modes.split_once('(')?.1.split_once(')'));
    let mode = in_force.map(|(mode, _)| mode).or(asked);
    Some(match mode.filter(|_| model == "PREEMPT_DYNAMIC") {
        Some(mode) => format!("{model} ({mode})"),
        None => model.to_owned(),
    })
}

/// The trimmed text of a file of one line; `None` if it is not there or empty.
pub(super) fn line(path: &Path) -> Option<String> {
    fs::read_to_string(path)
        .ok()
        .map(|text| text.trim().to_owned())
        .filter(|text| !text.is_empty())
}

/// The first field of that name in a text of "name : value" lines.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// A field of `/proc/meminfo` in bytes; zero if absent.
fn kibibytes(meminfo: &str, name: &str) -> u64 {
    let value = field(meminfo, name).and_then(|value| value.strip_suffix(" kB")?.parse::<u64>().ok());
    value.unwrap_or(0).saturating_mul(1024)
}

fn vulnerabilities(directory: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().into_string().ok()?, line(&entry.path())?))
        })
        .filter(|(_, state)| state != "Not affected")
        .collect()
}

fn machine(dmi: &Path) -> Option<String> {
    let parts: Vec<_> = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|name| line(&dmi.join(name)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
