//! The canonical form of breeds, scales, gateways and blueprints; reading it again gives the same artifact.
//!
//! The order of the keys is part of the form (documents, sections 3, 4, 6, 7 and 12.7).

use crate::artifact::NamedScale;
use crate::artifact::{
    Argument, Blueprint, BlueprintCluster, BlueprintService, Breed, BreedReference, Cpu, Gateway,
    HealthCheck, LookupClass, Metadata, PortType, Route, RoutePath, Scale, ScaleReference, Sticky,
    Traits, lookup_name, route_lookup_name,
};
use indexmap::IndexMap;
use serde_json::{Map, Value as Json, json};

/// What is known of a gateway at run time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayView {
    /// Whether it is the gateway of a cluster's port.
    pub internal: bool,
    /// Whether it takes traffic.
    pub deployed: bool,
    /// Host and port under which it is reached, when it is.
    pub service: Option<(String, u16)>,
    /// The targets of its routes, as far as they are known.
    pub targets: IndexMap<RoutePath, Vec<TargetView>>,
}

/// Where a route ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetView {
    /// At an instance or another gateway.
    Address {
        /// What is there.
        name: String,
        /// The host, when it is known.
        host: Option<String>,
        /// The port.
        port: u16,
    },
    /// At an address outside.
    Url(String),
}

/// Prints a breed.
pub fn write_breed(breed: &Breed) -> Json {
    let mut out = head(&breed.name, "breed", &breed.metadata);
    out.insert(
        "deployable".into(),
        json!({"type": breed.deployable.kind, "definition": breed.deployable.definition}),
    );
    let ports: Map<_, _> =
        breed.ports.iter().map(|(name, port)| (name.clone(), json!(port.text))).collect();
    out.insert("ports".into(), ports.into());
    out.insert("environment_variables".into(), traits(&breed.environment_variables));
    out.insert("constants".into(), traits(&breed.constants));
    out.insert("arguments".into(), arguments(&breed.arguments));
    let dependencies: Map<_, _> = breed
        .dependencies
        .iter()
        .map(|(alias, breed)| (alias.clone(), breed_reference(breed)))
        .collect();
    out.insert("dependencies".into(), dependencies.into());
    insert_health_checks(&mut out, breed.health_checks.as_deref());
    out.into()
}

/// Prints a stored scale.
pub fn write_scale(scale: &NamedScale) -> Json {
    let mut out = head(&scale.name, "scale", &scale.metadata);
    if let Json::Object(values) = write_inline_scale(&scale.scale) {
        out.extend(values);
    }
    out.into()
}

/// Prints a scale without a name.
pub fn write_inline_scale(scale: &Scale) -> Json {
    json!({"cpu": cpu(scale.cpu), "memory": scale.memory.to_string(), "instances": scale.instances})
}

/// Prints a stored gateway and what is known of it.
pub fn write_gateway(gateway: &Gateway, view: &GatewayView) -> Json {
    let mut out = head(&gateway.name, "gateway", &gateway.metadata);
    out.insert("lookup_name".into(), lookup_name(LookupClass::Gateway, &gateway.name).into());
    out.insert("internal".into(), view.internal.into());
    if let Some((host, port)) = &view.service {
        let suffix = match gateway.port.kind {
            PortType::Http => "http",
            PortType::Tcp => "tcp",
        };
        out.insert("service".into(), json!({"host": host, "port": format!("{port}/{suffix}")}));
    }
    out.insert("deployed".into(), view.deployed.into());
    out.insert("port".into(), gateway.port.text.clone().into());
    out.insert("sticky".into(), sticky(gateway.sticky));
    out.insert("virtual_hosts".into(), gateway.virtual_hosts.clone().into());
    let mut routes = Map::new();
    for (path, route) in &gateway.routes {
        let mut out = self::route(route_lookup_name(&gateway.name, path), route);
        if let Some(targets) = view.targets.get(path) {
            out.insert("targets".into(), targets.iter().map(target).collect());
        }
        routes.insert(path.as_str().to_owned(), out.into());
    }
    out.insert("routes".into(), routes.into());
    out.into()
}

/// Prints a blueprint.
pub fn write_blueprint(blueprint: &Blueprint) -> Json {
    let mut out = head(&blueprint.name, "blueprint", &blueprint.metadata);
    let gateways = blueprint.gateways.iter().map(|entry| {
        let mut out = Map::new();
        out.insert("port".into(), entry.gateway.port.text.clone().into());
        out.extend(anonymous_gateway(&entry.gateway));
        (entry.key.clone(), out.into())
    });
    out.insert("gateways".into(), Json::Object(gateways.collect()));
    let clusters =
        blueprint.clusters.iter().map(|(name, cluster)| (name.clone(), self::cluster(cluster)));
    out.insert("clusters".into(), Json::Object(clusters.collect()));
    out.insert("environment_variables".into(), traits(&blueprint.environment_variables));
    out.insert("dialects".into(), blueprint.dialects.clone().into());
    out.into()
}

fn cluster(cluster: &BlueprintCluster) -> Json {
    let mut out = Map::new();
    out.insert("metadata".into(), cluster.metadata.clone().into());
    out.insert("services".into(), cluster.services.iter().map(service).collect());
    let gateways = cluster
        .gateways
        .iter()
        .map(|(port, gateway)| (port.clone(), anonymous_gateway(gateway).into()));
    out.insert("gateways".into(), Json::Object(gateways.collect()));
    insert_health_checks(&mut out, cluster.health_checks.as_deref());
    insert_network(&mut out, cluster.network.as_deref());
    if let Some(sla) = &cluster.sla {
        out.insert("sla".into(), super::write_sla::sla_reference(sla));
    }
    out.insert("dialects".into(), cluster.dialects.clone().into());
    out.into()
}

fn service(service: &BlueprintService) -> Json {
    let mut out = Map::new();
    out.insert("breed".into(), breed_reference(&service.breed));
    out.insert("environment_variables".into(), traits(&service.environment_variables));
    match &service.scale {
        Some(ScaleReference::Reference(name)) => out.insert("scale".into(), json!({"ref": name})),
        Some(ScaleReference::Inline(scale)) => {
            out.insert("scale".into(), write_inline_scale(scale))
        }
        None => None,
    };
    out.insert("arguments".into(), arguments(&service.arguments));
    insert_health_checks(&mut out, service.health_checks.as_deref());
    insert_network(&mut out, service.network.as_deref());
    out.insert("dialects".into(), service.dialects.clone().into());
    out.into()
}

/// What a gateway inside something else shows: no name, and no port.
pub(super) fn anonymous_gateway(gateway: &Gateway) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("sticky".into(), sticky(gateway.sticky));
    out.insert("virtual_hosts".into(), gateway.virtual_hosts.clone().into());
    let routes = gateway.routes.iter().map(|(path, route)| {
        (path.as_str().to_owned(), self::route(route_lookup_name("", path), route).into())
    });
    out.insert("routes".into(), Json::Object(routes.collect()));
    out
}

/// A route without targets.
pub(super) fn route(lookup_name: String, route: &Route) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("lookup_name".into(), lookup_name.into());
    out.insert("weight".into(), route.weight.map(|weight| weight.to_string()).into());
    out.insert("balance".into(), route.balance.0.clone().into());
    out.insert("condition".into(), Json::Null);
    let strength = route.condition_strength.map(|strength| strength.to_string());
    out.insert("condition_strength".into(), strength.into());
    let rewrites = route.rewrites.iter();
    let rewrites = rewrites
        .map(|rewrite| json!({"path": format!("{} if {}", rewrite.path, rewrite.condition)}));
    out.insert("rewrites".into(), rewrites.collect());
    out
}

fn target(target: &TargetView) -> Json {
    match target {
        TargetView::Address { name, host: Some(host), port } => {
            json!({"name": name, "host": host, "port": port})
        }
        TargetView::Address { name, host: None, port } => json!({"name": name, "port": port}),
        TargetView::Url(url) => json!({"url": url}),
    }
}

/// What every named artifact begins with.
pub(super) fn head(name: &str, kind: &str, metadata: &Metadata) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("name".into(), name.into());
    out.insert("kind".into(), kind.into());
    out.insert("metadata".into(), metadata.clone().into());
    out
}

fn sticky(sticky: Option<Sticky>) -> Json {
    match sticky {
        Some(Sticky::Route) => "route".into(),
        Some(Sticky::Instance) => "instance".into(),
        None => Json::Null,
    }
}

/// Cores as a decimal: `1.0`, not `1`.
fn cpu(cpu: Cpu) -> Json {
    json!(cpu.cores())
}

pub(super) fn traits(traits: &Traits) -> Json {
    let traits = traits.iter().map(|(name, value)| (name.clone(), value.clone().into()));
    Json::Object(traits.collect())
}

pub(super) fn arguments(arguments: &[Argument]) -> Json {
    let entry = |argument: &Argument| {
        let entry: Map<String, Json> =
            [(argument.key.clone(), argument.value.clone().into())].into_iter().collect();
        Json::Object(entry)
    };
    arguments.iter().map(entry).collect()
}

fn breed_reference(breed: &BreedReference) -> Json {
    match breed {
        BreedReference::Reference(name) => json!({"ref": name}),
        BreedReference::Inline(breed) => write_breed(breed),
    }
}

pub(super) fn insert_network(out: &mut Map<String, Json>, network: Option<&str>) {
    if let Some(network) = network {
        out.insert("network".into(), network.into());
    }
}

pub(super) fn insert_health_checks(out: &mut Map<String, Json>, checks: Option<&[HealthCheck]>) {
    let Some(checks) = checks else { return };
    let seconds = |seconds: u32| format!("{seconds}s");
    let check = |check: &HealthCheck| {
        json!({
            "path": check.path,
            "port": check.port,
            "initial_delay": seconds(check.initial_delay_seconds),
            "timeout": seconds(check.timeout_seconds),
            "interval": seconds(check.interval_seconds),
            "failures": check.failures,
            "protocol": check.protocol,
        })
    };
    out.insert("health_checks".into(), checks.iter().map(check).collect());
}
