//! Processes, told from later ones that have the same number.

use std::fs;
use std::str::SplitAsciiWhitespace;

/// When a process or thread started, in clock ticks since boot; `None` if it does not live.
///
/// A process that nobody has waited for yet is dead all the same. From field 22 of `/proc/PID/stat`: proc_pid_stat(5).
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Thread {
    /// Its number, which no other process or thread has while it lives.
    pub id: u32,
    /// Its name: `CPU 0/KVM` for a virtual CPU of QEMU's (with `-name NAME,debug-threads=on`), `vhost-PID` for who carries its packets.
    pub name: String,
}

/// The threads of a process, and the kernel's that carry packets for it (vhost), by their numbers; empty if it does not live.
///
/// From Linux 6.4 on vhost's are threads of the process itself; before, they are the kernel's, and found by their names.
pub fn threads(pid: u32) -> Vec<Thread> {
    let all = |folder: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
    };
    let own = all(&format!("/proc/{pid}/task")).filter_map(|id| command_of_thread(pid, id));
    let vhost = format!("vhost-{pid}");
    let kernel = all("/proc").filter_map(|id| Some((id, command(id)?)));
    let kernel = kernel.filter(|(_, name)| *name == vhost);
    let mut threads: Vec<Thread> = own.chain(kernel.map(|(id, name)| Thread { id, name })).collect();
    threads.sort_by_key(|thread| thread.id);
    threads.dedup_by_key(|thread| thread.id);
    threads
}

fn command_of_thread(pid: u32, id: u32) -> Option<Thread> {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).ok()?;
    Some(Thread {
        id,
        name: name.trim_end().to_owned(),
    })
}

/// The name that `ps` shows; kernel threads have theirs in full since Linux 5.17, else 15 bytes of it.
pub(crate) fn command(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// How long a process or thread has run, in nanoseconds, and the CPU that it runs on or ran on last; `None` if it does not live, or the kernel
/// does not tell (`CONFIG_SCHED_INFO`).
///
/// From `/proc/PID/schedstat` and field 39 of `/proc/PID/stat`: proc_pid_stat(5). Of a thread: its own, not those of its process.
pub fn ran(id: u32) -> Option<(u64, u32)> {
    // Before the CPU: one that goes on elsewhere in between is told with where it is.
    let times = fs::read_to_string(format!("/proc/{id}/schedstat")).ok()?;
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, cpu) = parse_stat(&stat)?;
    Some((times.split_ascii_whitespace().next()?.parse().ok()?, cpu))
}

/// Whether a process is stopped, by a signal or a debugger; false if it does not live.
///
/// From field 3 of `/proc/PID/stat`: proc_pid_stat(5).
pub fn is_stopped(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    matches!(fields(&stat).and_then(|mut fields| fields.next()), Some("T" | "t"))
}

/// Fields of `/proc/PID/stat` from the state on, which is field 3: proc_pid_stat(5). The one before, the command, may hold spaces and brackets.
fn fields(stat: &str) -> Option<SplitAsciiWhitespace<'_>> {
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace())
}

fn parse_start_time(stat: &str) -> Option<u64> {
    parse_stat(stat).map(|(start, _)| start)
}

/// When it started, and the CPU that it was on last.
fn parse_stat(stat: &str) -> Option<(u64, u32)> {
    let mut fields = fields(stat)?;
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // The start time is field 22, the CPU field 39.
    let start = fields.nth(18)?.parse().ok()?;
    Some((start, fields.nth(16)?.parse().ok()?))
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
