//! The core of Segue: artifacts, the documents they come from, the append-only log, and the fold that turns one into the other.
//!
//! Data walks one way round: text becomes a [`dsl`] document, a document an [`artifact`], a wish a [`command`], a command
//! a list of [`event`]s, the [`log`] gives events their positions, and [`state`] is the fold of the log. [`store`] is the
//! façade that keeps log and state in step.
//!
//! This crate knows no HTTP, no driver, no clock and no randomness: times and identifiers are handed to it.

pub mod artifact;
pub mod command;
pub mod dsl;
pub mod event;
pub mod log;
pub mod problem;
pub mod state;
pub mod store;
