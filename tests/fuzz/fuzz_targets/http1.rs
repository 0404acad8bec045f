//! The fuzzer over `ringbolt_fuzz::http1`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::http1::run(input));
