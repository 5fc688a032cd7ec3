//! What one service runs: its deployable, ports, variables, constants and dependencies.

use super::Metadata;
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

/// Named scalars in document order; `None` is "declared without value".
pub type Traits = IndexMap<String, Option<String>>;

/// What one service runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breed {
    /// The general name.
    pub name: String,
    /// Free-form content, kept verbatim.
    pub metadata: Metadata,
    /// What the container driver starts.
    pub deployable: Deployable,
    /// Port name to port.
    pub ports: IndexMap<String, Port>,
    /// Variables of the container; the key may carry the injected name, `NAME[ALIAS]`.
    pub environment_variables: Traits,
    /// Values that other services may refer to.
    pub constants: Traits,
    /// Arguments for the container driver.
    pub arguments: Vec<Argument>,
    /// Alias to the breed depended on.
    pub dependencies: IndexMap<String, BreedReference>,
    /// Checks of the running instances; `None` is "not said", an empty list is "none".
    pub health_checks: Option<Vec<HealthCheck>>,
}

/// A breed as a service or a dependency gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BreedReference {
    /// The name of a stored breed.
    Reference(String),
    /// A breed written in place.
    Inline(Box<Breed>),
}

impl BreedReference {
    /// The name of the breed meant.
    pub fn name(&self) -> &str {
        match self {
            BreedReference::Reference(name) => name,
            BreedReference::Inline(breed) => &breed.name,
        }
    }

    /// The breed, when it is written in place.
    pub fn inline(&self) -> Option<&Breed> {
        match self {
            BreedReference::Reference(_) => None,
            BreedReference::Inline(breed) => Some(breed),
        }
    }
}

/// What a container driver starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Deployable {
    /// Which driver understands the definition, such as `container/docker` or `process`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The image or the command line.
    pub definition: String,
}

/// The protocol that a port speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PortType {
    /// HTTP, the default.
    #[default]
    Http,
    /// Any other TCP protocol.
    Tcp,
}

/// A port as text gives it: `8080`, `8080/http`, `8080/tcp`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Port {
    /// The text as it was given; printed unchanged.
    pub text: String,
    /// The number; 0 is "unassigned".
    pub number: u16,
    /// The protocol.
    #[serde(rename = "type")]
    pub kind: PortType,
}

impl Port {
    /// The port `number` of `kind`, printed with its suffix.
    pub fn new(number: u16, kind: PortType) -> Self {
        let suffix = match kind {
            PortType::Http => "http",
            PortType::Tcp => "tcp",
        };
        Self { text: format!("{number}/{suffix}"), number, kind }
    }
}

/// One argument for the container driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Argument {
    /// What is set.
    pub key: String,
    /// To what.
    pub value: String,
}

/// A check of running instances.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HealthCheck {
    /// Path asked for, for HTTP.
    pub path: String,
    /// Name of the breed port asked.
    pub port: String,
    /// Seconds before the first check.
    pub initial_delay_seconds: u32,
    /// Seconds until a check without answer has failed.
    pub timeout_seconds: u32,
    /// Seconds between two checks.
    pub interval_seconds: u32,
    /// How many failures in a row make an instance unhealthy.
    pub failures: u32,
    /// `HTTP` or another protocol name.
    pub protocol: String,
}
