//! Hashes as text, for names that have to be short and plain.

use sha1::{Digest, Sha1};
use std::fmt::Write;

/// SHA-1 of `text` in 40 lower-case hex digits.
pub(super) fn sha1_hex(text: &str) -> String {
    Sha1::digest(text.as_bytes()).iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").expect("writing to a text cannot fail");
        digits
    })
}
