//! The index as bytes: a cache of the fold, so that a start does not have to read the whole log.
//!
//! One byte of version, then the content, then the CRC-32C of all before. Whatever does not fit exactly is refused; the
//! index is then made from the log. The bytes are no truth, so their format may change with the version.

use super::bytes::{Malformed, Reader, Writer};
use super::segment::Segment;
use super::{Index, Names, Tail};
use std::collections::HashMap;
use std::sync::Arc;

/// The format that is written, and the only one that is read.
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

impl Index {
    /// Everything, up to [`Index::last`].
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.bytes(&[VERSION]);
        writer.number(self.last);
        let Names { tags, kinds, fields } = &self.names;
        for names in [tags, kinds, fields] {
            writer.count(names.len());
            for (name, id) in names {
                writer.text(name);
                writer.number(u64::from(*id));
            }
        }
        writer.count(self.tail.rows().count());
        for ((timestamp, position), ids, numbers) in self.tail.rows() {
            writer.bytes(&timestamp.to_le_bytes());
            writer.number(position);
            writer.list(ids, u32::to_le_bytes);
            writer.count(numbers.len());
            for (id, number) in numbers {
                writer.bytes(&id.to_le_bytes());
                writer.bytes(&number.to_le_bytes());
            }
        }
        writer.count(self.segments.len());
        for segment in self.segments.iter() {
            segment.write(&mut writer);
        }
        let mut bytes = writer.finish();
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// What [`Index::to_bytes`] wrote; `None` when these bytes are not what this release wrote.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, checksum) =
            bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        let checksum = u32::from_le_bytes(checksum.try_into().ok()?);
        if crc32c::crc32c(content) != checksum {
            return None;
        }
        read(&mut Reader::new(content)).ok()
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Index, Malformed> {
    if reader.array()? != [VERSION] {
        return Err(Malformed);
    }
    let last = reader.number()?;
    let names = Names { tags: names(reader)?, kinds: names(reader)?, fields: names(reader)? };
    let mut tail = Tail::default();
    for _ in 0..reader.count()? {
        let key = (i128::from_le_bytes(reader.array()?), reader.number()?);
        if tail.is_full(key.1) {
            return Err(Malformed);
        }
        let ids = reader.list(u32::from_le_bytes)?;
        let mut numbers = Vec::new();
        for _ in 0..reader.count()? {
            let id = u32::from_le_bytes(reader.array()?);
            numbers.push((id, f64::from_le_bytes(reader.array()?)));
        }
        tail.push(key, ids.into_iter(), numbers);
    }
    let mut segments = Vec::new();
    for _ in 0..reader.count()? {
        segments.push(Arc::new(Segment::read(reader)?));
    }
    if !reader.is_empty() {
        return Err(Malformed);
    }
    Ok(Index { names, segments: Arc::new(segments), tail, last })
}

fn names(reader: &mut Reader<'_>) -> Result<HashMap<Box<str>, u32>, Malformed> {
    let mut names = HashMap::new();
    for _ in 0..reader.count()? {
        let name = reader.text()?.into();
        names.insert(name, u32::try_from(reader.number()?).map_err(|_| Malformed)?);
    }
    Ok(names)
}
