//! Helpers of the integration tests: the real program, real load, a real Docker daemon. They panic with a sentence that
//! says what went wrong, because nobody but tests uses them.

pub mod dockerd;
pub mod load;
pub mod ports;
pub mod processes;
pub mod registry;
pub mod service;
pub mod shop;
pub mod wait;
