//! The core as its users see it: documents in, events and refusals out. One binary, since each links the log.

mod deployments;
mod generate;
mod laws;
mod round_trip;
mod rules;
mod world;
