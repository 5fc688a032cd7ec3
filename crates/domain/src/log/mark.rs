//! The last position that was acknowledged, in a small file beside those of RocksDB.
//!
//! When the write-ahead log ends early, RocksDB cannot tell an entry that a crash tore, which nobody was promised, from
//! acknowledged ones that the disk lost or whose length changed. The mark can: it is written after each commit and before
//! its acknowledgements, and an opened log that ends before it has lost something. It is not synced, so it costs no
//! fdatasync; after a power failure it may be old, never ahead, and then checks less. Since it must not be newer than
//! the files beside it, a log is copied when it is closed.

use super::format::record_key;
use crate::event::Position;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const NAME: &str = "acknowledged";
const BYTES: usize = 12;

/// An open mark.
pub(super) struct Mark(File);

impl Mark {
    /// Opens the mark in `directory`, and what it says; an empty or torn one says nothing.
    pub fn open(directory: &Path) -> io::Result<(Self, Option<Position>)> {
        let path = directory.join(NAME);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::with_capacity(BYTES);
        Read::by_ref(&mut file).take(BYTES as u64).read_to_end(&mut bytes)?;
        let position = bytes.first_chunk().map(|key| Position(u64::from_be_bytes(*key)));
        let position = position.filter(|position| bytes == encode(*position));
        Ok((Self(file), position))
    }

    /// Notes that all up to `position` is durable.
    pub fn set(&self, position: Position) {
        // A mark that cannot be written stays behind, which is allowed; the records themselves are safe.
        _ = self.0.write_all_at(&encode(position), 0);
    }
}

/// Frozen: the position, 8 bytes, big-endian, and its CRC-32C, little-endian.
fn encode(position: Position) -> [u8; BYTES] {
    let key = record_key(position);
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&key);
    bytes[8..].copy_from_slice(&crc32c::crc32c(&key).to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found_again_unless_torn() {
        let directory = tempfile::tempdir().unwrap();
        let (mark, nothing) = Mark::open(directory.path()).unwrap();
        assert_eq!(nothing, None);
        mark.set(Position(1));
        mark.set(Position(515));
        let path = directory.path().join(NAME);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 2, 3, bytes[8], bytes[9], bytes[10], bytes[11]]);
        assert_eq!(Mark::open(directory.path()).unwrap().1, Some(Position(515)));
        for cut in 0..BYTES {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(Mark::open(directory.path()).unwrap().1, None);
        }
    }
}
