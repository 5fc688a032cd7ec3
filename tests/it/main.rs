//! Integration tests.

mod containers;
