//! What gives events their positions: expectations are checked, positions given and the append queued under one lock.
//!
//! Positions follow from the order of the calls alone, before anything is written. The sequencer knows neither
//! RocksDB nor threads; the writer takes what waits and later says how that went.

use super::Expect;
use super::error::AppendError;
use super::format::Encoded;
use crate::artifact::ArtifactKey;
use crate::event::{DeploymentFact, Draft, Fact, GatewayFact, Position, Record, StaticFact};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
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

/// Gives positions and holds what waits for the disk.
pub(super) struct Sequencer {
    state: Mutex<State>,
    work: Condvar,
}

/// One append on its way to the disk.
pub(super) struct Entry {
    pub records: Vec<Arc<Record>>,
    pub encoded: Vec<Encoded>,
    pub done: oneshot::Sender<Outcome>,
    bytes: usize,
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

impl Sequencer {
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

    /// Checks `expect`, gives `drafts` their positions and queues them. Nothing changes when it is refused.
    pub fn append(
        &self,
        drafts: Vec<Draft>,
        expect: &Expect,
    ) -> Result<(Vec<Arc<Record>>, oneshot::Receiver<Outcome>), AppendError> {
        let encoded = encode(&drafts)?;
        let bytes = encoded.iter().map(Encoded::len).sum();
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
        if records.is_empty() {
            // Nothing to wait for; the receiver may be gone, which is no matter.
            _ = done.send(Ok(()));
        } else {
            state.queued_records += records.len();
            state.queued_bytes += bytes;
            state.queue.push_back(Entry { records: records.clone(), encoded, done, bytes });
            self.work.notify_one();
        }
        Ok((records, outcome))
    }

    /// The position that the next record gets.
    pub fn next(&self) -> Position {
        self.lock().next
    }

    /// The revision of `artifact`, as the next append sees it.
    pub fn revision(&self, artifact: &ArtifactKey) -> Option<Position> {
        self.lock().revisions.get(artifact).copied()
    }

    /// Why the log takes no more writes.
    pub fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
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

    /// No more appends: what waits is still taken.
    pub fn close(&self) {
        self.lock().closed = true;
        self.work.notify_one();
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
        | Fact::Escalated { .. } => false,
    };
    Some((fact.revises()?, (!removed).then_some(record.position)))
}

/// The bytes of all drafts.
fn encode(drafts: &[Draft]) -> Result<Vec<Encoded>, AppendError> {
    let encoded = drafts.iter().map(Encoded::new).enumerate();
    encoded
        .map(|(index, bytes)| bytes.map_err(|reason| AppendError::Unwritable { index, reason }))
        .collect()
}
