//! What makes the machine slow, or its figures doubtful.

use super::super::facts::Host;
use super::super::finding::Findings;
use super::list;

/// An idle state that takes longer to leave delays packets by as much as they take in all.
const SHALLOW_NS: u64 = 20_000;
/// Time that the hypervisor took for others, in percent.
const STEAL: f64 = 1.0;
/// Sources of the kernel's clock that are read without leaving the CPU.
const QUICK_CLOCKS: [&str; 5] = [
    "tsc",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "arch_sys_counter",
    "riscv_clocksource",
];

/// `interface` is for commands that name one.
pub(super) fn judge(host: &Host, interface: Option<&str>, findings: &mut Findings<'_>) {
    let interface = interface.unwrap_or("INTERFACE");
    let system = &host.system;
    findings.ok(
        "host.system",
        format!(
            "{}, {}",
            crate::system::summary(system),
            system.preemption.as_deref().unwrap_or("no preemption")
        ),
    );
    virtual_machine(host, findings);
    idle(host, interface, findings);
    governor(host, interface, findings);
    cpus(host, findings);
    mitigations(host, findings);
    clock(host, findings);
    match host.bpf_jit {
        Some(false) => findings
            .warning(
                "host.bpf-jit",
                "BPF programs are interpreted",
                "the XDP program runs for each packet, and several times slower like that",
            )
            .mend("sysctl -w net.core.bpf_jit_enable=1"),
        Some(true) => findings.ok("host.bpf-jit", "BPF programs are compiled"),
        None => {}
    }
    match host.huge_pages_free {
        0 if host.huge_page_bytes != 0 => findings
            .note(
                "host.huge-pages",
                "no huge pages are free",
                "they are only needed for --huge-pages: frames in them cost fewer look-ups of addresses, and zero-copy \
                 takes them for frames that lie across the borders of pages",
            )
            .mend("sysctl -w vm.nr_hugepages=64"),
        0 => {}
        free => findings.ok(
            "host.huge-pages",
            format!("{free} huge pages of {} KiB are free", host.huge_page_bytes >> 10),
        ),
    }
}

fn virtual_machine(host: &Host, findings: &mut Findings<'_>) {
    let Some(hypervisor) = &host.system.hypervisor else {
        return;
    };
    findings.note(
        "host.virtual",
        match hypervisor.as_str() {
            "unknown" => "a virtual machine".to_owned(),
            known => format!("a virtual machine ({known})"),
        },
        "its CPUs are taken away at times: latencies have outliers that are the hypervisor's, waking another CPU is dear, and \
         packets are lost at low rates already: measure in turns (ringside compare), and rates with a check of stability \
         first (ringside search does)",
    );
    let (since_boot, now) = (host.steal_percent, host.steal_now_percent);
    if now.max(since_boot) < STEAL {
        findings.ok(
            "host.steal",
            format!("time taken by the hypervisor for others: {since_boot:.2} % since boot, {now:.2} % now"),
        );
        return;
    }
    findings.warning(
        "host.steal",
        format!("the hypervisor took {since_boot:.1} % of the CPUs' time for others since boot, {now:.1} % now"),
        "what is measured meanwhile says more of the neighbours than of this machine: take CPUs of its own, or pin it",
    );
}

fn idle(host: &Host, interface: &str, findings: &mut Findings<'_>) {
    let states = host.system.c_states.iter().filter(|state| !state.disabled);
    let Some(deepest) = states.max_by_key(|state| state.exit_latency_ns) else {
        findings.ok(
            "host.c-states",
            "no idle states: the hypervisor or the firmware decides",
        );
        return;
    };
    let limit = host.wake_up_limit_us.map_or(u64::MAX, |limit| u64::from(limit) * 1000);
    let wakes = deepest.exit_latency_ns / 1000;
    if deepest.exit_latency_ns.min(limit) < SHALLOW_NS {
        findings.ok(
            "host.c-states",
            format!("idle CPUs wake up quickly ({}: {wakes} µs)", deepest.name),
        );
        return;
    }
    findings
        .note(
            "host.c-states",
            format!("an idle CPU may take {wakes} µs to wake up ({})", deepest.name),
            "a packet that comes to a CPU asleep waits for it; with --wait spin it does not sleep",
        )
        .mend(format!("ringside tune {interface} --dma-latency 0 -- COMMAND"));
}

fn governor(host: &Host, interface: &str, findings: &mut Findings<'_>) {
    let slow: Vec<u32> = host
        .governors
        .iter()
        .filter(|(_, governor)| *governor != "performance")
        .map(|(cpu, _)| *cpu)
        .collect();
    match (host.governors.is_empty(), slow.first()) {
        (true, _) => findings.ok(
            "host.governor",
            "no frequency governor: the hypervisor or the firmware decides",
        ),
        (false, None) => findings.ok("host.governor", "frequency governor performance"),
        (false, Some(first)) => findings
            .note(
                "host.governor",
                format!("CPUs {} have the governor {}", list(&slow), host.governors[first]),
                "a CPU with little to do runs slowly, and takes long to become fast when packets come",
            )
            .mend(format!("ringside tune {interface} --governor performance")),
    };
}

fn cpus(host: &Host, findings: &mut Findings<'_>) {
    let online = host.system.cpus_online;
    if host.smt_active == Some(true) {
        findings
            .note(
                "host.smt",
                "cores run two threads each (SMT)",
                "what runs on the other thread of a core slows a spinning one down: keep it free, or switch SMT off",
            )
            .mend("echo off > /sys/devices/system/cpu/smt/control");
    } else {
        findings.ok("host.smt", "no SMT: a CPU is a core");
    }
    match (online, host.isolated_cpus.as_slice()) {
        (0..=1, _) => {
            findings.warning(
                "host.cpus",
                "one CPU",
                "an application that spins takes it from the softirq that brings packets: use --wait poll",
            );
        }
        (_, []) => {
            findings.note(
                "host.isolation",
                "no CPU is isolated",
                "the scheduler puts other tasks on the CPU of a pinned thread, which then waits for milliseconds: for the \
                 lowest latencies add isolcpus= and nohz_full= with the CPUs of those threads to the kernel's command line",
            );
        }
        (_, isolated) if host.nohz_full_cpus.is_empty() => {
            findings.note(
                "host.nohz-full",
                format!("CPUs {} are isolated, but have their timer tick", list(isolated)),
                "it interrupts a pinned thread 100 to 1000 times a second for some microseconds: add nohz_full= with the \
                 same CPUs to the kernel's command line",
            );
        }
        (_, isolated) => findings.ok(
            "host.isolation",
            format!(
                "isolated: CPUs {}; without a tick: {}",
                list(isolated),
                list(&host.nohz_full_cpus)
            ),
        ),
    }
}

fn mitigations(host: &Host, findings: &mut Findings<'_>) {
    let active: Vec<_> = host
        .system
        .mitigations
        .iter()
        .filter(|mitigation| mitigation.status.starts_with("Mitigation"))
        .map(|mitigation| mitigation.name.as_str())
        .collect();
    if active.is_empty() {
        findings.ok("host.mitigations", "no mitigations of CPU vulnerabilities are active");
        return;
    }
    findings.note(
        "host.mitigations",
        format!("mitigations of CPU vulnerabilities are active: {}", active.join(", ")),
        "they make system calls and indirect calls dearer, so use large bursts and few wake-ups; to switch them off \
         (mitigations=off) is a decision about security",
    );
}

fn clock(host: &Host, findings: &mut Findings<'_>) {
    match host.system.clocksource.as_deref() {
        None => {}
        Some(quick) if QUICK_CLOCKS.contains(&quick) => findings.ok("host.clock", format!("clock source {quick}")),
        Some(slow) => {
            findings.warning(
                "host.clock",
                format!("clock source {slow}"),
                "reading the time takes a system call, or the hardware, and up to microseconds: the kernel has found the \
                 CPU's counter not to be trusted (dmesg says why)",
            );
        }
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
