//! The index as bytes: a cache of the fold, so that a start does not have to read the whole log.
//!
//! One byte of version, then the content. Whatever does not fit exactly is refused; the index is then made from the log.
//! The bytes are no truth, so their format may change with the version. That they are those which were written is checked
//! by the snapshot that they are in, possibly after they were read.

use super::bytes::{Malformed, Reader, Writer};
use super::names::Names;
use super::segment::Segment;
use super::{Index, Tail};
use crate::log::snapshot::Payload;
use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::Arc;

/// The format that is written, and the only one that is read.
const VERSION: u8 = 3;

impl Payload for Index {
    /// Everything, up to [`Index::last`].
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let mut writer = Writer::new(to);
        writer.bytes(&[VERSION]);
        writer.number(self.last);
        let Names { tags, kinds, fields, free } = &self.names;
        for names in [tags, kinds, fields] {
            writer.count(names.len());
            for (name, id) in names {
                writer.text(name);
                writer.number(u64::from(*id));
            }
        }
        writer.list(free, u32::to_le_bytes);
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
        writer.finish()
    }
}

impl Index {
    /// What was written, in `bytes` bytes; `None` when these are not what this release writes.
    pub fn read(from: &mut dyn BufRead, bytes: usize) -> Option<Self> {
        read(&mut Reader::new(from, bytes)).ok()
    }
}

fn read(reader: &mut Reader<'_>) -> Result<Index, Malformed> {
    if reader.array()? != [VERSION] {
        return Err(Malformed);
    }
    let last = reader.number()?;
    let names = Names {
        tags: names(reader)?,
        kinds: names(reader)?,
        fields: names(reader)?,
        free: reader.list(u32::from_le_bytes)?,
    };
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
        let name = reader.text()?.into_boxed_str();
        names.insert(name, u32::try_from(reader.number()?).map_err(|_| Malformed)?);
    }
    Ok(names)
}
