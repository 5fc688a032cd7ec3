//! HAProxy as a process: checked, started, found again, watched, reloaded and ended.
//!
//! It runs in master-worker mode, in a process group of its own, so that it outlives the service. Its identity is in a
//! file. Where the disk did not take that file, or the service was killed before it wrote it, HAProxy is found by its
//! mark: a variable in its environment, and in that of its workers, that names its directory.

use super::program::Program;
use crate::driver::{Changes, Error};
use crate::processes::{self, HAPROXY_MARK, Identity, Marked};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

const RECORD_FILE: &str = "process.json";
const LOG_FILE: &str = "haproxy.log";
/// How much of what HAProxy says against a file is read, in characters.
const WORDS_MAX: usize = 65_536;
/// How long HAProxy may take to check a file; names in conditions are looked up while it reads them.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How large what HAProxy says may get: it tells of every server that comes and goes.
const LOG_BYTES_MAX: u64 = 1 << 20;
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of what HAProxy said goes into an error.
const WORDS_BYTES_MAX: u64 = 4096;

/// The file that HAProxy reads, relative to its directory.
pub(super) const CONFIGURATION_FILE: &str = "haproxy.cfg";

/// The door to the process; whether there is one is looked up, never remembered.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) program: Program,
    pub(super) directory: PathBuf,
    /// How long HAProxy may take to check a file.
    check_timeout: Mutex<Duration>,
}

/// Why a file is not in use.
#[derive(Debug)]
pub(super) enum Failure {
    /// HAProxy refuses it, or comes to no end with it.
    Refused(Error),
    /// Anything else.
    Other(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Other(error)
    }
}

impl Failure {
    pub(super) fn error(self) -> Error {
        match self {
            Failure::Refused(error) | Failure::Other(error) => error,
        }
    }
}

impl Process {
    /// The door to the HAProxy whose files are in `directory`.
    pub(super) fn new(program: Program, directory: PathBuf) -> Self {
        Self { program, directory, check_timeout: Mutex::new(CHECK_TIMEOUT) }
    }

    /// How long HAProxy may take to check a file.
    pub(super) fn check_timeout(&self) -> Duration {
        *self.check_timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn limit_checks(&self, limit: Duration) {
        *self.check_timeout.lock().unwrap() = limit;
    }

    /// The master that runs, if one does.
    pub(super) fn running(&self) -> Option<Identity> {
        self.recorded().filter(Identity::is_alive).or_else(|| {
            // A master bears no mark while it runs its program anew, but its workers do, and they are of its group.
            let mut groups = self.marked().into_iter().map(|marked| marked.group);
            groups.find_map(|group| Identity::of(group).filter(Identity::is_alive))
        })
    }

    /// Our HAProxy's processes.
    pub(super) fn marked(&self) -> Vec<Marked> {
        processes::marked(&[self.mark()])
    }

    fn mark(&self) -> String {
        format!("{HAPROXY_MARK}={}", self.directory.display())
    }

    /// Lets HAProxy check the file `name`; a refusal carries its words.
    pub(super) async fn check(&self, name: &str) -> Result<(), Failure> {
        match self.refusal(name).await? {
            None => Ok(()),
            Some(words) => Err(Failure::Refused(Error::Transient(format!(
                "HAProxy refuses the configuration, the last good one stays: {}",
                words.chars().take(4096).collect::<String>()
            )))),
        }
    }

    /// What HAProxy says against the file `name`, or that it comes to no end with it; `None` when it accepts it.
    pub(super) async fn refusal(&self, name: &str) -> Result<Option<String>, Error> {
        self.refusal_within(name, self.check_timeout()).await
    }

    /// The same when it may take as long as `limit`.
    pub(super) async fn refusal_within(
        &self,
        name: &str,
        limit: Duration,
    ) -> Result<Option<String>, Error> {
        let mut command = tokio::process::Command::new(self.program.usable().await?);
        command
            .args(["-c", "-f", name])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .env_clear();
        let Ok(output) = tokio::time::timeout(limit, command.output()).await else {
            return Ok(Some(format!("haproxy -c did not come to an end within {limit:?}")));
        };
        let output = output.map_err(|error| self.failed("run", &error))?;
        if output.status.success() {
            return Ok(None);
        }
        let words = String::from_utf8_lossy(&output.stderr);
        // What it only remarks on is no reason.
        let remarks = |line: &&str| line.starts_with("[WARNING]") || line.starts_with("[NOTICE]");
        let reasons: Vec<&str> = words.trim().lines().filter(|line| !remarks(line)).collect();
        let reasons = if reasons.is_empty() { words.trim().to_owned() } else { reasons.join("\n") };
        Ok(Some(reasons.chars().take(WORDS_MAX).collect()))
    }

    /// Starts a master. It is up when it answers on its sockets.
    pub(super) async fn start(&self) -> Result<Identity, Error> {
        self.forget_predecessor().await?;
        if self.running().is_some() {
            return Err(Error::Transient("an HAProxy that was not seen before runs".to_owned()));
        }
        let program = self.program.usable().await?;
        let log = OpenOptions::new().create(true).append(true).open(self.directory.join(LOG_FILE));
        let log = log.map_err(|error| self.failed("open the log of", &error))?;
        log.set_len(0).map_err(|error| self.failed("empty the log of", &error))?;
        let told = super::intake::open(&self.directory).map_or_else(
            |error| {
                tracing::warn!(%error, "HAProxy starts without a pipe: requests are not counted");
                Stdio::null()
            },
            Stdio::from,
        );
        let child = Command::new(program)
            .args(["-W", "-S", "unix@master.sock,mode,600", "-f", CONFIGURATION_FILE])
            .current_dir(&self.directory)
            .env_clear()
            // Times in the lines about requests.
            .env("TZ", "UTC0")
            .env(HAPROXY_MARK, &self.directory)
            .stdin(Stdio::null())
            .stdout(told)
            .stderr(log)
            .process_group(0)
            .spawn()
            .map_err(|error| self.failed("start", &error))?;
        let identity = Identity::of(Pid::from_child(&child).as_raw_nonzero().get())
            .filter(Identity::is_alive)
            .ok_or_else(|| Error::Transient(format!("HAProxy ended at once: {}", self.words())))?;
        let record = serde_json::to_vec(&identity).expect("numbers are JSON");
        if let Err(error) = replace(&self.directory.join(RECORD_FILE), &record) {
            tracing::warn!(%error, "HAProxy cannot be recorded: it is found by its mark");
        }
        Ok(identity)
    }

    /// Calls `changes` once when `identity` ends.
    pub(super) fn watch(identity: Identity, changes: Changes) -> Result<JoinHandle<()>, Error> {
        let pidfd = open(identity)
            .map_err(|error| Error::Transient(format!("cannot watch HAProxy: {error}")))?;
        Ok(tokio::spawn(async move {
            ended(&pidfd).await;
            changes.notify();
        }))
    }

    /// Asks the master to load the file again; old workers finish what they carry.
    pub(super) async fn reload(&self, identity: Identity) -> Result<(), Error> {
        // The master runs the program anew.
        self.program.usable().await?;
        let log = OpenOptions::new().write(true).open(self.directory.join(LOG_FILE));
        log.and_then(|log| log.set_len(0))
            .map_err(|error| self.failed("empty the log of", &error))?;
        let fail = |error: std::io::Error| self.failed("reload", &error);
        let pidfd = open(identity).map_err(fail)?;
        rustix::process::pidfd_send_signal(pidfd.get_ref(), Signal::USR2)
            .map_err(|error| fail(error.into()))
    }

    /// Ends HAProxy with all of its workers.
    pub(super) async fn stop(&self) -> Result<(), Error> {
        let Some(identity) = self.running() else { return Ok(()) };
        let fail = |error: std::io::Error| self.failed("stop", &error);
        let pidfd = open(identity).map_err(fail)?;
        rustix::process::pidfd_send_signal(pidfd.get_ref(), Signal::TERM)
            .map_err(|error| fail(error.into()))?;
        if tokio::time::timeout(STOP_TIMEOUT, ended(&pidfd)).await.is_err() {
            // The group's leader still exists, so the number belongs to no one else.
            processes::signal_group(identity.pid, Signal::KILL);
            ended(&pidfd).await;
        }
        self.forget_predecessor().await?;
        match std::fs::remove_file(self.directory.join(RECORD_FILE)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(fail(error)),
            _ => Ok(()),
        }
    }

    /// The end of what HAProxy said since it was last started or reloaded.
    pub(super) fn words(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = File::open(self.directory.join(LOG_FILE))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(WORDS_BYTES_MAX)))?;
            let mut bytes = Vec::new();
            file.take(WORDS_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
        };
        read().unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
    }

    /// Empties what HAProxy said when it is much.
    pub(super) fn trim_words(&self) {
        let trim = || -> std::io::Result<()> {
            let log = OpenOptions::new().write(true).open(self.directory.join(LOG_FILE))?;
            // HAProxy appends: what it says next stands at the beginning.
            if log.metadata()?.len() > LOG_BYTES_MAX { log.set_len(0) } else { Ok(()) }
        };
        if let Err(error) = trim() {
            tracing::debug!(%error, "what HAProxy said stays");
        }
    }

    /// Workers of a master that died hold its ports until they noticed.
    pub(super) async fn forget_predecessor(&self) -> Result<(), Error> {
        if let Some(identity) = self.recorded() {
            reap(identity.pid);
        }
        let deadline = tokio::time::Instant::now() + STOP_TIMEOUT;
        while self.running().is_none() && !self.marked().is_empty() {
            if tokio::time::Instant::now() > deadline {
                return Err(Error::Transient(
                    "workers of an HAProxy that ended are still there".to_owned(),
                ));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn recorded(&self) -> Option<Identity> {
        serde_json::from_slice(&std::fs::read(self.directory.join(RECORD_FILE)).ok()?).ok()
    }

    fn failed(&self, what: &str, error: &std::io::Error) -> Error {
        Error::Transient(format!("cannot {what} HAProxy in {}: {error}", self.directory.display()))
    }
}

/// Replaces the file at `path` in one step: there is always the old or the new one, whole.
pub(super) fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let new = path.with_added_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    if let Some(parent) = path.parent() {
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

fn open(identity: Identity) -> std::io::Result<AsyncFd<OwnedFd>> {
    let gone = || std::io::Error::from(rustix::io::Errno::SRCH);
    let pid = Pid::from_raw(identity.pid).ok_or_else(gone)?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    // Between looking and opening the number could have passed on. A process that ended meanwhile is fine.
    if Identity::of(identity.pid).is_some_and(|now| now != identity) {
        return Err(gone());
    }
    #[expect(
        deprecated,
        reason = "the successor is unsafe; an owned descriptor stays open until it is dropped"
    )]
    AsyncFd::with_interest(pidfd, tokio::io::Interest::READABLE)
}

async fn ended(pidfd: &AsyncFd<OwnedFd>) {
    // An error means that the descriptor is of no use, and then nobody would tell of the end.
    drop(pidfd.readable().await);
    rustix::process::waitid(
        WaitId::PidFd(pidfd.get_ref().as_fd()),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    )
    .ok();
}

/// Clears away a child that ended; nothing happens when it is no child of this process.
fn reap(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG)
            .ok();
    }
}
