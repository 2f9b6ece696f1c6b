//! A program that takes along whatever it has started.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::process::{Child, Command};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, getppid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::sys;

/// Starts a command as the first process of a namespace of processes, which the kernel ends with it: whatever it has started then ends,
/// too, also what has become a session of its own or has not come to ask for anything yet.
/// Signals that it has not asked for do not reach it, but for SIGKILL: pid_namespaces(7), Linux 3.8. It sees `/proc` as it is here.
///
/// # Errors
/// Without `CAP_SYS_ADMIN`, without `/proc`, and what starting a program meets.
pub fn spawn_with_offspring(command: &mut Command) -> io::Result<Child> {
    // What its own children will be in is the thread's, too, and has another name.
    let own = File::open("/proc/thread-self/ns/pid")?;
    sys::new_process_namespace()?;
    let child = command.spawn();
    // The thread's next children are as they were, or there is none at all.
    if let Err(error) = move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::ProcessID)) {
        if let Ok(mut child) = child {
            child.kill()?;
            child.wait()?;
        }
        return Err(error.into());
    }
    child
}

/// The parent of the calling process, also where that is in another namespace of processes; `None` if that has none here.
///
/// Runs between `fork` and `exec` too: nothing here may allocate, free or lock.
pub(crate) fn parent() -> io::Result<Option<Pid>> {
    if let Some(parent) = getppid() {
        return Ok(Some(parent));
    }
    // One whose parent is outside has no number for it; /proc is of the outer namespace, and has. The command is as long as 64 bytes there.
    let mut stat = [0; 256];
    let file = open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let len = rustix::io::read(&file, &mut stat)?;
    Ok(parse_parent(stat.get(..len).unwrap_or_default()))
}

/// Field 4 of `/proc/PID/stat`: proc_pid_stat(5). The command before it may hold spaces and brackets.
fn parse_parent(stat: &[u8]) -> Option<Pid> {
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat
        .get(behind..)?
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty());
    let parent = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
    Pid::from_raw(parent)
}

#[cfg(test)]
#[path = "offspring_tests.rs"]
mod tests;
