//! The REST API of Segue and what its binary is made of.
//!
//! This crate turns requests into commands and queries of the domain and back; it decides nothing about artifacts.
//! [`serve`] runs a whole service inside of a program, which is how tests use it.

mod admin;
pub mod config;
mod documents;
mod drivers;
pub mod example_service;
mod front;
pub mod logs;
mod negotiation;
mod paging;
mod parameters;
mod problem;
mod request;
mod routes;
mod server;
mod service;
#[cfg(test)]
mod tests;
pub mod tools;
mod upkeep;

pub use drivers::DriverError;
pub use server::{ServeError, Serving, serve};
