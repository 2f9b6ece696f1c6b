//! Large tables on huge pages.
//!
//! glibc would ask by itself with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`, but that of Debian 12 (2.36) does so or not by chance: it
//! compares what it has read of the kernel's setting with a text that it has not ended.

#![allow(unsafe_code, reason = "an allocator is given and gives raw memory")]

use std::alloc::{GlobalAlloc, Layout};
use std::{io, ptr};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::thread::disable_transparent_huge_pages;

/// What the kernel maps at once: 2 MiB, as on x86-64 and on arm64 with pages of 4 KiB.
const HUGE: usize = 2 << 20;
/// What has less is not worth a system call. Many tables are of many parts, each of less than a huge page, that lie beside each other.
const LARGE: usize = 64 << 10;
/// As what `malloc` gives is for any basic type of C: 16 bytes where pointers have 8.
const ALIGNED: usize = 2 * size_of::<usize>();

/// The C library's allocator, which asks the kernel for huge pages where 64 KiB or more are allocated at once, by
/// `madvise(MADV_HUGEPAGE)`. 2 MiB and more are the kernel's own mapping, which begins where a huge page does and is given back as soon as it is freed.
///
/// Random look-ups in tables of gigabytes wait for the page tables else. It does something where the kernel leaves that to programs
/// (`madvise` in `/sys/kernel/mm/transparent_hugepage/enabled`, as Debian and Ubuntu have it); how many there are is the kernel's to say
/// (`AnonHugePages` in `/proc/PID/smaps`). Since Linux 2.6.38
/// (<https://docs.kernel.org/admin-guide/mm/transhuge.html>).
///
/// ```
/// use ringside_nic::HugePages;
///
/// #[global_allocator]
/// static MEMORY: HugePages = HugePages;
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct HugePages;

impl HugePages {
    /// Has this process, and what it begins, be on normal pages from now on: to compare with.
    ///
    /// # Errors
    ///
    /// What the kernel says of `prctl(PR_SET_THP_DISABLE)`, since Linux 3.15.
    pub fn none() -> io::Result<()> {
        disable_transparent_huge_pages(true).map_err(io::Error::from)
    }
}

/// Asks for the huge pages that some memory is a part of. That there are none is no error.
fn ask(memory: *mut u8, bytes: usize) -> *mut u8 {
    if bytes >= LARGE && !memory.is_null() {
        let before = memory.addr() % HUGE;
        let whole = (before + bytes).next_multiple_of(HUGE);
        // SAFETY: whatever lies there, the advice changes nothing that is in it; the kernel passes over what is not mapped.
        _ = unsafe { madvise(memory.wrapping_sub(before).cast(), whole, Advice::LinuxHugepage) };
    }
    memory
}

/// Whether memory of this layout is mapped by itself, and unmapped. Of the C library's heap it would leave holes of its size when it is freed: tables
/// that grow, a part after the other, would have as much beside them again.
fn is_mapped(layout: Layout) -> bool {
    layout.size() >= HUGE
}

/// Whole pages: of the kernel's smallest, and 64 KiB is a multiple of all that there are.
fn pages(bytes: usize) -> usize {
    bytes.next_multiple_of(LARGE)
}

/// Memory of the kernel's that nobody else has, zeroed, which begins where a huge page does; what its end has of one is on smaller pages.
fn map(layout: Layout) -> *mut u8 {
    let (align, bytes) = (layout.align().max(HUGE), pages(layout.size()));
    // SAFETY: it is new memory.
    let all = unsafe {
        mmap_anonymous(
            ptr::null_mut(),
            bytes + align,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let Ok(all) = all else { return ptr::null_mut() };
    let before = all.addr().next_multiple_of(align) - all.addr();
    let memory = all.wrapping_byte_add(before);
    // SAFETY: nobody knows of what is in front of it and behind it, which is of whole pages; the advice changes nothing that is in it.
    unsafe {
        if before != 0 {
            _ = munmap(all, before);
        }
        _ = munmap(memory.wrapping_byte_add(bytes), align - before);
        _ = madvise(memory, bytes, Advice::LinuxHugepage);
    }
    memory.cast()
}

/// Memory of that alignment, of the C library's heap.
unsafe fn aligned(layout: Layout) -> *mut u8 {
    let mut memory = ptr::null_mut();
    // SAFETY: the alignment is a power of two and that of a pointer or more, and where it is not given, `memory` stays null.
    _ = unsafe { libc::posix_memalign(&mut memory, layout.align().max(ALIGNED), layout.size()) };
    memory.cast()
}

// SAFETY: what has 2 MiB is the kernel's by the size that it is given and taken back with, and all else is the C library's, as it gives it: it
// frees by address alone, and `realloc` takes what `posix_memalign` gave.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout);
        }
        if layout.align() <= ALIGNED {
            // SAFETY: it takes any size.
            return ask(unsafe { libc::malloc(layout.size()) }.cast(), layout.size());
        }
        // SAFETY: as the caller promises.
        ask(unsafe { aligned(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout);
        }
        if layout.align() <= ALIGNED {
            // What comes from the kernel is zero without being written. SAFETY: it takes any size.
            return ask(unsafe { libc::calloc(layout.size(), 1) }.cast(), layout.size());
        }
        // SAFETY: as the caller promises, and the memory is as large as the layout says.
        unsafe {
            let memory = self.alloc(layout);
            if !memory.is_null() {
                memory.write_bytes(0, layout.size());
            }
            memory
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller promises: the new size does not overflow with the alignment, and both have the lesser one.
        unsafe {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            if is_mapped(layout) && is_mapped(new) && pages(layout.size()) == pages(size) {
                return memory;
            }
            if layout.align() <= ALIGNED && !is_mapped(layout) && !is_mapped(new) {
                return ask(libc::realloc(memory.cast(), size).cast(), size);
            }
            let new = self.alloc(new);
            if !new.is_null() {
                memory.copy_to_nonoverlapping(new, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
            new
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises, it was given for this layout.
        unsafe {
            if is_mapped(layout) {
                _ = munmap(memory.cast(), pages(layout.size()));
            } else {
                libc::free(memory.cast());
            }
        }
    }
}

#[cfg(test)]
#[path = "huge_pages_tests.rs"]
mod tests;
