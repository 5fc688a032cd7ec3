//! What gives events their positions, and the one seam behind which a replicated log will stand.
//!
//! [`Sequencer`] is all that an append needs: positions, expected revisions, and when it is durable. [`Local`] is the one
//! there is: expectations are checked, positions given and the append queued under one lock. Positions follow from the
//! order of the calls alone, before anything is written. It knows neither RocksDB nor threads; the writer takes what
//! waits and later says how that went. Whatever the sequencer, durable records reach index, snapshots and subscribers
//! through `writer::publish` alone. `docs/decisions/0008` says how a replicated one fits.

use super::error::AppendError;
use super::format::Encoded;
use super::{Expect, Receipt};
use crate::artifact::ArtifactKey;
use crate::event::{DeploymentFact, Draft, Fact, GatewayFact, Position, Record, StaticFact};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use time::UtcOffset;
use tokio::sync::oneshot;

/// The largest append.
pub(super) const APPEND_RECORDS_MAX: usize = 10_000;
pub(super) const APPEND_BYTES_MAX: usize = 32 << 20;
/// How much may wait for the disk. An append beyond that is refused and not delayed: who appends may hold other
/// locks or be an asynchronous task, and can tell its client to come back.
pub(super) const QUEUE_RECORDS_MAX: usize = 65_536;
pub(super) const QUEUE_BYTES_MAX: usize = 64 << 20;
/// How much one commit takes at most; a single append is never split.
const COMMIT_RECORDS_MAX: usize = 8_192;
const COMMIT_BYTES_MAX: usize = 8 << 20;

/// How an append went: durable, or the reason why the log stopped.
pub(super) type Outcome = Result<(), String>;

/// Gives events their positions and makes them durable, in that order.
pub(super) trait Sequencer: Send + Sync {
    /// Gives the drafts the next positions when `expect` holds, all of them or none. The outcome says when they are durable,
    /// and everything before them is; until then nobody else sees them. A receipt is durable with them, or alone. Refuses
    /// instead of waiting.
    fn append(
        &self,
        prepared: Prepared,
        expect: &Expect,
        receipt: Option<Receipt>,
    ) -> Result<(Vec<Arc<Record>>, oneshot::Receiver<Outcome>), AppendError>;

    /// The position that the next record gets.
    fn next(&self) -> Position;

    /// The revision of `artifact`, as the next append sees it.
    fn revision(&self, artifact: &ArtifactKey) -> Option<Position>;

    /// Why it takes no more appends.
    fn failure(&self) -> Option<String>;

    /// No more appends: what waits still becomes durable, or is told that it does not.
    fn close(&self);
}

/// Gives positions and holds what waits for the disk.
pub(super) struct Local {
    state: Mutex<State>,
    work: Condvar,
}

/// Drafts and their bytes, ready for an append: what takes long is done, and all that is left is to give them positions.
#[derive(Debug)]
pub struct Prepared {
    drafts: Vec<Draft>,
    encoded: Vec<Encoded>,
}

impl Prepared {
    /// Brings the times of `drafts` into UTC and makes their bytes.
    pub(super) fn new(mut drafts: Vec<Draft>) -> Result<Self, AppendError> {
        let mut encoded = Vec::with_capacity(drafts.len());
        for (index, draft) in drafts.iter_mut().enumerate() {
            draft.time = draft.time.to_offset(UtcOffset::UTC);
            draft.event.timestamp = draft.event.timestamp.to_offset(UtcOffset::UTC);
            let bytes = Encoded::new(draft);
            encoded.push(bytes.map_err(|reason| AppendError::Unwritable { index, reason })?);
        }
        Ok(Self { drafts, encoded })
    }

    /// Whether there is nothing to append.
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }
}

/// One append on its way to the disk.
pub(super) struct Entry {
    pub records: Vec<Arc<Record>>,
    pub encoded: Vec<Encoded>,
    pub receipt: Option<Receipt>,
    pub done: oneshot::Sender<Outcome>,
    pub bytes: usize,
}

struct State {
    next: Position,
    /// As of the last position given, durable or not.
    revisions: HashMap<ArtifactKey, Position>,
    queue: VecDeque<Entry>,
    queued_records: usize,
    queued_bytes: usize,
    closed: bool,
    failure: Option<String>,
}

impl Local {
    /// Continues after `last`, where `revisions` hold.
    pub fn new(last: Position, revisions: HashMap<ArtifactKey, Position>) -> Self {
        let state = State {
            next: last.next(),
            revisions,
            queue: VecDeque::new(),
            queued_records: 0,
            queued_bytes: 0,
            closed: false,
            failure: None,
        };
        Self { state: Mutex::new(state), work: Condvar::new() }
    }

    /// Waits for appends and takes what fits into one commit; `None` when the log is closed and all is taken.
    pub fn take(&self) -> Option<Vec<Entry>> {
        let waits = |state: &mut State| state.queue.is_empty() && !state.closed;
        let mut state = self.work.wait_while(self.lock(), waits).expect(NEVER_POISONED);
        let (mut entries, mut records, mut bytes) = (Vec::new(), 0, 0);
        while let Some(entry) = state.queue.front() {
            records += entry.records.len();
            bytes += entry.bytes;
            if !entries.is_empty() && (records > COMMIT_RECORDS_MAX || bytes > COMMIT_BYTES_MAX) {
                break;
            }
            let entry = state.queue.pop_front().expect("the queue has a front");
            state.queued_records -= entry.records.len();
            state.queued_bytes -= entry.bytes;
            entries.push(entry);
        }
        (!entries.is_empty()).then_some(entries)
    }

    /// Fail-stop: refuses all that waits and all that comes. The first reason stays.
    pub fn stop(&self, reason: &str) {
        let mut state = self.lock();
        let reason = state.failure.get_or_insert_with(|| reason.to_owned()).clone();
        state.queued_records = 0;
        state.queued_bytes = 0;
        for entry in std::mem::take(&mut state.queue) {
            _ = entry.done.send(Err(reason.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NEVER_POISONED)
    }
}

impl Sequencer for Local {
    fn append(
        &self,
        prepared: Prepared,
        expect: &Expect,
        receipt: Option<Receipt>,
    ) -> Result<(Vec<Arc<Record>>, oneshot::Receiver<Outcome>), AppendError> {
        let Prepared { drafts, encoded } = prepared;
        let bytes = encoded.iter().map(Encoded::len).sum::<usize>()
            + receipt.as_ref().map_or(0, |receipt| receipt.content.len());
        if encoded.len() > APPEND_RECORDS_MAX || bytes > APPEND_BYTES_MAX {
            let (records_max, bytes_max) = (APPEND_RECORDS_MAX, APPEND_BYTES_MAX);
            return Err(AppendError::TooLarge {
                records: encoded.len(),
                records_max,
                bytes,
                bytes_max,
            });
        }
        let (done, outcome) = oneshot::channel();
        let mut state = self.lock();
        state.check(expect, encoded.len(), bytes)?;
        let records: Vec<_> =
            drafts.into_iter().map(|draft| Arc::new(draft.at(state.take_position()))).collect();
        for (artifact, revision) in records.iter().filter_map(|record| revision(record)) {
            match revision {
                Some(position) => state.revisions.insert(artifact, position),
                None => state.revisions.remove(&artifact),
            };
        }
        if records.is_empty() && receipt.is_none() {
            // Nothing to wait for; the receiver may be gone, which is no matter.
            _ = done.send(Ok(()));
        } else {
            state.queued_records += records.len();
            state.queued_bytes += bytes;
            state.queue.push_back(Entry {
                records: records.clone(),
                encoded,
                receipt,
                done,
                bytes,
            });
            let is_first = state.queue.len() == 1;
            drop(state);
            // The writer waits only while nothing does, and each call to wake it costs a system call.
            if is_first {
                self.work.notify_one();
            }
        }
        Ok((records, outcome))
    }

    fn next(&self) -> Position {
        self.lock().next
    }

    fn revision(&self, artifact: &ArtifactKey) -> Option<Position> {
        self.lock().revisions.get(artifact).copied()
    }

    fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
    }
}

const NEVER_POISONED: &str = "nothing panics while it holds the sequencer";

impl State {
    /// Whether an append of that size may go in now.
    fn check(&self, expect: &Expect, records: usize, bytes: usize) -> Result<(), AppendError> {
        if let Some(reason) = &self.failure {
            return Err(AppendError::Stopped(reason.clone()));
        }
        if self.closed {
            return Err(AppendError::Stopped("it was closed".to_owned()));
        }
        expect.check(|artifact| self.revisions.get(artifact).copied())?;
        if self.queued_records + records > QUEUE_RECORDS_MAX
            || self.queued_bytes + bytes > QUEUE_BYTES_MAX
        {
            return Err(AppendError::Full {
                records: self.queued_records,
                bytes: self.queued_bytes,
            });
        }
        Ok(())
    }

    fn take_position(&mut self) -> Position {
        let position = self.next;
        self.next = position.next();
        position
    }
}

impl Expect {
    /// Compares with the revisions that there are.
    fn check(
        &self,
        revision: impl Fn(&ArtifactKey) -> Option<Position>,
    ) -> Result<(), AppendError> {
        let Expect::Revisions(expectations) = self else { return Ok(()) };
        for (artifact, expected) in expectations {
            let (artifact, expected, actual) = (artifact.clone(), *expected, revision(artifact));
            if expected != actual {
                return Err(AppendError::Conflict { artifact, expected, actual });
            }
        }
        Ok(())
    }
}

/// The artifact whose revision `record` moves, and where to: `None` when it is removed.
pub(super) fn revision(record: &Record) -> Option<(ArtifactKey, Option<Position>)> {
    let fact = record.event.fact.as_ref()?;
    let removed = match fact {
        Fact::Static(StaticFact::Deleted(_))
        | Fact::Gateway { fact: GatewayFact::Deleted, .. }
        | Fact::Deployment { fact: DeploymentFact::Deleted, .. } => true,
        Fact::Static(_)
        | Fact::Gateway { .. }
        | Fact::Deployment { .. }
        | Fact::Escalated { .. }
        | Fact::ConfigurationTemplate { .. } => false,
    };
    Some((fact.revises()?, (!removed).then_some(record.position)))
}
