//! The segue binary.
fn main() {}
