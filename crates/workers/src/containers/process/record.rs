//! What is kept of an instance on disk, so that it survives a restart of Segue.

use crate::containers::InstanceSpec;
use crate::containers::hash::sha1_hex;
use crate::processes::Identity;
use indexmap::IndexMap;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// The format of the records written; a later one is refused.
const FORMAT: u32 = 1;
const STEM_BYTES_MAX: usize = 150;
/// How long the lock is waited for: a driver of the same process that is just being dropped still holds it.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(1);

/// One instance. Written before the process is started, and again with its identity after.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    format: u32,
    pub(super) spec: InstanceSpec,
    pub(super) ports: IndexMap<String, u16>,
    #[serde(with = "time::serde::rfc3339")]
    pub(super) created: OffsetDateTime,
    /// The process; `None` from the intent to start it until it is known.
    pub(super) process: Option<Identity>,
    /// Whether it was asked to end.
    pub(super) stopping: bool,
}

impl Record {
    pub(super) fn new(
        spec: InstanceSpec,
        ports: IndexMap<String, u16>,
        created: OffsetDateTime,
    ) -> Self {
        Self { format: FORMAT, spec, ports, created, process: None, stopping: false }
    }
}

/// The directory of records and log files.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// Makes the directory when it is not there yet. Records hold the environment of services, so it is private.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let failed = |error| {
            format!("the directory of processes {} cannot be used: {error}", path.display())
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        Ok(Self { path: path.canonicalize().map_err(failed)? })
    }

    /// The lock that keeps other drivers out as long as the file is open.
    pub(super) fn lock(&self) -> Result<File, String> {
        let path = self.path.join("lock");
        let failed = |error: io::Error| format!("{} cannot be locked: {error}", path.display());
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let since = Instant::now();
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            if since.elapsed() > LOCK_WAIT_MAX {
                let path = self.path.display();
                return Err(format!(
                    "another Segue runs processes from {path}; give each its own directory"
                ));
            }
            // Polled: a lock that is waited for cannot be given up after a time.
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(file)
    }

    /// All records. One that cannot be read is an error: its process could otherwise never be ended.
    pub(super) fn load(&self) -> Result<Vec<Record>, String> {
        let failed = |path: &Path, words: String| {
            format!("the record {} cannot be read: {words}", path.display())
        };
        let entries =
            fs::read_dir(&self.path).map_err(|error| failed(&self.path, error.to_string()))?;
        let mut records = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| failed(&self.path, error.to_string()))?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let text = fs::read(&path).map_err(|error| failed(&path, error.to_string()))?;
            let value: serde_json::Value =
                serde_json::from_slice(&text).map_err(|error| failed(&path, error.to_string()))?;
            if value["format"] != FORMAT {
                return Err(failed(&path, "a newer Segue wrote it; use that one".to_owned()));
            }
            records.push(
                serde_json::from_value(value).map_err(|error| failed(&path, error.to_string()))?,
            );
        }
        Ok(records)
    }

    /// Writes a record so that after a crash either the old or the new one is there.
    pub(super) fn save(&self, record: &Record) -> io::Result<()> {
        let path = self.file(&record.spec.name, "json");
        let temporary = self.file(&record.spec.name, "new");
        let text = serde_json::to_vec_pretty(record)?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.path)?.sync_all()
    }

    /// Removes all that is kept of an instance; the record last, so that a crash in between leaves nothing behind.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        let stem = stem(name);
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            let rest = file.strip_prefix(&stem).unwrap_or_default();
            let is_log = rest.strip_prefix(".log").is_some_and(|number| {
                number.is_empty()
                    || number.strip_prefix('.').is_some_and(|digits| digits.parse::<u32>().is_ok())
            });
            if is_log || rest == ".new" {
                fs::remove_file(&path)?;
            }
        }
        match fs::remove_file(self.file(name, "json")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.file(name, "log")
    }

    /// What marks the processes of this directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str, extension: &str) -> PathBuf {
        self.path.join(format!("{}.{extension}", stem(name)))
    }
}

/// A file name for an instance: its own name when that can be one, else a hash.
fn stem(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if !name.is_empty() && name.len() <= STEM_BYTES_MAX && name.chars().all(plain) {
        return name.to_owned();
    }
    sha1_hex(name)
}
