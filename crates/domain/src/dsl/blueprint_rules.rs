//! The rules of a blueprint as a whole (documents, section 12.6), checked on the typed blueprint.

use super::{
    breed_rules::{Declared, value_syntax_problem},
    common,
    gateway::sticky_problem,
    reader::RuleProblem,
    routes,
    sla::unknown_targets,
    tree::pointer_segment as segment,
};
use crate::{
    artifact::{
        Blueprint, BlueprintCluster, BlueprintService, Breed, PortType, RoutePath, SlaReference,
        value::{self, ValuePart},
    },
    problem::{Problem, ProblemKind},
};
use std::collections::{HashMap, HashSet};

/// The order of the rules.
pub(super) mod rank {
    pub const GATEWAY_PORTS: u8 = 1;
    pub const VARIABLES: u8 = 2;
    pub const VALUE_SYNTAX: u8 = 3;
    pub const REFERENCES: u8 = 4;
    pub const SERVICE_ROUTES: u8 = 5;
    pub const WEIGHTS: u8 = 6;
    pub const STICKY: u8 = 7;
    pub const CONDITIONS: u8 = 8;
    pub const DUPLICATE_PORTS: u8 = 9;
    pub const INTERNAL_PORTS: u8 = 10;
    pub const ANONYMOUS_PORTS: u8 = 11;
    pub const SERVICES: u8 = 12;
    pub const ARGUMENTS: u8 = 13;
    pub const UNIQUE_BREEDS: u8 = 14;
    pub const SERVICE_VARIABLES: u8 = 15;
    pub const DEPENDENCIES: u8 = 16;
    pub const RECURSION: u8 = 17;
    pub const HEALTH_CHECKS: u8 = 18;
    pub const SLA_TARGETS: u8 = 19;
}

/// What a blueprint is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// To be stored: all rules hold.
    Stored,
    /// To be merged into a deployment: whether dependencies are there is checked after the merge.
    Deployment,
    /// To be taken away from a deployment: what else is there, such as routes and variables, need not fit to it.
    Removal,
}

/// The rules that `blueprint` breaks.
pub(super) fn broken(blueprint: &Blueprint, scope: Scope) -> Vec<RuleProblem> {
    let mut broken = Vec::new();
    let mut add = |rank: u8, problems: Vec<Problem>| {
        broken.extend(problems.into_iter().map(|problem| RuleProblem { rank, problem }));
    };
    if scope == Scope::Removal {
        add(rank::SERVICES, no_service(blueprint));
        return broken;
    }
    let clusters = declarations(blueprint);
    add(rank::GATEWAY_PORTS, gateway_ports(blueprint, &clusters));
    add(rank::VARIABLES, variables(blueprint, &clusters));
    add(rank::VALUE_SYNTAX, value_syntax(blueprint));
    add(rank::REFERENCES, references(blueprint, &clusters));
    add(rank::SERVICE_ROUTES, service_routes(blueprint));
    add(rank::WEIGHTS, weights(blueprint));
    add(rank::STICKY, sticky(blueprint));
    add(rank::CONDITIONS, conditions(blueprint, &clusters));
    add(rank::DUPLICATE_PORTS, duplicate_ports(blueprint));
    add(rank::INTERNAL_PORTS, internal_ports(blueprint));
    add(rank::ANONYMOUS_PORTS, anonymous_ports(blueprint));
    add(rank::SERVICES, no_service(blueprint));
    add(rank::ARGUMENTS, arguments(blueprint));
    add(rank::UNIQUE_BREEDS, unique_breeds(blueprint));
    add(rank::SERVICE_VARIABLES, service_variables(blueprint));
    if scope == Scope::Stored {
        add(rank::DEPENDENCIES, dependencies(blueprint));
    }
    add(rank::RECURSION, recursion(blueprint));
    add(rank::HEALTH_CHECKS, health_checks(blueprint, &clusters));
    if scope == Scope::Stored {
        add(rank::SLA_TARGETS, sla_targets(blueprint));
    }
    broken
}

fn inline_breeds(cluster: &BlueprintCluster) -> impl Iterator<Item = &Breed> {
    cluster.services.iter().filter_map(|service| service.breed.inline())
}

fn all_inline(cluster: &BlueprintCluster) -> bool {
    cluster.services.iter().all(|service| service.breed.inline().is_some())
}

/// What the breeds of a cluster declare.
pub(super) struct Declarations<'b> {
    /// Whether that is all, since no breed is referred to.
    complete: bool,
    declared: Declared<'b>,
}

/// By cluster: what its inline breeds declare.
pub(super) fn declarations(blueprint: &Blueprint) -> Clusters<'_> {
    let clusters = blueprint.clusters.iter();
    clusters
        .map(|(name, cluster)| {
            let declared = Declared::by(inline_breeds(cluster));
            (name.as_str(), Declarations { complete: all_inline(cluster), declared })
        })
        .collect()
}

type Clusters<'b> = HashMap<&'b str, Declarations<'b>>;

/// All services with their canonical pointers.
fn services(blueprint: &Blueprint) -> impl Iterator<Item = (String, &BlueprintService)> {
    blueprint.clusters.iter().flat_map(|(name, cluster)| {
        let pointer = format!("/clusters/{}/services", segment(name));
        let services = cluster.services.iter().enumerate();
        services.map(move |(index, service)| (format!("{pointer}/{index}"), service))
    })
}

/// All inline breeds of services with their canonical pointers.
fn breeds(blueprint: &Blueprint) -> impl Iterator<Item = (String, &Breed)> {
    services(blueprint).filter_map(|(pointer, service)| {
        Some((format!("{pointer}/breed"), service.breed.inline()?))
    })
}

fn gateway_ports(blueprint: &Blueprint, clusters: &Clusters<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for entry in &blueprint.gateways {
        for path in entry.gateway.routes.keys() {
            if let Some(detail) = unresolved_path(clusters, path) {
                let pointer =
                    format!("/gateways/{}/routes/{}", segment(&entry.key), segment(path.as_str()));
                let problem = Problem::new(ProblemKind::UnresolvedGatewayPort, pointer, detail);
                problems
                    .push(problem.hint("write CLUSTER/PORT, as the cluster's breeds declare it"));
            }
        }
    }
    problems
}

/// Why `path` of an external gateway leads nowhere.
fn unresolved_path(clusters: &Clusters<'_>, path: &RoutePath) -> Option<String> {
    let segments = path.segments();
    let [cluster_name, port] = segments[..] else {
        return Some(format!("'{}' is not of the form cluster/port", path.as_str()));
    };
    let Some(cluster) = clusters.get(cluster_name) else {
        return Some(format!("there is no cluster '{cluster_name}'"));
    };
    let is_declared = !cluster.complete || cluster.declared.ports.contains(port);
    (!is_declared)
        .then(|| format!("no breed of the cluster '{cluster_name}' declares the port '{port}'"))
}

fn variables(blueprint: &Blueprint, clusters: &Clusters<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for key in blueprint.environment_variables.keys() {
        let detail = unresolved_variable(clusters, key);
        let pointer = format!("/environment_variables/{}", segment(key));
        problems.extend(detail.map(|detail| {
            Problem::new(ProblemKind::UnresolvedEnvironmentVariable, pointer, detail)
                .hint("write CLUSTER.NAME, where a breed of the cluster declares the variable")
        }));
    }
    problems
}

/// Why the variable `key` of the blueprint names nothing.
pub(super) fn unresolved_variable(clusters: &Clusters<'_>, key: &str) -> Option<String> {
    let Some((cluster_name, name)) =
        key.split_once('.').filter(|(_, name)| !name.is_empty() && !name.contains('.'))
    else {
        return Some(format!("'{key}' is not of the form cluster.NAME"));
    };
    let Some(cluster) = clusters.get(cluster_name) else {
        return Some(format!("there is no cluster '{cluster_name}'"));
    };
    let is_declared = !cluster.complete || cluster.declared.variables.contains(name);
    (!is_declared)
        .then(|| format!("no breed of the cluster '{cluster_name}' declares the variable '{name}'"))
}

/// The variables of the blueprint with their canonical pointers.
fn blueprint_values(blueprint: &Blueprint) -> impl Iterator<Item = (String, &str)> {
    let variables = blueprint.environment_variables.iter();
    variables.filter_map(|(key, value)| {
        Some((format!("/environment_variables/{}", segment(key)), value.as_deref()?))
    })
}

fn service_values(blueprint: &Blueprint) -> impl Iterator<Item = (String, &str)> {
    services(blueprint).flat_map(|(pointer, service)| {
        let variables = service.environment_variables.iter();
        variables.filter_map(move |(key, value)| {
            Some((format!("{pointer}/environment_variables/{}", segment(key)), value.as_deref()?))
        })
    })
}

fn breed_values(blueprint: &Blueprint) -> impl Iterator<Item = (String, &str)> {
    breeds(blueprint).flat_map(|(pointer, breed)| {
        let variables = breed.environment_variables.iter();
        variables.filter_map(move |(key, value)| {
            Some((format!("{pointer}/environment_variables/{}", segment(key)), value.as_deref()?))
        })
    })
}

fn value_syntax(blueprint: &Blueprint) -> Vec<Problem> {
    let values = blueprint_values(blueprint).chain(service_values(blueprint));
    values.filter_map(|(pointer, text)| value_syntax_problem(text, pointer)).collect()
}

fn references(blueprint: &Blueprint, clusters: &Clusters<'_>) -> Vec<Problem> {
    let values = blueprint_values(blueprint).chain(breed_values(blueprint));
    let mut problems = Vec::new();
    for (pointer, text) in values {
        let parts = value::parse(text).unwrap_or_default();
        let detail = parts.iter().find_map(|part| unresolved_reference(clusters, part));
        problems.extend(detail.map(|detail| {
            Problem::new(ProblemKind::UnresolvedEnvironmentVariable, pointer, detail)
                .hint("declare it in a breed of that cluster, or write '$$' for a '$'")
        }));
    }
    problems
}

/// Why `part`, which names a cluster of this blueprint, refers to nothing.
fn unresolved_reference(clusters: &Clusters<'_>, part: &ValuePart) -> Option<String> {
    let (alias, group, name) = match part {
        ValuePart::Trait { alias, group, name } => (alias, group.as_str(), name),
        ValuePart::Address { alias, port } => (alias, "ports", port),
        ValuePart::Literal(_)
        | ValuePart::Local(_)
        | ValuePart::Host { .. }
        | ValuePart::Global { .. } => return None,
    };
    let cluster = clusters.get(alias.as_str()).filter(|cluster| cluster.complete)?;
    let is_declared = group == "hosts" || cluster.declared.has(group, name);
    (!is_declared)
        .then(|| format!("no breed of the cluster '{alias}' declares '{name}' among its {group}"))
}

/// The cluster gateways with cluster, port name and canonical pointer.
fn internal_gateways(
    blueprint: &Blueprint,
) -> impl Iterator<Item = (&BlueprintCluster, &str, &crate::artifact::Gateway, String)> {
    blueprint.clusters.iter().flat_map(|(name, cluster)| {
        cluster.gateways.iter().map(move |(port, gateway)| {
            let pointer = format!("/clusters/{}/gateways/{}", segment(name), segment(port));
            (cluster, port.as_str(), gateway, pointer)
        })
    })
}

fn service_routes(blueprint: &Blueprint) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, cluster) in &blueprint.clusters {
        let services: HashSet<&str> =
            cluster.services.iter().map(|service| service.breed.name()).collect();
        let gateways = cluster.gateways.iter();
        let paths = gateways
            .flat_map(|(port, gateway)| gateway.routes.keys().map(move |path| (port, path)));
        for (port, path) in paths.filter(|(_, path)| !services.contains(path.as_str())) {
            let (cluster, port) = (segment(name), segment(port));
            let pointer =
                format!("/clusters/{cluster}/gateways/{port}/routes/{}", segment(path.as_str()));
            let detail = format!("the cluster has no service '{}'", path.as_str());
            let problem = Problem::new(ProblemKind::UnresolvedServiceRoute, pointer, detail);
            problems.push(
                problem.hint("a route inside a cluster is the breed name of one of its services"),
            );
        }
    }
    problems
}

fn weights(blueprint: &Blueprint) -> Vec<Problem> {
    let external = blueprint
        .gateways
        .iter()
        .map(|entry| (&entry.gateway, format!("/gateways/{}", segment(&entry.key))));
    let internal = internal_gateways(blueprint).map(|(_, _, gateway, pointer)| (gateway, pointer));
    external
        .chain(internal)
        .filter_map(|(gateway, pointer)| {
            routes::weights_problem(&gateway.routes, &format!("{pointer}/routes"))
        })
        .collect()
}

fn sticky(blueprint: &Blueprint) -> Vec<Problem> {
    let external = blueprint.gateways.iter().filter_map(|entry| {
        sticky_problem(
            &entry.gateway,
            entry.gateway.port.kind,
            &format!("/gateways/{}", segment(&entry.key)),
        )
    });
    let internal = internal_gateways(blueprint).filter_map(|(cluster, port, gateway, pointer)| {
        sticky_problem(gateway, port_kind(cluster, port), &pointer)
    });
    external.chain(internal).collect()
}

/// What is spoken at a port of a cluster, as far as its inline breeds say.
fn port_kind(cluster: &BlueprintCluster, port: &str) -> PortType {
    let mut ports = inline_breeds(cluster).filter_map(|breed| breed.ports.get(port));
    ports.next().map_or(PortType::Http, |port| port.kind)
}

/// Conditions in place at tcp ports; those of external gateways count where they lead to a port of an inline breed.
fn conditions(blueprint: &Blueprint, clusters: &Clusters<'_>) -> Vec<Problem> {
    let is_declared = |path: &RoutePath| match path.segments()[..] {
        [cluster, port] => {
            clusters.get(cluster).is_some_and(|cluster| cluster.declared.ports.contains(port))
        }
        _ => false,
    };
    let mut problems = Vec::new();
    for entry in &blueprint.gateways {
        let mut gateway = entry.gateway.clone();
        gateway.routes.retain(|path, _| is_declared(path));
        let pointer = format!("/gateways/{}", segment(&entry.key));
        problems.extend(routes::condition_problems(&gateway, gateway.port.kind, &pointer));
    }
    for (cluster, port, gateway, pointer) in internal_gateways(blueprint) {
        problems.extend(routes::condition_problems(gateway, port_kind(cluster, port), &pointer));
    }
    problems
}

fn duplicate_ports(blueprint: &Blueprint) -> Vec<Problem> {
    let mut seen = HashSet::new();
    let assigned = blueprint.gateways.iter().filter(|entry| entry.gateway.port.number != 0);
    assigned
        .filter(|entry| !seen.insert(entry.gateway.port.number))
        .map(|entry| {
            let pointer = format!("/gateways/{}", segment(&entry.key));
            let detail =
                format!("another gateway has the port {} already", entry.gateway.port.number);
            Problem::new(ProblemKind::DuplicateGatewayPort, pointer, detail)
                .hint("choose another port")
        })
        .collect()
}

fn internal_ports(blueprint: &Blueprint) -> Vec<Problem> {
    if !blueprint.clusters.values().all(all_inline) {
        return Vec::new();
    }
    internal_gateways(blueprint)
        .filter(|(cluster, port, ..)| {
            !port.is_empty() && !inline_breeds(cluster).any(|breed| breed.ports.contains_key(*port))
        })
        .map(|(_, port, _, pointer)| {
            let detail = format!("no breed of the cluster declares the port '{port}'");
            Problem::new(ProblemKind::UnresolvedGatewayPort, pointer, detail)
                .hint("write the name of a port that a breed of the cluster declares")
        })
        .collect()
}

fn anonymous_ports(blueprint: &Blueprint) -> Vec<Problem> {
    internal_gateways(blueprint)
        .filter(|(cluster, port, ..)| {
            port.is_empty() && inline_breeds(cluster).any(|breed| breed.ports.len() > 1)
        })
        .map(|(_, _, _, pointer)| {
            let detail = "the gateway names no port, but a breed of the cluster has several";
            let problem =
                Problem::new(ProblemKind::IllegalAnonymousRoutingPortMapping, pointer, detail);
            problem.hint("write the name of the port above the gateway")
        })
        .collect()
}

fn no_service(blueprint: &Blueprint) -> Vec<Problem> {
    if services(blueprint).next().is_some() {
        return Vec::new();
    }
    let problem =
        Problem::new(ProblemKind::NoService, "/clusters", "there is no service in any cluster");
    vec![problem.hint("write clusters: {NAME: BREED}")]
}

fn arguments(blueprint: &Blueprint) -> Vec<Problem> {
    services(blueprint)
        .flat_map(|(pointer, service)| {
            common::argument_value_problems(&service.arguments, &format!("{pointer}/arguments"))
        })
        .collect()
}

fn unique_breeds(blueprint: &Blueprint) -> Vec<Problem> {
    let mut seen = HashSet::new();
    services(blueprint)
        .filter(|(_, service)| !seen.insert(service.breed.name()))
        .map(|(pointer, service)| {
            let detail =
                format!("the breed '{}' is used by another service already", service.breed.name());
            Problem::new(
                ProblemKind::NonUniqueBlueprintBreedReference,
                format!("{pointer}/breed"),
                detail,
            )
            .hint("store the breed a second time under another name")
        })
        .collect()
}

fn service_variables(blueprint: &Blueprint) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (pointer, service) in services(blueprint) {
        let Some(breed) = service.breed.inline() else { continue };
        let declared = Declared::by([breed]);
        for (name, value) in &service.environment_variables {
            let (kind, hint, detail) = if value.is_none() {
                (
                    ProblemKind::MissingEnvironmentVariable,
                    "give it a value, or leave it out",
                    format!("the variable '{name}' has no value"),
                )
            } else if declared.variables.contains(name.as_str()) {
                continue;
            } else {
                let detail = format!("the breed '{}' declares no variable '{name}'", breed.name);
                let hint = "declare it in the breed, or leave it out";
                (ProblemKind::UnresolvedDependencyInTraitValue, hint, detail)
            };
            problems.push(
                Problem::new(
                    kind,
                    format!("{pointer}/environment_variables/{}", segment(name)),
                    detail,
                )
                .hint(hint),
            );
        }
    }
    problems
}

/// A trailing `*` matches a prefix, as it does when a deployment is wired, so that exports are blueprints.
fn dependencies(blueprint: &Blueprint) -> Vec<Problem> {
    let names: HashSet<&str> =
        services(blueprint).map(|(_, service)| service.breed.name()).collect();
    let mut problems = Vec::new();
    for (pointer, breed) in breeds(blueprint) {
        for (alias, dependency) in &breed.dependencies {
            let wanted = dependency.name();
            let (is_there, hint) = match wanted.strip_suffix('*') {
                Some(prefix) => (
                    names.iter().any(|name| name.starts_with(prefix)),
                    format!("add a cluster with a breed whose name begins with '{prefix}'"),
                ),
                None => {
                    (names.contains(wanted), format!("add a cluster with the breed '{wanted}'"))
                }
            };
            if !is_there {
                let pointer = format!("{pointer}/dependencies/{}", segment(alias));
                let detail = format!("no service of the blueprint runs '{wanted}'");
                let problem = Problem::new(ProblemKind::UnresolvedBreedDependency, pointer, detail);
                problems.push(problem.hint(hint));
            }
        }
    }
    problems
}

/// Cycles among the inline breeds of the blueprint, each reported where it is closed.
fn recursion(blueprint: &Blueprint) -> Vec<Problem> {
    let breeds: HashMap<&str, (String, &Breed)> =
        breeds(blueprint).map(|(pointer, breed)| (breed.name.as_str(), (pointer, breed))).collect();
    let mut done: HashSet<&str> = HashSet::new();
    let mut problems = Vec::new();
    for (_, start) in self::breeds(blueprint) {
        // A path of breeds, each with the index of its dependency that comes next.
        let mut path: Vec<(&str, usize)> = vec![(&start.name, 0)];
        while let Some((name, next)) = path.last_mut() {
            let name = *name;
            let dependency =
                breeds.get(name).and_then(|(_, breed)| breed.dependencies.get_index(*next));
            *next += 1;
            let Some((alias, dependency)) = dependency else {
                done.insert(name);
                path.pop();
                continue;
            };
            let target = dependency.name();
            if path.iter().any(|(on_path, _)| *on_path == target) {
                let pointer = breeds.get(name).map_or("", |(pointer, _)| pointer);
                let pointer = format!("{pointer}/dependencies/{}", segment(alias));
                let detail = format!("'{target}' depends on itself by way of '{name}'");
                let problem = Problem::new(ProblemKind::RecursiveDependencies, pointer, detail);
                problems.push(problem.hint("take one of the dependencies out"));
            } else if !done.contains(target) {
                path.push((target, 0));
            }
        }
    }
    problems
}

fn sla_targets(blueprint: &Blueprint) -> Vec<Problem> {
    let exists = |target: &str| blueprint.clusters.contains_key(target);
    let clusters = blueprint.clusters.iter();
    let slas = clusters.filter_map(|(name, cluster)| Some((name, cluster.sla.as_ref()?)));
    slas.flat_map(|(name, sla)| {
        let escalations = match sla {
            SlaReference::Reference { escalations, .. } => escalations,
            SlaReference::Inline(sla) => &sla.escalations,
        };
        let pointer = format!("/clusters/{}/sla/escalations", segment(name));
        unknown_targets(escalations, &pointer, &exists)
    })
    .collect()
}

fn health_checks(blueprint: &Blueprint, clusters: &Clusters<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (name, cluster) in &blueprint.clusters {
        let pointer = format!("/clusters/{}/health_checks", segment(name));
        let declares = |port: &str| {
            clusters
                .get(name.as_str())
                .is_none_or(|cluster| !cluster.complete || cluster.declared.ports.contains(port))
        };
        problems.extend(common::health_check_problems(
            cluster.health_checks.as_deref(),
            &pointer,
            declares,
        ));
    }
    for (pointer, service) in services(blueprint) {
        let pointer = format!("{pointer}/health_checks");
        let declares =
            |port: &str| service.breed.inline().is_none_or(|breed| breed.ports.contains_key(port));
        problems.extend(common::health_check_problems(
            service.health_checks.as_deref(),
            &pointer,
            declares,
        ));
    }
    problems
}
