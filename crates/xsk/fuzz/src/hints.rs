//! BTF, object files and metadata that nobody vouches for: the target of the fuzzer (`make fuzz`) and of
//! `crates/xsk/tests/it/hints_hostile.rs`, which runs it without one.
//!
//! What must hold whatever the bytes are: no panic, an end soon, and each field of each layout lies in its struct.

use std::sync::Arc;

use ringside_xsk::hints::{Btf, LONGEST, Layouts};

/// Runs one input: raw BTF, an object file, or split BTF on a base that is the same.
///
/// # Panics
///
/// When one of the above does not hold.
pub(crate) fn run(input: &[u8]) {
    if let Ok(btf) = Btf::object(input) {
        look(&btf);
    }
    let Ok(btf) = Btf::parse(input) else { return };
    look(&btf);
    let base = Arc::new(btf);
    if let Ok(split) = Btf::parse_split(input, &base) {
        look(&split);
    }
}

fn look(btf: &Btf) {
    let (layouts, problems) = btf.layouts();
    for problem in problems {
        assert!(!problem.to_string().is_empty());
    }
    let bytes = [0xa5; LONGEST as usize];
    for layout in &layouts {
        assert!(layout.size() <= LONGEST && layout.size() % 4 == 0 && layout.id() != 0);
        for field in layout.fields() {
            let count = field.count().unwrap_or(1);
            assert!(field.offset() + field.size() * count <= layout.size(), "{field:?}");
            for element in 0..count {
                let front = &bytes[..layout.size() as usize];
                assert!(field.value(front, element).is_some(), "{field:?} {element}");
            }
            assert!(field.value(&bytes, count).is_none());
        }
        let id = layout.fields().last().expect("the id");
        assert_eq!((id.name(), id.offset() + 4), ("btf_id", layout.size()));
    }
    if let Ok(set) = Layouts::of(btf) {
        assert_eq!(set.len(), layouts.len());
    }
}
