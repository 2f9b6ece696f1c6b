//! Clocks, counter and `ioctl`s: the only unsafe code of the clocks.

#![allow(
    unsafe_code,
    reason = "clock_gettime, CPU instructions and ioctl; every block says why it is sound"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use super::ptp::{Caps, SysOffsetExtended, SysOffsetPrecise};

/// One of the clocks that every kernel has, as seconds and nanoseconds: by vDSO, without a system call, where the kernel's
/// clock source allows it.
#[inline]
pub(super) fn gettime(clock: libc::clockid_t) -> (i64, i64) {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call, which writes nothing else.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "clock {clock} is as old as Linux 3.10");
    (time.tv_sec, time.tv_nsec)
}

/// Sleeps until a clock shows this time; a signal ends it, too.
pub(super) fn sleep_until(clock: libc::clockid_t, seconds: i64, nanos: i64) -> io::Result<()> {
    let until = libc::timespec {
        tv_sec: seconds,
        tv_nsec: nanos,
    };
    // SAFETY: `until` outlives the call, which only reads it; with an absolute time nothing is written about what is left.
    match unsafe { libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &raw const until, ptr::null_mut()) } {
        0 | libc::EINTR => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Status bits and largest error in microseconds of the discipline of CLOCK_REALTIME, and CLOCK_TAI's offset from it in seconds.
pub(super) fn discipline() -> io::Result<(libc::c_int, libc::c_long, libc::c_int)> {
    // SAFETY: a structure of integers, for which zero is a value; modes of 0 say that nothing is to be set.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` outlives the call, which writes nothing else.
    match unsafe { libc::adjtimex(&raw mut state) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok((state.status, state.maxerror, state.tai)),
    }
}

/// The time stamp counter. The CPU may read it before instructions in front of it are done, some tens of nanoseconds at
/// the most.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux lets user code use it unless the process forbids itself to
    // (PR_SET_TSC), which raises a signal and does no harm to memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// As [`counter`], but not before all loads in front of it are done: what the kernel's own clock does
/// (<https://elixir.bootlin.com/linux/v6.18/C/ident/rdtsc_ordered>).
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn counter_in_order() -> u64 {
    // SAFETY: SSE2, which has the fence, is part of x86-64. It does nothing but wait.
    unsafe { core::arch::x86_64::_mm_lfence() };
    counter()
}

/// Whether the counter has one rate in all power states: Intel SDM 18.17.1, AMD APM 15.2.1; CPUID 8000_0007h, EDX bit 8.
#[cfg(target_arch = "x86_64")]
pub(super) fn counter_is_invariant() -> bool {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    let most = core::arch::x86_64::__cpuid(0x8000_0000).eax;
    most >= ADVANCED_POWER && core::arch::x86_64::__cpuid(ADVANCED_POWER).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn counter() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn counter_in_order() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) fn counter_is_invariant() -> bool {
    false
}

/// A structure that one PTP `ioctl` reads and writes, and nothing beyond it.
pub(super) trait Request: Copy {
    /// The number of the `ioctl`, which holds the size of the structure.
    const NUMBER: libc::Ioctl;
}

const fn number(direction: u32, command: u32, size: usize) -> libc::Ioctl {
    // _IOC(): https://elixir.bootlin.com/linux/v6.18/C/ident/_IOC, with PTP_CLK_MAGIC '='. The sizes are far below 2^14.
    #[allow(clippy::cast_possible_truncation, reason = "asserted below 2^14")]
    let size = {
        assert!(size < 1 << 14);
        size as u32
    };
    (direction << 30 | size << 16 | (b'=' as u32) << 8 | command) as libc::Ioctl
}

const READ: u32 = 2;
const WRITE: u32 = 1;

impl Request for Caps {
    /// PTP_CLOCK_GETCAPS: <https://elixir.bootlin.com/linux/v6.18/C/ident/PTP_CLOCK_GETCAPS>
    const NUMBER: libc::Ioctl = number(READ, 1, size_of::<Self>());
}

impl Request for SysOffsetPrecise {
    /// PTP_SYS_OFFSET_PRECISE (Linux 4.6): <https://elixir.bootlin.com/linux/v6.18/C/ident/PTP_SYS_OFFSET_PRECISE>
    const NUMBER: libc::Ioctl = number(READ | WRITE, 8, size_of::<Self>());
}

impl Request for SysOffsetExtended {
    /// PTP_SYS_OFFSET_EXTENDED (Linux 5.0): <https://elixir.bootlin.com/linux/v6.18/C/ident/PTP_SYS_OFFSET_EXTENDED>
    const NUMBER: libc::Ioctl = number(READ | WRITE, 9, size_of::<Self>());
}

/// Asks a PHC.
pub(super) fn ask<R: Request>(device: BorrowedFd<'_>, request: &mut R) -> io::Result<()> {
    // SAFETY: `request` outlives the call and is plain old data of exactly the size that the number says, which is how
    // much the kernel reads and writes (the trait's promise, checked by the tests of the layouts). A device of another
    // kind answers ENOTTY.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), R::NUMBER, ptr::from_mut(request)) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
#[path = "sys_tests.rs"]
mod tests;
