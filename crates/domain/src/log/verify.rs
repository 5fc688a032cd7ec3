//! Checks everything: every byte of every record, the chain over all of them, and what else is kept against it.
//!
//! Opening checks what came after the last snapshot, and every read checks what it reads. This checks the rest, and is
//! what says that a log is sound from the first record to the last.

use super::chain::{ChainHash, Place};
use super::error::ReadError;
use super::format::Stored;
use super::sequencer::revision;
use super::{Log, Shared};
use crate::event::{Position, Query, TimeRange};
use std::collections::HashMap;

/// How many types and tags are counted one by one; further ones are checked together only.
const NAMES_MAX: usize = 10_000;

/// What a log that was checked holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The position of its last record.
    pub last: Position,
    /// Its hash there.
    pub hash: ChainHash,
    /// How many records it holds.
    pub records: u64,
    /// How many positions retention made gaps of.
    pub dropped: u64,
}

impl Log {
    /// Checks every record, the hash chain, the revisions of artifacts and the index against one another. The first
    /// thing that does not fit is the error.
    pub fn verify(&self) -> Result<Verified, ReadError> {
        let shared = self.shared();
        let (mut records, mut counted) = (0, Counted::default());
        let mut revisions = HashMap::new();
        let place = shared.storage.walk(Place::default(), |_, stored| {
            let Stored::Record(body) = stored else { return Ok(()) };
            let record = body.record()?;
            records += 1;
            counted.add(&record.event.kind, record.event.tags.as_slice());
            match revision(&record) {
                Some((artifact, Some(position))) => _ = revisions.insert(artifact, position),
                Some((artifact, None)) => _ = revisions.remove(&artifact),
                None => {}
            }
            Ok(())
        })?;
        let Place { position: last, hash } = place;
        let damaged = |reason: String| ReadError::Damaged { position: last, reason };
        let kept = shared.storage.revisions().map_err(|error| damaged(error.to_string()))?;
        if kept != revisions {
            return Err(damaged("the revisions of artifacts are not those of the records".into()));
        }
        counted.check(shared, records).map_err(damaged)?;
        Ok(Verified { last, hash, records, dropped: last.0 - records })
    }
}

/// How many records have which type and tag.
#[derive(Default)]
struct Counted {
    kinds: HashMap<String, u64>,
    tags: HashMap<String, u64>,
}

impl Counted {
    fn add(&mut self, kind: &str, tags: &[String]) {
        count(&mut self.kinds, kind);
        for tag in tags {
            count(&mut self.tags, tag);
        }
    }

    /// Compares with the index, which was made by snapshots, tails and retention.
    fn check(&self, shared: &Shared, records: u64) -> Result<(), String> {
        let compare = |what: &str, query: &Query, expected: u64| {
            let found = shared.index().view(query).count();
            let same = found == expected;
            same.then_some(()).ok_or_else(|| {
                format!("the index counts {found} records {what}, the log has {expected}")
            })
        };
        compare("in all", &Query::default(), records)?;
        for (kind, expected) in &self.kinds {
            let query =
                Query { tags: vec![], kind: Some(kind.clone()), time: TimeRange::default() };
            compare(&format!("of type {kind}"), &query, *expected)?;
        }
        for (tag, expected) in &self.tags {
            let query = Query { tags: vec![tag.clone()], ..Query::default() };
            compare(&format!("with tag {tag}"), &query, *expected)?;
        }
        Ok(())
    }
}

fn count(counts: &mut HashMap<String, u64>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count += 1;
    } else if counts.len() < NAMES_MAX {
        counts.insert(name.to_owned(), 1);
    }
}
