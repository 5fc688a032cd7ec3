//! Drops old records of some types, and leaves gaps that keep positions and the hash chain.
//!
//! A record goes when its type expires and it was appended long enough ago. What has a fact stays, whatever its type,
//! and so do the types in [`KEPT_TYPES`], the newest record, and records at which a snapshot was taken. A run of dropped
//! positions becomes one gap. Positions are never given again; readers and subscribers go on behind a gap; queries
//! neither find nor count what is gone. Disk space is free once RocksDB compacted what was touched.
//!
//! It works in the background on what is durable, a few records at a time, each time atomically: being killed in the
//! middle leaves less dropped, nothing broken.

use super::chain::follows;
use super::error::ReadError;
use super::format::{Age, Gap, Stored, record_position};
use super::storage::Batch;
use super::{Log, Shared, keeper};
use crate::event::Position;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::PoisonError;
use time::OffsetDateTime;

/// Types of events that are never dropped: what users did, and who did it.
pub const KEPT_TYPES: [&str; 2] = ["archive", "audit"];
/// How many records are looked at, at most, for one batch.
const BATCH_RECORDS_MAX: usize = 2_048;
/// How many batches one call makes, at most: it is over in seconds, so that a service can stop.
const BATCHES_MAX: usize = 256;

/// When records of a type are dropped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The type of event.
    pub kind: String,
    /// Records that were appended before this are dropped.
    pub before: OffsetDateTime,
}

/// What retention did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// How many records are gone.
    pub records: u64,
    /// Whether there may be more, for another call: one looks at half a million records at most.
    pub more: bool,
}

/// Why records were not dropped. Those that were before, are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RetentionError {
    /// The type is one of those that stay.
    #[error("events of type '{kind}' are never dropped")]
    Kept {
        /// Which.
        kind: String,
    },
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log cannot be written.
    #[error("old records cannot be dropped: {0}")]
    Unwritable(String),
}

/// Up to which position the records of each type are dropped.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reached(BTreeMap<String, u64>);

impl Log {
    /// Drops the records that expired. This takes a while; it holds up neither readers nor the writer.
    pub fn drop_expired(&self, expiries: &[Expiry]) -> Result<Dropped, RetentionError> {
        if let Some(kept) = expiries.iter().find(|expiry| KEPT_TYPES.contains(&&*expiry.kind)) {
            return Err(RetentionError::Kept { kind: kept.kind.clone() });
        }
        let shared = self.shared();
        let _maintenance = shared.keeper.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = Run::new(shared, expiries)?;
        let first = run.after;
        for _ in 0..BATCHES_MAX {
            if run.done {
                break;
            }
            run.batch()?;
        }
        run.dropped.more = !run.done;
        if run.dropped.records > 0 {
            // The snapshots of the index still have what was dropped.
            keeper::write_due(shared, shared.progress.borrow().last, 0);
            shared.storage.compact(first, run.after);
        }
        Ok(run.dropped)
    }
}

/// One pass over what may expire.
struct Run<'a> {
    shared: &'a Shared,
    /// By type, in nanoseconds since 1970.
    before: BTreeMap<&'a str, i128>,
    pinned: BTreeSet<Position>,
    /// The first record that would have gone, were it not pinned.
    held: Option<Position>,
    reached: Reached,
    after: Position,
    dropped: Dropped,
    done: bool,
}

/// Positions that become one gap.
struct Stretch {
    gap: Gap,
    last: Position,
    /// Whether it is more than a gap that was there.
    changed: bool,
}

/// What one batch does.
#[derive(Default)]
struct Work {
    stretches: Vec<Stretch>,
    dropped: Vec<Position>,
    removed: Vec<Position>,
    seen: usize,
}

impl<'a> Run<'a> {
    fn new(shared: &'a Shared, expiries: &'a [Expiry]) -> Result<Self, RetentionError> {
        let expiry = |expiry: &'a Expiry| (&*expiry.kind, expiry.before.unix_timestamp_nanos());
        let before: BTreeMap<_, _> = expiries.iter().map(expiry).collect();
        let reached = shared.storage.retention()?;
        let start = |kind: &&str| reached.0.get(*kind).copied().unwrap_or_default();
        let after = Position(before.keys().map(start).min().unwrap_or_default());
        let newest = shared.progress.borrow().last;
        let pinned = shared.snapshots.positions().into_iter().chain([newest]).collect();
        let done = before.is_empty();
        let (held, dropped) = (None, Dropped::default());
        Ok(Self { shared, before, pinned, held, reached, after, dropped, done })
    }

    /// Looks at some records and drops those of them that expired.
    fn batch(&mut self) -> Result<(), RetentionError> {
        let mut work = Work::default();
        let mut position = self.after;
        self.done = true;
        let shared = self.shared;
        shared.storage.each(self.after, |key, value| {
            if work.seen == BATCH_RECORDS_MAX {
                self.done = false;
                return Ok(ControlFlow::Break(()));
            }
            let stored = Stored::read(record_position(key).unwrap_or(position.next()), value)?;
            let last = follows(position, key, &stored)?;
            let expired = match stored {
                Stored::Gap(_) => true,
                Stored::Record(body) => {
                    let age = body.age()?;
                    if self.before.values().all(|before| age.time >= *before) {
                        return Ok(ControlFlow::Break(()));
                    }
                    self.note_reached(age.time, position);
                    self.is_expired(age, last)
                }
            };
            work.add(last, &stored, expired);
            position = last;
            Ok(ControlFlow::Continue(()))
        })?;
        // A stretch at the end may go on in the next batch, which then begins with its gap.
        self.after = match work.stretches.last() {
            Some(open) if !self.done && open.last == position => Position(open.gap.first.0 - 1),
            _ => position,
        };
        self.write(work)
    }

    /// Whether the record at `position` goes now.
    fn is_expired(&mut self, age: Age<'_>, position: Position) -> bool {
        let before = self.before.get(age.kind);
        let expired = before.is_some_and(|before| age.time < *before) && !age.has_fact;
        let held = expired && self.pinned.contains(&position);
        if held {
            self.held.get_or_insert(position);
        }
        expired && !held
    }

    /// Types whose time is over before this record are done up to the one before it.
    fn note_reached(&mut self, time: i128, before: Position) {
        for (kind, limit) in &self.before {
            if time < *limit {
                self.reached.0.remove(*kind);
            } else {
                self.reached.0.entry((*kind).to_owned()).or_insert(before.0);
            }
        }
    }

    /// Up to where the next call need not look again.
    fn reached_so_far(&self) -> Reached {
        let mut reached = self.reached.0.clone();
        // What is held back now may go the next time.
        let held = self.held.filter(|_| self.done).map_or(u64::MAX, |held| held.0 - 1);
        for kind in self.before.keys() {
            let reached = reached.entry((*kind).to_owned()).or_insert(self.after.0);
            *reached = held.min(*reached);
        }
        Reached(reached)
    }

    fn write(&mut self, work: Work) -> Result<(), RetentionError> {
        let storage = &self.shared.storage;
        let mut batch = Batch::default();
        for position in &work.removed {
            storage.remove_record(&mut batch, *position);
        }
        for Stretch { gap, last, .. } in work.stretches.iter().filter(|stretch| stretch.changed) {
            storage.put_record(&mut batch, *last, &gap.seal(*last));
        }
        storage.put_retention(&mut batch, &self.reached_so_far());
        if !work.dropped.is_empty() {
            storage.put_generation(&mut batch, storage.generation()? + 1);
        }
        self.dropped.records += work.dropped.len() as u64;
        // First the index, so that nobody who looks again is sent to a record that is gone. Should the disk fail now,
        // they are not found although they are there, which is what was asked for.
        if let Some(last) = work.dropped.last() {
            self.shared.recent_mut().forget(*last);
        }
        self.shared.index_mut().forget(work.dropped);
        storage.commit(batch).map_err(RetentionError::Unwritable)
    }
}

impl Work {
    /// Adds what stands at `last`: a part of the stretch before it, the beginning of one, or neither.
    fn add(&mut self, last: Position, stored: &Stored<'_>, expired: bool) {
        self.seen += 1;
        let (first, is_record) = match stored {
            Stored::Record(_) => (last, true),
            Stored::Gap(gap) => (gap.first, false),
        };
        if !expired {
            return;
        }
        if is_record {
            self.dropped.push(last);
        }
        let hash = stored.hash();
        match self.stretches.last_mut() {
            Some(stretch) if stretch.last.next() == first => {
                self.removed.push(stretch.last);
                *stretch =
                    Stretch { gap: Gap { first: stretch.gap.first, hash }, last, changed: true };
            }
            Some(_) | None => {
                self.stretches.push(Stretch { gap: Gap { first, hash }, last, changed: is_record });
            }
        }
    }
}
