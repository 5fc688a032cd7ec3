//! The REST API of Segue and what its binary is made of.
//!
//! This crate turns requests into commands and queries of the domain and back; it decides nothing about artifacts.
//! [`serve`] runs a whole service inside of a program, which is how tests use it.

mod admin;
pub mod config;
mod cors;
mod documents;
mod drivers;
pub mod example_service;
mod front;
mod idempotency;
mod inside;
mod legacy;
pub mod limits;
pub mod logs;
mod memo;
mod negotiation;
mod openapi;
mod paging;
mod parameters;
mod problem;
mod relay;
mod request;
mod routes;
mod server;
mod service;
mod table;
#[cfg(test)]
mod tests;
pub mod tools;
mod upkeep;

pub use drivers::DriverError;
pub use server::{ServeError, Serving, serve};
