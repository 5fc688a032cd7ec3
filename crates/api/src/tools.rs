//! What can be done with a data directory while no service runs on it.

use crate::admin;
use crate::config::Settings;
use crate::drivers::{self, DriverError};
use segue_domain::event::Position;
use segue_domain::log::{BackupError, Log, Migrated, OpenError, ReadError, Verified};
use segue_domain::state::State;
use segue_domain::store::{self, replay};
use segue_workers::containers::ContainerDriver;
use segue_workers::driver;
use segue_workers::gateways::haproxy::HaproxyDriver;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The chunks of the second fold: primes, so that they meet record boundaries in ever other places.
const CHUNKS: [usize; 8] = [1, 7, 2, 101, 13, 997, 3, 31];
/// How long processes may take to go beyond the time that they are given to end.
const GONE_MARGIN: Duration = Duration::from_secs(10);

/// Why a tool does not do what it is for.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// There is no log.
    #[error("there is no log in {0}: check --data")]
    NoLog(PathBuf),
    /// The log does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log does not read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Two folds of the same log differ.
    #[error(
        "the folds differ: in one go {position} {whole}, {manner} {other_position} {other}; this is a defect of Segue, report it with the log"
    )]
    Differs {
        /// The position of the first fold.
        position: Position,
        /// Its hash.
        whole: String,
        /// How the second fold was made.
        manner: &'static str,
        /// Its position.
        other_position: Position,
        /// Its hash.
        other: String,
    },
    /// There is no backup, or it was not restored.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The service that runs refuses.
    #[error("the service that runs on this directory refuses: {0}")]
    Refused(String),
    /// The service that runs does not answer.
    #[error("the service that runs on this directory does not answer: {0}")]
    Service(std::io::Error),
    /// A driver cannot be opened.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A driver cannot do it.
    #[error("driver '{name}' failed: {error}")]
    Failed {
        /// Which.
        name: &'static str,
        /// Its words.
        error: driver::Error,
    },
    /// Processes that do not end.
    #[error("still running after {seconds} s: {instances}; end them yourself")]
    StillRunning {
        /// How long they had.
        seconds: u64,
        /// Their names.
        instances: String,
    },
}

/// Folds the log and gives `<position> <hash>`. With `verify`, every byte of the log is checked as well, and folded three
/// times: in one go, in chunks of changing size, and from the newest snapshot, which is a state that a service had.
pub fn fold(settings: &Settings, verify: bool) -> Result<String, ToolError> {
    let log = open(&settings.log_directory())?;
    let verified = if verify { Some(log.verify()?) } else { None };
    let state = replay(&log)?;
    let (position, whole) = (state.position(), state.hash());
    let answer = format!("{position} {whole}");
    let Some(Verified { records, dropped, hash, .. }) = verified else { return Ok(answer) };
    let same = |manner: &'static str, other: &State| {
        if other.hash() == whole && other.position() == position {
            return Ok(());
        }
        let (whole, other_position, other) = (whole.clone(), other.position(), other.hash());
        Err(ToolError::Differs { position, whole, manner, other_position, other })
    };
    same("in chunks", &fold_in_chunks(&log)?)?;
    let snapshot = match store::snapshot(&log) {
        Some(mut state) => {
            let at = state.position();
            store::fold(&log, &mut state)?;
            same("from the snapshot", &state)?;
            format!("the snapshot at {at} and what follows make the same state")
        }
        None => "there is no snapshot".to_owned(),
    };
    let notices: String =
        log.take_notices().iter().fold(String::new(), |lines, notice| lines + "\n" + notice);
    Ok(format!(
        "{answer}\n{records} records are sound, {dropped} were dropped, {snapshot}; hash of the log {hash}{notices}"
    ))
}

/// Copies the log to `to`: by the service that runs on it, or, when none does, directly.
pub async fn backup(settings: &Settings, to: &Path) -> Result<String, ToolError> {
    let to = std::path::absolute(to).map_err(ToolError::Service)?;
    let asked = admin::ask(&settings.data, &admin::Request::Backup(to.clone())).await;
    let (position, hash, bytes) = match asked.map_err(ToolError::Service)? {
        Some(admin::Answer::BackedUp { position, hash, bytes }) => (position, hash, bytes),
        Some(admin::Answer::Refused(reason)) => return Err(ToolError::Refused(reason)),
        None => {
            let copy = open(&settings.log_directory())?.backup(&to)?;
            (copy.last.0, copy.hash.to_string(), copy.bytes)
        }
    };
    Ok(format!(
        "{} holds the log up to position {position} in {bytes} bytes, hash of the log {hash}",
        to.display()
    ))
}

/// Makes the log of a data directory that has none of a backup.
pub fn restore(settings: &Settings, from: &Path) -> Result<String, ToolError> {
    let directory = settings.log_directory();
    let restored = segue_domain::log::restore(from, &directory)?;
    let (last, hash) = (restored.last, restored.hash);
    let directory = directory.display();
    Ok(format!("{directory} holds the log up to position {last}, hash of the log {hash}"))
}

/// Brings the log to this release's format, and says what was done.
pub fn migrate(settings: &Settings) -> Result<String, ToolError> {
    let directory = existing(&settings.log_directory())?;
    let Migrated { from, to, last } = segue_domain::log::migrate(&directory)?;
    let directory = directory.display();
    Ok(if from == to {
        format!("{directory} has format {to}, the newest, up to position {last}: nothing to do")
    } else {
        format!("{directory} was brought from format {from} to format {to}, up to position {last}")
    })
}

/// Ends what a service left running on purpose: its HAProxy and its process instances. Says what was ended.
pub async fn down(settings: &Settings) -> Result<String, ToolError> {
    // Held until everything is down, so that no service starts meanwhile.
    let _log = open(&settings.log_directory())?;
    let stopped = stop_haproxy(settings).await?;
    let instances =
        if settings.process_directory().is_dir() { stop_processes(settings).await? } else { 0 };
    let haproxy = if stopped { "HAProxy ended" } else { "HAProxy was never started here" };
    Ok(format!("{haproxy}, {instances} process instances ended"))
}

fn open(directory: &Path) -> Result<Log, ToolError> {
    Ok(Log::open(&existing(directory)?)?)
}

/// Makes sure that no new log is made where there should be one.
fn existing(directory: &Path) -> Result<PathBuf, ToolError> {
    if directory.is_dir() {
        Ok(directory.to_owned())
    } else {
        Err(ToolError::NoLog(directory.to_owned()))
    }
}

fn fold_in_chunks(log: &Log) -> Result<State, ReadError> {
    let mut state = State::default();
    for limit in CHUNKS.into_iter().cycle() {
        let records = log.read(state.position(), limit)?;
        if records.is_empty() {
            break;
        }
        for record in records {
            state.apply(&record);
        }
    }
    Ok(state)
}

async fn stop_haproxy(settings: &Settings) -> Result<bool, ToolError> {
    if !settings.haproxy_directory().is_dir() {
        return Ok(false);
    }
    let failed = |error| ToolError::Failed { name: "haproxy", error };
    let driver = HaproxyDriver::new(drivers::haproxy_settings(settings)).map_err(failed)?;
    driver.shutdown().await.map_err(failed)?;
    Ok(true)
}

async fn stop_processes(settings: &Settings) -> Result<usize, ToolError> {
    let failed = |error| ToolError::Failed { name: "process", error };
    let driver = drivers::process(settings)?;
    let mut changes = driver.changes().subscribe();
    let running = instances(&driver).await.map_err(failed)?;
    for (deployment, instance) in &running {
        driver.stop(deployment, instance).await.map_err(failed)?;
    }
    let limit = settings.container_driver.process.stop_timeout.0 + GONE_MARGIN;
    let gone = async {
        while !instances(&driver).await?.is_empty() {
            // The sender lives in the driver, so this ends only with a change.
            let _ = changes.changed().await;
        }
        Ok(())
    };
    if let Ok(gone) = tokio::time::timeout(limit, gone).await {
        return gone.map(|()| running.len()).map_err(failed);
    }
    let left = instances(&driver).await.map_err(failed)?;
    let names: Vec<String> = left.into_iter().map(|(_, instance)| instance).collect();
    Err(ToolError::StillRunning { seconds: limit.as_secs(), instances: names.join(", ") })
}

/// All instances with their deployments.
async fn instances(driver: &dyn ContainerDriver) -> Result<Vec<(String, String)>, driver::Error> {
    let mut found = Vec::new();
    for deployment in driver.deployments().await? {
        let observed = driver.observe(&deployment).await?;
        found.extend(
            observed.into_iter().map(|instance| (deployment.clone(), instance.name.clone())),
        );
    }
    Ok(found)
}
