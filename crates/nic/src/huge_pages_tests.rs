use super::*;

/// Whether the kernel knows that huge pages are wanted for all of it.
fn is_asked_for(memory: &[u8]) -> bool {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("proc");
    let (begin, end) = (memory.as_ptr().addr(), memory.as_ptr_range().end.addr());
    let mut asked = 0;
    let mut here = 0..0;
    for line in maps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            if flags.split_whitespace().any(|flag| flag == "hg") {
                asked += here.end.min(end).saturating_sub(here.start.max(begin));
            }
        } else if let Some((from, to)) = line.split(' ').next().and_then(|range| range.split_once('-')) {
            let address = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            here = address(from)..address(to);
        }
    }
    asked == end - begin
}

/// Memory of this allocator, and not of that of the test.
struct Memory(*mut u8, Layout);

impl Memory {
    fn new(bytes: usize, zeroed: bool) -> Self {
        let layout = Layout::from_size_align(bytes, 8).expect("small");
        // SAFETY: the layout has a size.
        let memory = unsafe {
            if zeroed {
                HugePages.alloc_zeroed(layout)
            } else {
                HugePages.alloc(layout)
            }
        };
        assert!(!memory.is_null());
        Self(memory, layout)
    }

    fn grow(&mut self, bytes: usize) {
        // SAFETY: the memory is of this allocator and layout, and the new size is not zero.
        self.0 = unsafe { HugePages.realloc(self.0, self.1, bytes) };
        self.1 = Layout::from_size_align(bytes, 8).expect("small");
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
        return;
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
