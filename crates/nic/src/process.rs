//! Processes, told from later ones that have the same number.

use std::fs;

/// When a process or thread started, in clock ticks since boot; `None` if it does not live.
///
/// A process that nobody has waited for yet is dead all the same. From field 22 of `/proc/PID/stat`: proc_pid_stat(5).
pub fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name that `ps` shows; kernel threads have theirs in full since Linux 5.17, else 15 bytes of it.
pub(crate) fn command(pid: u32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(text.trim_end().to_owned())
}

/// Fields of `/proc/PID/stat`: proc_pid_stat(5). The second one, the command, may hold spaces and brackets.
fn parse_start_time(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    // State is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
