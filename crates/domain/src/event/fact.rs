//! What events change in the state. Facts are the frozen vocabulary of the log: add, never rename or reuse.

use super::Position;
use crate::artifact::{
    ArtifactKey, Blueprint, Breed, Deployment, Gateway, Instance, Kind, NamedCondition,
    NamedEscalation, NamedRewrite, NamedRoute, NamedScale, NamedSla, Phase, Template,
};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an event changes in the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fact {
    /// About an artifact that only users change.
    Static(StaticFact),
    /// About a gateway.
    Gateway {
        /// The gateway's name.
        name: String,
        /// What happened to it.
        fact: GatewayFact,
    },
    /// About a deployment.
    Deployment {
        /// The deployment's name.
        name: String,
        /// What happened to it.
        fact: DeploymentFact,
    },
    /// The escalation event at a position was acted on; those before it were, too.
    Escalated {
        /// The position of that event.
        position: Position,
    },
    /// What a proxy's configuration is generated from was replaced.
    ConfigurationTemplate {
        /// The kind of the proxy: `haproxy`.
        kind: String,
        /// The name of the configuration, such as `2.6`.
        name: String,
        /// The template; `None` for Segue's own.
        template: Option<String>,
    },
}

/// What happened to an artifact that only users change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StaticFact {
    /// A blueprint was created or replaced.
    BlueprintStored(Box<Blueprint>),
    /// A breed was created or replaced.
    BreedStored(Box<Breed>),
    /// A scale was created or replaced.
    ScaleStored(NamedScale),
    /// A condition was created or replaced.
    ConditionStored(NamedCondition),
    /// A rewrite was created or replaced.
    RewriteStored(NamedRewrite),
    /// A route was created or replaced.
    RouteStored(Box<NamedRoute>),
    /// A template was created or replaced.
    TemplateStored(Template),
    /// An escalation was created or replaced.
    EscalationStored(Box<NamedEscalation>),
    /// An SLA was created or replaced.
    SlaStored(Box<NamedSla>),
    /// An artifact was removed.
    Deleted(ArtifactKey),
}

/// What happened to a gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayFact {
    /// It was created or replaced by a user, alone or with its deployment.
    Stored(Box<Gateway>),
    /// It is visible and routed from now on: a service behind it is ready for the first time.
    Published,
    /// It was given a port of the pool.
    PortAssigned(u16),
    /// It entered or left the set of gateways that take traffic.
    DeployedChanged {
        /// Whether it takes traffic.
        deployed: bool,
        /// Why it does not, when something keeps it from doing so.
        reason: Option<String>,
    },
    /// Which of its routes get nothing because of what they ask for, by path, with the reason; none for no more.
    RoutesDisabled(BTreeMap<String, String>),
    /// It was removed.
    Deleted,
}

/// What happened to a deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentFact {
    /// A user created it, merged into it, took parts away or set a scale: what is wanted now. Instances and
    /// resolved environments of services that stay are part of it.
    Stated(Box<Deployment>),
    /// A service changed its phase.
    PhaseChanged {
        /// The cluster.
        cluster: String,
        /// The breed's name.
        service: String,
        /// The new phase.
        phase: Phase,
    },
    /// Something outside changed what runs of a service.
    InstancesObserved {
        /// The cluster.
        cluster: String,
        /// The breed's name.
        service: String,
        /// The new list.
        instances: Vec<Instance>,
    },
    /// The variables of a service were interpolated.
    EnvironmentResolved {
        /// The cluster.
        cluster: String,
        /// The breed's name.
        service: String,
        /// Keyed as in the breed.
        environment: IndexMap<String, String>,
    },
    /// The last instance of an undeployed service is gone; the service disappears, and an empty cluster with it.
    ServiceRemoved {
        /// The cluster.
        cluster: String,
        /// The breed's name.
        service: String,
    },
    /// The last service is gone; the deployment disappears.
    Deleted,
}

impl Fact {
    /// The artifact whose revision this fact moves; `None` for what Segue itself finds out, which moves none.
    pub fn revises(&self) -> Option<ArtifactKey> {
        match self {
            Fact::Static(fact) => Some(fact.key()),
            Fact::Gateway { name, fact } => match fact {
                GatewayFact::Stored(_) | GatewayFact::Deleted => {
                    Some(ArtifactKey::new(Kind::Gateway, name))
                }
                GatewayFact::Published
                | GatewayFact::PortAssigned(_)
                | GatewayFact::RoutesDisabled(_)
                | GatewayFact::DeployedChanged { .. } => None,
            },
            Fact::Deployment { name, fact } => match fact {
                DeploymentFact::Stated(_) | DeploymentFact::Deleted => {
                    Some(ArtifactKey::new(Kind::Deployment, name))
                }
                DeploymentFact::PhaseChanged { .. }
                | DeploymentFact::InstancesObserved { .. }
                | DeploymentFact::EnvironmentResolved { .. }
                | DeploymentFact::ServiceRemoved { .. } => None,
            },
            Fact::Escalated { .. } | Fact::ConfigurationTemplate { .. } => None,
        }
    }
}

impl StaticFact {
    /// The artifact that the fact is about.
    pub fn key(&self) -> ArtifactKey {
        match self {
            StaticFact::BlueprintStored(blueprint) => {
                ArtifactKey::new(Kind::Blueprint, &blueprint.name)
            }
            StaticFact::BreedStored(breed) => ArtifactKey::new(Kind::Breed, &breed.name),
            StaticFact::ScaleStored(scale) => ArtifactKey::new(Kind::Scale, &scale.name),
            StaticFact::ConditionStored(condition) => {
                ArtifactKey::new(Kind::Condition, &condition.name)
            }
            StaticFact::RewriteStored(rewrite) => ArtifactKey::new(Kind::Rewrite, &rewrite.name),
            StaticFact::RouteStored(route) => ArtifactKey::new(Kind::Route, &route.name),
            StaticFact::TemplateStored(template) => {
                ArtifactKey::new(Kind::Template, &template.name)
            }
            StaticFact::EscalationStored(escalation) => {
                ArtifactKey::new(Kind::Escalation, &escalation.name)
            }
            StaticFact::SlaStored(sla) => ArtifactKey::new(Kind::Sla, &sla.name),
            StaticFact::Deleted(key) => key.clone(),
        }
    }
}
