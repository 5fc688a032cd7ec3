//! Applies what happened to artifacts that only users change.

use super::{State, Stored};
use crate::artifact::{
    ArtifactKey, Blueprint, BlueprintCluster, BlueprintService, BreedReference, Kind,
};
use crate::event::{Position, StaticFact};

impl State {
    pub(super) fn apply_static(&mut self, fact: &StaticFact, at: Position) {
        match fact {
            StaticFact::BlueprintStored(blueprint) => {
                self.blueprints
                    .insert(blueprint.name.clone(), Stored::new(at, (**blueprint).clone()));
            }
            StaticFact::BreedStored(breed) => {
                self.breeds.insert(breed.name.clone(), Stored::new(at, (**breed).clone()));
            }
            StaticFact::ScaleStored(scale) => {
                self.scales.insert(scale.name.clone(), Stored::new(at, scale.clone()));
            }
            StaticFact::ConditionStored(condition) => {
                self.conditions.insert(condition.name.clone(), Stored::new(at, condition.clone()));
            }
            StaticFact::RewriteStored(rewrite) => {
                self.rewrites.insert(rewrite.name.clone(), Stored::new(at, rewrite.clone()));
            }
            StaticFact::RouteStored(route) => {
                self.routes.insert(route.name.clone(), Stored::new(at, (**route).clone()));
            }
            StaticFact::TemplateStored(template) => {
                self.templates.insert(template.name.clone(), Stored::new(at, template.clone()));
            }
            StaticFact::EscalationStored(escalation) => {
                let stored = Stored::new(at, (**escalation).clone());
                self.escalations.insert(escalation.name.clone(), stored);
            }
            StaticFact::SlaStored(sla) => {
                self.slas.insert(sla.name.clone(), Stored::new(at, (**sla).clone()));
            }
            StaticFact::Deleted(key) => self.delete(key),
        }
    }

    /// The blueprint `name` with the current breeds in place of the references that can be resolved: a breed changed
    /// later shows changed, a deleted one as a reference (documents, 12.8). `None` when there is no such blueprint.
    pub fn blueprint(&self, name: &str) -> Option<Blueprint> {
        Some(self.with_current_breeds(&self.blueprints.get(name)?.artifact))
    }

    /// `blueprint` with the current breeds in place of the references that were written in place.
    pub fn with_current_breeds(&self, blueprint: &Blueprint) -> Blueprint {
        let mut blueprint = blueprint.clone();
        for service in blueprint.clusters.values_mut().flat_map(|cluster| &mut cluster.services) {
            if let BreedReference::Inline(breed) = &service.breed {
                service.breed = match self.breeds.get(&breed.name) {
                    Some(stored) => BreedReference::Inline(Box::new((*stored.artifact).clone())),
                    None => BreedReference::Reference(breed.name.clone()),
                };
            }
        }
        blueprint.clusters.values_mut().for_each(name_anonymous_gateway);
        blueprint
    }

    /// The revision of an artifact, or `None` when there is none.
    pub fn revision(&self, key: &ArtifactKey) -> Option<Position> {
        let name = key.name.as_str();
        match key.kind {
            Kind::Blueprint => self.blueprints.get(name).map(|stored| stored.revision),
            Kind::Breed => self.breeds.get(name).map(|stored| stored.revision),
            Kind::Condition => self.conditions.get(name).map(|stored| stored.revision),
            Kind::Deployment => self.deployments.get(name).map(|stored| stored.revision),
            Kind::Escalation => self.escalations.get(name).map(|stored| stored.revision),
            Kind::Sla => self.slas.get(name).map(|stored| stored.revision),
            Kind::Gateway => self.gateways.get(name).map(|stored| stored.revision),
            Kind::Rewrite => self.rewrites.get(name).map(|stored| stored.revision),
            Kind::Route => self.routes.get(name).map(|stored| stored.revision),
            Kind::Scale => self.scales.get(name).map(|stored| stored.revision),
            Kind::Template => self.templates.get(name).map(|stored| stored.revision),
        }
    }

    fn delete(&mut self, key: &ArtifactKey) {
        match key.kind {
            Kind::Blueprint => drop(self.blueprints.remove(&key.name)),
            Kind::Breed => drop(self.breeds.remove(&key.name)),
            Kind::Condition => drop(self.conditions.remove(&key.name)),
            Kind::Deployment => drop(self.deployments.remove(&key.name)),
            Kind::Escalation => drop(self.escalations.remove(&key.name)),
            Kind::Sla => drop(self.slas.remove(&key.name)),
            Kind::Gateway => drop(self.gateways.remove(&key.name)),
            Kind::Rewrite => drop(self.rewrites.remove(&key.name)),
            Kind::Route => drop(self.routes.remove(&key.name)),
            Kind::Scale => drop(self.scales.remove(&key.name)),
            Kind::Template => drop(self.templates.remove(&key.name)),
        }
    }
}

/// A gateway without port name gets the name that a reader would give it, now that the breeds may be others.
fn name_anonymous_gateway(cluster: &mut BlueprintCluster) {
    let Some(port) = BlueprintService::only_port(&cluster.services) else { return };
    let named = |key: String| if key.is_empty() { port.to_owned() } else { key };
    if cluster.gateways.contains_key("") && !cluster.gateways.contains_key(port) {
        let gateways = std::mem::take(&mut cluster.gateways).into_iter();
        cluster.gateways = gateways.map(|(key, gateway)| (named(key), gateway)).collect();
    }
}
