//! Stored artifacts as users see them: the canonical document, with what the state knows beside the artifact itself.

use super::{
    DeploymentView, ExternalGatewayView, GatewayView, TargetView, split_alias, write_blueprint,
    write_breed, write_condition, write_deployment, write_deployment_as_blueprint,
    write_escalation, write_gateway, write_rewrite, write_route, write_scale, write_sla,
    write_template,
};
use crate::artifact::{
    ArtifactKey, Deployment, Gateway, GatewayName, Kind, Leaving, RoutePath, Traits,
};
use crate::state::{State, StoredGateway};
use indexmap::IndexMap;
use serde_json::Value;

/// The document of a stored artifact, or `None` when there is none. Gateways that are not published yet have none; the
/// others are reached at `gateway_host`.
pub fn representation(state: &State, key: &ArtifactKey, gateway_host: &str) -> Option<Value> {
    let hidden = key.kind == Kind::Gateway
        && state.gateways().get(&key.name).is_some_and(|stored| !stored.published);
    if hidden { None } else { representation_of_written(state, key, gateway_host) }
}

/// The document of an artifact for whoever just wrote it: also of a gateway that is not published yet.
pub fn representation_of_written(
    state: &State,
    key: &ArtifactKey,
    gateway_host: &str,
) -> Option<Value> {
    let name = key.name.as_str();
    match key.kind {
        Kind::Blueprint => state.blueprint(name).map(|blueprint| write_blueprint(&blueprint)),
        Kind::Breed => state.breeds().get(name).map(|stored| write_breed(&stored.artifact)),
        Kind::Condition => {
            state.conditions().get(name).map(|stored| write_condition(&stored.artifact))
        }
        Kind::Rewrite => state.rewrites().get(name).map(|stored| write_rewrite(&stored.artifact)),
        Kind::Route => state.routes().get(name).map(|stored| write_route(&stored.artifact)),
        Kind::Scale => state.scales().get(name).map(|stored| write_scale(&stored.artifact)),
        Kind::Template => {
            state.templates().get(name).map(|stored| write_template(&stored.artifact))
        }
        Kind::Escalation => {
            state.escalations().get(name).map(|stored| write_escalation(&stored.artifact))
        }
        Kind::Sla => state.slas().get(name).map(|stored| write_sla(&stored.artifact)),
        Kind::Gateway => {
            let stored = state.gateways().get(name)?;
            Some(write_gateway(&stored.gateway, &gateway_view(state, stored, gateway_host)))
        }
        Kind::Deployment => {
            let deployment = state.deployment(name)?;
            Some(write_deployment(
                &Deployment {
                    environment_variables: printed_variables(deployment),
                    ..deployment.clone()
                },
                &deployment_view(state, deployment),
            ))
        }
    }
}

/// A deployment as a blueprint that can be deployed again, or `None` when there is none.
pub fn representation_as_blueprint(state: &State, name: &str) -> Option<Value> {
    let deployment = state.deployment(name)?;
    Some(write_deployment_as_blueprint(deployment, &deployment_view(state, deployment)))
}

/// The variables of the blueprint level overlaid by those of the services, interpolated where that is known
/// (runtime, 2.2).
pub(crate) fn printed_variables(deployment: &Deployment) -> Traits {
    let mut printed = deployment.environment_variables.clone();
    for (cluster, service) in deployment.services() {
        for name in service.breed.environment_variables.keys() {
            let (base, _) = split_alias(name);
            let interpolated =
                service.environment.as_ref().and_then(|environment| environment.get(name)).cloned();
            let raw = || service.environment_variables.get(base).cloned().flatten();
            let inherited = deployment
                .environment_variables
                .get(&format!("{cluster}.{base}"))
                .cloned()
                .flatten();
            let value = interpolated.or_else(raw).or(inherited);
            printed.insert(format!("{cluster}.{base}"), value);
        }
    }
    printed
}

fn deployment_view(state: &State, deployment: &Deployment) -> DeploymentView {
    let mut gateways: IndexMap<String, IndexMap<String, Gateway>> = IndexMap::new();
    let mut external = Vec::new();
    for stored in state.gateways_of(&deployment.name) {
        let gateway = (*stored.gateway).clone();
        match GatewayName::parse(&stored.gateway.name) {
            Some(GatewayName::Internal { cluster, port, .. }) => {
                gateways.entry(cluster.to_owned()).or_default().insert(port.to_owned(), gateway);
            }
            Some(GatewayName::External { port, .. }) => {
                external.push(ExternalGatewayView { key: port.to_owned(), gateway });
            }
            Some(GatewayName::StandAlone(_)) | None => {}
        }
    }
    let ports = deployment.services().flat_map(|(cluster, service)| {
        let ports = service.breed.ports.keys();
        ports.map(move |port| {
            (format!("{cluster}.{port}"), format!("{}/{cluster}/{port}", deployment.name))
        })
    });
    let number = |name: &str| state.gateway(name).map_or(0, |gateway| gateway.port.number);
    let ports = ports.map(|(key, gateway)| (key, number(&gateway))).collect();
    DeploymentView { gateways, ports, external }
}

fn gateway_view(state: &State, stored: &StoredGateway, gateway_host: &str) -> GatewayView {
    let gateway = &stored.gateway;
    let name = GatewayName::parse(&gateway.name);
    let host = match name {
        Some(GatewayName::Internal { deployment, cluster, .. }) => state
            .deployment(deployment)
            .and_then(|found| found.clusters.get(cluster))
            .map(|found| found.host.clone()),
        Some(GatewayName::External { .. } | GatewayName::StandAlone(_)) | None => None,
    };
    let host = host.unwrap_or_else(|| gateway_host.to_owned());
    let targets = gateway.routes.keys().map(|path| (path.clone(), targets(state, path)));
    GatewayView {
        internal: name.is_some_and(GatewayName::is_internal),
        deployed: stored.deployed,
        service: (stored.deployed && gateway.port.number != 0)
            .then_some((host, gateway.port.number)),
        targets: targets.filter(|(_, targets)| !targets.is_empty()).collect(),
    }
}

fn targets(state: &State, path: &RoutePath) -> Vec<TargetView> {
    if let Some(address) = path.external() {
        return vec![TargetView::Url(address.to_owned())];
    }
    if let [deployment, cluster, breed, port] = path.segments()[..] {
        let service = state.deployment(deployment).and_then(|found| found.service(cluster, breed));
        let instances = service.map(|service| &service.instances[..]).unwrap_or_default();
        let taking = instances
            .iter()
            .filter(|instance| instance.deployed && instance.leaving == Leaving::No);
        let target = |instance: &crate::artifact::Instance| {
            Some(TargetView::Address {
                name: instance.name.clone(),
                host: Some(instance.host.clone()),
                port: *instance.ports.get(port)?,
            })
        };
        taking.filter_map(target).collect()
    } else {
        let gateway = state.gateways().get(path.as_str()).filter(|stored| stored.deployed);
        let target = |stored: &StoredGateway| TargetView::Address {
            name: path.as_str().to_owned(),
            host: None,
            port: stored.gateway.port.number,
        };
        gateway.map(target).into_iter().collect()
    }
}
