//! Checks instances as their services ask for it (documents, 2.6): a request or a connection, again and again.
//!
//! What it finds has two readers: the worker of a deployment lets new instances serve only when they passed, and
//! health counts those that fail. Nothing of it is in the log; a restart checks anew, and what served before goes on.

mod probe;
mod results;
#[cfg(test)]
mod tests;

pub use results::Results;

use crate::driver::Error;
use crate::turn::{Turn, Worker, is_same};
use async_trait::async_trait;
use segue_domain::artifact::{HealthCheck, Instance, Leaving};
use segue_domain::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// How many checks of one deployment are under way at a time; more wait, so that a deployment whose instances hang
/// holds up no other.
const PROBES_MAX: usize = 32;
/// How many checks are under way at a time in all: each takes a file descriptor.
const ALL_PROBES_MAX: usize = 256;
/// Checks are not repeated faster than this, whatever they ask for.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// One check of one instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Check {
    /// The instance.
    pub instance: String,
    deployment: String,
    host: String,
    port: u16,
    protocol: Protocol,
    initial_delay: Duration,
    timeout: Duration,
    interval: Duration,
    /// How many failures in a row are a failure of the instance; 0 is none ever.
    failures: u32,
}

/// What is asked of an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Protocol {
    /// An answer to a request for this path, with a status from 200 to 399.
    Http(String),
    /// A connection.
    Tcp,
}

/// Keeps one task for each check. It holds nothing that the state does not say.
pub struct ChecksWorker {
    results: Arc<Results>,
    places: Places,
    running: BTreeMap<Check, JoinHandle<()>>,
    /// The state that the checks are those of.
    seen: Option<State>,
}

impl ChecksWorker {
    /// A worker that writes down what it finds in `results`.
    pub fn new(results: Arc<Results>) -> Self {
        Self { results, places: Places::default(), running: BTreeMap::new(), seen: None }
    }
}

/// Where checks wait until they may ask.
struct Places {
    of_deployments: BTreeMap<String, Arc<Semaphore>>,
    of_all: Arc<Semaphore>,
}

/// Where the checks of one deployment wait: for their own turn, then for that among all.
#[derive(Clone)]
struct Place {
    own: Arc<Semaphore>,
    of_all: Arc<Semaphore>,
}

impl Default for Places {
    fn default() -> Self {
        Self { of_deployments: BTreeMap::new(), of_all: Arc::new(Semaphore::new(ALL_PROBES_MAX)) }
    }
}

impl Places {
    fn of(&mut self, deployment: &str) -> Place {
        let semaphore = || Arc::new(Semaphore::new(PROBES_MAX));
        let own = self.of_deployments.entry(deployment.to_owned()).or_insert_with(semaphore);
        Place { own: Arc::clone(own), of_all: Arc::clone(&self.of_all) }
    }

    /// Forgets deployments that are gone.
    fn keep(&mut self, is_there: impl Fn(&str) -> bool) {
        self.of_deployments.retain(|deployment, _| is_there(deployment));
    }
}

impl Drop for ChecksWorker {
    fn drop(&mut self) {
        self.running.values().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Worker for ChecksWorker {
    fn actor(&self) -> String {
        "worker:checks".to_owned()
    }

    async fn turn(&mut self, state: &State, _: OffsetDateTime) -> Result<Turn, Error> {
        if self.seen.as_ref().is_some_and(|seen| is_same(seen, state)) {
            return Ok(Turn::default());
        }
        let wanted = checks(state);
        self.running.retain(|check, task| {
            // They are sorted.
            let stays = wanted.binary_search(check).is_ok();
            if !stays {
                task.abort();
            }
            stays
        });
        self.results.expect(&wanted);
        self.places.keep(|deployment| state.deployment(deployment).is_some());
        for check in wanted {
            let (results, place) = (Arc::clone(&self.results), self.places.of(&check.deployment));
            self.running
                .entry(check)
                .or_insert_with_key(|check| tokio::spawn(repeat(check.clone(), results, place)));
        }
        self.seen = Some(state.clone());
        Ok(Turn::default())
    }
}

/// What is to be checked: every instance that stays and whose ports are known, by the effective checks of its service.
pub fn checks(state: &State) -> Vec<Check> {
    let mut checks = Vec::new();
    for stored in state.deployments().values() {
        let deployment = &stored.artifact.name;
        for cluster in stored.artifact.clusters.values() {
            for service in cluster.services.iter().filter(|service| !service.is_undeploying()) {
                let effective = cluster.effective_health_checks(service);
                let staying =
                    service.instances.iter().filter(|instance| instance.leaving == Leaving::No);
                for instance in staying {
                    checks.extend(Check::all(deployment, instance, &effective));
                }
            }
        }
    }
    checks.sort();
    checks.dedup();
    checks
}

impl Check {
    /// What an instance of a service is asked by the effective `checks` of the service. Checks that ask the same are one.
    pub fn all(deployment: &str, instance: &Instance, checks: &[&HealthCheck]) -> BTreeSet<Self> {
        checks.iter().filter_map(|check| Self::of(deployment, instance, check)).collect()
    }

    fn of(deployment: &str, instance: &Instance, check: &HealthCheck) -> Option<Self> {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        let is_tcp = check.protocol.eq_ignore_ascii_case("tcp");
        Some(Self {
            instance: instance.name.clone(),
            deployment: deployment.to_owned(),
            host: if instance.host.is_empty() {
                "127.0.0.1".to_owned()
            } else {
                instance.host.clone()
            },
            port: *instance.ports.get(&check.port)?,
            protocol: if is_tcp { Protocol::Tcp } else { Protocol::Http(check.path.clone()) },
            initial_delay: seconds(check.initial_delay_seconds),
            timeout: seconds(check.timeout_seconds).max(INTERVAL_MIN),
            interval: seconds(check.interval_seconds).max(INTERVAL_MIN),
            failures: check.failures,
        })
    }
}

/// Goes on until the task is aborted.
async fn repeat(check: Check, results: Arc<Results>, place: Place) {
    tokio::time::sleep(check.initial_delay).await;
    loop {
        let found = {
            // The semaphores are never closed.
            let _own = place.own.acquire().await;
            let _of_all = place.of_all.acquire().await;
            probe::probe(&check).await
        };
        results.note(&check, found);
        tokio::time::sleep(check.interval).await;
    }
}
