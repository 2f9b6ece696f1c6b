use ringside_netlab::testing::skip_unsupported;

use super::*;

/// Whether the kernel knows that huge pages are wanted for all of it.
fn is_asked_for(memory: &[u8]) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("proc");
    let (begin, end) = (memory.as_ptr().addr(), memory.as_ptr_range().end.addr());
    // Other threads map and unmap meanwhile, so that a mapping may be told twice.
    let mut asked = begin;
    let mut here = 0..0;
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if here.contains(&asked) && flags.split_whitespace().any(|flag| flag == "hg") {
                asked = here.end;
            }
        } else if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let address = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            here = address(from)..address(to);
        }
    }
    asked >= end
}

/// Memory of this allocator, and not of that of the test.
struct Memory(*mut u8, Layout);

impl Memory {
    fn new(bytes: usize, zeroed: bool) -> Self {
        Self::aligned(bytes, 8, zeroed)
    }

    fn aligned(bytes: usize, align: usize, zeroed: bool) -> Self {
        let layout = Layout::from_size_align(bytes, align).expect("small");
        // SAFETY: the layout has a size.
        let memory = unsafe {
            if zeroed {
                HugePages.alloc_zeroed(layout)
            } else {
                HugePages.alloc(layout)
            }
        };
        assert!(!memory.is_null() && memory.addr().is_multiple_of(align));
        Self(memory, layout)
    }

    fn grow(&mut self, bytes: usize) {
        // SAFETY: the memory is of this allocator and layout, and the new size is not zero.
        self.0 = unsafe { HugePages.realloc(self.0, self.1, bytes) };
        self.1 = Layout::from_size_align(bytes, self.1.align()).expect("small");
        assert!(!self.0.is_null() && self.0.addr().is_multiple_of(self.1.align()));
    }

    /// With something in all of it.
    fn filled(&mut self) -> &[u8] {
        // SAFETY: all of it is given, and written before it is read.
        unsafe {
            self.0.write_bytes(7, self.1.size());
            std::slice::from_raw_parts(self.0, self.1.size())
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory is of this allocator and layout.
        unsafe { HugePages.dealloc(self.0, self.1) };
    }
}

/// However it came to be large; and wherever in a huge page it begins.
#[test]
fn what_is_large_is_asked_for() {
    if !std::fs::exists("/sys/kernel/mm/transparent_hugepage").expect("sysfs") {
        return skip_unsupported("transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)");
    }
    for bytes in [LARGE, LARGE + 1, HUGE - 4096, 64 << 20] {
        let mut given = Memory::new(bytes, false);
        assert!(is_asked_for(given.filled()), "{bytes}");
        let mut zeroed = Memory::new(bytes, true);
        assert!(is_asked_for(zeroed.filled()), "{bytes}, zeroed");
        let mut grown = Memory::new(100, false);
        grown.grow(bytes);
        grown.grow(2 * bytes);
        assert!(is_asked_for(grown.filled()), "{bytes}, grown");
    }
}

#[test]
fn what_is_small_or_not_there_is_left_alone() {
    let mut small = Memory::new(LARGE - 1, true);
    assert_eq!(small.filled().len(), LARGE - 1);
    let null = ask(std::ptr::null_mut(), LARGE);
    assert!(null.is_null());
}

/// With what is in it, whatever the size and the alignment.
#[test]
fn what_grows_and_shrinks_keeps_what_is_in_it() {
    for align in [1, 8, 64, 4096, 4 << 20] {
        for (from, to) in [
            (100, 300),
            (100, LARGE),
            (LARGE, 3 * HUGE),
            (3 * HUGE, 5 * HUGE),
            (5 * HUGE, 10),
        ] {
            let mut memory = Memory::aligned(from, align, true);
            // SAFETY: all of it is given and zeroed.
            let there = unsafe { std::slice::from_raw_parts_mut(memory.0, from) };
            assert!(there.iter().all(|byte| *byte == 0), "{align}, {from}");
            for (byte, number) in there.iter_mut().zip((0..251).cycle()) {
                *byte = number;
            }
            memory.grow(to);
            // SAFETY: so much of it was written.
            let kept = unsafe { std::slice::from_raw_parts(memory.0, from.min(to)) };
            assert!(
                kept.iter().copied().eq((0..251).cycle().take(kept.len())),
                "{align}, {from} to {to}"
            );
        }
    }
}
