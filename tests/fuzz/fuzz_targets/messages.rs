//! The fuzzer over `ringbolt_fuzz::messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::messages::run(input));
