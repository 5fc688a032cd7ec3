//! Instances as containers of a Docker daemon (runtime, section 12.3).
//!
//! Everything that must survive is kept in the labels of the containers, so that any number of restarts of Segue
//! finds them again. Containers without the labels of this installation are never touched. This module knows neither
//! deployments nor gateways; it decides nothing.
//!
//! Who starts a container again that ended is the daemon, by the restart policy `unless-stopped`: one party alone, so
//! that nobody races it. A daemon takes up again what it ran before it answers the first call, so that after its restart
//! Segue sees the same containers, perhaps on other host ports. What the daemon does not start again is `exited`.

mod body;
mod daemon;
mod labels;
mod readiness;
mod registry;
mod waiting;

pub use labels::service_id;
pub use registry::{Registry, Secret};

use super::output;
use super::{Condition, ContainerDriver, Image, InstanceSpec, ObservedInstance};
use crate::driver::{Changes, Error};
use async_trait::async_trait;
use bollard::models::{ContainerSummary, ContainerSummaryStateEnum as State};
use daemon::{Daemon, Failure};
use indexmap::IndexMap;
use labels::Labels;
use readiness::Readiness;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::task::{AbortHandle, JoinSet};
use waiting::Waiting;

/// How long after a container could not be removed that is tried again; it doubles up to the longest.
const REMOVAL_RETRY_FIRST: Duration = Duration::from_secs(1);
const REMOVAL_RETRY_LONGEST: Duration = Duration::from_secs(30);

const SUPPORTED: [&str; 2] = ["container/docker", "docker"];

/// Which daemon is used, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The daemon's Unix socket.
    pub socket: PathBuf,
    /// Where published ports are reached. An address is also what they are bound to.
    pub host: String,
    /// Prefix of all labels; may be empty.
    pub label_namespace: String,
    /// The name of this installation; containers of others are not seen.
    pub namespace: String,
    /// How long a container may take to end before it is killed.
    pub stop_timeout: Duration,
    /// How long a pull may take.
    pub pull_timeout: Duration,
    /// Who asks at registries that want to know.
    pub registries: Vec<Registry>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: PathBuf::from("/var/run/docker.sock"),
            host: "127.0.0.1".to_owned(),
            label_namespace: "io.segue".to_owned(),
            namespace: "default".to_owned(),
            stop_timeout: Duration::from_secs(10),
            pull_timeout: Duration::from_mins(10),
            registries: Vec::new(),
        }
    }
}

/// Runs instances as Docker containers.
pub struct DockerDriver {
    shared: Arc<Shared>,
    /// What goes on in the background; ends with the driver, the containers do not.
    tasks: Mutex<JoinSet<()>>,
}

/// What the driver and its tasks have in common.
struct Shared {
    settings: Settings,
    labels: Labels,
    daemon: Daemon,
    readiness: Readiness,
    waiting: Waiting,
    /// Names of the instances that are being created and started by this driver right now.
    starting: Mutex<HashSet<String>>,
    /// Names of the instances that are being stopped and removed right now.
    stopping: Mutex<HashMap<String, Option<String>>>,
    changes: Changes,
}

/// What the driver was about before it asked the daemon, whose answer may be from then.
struct Before {
    starting: HashSet<String>,
    stopping: HashMap<String, Option<String>>,
}

impl DockerDriver {
    /// A driver that sees what runs with its labels. Has to be called inside a Tokio runtime. Whether the daemon
    /// answers is not asked before the first call.
    pub fn new(settings: Settings) -> Self {
        let shared = Arc::new(Shared {
            labels: Labels::new(&settings.label_namespace, &settings.namespace),
            daemon: Daemon::new(settings.socket.clone(), settings.stop_timeout),
            readiness: Readiness::default(),
            waiting: Waiting::default(),
            starting: Mutex::default(),
            stopping: Mutex::default(),
            changes: Changes::default(),
            settings,
        });
        let driver = Self { shared: Arc::clone(&shared), tasks: Mutex::default() };
        drop(driver.spawn(readiness::follow_events(shared)));
        driver
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let mut tasks = self.tasks.lock().expect("no holder of the lock panics");
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task)
    }

    /// Begins to ask a running container whether it answers, unless that is known or asked already.
    fn probe(&self, container: &ContainerSummary) {
        let id = container.id.clone().unwrap_or_default();
        let addresses = self.addresses(container);
        if self.shared.readiness.begin(&id, &addresses) {
            let shared = Arc::clone(&self.shared);
            let deployment = self.shared.labels.deployment(container);
            drop(self.spawn(readiness::wait_until_ready(shared, deployment, id, addresses)));
        }
    }

    fn addresses(&self, container: &ContainerSummary) -> Vec<readiness::Address> {
        let own = own_address(container);
        let published = self.published(container);
        let declared = self.shared.labels.ports(container);
        let address = |(name, number): (&String, &u16)| readiness::Address {
            own: own.clone().map(|host| (host, *number)),
            published: published.get(name).map(|port| (self.shared.settings.host.clone(), *port)),
        };
        declared.iter().map(address).collect()
    }

    /// Port name to the number under which it is reached on the host.
    fn published(&self, container: &ContainerSummary) -> IndexMap<String, u16> {
        let declared = self.shared.labels.ports(container);
        if is_on_host_network(container) {
            return declared;
        }
        let public = |number: u16| {
            let ports = container.ports.iter().flatten();
            ports.filter(|port| port.private_port == number).find_map(|port| port.public_port)
        };
        declared.into_iter().filter_map(|(name, number)| Some((name, public(number)?))).collect()
    }

    async fn condition(
        &self,
        name: &str,
        container: &ContainerSummary,
        before: &Before,
    ) -> Result<Condition, Error> {
        let id = container.id.as_deref().unwrap_or_default();
        let trouble = self.shared.stopping().get(name).cloned();
        if let Some(trouble) = trouble.or_else(|| before.stopping.get(name).cloned()) {
            return Ok(trouble.map_or(Condition::Stopping, Condition::Stuck));
        }
        let state = container.state.unwrap_or(State::EMPTY);
        if state != State::RUNNING {
            self.shared.readiness.forget(id);
        }
        let addresses = self.addresses(container);
        Ok(match state {
            State::RUNNING if self.shared.readiness.is_ready(id, &addresses) => Condition::Running,
            State::RUNNING => {
                if readiness::all_ready_now(&addresses).await {
                    self.shared.readiness.set_ready(id, addresses);
                    Condition::Running
                } else {
                    self.probe(container);
                    let ports = self.published(container);
                    let host = &self.shared.settings.host;
                    let ports: Vec<String> = ports
                        .iter()
                        .map(|(name, port)| format!("{name} ({host}:{port})"))
                        .collect();
                    Condition::Starting(format!("waits for a connection to {}", ports.join(", ")))
                }
            }
            State::CREATED
                if before.starting.contains(name) || self.shared.starting().contains(name) =>
            {
                Condition::Starting("is being started".to_owned())
            }
            State::CREATED => Condition::Exited("was created, but never started".to_owned()),
            State::PAUSED => Condition::Starting("is paused".to_owned()),
            State::RESTARTING => Condition::Restarting(self.last_words(id).await),
            State::REMOVING | State::STOPPING => Condition::Stopping,
            State::EXITED | State::DEAD | State::EMPTY => {
                Condition::Exited(self.last_words(id).await)
            }
        })
    }

    /// How a container ended, with the last of its output.
    async fn last_words(&self, id: &str) -> String {
        let (end, output) = self.shared.daemon.last_words(id).await;
        output::ended(&end, &output)
    }

    async fn observed(
        &self,
        container: &ContainerSummary,
        before: &Before,
    ) -> Result<Option<ObservedInstance>, Error> {
        let labels = &self.shared.labels;
        let (Some(name), Some(owner)) = (labels.instance(container), labels.owner(container))
        else {
            return Ok(None);
        };
        Ok(Some(ObservedInstance {
            condition: self.condition(&name, container, before).await?,
            owner,
            fingerprint: labels.fingerprint(container),
            host: self.shared.settings.host.clone(),
            ports: self.published(container),
            created: labels.created(container),
            name,
        }))
    }
}

/// What became of an attempt to start an instance.
enum Outcome {
    /// The daemon accepted it.
    Started,
    /// The image has to be pulled first.
    NoImage,
}

/// Creates and starts a container; one that cannot be started is removed again.
async fn create_and_start(shared: &Shared, spec: &InstanceSpec) -> Result<Outcome, Error> {
    let Some(image) = shared.daemon.image(spec.deployable.definition.trim()).await? else {
        return Ok(Outcome::NoImage);
    };
    check_host_ports(shared, spec).await?;
    let now = OffsetDateTime::now_utc();
    let body = body::create(spec, &shared.settings, &shared.labels, &image, now)?;
    let id = match shared.daemon.create(&spec.name, body).await {
        Ok(id) => id,
        Err(Failure::Exists) => return start_existing(shared, spec).await,
        Err(Failure::NoImage) => return Ok(Outcome::NoImage),
        Err(Failure::Other(error)) => return Err(error),
    };
    if let Err(error) = shared.daemon.start(&id).await {
        shared.daemon.remove(&id).await?;
        return Err(error);
    }
    Ok(Outcome::Started)
}

/// On the host's network the ports are those inside. Where another container listens already it would answer for the new
/// one, which would be taken for ready while it is not.
async fn check_host_ports(shared: &Shared, spec: &InstanceSpec) -> Result<(), Error> {
    if spec.ports.is_empty() || body::network(spec)? != "host" {
        return Ok(());
    }
    let containers = shared.daemon.list(shared.labels.of_all()).await?;
    let Some((holder, port, is_own)) = holder_of_port(&shared.labels, &containers, spec) else {
        return Ok(());
    };
    if shared.stopping().contains_key(&holder) {
        return Err(Error::Transient(format!(
            "waits for instance '{holder}' to end, which has port {port} of the network `host`"
        )));
    }
    let words = format!(
        "port {port} of the network `host` belongs to instance '{holder}'; give another port or network, or remove that one first"
    );
    // One of the same service may be on its way out.
    Err(if is_own { Error::Transient(words) } else { Error::Permanent(words) })
}

/// An instance that has a port of `spec` on the host's network, which, and whether it is of the same service. What does not
/// run has none.
fn holder_of_port(
    labels: &Labels,
    containers: &[ContainerSummary],
    spec: &InstanceSpec,
) -> Option<(String, u16, bool)> {
    let runs = |found: &&ContainerSummary| {
        matches!(found.state, Some(State::RUNNING | State::PAUSED | State::RESTARTING))
    };
    let mut on_host = containers.iter().filter(runs).filter(|found| is_on_host_network(found));
    on_host.find_map(|found| {
        let name = labels.instance(found).filter(|name| *name != spec.name)?;
        let ports = labels.ports(found);
        let port = spec.ports.values().find(|port| ports.values().any(|other| other == *port))?;
        Some((name, *port, labels.owner(found).as_ref() == Some(&spec.owner)))
    })
}

/// A container of that name is there already: it is started when an earlier attempt only created it.
async fn start_existing(shared: &Shared, spec: &InstanceSpec) -> Result<Outcome, Error> {
    let own = shared.labels.of_instance(&spec.owner.deployment, &spec.name);
    match shared.daemon.list(own).await?.first() {
        Some(ContainerSummary { id: Some(id), state: Some(State::CREATED), .. }) => {
            shared.daemon.start(id).await?;
            Ok(Outcome::Started)
        }
        Some(_) => Ok(Outcome::Started),
        None => Err(Error::Permanent(format!(
            "a container named '{}' exists that does not belong to this Segue; rename or remove it",
            spec.name
        ))),
    }
}

#[async_trait]
impl ContainerDriver for DockerDriver {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn supports(&self, kind: &str) -> bool {
        SUPPORTED.contains(&kind)
    }

    fn kinds(&self) -> &'static [&'static str] {
        &SUPPORTED
    }

    async fn ping(&self) -> Result<(), Error> {
        self.shared.daemon.ping().await
    }

    async fn deployments(&self) -> Result<BTreeSet<String>, Error> {
        let containers = self.shared.daemon.list(self.shared.labels.of_all()).await?;
        Ok(containers
            .iter()
            .filter_map(|found| self.shared.labels.owner(found))
            .map(|owner| owner.deployment)
            .collect())
    }

    async fn observe(&self, deployment: &str) -> Result<Vec<Arc<ObservedInstance>>, Error> {
        // Asked first: what leaves the waiting in between is a container by then.
        let waiting = self.shared.waiting.of(deployment);
        let before = self.shared.before();
        let mut observed = Vec::new();
        for container in
            self.shared.daemon.list(self.shared.labels.of_deployment(deployment)).await?
        {
            observed.extend(self.observed(&container, &before).await?.map(Arc::new));
        }
        let seen: HashSet<String> = observed.iter().map(|found| found.name.clone()).collect();
        observed.extend(waiting.into_iter().filter(|waits| !seen.contains(&waits.name)));
        Ok(observed)
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
            return Err(Error::Permanent(
                "the definition of the deployable is empty; give an image".to_owned(),
            ));
        }
        if self.shared.waiting.contains(&spec.name) {
            return Ok(());
        }
        let Some(underway) = Underway::begin(&self.shared, &spec.name) else { return Ok(()) };
        if let Outcome::NoImage = create_and_start(&self.shared, spec).await? {
            self.shared.waiting.begin(spec, &self.shared.settings.host);
            let shared = Arc::clone(&self.shared);
            let pull = self.spawn(waiting::pull_and_start(shared, spec.clone(), underway));
            self.shared.waiting.pulled_by(&spec.name, pull);
            return Ok(());
        }
        let found = self
            .shared
            .daemon
            .list(self.shared.labels.of_instance(&spec.owner.deployment, &spec.name))
            .await?;
        for container in found.iter().filter(|found| found.state == Some(State::RUNNING)) {
            self.probe(container);
        }
        self.shared.changes.notify_of(&spec.owner.deployment);
        Ok(())
    }

    async fn stop(&self, deployment: &str, instance: &str) -> Result<(), Error> {
        if self.shared.waiting.end(deployment, instance) {
            self.shared.changes.notify_of(deployment);
        }
        let found =
            self.shared.daemon.list(self.shared.labels.of_instance(deployment, instance)).await?;
        let Some(id) = found.into_iter().find_map(|container| container.id) else { return Ok(()) };
        let is_first = match self.shared.stopping().entry(instance.to_owned()) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(None);
                true
            }
        };
        if is_first {
            let (deployment, instance) = (deployment.to_owned(), instance.to_owned());
            self.shared.changes.notify_of(&deployment);
            drop(self.spawn(stop_and_remove(Arc::clone(&self.shared), id, deployment, instance)));
        }
        Ok(())
    }

    async fn images(&self, deployment: &str) -> Result<BTreeMap<String, Image>, Error> {
        let labels = &self.shared.labels;
        let containers = self.shared.daemon.list(labels.of_deployment(deployment)).await?;
        let image = |container: &ContainerSummary| {
            let image = Image {
                name: container.image.clone().unwrap_or_default(),
                id: container.image_id.clone().unwrap_or_default(),
                digests: labels.digests(container),
            };
            Some((labels.instance(container)?, image))
        };
        Ok(containers.iter().filter_map(image).collect())
    }

    async fn output(
        &self,
        deployment: &str,
        instance: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, Error> {
        let waiting = self.shared.waiting.of(deployment);
        let labels = &self.shared.labels;
        let found = self.shared.daemon.list(labels.of_instance(deployment, instance)).await?;
        let Some(id) = found.into_iter().find_map(|container| container.id) else {
            // It prints nothing before there is an image.
            return Ok(waiting.iter().any(|found| found.name == instance).then(Vec::new));
        };
        let output = self.shared.daemon.log(&id, lines, None).await?;
        Ok(Some(output::last_of(&output, lines)))
    }

    fn changes(&self) -> &Changes {
        &self.shared.changes
    }
}

/// Tries until the container is gone, with growing pauses.
async fn stop_and_remove(shared: Arc<Shared>, id: String, deployment: String, instance: String) {
    let done = async || {
        shared.daemon.stop(&id).await?;
        shared.daemon.remove(&id).await
    };
    let mut pause = REMOVAL_RETRY_FIRST;
    while let Err(error) = done().await {
        tracing::warn!(instance, %error, "a container cannot be removed");
        let words = format!("cannot be removed: {error}");
        shared.stopping().insert(instance.clone(), Some(words));
        shared.changes.notify_of(&deployment);
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(REMOVAL_RETRY_LONGEST);
    }
    shared.readiness.forget(&id);
    shared.stopping().remove(&instance);
    shared.changes.notify_of(&deployment);
}

impl Shared {
    fn before(&self) -> Before {
        Before { starting: self.starting().clone(), stopping: self.stopping().clone() }
    }

    fn starting(&self) -> MutexGuard<'_, HashSet<String>> {
        self.starting.lock().expect("no holder of the lock panics")
    }

    /// Instances whose containers are being stopped and removed, with what keeps that from succeeding.
    fn stopping(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        self.stopping.lock().expect("no holder of the lock panics")
    }
}

/// Marks an instance as being started for as long as it lives.
struct Underway {
    shared: Arc<Shared>,
    name: String,
}

impl Underway {
    /// `None` when the instance is being started already.
    fn begin(shared: &Arc<Shared>, name: &str) -> Option<Self> {
        let is_first = shared.starting().insert(name.to_owned());
        is_first.then(|| Self { shared: Arc::clone(shared), name: name.to_owned() })
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.shared.starting().remove(&self.name);
    }
}

fn is_on_host_network(container: &ContainerSummary) -> bool {
    let mode = container.host_config.as_ref().and_then(|config| config.network_mode.as_deref());
    mode == Some("host")
}

/// The address of a container on its own network.
fn own_address(container: &ContainerSummary) -> Option<String> {
    let networks = container.network_settings.as_ref()?.networks.as_ref()?;
    networks
        .values()
        .filter_map(|network| network.ip_address.clone())
        .find(|address| !address.is_empty())
}

#[cfg(test)]
mod tests;
