//! The integration tests: one binary, with a module for each chapter of what is promised.

mod containers;
mod simulation;
