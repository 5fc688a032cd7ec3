//! The hash chain over positions: each record carries a hash of itself and of everything before it.
//!
//! ```text
//! digest of a record     BLAKE3(header, value and fact, as they are stored)
//! hash at position 0     32 zero bytes
//! hash at position n     BLAKE3(hash at n-1 followed by the digest of record n): 64 bytes, one block
//! ```
//!
//! The checksum of a record tells that its own bytes changed; the chain tells that they are not the bytes that were
//! written there: another file, another node's record, a record that is gone. Two logs whose hashes are equal at a
//! position are equal up to there. What retention dropped is stood for by a gap, which keeps the hash at its end, so
//! that what follows can still be checked. The chain knows neither RocksDB nor what a record means.

use super::error::ReadError;
use super::format::{Stored, record_position};
use crate::event::Position;
use std::fmt;

/// How many bytes a hash takes.
pub(super) const HASH_BYTES: usize = 32;

/// The hash of the log at a position: equal hashes, equal logs up to there. Shown as 64 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct ChainHash(pub(super) [u8; HASH_BYTES]);

impl ChainHash {
    /// The hash before the first record.
    pub const START: Self = Self([0; HASH_BYTES]);

    /// The hash after the record with `digest`.
    pub(super) fn link(self, digest: Digest) -> Self {
        let mut block = [0; 2 * HASH_BYTES];
        block[..HASH_BYTES].copy_from_slice(&self.0);
        block[HASH_BYTES..].copy_from_slice(&digest.0);
        Self(*blake3::hash(&block).as_bytes())
    }

    /// Reads what [`fmt::Display`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * HASH_BYTES || !text.is_ascii() {
            return None;
        }
        let mut bytes = [0; HASH_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChainHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What the chain takes of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest([u8; HASH_BYTES]);

impl Digest {
    /// The digest of the bytes of a record: header, value and fact.
    pub fn of(body: &[u8]) -> Self {
        Self(*blake3::hash(body).as_bytes())
    }
}

/// A place in the log from which one walks on, record by record, checking that each continues the chain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub position: Position,
    pub hash: ChainHash,
}

impl Place {
    /// Goes on to what is stored under `key`, which has to be the very next.
    pub fn step(&mut self, key: &[u8], stored: &Stored<'_>) -> Result<(), ReadError> {
        let position = follows(self.position, key, stored)?;
        match stored {
            Stored::Record(body) => {
                self.hash = self.hash.link(body.digest());
                if self.hash != body.hash() {
                    let reason = "it does not continue the hash chain of the records before it";
                    return Err(ReadError::Damaged { position, reason: reason.to_owned() });
                }
            }
            Stored::Gap(gap) => self.hash = gap.hash,
        }
        self.position = position;
        Ok(())
    }
}

/// The position to which what is stored under `key` leads from `after`; an error when one is missing in between.
pub(super) fn follows(
    after: Position,
    key: &[u8],
    stored: &Stored<'_>,
) -> Result<Position, ReadError> {
    let position = after.next();
    let reason = || "its key is no position".to_owned();
    let found =
        record_position(key).ok_or_else(|| ReadError::Damaged { position, reason: reason() })?;
    let first = match stored {
        Stored::Record(_) => found,
        Stored::Gap(gap) => gap.first,
    };
    // One may start to read in the middle of a gap, never behind its first position.
    if first > position || found < position {
        return Err(ReadError::Missing { position });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When this test fails, the hash of every log changes: make a new format instead.
    #[test]
    fn hashes_are_frozen() {
        let first = ChainHash::START.link(Digest::of(b"one"));
        let second = first.link(Digest::of(b"two"));
        insta::assert_snapshot!(first, @"cbb53a7dbde27829e717bae6623a37026d19058b77c7e07bfdb971b58d849735");
        insta::assert_snapshot!(second, @"2593daee1293144bfbff5f99ed3bc8d0a517f50c1532cbbe70a35b45ff096a2b");
        assert_eq!(ChainHash::parse(&second.to_string()), Some(second));
        assert_eq!(ChainHash::parse("00"), None);
    }
}
