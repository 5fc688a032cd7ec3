//! The canonical form of deployments, and their export as blueprints (documents, sections 13.2 and 13.3).

use super::{
    breed_rules::Declared,
    common::split_alias,
    write::{
        anonymous_gateway, arguments, head, insert_health_checks, insert_network, route, traits,
        write_breed, write_inline_scale,
    },
};
use crate::artifact::{
    Cluster, Deployment, Gateway, Instance, Intention, LookupClass, RoutePath, Service, Status,
    Traits, lookup_name, route_lookup_name,
};
use indexmap::IndexMap;
use serde_json::{Map, Value as Json, json};
use std::collections::HashMap;
use time::{OffsetDateTime, UtcOffset, format_description::FormatItem, macros::format_description};

/// What is printed with a deployment and kept elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeploymentView {
    /// Cluster to port name to internal gateway, with its name and its current routes.
    pub gateways: IndexMap<String, IndexMap<String, Gateway>>,
    /// `cluster.port` to the port number of the internal gateway; 0 while it is unassigned.
    pub ports: IndexMap<String, u16>,
    /// The external gateways in the order of the blueprint; only the export shows them.
    pub external: Vec<ExternalGatewayView>,
}

/// An external gateway of a deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalGatewayView {
    /// The key in the blueprint.
    pub key: String,
    /// The gateway with its name and its current routes.
    pub gateway: Gateway,
}

/// Prints a deployment.
pub fn write_deployment(deployment: &Deployment, view: &DeploymentView) -> Json {
    let mut out = head(&deployment.name, "deployment", &deployment.metadata);
    out.insert("lookup_name".into(), lookup_name(LookupClass::Deployment, &deployment.name).into());
    let clusters = deployment.clusters.iter().map(|(name, cluster)| {
        let services = cluster.services.iter().map(service).collect();
        (name.clone(), self::cluster(name, cluster, services, view))
    });
    out.insert("clusters".into(), Json::Object(clusters.collect()));
    let ports = view.ports.iter().map(|(key, number)| (key.clone(), number.to_string().into()));
    out.insert("ports".into(), Json::Object(ports.collect()));
    out.insert("environment_variables".into(), traits(&deployment.environment_variables));
    let hosts = deployment
        .clusters
        .iter()
        .map(|(name, cluster)| (name.clone(), cluster.host.clone().into()));
    out.insert("hosts".into(), Json::Object(hosts.collect()));
    out.insert("dialects".into(), deployment.dialects.clone().into());
    out.into()
}

/// Prints a deployment as the blueprint that it would come from.
pub fn write_deployment_as_blueprint(deployment: &Deployment, view: &DeploymentView) -> Json {
    let mut out = head(&deployment.name, "blueprint", &deployment.metadata);
    let mut gateways = Map::new();
    let mut endpoints = Map::new();
    for external in &view.external {
        let (gateway, paths) = exported_gateway(deployment, external);
        for path in paths {
            let key = path.replacen('/', ".", 1);
            endpoints.insert(key, external.gateway.port.text.clone().into());
        }
        gateways.insert(external.key.clone(), gateway);
    }
    out.insert("gateways".into(), gateways.into());
    out.insert("endpoints".into(), endpoints.into());
    let clusters = deployment.clusters.iter().map(|(name, cluster)| {
        let services = cluster.services.iter();
        let services =
            services.map(|service| exported_service(deployment, name, service)).collect();
        (name.clone(), self::cluster(name, cluster, services, view))
    });
    out.insert("clusters".into(), Json::Object(clusters.collect()));
    let clusters = declared(deployment);
    let declared =
        deployment.environment_variables.iter().filter(|(key, _)| is_declared(&clusters, key));
    let declared: Traits = declared.map(|(key, value)| (key.clone(), value.clone())).collect();
    out.insert("environment_variables".into(), traits(&declared));
    out.insert("dialects".into(), deployment.dialects.clone().into());
    out.into()
}

fn cluster(name: &str, cluster: &Cluster, services: Vec<Json>, view: &DeploymentView) -> Json {
    let mut out = Map::new();
    out.insert("metadata".into(), cluster.metadata.clone().into());
    out.insert("services".into(), services.into());
    let gateways = view.gateways.get(name).into_iter().flatten();
    let gateways = gateways.map(|(port, gateway)| (port.clone(), internal_gateway(gateway)));
    out.insert("gateways".into(), Json::Object(gateways.collect()));
    insert_health_checks(&mut out, cluster.health_checks.as_deref());
    insert_network(&mut out, cluster.network.as_deref());
    if let Some(sla) = &cluster.sla {
        out.insert("sla".into(), super::write_sla::inline_sla(&sla.sla).into());
    }
    out.insert("dialects".into(), cluster.dialects.clone().into());
    out.into()
}

/// An internal gateway with short paths: the service of a path with four segments, the last two of one with three.
fn internal_gateway(gateway: &Gateway) -> Json {
    let mut out = without_routes(gateway);
    let routes = gateway.routes.iter().map(|(path, current)| {
        let short = match path.segments()[..] {
            [_, _, service, _] => service.to_owned(),
            [_, cluster, port] => format!("{cluster}/{port}"),
            _ => path.as_str().to_owned(),
        };
        (short, route(route_lookup_name(&gateway.name, path), current).into())
    });
    out.insert("routes".into(), Json::Object(routes.collect()));
    out.into()
}

fn without_routes(gateway: &Gateway) -> Map<String, Json> {
    anonymous_gateway(&Gateway { routes: IndexMap::new(), ..gateway.clone() })
}

fn service(service: &Service) -> Json {
    let mut out = Map::new();
    out.insert("status".into(), status(&service.status));
    out.insert("breed".into(), write_breed(&service.breed));
    let resolved = |environment: &IndexMap<String, String>| {
        environment
            .iter()
            .map(|(name, value)| (split_alias(name).0.to_owned(), Some(value.clone())))
            .collect()
    };
    let variables: Traits = service
        .environment
        .as_ref()
        .map_or_else(|| service.environment_variables.clone(), resolved);
    out.insert("environment_variables".into(), traits(&variables));
    out.insert("scale".into(), write_inline_scale(&service.scale));
    out.insert("instances".into(), service.instances.iter().map(instance).collect());
    out.insert("arguments".into(), arguments(&service.arguments));
    let dependencies = service
        .dependencies
        .iter()
        .map(|(alias, cluster)| (alias.clone(), Json::from(cluster.clone())));
    out.insert("dependencies".into(), Json::Object(dependencies.collect()));
    insert_health_checks(&mut out, service.health_checks.as_deref());
    insert_network(&mut out, service.network.as_deref());
    out.insert("dialects".into(), service.dialects.clone().into());
    out.into()
}

fn status(status: &Status) -> Json {
    let intention = match status.intention {
        Intention::Deployment => "Deployment",
        Intention::Undeployment => "Undeployment",
    };
    let mut phase = Map::new();
    phase.insert("name".into(), status.phase.name.as_str().into());
    phase.insert("since".into(), timestamp(status.phase.since).into());
    if let Some(notification) = &status.phase.notification {
        phase.insert("notification".into(), notification.clone().into());
    }
    json!({"intention": intention, "since": timestamp(status.since), "phase": phase})
}

const TIMESTAMP: &[FormatItem<'_>] =
    format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");

fn timestamp(at: OffsetDateTime) -> String {
    at.to_offset(UtcOffset::UTC)
        .format(&TIMESTAMP)
        .expect("the format asks only for what a timestamp has")
}

fn instance(instance: &Instance) -> Json {
    let ports: Map<_, _> =
        instance.ports.iter().map(|(name, number)| (name.clone(), Json::from(*number))).collect();
    json!({"name": instance.name, "host": instance.host, "ports": ports, "deployed": instance.deployed})
}

/// An external gateway with its routes as `cluster/port`. Routes that lead elsewhere are left out, and then the weights
/// of the others too, since they no longer add up.
fn exported_gateway(
    deployment: &Deployment,
    external: &ExternalGatewayView,
) -> (Json, Vec<String>) {
    let gateway = &external.gateway;
    let own = |path: &RoutePath| match path.segments()[..] {
        [name, cluster, port] if name == deployment.name => Some(RoutePath::of([cluster, port])),
        _ => None,
    };
    let own_routes: IndexMap<RoutePath, _> = gateway
        .routes
        .iter()
        .filter_map(|(path, route)| Some((own(path)?, route.clone())))
        .collect();
    let is_complete = own_routes.len() == gateway.routes.len();
    let routes = own_routes.iter().map(|(path, current)| {
        let mut current = current.clone();
        current.weight = current.weight.filter(|_| is_complete);
        (path.as_str().to_owned(), route(route_lookup_name("", path), &current).into())
    });
    let mut out = Map::new();
    out.insert("port".into(), gateway.port.text.clone().into());
    out.extend(without_routes(gateway));
    out.insert("routes".into(), Json::Object(routes.collect()));
    (out.into(), own_routes.keys().map(|path| path.as_str().to_owned()).collect())
}

fn exported_service(deployment: &Deployment, cluster: &str, service: &Service) -> Json {
    let mut out = Map::new();
    out.insert("breed".into(), write_breed(&service.breed));
    let variables = service.environment_variables.iter();
    let own: Traits = variables
        .filter(|(name, value)| inherited(deployment, cluster, service, name) != value.as_deref())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    out.insert("environment_variables".into(), traits(&own));
    out.insert("scale".into(), write_inline_scale(&service.scale));
    out.insert("arguments".into(), arguments(&service.arguments));
    insert_health_checks(&mut out, service.health_checks.as_deref());
    insert_network(&mut out, service.network.as_deref());
    out.insert("dialects".into(), service.dialects.clone().into());
    out.into()
}

/// The raw value that a variable of `service` would have without the service's own: the blueprint's, else the breed's.
fn inherited<'a>(
    deployment: &'a Deployment,
    cluster: &str,
    service: &'a Service,
    name: &str,
) -> Option<&'a str> {
    if let Some(value) = deployment.environment_variables.get(&format!("{cluster}.{name}")) {
        return value.as_deref();
    }
    let of_breed =
        service.breed.environment_variables.iter().find(|(key, _)| split_alias(key).0 == name);
    of_breed.and_then(|(_, value)| value.as_deref())
}

/// What the breeds of each cluster declare.
fn declared(deployment: &Deployment) -> HashMap<&str, Declared<'_>> {
    let clusters = deployment.clusters.iter();
    clusters
        .map(|(name, cluster)| {
            let breeds = cluster.services.iter().map(|service| &service.breed);
            (name.as_str(), Declared::by(breeds))
        })
        .collect()
}

/// Whether some breed of its cluster declares the variable `cluster.NAME`.
fn is_declared(clusters: &HashMap<&str, Declared<'_>>, key: &str) -> bool {
    key.split_once('.').is_some_and(|(cluster, name)| {
        clusters.get(cluster).is_some_and(|declared| declared.variables.contains(name))
    })
}
