//! Takes in what HAProxy tells of every request: one line on its standard output, which is a pipe with a name.
//!
//! A pipe holds a megabyte, thousands of lines, so that they can be taken many at a time; a socket for datagrams holds ten
//! of them where nobody changed the system's limit. When it is full HAProxy drops lines and counts them; it never waits.
//! It goes on telling while the service is away, and the workers of a former configuration tell there, too.

use super::ways::{Named, Ways};
use crate::driver::Error;
use crate::gateways::{Count, Passage};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

/// The pipe, in HAProxy's directory.
const FILE: &str = "requests.pipe";
/// As much as the system gives without privileges.
const PIPE_BYTES: usize = 1024 * 1024;
/// How much is taken at once.
const TAKEN_BYTES: usize = 256 * 1024;
/// How long lines gather before they are taken. At 20,000 requests a second that is a tenth of the pipe.
const PAUSE: Duration = Duration::from_millis(20);

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
        let mut options = pipe::OpenOptions::new();
        let pipe = options.read_write(true).open_receiver(directory.join(FILE)).map_err(failed)?;
        *task = Some(tokio::spawn(take(pipe, Arc::clone(&self.ways))));
        Ok(())
    }

    /// What backends and servers mean from now on.
    pub(super) fn name(&self, ways: Named) {
        self.ways().name(ways, OffsetDateTime::now_utc().unix_timestamp());
    }

    /// What gateways and routes got in the last whole seconds before `now`.
    pub(super) fn counts(&self, now: OffsetDateTime, window: Duration) -> BTreeMap<Passage, Count> {
        let seconds = i64::try_from(window.as_secs()).unwrap_or(i64::MAX);
        self.ways().counts(now.unix_timestamp(), seconds)
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
async fn take(pipe: pipe::Receiver, ways: Arc<Mutex<Ways>>) {
    let mut lines = Lines::default();
    loop {
        let taken = match pipe.readable().await {
            Ok(()) => lines.take(&pipe, &ways),
            Err(error) => Err(error),
        };
        match taken {
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                tracing::warn!(%error, "nothing is taken in of what HAProxy tells of requests");
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
    /// Takes what is there.
    fn take(&mut self, pipe: &pipe::Receiver, ways: &Mutex<Ways>) -> std::io::Result<()> {
        let taken = pipe.try_read(&mut self.buffer[self.filled..])?;
        self.filled += taken;
        self.count(&mut lock(ways), OffsetDateTime::now_utc().unix_timestamp());
        Ok(())
    }

    /// Counts the whole lines, and keeps the rest.
    fn count(&mut self, ways: &mut Ways, now: i64) {
        let filled = &self.buffer[..self.filled];
        let whole = filled.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // Other words than these, HAProxy says about itself.
        let lines =
            filled[..whole].split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
        lines.for_each(|line| ways.count(line, &mut self.scratch, now));
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
