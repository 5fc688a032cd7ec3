//! Instances in memory, for tests and demonstrations (runtime, section 12.4).
//!
//! Nothing happens by itself: the simulation has no clock and no randomness of its own. Time is handed in with
//! [`SimulatedContainers::advance`]; a real server calls [`SimulatedContainers::follow_clock`] once.

use super::{Condition, ContainerDriver, InstanceSpec, ObservedInstance};
use crate::driver::{Changes, Error};
use async_trait::async_trait;
use indexmap::IndexMap;
use segue_domain::artifact::Metadata;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use time::{Duration, OffsetDateTime};

const SUPPORTED: [&str; 3] = ["container/docker", "docker", "process"];
const HOST: &str = "127.0.0.1";
const PORT_FIRST: u16 = 30000;

/// The simulation. Clones share everything, so that a test keeps a handle to what workers use.
#[derive(Clone, Debug)]
pub struct SimulatedContainers {
    world: Arc<Mutex<World>>,
    changes: Changes,
}

/// A call of the driver that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// [`ContainerDriver::ping`].
    Ping,
    /// [`ContainerDriver::deployments`] and [`ContainerDriver::observe`].
    Observe,
    /// [`ContainerDriver::start`].
    Start,
    /// [`ContainerDriver::stop`].
    Stop,
}

#[derive(Debug)]
struct World {
    now: OffsetDateTime,
    instances: BTreeMap<String, Instance>,
    /// Names of the instances of each deployment: one of thousands is observed without looking at the others.
    names: BTreeMap<String, BTreeSet<String>>,
    failures: BTreeMap<Operation, VecDeque<Error>>,
    started: i64,
    next_port: u16,
    stop_takes: Duration,
}

#[derive(Clone, Debug)]
struct Instance {
    observed: Arc<ObservedInstance>,
    spec: InstanceSpec,
    /// When the next thing happens to it, and what; `None` when nothing does.
    due: Option<(OffsetDateTime, Due)>,
    exit_after: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Due {
    Runs,
    Vanishes,
}

impl Default for SimulatedContainers {
    fn default() -> Self {
        Self::new()
    }
}

impl SimulatedContainers {
    /// An empty world in which it is 1970.
    pub fn new() -> Self {
        let world = World {
            now: OffsetDateTime::UNIX_EPOCH,
            instances: BTreeMap::new(),
            names: BTreeMap::new(),
            failures: BTreeMap::new(),
            started: 0,
            next_port: PORT_FIRST,
            stop_takes: Duration::ZERO,
        };
        Self { world: Arc::new(Mutex::new(world)), changes: Changes::default() }
    }

    /// Lets everything happen that is due until `now`, in order of time, then of name. Time never goes back.
    pub fn advance(&self, now: OffsetDateTime) {
        let mut changed = BTreeSet::new();
        let mut world = self.world();
        while let Some((at, name, due)) = world.next_due().filter(|(at, ..)| *at <= now) {
            world.now = world.now.max(at);
            changed.extend(world.deployment(&name));
            world.happen(&name, due);
        }
        world.now = world.now.max(now);
        drop(world);
        for deployment in changed {
            self.changes.notify_of(&deployment);
        }
    }

    /// When something happens next, if ever.
    pub fn next_due(&self) -> Option<OffsetDateTime> {
        self.world().next_due().map(|(at, ..)| at)
    }

    /// Keeps the simulation at the time of day, for a real server. Never returns; ends with the task it runs in.
    pub async fn follow_clock(&self) {
        let mut changes = self.changes.subscribe();
        loop {
            self.advance(OffsetDateTime::now_utc());
            changes.mark_unchanged();
            let pause = self
                .next_due()
                .map(|at| (at - OffsetDateTime::now_utc()).try_into().unwrap_or_default());
            match pause {
                Some(pause) => {
                    // Whichever comes first; nobody can drop the sender, which is part of `self`.
                    let _ = tokio::time::timeout(pause, changes.changed()).await;
                }
                None => {
                    let _ = changes.changed().await;
                }
            }
        }
    }

    /// Makes the next `times` calls of `operation` fail, after those that were to fail already.
    pub fn fail(&self, operation: Operation, times: usize, error: &Error) {
        self.world()
            .failures
            .entry(operation)
            .or_default()
            .extend(std::iter::repeat_n(error.clone(), times));
    }

    /// Lets an instance end by itself: it is observed as exited, with `words`. False when there is none.
    pub fn crash(&self, instance: &str, words: &str) -> bool {
        self.turn(instance, Condition::Exited(words.to_owned()))
    }

    /// Lets an instance be observed like this from now on. False when there is none.
    pub fn turn(&self, instance: &str, condition: Condition) -> bool {
        self.change(instance, |found| {
            Arc::make_mut(&mut found.observed).condition = condition;
            found.due = None;
        })
    }

    /// Lets an instance disappear without a trace. False when there is none.
    pub fn vanish(&self, instance: &str) -> bool {
        let found = self.world().remove(instance);
        if found {
            self.changes.notify();
        }
        found
    }

    /// Sets how long instances take to end from now on; at first they end at once.
    pub fn stop_takes(&self, duration: Duration) {
        self.world().stop_takes = duration;
    }

    /// Everything there is, by name.
    pub fn instances(&self) -> Vec<ObservedInstance> {
        let world = self.world();
        world.instances.values().map(|instance| (*instance.observed).clone()).collect()
    }

    /// What each instance was started with, by name.
    pub fn specs(&self) -> Vec<InstanceSpec> {
        self.world().instances.values().map(|instance| instance.spec.clone()).collect()
    }

    /// How many instances run.
    pub fn running(&self) -> usize {
        let world = self.world();
        world
            .instances
            .values()
            .filter(|instance| instance.observed.condition == Condition::Running)
            .count()
    }

    /// How many instances were ever started.
    pub fn started(&self) -> usize {
        usize::try_from(self.world().started).expect("counts up from zero")
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Instance)) -> bool {
        let found = self.world().instances.get_mut(name).map(change).is_some();
        if found {
            self.changes.notify();
        }
        found
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no holder of the lock panics")
    }
}

#[async_trait]
impl ContainerDriver for SimulatedContainers {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn supports(&self, kind: &str) -> bool {
        SUPPORTED.contains(&kind)
    }

    fn kinds(&self) -> &'static [&'static str] {
        &SUPPORTED
    }

    async fn ping(&self) -> Result<(), Error> {
        self.world().check(Operation::Ping)
    }

    async fn deployments(&self) -> Result<BTreeSet<String>, Error> {
        let mut world = self.world();
        world.check(Operation::Observe)?;
        Ok(world.names.keys().cloned().collect())
    }

    async fn observe(&self, deployment: &str) -> Result<Vec<Arc<ObservedInstance>>, Error> {
        let mut world = self.world();
        world.check(Operation::Observe)?;
        let names = world.names.get(deployment).into_iter().flatten();
        let instances = names.filter_map(|name| world.instances.get(name));
        Ok(instances.map(|instance| instance.observed.clone()).collect())
    }

    async fn start(&self, spec: &InstanceSpec) -> Result<(), Error> {
        let kind = &spec.deployable.kind;
        if !self.supports(kind) {
            let supported = SUPPORTED.map(|kind| format!("'{kind}'")).join(", ");
            return Err(Error::Permanent(format!(
                "Unsupported deployable type '{kind}', supported: {supported}"
            )));
        }
        if spec.deployable.definition.trim().is_empty() {
            return Err(Error::Permanent("the definition of the deployable is empty".to_owned()));
        }
        let dialect = Dialect::read(&spec.dialect)?;
        self.world().start(spec, &dialect)?;
        self.changes.notify_of(&spec.owner.deployment);
        Ok(())
    }

    async fn stop(&self, deployment: &str, instance: &str) -> Result<(), Error> {
        let mut world = self.world();
        world.check(Operation::Stop)?;
        let (now, takes) = (world.now, world.stop_takes);
        match world.instances.get_mut(instance) {
            Some(found) if found.observed.owner.deployment == deployment => {
                if found.observed.condition == Condition::Stopping {
                    return Ok(());
                }
                Arc::make_mut(&mut found.observed).condition = Condition::Stopping;
                found.due = Some((now + takes, Due::Vanishes));
                if takes <= Duration::ZERO {
                    world.remove(instance);
                }
            }
            _ => return Ok(()),
        }
        drop(world);
        self.changes.notify_of(deployment);
        Ok(())
    }

    /// What is simulated prints nothing.
    async fn output(
        &self,
        deployment: &str,
        instance: &str,
        _: usize,
    ) -> Result<Option<Vec<String>>, Error> {
        let mut world = self.world();
        world.check(Operation::Observe)?;
        let is_known = world.names.get(deployment).is_some_and(|names| names.contains(instance));
        Ok(is_known.then(Vec::new))
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

impl World {
    fn check(&mut self, operation: Operation) -> Result<(), Error> {
        self.failures.get_mut(&operation).and_then(VecDeque::pop_front).map_or(Ok(()), Err)
    }

    fn start(&mut self, spec: &InstanceSpec, dialect: &Dialect) -> Result<(), Error> {
        self.check(Operation::Start)?;
        if self.instances.contains_key(&spec.name) {
            return Ok(());
        }
        if let Some(words) = &dialect.error {
            return Err(Error::Permanent(words.clone()));
        }
        let mut ports = IndexMap::new();
        for name in spec.ports.keys() {
            ports.insert(name.clone(), self.free_port(&ports)?);
        }
        // Instances of the same moment still have an order.
        self.started += 1;
        let observed = Arc::new(ObservedInstance {
            name: spec.name.clone(),
            owner: spec.owner.clone(),
            fingerprint: spec.fingerprint.clone(),
            host: HOST.to_owned(),
            ports,
            created: self.now + Duration::nanoseconds(self.started),
            condition: Condition::Starting(format!(
                "appears after {} s",
                dialect.delay.as_seconds_f64()
            )),
        });
        let due = Some((self.now + dialect.delay, Due::Runs));
        let instance =
            Instance { observed, spec: spec.clone(), due, exit_after: dialect.exit_after };
        let names = self.names.entry(spec.owner.deployment.clone()).or_default();
        names.insert(spec.name.clone());
        self.instances.insert(spec.name.clone(), instance);
        if dialect.delay <= Duration::ZERO {
            self.happen(&spec.name, Due::Runs);
        }
        Ok(())
    }

    /// Whether there was such an instance.
    fn remove(&mut self, name: &str) -> bool {
        let Some(Instance { observed, .. }) = self.instances.remove(name) else { return false };
        let deployment = &observed.owner.deployment;
        if let Some(names) = self.names.get_mut(deployment) {
            names.remove(name);
            if names.is_empty() {
                self.names.remove(deployment);
            }
        }
        true
    }

    /// Whose instance that is.
    fn deployment(&self, instance: &str) -> Option<String> {
        self.instances.get(instance).map(|found| found.observed.owner.deployment.clone())
    }

    fn next_due(&self) -> Option<(OffsetDateTime, String, Due)> {
        let due = self.instances.iter().filter_map(|(name, instance)| Some((instance.due?, name)));
        due.min_by_key(|((at, _), name)| (*at, *name))
            .map(|((at, due), name)| (at, name.clone(), due))
    }

    fn happen(&mut self, name: &str, due: Due) {
        match (due, self.instances.get_mut(name)) {
            (_, None) => {}
            (Due::Vanishes, Some(_)) => {
                self.remove(name);
            }
            (Due::Runs, Some(instance)) => {
                Arc::make_mut(&mut instance.observed).condition = Condition::Running;
                instance.due = instance.exit_after.map(|after| (self.now + after, Due::Vanishes));
            }
        }
    }

    fn free_port(&mut self, chosen: &IndexMap<String, u16>) -> Result<u16, Error> {
        let used: BTreeSet<u16> = self
            .instances
            .values()
            .flat_map(|found| found.observed.ports.values().copied())
            .collect();
        for _ in PORT_FIRST..=u16::MAX {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(PORT_FIRST);
            if !used.contains(&port) && !chosen.values().any(|other| *other == port) {
                return Ok(port);
            }
        }
        Err(Error::Transient("all simulated ports are in use".to_owned()))
    }
}

/// What the dialect `simulated` asks for.
struct Dialect {
    delay: Duration,
    error: Option<String>,
    exit_after: Option<Duration>,
}

impl Dialect {
    fn read(dialect: &Metadata) -> Result<Self, Error> {
        let seconds = |key: &str| match dialect.get(key) {
            None | Some(serde_json::Value::Null) => Ok(None),
            Some(value) => {
                // Values that went through interpolation are text.
                let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
                number
                    .filter(|number| (0.0..1e9).contains(number))
                    .map(Duration::seconds_f64)
                    .map(Some)
                    .ok_or_else(|| {
                        Error::Permanent(format!(
                            "`{key}` of the dialect `simulated` is no number of seconds: {value}"
                        ))
                    })
            }
        };
        let error = dialect.get("error").filter(|error| !error.is_null());
        Ok(Self {
            delay: seconds("delay")?.unwrap_or_default(),
            error: error
                .map(|error| error.as_str().map_or_else(|| error.to_string(), str::to_owned)),
            exit_after: seconds("exit_after")?,
        })
    }
}

#[cfg(test)]
mod tests;
