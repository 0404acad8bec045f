//! The fuzzer over `ringbolt_fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::config::run(input));
