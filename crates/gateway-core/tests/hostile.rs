//! What nobody vouches for: the fuzzer's targets on the inputs that were kept, and on variations of them. `make fuzz` goes on for as
//! long as one likes.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use ringside_gateway_core::testing::hostile::{TARGETS, variation};

/// Inputs of each target; as many as one likes with `RINGSIDE_FUZZ_ROUNDS`.
const ROUNDS: u64 = 3_000;

fn kept(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../xsk/fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(&folder).expect("the corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("readable").path()).collect();
    // The same order everywhere, so that a failure comes again.
    paths.sort();
    paths
        .into_iter()
        .map(|path| std::fs::read(path).expect("readable"))
        .collect()
}

/// Runs one input; if it fails, it is told how to keep it.
fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) else {
        return;
    };
    let mut escaped = String::new();
    for byte in input {
        write!(escaped, "\\x{byte:02x}").expect("a string");
    }
    eprintln!("it can be kept: printf '{escaped}' >crates/xsk/fuzz/corpus/{name}/NAME");
    resume_unwind(panic);
}

#[test]
fn kept_inputs() {
    for (name, _, target) in TARGETS {
        let inputs = kept(name);
        assert!(inputs.len() > 20, "{} inputs of {name}", inputs.len());
        for input in inputs {
            run(name, target, &input);
        }
    }
}

#[test]
fn variations_of_kept_inputs() {
    let rounds = std::env::var("RINGSIDE_FUZZ_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().expect("a number"));
    for (name, longest, target) in TARGETS {
        let inputs = kept(name);
        for seed in 0..rounds {
            let mut input = variation(seed, &inputs);
            input.truncate(longest);
            run(name, target, &input);
        }
    }
}
