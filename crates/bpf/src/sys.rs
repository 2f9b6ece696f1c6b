//! The two calls of bpf(2) that libbpf-rs has no safe function for: all unsafe code of this crate.

#![allow(
    unsafe_code,
    reason = "libbpf-rs offers neither links from plain descriptors nor the batch size of a test run"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{self, bpf_attach_type, bpf_link_create_opts, bpf_test_run_opts, size_t};

/// Attaches `program` to the interface `ifindex` of the calling thread's network namespace.
/// Closing the result detaches it again.
pub(crate) fn link(program: BorrowedFd<'_>, ifindex: u32, hook: bpf_attach_type, flags: u32) -> io::Result<OwnedFd> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(ENODEV))?;
    let options = bpf_link_create_opts {
        sz: size_of::<bpf_link_create_opts>() as size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: `options` is valid for the call and names its own size; libbpf only reads it. The
    // descriptor is open for as long as the borrow lives.
    let fd = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), ifindex, hook, &raw const options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno-base.h#L23>
const ENODEV: i32 = 19;

/// What a program is run on, without an interface.
#[derive(Default)]
pub(crate) struct TestRun<'a> {
    /// The packet, Ethernet header first.
    pub(crate) packet: &'a [u8],
    /// Where the packet goes after the run; must be empty for live frames.
    pub(crate) output: &'a mut [u8],
    /// How often.
    pub(crate) repeat: u32,
    /// `BPF_F_TEST_…`.
    pub(crate) flags: u32,
    /// Live frames at a time; 0: 64.
    pub(crate) batch: u32,
}

/// How a run ended.
pub(crate) struct TestRan {
    /// The program's return value.
    pub(crate) value: u32,
    /// Length of the packet afterwards, which may exceed `output`.
    pub(crate) length: u32,
}

/// Runs `program` as `BPF_PROG_TEST_RUN` does.
pub(crate) fn test_run(program: BorrowedFd<'_>, run: TestRun<'_>) -> io::Result<TestRan> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as size_t,
        data_in: run.packet.as_ptr().cast(),
        data_size_in: u32::try_from(run.packet.len()).map_err(invalid)?,
        repeat: i32::try_from(run.repeat).map_err(invalid)?,
        flags: run.flags,
        batch_size: run.batch,
        ..Default::default()
    };
    if !run.output.is_empty() {
        options.data_out = run.output.as_mut_ptr().cast();
        options.data_size_out = u32::try_from(run.output.len()).map_err(invalid)?;
    }
    // SAFETY: `options` names its own size, and each pointer in it belongs to a slice that outlives
    // the call and has the length given beside it; the kernel reads `*_in` and writes at most
    // `data_size_out` bytes to `data_out`.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) };
    if error < 0 {
        return Err(io::Error::from_raw_os_error(-error));
    }
    Ok(TestRan {
        value: options.retval,
        length: options.data_size_out,
    })
}
