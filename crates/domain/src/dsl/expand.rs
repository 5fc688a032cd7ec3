//! References and what they stand for, one in place of the other (documents, section 14).
//!
//! Expansion is bounded: breeds that refer to one another can stand for far more than they hold.

use super::{representation, tree::pointer_segment, write_blueprint, write_breed};
use crate::artifact::{
    ArtifactKey, Blueprint, Breed, BreedReference, Gateway, Kind, RewriteReference, Route,
    RouteCondition, ScaleReference, SlaReference,
};
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{State, resolve_sla};
use serde_json::Value;

/// How many breeds an expanded document holds at most.
const BREEDS_MAX: usize = 10_000;
/// How deep dependencies are followed at most.
const DEPTH_MAX: usize = 64;

/// In which form references are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// As they were written.
    #[default]
    AsWritten,
    /// What they stand for is put in their place, recursively.
    Expanded,
    /// Breeds written in place are turned into references.
    Only,
}

impl References {
    /// What the two parameters ask for; both together ask for nothing.
    pub fn of(expand: bool, only: bool) -> Self {
        match (expand, only) {
            (true, false) => Self::Expanded,
            (false, true) => Self::Only,
            (true, true) | (false, false) => Self::AsWritten,
        }
    }
}

/// The document of a stored artifact with its references in another form, or `None` when there is none. Only blueprints
/// and breeds hold what this changes; what is missing is named.
pub fn representation_with(
    state: &State,
    key: &ArtifactKey,
    references: References,
    gateway_host: &str,
) -> Result<Option<Value>> {
    let document = match (key.kind, references) {
        (Kind::Blueprint, References::Expanded | References::Only) => {
            let Some(mut blueprint) = state.blueprint(&key.name) else { return Ok(None) };
            match references {
                References::Expanded => expand_blueprint(state, &mut blueprint)?,
                _ => refer_to_breeds(&mut blueprint),
            }
            write_blueprint(&blueprint)
        }
        (Kind::Breed, References::Expanded | References::Only) => {
            let Some(stored) = state.breeds().get(&key.name) else { return Ok(None) };
            let mut breed = (*stored.artifact).clone();
            match references {
                References::Expanded => expand_breed(state, &mut breed)?,
                _ => refer_to_dependencies(&mut breed),
            }
            write_breed(&breed)
        }
        _ => return Ok(representation(state, key, gateway_host)),
    };
    Ok(Some(document))
}

fn refer_to_breeds(blueprint: &mut Blueprint) {
    for service in blueprint.clusters.values_mut().flat_map(|cluster| &mut cluster.services) {
        service.breed = BreedReference::Reference(service.breed.name().to_owned());
    }
}

fn refer_to_dependencies(breed: &mut Breed) {
    for dependency in breed.dependencies.values_mut() {
        *dependency = BreedReference::Reference(dependency.name().to_owned());
    }
}

fn expand_breed(state: &State, breed: &mut Breed) -> Result<()> {
    let mut expansion = Expansion::new(state);
    let mut path = vec![breed.name.clone()];
    expansion.dependencies(breed, &mut path, "");
    expansion.finish()
}

fn expand_blueprint(state: &State, blueprint: &mut Blueprint) -> Result<()> {
    let mut expansion = Expansion::new(state);
    for entry in &mut blueprint.gateways {
        let pointer = format!("/gateways/{}", pointer_segment(&entry.key));
        expansion.gateway(&mut entry.gateway, &pointer);
    }
    for (name, cluster) in &mut blueprint.clusters {
        let pointer = format!("/clusters/{}", pointer_segment(name));
        for (index, service) in cluster.services.iter_mut().enumerate() {
            let pointer = format!("{pointer}/services/{index}");
            expansion.breed(&mut service.breed, &mut Vec::new(), &format!("{pointer}/breed"));
            if let Some(scale) = &mut service.scale {
                expansion.scale(scale, &format!("{pointer}/scale"));
            }
        }
        if let Some(sla) = &mut cluster.sla {
            expansion.sla(sla, &format!("{pointer}/sla"));
        }
        for (port, gateway) in &mut cluster.gateways {
            let pointer = format!("{pointer}/gateways/{}", pointer_segment(port));
            expansion.gateway(gateway, &pointer);
        }
    }
    expansion.finish()
}

/// One expansion under way.
struct Expansion<'s> {
    state: &'s State,
    /// How many breeds it put in place.
    breeds: usize,
    problems: Vec<Problem>,
}

impl<'s> Expansion<'s> {
    fn new(state: &'s State) -> Self {
        Self { state, breeds: 0, problems: Vec::new() }
    }

    fn finish(self) -> Result<()> {
        Problems::check(self.problems)
    }

    /// A breed and all that it depends on; `path` leads to it.
    fn breed(&mut self, breed: &mut BreedReference, path: &mut Vec<String>, pointer: &str) {
        let name = breed.name().to_owned();
        // A wildcard stands for whatever runs when it is deployed.
        if !path.is_empty() && name.ends_with('*') && breed.inline().is_none() {
            return;
        }
        if path.contains(&name) {
            let detail = format!("'{name}' depends on itself: {} -> {name}", path.join(" -> "));
            let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
            self.problems.push(problem.hint("take one of the dependencies out"));
            return;
        }
        if let BreedReference::Reference(_) = breed {
            let Some(stored) = self.state.breeds().get(&name) else {
                self.missing("breed", &name, pointer);
                return;
            };
            *breed = BreedReference::Inline(Box::new((*stored.artifact).clone()));
        }
        self.breeds += 1;
        if let BreedReference::Inline(breed) = breed
            && self.is_within_limits(path, pointer)
        {
            path.push(name);
            self.dependencies(breed, path, pointer);
            path.pop();
        }
    }

    fn dependencies(&mut self, breed: &mut Breed, path: &mut Vec<String>, pointer: &str) {
        for (alias, dependency) in &mut breed.dependencies {
            let pointer = format!("{pointer}/dependencies/{}", pointer_segment(alias));
            self.breed(dependency, path, &pointer);
        }
    }

    fn is_within_limits(&mut self, path: &[String], pointer: &str) -> bool {
        let is_within = self.breeds <= BREEDS_MAX && path.len() < DEPTH_MAX;
        // Once is enough: whatever else is met is too much as well.
        if !is_within && !self.problems.iter().any(|problem| problem.kind == TOO_MUCH) {
            let detail = format!(
                "the expanded document would hold more than {BREEDS_MAX} breeds, or dependencies more than {DEPTH_MAX} deep"
            );
            let problem = Problem::new(TOO_MUCH, pointer, detail);
            self.problems.push(problem.hint("leave expand_references out and read breed by breed"));
        }
        is_within
    }

    fn scale(&mut self, scale: &mut ScaleReference, pointer: &str) {
        let ScaleReference::Reference(name) = scale else { return };
        if let Some(stored) = self.state.scales().get(name) {
            *scale = ScaleReference::Inline(stored.artifact.scale);
        } else {
            let name = name.clone();
            self.missing("scale", &name, pointer);
        }
    }

    /// An SLA and its escalations; those written beside the reference win.
    fn sla(&mut self, sla: &mut SlaReference, pointer: &str) {
        match resolve_sla(self.state, sla, pointer) {
            Ok(resolved) => *sla = SlaReference::Inline(Box::new(resolved.sla)),
            Err(problems) => self.problems.extend(problems.iter().cloned()),
        }
    }

    fn gateway(&mut self, gateway: &mut Gateway, pointer: &str) {
        for (path, route) in &mut gateway.routes {
            let pointer = format!("{pointer}/routes/{}", pointer_segment(path.as_str()));
            self.route(route, &pointer);
        }
    }

    fn route(&mut self, route: &mut Route, pointer: &str) {
        if let Some(name) = route.reference.clone() {
            let Some(stored) = self.state.routes().get(&name) else {
                self.missing("route", &name, pointer);
                return;
            };
            *route = stored.artifact.route.clone();
        }
        if let Some(RouteCondition::Reference(name)) = &route.condition {
            if let Some(stored) = self.state.conditions().get(name) {
                route.condition = Some(RouteCondition::Inline(stored.artifact.condition.clone()));
            } else {
                let name = name.clone();
                self.missing("condition", &name, &format!("{pointer}/condition"));
            }
        }
        for (index, rewrite) in route.rewrites.iter_mut().enumerate() {
            let RewriteReference::Reference(name) = rewrite else { continue };
            if let Some(stored) = self.state.rewrites().get(name) {
                *rewrite = RewriteReference::Inline(stored.artifact.rewrite.clone());
            } else {
                let name = name.clone();
                self.missing("rewrite", &name, &format!("{pointer}/rewrites/{index}"));
            }
        }
    }

    fn missing(&mut self, kind: &str, name: &str, pointer: &str) {
        let detail = format!("there is no {kind} '{name}'");
        let problem = Problem::new(ProblemKind::ArtifactNotFound, pointer, detail);
        self.problems.push(problem.hint(format!("store the {kind} '{name}' first")));
    }
}

/// What an expansion that is too large is called: the parameter asks for more than an answer holds.
const TOO_MUCH: ProblemKind = ProblemKind::InvalidParameter;
