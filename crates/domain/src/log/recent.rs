//! The newest durable records in memory: what subscribers that keep up, and most reads, are answered from.
//!
//! It is a cache with two limits and knows neither subscribers nor the disk.

use crate::event::{Position, Record};
use std::collections::VecDeque;
use std::sync::Arc;

/// How many records are kept.
const RECENT_RECORDS_MAX: usize = 8_192;
/// How many bytes of records, as on disk, are kept; the newest record is kept whatever its size.
const RECENT_BYTES_MAX: usize = 16 << 20;

/// A ring of the newest records, without gaps.
#[derive(Debug, Default)]
pub(super) struct Recent {
    records: VecDeque<(Arc<Record>, usize)>,
    bytes: usize,
}

impl Recent {
    /// Adds the next record, which takes `bytes` on disk.
    pub fn push(&mut self, record: Arc<Record>, bytes: usize) {
        self.records.push_back((record, bytes));
        self.bytes += bytes;
        while self.records.len() > RECENT_RECORDS_MAX
            || (self.bytes > RECENT_BYTES_MAX && self.records.len() > 1)
        {
            let (_, bytes) =
                self.records.pop_front().expect("the loop ends before the ring is empty");
            self.bytes -= bytes;
        }
    }

    /// Forgets the records up to `position`: some of them were dropped from the log, and the ring has no gaps.
    pub fn forget(&mut self, position: Position) {
        while self.records.front().is_some_and(|(record, _)| record.position <= position) {
            let (_, bytes) = self.records.pop_front().expect("the ring has a front");
            self.bytes -= bytes;
        }
    }

    /// The record at `position`, when it is kept.
    pub fn get(&self, position: Position) -> Option<Arc<Record>> {
        Some(Arc::clone(&self.records.get(self.offset(position)?)?.0))
    }

    /// At most `limit` records after `after`; `None` when the first of them is not kept.
    pub fn after(&self, after: Position, limit: usize) -> Option<Vec<Arc<Record>>> {
        let start = self.offset(after.next())?;
        let newer = self.records.iter().skip(start).take(limit);
        Some(newer.map(|(record, _)| Arc::clone(record)).collect())
    }

    /// Where `position` stands, or will stand, in the ring; `None` when it left it or the ring is empty.
    fn offset(&self, position: Position) -> Option<usize> {
        let (first, _) = self.records.front()?;
        usize::try_from(position.0.checked_sub(first.position.0)?).ok()
    }
}
