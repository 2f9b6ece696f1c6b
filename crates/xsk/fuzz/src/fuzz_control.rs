//! The fuzzer of the control protocol between two hosts, both sides of it: `make fuzz` builds and runs it after that of hints.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringside_measure::control::rubbish_of(input));
