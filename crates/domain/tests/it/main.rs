//! The core as its users see it: documents in, events and refusals out. One binary, since each links the log.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is an answer")]

mod deployments;
mod escalations;
mod examples;
mod fuzz;
mod generate;
mod laws;
mod round_trip;
mod rules;
mod world;
