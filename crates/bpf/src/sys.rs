//! The calls of bpf(2) that libbpf-rs has no safe function for: all unsafe code of this crate.

#![allow(
    unsafe_code,
    reason = "libbpf-rs has links only with objects of its own, and no batch size for a test run"
)]

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use libbpf_rs::libbpf_sys::{self, bpf_attach_type, bpf_insn, bpf_link_create_opts, bpf_test_run_opts, size_t};
use libbpf_rs::{MapCore, MapHandle, MapType};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::gateway::Slot;

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
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches `program` to an interface that has none in this mode. It stays when the process ends.
pub(crate) fn attach_xdp(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<()> {
    let ifindex = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(ENODEV))?;
    let flags = flags | libbpf_sys::XDP_FLAGS_UPDATE_IF_NOEXIST;
    // SAFETY: the descriptor is open for as long as the borrow lives; null stands for no options.
    let error = unsafe { libbpf_sys::bpf_xdp_attach(ifindex, program.as_raw_fd(), flags, ptr::null()) };
    check(error)
}

/// Returns a descriptor of a loaded program.
pub(crate) fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes a number alone.
    let fd = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the tag of a program: the hash of its instructions.
pub(crate) fn program_tag(program: BorrowedFd<'_>) -> io::Result<[u8; 8]> {
    let path = format!("/proc/self/fdinfo/{}", program.as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let tag = text.lines().find_map(|line| line.strip_prefix("prog_tag:"));
    let tag = tag.and_then(|tag| u64::from_str_radix(tag.trim(), 16).ok());
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "no tag in fdinfo of a program");
    tag.map(u64::to_be_bytes).ok_or_else(missing)
}

/// Loads an XDP program that passes every packet.
pub(crate) fn load_pass() -> io::Result<OwnedFd> {
    const XDP_PASS: i32 = 2;
    let instruction = |code, imm| bpf_insn {
        code,
        imm,
        ..Default::default()
    };
    // r0 = XDP_PASS; exit
    let program = [instruction(0xb7, XDP_PASS), instruction(0x95, 0)];
    // SAFETY: the program has as many instructions as the call says, both texts end with a zero,
    // and all are only read; null stands for no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_XDP,
            c"ringside_pass".as_ptr(),
            c"Apache-2.0".as_ptr(),
            program.as_ptr(),
            program.len() as size_t,
            ptr::null_mut(),
        )
    };
    check(fd)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Replaces the program behind a link, in one step: each packet meets the old or the new one.
pub(crate) fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open for as long as the borrows live; null stands for no options.
    let error = unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), ptr::null()) };
    check(error)
}

/// Detaches at once, whoever else has a descriptor of the link.
pub(crate) fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as the borrow lives.
    let error = unsafe { libbpf_sys::bpf_link_detach(link.as_raw_fd()) };
    check(error)
}

/// Gives an object of bpf(2) a name in a bpffs, by which it outlives the process.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    // SAFETY: the descriptor is open and the path ends with a zero, both for as long as the borrows live.
    let error = unsafe { libbpf_sys::bpf_obj_pin(object.as_raw_fd(), path.as_ptr()) };
    check(error)
}

/// The values of an array map, in memory that is shared with the kernel and with programs. Linux 5.5.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    first: NonNull<T>,
    count: usize,
    values: PhantomData<T>,
}

// SAFETY: a mapping belongs to the process, not to a thread.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: it only gives shared references to values.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl Shared<Slot> {
    /// So many values of an array whose values are of this type's size.
    pub(crate) fn new(map: &MapHandle, count: usize) -> io::Result<Self> {
        let is_its = map.map_type() == MapType::Array && map.value_size() as usize == size_of::<Slot>();
        if !is_its || count == 0 || count > map.max_entries() as usize {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let first = unsafe {
            mmap(
                ptr::null_mut(),
                count * size_of::<Slot>(),
                protection,
                flags,
                map.as_fd(),
                0,
            )?
        };
        let first = NonNull::new(first.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self {
            first,
            count,
            values: PhantomData,
        })
    }
}

impl<T> Shared<T> {
    pub(crate) fn all(&self) -> &[T] {
        // SAFETY: so many values are mapped there, from the beginning of a page on, for as long as `self` lives. Only `Slot`s are
        // ever shared: made of atomics, for which all bytes are valid, and which others may change at any time.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, once; references to it cannot outlive `self`.
        let unmapped = unsafe { munmap(self.first.as_ptr().cast(), self.count * size_of::<T>()) };
        debug_assert!(unmapped.is_ok());
    }
}

/// How far a hash has been read: the next bucket, which is what the kernel's "opaque" batches are.
/// <https://elixir.bootlin.com/linux/v6.18/source/kernel/bpf/hashtab.c#L1697>
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    next: Option<u32>,
    end: bool,
}

impl Cursor {
    pub(crate) fn is_at_start(&self) -> bool {
        self.next.is_none() && !self.end
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.end
    }
}

/// Reads entries of a hash into `keys` and `values`, each with its length of one, and says how many. (libbpf-rs has an
/// iterator for it, which takes a batch that has less than was asked for as the last one. It need not be: a bucket that
/// does not fit any more waits for the next batch.)
pub(crate) fn lookup_batch(
    map: &MapHandle,
    cursor: &mut Cursor,
    keys: &mut [u8],
    values: &mut [u8],
) -> io::Result<usize> {
    let fits = |bytes: &[u8], len: u32| bytes.len().checked_div(len as usize).unwrap_or(0);
    let room = fits(keys, map.key_size()).min(fits(values, map.value_size()));
    let mut count = u32::try_from(room).unwrap_or(u32::MAX);
    let mut next = 0u32;
    let from = cursor
        .next
        .as_mut()
        .map_or(ptr::null_mut(), |next| ptr::from_mut(next).cast());
    // SAFETY: the descriptor is open for as long as the borrow lives. The kernel reads four bytes at `from` unless it is null,
    // and writes four to `next`, which all live until the call is over; to `keys` and `values` it writes at most `count`
    // entries, of the sizes that it told when the handle was made: there is room for them. Null stands for no options.
    let error = unsafe {
        libbpf_sys::bpf_map_lookup_batch(
            map.as_fd().as_raw_fd(),
            from,
            ptr::from_mut(&mut next).cast(),
            keys.as_mut_ptr().cast(),
            values.as_mut_ptr().cast(),
            &raw mut count,
            ptr::null(),
        )
    };
    match -error {
        0 => cursor.next = Some(next),
        ENOENT => cursor.end = true,
        errno => return Err(io::Error::from_raw_os_error(errno)),
    }
    Ok(count as usize)
}

/// Writes entries of a hash, of which `keys` and `values` have the same number. Returns how many
/// are written, and why the one behind them is not. (libbpf-rs does not say how many.)
pub(crate) fn update_batch(map: &MapHandle, keys: &[u8], values: &[u8]) -> (usize, io::Result<()>) {
    let count_of = |bytes: &[u8], len: u32| bytes.len().checked_div(len as usize).unwrap_or(0);
    let all = count_of(keys, map.key_size()).min(count_of(values, map.value_size()));
    let mut count = u32::try_from(all).unwrap_or(u32::MAX);
    // SAFETY: the descriptor is open for as long as the borrow lives. The kernel reads at most
    // `count` entries of `keys` and `values`, which are there, of the sizes that it reported when
    // the handle was made. It writes to `count`, which lives until the call is over. Null stands
    // for no options.
    let error = unsafe {
        libbpf_sys::bpf_map_update_batch(
            map.as_fd().as_raw_fd(),
            keys.as_ptr().cast(),
            values.as_ptr().cast(),
            &raw mut count,
            ptr::null(),
        )
    };
    // Before it has written any, the kernel may refuse a call without a count.
    let ended = check(error);
    let written = if ended.is_err() && count as usize >= all {
        0
    } else {
        count as usize
    };
    (written, ended)
}

/// <https://elixir.bootlin.com/linux/v6.18/source/include/uapi/asm-generic/errno-base.h>
const ENOENT: i32 = 2;
const ENODEV: i32 = 19;

/// Returns the error that libbpf reports with a number below zero.
fn check(answer: i32) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(-answer));
    }
    Ok(())
}

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
    check(error)?;
    Ok(TestRan {
        value: options.retval,
        length: options.data_size_out,
    })
}
