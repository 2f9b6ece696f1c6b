//! The fuzzer of BTF and hints: `make fuzz` builds and runs it after the one of rings.
#![no_main]

mod hints;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hints::run(input));
