//! The only unsafe code of this crate: leaving shared namespaces, and code between `fork` and `exec`.

#![allow(unsafe_code, reason = "unshare and pre_exec; every block says why it is sound")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::enter::Entrance;

/// Moves the calling thread into a new network namespace.
pub(crate) fn new_network_namespace() -> io::Result<()> {
    // SAFETY: `unshare_unsafe` is unsafe for CLONE_FILES alone, which invalidates file descriptors that other threads
    // hand over. This flag leaves the descriptor table alone.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Moves the calling thread into a copy of its mount namespace.
pub(crate) fn new_mount_namespace() -> io::Result<()> {
    // SAFETY: as above. CLONE_NEWNS implies CLONE_FS, which only gives the thread its own working directory.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(io::Error::from)
}

/// Makes a command enter a namespace before its program starts, and die with the thread that started it.
pub(crate) fn enter_before_exec(command: &mut Command, mut entrance: Entrance) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the signal was asked for; then it will never come.
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        entrance.enter()
    };
    // SAFETY: the closure runs after fork in a process with one thread, where only async-signal-safe work is allowed.
    // It makes system calls through rustix's raw backend and allocates nothing, takes no lock and drops no heap memory:
    // `Entrance::enter` keeps to that (see there), and an `io::Error` of an error number holds no allocation.
    unsafe { command.pre_exec(prepare) };
}
