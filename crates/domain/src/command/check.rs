//! The checks of a deployment after merging or removal (documents, 13.4).

use crate::artifact::value::{self, ValuePart};
use crate::artifact::{Blueprint, Deployment, Gateway, Service, is_general_name};
use crate::dsl::{self, split_alias};
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{raw_variable, satisfying};
use std::collections::BTreeMap;

/// A deployment's name is a general one.
pub(super) fn deployment_name(name: &str) -> Result<()> {
    if is_general_name(name) {
        return Ok(());
    }
    let problem =
        Problem::new(ProblemKind::IllegalName, "/name", format!("'{name}' is no legal name"));
    Err(problem.hint("names have no white space and none of / [ ]").into())
}

/// What must hold after `body` was merged in. All problems are reported together.
pub(super) fn deployment(deployment: &Deployment, body: &Blueprint) -> Result<()> {
    let mut problems = Vec::new();
    inherited_variables(deployment, body, &mut problems);
    for (cluster, service) in deployment.services().filter(|(_, service)| !service.is_undeploying())
    {
        let pointer = service_pointer(deployment, cluster, service);
        variables(deployment, cluster, service, &pointer, &mut problems);
        dependencies(deployment, service, &pointer, &mut problems);
    }
    unique_breeds(deployment, &mut problems);
    sla_targets(deployment, |cluster| body.clusters.contains_key(cluster), &mut problems);
    cycles(deployment, &mut problems);
    Problems::check(problems)
}

/// What must hold for the services that stay after a removal.
pub(super) fn remaining(deployment: &Deployment) -> Result<()> {
    let mut problems = Vec::new();
    for (cluster, service) in deployment.services().filter(|(_, service)| !service.is_undeploying())
    {
        dependencies(
            deployment,
            service,
            &service_pointer(deployment, cluster, service),
            &mut problems,
        );
    }
    sla_targets(deployment, |cluster| stays(deployment, cluster), &mut problems);
    Problems::check(problems)
}

/// No two entries share a port.
pub(super) fn external_ports(gateways: &[Gateway]) -> Result<()> {
    let mut by_number: BTreeMap<u16, &str> = BTreeMap::new();
    for gateway in gateways.iter().filter(|gateway| gateway.port.number != 0) {
        if let Some(other) = by_number.insert(gateway.port.number, &gateway.name) {
            let detail = format!(
                "gateways '{other}' and '{}' share port {}",
                gateway.name, gateway.port.number
            );
            let problem = Problem::new(ProblemKind::DuplicateGatewayPort, "/gateways", detail);
            return Err(problem.hint("choose another port for one of them").into());
        }
    }
    Ok(())
}

/// Variables of the blueprint level name a trait of their cluster.
fn inherited_variables(deployment: &Deployment, body: &Blueprint, problems: &mut Vec<Problem>) {
    for key in body.environment_variables.keys() {
        let declared = key.split_once('.').is_some_and(|(cluster, name)| {
            let services = deployment
                .clusters
                .get(cluster)
                .map(|cluster| &cluster.services[..])
                .unwrap_or_default();
            services.iter().any(|service| declares(service, name))
        });
        if !declared {
            let detail = format!("'{key}' names no variable of a service");
            let problem = Problem::new(
                ProblemKind::UnresolvedEnvironmentVariable,
                format!("/environment_variables/{}", escape(key)),
                detail,
            );
            problems.push(problem.hint(
                "write CLUSTER.VARIABLE, where a breed of the cluster declares the variable",
            ));
        }
    }
}

/// Every variable has a value, and every variable given is declared.
fn variables(
    deployment: &Deployment,
    cluster: &str,
    service: &Service,
    pointer: &str,
    problems: &mut Vec<Problem>,
) {
    for key in service.breed.environment_variables.keys() {
        let (name, _) = split_alias(key);
        if raw_variable(deployment, cluster, service, key).is_none() {
            let detail =
                format!("variable '{name}' of breed '{}' has no value", service.breed.name);
            let problem = Problem::new(ProblemKind::UnresolvedVariableValue, pointer, detail);
            problems.push(problem.hint(format!(
                "give it at the service, or as '{cluster}.{name}' of the blueprint"
            )));
        }
    }
    for name in service.environment_variables.keys() {
        if !service
            .breed
            .environment_variables
            .keys()
            .any(|key| key == name || split_alias(key).0 == name)
        {
            let pointer = format!("{pointer}/environment_variables/{}", escape(name));
            let detail = format!("breed '{}' declares no variable '{name}'", service.breed.name);
            let kind = ProblemKind::UnresolvedDependencyInTraitValue;
            let problem = Problem::new(kind, pointer, detail);
            problems.push(problem.hint("declare it in the breed, or leave it out"));
        }
    }
}

/// Every dependency is satisfied, and what is referred to exists there.
fn dependencies(
    deployment: &Deployment,
    service: &Service,
    pointer: &str,
    problems: &mut Vec<Problem>,
) {
    for (alias, breed) in &service.breed.dependencies {
        if satisfying(deployment, breed.name()).is_none() {
            let detail = format!(
                "breed '{}' depends on '{}' as '{alias}', which no service runs",
                service.breed.name,
                breed.name()
            );
            let hint = format!("add a cluster with a service of breed '{}'", breed.name());
            problems
                .push(Problem::new(ProblemKind::UnresolvedDependency, pointer, detail).hint(hint));
        }
    }
    for text in service.breed.environment_variables.values().flatten() {
        for part in value::parse(text).unwrap_or_default() {
            let (alias, name) = match part {
                ValuePart::Trait { alias, group, name } if group == "ports" => (alias, name),
                ValuePart::Address { alias, port } => (alias, port),
                _ => continue,
            };
            let Some((_, dependency)) = service
                .breed
                .dependencies
                .get(&alias)
                .and_then(|breed| satisfying(deployment, breed.name()))
            else {
                continue;
            };
            if !dependency.breed.ports.contains_key(&name) {
                let detail = format!(
                    "'${alias}.ports.{name}': breed '{}' has no port '{name}'",
                    dependency.breed.name
                );
                let kind = ProblemKind::UnresolvedDependencyInTraitValue;
                let problem = Problem::new(kind, pointer, detail);
                problems.push(problem.hint("write the name of a port that it declares"));
            }
        }
    }
}

/// Scale escalations of the `concerned` clusters name clusters that stay.
fn sla_targets(
    deployment: &Deployment,
    concerned: impl Fn(&str) -> bool,
    problems: &mut Vec<Problem>,
) {
    let exists = |target: &str| stays(deployment, target);
    for (name, cluster) in deployment.clusters.iter().filter(|(name, _)| concerned(name)) {
        let Some(sla) = &cluster.sla else { continue };
        let pointer = format!("/clusters/{}/sla/escalations", escape(name));
        problems.extend(dsl::unknown_targets(&sla.sla.escalations, &pointer, &exists));
    }
}

/// Whether a service of the cluster is wanted.
pub(super) fn stays(deployment: &Deployment, cluster: &str) -> bool {
    let cluster = deployment.clusters.get(cluster);
    cluster.is_some_and(|cluster| cluster.services.iter().any(|found| !found.is_undeploying()))
}

/// No breed stands twice among the services that stay.
fn unique_breeds(deployment: &Deployment, problems: &mut Vec<Problem>) {
    let mut clusters: BTreeMap<&str, &str> = BTreeMap::new();
    for (cluster, service) in deployment.services().filter(|(_, service)| !service.is_undeploying())
    {
        if let Some(other) = clusters.insert(&service.breed.name, cluster) {
            let pointer = service_pointer(deployment, cluster, service);
            let detail = format!(
                "breed '{}' stands in clusters '{other}' and '{cluster}'",
                service.breed.name
            );
            let problem = Problem::new(ProblemKind::NonUniqueBreedReference, pointer, detail);
            problems.push(problem.hint("store the breed a second time under another name"));
        }
    }
}

/// No service depends on itself, directly or through others.
fn cycles(deployment: &Deployment, problems: &mut Vec<Problem>) {
    for (cluster, service) in deployment.services() {
        if let Some(path) = way_back(deployment, service) {
            let pointer = service_pointer(deployment, cluster, service);
            let detail = format!("dependencies form a cycle: {}", path.join(" -> "));
            let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
            problems.push(problem.hint("take one of the dependencies out"));
        }
    }
}

/// The breeds on a way from `start` through dependencies back to it. Every breed is visited once, and nothing recurs,
/// however many services there are.
fn way_back<'a>(deployment: &'a Deployment, start: &'a Service) -> Option<Vec<&'a str>> {
    let goal = start.breed.name.as_str();
    let mut reached_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut open = vec![start];
    while let Some(from) = open.pop() {
        for dependency in from.breed.dependencies.values() {
            let Some((_, next)) = satisfying(deployment, dependency.name()) else { continue };
            let name = next.breed.name.as_str();
            if reached_from.contains_key(name) {
                continue;
            }
            reached_from.insert(name, &from.breed.name);
            if name == goal {
                let mut path = vec![goal];
                let mut at = reached_from[goal];
                while at != goal {
                    path.push(at);
                    at = reached_from[at];
                }
                path.push(goal);
                path.reverse();
                return Some(path);
            }
            open.push(next);
        }
    }
    None
}

fn declares(service: &Service, name: &str) -> bool {
    let breed = &service.breed;
    breed.environment_variables.keys().any(|key| split_alias(key).0 == name)
        || breed.ports.contains_key(name)
        || breed.constants.contains_key(name)
}

fn service_pointer(deployment: &Deployment, cluster: &str, service: &Service) -> String {
    let services = &deployment.clusters[cluster].services;
    let index = services.iter().position(|other| std::ptr::eq(other, service)).unwrap_or_default();
    format!("/clusters/{}/services/{index}", escape(cluster))
}

/// A key as a segment of a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
