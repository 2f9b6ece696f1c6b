//! The fuzzer: `make fuzz` builds it with coverage and AddressSanitizer, and runs it.
#![no_main]

mod scenario;

libfuzzer_sys::fuzz_target!(|input: &[u8]| scenario::run(input));
