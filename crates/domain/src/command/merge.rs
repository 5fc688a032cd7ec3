//! Merges the clusters of a body into a deployment (runtime, 6.3 to 6.5).

use super::prepare::{PreparedCluster, PreparedService, effective_arguments, own_arguments};
use super::{Rules, gateways, references, slas};
use crate::artifact::{
    Blueprint, Cluster, Deployment, Gateway, GatewayName, Intention, Metadata, Percentage, Phase,
    PhaseName, Port, PortType, Route, RoutePath, Service, Status, Traits,
};
use crate::dsl::{self, pointer_segment, printed_variables, split_alias};
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{State, raw_variable, satisfying};
use indexmap::IndexMap;
use time::OffsetDateTime;

/// The deployment `name` with `body` merged in: what is wanted from now on.
pub(super) fn deployment(
    old: Option<&Deployment>,
    name: &str,
    body: &Blueprint,
    clusters: &IndexMap<String, PreparedCluster>,
    rules: &Rules,
    now: OffsetDateTime,
) -> Deployment {
    let empty = || Deployment {
        name: name.to_owned(),
        metadata: Metadata::default(),
        clusters: IndexMap::new(),
        environment_variables: Traits::new(),
        dialects: Metadata::default(),
    };
    let before = old.cloned().unwrap_or_else(empty);
    let mut merged = before.clone();
    overlay(&mut merged.metadata, &body.metadata);
    overlay(&mut merged.dialects, &body.dialects);
    // What was printed stands for what it came from, also while variables are found out anew.
    let printed = [printed_variables(&before), printed_variables(&as_it_was_told(&before))];
    let is_new = |(key, value): &(&String, &Option<String>)| {
        printed.iter().all(|printed| printed.get(*key) != Some(*value))
    };
    let given = body.environment_variables.iter().filter(is_new);
    merged.environment_variables.extend(given.map(|(key, value)| (key.clone(), value.clone())));
    for (cluster_name, prepared) in clusters {
        let cluster = cluster(before.clusters.get(cluster_name), prepared, rules, now);
        merged.clusters.insert(cluster_name.clone(), cluster);
    }
    restate_changed(&before, &mut merged, clusters, now);
    resolve_dependencies(&mut merged);
    redirect(&before, &mut merged, now);
    forget_former(&before, &mut merged);
    merged
}

/// A value that was told stands for its text only as long as that is the same: else going back to it would be no change.
fn forget_former(before: &Deployment, merged: &mut Deployment) {
    if merged.services().all(|(_, service)| service.former_environment.is_empty()) {
        return;
    }
    let after = merged.clone();
    for (cluster_name, cluster) in &mut merged.clusters {
        for service in &mut cluster.services {
            let name = &service.breed.name;
            let both = before.service(cluster_name, name).zip(after.service(cluster_name, name));
            let Some((old, new)) = both else { continue };
            service.former_environment.retain(|key, _| {
                raw_variable(before, cluster_name, old, key)
                    == raw_variable(&after, cluster_name, new, key)
            });
        }
    }
}

/// `deployment` with the variables that its services had last.
fn as_it_was_told(deployment: &Deployment) -> Deployment {
    let mut told = deployment.clone();
    for service in told.clusters.values_mut().flat_map(|cluster| &mut cluster.services) {
        if service.environment.is_none() && !service.former_environment.is_empty() {
            service.environment = Some(service.former_environment.clone());
        }
    }
    told
}

/// States the intention anew of services that depend on another cluster than before, where an earlier one satisfies their
/// dependency now: they get its address.
fn redirect(before: &Deployment, merged: &mut Deployment, now: OffsetDateTime) {
    for (cluster_name, cluster) in &mut merged.clusters {
        for service in cluster.services.iter_mut().filter(|service| !service.is_undeploying()) {
            let Some(old) = before.service(cluster_name, &service.breed.name) else { continue };
            let is_elsewhere = service.dependencies.iter().any(|(alias, cluster)| {
                old.dependencies.get(alias).is_some_and(|before| before != cluster)
            });
            if is_elsewhere {
                service.forget_environment();
                service.status = stated(Intention::Deployment, now);
            }
        }
    }
}

/// The internal gateways that `deployment` has after the merge, with completed weights.
pub(super) fn internal_gateways(
    state: &State,
    deployment: &Deployment,
    clusters: &IndexMap<String, PreparedCluster>,
    rules: &Rules,
) -> Result<Vec<Gateway>> {
    let mut all = Vec::new();
    for (cluster_name, prepared) in clusters {
        let cluster = &deployment.clusters[cluster_name];
        let services = || cluster.services.iter().filter(|service| !service.is_undeploying());
        let mut ports: IndexMap<&String, PortType> = IndexMap::new();
        for (port, kind) in services()
            .flat_map(|service| &service.breed.ports)
            .map(|(port, value)| (port, value.kind))
        {
            ports.entry(port).or_insert(kind);
        }
        for (port, kind) in ports {
            let name = format!("{}/{cluster_name}/{port}", deployment.name);
            let behind = services().filter(|service| service.breed.ports.contains_key(port));
            let behind: Vec<&str> = behind.map(|service| service.breed.name.as_str()).collect();
            let paths = behind
                .iter()
                .map(|breed| RoutePath::of([&deployment.name, cluster_name, breed, port]));
            let given = prepared.gateways.get(port);
            let mut gateway = internal_gateway(state.gateway(&name), given, &name, kind, paths);
            complete_internal(&mut gateway, cluster_name, port, kind, rules)?;
            all.push(gateway);
        }
    }
    Ok(all)
}

/// The external gateways of `body`, named after the deployment.
pub(super) fn external_gateways(
    state: &State,
    deployment: &Deployment,
    body: &Blueprint,
    rules: &Rules,
) -> Result<Vec<Gateway>> {
    let mut all = Vec::new();
    for entry in &body.gateways {
        let pointer = format!("/gateways/{}", pointer_segment(&entry.key));
        let mut gateway = entry.gateway.clone();
        gateway.name = external_name(deployment, &entry.key, &pointer)?;
        references::resolve(state, &mut gateway, &pointer)?;
        Problems::check(dsl::condition_problems(&gateway, gateway.port.kind, &pointer).collect())?;
        for (path, route) in std::mem::take(&mut gateway.routes) {
            let full = external_path(deployment, &path, &pointer)?;
            gateway.routes.insert(full, route);
        }
        gateways::complete(&mut gateway, rules).map_err(|problems| {
            problems.map(|problem| Problem {
                pointer: format!("{pointer}{}", problem.pointer),
                ..problem
            })
        })?;
        gateways::keep_assigned_port(state, &mut gateway);
        gateways::check_port(state, &gateway, Some(&deployment.name)).map_err(|problems| {
            problems.map(|problem| Problem { pointer: pointer.clone(), ..problem })
        })?;
        all.push(gateway);
    }
    Ok(all)
}

/// A fresh status: `intention` is stated now.
pub(super) fn stated(intention: Intention, now: OffsetDateTime) -> Status {
    let phase = Phase { name: PhaseName::Initiated, since: now, notification: None };
    Status { intention, since: now, phase }
}

fn cluster(
    old: Option<&Cluster>,
    prepared: &PreparedCluster,
    rules: &Rules,
    now: OffsetDateTime,
) -> Cluster {
    let mut cluster = old.cloned().unwrap_or_else(|| Cluster {
        metadata: Metadata::default(),
        host: rules.gateway_host.clone(),
        services: Vec::new(),
        sla: None,
        health_checks: None,
        network: None,
        dialects: Metadata::default(),
    });
    overlay(&mut cluster.metadata, &prepared.metadata);
    overlay(&mut cluster.dialects, &prepared.dialects);
    cluster.sla = slas::merged(cluster.sla.take(), prepared.sla.as_ref());
    if prepared.health_checks.is_some() {
        cluster.health_checks.clone_from(&prepared.health_checks);
    }
    if prepared.network.is_some() {
        cluster.network.clone_from(&prepared.network);
    }
    for service in &prepared.services {
        match cluster.services.iter_mut().find(|old| old.breed.name == service.breed.name) {
            Some(old) => merge_service(old, service, rules),
            None => cluster.services.push(new_service(service, rules, now)),
        }
    }
    cluster
}

fn new_service(prepared: &PreparedService, rules: &Rules, now: OffsetDateTime) -> Service {
    Service {
        status: stated(Intention::Deployment, now),
        breed: prepared.breed.clone(),
        environment_variables: prepared.environment_variables.clone(),
        environment: None,
        former_environment: IndexMap::new(),
        scale: prepared.scale.unwrap_or(rules.default_scale),
        arguments: effective_arguments(
            rules,
            &prepared.breed,
            &own_arguments(rules, &prepared.breed, &prepared.arguments),
        ),
        dependencies: IndexMap::new(),
        health_checks: prepared.health_checks.clone(),
        network: prepared.network.clone(),
        dialects: prepared.dialects.clone(),
        instances: Vec::new(),
    }
}

fn merge_service(service: &mut Service, prepared: &PreparedService, rules: &Rules) {
    let kept = prepared.arguments.is_empty() || prepared.arguments == service.arguments;
    if !kept || service.breed != prepared.breed {
        let own = if kept {
            own_arguments(rules, &service.breed, &service.arguments)
        } else {
            own_arguments(rules, &prepared.breed, &prepared.arguments)
        };
        service.arguments = effective_arguments(rules, &prepared.breed, &own);
    }
    // An equal one may have its keys in another order, which would roll the service.
    if service.breed != prepared.breed {
        service.breed = prepared.breed.clone();
    }
    // What was printed is the interpolated value; sent back, it stands for the text that it came from.
    let environment = service.environment.as_ref().unwrap_or(&service.former_environment);
    let printed: IndexMap<String, String> = environment
        .iter()
        .map(|(key, value)| (split_alias(key).0.to_owned(), value.clone()))
        .collect();
    for (name, value) in &prepared.environment_variables {
        if value.is_none() || printed.get(name) != value.as_ref() {
            service.environment_variables.insert(name.clone(), value.clone());
        }
    }
    overlay(&mut service.dialects, &prepared.dialects);
    if let Some(scale) = prepared.scale {
        service.scale = scale;
    }
    if prepared.health_checks.is_some() {
        service.health_checks.clone_from(&prepared.health_checks);
    }
    if prepared.network.is_some() {
        service.network.clone_from(&prepared.network);
    }
}

/// States the intention anew of services that are named and differ, or that are failed or on their way out
/// (runtime, 6.4).
fn restate_changed(
    before: &Deployment,
    merged: &mut Deployment,
    named: &IndexMap<String, PreparedCluster>,
    now: OffsetDateTime,
) {
    let after = merged.clone();
    for (cluster_name, prepared) in named {
        for named in &prepared.services {
            let Some(old) = before.service(cluster_name, &named.breed.name) else { continue };
            let Some(service) = merged.service_mut(cluster_name, &named.breed.name) else {
                continue;
            };
            let redefined = Definition::of(before, cluster_name, old)
                != Definition::of(&after, cluster_name, service);
            // The gateways that its variables name went with it, and the new ones get other ports.
            if redefined || old.is_undeploying() {
                service.forget_environment();
            }
            let resting = !old.is_undeploying() && old.status.phase.name != PhaseName::Failed;
            if redefined || old.scale != service.scale || !resting {
                service.status = stated(Intention::Deployment, now);
            }
        }
    }
}

/// What makes a running service differ, besides its scale (decisions, 38).
#[derive(PartialEq)]
struct Definition<'a> {
    breed: &'a crate::artifact::Breed,
    variables: &'a Traits,
    inherited_variables: Vec<(&'a String, &'a Option<String>)>,
    arguments: &'a [crate::artifact::Argument],
    health_checks: [&'a Option<Vec<crate::artifact::HealthCheck>>; 2],
    network: [&'a Option<String>; 2],
    dialects: [&'a Metadata; 3],
}

impl<'a> Definition<'a> {
    fn of(deployment: &'a Deployment, cluster_name: &str, service: &'a Service) -> Self {
        let cluster = &deployment.clusters[cluster_name];
        let prefix = format!("{cluster_name}.");
        let inherited =
            deployment.environment_variables.iter().filter(|(key, _)| key.starts_with(&prefix));
        Self {
            breed: &service.breed,
            variables: &service.environment_variables,
            inherited_variables: inherited.collect(),
            arguments: &service.arguments,
            health_checks: [&cluster.health_checks, &service.health_checks],
            network: [&cluster.network, &service.network],
            dialects: [&deployment.dialects, &cluster.dialects, &service.dialects],
        }
    }
}

/// `dependencies` of `service`: alias to cluster, for each dependency that a service of `deployment` satisfies.
pub(super) fn dependencies(deployment: &Deployment, service: &Service) -> IndexMap<String, String> {
    let satisfied = service.breed.dependencies.iter().filter_map(|(alias, breed)| {
        let (cluster, _) = satisfying(deployment, breed.name())?;
        Some((alias.clone(), cluster.to_owned()))
    });
    satisfied.collect()
}

fn resolve_dependencies(deployment: &mut Deployment) {
    let clusters_by_dependency: Vec<(String, String, IndexMap<String, String>)> = deployment
        .services()
        .map(|(cluster, service)| {
            let resolved = dependencies(deployment, service);
            (cluster.to_owned(), service.breed.name.clone(), resolved)
        })
        .collect();
    for (cluster, breed, dependencies) in clusters_by_dependency {
        if let Some(service) = deployment.service_mut(&cluster, &breed) {
            service.dependencies = dependencies;
        }
    }
}

/// The gateway of a cluster's port: the body's settings, else the old ones, else new. Its routes are `paths`; a
/// service merged into a running cluster gets 0 % unless the body says otherwise.
fn internal_gateway(
    old: Option<&Gateway>,
    given: Option<&Gateway>,
    name: &str,
    kind: PortType,
    paths: impl Iterator<Item = RoutePath>,
) -> Gateway {
    let base = given.or(old);
    let routes = paths.map(|path| {
        let short = RoutePath::parse(path.segments()[2]);
        let settings = base.and_then(|gateway| {
            gateway.routes.get(&path).or_else(|| gateway.routes.get(short.as_ref()?)).cloned()
        });
        let absent = match (given, old) {
            (None, Some(_)) => Route { weight: Some(Percentage::ZERO), ..Route::default() },
            (Some(_), _) | (None, None) => Route::default(),
        };
        (path, settings.unwrap_or(absent))
    });
    Gateway {
        name: name.to_owned(),
        metadata: base.map(|gateway| gateway.metadata.clone()).unwrap_or_default(),
        port: Port::new(old.map_or(0, |gateway| gateway.port.number), kind),
        sticky: base.and_then(|gateway| gateway.sticky),
        virtual_hosts: base.map(|gateway| gateway.virtual_hosts.clone()).unwrap_or_default(),
        routes: routes.collect(),
    }
}

fn complete_internal(
    gateway: &mut Gateway,
    cluster: &str,
    port: &str,
    kind: PortType,
    rules: &Rules,
) -> Result<()> {
    let pointer =
        format!("/clusters/{}/gateways/{}", pointer_segment(cluster), pointer_segment(port));
    if kind == PortType::Tcp && gateway.sticky.is_some() {
        let detail =
            format!("port '{port}' of cluster '{cluster}' is tcp, where nothing can be sticky");
        return Err(Problem::new(ProblemKind::StickyPortType, format!("{pointer}/sticky"), detail)
            .hint("leave sticky out, or declare the port as http")
            .into());
    }
    let short = |path: &RoutePath| match path.segments()[..] {
        [_, _, service, _] => RoutePath::parse(service),
        _ => None,
    };
    let routes = gateway.routes.iter();
    let routes = routes.map(|(path, route)| (short(path).unwrap_or(path.clone()), route.clone()));
    let printed = Gateway { routes: routes.collect(), ..gateway.clone() };
    Problems::check(dsl::condition_problems(&printed, kind, &pointer).collect())?;
    gateways::complete(gateway, rules).map_err(|problems| {
        problems.map(|problem| Problem {
            kind: ProblemKind::UnsupportedRouteWeight,
            pointer: format!("{pointer}{}", problem.pointer),
            ..problem
        })
    })
}

/// The name of the external gateway `key`; blueprints that were stored long ago may hold keys that make none.
fn external_name(deployment: &Deployment, key: &str, pointer: &str) -> Result<String> {
    let name = format!("{}/{key}", deployment.name);
    if matches!(GatewayName::parse(&name), Some(GatewayName::External { .. })) {
        return Ok(name);
    }
    let detail = format!("'{key}' is no name of an entry");
    Err(Problem::new(ProblemKind::UnsupportedGatewayName, pointer, detail)
        .hint("store the blueprint with a port or a general name as key")
        .into())
}

/// The full path of an external route: `cluster/port` below the deployment.
fn external_path(deployment: &Deployment, path: &RoutePath, pointer: &str) -> Result<RoutePath> {
    if path.external().is_some() {
        return Ok(path.clone());
    }
    let wrong = |detail: String| {
        let pointer = format!("{pointer}/routes/{}", pointer_segment(path.as_str()));
        Problem::new(ProblemKind::UnresolvedGatewayPort, pointer, detail).hint("write CLUSTER/PORT")
    };
    let segments = path.segments();
    let (cluster, port) = match segments[..] {
        [cluster, port] => (cluster, port),
        [own, cluster, port] if own == deployment.name => (cluster, port),
        _ => {
            return Err(wrong(format!(
                "route '{}' is not of the form CLUSTER/PORT",
                path.as_str()
            ))
            .into());
        }
    };
    let Some(found) = deployment.clusters.get(cluster) else {
        return Err(wrong(format!("there is no cluster '{cluster}'")).into());
    };
    let mut staying = found.services.iter().filter(|service| !service.is_undeploying());
    if !staying.any(|service| service.breed.ports.contains_key(port)) {
        return Err(wrong(format!("no service of cluster '{cluster}' has a port '{port}'")).into());
    }
    Ok(RoutePath::of([&deployment.name, cluster, port]))
}

/// What is equal stays as it is, since the order of its keys would roll services.
fn overlay(base: &mut Metadata, over: &Metadata) {
    for (key, value) in over {
        if base.get(key) != Some(value) {
            base.insert(key.clone(), value.clone());
        }
    }
}
