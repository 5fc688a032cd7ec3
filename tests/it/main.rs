//! The integration tests: one binary, with a module for each chapter of what is promised.

mod canary;
mod conditions;
mod containers;
mod disk;
mod docker_story;
mod docs;
mod faults;
mod gateways;
mod health;
mod kills;
mod rolling;
mod simulation;
mod tutorial;
