//! The integration tests: one binary, with a module for each chapter of what is promised.

mod canary;
mod conditions;
mod containers;
mod disk;
mod docker_faults;
mod docker_story;
mod docs;
mod faults;
mod gateways;
mod health;
mod kills;
mod proxy_faults;
mod registries;
mod rolling;
mod simulation;
mod tutorial;
