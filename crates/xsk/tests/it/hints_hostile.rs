//! BTF that nobody vouches for: the fuzzer's target (`crates/xsk/fuzz`) on the inputs that were kept, on real BTF with some
//! bytes changed, and on that cut anywhere.

#[path = "../../fuzz/src/hints.rs"]
mod hints;

use std::path::Path;

use ringside_bpf::testing::LAYOUTS;

/// The BTF of the test program's object, raw.
fn raw() -> Vec<u8> {
    // Its header is the only place of the object with these bytes.
    let magic = [0x9f, 0xeb, 1, 0, 24, 0, 0, 0];
    let magic = if cfg!(target_endian = "big") {
        [0xeb, 0x9f, 1, 0, 0, 0, 0, 24]
    } else {
        magic
    };
    let start = LAYOUTS
        .windows(8)
        .position(|bytes| bytes == magic)
        .expect("the object has BTF");
    let word = |at: usize| u32::from_ne_bytes(LAYOUTS[start + at..start + at + 4].try_into().expect("four")) as usize;
    LAYOUTS[start..start + 24 + word(16) + word(20)].to_vec()
}

/// Marsaglia's xorshift: a failure comes again.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn below(state: &mut u64, limit: usize) -> usize {
    usize::try_from(next(state) % limit as u64).expect("below a usize")
}

#[test]
fn kept_inputs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/hints");
    let mut count = 0;
    for file in std::fs::read_dir(&folder).expect("the corpus") {
        hints::run(&std::fs::read(file.expect("readable").path()).expect("readable"));
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn changed_bytes() {
    let (good, mut state) = (raw(), 0x5851_f42d_4c95_7f2d);
    hints::run(&good);
    hints::run(LAYOUTS);
    for _ in 0..30_000 {
        let mut bytes = good.clone();
        for _ in 0..=below(&mut state, 8) {
            let at = below(&mut state, bytes.len());
            // Small numbers are ids, counts and kinds that there are.
            bytes[at] = match next(&mut state) % 3 {
                0 => next(&mut state).to_le_bytes()[3],
                1 => next(&mut state).to_le_bytes()[3] % 20,
                _ => bytes[at] ^ (1 << (next(&mut state) % 8)),
            };
        }
        hints::run(&bytes);
    }
    for _ in 0..3000 {
        let mut bytes = LAYOUTS.to_vec();
        for _ in 0..4 {
            let at = below(&mut state, bytes.len());
            bytes[at] = next(&mut state).to_le_bytes()[3];
        }
        hints::run(&bytes);
    }
}

#[test]
fn cut_anywhere() {
    let good = raw();
    for end in 0..good.len() {
        hints::run(&good[..end]);
    }
}
