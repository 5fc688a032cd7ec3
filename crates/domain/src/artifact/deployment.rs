//! A blueprint brought to life: what should run, and what is known of what runs.

use super::{Argument, Breed, ClusterSla, HealthCheck, Metadata, Scale, Traits};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// A blueprint brought to life. Its gateways are artifacts of their own, named after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// Cluster name to cluster.
    pub clusters: IndexMap<String, Cluster>,
    /// Raw variables of the blueprint level, key `cluster.NAME`.
    pub environment_variables: Traits,
    /// Driver name to anything.
    pub dialects: Metadata,
}

impl Deployment {
    /// All services with the names of their clusters, in document order.
    pub fn services(&self) -> impl Iterator<Item = (&str, &Service)> {
        self.clusters.iter().flat_map(|(name, cluster)| {
            cluster.services.iter().map(move |service| (name.as_str(), service))
        })
    }

    /// The service that runs `breed` in `cluster`.
    pub fn service(&self, cluster: &str, breed: &str) -> Option<&Service> {
        self.clusters.get(cluster)?.services.iter().find(|service| service.breed.name == breed)
    }

    /// The service that runs `breed` in `cluster`, to be changed.
    pub fn service_mut(&mut self, cluster: &str, breed: &str) -> Option<&mut Service> {
        self.clusters
            .get_mut(cluster)?
            .services
            .iter_mut()
            .find(|service| service.breed.name == breed)
    }
}

/// Services that stand for one another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The host under which the gateways of this cluster are reached.
    pub host: String,
    /// The services, one for each version.
    pub services: Vec<Service>,
    /// What the cluster promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<ClusterSla>,
    /// Checks of the instances of all services.
    pub health_checks: Option<Vec<HealthCheck>>,
    /// The network of all services.
    pub network: Option<String>,
    /// Driver name to anything.
    pub dialects: Metadata,
}

/// One service of a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// What is wanted of it and how far that is.
    pub status: Status,
    /// What runs; always the full breed.
    pub breed: Breed,
    /// Raw variables of the service level.
    pub environment_variables: Traits,
    /// The effective variables with interpolated values, keyed as in the breed; `None` before the first deployment.
    pub environment: Option<IndexMap<String, String>>,
    /// What `environment` was, while it is to be found out anew: values that were told before still stand for the texts
    /// that they came from.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub former_environment: IndexMap<String, String>,
    /// How much runs.
    pub scale: Scale,
    /// The effective arguments.
    pub arguments: Vec<Argument>,
    /// Alias of a dependency to the cluster that satisfies it.
    pub dependencies: IndexMap<String, String>,
    /// Checks of the instances; `None` is "not said".
    pub health_checks: Option<Vec<HealthCheck>>,
    /// The network of the containers.
    pub network: Option<String>,
    /// Driver name to anything.
    pub dialects: Metadata,
    /// The instances as last observed.
    pub instances: Vec<Instance>,
}

impl Cluster {
    /// The checks of the instances of `service`, one of this cluster's (documents, 2.6): its own, and those of the
    /// cluster whose port its breed declares and whose path its own leave open; none when its own list is empty. Without
    /// an own list the cluster's, and without one there the breed's.
    pub fn effective_health_checks<'a>(&'a self, service: &'a Service) -> Vec<&'a HealthCheck> {
        let own = service.health_checks.as_deref();
        let of_cluster = self.health_checks.as_deref();
        let of_breed = service.breed.health_checks.as_deref().unwrap_or_default();
        let declared = |check: &&HealthCheck| service.breed.ports.contains_key(&check.port);
        match (own, of_cluster) {
            (Some([]), _) => Vec::new(),
            (Some(own), of_cluster) => {
                let open = |check: &&HealthCheck| own.iter().all(|other| other.path != check.path);
                let more = of_cluster.unwrap_or_default().iter().filter(declared).filter(open);
                own.iter().chain(more).collect()
            }
            (None, Some(of_cluster)) => of_cluster.iter().filter(declared).collect(),
            (None, None) => of_breed.iter().collect(),
        }
    }
}

impl Service {
    /// Whether all is as wanted and meant to stay.
    pub fn is_done(&self) -> bool {
        self.status.intention == Intention::Deployment && self.status.phase.name == PhaseName::Done
    }

    /// Whether the service is on its way out.
    pub fn is_undeploying(&self) -> bool {
        self.status.intention == Intention::Undeployment
    }

    /// Its variables are to be found out anew.
    pub fn forget_environment(&mut self) {
        if let Some(environment) = self.environment.take() {
            self.former_environment = environment;
        }
    }
}

/// What is wanted of a service and how far that is (runtime, section 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// What is wanted.
    pub intention: Intention,
    /// When that was stated or stated again.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// How far it is.
    pub phase: Phase,
}

/// What is wanted of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Intention {
    /// It runs.
    Deployment,
    /// It is gone.
    Undeployment,
}

/// How far an intention is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The phase.
    pub name: PhaseName,
    /// When it began.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Why it failed, in the driver's own words.
    pub notification: Option<String>,
}

/// The phases of an intention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PhaseName {
    /// Stated, not yet taken up.
    Initiated,
    /// Being worked on.
    Updating,
    /// Reached.
    Done,
    /// Given up, with a reason.
    Failed,
}

impl PhaseName {
    /// The name as documents print it.
    pub fn as_str(self) -> &'static str {
        match self {
            PhaseName::Initiated => "Initiated",
            PhaseName::Updating => "Updating",
            PhaseName::Done => "Done",
            PhaseName::Failed => "Failed",
        }
    }
}

/// A process or container of a service, as last observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Unique among all instances.
    pub name: String,
    /// Where its ports are reached.
    pub host: String,
    /// Port name to the number on that host.
    pub ports: IndexMap<String, u16>,
    /// Whether it runs and accepts connections, so that traffic may go to it.
    pub deployed: bool,
    /// Where it is on its way out of the routing.
    #[serde(default)]
    pub leaving: Leaving,
    /// Whether traffic ever went to it. Such an instance is not one that a change could not finish.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub served: bool,
}

/// Where an instance is on its way out: traffic is drained before the instance is stopped.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// It stays.
    #[default]
    No,
    /// It gets no new requests; those under way are finished.
    Draining,
    /// No gateway sends it anything any more; it can be stopped.
    Released,
}
