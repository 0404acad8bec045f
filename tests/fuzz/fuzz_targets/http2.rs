//! The fuzzer over `ringbolt_fuzz::http2`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::http2::run(input));
