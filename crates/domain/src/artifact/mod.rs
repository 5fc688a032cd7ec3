//! The typed artifacts, one file per kind; what cannot be wrong is said by the types.
//!
//! The types here are what the log keeps and what commands are decided on. How they are read from and written to
//! documents is the business of [`crate::dsl`]; this module knows no text form but that of names and units.

mod blueprint;
mod breed;
pub mod condition;
mod deployment;
mod gateway;
mod lookup;
mod scale;
mod sla;
mod stored;
pub mod value;

pub use blueprint::{Blueprint, BlueprintCluster, BlueprintGateway, BlueprintService};
pub use breed::{Argument, Breed, BreedReference, Deployable, HealthCheck, Port, PortType, Traits};
pub use condition::{
    Condition, ConditionError, Expression, Literal, NamedCondition, Operand, RouteCondition,
};
pub use deployment::{
    Cluster, Deployment, Instance, Intention, Leaving, Phase, PhaseName, Service, Status,
};
pub use gateway::{
    Balance, Gateway, GatewayName, Rewrite, RewriteReference, Route, RoutePath, Sticky,
};
pub use lookup::{LookupClass, lookup_name, route_lookup_name, short_hash};
pub use scale::{Cpu, Memory, NamedScale, Percentage, Scale, ScaleReference, UnitError};
pub use sla::{
    Amount, ClusterSla, Escalation, EscalationReference, NamedEscalation, NamedSla, ScaleStep, Sla,
    SlaCheck, SlaName, SlaReference,
};
pub use stored::{NamedRewrite, NamedRoute, Template};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Free-form content that is kept and printed verbatim: `metadata` and dialects.
pub type Metadata = serde_json::Map<String, serde_json::Value>;

/// The kinds of artifact that are stored under a name of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// What is deployed together and how traffic enters it.
    Blueprint,
    /// What one service runs.
    Breed,
    /// Which requests a route asks for.
    Condition,
    /// A blueprint brought to life.
    Deployment,
    /// What is done when an SLA is not kept.
    Escalation,
    /// Where traffic enters and how it is spread.
    Gateway,
    /// How a path changes on the way to the targets.
    Rewrite,
    /// One way that requests can take.
    Route,
    /// How much of a service runs.
    Scale,
    /// Part of a document, for others to import.
    Template,
    /// What a cluster promises.
    Sla,
}

impl Kind {
    /// All kinds, in the order in which they are listed to users.
    pub const ALL: [Kind; 11] = [
        Kind::Blueprint,
        Kind::Breed,
        Kind::Condition,
        Kind::Deployment,
        Kind::Escalation,
        Kind::Gateway,
        Kind::Rewrite,
        Kind::Route,
        Kind::Scale,
        Kind::Sla,
        Kind::Template,
    ];

    /// The `kind` of a document: the singular name.
    pub fn singular(self) -> &'static str {
        match self {
            Kind::Blueprint => "blueprint",
            Kind::Breed => "breed",
            Kind::Condition => "condition",
            Kind::Deployment => "deployment",
            Kind::Escalation => "escalation",
            Kind::Gateway => "gateway",
            Kind::Rewrite => "rewrite",
            Kind::Route => "route",
            Kind::Scale => "scale",
            Kind::Template => "template",
            Kind::Sla => "sla",
        }
    }

    /// The collection in paths and tags: the plural name.
    pub fn collection(self) -> &'static str {
        match self {
            Kind::Blueprint => "blueprints",
            Kind::Breed => "breeds",
            Kind::Condition => "conditions",
            Kind::Deployment => "deployments",
            Kind::Escalation => "escalations",
            Kind::Gateway => "gateways",
            Kind::Rewrite => "rewrites",
            Kind::Route => "routes",
            Kind::Scale => "scales",
            Kind::Template => "templates",
            Kind::Sla => "slas",
        }
    }
}

/// Names one stored artifact: its kind and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ArtifactKey {
    /// The kind of the artifact.
    pub kind: Kind,
    /// The name, unique within the kind.
    pub name: String,
}

impl ArtifactKey {
    /// The key of the artifact `name` of `kind`.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into() }
    }
}

/// The tag form, `breeds:web:1`.
impl fmt::Display for ArtifactKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind.collection(), self.name)
    }
}

/// Whether `name` is a general name: not empty, without white space, `/`, `[` and `]` (interface, names).
pub fn is_general_name(name: &str) -> bool {
    !name.is_empty() && !name.chars().any(|c| c.is_whitespace() || matches!(c, '/' | '[' | ']'))
}

/// Whether `name` is a strict name: a general name without `.`; ports, variables and constants have one.
pub fn is_strict_name(name: &str) -> bool {
    is_general_name(name) && !name.contains('.')
}
