//! Instances as plain processes of this host (runtime, section 12.2).
//!
//! Processes outlive Segue: a record per instance in the driver's directory says what was started, under which
//! process id and when, and a new driver on the same directory adopts what still runs. One supervisor per instance
//! watches it, starts it again when it dies, and ends it when asked. This module knows neither deployments nor
//! gateways; cpu, memory and arguments are recorded but not applied.

mod child;
mod log;
mod marks;
mod ports;
mod record;
mod supervisor;

use super::{Condition, ContainerDriver, InstanceSpec, ObservedInstance, output, words};
use crate::driver::{Changes, Error};
use async_trait::async_trait;
use child::{Command, Process};
use indexmap::IndexMap;
use record::{Directory, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use supervisor::Supervisor;
use time::OffsetDateTime;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};

/// Where every process is reached.
const HOST: &str = "127.0.0.1";

const SUPPORTED: [&str; 1] = ["process"];

/// Where and how processes run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where records and log files are kept; one driver at a time.
    pub directory: PathBuf,
    /// How long a process may take to end before it is killed.
    pub stop_timeout: Duration,
    /// How much output is kept.
    pub log_limits: LogLimits,
    /// When a process that died is started again.
    pub restart: Restart,
}

/// How much output is kept per instance.
#[derive(Clone, Copy, Debug)]
pub struct LogLimits {
    /// Size in bytes at which the log file is put aside; looked at once a second.
    pub bytes: u64,
    /// How many files put aside are kept besides the current one.
    pub files: u32,
}

/// When a process that died is started again. The pause doubles from the first to the longest.
#[derive(Clone, Copy, Debug)]
pub struct Restart {
    /// The pause after the first death.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_longest: Duration,
    /// A process that lived this long starts over with the first pause.
    pub well_after: Duration,
}

impl Settings {
    /// The documented defaults, with everything kept in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            stop_timeout: Duration::from_secs(10),
            log_limits: LogLimits { bytes: 10 * 1024 * 1024, files: 2 },
            restart: Restart {
                pause_first: Duration::from_secs(1),
                pause_longest: Duration::from_secs(30),
                well_after: Duration::from_mins(1),
            },
        }
    }
}

/// Runs instances as processes of this host.
pub struct ProcessDriver {
    shared: Arc<Shared>,
    /// The supervisors; they end with the driver, the processes do not.
    supervisors: Mutex<JoinSet<()>>,
    /// Keeps a second driver out of the directory.
    _lock: std::fs::File,
}

/// What the driver and its supervisors have in common.
struct Shared {
    settings: Settings,
    directory: Directory,
    instances: Mutex<BTreeMap<String, Entry>>,
    changes: Changes,
}

/// An instance as `observe` shows it.
struct Entry {
    observed: Arc<ObservedInstance>,
    /// Becomes true when the instance is to end.
    stop: watch::Sender<bool>,
}

impl ProcessDriver {
    /// A driver that adopts every process recorded in its directory and still running. Has to be called inside a
    /// Tokio runtime. Fails when the directory cannot be used, or another driver uses it.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let directory = Directory::open(&settings.directory).map_err(Error::Transient)?;
        let lock = directory.lock().map_err(Error::Transient)?;
        let records = directory.load().map_err(Error::Permanent)?;
        let shared = Arc::new(Shared {
            settings,
            directory,
            instances: Mutex::default(),
            changes: Changes::default(),
        });
        let driver = Self { shared, supervisors: Mutex::default(), _lock: lock };
        for record in records {
            driver.adopt(record);
        }
        Ok(driver)
    }

    /// Puts a recorded instance under supervision again. What runs and answers, or is too busy to, counts as running from
    /// the start, so that a restart of Segue takes no target away.
    fn adopt(&self, record: Record) {
        let process = record.process.and_then(|identity| Process::adopt(identity).ok().flatten());
        let ready = process.is_some() && ports::all_taken(record.ports.values().copied());
        let condition = match (record.stopping, ready) {
            (true, _) => Condition::Stopping,
            (false, true) => Condition::Running,
            (false, false) => Condition::Starting("is being looked for".to_owned()),
        };
        let receiver = self.shared.enter(&record, condition);
        let supervisor = Supervisor::new(Arc::clone(&self.shared), record, receiver);
        self.supervise(supervisor.adopt(process, ready));
    }

    fn supervise(&self, supervisor: impl Future<Output = ()> + Send + 'static) {
        let mut supervisors = self.supervisors.lock().expect("no holder of the lock panics");
        while supervisors.try_join_next().is_some() {}
        supervisors.spawn(supervisor);
    }
}

#[async_trait]
impl ContainerDriver for ProcessDriver {
    fn name(&self) -> &'static str {
        "process"
    }

    fn supports(&self, kind: &str) -> bool {
        SUPPORTED.contains(&kind)
    }

    fn kinds(&self) -> &'static [&'static str] {
        &SUPPORTED
    }

    async fn ping(&self) -> Result<(), Error> {
        let directory = &self.shared.settings.directory;
        tokio::fs::metadata(directory).await.map(drop).map_err(|error| {
            Error::Transient(format!(
                "the directory of processes {} cannot be read: {error}",
                directory.display()
            ))
        })
    }

    async fn deployments(&self) -> Result<BTreeSet<String>, Error> {
        Ok(self
            .shared
            .instances()
            .values()
            .map(|entry| entry.observed.owner.deployment.clone())
            .collect())
    }

    async fn observe(&self, deployment: &str) -> Result<Vec<Arc<ObservedInstance>>, Error> {
        let instances = self.shared.instances();
        let of_deployment =
            instances.values().filter(|entry| entry.observed.owner.deployment == deployment);
        Ok(of_deployment.map(|entry| entry.observed.clone()).collect())
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<(), Error> {
        if !self.supports(&spec.deployable.kind) {
            let kind = &spec.deployable.kind;
            return Err(Error::Permanent(format!(
                "Unsupported deployable type '{kind}', supported: 'process'"
            )));
        }
        let command = Command::new(words::split(&spec.deployable.definition)?, &spec.environment)?;
        let (supervisor, reply) = {
            let mut instances = self.shared.instances();
            if instances.contains_key(&spec.name) {
                return Ok(());
            }
            let taken = instances
                .values()
                .flat_map(|entry| entry.observed.ports.values().copied())
                .collect();
            let ports = ports::choose(&spec.ports, &taken).map_err(Error::Transient)?;
            let record = Record::new(spec.clone(), ports, OffsetDateTime::now_utc());
            let condition = Condition::Starting("is being started".to_owned());
            let receiver = Shared::insert(&mut instances, &record, condition);
            (Supervisor::new(Arc::clone(&self.shared), record, receiver), oneshot::channel())
        };
        self.supervise(supervisor.start(command, reply.0));
        reply
            .1
            .await
            .unwrap_or_else(|_| Err(Error::Transient("the driver is being shut down".to_owned())))
    }

    async fn stop(&self, deployment: &str, instance: &str) -> Result<(), Error> {
        let mut instances = self.shared.instances();
        let entry = instances
            .get_mut(instance)
            .filter(|entry| entry.observed.owner.deployment == deployment);
        if let Some(entry) = entry {
            Arc::make_mut(&mut entry.observed).condition = Condition::Stopping;
            if !entry.stop.send_replace(true) {
                self.shared.changes.notify_of(deployment);
            }
        }
        Ok(())
    }

    async fn output(
        &self,
        deployment: &str,
        instance: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, Error> {
        let is_known = self
            .shared
            .instances()
            .get(instance)
            .is_some_and(|entry| entry.observed.owner.deployment == deployment);
        if !is_known {
            return Ok(None);
        }
        let path = self.shared.directory.log(instance);
        let words = |error: &dyn std::fmt::Display| {
            Error::Transient(format!("what the process printed cannot be read: {error}"))
        };
        let read = spawn_blocking(move || log::end(&path, output::OUTPUT_BYTES_MAX)).await;
        let output = read.map_err(|error| words(&error))?.map_err(|error| words(&error))?;
        Ok(Some(output::last_of(&output, lines)))
    }

    fn changes(&self) -> &Changes {
        &self.shared.changes
    }
}

impl Shared {
    fn instances(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.instances.lock().expect("no holder of the lock panics")
    }

    fn enter(&self, record: &Record, condition: Condition) -> watch::Receiver<bool> {
        Self::insert(&mut self.instances(), record, condition)
    }

    fn insert(
        instances: &mut BTreeMap<String, Entry>,
        record: &Record,
        condition: Condition,
    ) -> watch::Receiver<bool> {
        let (stop, receiver) = watch::channel(record.stopping);
        let observed = Arc::new(ObservedInstance {
            name: record.spec.name.clone(),
            owner: record.spec.owner.clone(),
            fingerprint: record.spec.fingerprint.clone(),
            host: HOST.to_owned(),
            ports: record.ports.clone(),
            created: record.created,
            condition,
        });
        instances.insert(record.spec.name.clone(), Entry { observed, stop });
        receiver
    }

    /// Shows how an instance is now, unless it is being stopped: then it stays so until it is gone.
    fn show(&self, record: &Record, condition: Condition) {
        if let Some(entry) = self.instances().get_mut(&record.spec.name) {
            let observed = Arc::make_mut(&mut entry.observed);
            observed.ports.clone_from(&record.ports);
            if *entry.stop.borrow() || observed.condition == condition {
                return;
            }
            observed.condition = condition;
        }
        self.changes.notify_of(&record.spec.owner.deployment);
    }

    /// Other ports for an instance whose own were taken while it did not run.
    fn other_ports(&self, record: &Record) -> Result<IndexMap<String, u16>, Error> {
        let mut instances = self.instances();
        let taken =
            instances.values().flat_map(|entry| entry.observed.ports.values().copied()).collect();
        let ports = ports::choose(&record.spec.ports, &taken).map_err(Error::Transient)?;
        if let Some(entry) = instances.get_mut(&record.spec.name) {
            Arc::make_mut(&mut entry.observed).ports.clone_from(&ports);
        }
        Ok(ports)
    }

    fn forget(&self, record: &Record) {
        self.instances().remove(&record.spec.name);
        self.changes.notify_of(&record.spec.owner.deployment);
    }
}

#[cfg(test)]
mod tests;
