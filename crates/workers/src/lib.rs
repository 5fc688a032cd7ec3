//! From state to effects and back: workers observe what runs, plan what differs, act through drivers, and report.
//!
//! Workers hold no truth: kill one between any two steps and its next turn converges. Drivers are the only doors to
//! the outside. This crate knows no HTTP API.

pub mod containers;
pub mod driver;
pub mod gateways;
