//! The fuzzer over `ringbolt_fuzz::hpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::hpack::run(input));
