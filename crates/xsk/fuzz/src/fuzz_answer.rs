//! The fuzzer of what the gateway edits, with any room for it: `make fuzz` builds and runs it after that of decisions.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_gateway_core::testing::hostile::answer(input));
