//! The fuzzer of what the gateway decides, with tables, rules and connections: `make fuzz` builds and runs it after that of frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_gateway_core::testing::hostile::decide(input));
