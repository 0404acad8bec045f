//! The fuzzer over `ringbolt_fuzz::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::requests::run(input));
