//! The log file of an instance: standard output and error, appended to across restarts, put aside by size.

use super::LogLimits;
use crate::containers::output::TAIL_BYTES;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Opens the log for a process. It is appended to, so that the process goes on at the start after a rotation.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// The length now; what a process writes comes after.
pub(super) fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// The end of what was written after the first `from` bytes.
pub(super) fn tail(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(from.max(length.saturating_sub(TAIL_BYTES)).min(length)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

/// The end of what was written, with what was put aside last: at most `bytes_max`.
pub(super) fn end(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut end = Vec::new();
    for path in [aside(path, 1), path.to_owned()] {
        match File::open(path) {
            Ok(mut file) => {
                let surplus = file.metadata()?.len().saturating_sub(bytes_max as u64);
                file.seek(SeekFrom::Start(surplus))?;
                file.take(bytes_max as u64).read_to_end(&mut end)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    end.drain(..end.len().saturating_sub(bytes_max));
    Ok(end)
}

/// Puts the log aside when it has grown beyond the limit, by copying and truncating: the process keeps its open
/// file. Of a larger log the end is kept. What is written between the two steps is lost.
pub(super) fn rotate(path: &Path, limits: LogLimits) -> io::Result<bool> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = file.metadata()?.len();
    if length <= limits.bytes {
        return Ok(false);
    }
    for number in (1..limits.files).rev() {
        match fs::rename(aside(path, number), aside(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if limits.files > 0 {
        file.seek(SeekFrom::Start(length - limits.bytes))?;
        let mut copy = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(aside(path, 1))?;
        io::copy(&mut Read::by_ref(&mut file).take(limits.bytes), &mut copy)?;
    }
    file.set_len(0)?;
    Ok(true)
}

fn aside(path: &Path, number: u32) -> PathBuf {
    path.with_extension(format!("log.{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_beyond_the_limit_is_put_aside_and_the_writer_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        let limits = LogLimits { bytes: 10, files: 2 };
        let mut writer = open(&path).unwrap();
        for round in 1..=4 {
            write!(writer, "{round}: 0123456789").unwrap();
            assert!(rotate(&path, limits).unwrap());
            assert!(!rotate(&path, limits).unwrap());
        }
        write!(writer, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_to_string(aside(&path, 1)).unwrap(), "0123456789");
        assert_eq!(end(&path, 100).unwrap(), b"0123456789new");
        assert_eq!(end(&path, 5).unwrap(), b"89new");
        assert!(aside(&path, 2).exists() && !aside(&path, 3).exists());
    }

    #[test]
    fn the_tail_begins_after_what_was_there_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.log");
        fs::write(&path, "before|after").unwrap();
        assert_eq!(tail(&path, 7).unwrap(), b"after");
        assert_eq!(tail(&path, 700).unwrap(), b"");
        fs::write(&path, vec![b'x'; 10_000]).unwrap();
        assert_eq!(tail(&path, 0).unwrap().len() as u64, TAIL_BYTES);
    }
}
