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
    let cost = match stages.per_packet {
        Some(cost) => format!(
            "user {:.1} ns, system {:.1} ns, softirq {:.1} ns: \
             of all CPUs and programs, {} packets",
            cost.user_ns,
            cost.system_ns,
            cost.softirq_ns,
            packets(stages.packets)
        ),
        None => format!("not shown: {}", no_cost(stages)),
    };
    out.pair("CPU a packet", cost);
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
            let (of, each) = counted(stages);
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

/// Returns why there is no CPU time a packet.
pub(crate) fn no_cost(stages: &CpuStages) -> String {
    match stages.packets {
        few @ ..CpuStages::MIN_PACKETS => format!(
            "{} packets are too few, it takes {}",
            packets(few),
            packets(CpuStages::MIN_PACKETS)
        ),
        _ => format!(
            "CPUs were busy for more than {} µs a packet: they spun idle, or other programs ran",
            CpuStages::MAX_NS_PER_PACKET / 1_000
        ),
    }
}

/// Returns what counts of the CPU's performance counters are shown of, and a function that converts
/// them: a packet, if its cost is known, or else all.
pub(crate) fn counted(stages: &CpuStages) -> (&'static str, impl Fn(u64) -> f64) {
    let (of, number) = match stages.per_packet {
        Some(_) => ("a packet", stages.packets),
        None => ("in all", 1),
    };
    #[allow(clippy::cast_precision_loss, reason = "for people, three digits")]
    (of, move |count| count as f64 / number as f64)
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

#[cfg(test)]
pub(crate) mod tests {
    use ringside_measure::schema::{Operation, PerfCounts};

    use super::*;

    /// Returns the CPU time of some packets that took 4,000 cycles.
    pub(crate) fn stages(user_ns: u64, packets: u64) -> CpuStages {
        let stages = CpuStages {
            packets: 0,
            user_ns,
            system_ns: 0,
            softirq_ns: 0,
            steal_ns: 0,
            tick_ns: 10_000_000,
            per_packet: None,
            threads: Vec::new(),
            counters: Some(PerfCounts {
                user_cycles: 4_000,
                ..PerfCounts::default()
            }),
            no_counters: None,
        };
        stages.over(packets)
    }

    fn render(user_ns: u64, number: u64) -> String {
        let mut result = RunResult::new(Operation::Ping);
        result.cpu_stages = Some(stages(user_ns, number));
        let mut out = Lines::default();
        text(&mut out, &result);
        out.text
    }

    #[test]
    fn says_why_there_is_no_cost_of_a_packet() {
        let few = render(10_000_000, 999);
        let line = "CPU a packet   not shown: 999 packets are too few, it takes 1,000\n";
        assert!(few.contains(line), "{few}");
        assert!(
            few.contains("counters       in all, of the workers: 4000 cycles"),
            "{few}"
        );
        let spun = render(1_000_000_000, 2_000);
        let line = "CPU a packet   not shown: CPUs were busy for more than 100 µs a packet: ";
        assert!(spun.contains(line), "{spun}");
        let some = render(10_000_000, 2_000);
        assert!(some.contains("CPU a packet   user 5000.0 ns, "), "{some}");
        assert!(
            some.contains("counters       a packet, of the workers: 2 cycles"),
            "{some}"
        );
    }
}
