//! The frames of RocksDB's own logs, as far as its reader believes them before it checks them.
//!
//! RocksDB 11.8 comes to no end where a frame says that its file is a recycled one and those before it did not: one
//! flipped bit of a `MANIFEST` or of the write-ahead log, which should be an error that names the place. Its files are
//! never recycled here, so whatever says so is damaged, and is found before RocksDB reads it.
//!
//! ```text
//! blocks of 32 KiB, in each of them frames:
//!     4 bytes  CRC-32C of what follows the length, rotated and shifted ("masked")
//!     2 bytes  length of the content, little-endian
//!     1 byte   kind
//!     content
//! ```

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

const BLOCK_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;
/// The kinds that only recycled files have.
const RECYCLED: [u8; 6] = [5, 6, 7, 8, 11, 131];
const MASK: u32 = 0xa282_ead8;

/// Looks at the logs in `directory` that RocksDB is going to read. What cannot be read is left to RocksDB to tell.
pub(super) fn check(directory: &Path) -> Result<(), String> {
    let current = fs::read_to_string(directory.join("CURRENT")).unwrap_or_default();
    let manifest = current.strip_suffix('\n').filter(|name| name.starts_with("MANIFEST-"));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let logs = entries.map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    for path in manifest.map(|name| directory.join(name)).into_iter().chain(logs) {
        let mut damaged = None;
        let looked = File::open(&path).and_then(|file| {
            each(file, |place, kind| {
                if RECYCLED.contains(&kind) {
                    damaged = Some((place, kind));
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })
        });
        if let (Ok(()), Some((place, kind))) = (looked, damaged) {
            let path = path.display();
            return Err(format!(
                "{path} has a frame of kind {kind} at byte {place}, which is never written"
            ));
        }
    }
    Ok(())
}

/// Hands the place and the kind of each frame to `visit` that RocksDB's reader comes to.
fn each(mut file: impl Read, mut visit: impl FnMut(u64, u8) -> ControlFlow<()>) -> io::Result<()> {
    let mut block = Vec::new();
    let mut begin = 0;
    loop {
        block.clear();
        if file.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)? == 0 {
            return Ok(());
        }
        let mut rest = &block[..];
        while let Some((header, content)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let [c0, c1, c2, c3, l0, l1, kind] = *header;
            let place = begin + (block.len() - rest.len()) as u64;
            if visit(place, kind).is_break() {
                return Ok(());
            }
            let length = usize::from(u16::from_le_bytes([l0, l1]));
            let Some((content, after)) = content.split_at_checked(length) else { break };
            let checksum = crc32c::crc32c_append(crc32c::crc32c(&[kind]), content);
            // The rest of the block is passed over where something does not fit.
            if u32::from_le_bytes([c0, c1, c2, c3]) != checksum.rotate_right(15).wrapping_add(MASK)
            {
                break;
            }
            rest = after;
        }
        begin += BLOCK_BYTES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Draft, Event, Origin, Provenance, Tags};
    use crate::log::{Expect, Log};
    use serde_json::json;
    use time::macros::datetime;

    fn draft(number: u32) -> Draft {
        let time = datetime!(2030-01-10 15:33:49 UTC);
        let provenance = Provenance {
            actor: "api".to_owned(),
            cause: None,
            correlation: String::new(),
            origin: Origin::External,
        };
        let tags = Tags::expand(["a"]);
        let event = Event {
            kind: "event".to_owned(),
            tags,
            timestamp: time,
            value: json!(number),
            fact: None,
        };
        Draft { time, provenance, event }
    }

    #[test]
    fn a_flipped_kind_is_refused_with_its_place_instead_of_being_read_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        {
            let log = Log::open(directory.path()).unwrap();
            for number in 0..3 {
                let drafts = vec![draft(number)];
                log.append(drafts, &Expect::Any).unwrap().durable_blocking().unwrap();
            }
        }
        check(directory.path()).unwrap();
        let logs = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
        let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
        let logs = logs.filter(|path| {
            let name = name(path);
            name.starts_with("MANIFEST") || Path::new(&name).extension().is_some_and(|e| e == "log")
        });
        let mut flipped = 0;
        for path in logs {
            let whole = fs::read(&path).unwrap();
            let mut frames = Vec::new();
            each(&whole[..], |place, kind| {
                frames.push((usize::try_from(place).unwrap(), kind));
                ControlFlow::Continue(())
            })
            .unwrap();
            for (place, kind) in frames {
                assert!((1..=4).contains(&kind), "{} at {place}: {kind}", path.display());
                let mut damaged = whole.clone();
                damaged[place + HEADER_BYTES - 1] ^= 4;
                fs::write(&path, &damaged).unwrap();
                // 4 becomes 0, which RocksDB itself refuses or passes over.
                if kind < 4 {
                    let words = Log::open(directory.path()).unwrap_err().to_string();
                    assert!(words.contains(&format!("at byte {place}")), "{words}");
                    flipped += 1;
                }
            }
            fs::write(&path, &whole).unwrap();
        }
        assert!(flipped > 3, "{flipped}");
        Log::open(directory.path()).unwrap();
    }
}
