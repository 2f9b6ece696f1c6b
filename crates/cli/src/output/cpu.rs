//! What the CPUs did, for people.

use ringside_measure::schema::{CpuStages, CpuUse, RunResult, ThreadUse};

use super::{Lines, packets};

pub(super) fn text(out: &mut Lines, result: &RunResult) {
    for cpu in &result.cpus {
        out.pair(&format!("CPU {}", cpu.cpu), shares(cpu));
    }
    if let Some(stages) = &result.cpu_stages {
        by_stage(out, stages);
    }
}

fn shares(cpu: &CpuUse) -> String {
    format!(
        "user {:.0} %, system {:.0} %, softirq {:.0} %, steal {:.0} %",
        cpu.user_percent, cpu.system_percent, cpu.softirq_percent, cpu.steal_percent
    )
}

fn by_stage(out: &mut Lines, stages: &CpuStages) {
    if let Some(cost) = stages.per_packet {
        out.pair(
            "CPU a packet",
            format!(
                "user {:.1} ns, system {:.1} ns, softirq {:.1} ns: of all CPUs and programs, {} packets",
                cost.user_ns,
                cost.system_ns,
                cost.softirq_ns,
                packets(stages.packets)
            ),
        );
    }
    // The kernel's threads are worth a word from a tick on.
    let told = stages
        .threads
        .iter()
        .filter(|thread| !thread.is_kernel || run_ns(thread) >= stages.tick_ns);
    let threads: Vec<String> = told.map(thread).collect();
    if !threads.is_empty() {
        out.pair("threads", threads.join("; "));
    }
    match (&stages.counters, &stages.no_counters) {
        (Some(counts), _) => {
            let (of, number) = match stages.per_packet {
                Some(_) => ("a packet", stages.packets),
                None => ("in all", 1),
            };
            #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
            let each = |count: u64| count as f64 / number as f64;
            out.pair(
                "counters",
                format!(
                    "{of}, of the workers: {:.0} cycles in user code and {:.0} in the kernel, \
                     {:.0} and {:.0} instructions",
                    each(counts.user_cycles),
                    each(counts.kernel_cycles),
                    each(counts.user_instructions),
                    each(counts.kernel_instructions)
                ),
            );
        }
        (None, Some(why)) => out.pair(
            "counters",
            format!("neither cycles nor instructions are counted here: {why}"),
        ),
        _ => {}
    }
}

fn run_ns(thread: &ThreadUse) -> u64 {
    thread.run_ns.unwrap_or(thread.user_ns + thread.system_ns)
}

#[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
fn thread(thread: &ThreadUse) -> String {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let run = run_ns(thread);
    match thread.is_kernel {
        true => format!("{} {:.2} s", thread.name, seconds(run)),
        false => format!(
            "{} {:.2} s (user {:.2}, system {:.2})",
            thread.name,
            seconds(run),
            seconds(thread.user_ns),
            seconds(thread.system_ns)
        ),
    }
}
