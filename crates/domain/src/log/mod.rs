//! The append-only log: the only truth.
