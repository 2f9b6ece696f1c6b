//! The fuzzer of which fragments pass: `make fuzz` builds and runs it as the last one.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_gateway_core::testing::hostile::fragments(input));
