//! The log's files: RocksDB, how it is opened, and how records go in and out.
//!
//! This module knows keys and column families, but neither who waits for a write nor what a record means.
//! Column families are tagged with one letter; **letters are frozen and never reused**:
//!
//! | letter | content | key | value |
//! |---|---|---|---|
//! | `r` | records | position | see [`super::format`] |
//! | `m` | about the store | `format` | version of the store, 4 bytes, big-endian |
//! | | | `generation` | how often retention dropped records, 8 bytes, big-endian; none is 0 |
//! | | | `retention` | up to which position records of which types were dropped, postcard |
//! | | | `migration` | while one is under way: the format it comes from, 4 bytes, and the last position done, 8 bytes |
//! | `k` | receipts of requests that may be repeated | SHA-256 of the request's key | see [`super::Receipt`] |
//! | `v` | revisions: the position of the last record that moved it | letter of the kind, name | position, 8 bytes, big-endian |

use super::Receipt;
use super::chain::{ChainHash, Place, follows};
use super::error::{OpenError, ReadError};
use super::format::{Stored, record_key, record_position, revision_artifact, revision_key};
use super::frames;
use super::mark::{Acknowledged, Mark};
use super::options::{database_options, descriptors};
use super::retention::Reached;
use super::snapshot::Snapshots;
use crate::artifact::ArtifactKey;
use crate::event::{Position, Record};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    ColumnFamily, DB, Env, ErrorKind, IteratorMode, ReadOptions, WriteBatch, WriteOptions,
};
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The newest format of a store that this release opens, and the one that it creates.
pub(super) const STORE_FORMAT: u32 = 2;

pub(super) const RECORDS: &str = "r";
pub(super) const META: &str = "m";
pub(super) const REVISIONS: &str = "v";
pub(super) const RECEIPTS: &str = "k";
const FORMAT_KEY: &[u8] = b"format";
const MIGRATION_KEY: &[u8] = b"migration";
const GENERATION_KEY: &[u8] = b"generation";
/// Where a backup is taken from, in the directory of the log.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// Where RocksDB makes it, before it gives it that name.
const CHECKPOINT_UNFINISHED: &str = "checkpoint.tmp";
const RETENTION_KEY: &[u8] = b"retention";

/// How many records are fetched at once; one of them may have megabytes.
const FETCH_RECORDS: usize = 16;

/// How much is read ahead when all records are read at opening.
const SCAN_READAHEAD_BYTES: usize = 1 << 20;

/// An open store. Dropping the last clone of the `Arc` around it closes it.
pub(super) struct Storage {
    database: DB,
    directory: PathBuf,
    /// None in memory and read-only.
    mark: Option<Mark>,
    acknowledged: Option<Acknowledged>,
}

/// Which format a store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Is(u32),
    /// A migration to the format after `from` was begun: records up to `done` have it already.
    Migrating {
        from: u32,
        done: Position,
    },
}

/// What one commit writes.
#[derive(Default)]
pub(super) struct Batch(WriteBatch);

impl Batch {
    /// One with room for so many records with so many bytes in all.
    pub fn with_room(records: usize, bytes: usize) -> Self {
        /// Key, column family and lengths of one record.
        const AROUND: usize = 16;
        Self(WriteBatch::with_capacity_bytes(records * AROUND + bytes))
    }
}

impl Storage {
    /// Opens the store in `directory`, which is created when it is missing.
    pub fn open(directory: &Path) -> Result<Self, OpenError> {
        let storage = Self::open_any(directory)?;
        match storage.format()? {
            Format::Is(STORE_FORMAT) => Ok(storage),
            Format::Is(found) | Format::Migrating { from: found, .. } => {
                let (directory, known) = (directory.to_owned(), STORE_FORMAT);
                Err(OpenError::OlderStore { directory, found, known })
            }
        }
    }

    /// The same for a store of any format that this release knows.
    pub fn open_any(directory: &Path) -> Result<Self, OpenError> {
        super::directory::create(directory).map_err(|error| unusable(directory, &error))?;
        readable(directory)?;
        let existing = column_families(directory)?;
        let open = || {
            DB::open_cf_descriptors(&database_options(), directory, descriptors(&existing))
                .map_err(|error| refusal(directory, &error))
        };
        // Whoever is not refused as the second one to open it may remove what was not finished. That may be all the room
        // that is missing on a full disk, on which RocksDB does not open either.
        let snapshots = Snapshots::of(directory);
        let database = match open() {
            Err(OpenError::Storage { .. }) if snapshots.remove_unfinished() => open()?,
            opened => opened?,
        };
        snapshots.remove_unfinished();
        // What a backup left that was killed would keep its tables on the disk.
        for checkpoint in [CHECKPOINT, CHECKPOINT_UNFINISHED] {
            _ = std::fs::remove_dir_all(directory.join(checkpoint));
        }
        let mut storage = Self::of(database, directory).prepare()?;
        let (mark, acknowledged) =
            Mark::open(directory).map_err(|error| unusable(directory, &error))?;
        storage.mark = Some(mark);
        storage.acknowledged = acknowledged;
        Ok(storage)
    }

    /// Opens a store that lives in RocksDB's in-memory environment and dies with this value.
    pub fn in_memory() -> Result<Self, OpenError> {
        let directory = Path::new("/in-memory");
        let env = Env::mem_env().map_err(|error| refusal(directory, &error))?;
        let mut options = database_options();
        options.set_env(&env);
        let database = DB::open_cf_descriptors(&options, directory, descriptors(&[]))
            .map_err(|error| refusal(directory, &error))?;
        Self::of(database, directory).prepare()
    }

    /// Opens a store only to read it: nothing in its directory changes, and RocksDB refuses writes.
    pub fn open_read_only(directory: &Path) -> Result<Self, OpenError> {
        readable(directory)?;
        let database = DB::open_cf_for_read_only(
            &database_options(),
            directory,
            [RECORDS, META, REVISIONS, RECEIPTS],
            false,
        )
        .map_err(|error| refusal(directory, &error))?;
        Ok(Self::of(database, directory))
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The snapshots beside it; none in memory and read-only.
    pub fn snapshots(&self) -> Snapshots {
        self.mark.as_ref().map_or_else(Snapshots::default, |_| Snapshots::of(&self.directory))
    }

    /// Writes `batch` whole or not at all; it is durable when this returns.
    pub fn commit(&self, batch: Batch) -> Result<(), String> {
        let mut options = WriteOptions::default();
        options.set_sync(true);
        self.database.write_opt(batch.0, &options).map_err(|error| error.to_string())
    }

    /// Notes that records up to `place` are durable and about to be acknowledged.
    pub fn acknowledge(&self, place: Place) {
        if let Some(mark) = &self.mark {
            mark.set(place);
        }
    }

    /// Makes sure that what was acknowledged before the store was opened is there; `last` is where it ends.
    pub fn check_length(&self, last: Position) -> Result<(), OpenError> {
        match self.acknowledged {
            Some(Acknowledged { position, .. }) if position > last => Err(self.damaged(format!(
                "records up to {position} were acknowledged, but it ends at {last}"
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// Makes sure that the hash of the log is the one that was acknowledged.
    pub fn check_acknowledged(&self) -> Result<(), OpenError> {
        let Some(Acknowledged { position, hash }) = self.acknowledged else { return Ok(()) };
        let found = self.hash_at(position).map_err(|error| self.unopened(error))?;
        match (hash, found) {
            // What retention dropped is checked by the records after it.
            (None, _) | (_, None) => Ok(()),
            (Some(hash), Some(found)) if hash == found => Ok(()),
            (Some(hash), Some(found)) => Err(self.damaged(format!(
                "at position {position} its hash is {found}, but {hash} was acknowledged"
            ))),
        }
    }

    /// Adds a record to `batch`.
    pub fn put_record(&self, batch: &mut Batch, position: Position, value: &[u8]) {
        batch.0.put_cf(self.family(RECORDS), record_key(position), value);
    }

    /// Adds the new revision of an artifact to `batch`; `None` when it was removed.
    pub fn put_revision(
        &self,
        batch: &mut Batch,
        artifact: &ArtifactKey,
        revision: Option<Position>,
    ) {
        let (family, key) = (self.family(REVISIONS), revision_key(artifact));
        match revision {
            Some(position) => batch.0.put_cf(family, key, record_key(position)),
            None => batch.0.delete_cf(family, key),
        }
    }

    /// Adds a receipt to `batch`.
    pub fn put_receipt(&self, batch: &mut Batch, receipt: &Receipt) {
        batch.0.put_cf(self.family(RECEIPTS), receipt.key, &receipt.content);
    }

    /// The content of the receipt under `key`.
    pub fn receipt(&self, key: &[u8; 32]) -> Result<Option<Vec<u8>>, ReadError> {
        let content = self.database.get_cf(self.family(RECEIPTS), key);
        // No position is to blame; the start of the log stands for the store.
        content.map_err(|error| unreadable(Position::START, &error))
    }

    /// Adds the format of the store to `batch`.
    pub fn put_format(&self, batch: &mut Batch, format: u32) {
        batch.0.put_cf(self.family(META), FORMAT_KEY, format.to_be_bytes());
    }

    /// Adds how far a migration from format `from` is to `batch`; `None` when it is done.
    pub fn put_migration(&self, batch: &mut Batch, under_way: Option<(u32, Position)>) {
        match under_way {
            Some((from, done)) => {
                let value = [&from.to_be_bytes()[..], &record_key(done)].concat();
                batch.0.put_cf(self.family(META), MIGRATION_KEY, value);
            }
            None => batch.0.delete_cf(self.family(META), MIGRATION_KEY),
        }
    }

    /// How often retention dropped records.
    pub fn generation(&self) -> Result<u64, ReadError> {
        let value = self.database.get_cf(self.family(META), GENERATION_KEY);
        let value = value.map_err(|error| unreadable(Position::START, &error))?;
        let Some(value) = value else { return Ok(0) };
        let bytes = value.as_slice().try_into().map_err(|_| ReadError::Damaged {
            position: Position::START,
            reason: "the generation of the store is unreadable".to_owned(),
        })?;
        Ok(u64::from_be_bytes(bytes))
    }

    /// Adds how often retention dropped records to `batch`.
    pub fn put_generation(&self, batch: &mut Batch, generation: u64) {
        batch.0.put_cf(self.family(META), GENERATION_KEY, generation.to_be_bytes());
    }

    /// How far retention is.
    pub fn retention(&self) -> Result<Reached, ReadError> {
        let value = self.database.get_cf(self.family(META), RETENTION_KEY);
        let value = value.map_err(|error| unreadable(Position::START, &error))?;
        let Some(value) = value else { return Ok(Reached::default()) };
        postcard::from_bytes(&value).map_err(|error| ReadError::Damaged {
            position: Position::START,
            reason: format!("how far retention is: {error}"),
        })
    }

    /// Adds how far retention is to `batch`.
    pub fn put_retention(&self, batch: &mut Batch, reached: &Reached) {
        let value =
            postcard::to_stdvec(reached).expect("names and numbers can be written to memory");
        batch.0.put_cf(self.family(META), RETENTION_KEY, value);
    }

    /// Adds to `batch` that nothing stands at `position` any more: only for what a gap covers.
    pub fn remove_record(&self, batch: &mut Batch, position: Position) {
        batch.0.delete_cf(self.family(RECORDS), record_key(position));
    }

    /// Gives the space of what was removed between two positions back to the file system.
    pub fn compact(&self, first: Position, last: Position) {
        let (first, last) = (record_key(first), record_key(last.next()));
        self.database.compact_range_cf(self.family(RECORDS), Some(first), Some(last));
    }

    /// Writes the files of the store as they are now into `directory`, which must not exist and lie on the same disk:
    /// most of them are the same files under another name.
    pub fn checkpoint(&self, directory: &Path) -> Result<(), String> {
        let checkpoint = Checkpoint::new(&self.database).map_err(|error| error.to_string())?;
        checkpoint.create_checkpoint(directory).map_err(|error| error.to_string())
    }

    /// The format of the store; newer ones are refused.
    pub fn format(&self) -> Result<Format, OpenError> {
        let failed = |error| refusal(&self.directory, &error);
        let migration = self.database.get_cf(self.family(META), MIGRATION_KEY).map_err(failed)?;
        if let Some(value) = migration {
            let under_way = value.split_first_chunk().zip(value.get(4..).and_then(record_position));
            let under_way = under_way.ok_or_else(|| self.damaged("its migration is unreadable"))?;
            let ((from, _), done) = under_way;
            return Ok(Format::Migrating { from: u32::from_be_bytes(*from), done });
        }
        let format = self.database.get_cf(self.family(META), FORMAT_KEY).map_err(failed)?;
        let format = format.and_then(|bytes| <[u8; 4]>::try_from(bytes.as_slice()).ok());
        let format = format.map(u32::from_be_bytes);
        match format.ok_or_else(|| self.damaged("the format of the store is unreadable"))? {
            0 => Err(self.damaged("the format of the store is 0")),
            found @ 1..=STORE_FORMAT => Ok(Format::Is(found)),
            found => {
                let (directory, known) = (self.directory.clone(), STORE_FORMAT);
                Err(OpenError::NewerStore { directory, found, known })
            }
        }
    }

    /// The revisions of all artifacts.
    pub fn revisions(&self) -> Result<HashMap<ArtifactKey, Position>, OpenError> {
        let mut revisions = HashMap::new();
        for entry in self.database.iterator_cf(self.family(REVISIONS), IteratorMode::Start) {
            let (key, value) = entry.map_err(|error| refusal(&self.directory, &error))?;
            let entry = revision_artifact(&key).zip(record_position(&value));
            let (artifact, position) =
                entry.ok_or_else(|| self.damaged("the revision of an artifact is unreadable"))?;
            revisions.insert(artifact, position);
        }
        Ok(revisions)
    }

    /// Hands what stands after `from` to `visit`, up to the end, and makes sure that nothing is missing in between and
    /// that everything continues the hash chain. The answer is where it ends.
    pub fn walk(
        &self,
        from: Place,
        mut visit: impl FnMut(Position, &Stored<'_>) -> Result<(), ReadError>,
    ) -> Result<Place, ReadError> {
        let mut place = from;
        self.each(from.position, |key, value| {
            let position = record_position(key).unwrap_or_else(|| place.position.next());
            let stored = Stored::read(position, value)?;
            place.step(key, &stored)?;
            visit(position, &stored).map(ControlFlow::Continue)
        })?;
        Ok(place)
    }

    /// Hands keys and bytes after `after` to `visit`, in order and unchecked, until it has enough.
    pub fn each(
        &self,
        after: Position,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, ReadError>,
    ) -> Result<(), ReadError> {
        let mut options = ReadOptions::default();
        options.set_readahead_size(SCAN_READAHEAD_BYTES);
        options.fill_cache(false);
        let mut entries = self.database.raw_iterator_cf_opt(self.family(RECORDS), options);
        entries.seek(record_key(after.next()));
        let mut last = after;
        while let Some((key, value)) = entries.item() {
            last = record_position(key).unwrap_or(last);
            if visit(key, value)?.is_break() {
                return Ok(());
            }
            entries.next();
        }
        entries.status().map_err(|error| unreadable(last.next(), &error))
    }

    /// The position where the log ends, and the bytes there; none when it is empty.
    pub fn last(&self) -> Result<Option<(Position, Vec<u8>)>, ReadError> {
        let mut entries = self.database.raw_iterator_cf(self.family(RECORDS));
        entries.seek_to_last();
        entries.status().map_err(|error| unreadable(Position::START, &error))?;
        let Some((key, value)) = entries.item() else { return Ok(None) };
        let position = record_position(key).ok_or_else(|| ReadError::Damaged {
            position: Position::START,
            reason: "the last key is no position".to_owned(),
        })?;
        Ok(Some((position, value.to_vec())))
    }

    /// The hash of the log at `position`; `None` when no record stands there.
    pub fn hash_at(&self, position: Position) -> Result<Option<ChainHash>, ReadError> {
        if position == Position::START {
            return Ok(Some(ChainHash::START));
        }
        let value = self.database.get_pinned_cf(self.family(RECORDS), record_key(position));
        let value = value.map_err(|error| unreadable(position, &error))?;
        value.map(|value| Ok(Stored::read(position, &value)?.hash())).transpose()
    }

    /// The records after `after` up to `last`: at most `limit`, and no more once `bytes_max` is reached.
    pub fn read(
        &self,
        after: Position,
        last: Position,
        limit: usize,
        bytes_max: usize,
    ) -> Result<Vec<Arc<Record>>, ReadError> {
        let mut options = ReadOptions::default();
        options.set_iterate_upper_bound(record_key(last.next()));
        let mut entries = self.database.raw_iterator_cf_opt(self.family(RECORDS), options);
        entries.seek(record_key(after.next()));
        let (mut records, mut bytes, mut position) = (Vec::new(), 0, after);
        while position < last && records.len() < limit && bytes < bytes_max {
            let Some((key, value)) = entries.item() else {
                entries.status().map_err(|error| unreadable(position.next(), &error))?;
                return Err(ReadError::Missing { position: position.next() });
            };
            let stored = Stored::read(record_position(key).unwrap_or(position.next()), value)?;
            position = follows(position, key, &stored)?;
            if let Stored::Record(body) = stored {
                bytes += value.len();
                records.push(Arc::new(body.record()?));
            }
            entries.next();
        }
        Ok(records)
    }

    /// Hands the records at `positions` to `visit`, in that order: few at a time are in memory.
    pub fn fetch(
        &self,
        positions: &[Position],
        mut visit: impl FnMut(Record, usize) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        for positions in positions.chunks(FETCH_RECORDS) {
            let keys: Vec<_> = positions.iter().map(|position| record_key(*position)).collect();
            let values = self.database.batched_multi_get_cf(self.family(RECORDS), &keys, false);
            for (position, value) in positions.iter().zip(values) {
                let position = *position;
                let value = value.map_err(|error| unreadable(position, &error))?;
                let value: rocksdb::DBPinnableSlice =
                    value.ok_or(ReadError::Missing { position })?;
                match Stored::read(position, &value)? {
                    Stored::Record(body) => visit(body.record()?, value.len())?,
                    Stored::Gap(_) => return Err(ReadError::Missing { position }),
                }
            }
        }
        Ok(())
    }

    /// Says that something in the store does not fit.
    pub fn damaged(&self, reason: impl Into<String>) -> OpenError {
        OpenError::Damaged { directory: self.directory.clone(), reason: reason.into() }
    }

    /// Says that the store cannot be written.
    pub fn unwritable(&self, reason: String) -> OpenError {
        OpenError::Storage { directory: self.directory.clone(), reason }
    }

    /// Says that a record of the store cannot be read.
    pub fn unopened(&self, error: ReadError) -> OpenError {
        OpenError::Record { directory: self.directory.clone(), error }
    }

    fn of(database: DB, directory: &Path) -> Self {
        Self { database, directory: directory.to_owned(), mark: None, acknowledged: None }
    }

    /// Writes the format into a new store.
    fn prepare(self) -> Result<Self, OpenError> {
        let format = self.database.get_cf(self.family(META), FORMAT_KEY);
        match format.map_err(|error| refusal(&self.directory, &error))? {
            Some(_) => self.format().map(|_| self),
            None => self.initialise(),
        }
    }

    /// Marks an empty store as one of ours.
    fn initialise(self) -> Result<Self, OpenError> {
        let mut records = self.database.iterator_cf(self.family(RECORDS), IteratorMode::Start);
        if records.next().is_some() {
            return Err(self.damaged("it has records, but the format of the store is missing"));
        }
        drop(records);
        let mut batch = Batch::default();
        self.put_format(&mut batch, STORE_FORMAT);
        self.commit(batch).map_err(|reason| self.unwritable(reason))?;
        Ok(self)
    }

    fn family(&self, name: &str) -> &ColumnFamily {
        self.database.cf_handle(name).expect("every column family is opened with the database")
    }
}

/// Refuses what RocksDB would read for ever.
fn readable(directory: &Path) -> Result<(), OpenError> {
    let damaged = |reason| OpenError::Damaged { directory: directory.to_owned(), reason };
    frames::check(directory).map_err(damaged)
}

/// The column families of the store in `directory`; none when there is no store yet.
fn column_families(directory: &Path) -> Result<Vec<String>, OpenError> {
    if directory.join("CURRENT").exists() {
        return DB::list_cf(&database_options(), directory)
            .map_err(|error| refusal(directory, &error));
    }
    // Without `CURRENT`, RocksDB would make a new store and sweep the files of the old one away.
    for entry in std::fs::read_dir(directory).map_err(|error| unusable(directory, &error))? {
        let path = entry.map_err(|error| unusable(directory, &error))?.path();
        if path.extension().is_some_and(|extension| extension == "sst" || extension == "log") {
            let reason = format!("it has {} but no file CURRENT", path.display());
            return Err(OpenError::Damaged { directory: directory.to_owned(), reason });
        }
    }
    Ok(Vec::new())
}

fn unreadable(position: Position, error: &rocksdb::Error) -> ReadError {
    match error.kind() {
        ErrorKind::Corruption => ReadError::Damaged { position, reason: error.to_string() },
        _ => ReadError::Storage { position, reason: error.to_string() },
    }
}

fn unusable(directory: &Path, error: &std::io::Error) -> OpenError {
    OpenError::Directory { directory: directory.to_owned(), reason: error.to_string() }
}

fn refusal(directory: &Path, error: &rocksdb::Error) -> OpenError {
    let (directory, reason) = (directory.to_owned(), error.to_string());
    match error.kind() {
        // RocksDB has no error of its own for this: it says that it could not lock, or already holds, `…/LOCK`.
        ErrorKind::IOError if reason.contains("LOCK") && reason.contains("lock ") => {
            OpenError::InUse { directory }
        }
        ErrorKind::Corruption => OpenError::Damaged { directory, reason },
        _ => OpenError::Storage { directory, reason },
    }
}
