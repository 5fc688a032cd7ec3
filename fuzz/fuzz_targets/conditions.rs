//! The target `conditions` of targets.rs, for cargo-fuzz.
#![no_main]

#[expect(dead_code, reason = "each program has one target")]
#[path = "../targets.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::conditions(data));
