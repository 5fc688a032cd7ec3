//! Copies of a log: made while it is written, checked when they are restored.
//!
//! A backup is a directory with RocksDB's files and `backup.json`, which names every file with its length and BLAKE3,
//! and the position and hash of the log in it. It is whole or not there: it is made under another name. It shares no
//! file with the log, so that damage to one does not reach the other, and it can be copied to another machine by any
//! means: what changed on the way is noticed when it is restored, and the restored log must have the same hash.

use super::chain::{ChainHash, Place};
use super::directory;
use super::error::{OpenError, ReadError};
use super::format::Stored;
use super::storage::{CHECKPOINT, Storage};
use super::{Log, Shared};
use crate::event::Position;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

const CONTENTS: &str = "backup.json";
/// The format of [`Contents`].
const FORMAT: u32 = 1;
const CONTENTS_BYTES_MAX: u64 = 16 << 20;
const COPY_BYTES: usize = 1 << 20;

/// What a backup holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// The position of its last record.
    pub last: Position,
    /// The hash of the log there.
    pub hash: ChainHash,
    /// How many bytes its files have.
    pub bytes: u64,
}

/// Why there is no backup, or why it was not restored. What was half done is removed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is something already.
    #[error("{0} exists already and is not empty: choose another directory")]
    Exists(PathBuf),
    /// Another disk begins there, or it is a link: what is made is given its name once it is whole, and cannot be given
    /// this one.
    #[error(
        "{0} is a mount point or a link, whose place no directory can take: name a directory below it"
    )]
    Fixed(PathBuf),
    /// It is no backup, or one of a newer release.
    #[error("{directory} is no backup that this release can restore: {reason}")]
    NoBackup {
        /// Where it should be.
        directory: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file is not what it was when the backup was made.
    #[error("the backup in {directory} is damaged: {reason}; use another backup")]
    Damaged {
        /// Where it is.
        directory: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {reason}")]
    Files {
        /// Which.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// RocksDB cannot make the copy.
    #[error("the log cannot be backed up: {0}")]
    Storage(String),
    /// The copy cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A record of the copy cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    position: u64,
    hash: String,
    files: Vec<Content>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    name: String,
    bytes: u64,
    blake3: String,
}

impl Log {
    /// Copies the log, as it is now, to the directory `to`, which must not exist or be empty. Appends go on meanwhile;
    /// everything that was acknowledged before is part of the copy.
    pub fn backup(&self, to: &Path) -> Result<BackedUp, BackupError> {
        let shared = self.shared();
        let _maintenance = shared.keeper.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
        vacant(to)?;
        let checkpoint = shared.storage.directory().join(CHECKPOINT);
        remove(&checkpoint)?;
        let copied = copy_checkpoint(shared, &checkpoint, to);
        // Remains would be removed by the next backup.
        _ = fs::remove_dir_all(&checkpoint);
        copied
    }
}

/// Makes a log in `directory`, which must not exist or be empty, of the backup in `from`, and checks all of it.
pub fn restore(from: &Path, directory: &Path) -> Result<BackedUp, BackupError> {
    vacant(directory)?;
    let contents = contents(from)?;
    whole(directory, |unfinished| restore_contents(from, &contents, unfinished))
}

/// Makes a log in `unfinished` of what `contents` says that is in `from`.
fn restore_contents(
    from: &Path,
    contents: &Contents,
    unfinished: &Path,
) -> Result<BackedUp, BackupError> {
    let mut bytes = 0;
    for content in &contents.files {
        let copied = copy(&from.join(&content.name), &unfinished.join(&content.name))?;
        let damaged = |what| {
            let reason = format!("{what} of the file {} does not match", content.name);
            BackupError::Damaged { directory: from.to_owned(), reason }
        };
        if copied.bytes != content.bytes {
            return Err(damaged("the length"));
        }
        if copied.blake3 != content.blake3 {
            return Err(damaged("the hash"));
        }
        bytes += copied.bytes;
    }
    let storage = Storage::open(unfinished)?;
    let place = storage.walk(Place::default(), |_, stored| match stored {
        Stored::Record(body) => body.record().map(drop),
        Stored::Gap(_) => Ok(()),
    })?;
    if place.position.0 != contents.position || place.hash.to_string() != contents.hash {
        let reason = format!("it ends at position {} with hash {}", place.position, place.hash);
        return Err(BackupError::Damaged { directory: from.to_owned(), reason });
    }
    storage.acknowledge(place);
    Ok(BackedUp { last: place.position, hash: place.hash, bytes })
}

fn copy_checkpoint(shared: &Shared, checkpoint: &Path, to: &Path) -> Result<BackedUp, BackupError> {
    shared.storage.checkpoint(checkpoint).map_err(BackupError::Storage)?;
    let place = {
        let storage = Storage::open_read_only(checkpoint)?;
        let last = storage.last()?;
        let place = last.map(|(position, bytes)| {
            Stored::read(position, &bytes).map(|stored| Place { position, hash: stored.hash() })
        });
        place.transpose()?.unwrap_or_default()
    };
    whole(to, |unfinished| copy_files(checkpoint, place, unfinished))
}

/// Copies the files of the log that ends at `place`, and writes down what they are.
fn copy_files(checkpoint: &Path, place: Place, unfinished: &Path) -> Result<BackedUp, BackupError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(checkpoint).map_err(at(checkpoint))? {
        let path = entry.map_err(at(checkpoint))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        // RocksDB's own notes, made by looking into the checkpoint.
        if !path.is_file() || name.starts_with("LOG") || name == "LOCK" {
            continue;
        }
        files.push(copy(&path, &unfinished.join(name))?);
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    let bytes = files.iter().map(|file| file.bytes).sum();
    let (position, hash) = (place.position.0, place.hash.to_string());
    let contents = Contents { format: FORMAT, position, hash, files };
    let text = serde_json::to_vec_pretty(&contents).expect("texts and numbers can be written");
    let path = unfinished.join(CONTENTS);
    let mut file = File::create(&path).map_err(at(&path))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(at(&path))?;
    Ok(BackedUp { last: place.position, hash: place.hash, bytes })
}

/// Reads what a backup says that it holds.
fn contents(from: &Path) -> Result<Contents, BackupError> {
    let no_backup = |reason: String| BackupError::NoBackup { directory: from.to_owned(), reason };
    let file = File::open(from.join(CONTENTS))
        .map_err(|error| no_backup(format!("{CONTENTS} cannot be read: {error}")))?;
    let mut text = Vec::new();
    file.take(CONTENTS_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(|error| no_backup(format!("{CONTENTS} cannot be read: {error}")))?;
    let contents: Contents = serde_json::from_slice(&text)
        .map_err(|error| no_backup(format!("{CONTENTS} is not as it was written: {error}")))?;
    if contents.format != FORMAT {
        return Err(no_backup(format!("it has format {}, {FORMAT} is known", contents.format)));
    }
    let strange = |content: &&Content| {
        let mut parts = Path::new(&content.name).components();
        !matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(_)), None))
    };
    match contents.files.iter().find(strange) {
        Some(content) => Err(no_backup(format!("'{}' is no name of a file", content.name))),
        None => Ok(contents),
    }
}

/// Copies a file durably and hashes what was read.
fn copy(from: &Path, to: &Path) -> Result<Content, BackupError> {
    let mut source = File::open(from).map_err(at(from))?;
    let mut target = File::create(to).map_err(at(to))?;
    let (mut hasher, mut bytes) = (blake3::Hasher::new(), 0);
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let read = source.read(&mut buffer).map_err(at(from))?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        target.write_all(&buffer[..read]).map_err(at(to))?;
        bytes += read as u64;
    }
    target.sync_all().map_err(at(to))?;
    let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Content { name, bytes, blake3: hasher.finalize().to_hex().to_string() })
}

/// Makes sure that nothing is overwritten, and that what is made can be given this name: before much is copied.
fn vacant(directory: &Path) -> Result<(), BackupError> {
    let mut entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(at(directory))?,
    };
    if entries.next().is_some() {
        return Err(BackupError::Exists(directory.to_owned()));
    }
    if is_fixed(directory).map_err(at(directory))? {
        return Err(BackupError::Fixed(directory.to_owned()));
    }
    Ok(())
}

/// Whether another directory cannot be given the name of this one, since another disk begins here or it is a link.
pub(super) fn is_fixed(directory: &Path) -> io::Result<bool> {
    let own = fs::symlink_metadata(directory)?;
    Ok(!own.is_dir() || own.dev() != fs::metadata(parent(directory))?.dev())
}

/// Makes a directory whole or not at all: `fill` is given one with another name. What stays of a failure would hold room
/// that may be what was missing.
fn whole(
    directory: &Path,
    fill: impl FnOnce(&Path) -> Result<BackedUp, BackupError>,
) -> Result<BackedUp, BackupError> {
    let unfinished = unfinished(directory);
    remove(&unfinished)?;
    let made = directory::create(&unfinished)
        .map_err(at(&unfinished))
        .and_then(|()| fill(&unfinished))
        .and_then(|made| finish(&unfinished, directory).map(|()| made));
    if made.is_err() {
        // Why it failed is told, and remains go with the next attempt.
        _ = fs::remove_dir_all(&unfinished);
    }
    made
}

/// The name that a directory has until it is whole.
fn unfinished(directory: &Path) -> PathBuf {
    let mut name = directory.file_name().unwrap_or_default().to_owned();
    name.push(".unfinished");
    directory.with_file_name(name)
}

/// Gives a whole directory its name, durably.
fn finish(unfinished: &Path, directory: &Path) -> Result<(), BackupError> {
    File::open(unfinished).and_then(|file| file.sync_all()).map_err(at(unfinished))?;
    // An empty directory of that name is replaced.
    fs::rename(unfinished, directory).map_err(at(directory))?;
    let parent = parent(directory);
    File::open(parent).and_then(|file| file.sync_all()).map_err(at(parent))
}

fn parent(directory: &Path) -> &Path {
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

fn remove(directory: &Path) -> Result<(), BackupError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(directory)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |reason| BackupError::Files { path, reason }
}
