//! Snapshots: folds of the log as they were at a position, in files beside the log, so that opening replays a tail only.
//!
//! A snapshot is a cache. It says at which position it was taken and which hash the log had there; one that is damaged,
//! of another version or of another log is dropped with a notice, and its fold starts earlier. Nothing is ever read
//! from a snapshot that could not be read from the log. This module knows files, not what is in a fold.
//!
//! The index may be large, so its snapshot is never in memory as bytes. The checksum of a snapshot is verified by another
//! thread while it is read, by reading the file once more, and what was read counts only when both are done.
//!
//! ```text
//! snapshots/NAME-POSITION.snapshot
//!     8 bytes  "SEGUESNP"
//!     header   postcard of `HeaderV1`
//!     payload  the bytes of the fold
//!     32 bytes BLAKE3 of all that
//! ```

use super::chain::{ChainHash, HASH_BYTES, Place};
use crate::event::Position;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// How many snapshots of one fold are kept: the newest, and one to fall back on.
const KEPT: usize = 2;
const MAGIC: &[u8; 8] = b"SEGUESNP";
const EXTENSION: &str = "snapshot";
/// How much of a snapshot is read at once; a header is smaller.
const BUFFER_BYTES: usize = 256 << 10;
/// What is being written.
const UNFINISHED: &str = "unfinished";
/// How many notices are kept: what comes after that many is the same again.
const NOTICES_MAX: usize = 64;

/// Which fold a snapshot is of. Another version means that its bytes cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fold {
    pub name: String,
    pub version: String,
}

/// What of the log a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub place: Place,
    /// How often retention had dropped records.
    pub generation: u64,
}

/// A fold that is written.
pub(super) trait Payload {
    /// Writes it; always the same bytes.
    fn write(&self, to: &mut dyn Write) -> io::Result<()>;
}

impl Payload for Vec<u8> {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        to.write_all(self)
    }
}

/// A fold that is read. Its bytes may be damaged: that is told only later.
pub(super) struct Content {
    pub from: BufReader<io::Take<File>>,
    /// How many bytes there are.
    pub bytes: usize,
}

/// The snapshots of one log; without a directory there are none.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    directory: Option<PathBuf>,
    notices: Mutex<Vec<String>>,
}

/// Frozen: a change is another `format`.
#[derive(Serialize, Deserialize)]
struct HeaderV1<'a> {
    format: u8,
    name: &'a str,
    version: &'a str,
    position: u64,
    hash: [u8; HASH_BYTES],
    generation: u64,
    payload_bytes: u64,
}

impl Snapshots {
    /// The snapshots beside the log in `directory`.
    pub fn of(directory: &Path) -> Self {
        Self { directory: Some(directory.join("snapshots")), notices: Mutex::default() }
    }

    /// What `accept` makes of the newest snapshot of `fold` that it takes; those that are newer and no good are removed,
    /// with a notice.
    pub fn newest<T>(
        &self,
        fold: &Fold,
        accept: impl Fn(Taken, &mut Content) -> Result<T, String>,
    ) -> Option<T> {
        for path in self.files(&fold.name) {
            match read(&path, fold, &accept) {
                Ok(taken) => return Some(taken),
                Err(reason) => {
                    self.notice(format!(
                        "the snapshot {} is dropped: {reason}; what it holds is read from the log instead",
                        path.display()
                    ));
                    // One that cannot be removed is refused again the next time.
                    _ = fs::remove_file(&path);
                }
            }
        }
        None
    }

    /// Writes a snapshot, durable and whole or not at all, and removes those that are too old. Of one that fails nothing
    /// stays, since it may have been the disk that is full.
    pub fn write(&self, fold: &Fold, taken: Taken, payload: &dyn Payload) -> io::Result<()> {
        let Some(directory) = &self.directory else { return Ok(()) };
        super::directory::create(directory)?;
        self.remove_unfinished();
        let position = taken.place.position;
        let path = directory.join(format!("{}-{position:020}.{EXTENSION}", fold.name));
        let unfinished = path.with_extension(UNFINISHED);
        let written =
            create(&unfinished, fold, taken, payload).and_then(|()| fs::rename(&unfinished, &path));
        if let Err(error) = written {
            // What cannot be removed goes with the next snapshot, or when the log is opened.
            _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        File::open(directory)?.sync_all()?;
        for old in self.files(&fold.name).into_iter().skip(KEPT) {
            fs::remove_file(old)?;
        }
        Ok(())
    }

    /// Removes what was not finished, by a service that was killed or had no room; whether there was something. Nobody
    /// else may be writing.
    pub fn remove_unfinished(&self) -> bool {
        let mut removed = false;
        for path in self.paths().filter(|path| has_extension(path, UNFINISHED)) {
            // One that cannot be removed takes room, and does no other harm.
            removed |= fs::remove_file(path).is_ok();
        }
        removed
    }

    /// The positions of all snapshots: the records there have to stay, or nobody could tell what they belong to.
    pub fn positions(&self) -> Vec<Position> {
        let names = self.files("").into_iter();
        names.filter_map(|path| Some(Position(number(&path)?))).collect()
    }

    /// What somebody should know, once.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a notice.
    pub fn notice(&self, notice: String) {
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < NOTICES_MAX {
            notices.push(notice);
        }
    }

    /// The files of the fold `name`, or of all folds, newest first. A directory that cannot be read has none.
    fn files(&self, name: &str) -> Vec<PathBuf> {
        let own = |path: &PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let fold = stem.rsplit_once('-').map(|(fold, _)| fold);
            has_extension(path, EXTENSION) && (name.is_empty() || fold == Some(name))
        };
        let mut paths: Vec<_> = self.paths().filter(own).collect();
        paths.sort_by_key(|path| std::cmp::Reverse(number(path)));
        paths
    }

    /// What is in the directory; nothing when it cannot be read.
    fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let entries = self.directory.as_ref().and_then(|directory| fs::read_dir(directory).ok());
        entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
    }
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|own| own == extension)
}

fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.rsplit_once('-')?.1.parse().ok()
}

/// Writes a snapshot into a file of its own, durably.
fn create(path: &Path, fold: &Fold, taken: Taken, payload: &dyn Payload) -> io::Result<()> {
    let mut file = Hashing { file: File::create(path)?, hasher: blake3::Hasher::new() };
    encode(&mut file, fold, taken, payload)?;
    file.file.sync_all()
}

fn encode(file: &mut Hashing, fold: &Fold, taken: Taken, payload: &dyn Payload) -> io::Result<()> {
    let mut length = Length(0);
    payload.write(&mut length)?;
    let header = HeaderV1 {
        format: 1,
        name: &fold.name,
        version: &fold.version,
        position: taken.place.position.0,
        hash: taken.place.hash.0,
        generation: taken.generation,
        payload_bytes: length.0,
    };
    file.write_all(MAGIC)?;
    file.write_all(&postcard::to_stdvec(&header).map_err(io::Error::other)?)?;
    payload.write(file)?;
    let checksum = file.hasher.finalize();
    file.file.write_all(checksum.as_bytes())
}

/// What `accept` makes of the snapshot in `path`, if that is one of `fold` and sound.
fn read<T>(
    path: &Path,
    fold: &Fold,
    accept: impl Fn(Taken, &mut Content) -> Result<T, String>,
) -> Result<T, String> {
    let unread = |error: io::Error| error.to_string();
    let (file, verified) = (File::open(path).map_err(unread)?, File::open(path).map_err(unread)?);
    let length = file.metadata().map_err(unread)?.len();
    let length = length.checked_sub(HASH_BYTES as u64).ok_or_else(|| "it is cut off".to_owned())?;
    std::thread::scope(|scope| {
        let verifying =
            std::thread::Builder::new().spawn_scoped(scope, || verify(&verified, length));
        let taken =
            open(file, length, fold).and_then(|(taken, mut content)| accept(taken, &mut content));
        // Of what is damaged nothing else is worth telling.
        match verifying {
            Ok(verifying) => {
                verifying.join().map_err(|_| "its checksum was not made".to_owned())??;
            }
            // That there is no thread for it is no reason to drop a snapshot.
            Err(_) => verify(&verified, length)?,
        }
        taken
    })
}

/// Whether the first `length` bytes of `file` have the checksum that follows them.
fn verify(file: &File, length: u64) -> Result<(), String> {
    let unread = |error: io::Error| error.to_string();
    let mut hasher = blake3::Hasher::new();
    let mut content = file.take(length);
    hasher.update_reader(&mut content).map_err(unread)?;
    let mut checksum = [0; HASH_BYTES];
    content.into_inner().read_exact(&mut checksum).map_err(unread)?;
    if hasher.finalize() == checksum {
        Ok(())
    } else {
        Err("its checksum does not match".to_owned())
    }
}

/// Reads the first `length` bytes of `file` up to where the payload begins.
fn open(file: File, length: u64, fold: &Fold) -> Result<(Taken, Content), String> {
    let mut from = BufReader::with_capacity(BUFFER_BYTES, file.take(length));
    let unread = |error: io::Error| error.to_string();
    let begin = from.fill_buf().map_err(unread)?;
    let rest = begin.strip_prefix(MAGIC).ok_or_else(|| "it is no snapshot".to_owned())?;
    let (header, rest) = postcard::take_from_bytes::<HeaderV1>(rest)
        .map_err(|error| format!("its header: {error}"))?;
    if (header.format, header.name, header.version) != (1, &*fold.name, &*fold.version) {
        return Err(format!(
            "it is of {} in version {}, {} in version {} is wanted",
            header.name, header.version, fold.name, fold.version
        ));
    }
    let read = begin.len() - rest.len();
    if length.checked_sub(read as u64) != Some(header.payload_bytes) {
        return Err("its length does not match".to_owned());
    }
    let bytes = usize::try_from(header.payload_bytes).map_err(|error| error.to_string())?;
    let place = Place { position: Position(header.position), hash: ChainHash(header.hash) };
    let taken = Taken { place, generation: header.generation };
    from.consume(read);
    Ok((taken, Content { from, bytes }))
}

impl Content {
    /// All of it.
    pub fn whole(&mut self) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::with_capacity(self.bytes);
        self.from.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(bytes)
    }
}

/// Counts what is written.
struct Length(u64);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file and the hash of what was written to it.
struct Hashing {
    file: File,
    hasher: blake3::Hasher,
}

impl Write for Hashing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(version: &str) -> Fold {
        Fold { name: "state".into(), version: version.into() }
    }

    fn taken(position: u64) -> Taken {
        let place = Place { position: Position(position), hash: ChainHash([3; HASH_BYTES]) };
        Taken { place, generation: 2 }
    }

    fn write(snapshots: &Snapshots, fold: &Fold, position: u64) {
        snapshots.write(fold, taken(position), &b"payload".to_vec()).unwrap();
    }

    fn all(taken: Taken, content: &mut Content) -> Result<(Taken, Vec<u8>), String> {
        Ok((taken, content.whole()?))
    }

    #[test]
    fn the_newest_that_is_sound_is_taken_and_two_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::of(directory.path());
        for position in [7, 900, 88] {
            write(&snapshots, &fold("1"), position);
        }
        write(&snapshots, &Fold { name: "index".into(), ..fold("1") }, 12);
        assert_eq!(snapshots.positions(), [900, 88, 12].map(Position));
        let expected = |position| Some((taken(position), b"payload".to_vec()));
        assert_eq!(snapshots.newest(&fold("1"), all), expected(900));
        assert_eq!(snapshots.take_notices(), [""; 0]);
        let refuse = |taken: Taken, content: &mut Content| {
            if taken.place.position.0 > 100 {
                Err("it is strange".into())
            } else {
                all(taken, content)
            }
        };
        assert_eq!(snapshots.newest(&fold("1"), refuse), expected(88));
        assert!(snapshots.take_notices()[0].contains("dropped: it is strange"));
        assert_eq!(snapshots.newest(&fold("2"), all), None, "another version is none");
        assert!(snapshots.take_notices()[0].contains("in version 1, state in version 2"));
        assert_eq!(snapshots.positions(), [Position(12)]);
    }

    #[test]
    fn what_a_killed_service_left_unfinished_goes() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::of(directory.path());
        write(&snapshots, &fold("1"), 4);
        let inside = directory.path().join("snapshots");
        fs::write(inside.join("state-7.unfinished"), "half").unwrap();
        write(&snapshots, &fold("1"), 5);
        let files = fs::read_dir(inside).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
    }

    /// A payload that the disk has no room for. It is written twice: first to find out how long it is.
    #[derive(Default)]
    struct TooLarge {
        is_measured: std::cell::Cell<bool>,
    }

    impl Payload for TooLarge {
        fn write(&self, to: &mut dyn Write) -> io::Result<()> {
            to.write_all(&[7; 1000])?;
            if self.is_measured.replace(true) {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            to.write_all(&[7; 1000])
        }
    }

    #[test]
    fn a_snapshot_that_fails_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::of(directory.path());
        write(&snapshots, &fold("1"), 4);
        let failed = snapshots.write(&fold("1"), taken(5), &TooLarge::default()).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
        let files = fs::read_dir(directory.path().join("snapshots")).unwrap();
        let names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        assert_eq!(names, ["state-00000000000000000004.snapshot"]);
        assert_eq!(snapshots.newest(&fold("1"), all).unwrap().0, taken(4));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::of(directory.path());
        write(&snapshots, &fold("1"), 5);
        let path = snapshots.files("state").remove(0);
        let bytes = fs::read(&path).unwrap();
        let is_sound = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            read(&path, &fold("1"), all).is_ok()
        };
        assert!(is_sound(&bytes));
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << (place % 8);
            assert!(!is_sound(&changed), "{place}");
            assert!(!is_sound(&bytes[..place]), "{place}");
        }
    }
}
