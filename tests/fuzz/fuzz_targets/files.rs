//! The fuzzer over `ringbolt_fuzz::files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::files::run(input));
