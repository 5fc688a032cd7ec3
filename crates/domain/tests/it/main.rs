//! The core as its users see it: documents in, events and refusals out. One binary, since each links the log.
#![expect(clippy::unwrap_used, reason = "in a test, a panic is an answer")]
#![expect(clippy::disallowed_methods, reason = "tests have limits of time, and settings")]

mod catalogue;
mod conditions;
mod deployments;
mod escalations;
mod examples;
mod faults;
mod fuzz;
mod generate;
mod health_checks;
mod laws;
mod references;
mod round_trip;
mod rules;
mod world;
