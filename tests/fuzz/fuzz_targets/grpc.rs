//! The fuzzer over `ringbolt_fuzz::grpc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ringbolt_fuzz::grpc::run(input));
