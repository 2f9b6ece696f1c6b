//! Mappings that unmap themselves.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use serde::Serialize;

/// The pages behind frame memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Pages {
    /// The system's normal pages, 4 KiB.
    Normal,
    /// Pages of hugetlbfs, 2 MiB.
    Huge,
    /// Memory that the caller brought.
    Custom,
}

/// A range of mapped memory, owned.
#[derive(Debug)]
pub(crate) struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread. Access goes through raw pointers whose users
// prove exclusivity themselves (frames by ownership, rings by protocol).
unsafe impl Send for Mapping {}
// SAFETY: as above: a shared `Mapping` only tells address and length.
unsafe impl Sync for Mapping {}

/// Maps a number that starts at 0, and that the kernel resets to 0 in each child of `fork()`
/// (`MADV_WIPEONFORK`, Linux 4.14). It stays for as long as the process.
///
/// # Panics
///
/// If there is no page of memory left for it.
pub(crate) fn cleared_by_fork() -> &'static AtomicU64 {
    let page = Mapping::anonymous(size_of::<AtomicU64>(), Pages::Normal).expect("a page of memory");
    // SAFETY: the range is a private anonymous mapping of our own; the kernel extends it to pages.
    let advised = unsafe { madvise(page.ptr.as_ptr().cast(), page.len, Advice::LinuxWipeOnFork) };
    advised.expect("MADV_WIPEONFORK, which came with Linux 4.14");
    let number = page.ptr.cast();
    std::mem::forget(page);
    // SAFETY: the page is aligned and holds zeros, which are a number. It is never unmapped, and
    // all access to it is through this atomic.
    unsafe { number.as_ref() }
}

/// One huge page of x86-64 and of arm64 with 4 KiB pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

impl Mapping {
    /// Private zeroed memory, its pages present before the call returns, so that no packet meets a page fault.
    pub(crate) fn anonymous(len: usize, pages: Pages) -> Result<Self, Errno> {
        let mut flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        let mut len = len;
        if pages == Pages::Huge {
            flags |= MapFlags::HUGETLB;
            len = len.next_multiple_of(HUGE_PAGE);
        }
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let ptr = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        Ok(Self::own(ptr.cast(), len))
    }

    /// `len` bytes of `fd` from `offset`, shared with the kernel.
    pub(crate) fn shared(fd: BorrowedFd<'_>, len: usize, offset: u64) -> Result<Self, Errno> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let ptr = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
                fd,
                offset,
            )?
        };
        Ok(Self::own(ptr.cast(), len))
    }

    fn own(ptr: *mut u8, len: usize) -> Self {
        let ptr = NonNull::new(ptr).expect("mmap never returns null for a free address choice");
        Self { ptr, len }
    }

    pub(crate) fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, once; whoever holds pointers into it holds the `Mapping`.
        let unmapped = unsafe { munmap(self.ptr.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}
