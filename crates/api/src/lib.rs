//! Placeholder while the workspace is laid out.

pub mod example_service;
