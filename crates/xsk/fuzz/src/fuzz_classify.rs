//! The fuzzer of what the gateway reads of a frame: `make fuzz` builds and runs it after that of the control protocol.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_gateway_core::testing::hostile::classify(input));
