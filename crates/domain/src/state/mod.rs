//! The state: the fold of the log that commands are decided against, one for the whole namespace.
//!
//! [`State::apply`] is total: it cannot fail and decides nothing. Copies are cheap, since everything large is shared.

mod deployments;
mod gateways;
mod references;
mod resolve;
mod statics;

pub use gateways::StoredGateway;
pub use references::{not_found, resolve_sla};
pub(crate) use resolve::raw_variable;
pub use resolve::satisfying;

use crate::artifact::{
    Blueprint, Breed, Deployment, Gateway, GatewayName, NamedCondition, NamedEscalation,
    NamedRewrite, NamedRoute, NamedScale, NamedSla, Template,
};
use crate::event::{Fact, Origin, Position, Record};
use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;

/// The fold of the log up to [`State::position`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    position: Position,
    blueprints: OrdMap<String, Stored<Blueprint>>,
    breeds: OrdMap<String, Stored<Breed>>,
    scales: OrdMap<String, Stored<NamedScale>>,
    conditions: OrdMap<String, Stored<NamedCondition>>,
    rewrites: OrdMap<String, Stored<NamedRewrite>>,
    routes: OrdMap<String, Stored<NamedRoute>>,
    templates: OrdMap<String, Stored<Template>>,
    escalations: OrdMap<String, Stored<NamedEscalation>>,
    slas: OrdMap<String, Stored<NamedSla>>,
    gateways: OrdMap<String, StoredGateway>,
    deployments: OrdMap<String, Stored<Deployment>>,
    /// By kind and name of the configuration, with a slash between.
    configuration_templates: OrdMap<String, Arc<String>>,
    /// The last port of the pool that was given away; the search for the next one goes on from here.
    last_assigned_port: u16,
    /// The position of the last escalation event that was acted on.
    escalated: Position,
}

/// An artifact and its revision.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored<T> {
    /// The position of the last record that a user's write to the artifact made.
    pub revision: Position,
    /// The artifact.
    pub artifact: Arc<T>,
}

fn configuration_key(kind: &str, name: &str) -> String {
    format!("{kind}/{name}")
}

impl State {
    /// The position of the last record applied.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Applies the next record. Only facts that the service itself vouches for change anything but the position.
    pub fn apply(&mut self, record: &Record) {
        self.position = record.position;
        match (record.provenance.origin, &record.event.fact) {
            (Origin::Service, Some(Fact::Static(fact))) => self.apply_static(fact, record.position),
            (Origin::Service, Some(Fact::Gateway { name, fact })) => {
                self.apply_gateway(name, fact, record.position);
            }
            (Origin::Service, Some(Fact::Deployment { name, fact })) => {
                self.apply_deployment(name, fact, record.position);
            }
            (Origin::Service, Some(Fact::Escalated { position })) => {
                self.escalated = self.escalated.max(*position);
            }
            (
                Origin::Service,
                Some(Fact::ConfigurationTemplate { kind, name, template: Some(template) }),
            ) => {
                let key = configuration_key(kind, name);
                self.configuration_templates.insert(key, Arc::new(template.clone()));
            }
            (Origin::Service, Some(Fact::ConfigurationTemplate { kind, name, template: None })) => {
                self.configuration_templates.remove(&configuration_key(kind, name));
            }
            (Origin::Service, None) | (Origin::External, _) => {}
        }
    }

    /// Notes that records up to `position` are applied: those without a fact change nothing but that.
    pub fn pass(&mut self, position: Position) {
        self.position = self.position.max(position);
    }

    /// The stored blueprints by name, as they were written; [`State::blueprint`] gives the breeds of today.
    pub fn blueprints(&self) -> &OrdMap<String, Stored<Blueprint>> {
        &self.blueprints
    }

    /// The stored breeds by name.
    pub fn breeds(&self) -> &OrdMap<String, Stored<Breed>> {
        &self.breeds
    }

    /// The stored scales by name.
    pub fn scales(&self) -> &OrdMap<String, Stored<NamedScale>> {
        &self.scales
    }

    /// The stored conditions by name.
    pub fn conditions(&self) -> &OrdMap<String, Stored<NamedCondition>> {
        &self.conditions
    }

    /// The stored rewrites by name.
    pub fn rewrites(&self) -> &OrdMap<String, Stored<NamedRewrite>> {
        &self.rewrites
    }

    /// The stored routes by name.
    pub fn routes(&self) -> &OrdMap<String, Stored<NamedRoute>> {
        &self.routes
    }

    /// The stored templates by name.
    pub fn templates(&self) -> &OrdMap<String, Stored<Template>> {
        &self.templates
    }

    /// The stored escalations by name.
    pub fn escalations(&self) -> &OrdMap<String, Stored<NamedEscalation>> {
        &self.escalations
    }

    /// The stored SLAs by name.
    pub fn slas(&self) -> &OrdMap<String, Stored<NamedSla>> {
        &self.slas
    }

    /// What is used instead of Segue's own templates of configurations, by `<kind>/<name>`.
    pub fn configuration_templates(&self) -> &OrdMap<String, Arc<String>> {
        &self.configuration_templates
    }

    /// What the configuration `name` of a proxy of `kind` is generated from; `None` for Segue's own template.
    pub fn configuration_template(&self, kind: &str, name: &str) -> Option<&Arc<String>> {
        self.configuration_templates.get(&configuration_key(kind, name))
    }

    /// The position of the last escalation event that was acted on; those before it were, too.
    pub fn escalated(&self) -> Position {
        self.escalated
    }

    /// All gateways by name, those that are not published yet included.
    pub fn gateways(&self) -> &OrdMap<String, StoredGateway> {
        &self.gateways
    }

    /// The gateways that users see: all but internal ones before their first service is ready (runtime, 9.2).
    pub fn published_gateways(&self) -> impl Iterator<Item = (&String, &StoredGateway)> {
        self.gateways.iter().filter(|(_, gateway)| gateway.published)
    }

    /// The deployments by name.
    pub fn deployments(&self) -> &OrdMap<String, Stored<Deployment>> {
        &self.deployments
    }

    /// The deployment `name`.
    pub fn deployment(&self, name: &str) -> Option<&Deployment> {
        self.deployments.get(name).map(|stored| &*stored.artifact)
    }

    /// The gateway `name`, published or not.
    pub fn gateway(&self, name: &str) -> Option<&Gateway> {
        self.gateways.get(name).map(|stored| &*stored.gateway)
    }

    /// The gateways named after `deployment`, external and internal ones.
    pub fn gateways_of<'a>(
        &'a self,
        deployment: &'a str,
    ) -> impl Iterator<Item = &'a StoredGateway> {
        let prefix = format!("{deployment}/");
        self.gateways
            .range(prefix.clone()..)
            .take_while(move |(name, _)| name.starts_with(&prefix))
            .filter(move |(name, _)| {
                GatewayName::parse(name).and_then(GatewayName::deployment) == Some(deployment)
            })
            .map(|(_, stored)| stored)
    }

    /// The last port of the pool that was given away; 0 before the first.
    pub fn last_assigned_port(&self) -> u16 {
        self.last_assigned_port
    }

    /// A hash over everything in the state, in lower-case hex: equal states have equal hashes.
    pub fn hash(&self) -> String {
        let mut hasher = Sha256::new();
        serde_json::to_writer(Writer(&mut hasher), self)
            .expect("a state has text keys only and a hasher takes all bytes");
        hasher.finalize().iter().fold(String::new(), |mut digits, byte| {
            // Writing to a text cannot fail.
            let _ = write!(digits, "{byte:02x}");
            digits
        })
    }
}

impl<T> Stored<T> {
    fn new(revision: Position, artifact: T) -> Self {
        Self { revision, artifact: Arc::new(artifact) }
    }
}

// Derived, it would ask for `T: Clone`, which sharing does not need.
impl<T> Clone for Stored<T> {
    fn clone(&self) -> Self {
        Self { revision: self.revision, artifact: Arc::clone(&self.artifact) }
    }
}

struct Writer<'a>(&'a mut Sha256);

impl std::io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
