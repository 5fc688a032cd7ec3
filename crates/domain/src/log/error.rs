//! What can go wrong with the log, in sentences that say where and what to do.

use crate::artifact::ArtifactKey;
use crate::event::Position;
use std::path::PathBuf;
use thiserror::Error;

/// Why a log cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error(
        "the log in {directory} is in use: stop the other Segue that runs on this directory, or choose another directory"
    )]
    InUse {
        /// Where it is.
        directory: PathBuf,
    },
    /// It was written by a newer release.
    #[error(
        "the log in {directory} has format {found}, this release knows formats up to {known}: run a newer release of Segue on it; nothing was changed"
    )]
    NewerStore {
        /// Where it is.
        directory: PathBuf,
        /// The format of the store.
        found: u32,
        /// The newest format that this release knows.
        known: u32,
    },
    /// It was written by an older release, or its migration was interrupted.
    #[error(
        "the log in {directory} has format {found}, this release works with format {known}: copy the directory, then run `segue migrate` on it; nothing was changed"
    )]
    OlderStore {
        /// Where it is.
        directory: PathBuf,
        /// The format of the store; 1 also while its migration is under way.
        found: u32,
        /// The format that this release works with.
        known: u32,
    },
    /// The directory cannot be created or looked into.
    #[error(
        "the directory {directory} of the log cannot be used: {reason}; check the path and its permissions"
    )]
    Directory {
        /// Where it is.
        directory: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Something is missing or changed as a whole.
    #[error("the log in {directory} is damaged: {reason}; restore the directory from a backup")]
    Damaged {
        /// Where it is.
        directory: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A record cannot be read.
    #[error("the log in {directory} cannot be opened: {error}")]
    Record {
        /// Where it is.
        directory: PathBuf,
        /// Which record, and why.
        error: ReadError,
    },
    /// RocksDB refuses for another reason.
    #[error(
        "the log in {directory} cannot be opened: {reason}; when the disk is sound and has room, restore the directory from a backup"
    )]
    Storage {
        /// Where it is.
        directory: PathBuf,
        /// RocksDB's own words.
        reason: String,
    },
}

/// Why records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes of a record are not what was written.
    #[error(
        "the record at position {position} is damaged: {reason}; restore the log from a backup"
    )]
    Damaged {
        /// Where it stands.
        position: Position,
        /// What does not fit.
        reason: String,
    },
    /// A position before the end of the log has no record.
    #[error("the record at position {position} is missing; restore the log from a backup")]
    Missing {
        /// Where it should stand.
        position: Position,
    },
    /// A record was written by a newer release.
    #[error(
        "the record at position {position} has format {found}, this release knows formats up to {known}: run a newer release of Segue"
    )]
    NewerRecord {
        /// Where it stands.
        position: Position,
        /// The format of the record.
        found: u8,
        /// The newest format that this release knows.
        known: u8,
    },
    /// More records are asked for at once than may be held in memory.
    #[error("a page of {per_page} records is too large: ask for at most {max}")]
    PageTooLarge {
        /// How many are asked for.
        per_page: u64,
        /// How many may be.
        max: u64,
    },
    /// The records of one page take more than may be held in memory.
    #[error(
        "the page is larger than {max} bytes, its first {fits} records are not: ask for at most so many"
    )]
    PageTooHeavy {
        /// How many of its records fit.
        fits: usize,
        /// How many bytes may be.
        max: usize,
    },
    /// RocksDB cannot read.
    #[error("the log cannot be read near position {position}: {reason}; check the disk")]
    Storage {
        /// Where it failed.
        position: Position,
        /// RocksDB's own words.
        reason: String,
    },
}

/// Why events were not appended. Nothing of a refused append is in the log.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AppendError {
    /// An artifact has another revision than expected: decide again on the newer state.
    #[error("{artifact} changed: {} was expected, it is {}", revision(*.expected), revision(*.actual))]
    Conflict {
        /// The artifact.
        artifact: ArtifactKey,
        /// The revision that the caller decided on; `None` for "does not exist".
        expected: Option<Position>,
        /// The revision that it has.
        actual: Option<Position>,
    },
    /// The log takes no more writes, since one failed or it was closed. Whether the events of appends that waited
    /// at that moment are in the log is known after it was opened again.
    #[error(
        "the log takes no more writes: {0}; reading goes on; free or repair the disk and restart"
    )]
    Stopped(String),
    /// Too much for one append.
    #[error(
        "an append of {records} events and {bytes} bytes is too large: at most {records_max} events and {bytes_max} bytes fit"
    )]
    TooLarge {
        /// How many events.
        records: usize,
        /// How many may be.
        records_max: usize,
        /// How many bytes they take.
        bytes: usize,
        /// How many may be.
        bytes_max: usize,
    },
    /// Too many appends wait for the disk: try again later.
    #[error(
        "the disk does not keep up, {records} events ({bytes} bytes) wait to be written: try again later"
    )]
    Full {
        /// How many events wait.
        records: usize,
        /// How many bytes they take.
        bytes: usize,
    },
    /// An event cannot be written as JSON.
    #[error("event {index} of the append cannot be written: {reason}")]
    Unwritable {
        /// Which of the events, from 0.
        index: usize,
        /// Why.
        reason: String,
    },
}

/// A revision in words.
fn revision(revision: Option<Position>) -> String {
    revision
        .map_or_else(|| "no such artifact".to_owned(), |position| format!("revision {position}"))
}
