//! The door to what runs: processes and containers.
//!
//! A driver starts and stops single instances and tells what runs; it decides nothing. Everything that must survive
//! a restart of the service (which instance belongs to which service, and what it was made from) is kept outside,
//! with the instance itself.

pub mod docker;
pub mod process;
pub mod simulated;

#[cfg(any(test, feature = "testing"))]
pub mod conformance;

mod hash;
mod output;
mod probe;
mod words;

pub use docker::DockerDriver;
pub use process::ProcessDriver;
pub use simulated::SimulatedContainers;

use crate::driver::{Changes, Error};
use async_trait::async_trait;
use indexmap::IndexMap;
use segue_domain::artifact::{Argument, Cpu, Deployable, Memory, Metadata};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use time::OffsetDateTime;

/// The door to one kind of runtime. Every call is idempotent and may be repeated after a crash.
#[async_trait]
pub trait ContainerDriver: Send + Sync {
    /// The name, as configuration and dialects give it: `process`, `docker`, `simulated`.
    fn name(&self) -> &'static str;

    /// Whether the driver runs deployables of type `kind`.
    fn supports(&self, kind: &str) -> bool;

    /// The types that it runs, as people are told them.
    fn kinds(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the runtime answers.
    async fn ping(&self) -> Result<(), Error>;

    /// The deployments of which anything is left outside, running or not.
    async fn deployments(&self) -> Result<BTreeSet<String>, Error>;

    /// Everything of `deployment`, in any order: starting, running, stopping and exited instances.
    /// Shared, so that thousands that are looked at again and again are neither copied nor compared in full.
    async fn observe(&self, deployment: &str) -> Result<Vec<Arc<ObservedInstance>>, Error>;

    /// Starts an instance. Nothing happens when one of that name is there already, in whatever phase. Returns once
    /// the runtime accepted it; that it runs is observed later.
    async fn start(&self, spec: &InstanceSpec) -> Result<(), Error>;

    /// Stops and removes an instance: asks it to end, and forces it after the stop time-out. Returns at once; that
    /// it is gone is observed later. Nothing happens when there is none.
    async fn stop(&self, deployment: &str, instance: &str) -> Result<(), Error>;

    /// The end of what `instance` printed on standard output and error, its restarts included: at most so many `lines`,
    /// oldest first. `None` when there is no such instance of `deployment` here.
    async fn output(
        &self,
        deployment: &str,
        instance: &str,
        lines: usize,
    ) -> Result<Option<Vec<String>>, Error>;

    /// By instance of `deployment`: which bytes it runs, where the runtime knows them.
    async fn images(&self, _deployment: &str) -> Result<BTreeMap<String, Image>, Error> {
        Ok(BTreeMap::new())
    }

    /// Signals whenever an instance appeared, became ready, ended or went away.
    fn changes(&self) -> &Changes;
}

/// Everything that is needed to start one instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Unique among all instances; made by the planner.
    pub name: String,
    /// To which service it belongs.
    pub owner: Owner,
    /// Says what it is made from; two instances of equal definition have equal fingerprints.
    pub fingerprint: String,
    /// The image or command line.
    pub deployable: Deployable,
    /// Port name to the number inside the container, in the order of the breed.
    pub ports: IndexMap<String, u16>,
    /// Names as injected, to values.
    pub environment: IndexMap<String, String>,
    /// The effective arguments.
    pub arguments: Vec<Argument>,
    /// The interpolated dialect of this driver, empty when there is none.
    pub dialect: Metadata,
    /// The network of the container.
    pub network: String,
    /// Processor share.
    pub cpu: Cpu,
    /// Memory.
    pub memory: Memory,
    /// How many instances the service wants in all; recorded with the instance.
    pub instances: u32,
}

/// To which service an instance belongs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The deployment.
    pub deployment: String,
    /// The cluster.
    pub cluster: String,
    /// The breed's name.
    pub service: String,
}

/// Which bytes an instance runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// As it was asked for.
    pub name: String,
    /// The hash of its content here, `sha256:...`.
    pub id: String,
    /// Under which hashes registries have it, `repository@sha256:...`; none for one that was made here.
    pub digests: Vec<String>,
}

/// What a driver sees of one instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstance {
    /// The name it was started with.
    pub name: String,
    /// To which service it belongs.
    pub owner: Owner,
    /// What it was made from.
    pub fingerprint: String,
    /// Where its ports are reached; may be empty while it starts.
    pub host: String,
    /// Port name to the number on that host, in the order of the breed; may be empty while it starts.
    pub ports: IndexMap<String, u16>,
    /// When it was created; the newest are stopped first.
    pub created: OffsetDateTime,
    /// How it is.
    pub condition: Condition,
}

/// How an instance is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// On its way: not all of its ports accept connections yet. The text says what is waited for.
    Starting(String),
    /// All of its ports accept connections.
    Running,
    /// Asked to end.
    Stopping,
    /// The same, and its driver goes on trying; the text says what keeps it.
    Stuck(String),
    /// Ended by itself, and its driver starts it again after a pause; the text says how it ended, with the last of its
    /// output.
    Restarting(String),
    /// Ended by itself; the text says how, with the last of its output.
    Exited(String),
    /// It could not be started and never will as it was asked for; the text says why.
    Refused(String),
}
