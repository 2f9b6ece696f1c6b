//! The only unsafe code of this crate: leaving shared namespaces, code between `fork` and `exec`, and making a TAP device.

#![allow(
    unsafe_code,
    reason = "unshare, pre_exec and TUNSETIFF; every block says why it is sound"
)]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::enter::Entrance;
use crate::offspring;

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
    die_with_thread(command);
    // SAFETY: the closure runs after fork in a process with one thread, where only async-signal-safe work is allowed.
    // It makes system calls through rustix's raw backend and allocates nothing, takes no lock and drops no heap memory:
    // `Entrance::enter` keeps to that (see there), and an `io::Error` of an error number holds no allocation.
    unsafe { command.pre_exec(move || entrance.enter()) };
}

/// Makes a command's program die with the thread that starts it.
pub(crate) fn die_with_thread(command: &mut Command) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The parent may have died before the signal was asked for; then it will never come.
        if offspring::parent()? != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(())
    };
    // SAFETY: as above: system calls through rustix, a buffer on the stack, and an error of an error number.
    unsafe { command.pre_exec(prepare) };
}

/// Moves the children that the calling thread will have into a new namespace of processes.
pub(crate) fn new_process_namespace() -> io::Result<()> {
    // SAFETY: as above. The thread itself stays where it is.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.map_err(io::Error::from)
}

/// Makes a command's program inherit descriptors, under the numbers that they have here. The command keeps them open.
pub(crate) fn inherit(command: &mut Command, descriptors: Vec<OwnedFd>) {
    let keep_open = move || {
        for descriptor in &descriptors {
            rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: as above: a system call for each, and an error of an error number. In the child the flag is the child's own.
    unsafe { command.pre_exec(keep_open) };
}

/// Makes a TAP device of this name in the calling thread's namespace, which ends with the descriptor. Frames without a header
/// of the driver's.
pub(crate) fn make_tap(tun: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    attach_tap(tun, name, 0)
}

/// Makes a queue of a TAP device of this name, which ends with the descriptor of its last one. The `first` makes the device, and fails
/// if there is one (EBUSY): the kernel would add the queue to somebody else's. With `offloads` frames have the header that says what is left to do
/// about checksums and segments, else they are whole.
pub(crate) fn make_tap_queue(tun: BorrowedFd<'_>, name: &str, first: bool, offloads: bool) -> io::Result<()> {
    let header = if offloads { libc::IFF_VNET_HDR } else { 0 };
    let exclusive = if first { libc::IFF_TUN_EXCL } else { 0 };
    attach_tap(tun, name, libc::IFF_MULTI_QUEUE | header | exclusive)
}

/// Says what frames of a macvtap device's queue are like, which is there with its descriptor: with the header about checksums and segments.
pub(crate) fn set_macvtap_queue(queue: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    attach_tap(queue, name, libc::IFF_MULTI_QUEUE | libc::IFF_VNET_HDR)
}

fn attach_tap(tun: BorrowedFd<'_>, name: &str, more: libc::c_int) -> io::Result<()> {
    // Short enough to end with a zero: <https://elixir.bootlin.com/linux/v6.18/C/ident/IFNAMSIZ>
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    // SAFETY: a structure of numbers and of a union of such; all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "0xd102 at the most: the field is as long as the flags are, and its sign means nothing"
    )]
    let flags = (libc::IFF_TAP | libc::IFF_NO_PI | more) as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which lives for the call.
    // https://elixir.bootlin.com/linux/v6.18/C/ident/__tun_chr_ioctl
    let done = unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Attaches a queue of a TAP or macvtap device that a program has detached. One that is attached
/// stays as it is.
pub(crate) fn attach_queue(queue: BorrowedFd<'_>) -> io::Result<()> {
    match set_queue(queue, libc::IFF_ATTACH_QUEUE) {
        // https://elixir.bootlin.com/linux/v6.18/C/ident/tun_set_queue
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        done => done,
    }
}

/// Attaches or detaches a queue, as the flag says.
pub(crate) fn set_queue(queue: BorrowedFd<'_>, flag: libc::c_int) -> io::Result<()> {
    // SAFETY: a structure of numbers and of a union of such; all zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    #[allow(
        clippy::cast_possible_truncation,
        reason = "0x200 and 0x400: the field is as long as the flags are"
    )]
    let flags = flag as libc::c_short;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: TUNSETQUEUE reads one `ifreq`, which lives for the call.
    // https://elixir.bootlin.com/linux/v6.18/C/ident/__tun_chr_ioctl
    let done = unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETQUEUE, &raw const request) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
