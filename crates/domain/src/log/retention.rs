//! Drops old records of some types, and leaves gaps that keep positions and the hash chain.
//!
//! A record goes when its type expires and it was appended long enough ago. What has a fact stays, whatever its type,
//! and so do the types in [`KEPT_TYPES`], the newest record, and records at which a snapshot was taken. A run of dropped
//! positions becomes one gap. Positions are never given again; readers and subscribers go on behind a gap; queries
//! neither find nor count what is gone. Disk space is free once RocksDB compacted what was touched.
//!
//! A round begins, for each type, where its first record is that stayed, and ends it behind so many records in a row that
//! are too young to expire. One such record alone says little: its clock may have been ahead. A round takes as many calls
//! as there is to do, each of which goes on where the one before came to. What is appended after it began is left to the
//! next one: with a clock that was put back, or an age that is shorter than a round, the newest records would go as well.
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
use std::sync::atomic::Ordering;
use time::OffsetDateTime;

/// Types of events that are never dropped: what users did, and who did it.
pub const KEPT_TYPES: [&str; 2] = ["archive", "audit"];
/// How much is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// How many records, at most, for one batch.
    pub(super) batch_records: usize,
    /// How many batches one call makes, at most, beside those that only find records too young: it is over in seconds,
    /// so that a service can stop.
    pub(super) batches: usize,
    /// Behind how many records in a row that are too young there are only such.
    pub(super) young_records: usize,
}

const EFFORT: Effort = Effort { batch_records: 2_048, batches: 256, young_records: 16_384 };

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
    /// What is left for another call of the same round; `None` when it is over.
    pub more_after: Option<Rest>,
}

/// What is left of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    after: Position,
    /// The newest record when the round began.
    newest: Position,
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reached(BTreeMap<String, u64>);

impl Log {
    /// Drops records that expired: the first call of a round without `rest`, those that follow with what the one
    /// before left, until there is no more. Each is over in seconds and holds up neither readers nor the writer.
    pub fn drop_expired(
        &self,
        expiries: &[Expiry],
        rest: Option<Rest>,
    ) -> Result<Dropped, RetentionError> {
        self.drop_expired_with(expiries, rest, EFFORT)
    }

    pub(super) fn drop_expired_with(
        &self,
        expiries: &[Expiry],
        rest: Option<Rest>,
        effort: Effort,
    ) -> Result<Dropped, RetentionError> {
        if let Some(kept) = expiries.iter().find(|expiry| KEPT_TYPES.contains(&&*expiry.kind)) {
            return Err(RetentionError::Kept { kind: kept.kind.clone() });
        }
        let shared = self.shared();
        let _maintenance = shared.keeper.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        let mut run = Run::new(shared, expiries, rest, effort)?;
        let young_batches = effort.young_records.div_ceil(effort.batch_records) + 1;
        for _ in 0..effort.batches + expiries.len() * young_batches {
            if run.done {
                break;
            }
            run.batch()?;
        }
        let rest = Rest { after: run.after, newest: run.newest };
        run.dropped.more_after = (!run.done).then_some(rest);
        run.end_section();
        if run.dropped.records > 0 {
            let sealed = shared.index().sealed();
            let used = sealed.tags();
            shared.index_mut().forget_names(&sealed, used);
            // The snapshots of the index still have what was dropped.
            let last = shared.progress.borrow().last;
            keeper::write_due(shared, last, 0);
            for (first, last) in run.sections {
                shared.storage.compact(first, last);
            }
        }
        Ok(run.dropped)
    }
}

/// One pass over what may expire.
struct Run<'a> {
    shared: &'a Shared,
    effort: Effort,
    /// By type, in nanoseconds since 1970.
    before: BTreeMap<&'a str, i128>,
    pinned: BTreeSet<Position>,
    /// Up to where it is done, as stored, other types among them.
    stored: Reached,
    /// The same for the types that may expire: each takes part from there on.
    starts: BTreeMap<&'a str, u64>,
    /// Types that are done, and up to where.
    reached: Reached,
    after: Position,
    /// The newest record when the round began. What stands behind it is not looked at.
    newest: Position,
    /// How many records in a row were too young for every type that takes part.
    young: usize,
    /// Behind which position these began.
    young_since: Position,
    /// Where the records that are looked at began, and how many were gone by then.
    section: (Position, u64),
    /// What lies between positions of which some were dropped.
    sections: Vec<(Position, Position)>,
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
    fn new(
        shared: &'a Shared,
        expiries: &'a [Expiry],
        rest: Option<Rest>,
        effort: Effort,
    ) -> Result<Self, RetentionError> {
        let expiry = |expiry: &'a Expiry| (&*expiry.kind, expiry.before.unix_timestamp_nanos());
        let before: BTreeMap<_, _> = expiries.iter().map(expiry).collect();
        let stored = shared.storage.retention()?;
        let start = |kind: &&'a str| (*kind, stored.0.get(*kind).copied().unwrap_or_default());
        let starts: BTreeMap<_, _> = before.keys().map(start).collect();
        let first = starts.values().copied().min().unwrap_or_default();
        let last = shared.progress.borrow().last;
        let Rest { after, newest } = rest.unwrap_or(Rest { after: Position::START, newest: last });
        let after = after.max(Position(first));
        // Where a type starts before that, an earlier call found a record that stayed.
        let stayed = starts.iter().filter(|(_, start)| **start < after.0);
        let reached = stayed.map(|(kind, start)| ((*kind).to_owned(), *start)).collect();
        Ok(Self {
            shared,
            effort,
            pinned: shared.snapshots.positions().into_iter().chain([newest]).collect(),
            done: before.is_empty(),
            before,
            stored,
            starts,
            reached: Reached(reached),
            after,
            newest,
            young: 0,
            young_since: after,
            section: (after, 0),
            sections: Vec::new(),
            dropped: Dropped::default(),
        })
    }

    /// Looks at some records and drops those of them that expired.
    fn batch(&mut self) -> Result<(), RetentionError> {
        let mut work = Work::default();
        let mut position = self.after;
        let mut is_all = true;
        let shared = self.shared;
        let newest = self.newest;
        shared.storage.each(self.after, |key, value| {
            if record_position(key).is_some_and(|position| position > newest) {
                return Ok(ControlFlow::Break(()));
            }
            if work.seen == self.effort.batch_records || self.young >= self.effort.young_records {
                is_all = false;
                return Ok(ControlFlow::Break(()));
            }
            let stored = Stored::read(record_position(key).unwrap_or(position.next()), value)?;
            let last = follows(position, key, &stored)?;
            let expired = match stored {
                Stored::Gap(_) => true,
                Stored::Record(body) => self.is_expired(body.age()?, position, last),
            };
            work.add(last, &stored, expired);
            position = last;
            Ok(ControlFlow::Continue(()))
        })?;
        // A stretch at the end may go on in the next batch, which then begins with its gap.
        self.after = match work.stretches.last() {
            Some(open) if !is_all && open.last == position => Position(open.gap.first.0 - 1),
            _ => position,
        };
        self.write(work)?;
        self.done = is_all;
        if !is_all && self.young >= self.effort.young_records {
            self.go_to_next_types(position);
        }
        Ok(())
    }

    /// Types for which all of these records are too young are done up to `position`. Others took part later, or were done
    /// that far before and go on where they came to.
    fn go_to_next_types(&mut self, position: Position) {
        let since = self.young_since.0;
        for (kind, start) in &self.starts {
            if *start <= since {
                self.reached.0.entry((*kind).to_owned()).or_insert(position.0);
            }
        }
        self.end_section();
        let next = self.starts.values().copied().filter(|start| *start > since).min();
        self.after = position.max(Position(next.unwrap_or_default()));
        self.section = (self.after, self.dropped.records);
        self.young = 0;
        self.done = next.is_none();
    }

    fn end_section(&mut self) {
        let (first, dropped) = self.section;
        if self.dropped.records > dropped {
            self.sections.push((first, self.after));
        }
    }

    /// Whether the record at `position`, behind the one at `former`, goes now.
    fn is_expired(&mut self, age: Age<'_>, former: Position, position: Position) -> bool {
        let starts = &self.starts;
        let takes_part = |kind: &str| starts.get(kind).is_some_and(|start| *start <= former.0);
        let mut limits = self.before.iter().filter(|(kind, _)| takes_part(kind));
        let is_young = limits.all(|(_, before)| age.time >= *before);
        if self.young == 0 {
            self.young_since = former;
        }
        self.young = if is_young { self.young + 1 } else { 0 };
        let Some(before) = self.before.get(age.kind).filter(|_| !age.has_fact) else {
            return false;
        };
        let goes = age.time < *before && !self.pinned.contains(&position);
        if !goes && takes_part(age.kind) {
            // It may go the next time.
            self.reached.0.entry(age.kind.to_owned()).or_insert(former.0);
        }
        goes
    }

    /// Up to where the next call need not look again.
    fn reached_so_far(&self) -> Reached {
        let mut reached = self.stored.clone();
        reached.0.extend(self.starts.iter().map(|(kind, start)| {
            let done = self.reached.0.get(*kind).copied();
            ((*kind).to_owned(), done.unwrap_or(self.after.0.max(*start)))
        }));
        reached
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
        let reached = self.reached_so_far();
        if reached == self.stored && !work.stretches.iter().any(|stretch| stretch.changed) {
            return Ok(());
        }
        storage.put_retention(&mut batch, &reached);
        if !work.dropped.is_empty() {
            storage.put_generation(&mut batch, storage.generation()? + 1);
        }
        self.dropped.records += work.dropped.len() as u64;
        // First the index, so that nobody who looks again is sent to a record that is gone. Should the disk fail now,
        // they are not found although they are there, which is what was asked for; until the next start, which makes the
        // index anew.
        if let Some(last) = work.dropped.last() {
            self.shared.recent_mut().forget(*last);
        }
        self.shared.index_mut().forget(work.dropped);
        self.stored = reached;
        storage.commit(batch).map_err(|reason| {
            self.shared.index_differs.store(true, Ordering::Release);
            RetentionError::Unwritable(reason)
        })
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
