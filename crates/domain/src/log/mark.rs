//! The last position that was acknowledged and the hash of the log there, in a small file beside those of RocksDB.
//!
//! When the write-ahead log ends early, RocksDB cannot tell an entry that a crash tore, which nobody was promised, from
//! acknowledged ones that the disk lost or whose length changed. The mark can: it is written after each commit and before
//! its acknowledgements, and an opened log that ends before it, or has another hash there, has lost something. It is not synced, so it costs no
//! fdatasync; after a power failure it may be old, never ahead, and then checks less. Since it must not be newer than
//! the files beside it, a log is copied when it is closed, or by a backup, which makes its own.

use super::chain::{ChainHash, HASH_BYTES, Place};
use super::format::record_key;
use crate::event::Position;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

const NAME: &str = "acknowledged";
/// Version, position, hash and checksum.
const BYTES: usize = 1 + 8 + HASH_BYTES + 4;
const VERSION: u8 = 2;
/// Version 1 had neither a version nor a hash.
const BYTES_1: usize = 12;

/// An open mark.
pub(super) struct Mark(File);

/// What a mark says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acknowledged {
    pub position: Position,
    /// Marks of version 1 have none.
    pub hash: Option<ChainHash>,
}

impl Mark {
    /// Opens the mark in `directory`, and what it says; an empty or torn one says nothing.
    pub fn open(directory: &Path) -> io::Result<(Self, Option<Acknowledged>)> {
        let path = directory.join(NAME);
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let mut bytes = Vec::with_capacity(BYTES);
        Read::by_ref(&mut file).take(BYTES as u64).read_to_end(&mut bytes)?;
        Ok((Self(file), decode(&bytes)))
    }

    /// Notes that all up to `place` is durable.
    pub fn set(&self, place: Place) {
        // A mark that cannot be written stays behind, which is allowed; the records themselves are safe.
        _ = self.0.write_all_at(&encode(place), 0);
    }
}

/// Frozen: version; position, big-endian; hash; CRC-32C of all that, little-endian.
fn encode(place: Place) -> [u8; BYTES] {
    let mut bytes = [VERSION; BYTES];
    bytes[1..9].copy_from_slice(&record_key(place.position));
    bytes[9..BYTES - 4].copy_from_slice(&place.hash.0);
    let checksum = crc32c::crc32c(&bytes[..BYTES - 4]);
    bytes[BYTES - 4..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<Acknowledged> {
    if bytes.len() == BYTES_1 {
        let (key, checksum) = bytes.split_first_chunk()?;
        let position = Position(u64::from_be_bytes(*key));
        let fits = crc32c::crc32c(key).to_le_bytes() == checksum;
        return fits.then_some(Acknowledged { position, hash: None });
    }
    let position = Position(u64::from_be_bytes(*bytes.get(1..)?.first_chunk()?));
    let hash = ChainHash(*bytes.get(9..)?.first_chunk()?);
    let fits = bytes == encode(Place { position, hash });
    fits.then_some(Acknowledged { position, hash: Some(hash) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_found_again_unless_torn() {
        let directory = tempfile::tempdir().unwrap();
        let (mark, nothing) = Mark::open(directory.path()).unwrap();
        assert_eq!(nothing, None);
        mark.set(Place::default());
        let place = Place { position: Position(515), hash: ChainHash([9; HASH_BYTES]) };
        mark.set(place);
        let path = directory.path().join(NAME);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes[..10], [2, 0, 0, 0, 0, 0, 0, 2, 3, 9]);
        let found = || Mark::open(directory.path()).unwrap().1;
        assert_eq!(
            found(),
            Some(Acknowledged { position: place.position, hash: Some(place.hash) })
        );
        for cut in 0..BYTES {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            assert_eq!(found(), None);
            let mut changed = bytes.clone();
            changed[cut] ^= 16;
            std::fs::write(&path, changed).unwrap();
            assert_eq!(found(), None);
        }
        let key = record_key(Position(7));
        std::fs::write(&path, [&key[..], &crc32c::crc32c(&key).to_le_bytes()].concat()).unwrap();
        assert_eq!(found(), Some(Acknowledged { position: Position(7), hash: None }));
    }
}
