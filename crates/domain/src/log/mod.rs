//! The append-only log: the only truth.
//!
//! Records get positions from 1 on, one after another, and never change; what retention drops leaves a gap, and its
//! positions are not given again. An append is atomic, gets its positions at once and in the order of the calls, and is
//! durable (fdatasync) when its [`Pending`] resolves; readers, queries and subscribers see durable records only. After a
//! failed write the log is fail-stop: it refuses writes and says why, and goes on answering reads. An [`Expect`]ation
//! makes an append depend on the revisions of artifacts: that is how a decision notices that the state moved on.
//!
//! Parts: `sequencer` gives positions, `writer` commits groups of appends, `storage` is RocksDB, `format` the
//! frozen bytes, `chain` the hash over all of them, `migrate` brings older stores up to date, `index` answers queries, `recent` holds the newest records, `subscription` streams
//! them, `relay` wakes many on one thread, `snapshot` and `keeper` bound how much is read at opening, `mark` notices a log that lost its end,
//! and `frames` what RocksDB must not be given to read.
//! The log knows neither commands nor state, and takes from a fact only which artifact it revises.

mod backup;
mod chain;
mod directory;
mod error;
mod format;
mod frames;
mod index;
mod keeper;
mod mark;
mod migrate;
mod options;
mod pending;
mod queries;
mod recent;
mod relay;
mod retention;
mod sequencer;
mod snapshot;
mod storage;
mod subscription;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use backup::{BackedUp, BackupError, restore};
pub use chain::ChainHash;
pub use error::{AppendError, OpenError, ReadError};
pub use migrate::{Migrated, migrate};
pub use pending::Pending;
pub use relay::Relay;
pub use retention::{Dropped, Expiry, KEPT_TYPES, Rest, RetentionError};
pub use sequencer::Prepared;
pub use subscription::Subscription;
pub use verify::Verified;

use crate::artifact::ArtifactKey;
use crate::event::{Aggregate, Aggregator, Draft, Numbers, Page, Position, Query, Record};
use chain::Place;
use format::Stored;
use index::Index;
use keeper::Keeper;
use recent::Recent;
use sequencer::{Local, Sequencer};
use snapshot::{Fold, Payload, Snapshots, Taken};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use storage::Storage;
use tokio::sync::watch;

/// How many records one page of a query may have.
pub const PAGE_RECORDS_MAX: u64 = 10_000;
/// How many records, and roughly how many bytes of them, one read returns at most.
pub const READ_RECORDS_MAX: usize = 10_000;
/// See [`READ_RECORDS_MAX`].
pub const READ_BYTES_MAX: usize = 16 << 20;

/// The append-only log. Cheap to clone; the last clone that is dropped writes what waits and closes it.
#[derive(Clone)]
pub struct Log(Arc<Owner>);

/// What an append expects of the revisions of artifacts.
///
/// The revision of an artifact is the position of the last record whose fact revises it (see
/// [`crate::event::Fact::revises`]), and `None` when there is none or the last one removed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    #[default]
    Any,
    /// All of these.
    Revisions(Vec<(ArtifactKey, Option<Position>)>),
}

/// What the log keeps of a request that may be repeated: beside the records, and for as long as it lives.
///
/// A receipt is no record: it has no position, is not folded and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// What the request is found by: a hash of its key.
    pub key: [u8; 32],
    /// Whatever whoever appends needs to answer again.
    pub content: Vec<u8>,
}

impl Log {
    /// Opens the log in `directory`, which is created when it is missing, and checks the records after the newest
    /// snapshot; [`Log::verify`] checks all.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        Self::start(Storage::open(directory)?)
    }

    /// Opens an empty log in memory: the same code on RocksDB's in-memory environment.
    pub fn in_memory() -> Result<Self, OpenError> {
        Self::start(Storage::in_memory()?)
    }

    /// Appends `drafts` as one: all of them or none. Their positions are given at once, in the order of the calls,
    /// when `expect` holds; they are durable when the answer resolves. Times are kept in UTC.
    ///
    /// This does not wait for the disk: when too much waits already, it refuses with [`AppendError::Full`].
    pub fn append(&self, drafts: Vec<Draft>, expect: &Expect) -> Result<Pending, AppendError> {
        self.append_with(drafts, expect, None)
    }

    /// Makes the bytes of `drafts`, which takes most of the time of an append and needs no order: what appends under a
    /// lock can do this before.
    pub fn prepare(&self, drafts: Vec<Draft>) -> Result<Prepared, AppendError> {
        Prepared::new(drafts)
    }

    /// As [`Log::append`], with a receipt that is durable together with the records, or alone when there are none. It
    /// replaces an earlier one of its key.
    pub fn append_with(
        &self,
        drafts: Vec<Draft>,
        expect: &Expect,
        receipt: Option<Receipt>,
    ) -> Result<Pending, AppendError> {
        self.append_prepared(Prepared::new(drafts)?, expect, receipt)
    }

    /// As [`Log::append_with`], for drafts that [`Log::prepare`] made ready.
    pub fn append_prepared(
        &self,
        prepared: Prepared,
        expect: &Expect,
        receipt: Option<Receipt>,
    ) -> Result<Pending, AppendError> {
        let (records, outcome) = self.shared().sequencer.append(prepared, expect, receipt)?;
        Ok(Pending::new(records, outcome))
    }

    /// The content of the durable receipt under `key`.
    pub fn receipt(&self, key: &[u8; 32]) -> Result<Option<Vec<u8>>, ReadError> {
        self.shared().storage.receipt(key)
    }

    /// The position of the last durable record.
    pub fn last(&self) -> Position {
        self.shared().progress.borrow().last
    }

    /// The position of the last durable record and the hash of the log there.
    pub fn head(&self) -> (Position, ChainHash) {
        let progress = *self.shared().progress.borrow();
        (progress.last, progress.hash)
    }

    /// The position that the next append gets. Records before it may not be durable yet.
    pub fn next(&self) -> Position {
        self.shared().sequencer.next()
    }

    /// The revision of `artifact` as the next append sees it; records before may not be durable yet.
    pub fn revision(&self, artifact: &ArtifactKey) -> Option<Position> {
        self.shared().sequencer.revision(artifact)
    }

    /// Durable records after `after`, in order: at most `limit`, and no more than [`READ_RECORDS_MAX`] and roughly
    /// [`READ_BYTES_MAX`]. Only an empty answer means that there are no more.
    pub fn read(&self, after: Position, limit: usize) -> Result<Vec<Arc<Record>>, ReadError> {
        self.shared().read(after, limit.min(READ_RECORDS_MAX), READ_BYTES_MAX)
    }

    /// The durable records that match `query`, newest first by timestamp, ties by position: page `page`, counted
    /// from 1, of `per_page` records, at most [`PAGE_RECORDS_MAX`]; and how many match in all.
    pub fn query(&self, query: &Query, page: u64, per_page: u64) -> Result<Page, ReadError> {
        self.query_within(query, page, per_page, usize::MAX)
    }

    /// The same, unless the records of the page take more than `bytes_max` on disk.
    pub fn query_within(
        &self,
        query: &Query,
        page: u64,
        per_page: u64,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        self.shared().query(query, page, per_page, bytes_max)
    }

    /// What `aggregator` makes of the durable records that match `query`.
    pub fn aggregate(
        &self,
        query: &Query,
        aggregator: &Aggregator,
    ) -> Result<Aggregate, ReadError> {
        self.shared().aggregate(query, aggregator)
    }

    /// The numbers that the durable records that match `query` have in `field`, which is named as in aggregators.
    pub fn numbers(&self, query: &Query, field: &str) -> Result<Numbers, ReadError> {
        let tally = self.shared().tally(query, field)?;
        Ok(Numbers { count: tally.count, sum: tally.sum() })
    }

    /// Durable records after `after`, then those that come: no gap, no duplicate, in order.
    pub fn subscribe(&self, after: Position) -> Subscription {
        let progress = self.shared().progress.subscribe();
        Subscription::new(Arc::clone(&self.0.shared), progress, after)
    }

    /// The same for one of many subscribers on the thread that `relay` belongs to. Ends when the relay does.
    pub fn subscribe_through(&self, relay: &Relay, after: Position) -> Subscription {
        Subscription::new(Arc::clone(&self.0.shared), relay.progress(), after)
    }

    /// A relay for a thread on which many wait, and what has to run there as a task: it ends with the log.
    pub fn relay(&self) -> (Relay, impl Future<Output = ()> + Send + use<>) {
        Relay::new(&self.0.shared)
    }

    /// Whether `relay` is one of this log.
    pub fn has_relay(&self, relay: &Relay) -> bool {
        relay.is_of(&self.0.shared)
    }

    /// Hands every durable record after `after` that has a fact to `visit`, in order, and gives the position up to which
    /// there are no more. Records without one are not even taken apart: that is what makes replaying fast.
    pub fn facts(
        &self,
        after: Position,
        visit: impl FnMut(&Record),
    ) -> Result<Position, ReadError> {
        self.shared().facts(after, visit)
    }

    /// The bytes of the newest snapshot of a fold that [`Log::keep_snapshots`] wrote, and the position that they are of;
    /// `None` when there is none that belongs to this log and has this version, or when `read` cannot read it. Whether the
    /// bytes are sound may be told after `read`, so it has to survive damaged ones; what it made of them is dropped then.
    pub fn snapshot<T>(
        &self,
        name: &str,
        version: &str,
        read: impl Fn(Position, &[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let fold = Fold { name: name.to_owned(), version: version.to_owned() };
        self.shared().snapshot(&fold, read)
    }

    /// From now on, snapshots of a fold are written in the background, the last one when the log is closed. `source` is
    /// given the position of the last durable record and answers with bytes and the position that they are of, at most
    /// that one; it should not keep the log itself alive. `newest` is where the fold started from.
    ///
    /// `name` consists of small letters; `version` changes whenever the bytes or what the fold does change.
    pub fn keep_snapshots(
        &self,
        name: &str,
        version: &str,
        newest: Position,
        source: impl Fn(Position) -> Option<(Position, Vec<u8>)> + Send + 'static,
    ) {
        let fold = Fold { name: name.to_owned(), version: version.to_owned() };
        let source = move |last| {
            let (position, bytes) = source(last)?;
            Some((position, Box::new(bytes) as Box<dyn Payload>))
        };
        self.shared().keeper.keep(fold, newest, Box::new(source));
    }

    /// What an operator should know and what was not worth refusing for, such as a dropped snapshot; each once.
    pub fn take_notices(&self) -> Vec<String> {
        self.shared().snapshots.take_notices()
    }

    /// Waits until the record at `position` is durable; an error when that cannot happen any more.
    pub async fn wait_for(&self, position: Position) -> Result<(), AppendError> {
        if self.last() >= position {
            return Ok(());
        }
        let mut progress = self.shared().progress.subscribe();
        let settled = |now: &Progress| now.last >= position || now.condition != Condition::Running;
        let reached = progress.wait_for(settled).await.is_ok_and(|now| now.last >= position);
        let reason = || self.failure().unwrap_or_else(|| "it was closed".to_owned());
        if reached { Ok(()) } else { Err(AppendError::Stopped(reason())) }
    }

    /// Why the log takes no more writes; `None` as long as it does.
    pub fn failure(&self) -> Option<String> {
        self.shared().sequencer.failure()
    }

    fn start(storage: Storage) -> Result<Self, OpenError> {
        let (shared, sequencer) = Shared::load(storage)?;
        let shared = Arc::new(shared);
        let failed =
            |error| shared.storage.unwritable(format!("a thread of the log cannot start: {error}"));
        // When the second does not start, the owner that is dropped ends the first.
        let mut owner = Owner { shared: Arc::clone(&shared), writer: None, keeper: None };
        owner.keeper = Some(keeper::start(Arc::clone(&shared)).map_err(failed)?);
        let indexed = Arc::downgrade(&shared);
        let source = move |_| {
            let shared = indexed.upgrade()?;
            if shared.index_differs.load(Ordering::Acquire) {
                return None;
            }
            // A copy is cheap, since its segments are shared; what takes long must not hold the writer up.
            let index = shared.index().clone();
            Some((index.last(), Box::new(index) as Box<dyn Payload>))
        };
        shared.keeper.keep(index_fold(), shared.indexed, Box::new(source));
        owner.writer = Some(writer::start(Arc::clone(&shared), sequencer).map_err(failed)?);
        Ok(Self(Arc::new(owner)))
    }

    fn shared(&self) -> &Shared {
        &self.0.shared
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let directory = self.shared().storage.directory();
        f.debug_struct("Log")
            .field("directory", &directory)
            .field("last", &self.last())
            .finish_non_exhaustive()
    }
}

/// What all clones of a log have in common: the last of them ends the writer.
struct Owner {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.sequencer.close();
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was told to everybody who waited.
            _ = writer.join();
        }
        self.shared.keeper.close();
        if let Some(keeper) = self.keeper.take() {
            // Without the last snapshots, opening takes longer and nothing is lost.
            _ = keeper.join();
        }
    }
}

/// What the log, its writer and its subscribers share.
struct Shared {
    storage: Storage,
    sequencer: Arc<dyn Sequencer>,
    index: RwLock<Index>,
    /// Whether the index is no fold of the log, since records could not be dropped that it has forgotten.
    index_differs: AtomicBool,
    recent: RwLock<Recent>,
    snapshots: Snapshots,
    keeper: Keeper,
    /// Where the snapshot of the index was that the log was opened with.
    indexed: Position,
    progress: watch::Sender<Progress>,
}

/// How far the log is.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// The last durable position, and the hash of the log there.
    last: Position,
    hash: ChainHash,
    condition: Condition,
}

/// Whether more records may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Running,
    /// A write failed; the log can still be read.
    Stopped,
    Closed,
}

impl Shared {
    /// Takes the newest snapshot of the index that fits, checks every record after it, and adds those to the index.
    fn load(storage: Storage) -> Result<(Self, Arc<Local>), OpenError> {
        let unopened = |error| storage.unopened(error);
        let snapshots = storage.snapshots();
        let end = storage.last().map_err(unopened)?.map_or(Position::START, |(last, _)| last);
        storage.check_length(end)?;
        let generation = storage.generation().map_err(unopened)?;
        let found = snapshots.newest(&index_fold(), |taken, content| {
            if taken.generation != generation {
                return Err("records were dropped since".to_owned());
            }
            let place = fitting(&storage, taken)?;
            let index = Index::read(&mut content.from, content.bytes);
            let index = index.ok_or_else(|| "its bytes are not those of an index".to_owned())?;
            let fits = index.last() == place.position;
            fits.then_some((place, index)).ok_or_else(|| "it ends elsewhere".to_owned())
        });
        let (place, mut index) = found.unwrap_or_default();
        let walked = storage.walk(place, |position, stored| {
            match stored {
                Stored::Record(body) => index.insert(&body.header()?),
                Stored::Gap(_) => index.skip_to(position),
            }
            Ok(())
        });
        let Place { position: last, hash } = walked.map_err(unopened)?;
        let keeper = Keeper::default();
        keeper.due_after(place.position);
        let revisions = storage.revisions()?;
        storage.check_acknowledged()?;
        if let Some((artifact, revision)) = revisions.iter().find(|(_, revision)| **revision > last)
        {
            let reason = format!(
                "its last record is {last}, but {artifact} was changed by record {revision}"
            );
            return Err(storage.damaged(reason));
        }
        let sequencer = Arc::new(Local::new(last, revisions));
        let shared = Self {
            storage,
            sequencer: Arc::clone(&sequencer) as Arc<dyn Sequencer>,
            index: RwLock::new(index),
            index_differs: AtomicBool::new(false),
            recent: RwLock::default(),
            snapshots,
            keeper,
            indexed: place.position,
            progress: watch::Sender::new(Progress { last, hash, condition: Condition::Running }),
        };
        Ok((shared, sequencer))
    }

    fn read(
        &self,
        after: Position,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Record>>, ReadError> {
        let last = self.progress.borrow().last;
        if after >= last || limit == 0 {
            return Ok(Vec::new());
        }
        // The ring is filled before the mark is set: what lies beyond it is nobody's yet.
        let limit = limit.min(usize::try_from(last.0 - after.0).unwrap_or(usize::MAX));
        let recent = self.recent().after(after, limit);
        recent.map_or_else(|| self.storage.read(after, last, limit, bytes_max), Ok)
    }

    fn facts(
        &self,
        after: Position,
        mut visit: impl FnMut(&Record),
    ) -> Result<Position, ReadError> {
        let last = self.progress.borrow().last;
        let mut position = after;
        self.storage.each(after, |key, value| {
            let stored =
                Stored::read(format::record_position(key).unwrap_or(position.next()), value)?;
            position = chain::follows(position, key, &stored)?;
            if let Stored::Record(body) = stored
                && body.has_fact()?
            {
                visit(&body.record()?);
            }
            Ok(if position < last { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(position)
    }

    fn snapshot<T>(
        &self,
        fold: &Fold,
        read: impl Fn(Position, &[u8]) -> Result<T, String>,
    ) -> Option<T> {
        self.snapshots.newest(fold, |taken, content| {
            let place = fitting(&self.storage, taken)?;
            read(place.position, &content.whole()?)
        })
    }

    fn index(&self) -> RwLockReadGuard<'_, Index> {
        self.index.read().expect(NEVER_POISONED)
    }

    fn index_mut(&self) -> RwLockWriteGuard<'_, Index> {
        self.index.write().expect(NEVER_POISONED)
    }

    fn recent(&self) -> RwLockReadGuard<'_, Recent> {
        self.recent.read().expect(NEVER_POISONED)
    }

    fn recent_mut(&self) -> RwLockWriteGuard<'_, Recent> {
        self.recent.write().expect(NEVER_POISONED)
    }
}

/// The snapshots of the index. Another version of it, or another release, builds its own.
fn index_fold() -> Fold {
    Fold { name: "index".to_owned(), version: format!("5-{}", env!("CARGO_PKG_VERSION")) }
}

/// Where a snapshot was taken, when the log still has the same hash there.
fn fitting(storage: &Storage, Taken { place, .. }: Taken) -> Result<Place, String> {
    match storage.hash_at(place.position) {
        Ok(Some(hash)) if hash == place.hash => Ok(place),
        Ok(Some(_)) => Err("it is of another log".to_owned()),
        Ok(None) => Err(format!("the log has no record at position {}", place.position)),
        Err(error) => Err(error.to_string()),
    }
}

const NEVER_POISONED: &str = "nothing panics while it holds the index or the recent records";
