//! Takes in what HAProxy tells of every request: one line on its standard output, which is a pipe with a name.
//!
//! A pipe holds a megabyte, thousands of lines, so that they can be taken many at a time; a socket for datagrams holds ten
//! of them where nobody changed the system's limit. When it is full HAProxy drops lines and counts them; it never waits.
//! Nobody waits for lines either: a reader that does is woken by each of them, which costs HAProxy more than writing it.
//! It goes on telling while the service is away, and the workers of a former configuration tell there, too.

use super::ways::{Named, Ways};
use crate::driver::Error;
use crate::gateways::{Count, Passage};
use memchr::memchr_iter;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat, openat};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::JoinHandle;

/// The pipe, in HAProxy's directory.
const FILE: &str = "requests.pipe";
/// As much as the system gives without privileges.
const PIPE_BYTES: usize = 1024 * 1024;
/// How much is taken at once.
const TAKEN_BYTES: usize = 256 * 1024;
/// How often it is taken before others have their turn.
const TAKES_MAX: usize = 8;
/// How long lines gather before they are taken: at 20,000 requests a second that is a fifth of the pipe.
const PAUSE: Duration = Duration::from_millis(20);
/// The same after nothing came.
const PAUSE_IDLE: Duration = Duration::from_millis(60);

/// The end of the pipe where lines come out.
#[derive(Debug)]
pub(super) struct Intake {
    ways: Arc<Mutex<Ways>>,
    task: Mutex<Option<JoinHandle<()>>>,
}

/// Opens the pipe in `directory`, made when missing. Opened for both directions, it never ends and waits for nobody.
pub(super) fn open(directory: &Path) -> std::io::Result<File> {
    let path = directory.join(FILE);
    match mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let file = File::options().read(true).write(true).open(path)?;
    if !file.metadata()?.file_type().is_fifo() {
        // A file would take all lines and keep them for ever.
        return Err(std::io::Error::other(format!("{FILE} is no pipe")));
    }
    if let Err(error) = rustix::pipe::fcntl_setpipe_size(&file, PIPE_BYTES) {
        tracing::debug!(%error, "the pipe for lines about requests stays small");
    }
    Ok(file)
}

impl Intake {
    /// Takes nothing in yet. Names are known for so long after they went out of use.
    pub(super) fn new(known: Duration) -> Self {
        let known_seconds = i64::try_from(known.as_secs()).unwrap_or(i64::MAX);
        Self { ways: Arc::new(Mutex::new(Ways::new(known_seconds))), task: Mutex::default() }
    }

    /// Takes in what comes to the pipe in `directory`, from now on.
    pub(super) fn follow(&self, directory: &Path) -> Result<(), Error> {
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return Ok(());
        }
        let failed = |error: std::io::Error| {
            Error::Transient(format!("cannot take in what HAProxy tells of requests: {error}"))
        };
        drop(open(directory).map_err(failed)?);
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let pipe = openat(CWD, directory.join(FILE), flags, Mode::empty());
        let pipe = File::from(pipe.map_err(|error| failed(error.into()))?);
        self.ways().begin(OffsetDateTime::now_utc().unix_timestamp());
        *task = Some(tokio::spawn(take(pipe, Arc::clone(&self.ways))));
        Ok(())
    }

    /// What backends and servers mean from now on.
    pub(super) fn name(&self, ways: Named) {
        self.ways().name(ways, OffsetDateTime::now_utc().unix_timestamp());
    }

    /// What gateways and routes got in the last whole seconds before `now`, and how many of these were counted.
    pub(super) fn counts(
        &self,
        now: OffsetDateTime,
        window: Duration,
    ) -> (BTreeMap<Passage, Count>, u64) {
        let window_seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
        let (now, mut ways) = (now.unix_timestamp(), self.ways());
        (ways.counts(now, window_seconds), ways.seconds(now, window_seconds))
    }

    /// How many lines told of no request that could be counted.
    pub(super) fn unread(&self) -> u64 {
        self.ways().unread
    }

    fn ways(&self) -> MutexGuard<'_, Ways> {
        lock(&self.ways)
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

/// Goes on until the task is aborted, or the pipe fails; the next `apply` begins again.
async fn take(pipe: File, ways: Arc<Mutex<Ways>>) {
    let mut lines = Lines::default();
    loop {
        match lines.take(&pipe, &ways) {
            Ok(0) => tokio::time::sleep(PAUSE_IDLE).await,
            Ok(_) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::warn!(%error, "nothing is taken in of what HAProxy tells of requests");
                lock(&ways).end();
                return;
            }
        }
    }
}

/// What was taken and not yet counted: at most the beginning of one line.
struct Lines {
    buffer: Vec<u8>,
    filled: usize,
    scratch: Vec<u8>,
}

impl Default for Lines {
    fn default() -> Self {
        Self { buffer: vec![0; TAKEN_BYTES], filled: 0, scratch: Vec::new() }
    }
}

impl Lines {
    /// Takes what is there, and says how many bytes that were.
    fn take(&mut self, mut pipe: &File, ways: &Mutex<Ways>) -> std::io::Result<usize> {
        let mut all = 0;
        for _ in 0..TAKES_MAX {
            let taken = match pipe.read(&mut self.buffer[self.filled..]) {
                Ok(taken) => taken,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            self.filled += taken;
            all += taken;
            self.count(&mut lock(ways), OffsetDateTime::now_utc().unix_timestamp());
        }
        Ok(all)
    }

    /// Counts the whole lines, and keeps the rest.
    fn count(&mut self, ways: &mut Ways, now: i64) {
        let filled = &self.buffer[..self.filled];
        let mut whole = 0;
        for end in memchr_iter(b'\n', filled) {
            let line = &filled[whole..end];
            // Other words than these, HAProxy says about itself.
            if line.starts_with(b"{") {
                ways.count(line, &mut self.scratch, now);
            }
            whole = end + 1;
        }
        self.buffer.copy_within(whole..self.filled, 0);
        self.filled -= whole;
        if self.filled == self.buffer.len() {
            // No line is that long.
            self.filled = 0;
        }
    }
}

fn lock(ways: &Mutex<Ways>) -> MutexGuard<'_, Ways> {
    // Whoever panicked left at most one line uncounted.
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}
