//! Decides the creation of deployments, merges into them, and changes of scale (runtime, section 6).

use super::archive::{
    ServiceKey, archived, archived_as, blank, gateway as gateway_event, gateway_undeployed,
    service as service_event,
};
use super::gateways::Ports;
use super::{Context, Rules, Submission, check, merge, prepare, statics, undeploy};
use crate::artifact::{
    ArtifactKey, Blueprint, Deployment, Gateway, GatewayName, Intention, Kind, Scale,
};
use crate::dsl::{self, DeploymentBody};
use crate::event::{DeploymentFact, Event, Fact, GatewayFact};
use crate::problem::{Problem, ProblemKind, Result};
use crate::state::{State, StoredGateway};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Creates deployment `name`, or merges `body` into it.
pub(super) fn deploy(
    state: &State,
    name: &str,
    body: &DeploymentBody,
    submission: &Submission,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    check::deployment_name(name)?;
    let blueprint = blueprint(state, body)?;
    let clusters = prepare::clusters(state, &blueprint)?;
    let old = state.deployment(name);
    let merged = merge::deployment(old, name, &blueprint, &clusters, rules, context.now);
    check::deployment(&merged, &blueprint)?;
    let internal = merge::internal_gateways(state, &merged, &clusters, rules)?;
    let external = merge::external_gateways(state, &merged, &blueprint, rules)?;
    check::external_ports(&external)?;

    let mut events = match body {
        DeploymentBody::Blueprint(_) => {
            let services = clusters.values().flat_map(|cluster| &cluster.services);
            let inline = services.filter(|service| service.inline).map(|service| &service.breed);
            statics::store_inline_breeds(state, inline, submission.verb, context)
        }
        DeploymentBody::Reference(_) => Vec::new(),
    };
    let written: BTreeSet<&str> =
        internal.iter().chain(&external).map(|gateway| gateway.name.as_str()).collect();
    let leftovers = undeploy::gateways(state, &merged, &written, context, rules);
    let key = ArtifactKey::new(Kind::Deployment, name);
    let changed = old != Some(&merged);
    let fact = changed.then(|| stated(merged));
    events.push(archived(&key, submission, fact, context));
    events.extend(replaced_entries(state, name, &external, context, rules));
    events.extend(leftovers);
    events.extend(stored(state, internal.into_iter().chain(external), context, rules));
    Ok(events)
}

/// Sets the scale of a service; its intention is stated anew when that changes something. A scale that nobody submitted
/// is an escalation's: it is not archived (runtime, 11.1).
pub(super) fn scale(
    state: &State,
    (name, cluster, service): (&str, &str, &str),
    scale: Scale,
    submission: Option<&Submission>,
    context: &Context,
) -> Result<Vec<Event>> {
    let missing = || {
        let detail = format!(
            "there is no service '{service}' in cluster '{cluster}' of deployment '{name}'"
        );
        Problem::new(ProblemKind::NotFound, "", detail)
    };
    let mut deployment = state.deployment(name).ok_or_else(missing)?.clone();
    let found =
        deployment.service_mut(cluster, service).filter(|service| !service.is_undeploying());
    let found = found.ok_or_else(missing)?;
    let changed = found.scale != scale;
    if changed {
        found.scale = scale;
        found.status = merge::stated(Intention::Deployment, context.now);
    }
    let Some(submission) = submission else {
        return Ok(changed
            .then(|| escalated(deployment, cluster, service, scale, context))
            .into_iter()
            .collect());
    };
    let subject = format!("deployment-service-scales:{name}/{cluster}/{service}");
    let mut event = archived_as(&subject, submission, changed.then(|| stated(deployment)), context);
    let tags = event.tags.as_slice().iter().cloned().chain([format!("deployments:{name}")]);
    event.tags = crate::event::Tags::expand(tags.collect::<Vec<_>>());
    Ok(vec![event])
}

/// An escalation scaled a service.
fn escalated(
    deployment: Deployment,
    cluster: &str,
    service: &str,
    scale: Scale,
    context: &Context,
) -> Event {
    let key = ServiceKey {
        deployment: deployment.name.clone(),
        cluster: cluster.to_owned(),
        service: service.to_owned(),
    };
    let fact = DeploymentFact::Stated(Box::new(deployment));
    let value = dsl::write_inline_scale(&scale);
    service_event("deployment", &key, &["scale"], value, fact, context)
}

/// The blueprint that a body stands for, with the breeds of today.
pub(super) fn blueprint<'a>(state: &State, body: &'a DeploymentBody) -> Result<Cow<'a, Blueprint>> {
    match body {
        DeploymentBody::Blueprint(blueprint) => Ok(Cow::Borrowed(blueprint)),
        DeploymentBody::Reference(name) => state.blueprint(name).map(Cow::Owned).ok_or_else(|| {
            let detail = format!("there is no blueprint '{name}'");
            let hint = "store the blueprint first, or send it as the body";
            Problem::new(ProblemKind::ArtifactNotFound, "", detail).hint(hint).into()
        }),
    }
}

/// What is wanted of a deployment, as a fact.
pub(super) fn stated(deployment: Deployment) -> Fact {
    Fact::Deployment {
        name: deployment.name.clone(),
        fact: DeploymentFact::Stated(Box::new(deployment)),
    }
}

/// A gateway is gone.
pub(super) fn deleted(
    state: &State,
    stored: &StoredGateway,
    context: &Context,
    rules: &Rules,
) -> Event {
    let name = &stored.gateway.name;
    let key = ArtifactKey::new(Kind::Gateway, name);
    let last = dsl::representation_of_written(state, &key, &rules.gateway_host);
    let last = last.unwrap_or_else(blank);
    if stored.deployed {
        gateway_undeployed(name, last, Some(GatewayFact::Deleted), context)
    } else {
        gateway_event(name, &[], last, GatewayFact::Deleted, context)
    }
}

/// A gateway has new routes or settings.
pub(super) fn stored_one(gateway: Gateway, context: &Context) -> Event {
    let name = gateway.name.clone();
    gateway_event(&name, &[], blank(), GatewayFact::Stored(Box::new(gateway)), context)
}

/// Entries of the deployment whose port an entry of another key takes over.
fn replaced_entries(
    state: &State,
    deployment: &str,
    external: &[Gateway],
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let names: BTreeSet<&str> = external.iter().map(|gateway| gateway.name.as_str()).collect();
    let numbers: BTreeSet<u16> =
        external.iter().map(|gateway| gateway.port.number).filter(|port| *port != 0).collect();
    let old = state.gateways_of(deployment).filter(|stored| {
        let old = &stored.gateway;
        let is_entry = matches!(GatewayName::parse(&old.name), Some(GatewayName::External { .. }));
        is_entry && numbers.contains(&old.port.number) && !names.contains(old.name.as_str())
    });
    old.map(|old| deleted(state, old, context, rules)).collect()
}

/// Gateways that differ from what is stored. Entries without port get one at once; internal gateways get theirs when
/// a service behind them is ready.
fn stored(
    state: &State,
    gateways: impl Iterator<Item = Gateway>,
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let gateways: Vec<Gateway> = gateways.collect();
    let mut ports = Ports::new(state, rules);
    for gateway in &gateways {
        ports.reserve(gateway.port.number);
    }
    let mut events = Vec::new();
    for gateway in
        gateways.into_iter().filter(|gateway| state.gateway(&gateway.name) != Some(gateway))
    {
        let internal = GatewayName::parse(&gateway.name).is_some_and(GatewayName::is_internal);
        let assigned =
            (gateway.port.number == 0 && !internal).then(|| ports.assign(&gateway.name, context));
        events.push(stored_one(gateway, context));
        events.extend(assigned);
    }
    events
}
