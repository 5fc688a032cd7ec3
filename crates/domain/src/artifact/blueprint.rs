//! What is deployed together and how traffic enters it.

use super::{
    Argument, BreedReference, Gateway, HealthCheck, Metadata, ScaleReference, SlaReference, Traits,
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// What is deployed together and how traffic enters it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blueprint {
    /// The general name; empty in a body that takes its name from elsewhere.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The external entry points.
    pub gateways: Vec<BlueprintGateway>,
    /// Cluster name to cluster.
    pub clusters: IndexMap<String, BlueprintCluster>,
    /// Variables of the services, key `cluster.NAME`.
    pub environment_variables: Traits,
    /// Driver name to anything.
    pub dialects: Metadata,
}

/// An external entry point: its key in the blueprint and the gateway. The gateway's name is empty, its route paths
/// are `cluster/port`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlueprintGateway {
    /// The port number when the key holds one, else the key text.
    pub key: String,
    /// The gateway; without a name.
    pub gateway: Gateway,
}

/// Services that stand for one another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlueprintCluster {
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// The services, one for each version.
    pub services: Vec<BlueprintService>,
    /// Port name to internal gateway; the gateway's name is empty, its route paths are breed names. The port name
    /// is empty for an anonymous gateway whose port is not known yet.
    pub gateways: IndexMap<String, Gateway>,
    /// What the cluster promises.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sla: Option<SlaReference>,
    /// Checks of the instances of all services.
    pub health_checks: Option<Vec<HealthCheck>>,
    /// The network of all services.
    pub network: Option<String>,
    /// Driver name to anything.
    pub dialects: Metadata,
}

/// One service: a breed and how it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlueprintService {
    /// What runs.
    pub breed: BreedReference,
    /// Variables that win over those of the blueprint and the breed.
    pub environment_variables: Traits,
    /// How much runs.
    pub scale: Option<ScaleReference>,
    /// Arguments after those of the breed.
    pub arguments: Vec<Argument>,
    /// Checks of the instances; `None` is "not said".
    pub health_checks: Option<Vec<HealthCheck>>,
    /// The network of the containers.
    pub network: Option<String>,
    /// Driver name to anything.
    pub dialects: Metadata,
}

impl BlueprintService {
    /// The name of the only port that the breeds of `services` that are written in place have between them; a gateway
    /// without port name belongs to it.
    pub fn only_port(services: &[Self]) -> Option<&str> {
        let inline = services.iter().filter_map(|service| service.breed.inline());
        let mut ports = inline.flat_map(|breed| breed.ports.keys());
        let first = ports.next()?;
        ports.all(|other| other == first).then_some(first.as_str())
    }
}
