//! What this process may do.

use ringside_nic::host::Cap;

use super::super::facts::Process;
use super::super::finding::Findings;

/// A queue with the default number of frames takes 8 MiB: this is enough for eight.
const MEMLOCK: u64 = 64 << 20;
/// Of all queues of a small interface.
const MEMORY: u64 = 16 << 20;

pub(super) fn judge(process: &Process, findings: &mut Findings<'_>) {
    capabilities(process, findings);
    memlock(process, findings);
    memory(process, findings);
    findings.ok(
        "process.cpus",
        format!("may run on CPUs {}", super::list(&process.cpus)),
    );
}

fn capabilities(process: &Process, findings: &mut Findings<'_>) {
    let missing: Vec<&str> = [
        (process.has(Cap::NetRaw), "CAP_NET_RAW (XDP sockets)"),
        (
            process.has(Cap::NetAdmin),
            "CAP_NET_ADMIN (attaching XDP programs, preferred busy-polling)",
        ),
        // CAP_SYS_ADMIN stands for it: https://elixir.bootlin.com/linux/v6.18/C/ident/bpf_token_capable
        (
            process.has(Cap::Bpf) || process.has(Cap::SysAdmin),
            "CAP_BPF (loading XDP programs)",
        ),
    ]
    .into_iter()
    .filter_map(|(held, name)| (!held).then_some(name))
    .collect();
    if missing.is_empty() {
        let held: Vec<_> = process.capabilities.iter().map(ToString::to_string).collect();
        findings.ok("process.capabilities", format!("capabilities: {}", held.join(" ")));
        return;
    }
    findings
        .error(
            "process.capabilities",
            format!("capabilities are missing: {}", missing.join(", ")),
            "without them no XDP socket can be made, or no program attached",
        )
        .mend(setcap(process));
}

/// All that Ringside uses.
fn setcap(process: &Process) -> String {
    format!(
        "setcap cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock=ep {}",
        process.program.display()
    )
}

fn memlock(process: &Process, findings: &mut Findings<'_>) {
    match process.memlock_limit_bytes {
        _ if process.has(Cap::IpcLock) => findings.ok("process.memlock", "memory for frames: no limit (CAP_IPC_LOCK)"),
        None => findings.ok("process.memlock", "memory for frames: no limit (RLIMIT_MEMLOCK)"),
        Some(limit) if limit >= MEMLOCK => findings.ok(
            "process.memlock",
            format!("memory for frames: {} MiB (RLIMIT_MEMLOCK)", limit >> 20),
        ),
        Some(limit) => findings
            .warning(
                "process.memlock",
                format!("RLIMIT_MEMLOCK is {} KiB, and CAP_IPC_LOCK is missing", limit >> 10),
                "frames count against it: a queue takes 8 MiB by default, or fewer frames where \
                 that does not fit, down to 1 MiB",
            )
            .mend(setcap(process)),
    }
}

fn memory(process: &Process, findings: &mut Findings<'_>) {
    if let Some(left) = process.cgroup_memory_left_bytes.filter(|left| *left < MEMORY) {
        findings.warning(
            "process.cgroup-memory",
            format!("the control group leaves {} MiB of memory", left >> 20),
            "frames take 8 MiB a queue by default, or down to 1 MiB where less is left; beyond the \
             limit the process is killed",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Check, process};
    use super::*;

    fn check(change: impl FnOnce(&mut Process)) -> Check {
        let mut process = process();
        change(&mut process);
        Check::of(|findings| judge(&process, findings))
    }

    #[test]
    fn root_may_do_everything() {
        check(|_| {}).is_fine();
    }

    #[test]
    fn each_missing_capability_is_named() {
        for (cap, name) in [(Cap::NetRaw, "CAP_NET_RAW"), (Cap::NetAdmin, "CAP_NET_ADMIN")] {
            let check = check(|process| process.capabilities.retain(|held| *held != cap));
            let finding = check.only("process.capabilities", "error");
            assert!(finding.what.contains(name), "{finding:?}");
            assert!(
                finding.mend.as_ref().unwrap().ends_with(" /bin/ringside"),
                "{finding:?}"
            );
        }
        // The one stands for the other.
        check(|process| process.capabilities.retain(|held| *held != Cap::Bpf)).is_fine();
        check(|process| process.capabilities.retain(|held| *held != Cap::SysAdmin)).is_fine();
        check(|process| {
            process
                .capabilities
                .retain(|held| ![Cap::Bpf, Cap::SysAdmin].contains(held))
        })
        .only("process.capabilities", "error");
    }

    #[test]
    fn locked_memory_is_limited_only_without_the_capability() {
        let limited = |limit| move |process: &mut Process| process.memlock_limit_bytes = limit;
        check(limited(Some(8 << 20))).is_fine();
        let without = |limit| {
            check(|process| {
                process.capabilities.retain(|held| *held != Cap::IpcLock);
                process.memlock_limit_bytes = limit;
            })
        };
        without(None).is_fine();
        without(Some(MEMLOCK)).is_fine();
        let finding = without(Some(MEMLOCK - 1)).only("process.memlock", "warning");
        assert!(finding.what.contains("65535 KiB"), "{finding:?}");
    }

    #[test]
    fn a_small_control_group_is_told() {
        check(|process| process.cgroup_memory_left_bytes = Some(MEMORY)).is_fine();
        check(|process| process.cgroup_memory_left_bytes = Some(MEMORY - 1)).only("process.cgroup-memory", "warning");
    }
}
