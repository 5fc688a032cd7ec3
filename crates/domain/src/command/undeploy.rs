//! Decides the removal of services, clusters and deployments (runtime, section 7).

use super::archive::archived;
use super::deploy::{blueprint, deleted, stated, stored_one};
use super::{Context, Rules, Submission, Verb, check, merge};
use crate::artifact::{
    ArtifactKey, Blueprint, Deployment, Gateway, GatewayName, Intention, Kind, Leaving, Percentage,
    Route, RoutePath, Service,
};
use crate::dsl::DeploymentBody;
use crate::event::Event;
use crate::problem::{Problem, ProblemKind, Problems, Result};
use crate::state::{State, StoredGateway, satisfying};
use std::collections::BTreeSet;

/// Takes the services that `body` names away from deployment `name`. What does not exist is ignored.
pub(super) fn undeploy(
    state: &State,
    name: &str,
    body: &DeploymentBody,
    submission: &Submission,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    let Some(old) = state.deployment(name) else { return Ok(Vec::new()) };
    let named = named_services(old, &*blueprint(state, body)?);
    if named.is_empty() {
        return Ok(Vec::new());
    }
    check_weights(state, old, &named)?;
    let mut deployment = old.clone();
    for (cluster, breed) in &named {
        if let Some(service) = deployment.service_mut(cluster, breed) {
            leave(service, context);
        }
    }
    check::remaining(&deployment)?;
    redirect(old, &mut deployment, context);
    let submission =
        Submission { verb: Verb::Update, representation: submission.representation.clone() };
    let gateways = gateways(state, &deployment, &BTreeSet::new(), context, rules);
    let key = ArtifactKey::new(Kind::Deployment, name);
    let mut events = vec![archived(&key, &submission, Some(stated(deployment)), context)];
    events.extend(gateways);
    Ok(events)
}

/// The services of `body` that run and are not on their way out already, as cluster and breed name.
fn named_services(deployment: &Deployment, body: &Blueprint) -> Vec<(String, String)> {
    let named = body.clusters.iter().flat_map(|(cluster, content)| {
        content
            .services
            .iter()
            .map(move |service| (cluster.clone(), service.breed.name().to_owned()))
    });
    let staying = |cluster: &str, breed: &str| {
        deployment.service(cluster, breed).is_some_and(|service| !service.is_undeploying())
    };
    named.filter(|(cluster, breed)| staying(cluster, breed)).collect()
}

/// The weights of the services that stay sum to 100 at every gateway of a cluster that loses some, or none stays.
fn check_weights(state: &State, deployment: &Deployment, named: &[(String, String)]) -> Result<()> {
    let clusters: BTreeSet<&String> = named.iter().map(|(cluster, _)| cluster).collect();
    let mut problems = Vec::new();
    for stored in state.gateways_of(&deployment.name) {
        let Some(GatewayName::Internal { cluster, .. }) = GatewayName::parse(&stored.gateway.name)
        else {
            continue;
        };
        if !clusters.iter().any(|named| *named == cluster) {
            continue;
        }
        let goes = |path: &RoutePath| {
            named.iter().any(|(own, breed)| own == cluster && service_of(path) == Some(breed))
        };
        let staying = stored.gateway.routes.iter().filter(|(path, _)| !goes(path));
        let weights: Vec<u32> = staying
            .map(|(_, route)| route.weight.map_or(0, |weight| u32::from(weight.value())))
            .collect();
        let sum: u32 = weights.iter().sum();
        if !weights.is_empty() && sum != 100 {
            let name = &stored.gateway.name;
            let detail = format!(
                "at gateway '{name}' the services that stay would have {sum}% of the traffic"
            );
            let pointer = format!("/clusters/{cluster}");
            let problem = Problem::new(ProblemKind::InvalidRouteWeight, pointer, detail);
            problems.push(
                problem.hint(format!(
                    "first set the weights of gateway '{name}' so that they have 100%"
                )),
            );
        }
    }
    Problems::check(problems)
}

/// The service is wanted no more; its instances get no new requests from now on.
fn leave(service: &mut Service, context: &Context) {
    service.status = merge::stated(Intention::Undeployment, context.now);
    for instance in &mut service.instances {
        instance.leaving = instance.leaving.max(Leaving::Draining);
    }
}

/// Where any of several services satisfies a dependency and the first of them goes, the next one does from now on, in
/// another cluster: who depends on it gets the new address, and is rolled.
fn redirect(old: &Deployment, deployment: &mut Deployment, context: &Context) {
    let after = deployment.clone();
    for service in deployment.clusters.values_mut().flat_map(|cluster| &mut cluster.services) {
        let is_elsewhere = service.breed.dependencies.values().any(|breed| {
            let cluster = satisfying(&after, breed.name()).map(|(cluster, _)| cluster);
            cluster != satisfying(old, breed.name()).map(|(cluster, _)| cluster)
        });
        if is_elsewhere && !service.is_undeploying() {
            service.dependencies = merge::dependencies(&after, service);
            service.forget_environment();
            service.status = merge::stated(Intention::Deployment, context.now);
        }
    }
}

/// What becomes of the gateways at once: routes to what goes are dropped, gateways without routes are removed. Those
/// named in `written` are written anew anyway.
pub(super) fn gateways(
    state: &State,
    deployment: &Deployment,
    written: &BTreeSet<&str>,
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let stays = |cluster: &str, breed: &str, port: &str| {
        deployment.service(cluster, breed).is_some_and(|service| {
            !service.is_undeploying() && service.breed.ports.contains_key(port)
        })
    };
    let nothing_stays = deployment.services().all(|(_, service)| service.is_undeploying());
    let told = |old: &StoredGateway, left: Left| match left {
        Left::All => None,
        Left::Some(kept) => Some(stored_one(*kept, context)),
        Left::Nothing => Some(deleted(state, old, context, rules)),
    };
    let mut removed: BTreeSet<String> = BTreeSet::new();
    let mut events = Vec::new();
    let all = state
        .gateways_of(&deployment.name)
        .filter(|stored| !written.contains(stored.gateway.name.as_str()));
    let (internal, external): (Vec<_>, Vec<_>) = all.partition(|stored: &&StoredGateway| {
        GatewayName::parse(&stored.gateway.name).is_some_and(GatewayName::is_internal)
    });
    for old in internal {
        let keep = |path: &RoutePath| match path.segments()[..] {
            [_, cluster, breed, port] => stays(cluster, breed, port),
            _ => true,
        };
        let left = without_routes(&old.gateway, keep);
        if matches!(left, Left::Nothing) {
            removed.insert(old.gateway.name.clone());
        }
        events.extend(told(old, left));
    }
    for old in external {
        let keep = |path: &RoutePath| !nothing_stays && !removed.contains(path.as_str());
        events.extend(told(old, without_routes(&old.gateway, keep)));
    }
    events
}

/// What is left of a gateway when routes are taken from it.
enum Left {
    All,
    Some(Box<Gateway>),
    Nothing,
}

/// What is left of `gateway` with the routes to keep.
fn without_routes(gateway: &Gateway, keep: impl Fn(&RoutePath) -> bool) -> Left {
    let mut kept = gateway.clone();
    kept.routes.retain(|path, _| keep(path));
    if kept.routes.is_empty() {
        return Left::Nothing;
    }
    if kept.routes.len() == gateway.routes.len() {
        return Left::All;
    }
    spread(&mut kept);
    Left::Some(Box::new(kept))
}

/// The routes that stay take over what the others had, in proportion to what they have.
fn spread(gateway: &mut Gateway) {
    let weight = |route: &Route| route.weight.map_or(0, |weight| u32::from(weight.value()));
    let sum: u32 = gateway.routes.values().map(weight).sum();
    if sum == 0 || sum == 100 {
        return;
    }
    let (mut before, mut given) = (0, 0);
    for route in gateway.routes.values_mut() {
        // Rounded so that all shares together are whole.
        before += weight(route);
        let share = before * 100 / sum - given;
        given += share;
        route.weight = u8::try_from(share).ok().and_then(Percentage::new);
    }
}

/// The breed that a route of an internal gateway leads to.
fn service_of(path: &RoutePath) -> Option<&str> {
    match path.segments()[..] {
        [_, _, breed, _] => Some(breed),
        _ => None,
    }
}
