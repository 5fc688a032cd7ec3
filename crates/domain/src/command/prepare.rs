//! Prepares the body of a deployment: references are resolved, defaults filled in, rules checked (runtime, 6.2).

use super::Rules;
use crate::artifact::{
    Argument, Blueprint, BlueprintCluster, BlueprintService, Breed, BreedReference, ClusterSla,
    Gateway, HealthCheck, Metadata, Scale, ScaleReference, Traits,
};
use crate::problem::{Problem, ProblemKind, Problems, Result};
pub(super) use crate::state::not_found;
use crate::state::{State, resolve_sla};
use indexmap::IndexMap;

/// A cluster of a body with nothing left to resolve.
pub(super) struct PreparedCluster {
    pub metadata: Metadata,
    pub services: Vec<PreparedService>,
    pub gateways: IndexMap<String, Gateway>,
    pub sla: Option<ClusterSla>,
    pub health_checks: Option<Vec<HealthCheck>>,
    pub network: Option<String>,
    pub dialects: Metadata,
}

/// A service of a body with nothing left to resolve; `None` is "not said", so that a merge keeps what was.
pub(super) struct PreparedService {
    pub breed: Breed,
    /// Whether the breed was written in place, or taken from the stored ones.
    pub inline: bool,
    pub environment_variables: Traits,
    pub scale: Option<Scale>,
    pub arguments: Vec<Argument>,
    pub health_checks: Option<Vec<HealthCheck>>,
    pub network: Option<String>,
    pub dialects: Metadata,
}

/// Resolves all clusters of `body`. All missing references are reported together.
pub(super) fn clusters(
    state: &State,
    body: &Blueprint,
) -> Result<IndexMap<String, PreparedCluster>> {
    let mut problems = Vec::new();
    let mut clusters = IndexMap::new();
    for (name, cluster) in &body.clusters {
        match prepare_cluster(state, name, cluster) {
            Ok(cluster) => drop(clusters.insert(name.clone(), cluster)),
            Err(found) => problems.extend(found.iter().cloned()),
        }
    }
    Problems::check(problems)?;
    Ok(clusters)
}

/// The effective arguments: the installation's, the breed's, the service's; of all `privileged` only the last
/// survives, in front (documents, 2.4).
pub(super) fn effective_arguments(
    rules: &Rules,
    breed: &Breed,
    service: &[Argument],
) -> Vec<Argument> {
    let all: Vec<&Argument> =
        rules.default_arguments.iter().chain(&breed.arguments).chain(service).collect();
    let is_privileged = |argument: &&&Argument| argument.key == "privileged";
    let privileged = all.iter().rfind(is_privileged);
    let others = all.iter().filter(|argument| !is_privileged(argument));
    privileged.into_iter().chain(others).map(|argument| (*argument).clone()).collect()
}

/// What of `given` is the service's own: the effective arguments, as they are printed, stand for what they were made
/// from, so that what is printed can be sent back.
pub(super) fn own_arguments(rules: &Rules, breed: &Breed, given: &[Argument]) -> Vec<Argument> {
    let inherited = effective_arguments(rules, breed, &[]);
    let is_privileged = |argument: &&Argument| argument.key == "privileged";
    let others = |all: &[Argument]| -> Vec<Argument> {
        all.iter().filter(|argument| !is_privileged(argument)).cloned().collect()
    };
    let Some(own) = others(given).strip_prefix(&others(&inherited)[..]).map(<[Argument]>::to_vec)
    else {
        return given.to_vec();
    };
    let privileged = given.iter().rfind(is_privileged);
    let privileged = privileged.filter(|given| inherited.iter().find(is_privileged) != Some(given));
    privileged.cloned().into_iter().chain(own).collect()
}

fn prepare_cluster(
    state: &State,
    name: &str,
    cluster: &BlueprintCluster,
) -> Result<PreparedCluster> {
    let mut problems = Vec::new();
    let mut services = Vec::new();
    for (index, service) in cluster.services.iter().enumerate() {
        let pointer = format!("/clusters/{name}/services/{index}");
        match prepare_service(state, &pointer, service) {
            Ok(service) => services.push(service),
            Err(found) => problems.extend(found.iter().cloned()),
        }
    }
    let pointer = format!("/clusters/{name}/sla");
    let sla = match cluster.sla.as_ref().map(|sla| resolve_sla(state, sla, &pointer)) {
        Some(Ok(sla)) => Some(sla),
        Some(Err(found)) => {
            problems.extend(found.iter().cloned());
            None
        }
        None => None,
    };
    Problems::check(problems)?;
    let gateways =
        named_gateways(&format!("/clusters/{name}/gateways"), &cluster.gateways, &services)?;
    Ok(PreparedCluster {
        metadata: cluster.metadata.clone(),
        services,
        gateways,
        sla,
        health_checks: cluster.health_checks.clone(),
        network: cluster.network.clone(),
        dialects: cluster.dialects.clone(),
    })
}

fn prepare_service(
    state: &State,
    pointer: &str,
    service: &BlueprintService,
) -> Result<PreparedService> {
    let (breed, inline) = match &service.breed {
        BreedReference::Inline(breed) => ((**breed).clone(), true),
        BreedReference::Reference(name) => {
            let stored = state.breeds().get(name);
            let stored =
                stored.ok_or_else(|| not_found(&format!("{pointer}/breed"), "breed", name))?;
            ((*stored.artifact).clone(), false)
        }
    };
    let scale = match &service.scale {
        None => None,
        Some(ScaleReference::Inline(scale)) => Some(*scale),
        Some(ScaleReference::Reference(name)) => {
            let stored = state.scales().get(name);
            Some(
                stored
                    .ok_or_else(|| not_found(&format!("{pointer}/scale"), "scale", name))?
                    .artifact
                    .scale,
            )
        }
    };
    Ok(PreparedService {
        breed,
        inline,
        environment_variables: service.environment_variables.clone(),
        scale,
        arguments: service.arguments.clone(),
        health_checks: service.health_checks.clone(),
        network: service.network.clone(),
        dialects: service.dialects.clone(),
    })
}

/// The gateway without port name belongs to the one port that the cluster's services have; it can be no other.
fn named_gateways(
    pointer: &str,
    gateways: &IndexMap<String, Gateway>,
    services: &[PreparedService],
) -> Result<IndexMap<String, Gateway>> {
    let mut ports: Vec<&String> =
        services.iter().flat_map(|service| service.breed.ports.keys()).collect();
    ports.sort();
    ports.dedup();
    let name = |given: &String| -> Result<String> {
        match (given.as_str(), &ports[..]) {
            ("", [only]) => Ok((*only).clone()),
            ("", _) => {
                let detail =
                    "a gateway without port name needs services with exactly one port name";
                let problem =
                    Problem::new(ProblemKind::IllegalAnonymousRoutingPortMapping, pointer, detail);
                Err(problem.hint("write the port name: gateways: {PORT: {routes: ...}}").into())
            }
            _ if ports.contains(&given) => Ok(given.clone()),
            _ => {
                let detail = format!("no service of the cluster has a port '{given}'");
                Err(Problem::new(
                    ProblemKind::UnresolvedGatewayPort,
                    format!("{pointer}/{given}"),
                    detail,
                )
                .into())
            }
        }
    };
    gateways.iter().map(|(given, gateway)| Ok((name(given)?, gateway.clone()))).collect()
}
