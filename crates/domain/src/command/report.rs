//! Decides what workers report: what they found and did becomes events, unless the state moved on meanwhile.
//!
//! A report about something that no longer exists, or that another write overtook, makes no events; the next turn
//! sees the new state.

use super::archive::{self, ServiceKey, blank, gateway as gateway_event, notice, notification};
use super::escalate::{self, EscalationEvent, Verdict};
use super::gateways::Ports;
use super::measure::{self, Measurement};
use super::{Context, Rules, foresee};
use crate::artifact::{
    ArtifactKey, GatewayName, Instance, Intention, Kind, Leaving, Phase, PhaseName, Service,
};
use crate::dsl;
use crate::event::{DeploymentFact, Event, GatewayFact};
use crate::state::{State, StoredGateway};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What a worker found or did.
#[derive(Clone, Debug, PartialEq)]
pub enum Report {
    /// About one service.
    Service {
        /// Which.
        key: ServiceKey,
        /// What.
        report: ServiceReport,
    },
    /// About the gateways.
    Routed(Routed),
    /// The check of an SLA came to something.
    Verdict(Verdict),
    /// An event asks for escalation.
    Escalation(EscalationEvent),
    /// What was measured; one report, so that it is recorded as one.
    Measured(Vec<Measurement>),
    /// Something failed that belongs to no single artifact.
    Failure {
        /// Which component, such as `container_driver`.
        component: String,
        /// What it said.
        words: String,
    },
}

/// What the deployments worker found or did about one service.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceReport {
    /// The worker takes up what was stated.
    TakenUp,
    /// Everything it depends on is ready: its variables can be interpolated.
    EnvironmentDue,
    /// What runs is not what was last known.
    Instances(Vec<Instance>),
    /// What runs is what is wanted.
    Done,
    /// What runs is no longer what is wanted; the text says how it differs.
    Differs(String),
    /// It does not work yet, in the driver's own words; published each time they change.
    Trouble(String),
    /// It will not work, in the driver's own words.
    Failed(String),
    /// Which bytes run: hashes by instance, as its driver tells them.
    Images(BTreeMap<String, Vec<String>>),
    /// Nothing of it runs any more.
    Gone,
}

/// What the gateways worker found or did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routed {
    /// The gateways that take traffic now.
    pub served: BTreeSet<String>,
    /// The gateways that cannot, with the reason.
    pub refused: BTreeMap<String, String>,
    /// Those of them whose port another program has.
    pub ports_taken: BTreeSet<String>,
    /// By gateway and path: routes that get nothing because of what they ask for, with the reason.
    pub disabled: BTreeMap<String, BTreeMap<String, String>>,
    /// Instances that no gateway sends anything to any more, by service.
    pub released: Vec<(ServiceKey, String)>,
    /// Type and name of the configuration, when a new one was installed.
    pub installed: Option<(String, String)>,
}

/// The events that a report makes.
pub(super) fn decide(
    state: &State,
    report: &Report,
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    match report {
        Report::Service { key, report } => {
            let service = state
                .deployment(&key.deployment)
                .and_then(|found| found.service(&key.cluster, &key.service));
            service
                .map(|service| about_service(state, key, service, report, context, rules))
                .unwrap_or_default()
        }
        Report::Routed(routed) => about_gateways(state, routed, context, rules),
        Report::Verdict(verdict) => escalate::verdict(state, verdict, context),
        Report::Escalation(event) => escalate::escalation(state, event, context),
        Report::Measured(measurements) => measure::decide(state, measurements, context),
        Report::Failure { component, words } => {
            vec![notice(&["info", &format!("{component}:ERROR")], notification(words), context)]
        }
    }
}

fn about_service(
    state: &State,
    key: &ServiceKey,
    service: &Service,
    report: &ServiceReport,
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let status = &service.status;
    match (report, status.intention, status.phase.name) {
        (ServiceReport::TakenUp, _, PhaseName::Initiated) => {
            vec![phase_event(key, PhaseName::Updating, None, context)]
        }
        (ServiceReport::EnvironmentDue, Intention::Deployment, _)
            if service.environment.is_none() =>
        {
            environment_resolved(state, key, service, context, rules)
        }
        (ServiceReport::Instances(instances), _, _) => {
            instances_observed(key, service, instances, context)
        }
        (ServiceReport::Done, Intention::Deployment, PhaseName::Updating) => {
            done(state, key, context, rules)
        }
        (ServiceReport::Differs(how), Intention::Deployment, PhaseName::Done) => {
            let phase = Phase { name: PhaseName::Updating, since: context.now, notification: None };
            vec![synchronisation(
                key,
                "redeploy",
                json!({ "difference": how }),
                phase_fact(key, phase),
                context,
            )]
        }
        // What could not be taken away has failed, and may still be told about when it is given up.
        (ServiceReport::Trouble(words), _, PhaseName::Updating)
        | (ServiceReport::Trouble(words), Intention::Undeployment, PhaseName::Failed)
            if status.phase.notification.as_ref() != Some(words) =>
        {
            // The time-out goes on from when the phase began.
            let phase = Phase { notification: Some(words.clone()), ..status.phase.clone() };
            vec![failure(key, words, phase, context)]
        }
        // Before it is taken up, what failed is what was wished for before.
        (ServiceReport::Failed(words), _, PhaseName::Updating) => {
            let phase = Phase {
                name: PhaseName::Failed,
                since: context.now,
                notification: Some(words.clone()),
            };
            vec![failure(key, words, phase, context)]
        }
        (ServiceReport::Images(images), _, _) => vec![images_event(key, images, context)],
        (ServiceReport::Gone, Intention::Undeployment, _) => gone(state, key, context, rules),
        (
            ServiceReport::TakenUp
            | ServiceReport::EnvironmentDue
            | ServiceReport::Done
            | ServiceReport::Differs(_)
            | ServiceReport::Trouble(_)
            | ServiceReport::Failed(_)
            | ServiceReport::Gone,
            _,
            _,
        ) => Vec::new(),
    }
}

fn environment_resolved(
    state: &State,
    key: &ServiceKey,
    service: &Service,
    context: &Context,
    rules: &Rules,
) -> Vec<Event> {
    let Some(deployment) = state.deployment(&key.deployment) else { return Vec::new() };
    let fact = DeploymentFact::EnvironmentResolved {
        cluster: key.cluster.clone(),
        service: key.service.clone(),
        environment: state.environment(deployment, &key.cluster, service, &rules.configuration),
    };
    vec![archive::service("deployment", key, &["environment"], blank(), fact, context)]
}

/// An instance that was on its way out stays so, whatever an observation from before that says; and so does one that
/// served.
fn instances_observed(
    key: &ServiceKey,
    service: &Service,
    observed: &[Instance],
    context: &Context,
) -> Vec<Event> {
    let merge = |instance: &Instance| {
        let known = service.instances.iter().find(|known| known.name == instance.name);
        let (leaving, served) = known
            .map_or((Leaving::No, false), |known| (known.leaving, known.served || known.deployed));
        Instance {
            leaving: instance.leaving.max(leaving),
            served: instance.served || served || instance.deployed,
            ..instance.clone()
        }
    };
    let instances: Vec<Instance> = observed.iter().map(merge).collect();
    if instances == service.instances {
        Vec::new()
    } else {
        vec![instances_event(key, instances, context)]
    }
}

fn instances_event(key: &ServiceKey, instances: Vec<Instance>, context: &Context) -> Event {
    let ready = instances
        .iter()
        .filter(|instance| instance.deployed && instance.leaving == Leaving::No)
        .count();
    let value = json!({ "instances": instances.len(), "deployed": ready });
    let fact = DeploymentFact::InstancesObserved {
        cluster: key.cluster.clone(),
        service: key.service.clone(),
        instances,
    };
    archive::service("deployment", key, &["instances"], value, fact, context)
}

/// Which bytes run is found by service, and the services that ran some bytes by their hash.
fn images_event(
    key: &ServiceKey,
    images: &BTreeMap<String, Vec<String>>,
    context: &Context,
) -> Event {
    let own = [
        format!("deployments:{}", key.deployment),
        format!("clusters:{}", key.cluster),
        format!("services:{}", key.service),
    ];
    let hashes: BTreeSet<&String> = images.values().flatten().collect();
    let hashes = hashes.into_iter().map(|hash| format!("images:{hash}"));
    let tags: Vec<String> = own.into_iter().chain(hashes).collect();
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    notice(&tags, json!(images), context)
}

/// The service runs: the gateways of its cluster are published, with a port of their own (runtime, 9.2).
fn done(state: &State, key: &ServiceKey, context: &Context, rules: &Rules) -> Vec<Event> {
    let phase = Phase { name: PhaseName::Done, since: context.now, notification: None };
    let mut events =
        vec![synchronisation(key, "deployed", blank(), phase_fact(key, phase), context)];
    let mut ports = Ports::new(state, rules);
    let prefix = format!("{}/{}/", key.deployment, key.cluster);
    for stored in
        state.gateways_of(&key.deployment).filter(|stored| stored.gateway.name.starts_with(&prefix))
    {
        let name = &stored.gateway.name;
        if !stored.published {
            events.push(gateway_event(
                name,
                &["published"],
                blank(),
                GatewayFact::Published,
                context,
            ));
        }
        if stored.gateway.port.number == 0 {
            events.push(ports.assign(name, context));
        }
    }
    events
}

/// The service disappears; with the last one the deployment is archived as deleted.
fn gone(state: &State, key: &ServiceKey, context: &Context, rules: &Rules) -> Vec<Event> {
    let deployment = ArtifactKey::new(Kind::Deployment, &key.deployment);
    let last = dsl::representation(state, &deployment, &rules.gateway_host);
    let fact = DeploymentFact::ServiceRemoved {
        cluster: key.cluster.clone(),
        service: key.service.clone(),
    };
    let mut events = vec![synchronisation(key, "undeployed", blank(), fact, context)];
    let mut after = state.clone();
    foresee(&mut after, &events[0], context);
    if after.deployment(&key.deployment).is_some_and(|deployment| deployment.clusters.is_empty()) {
        events.push(archive::deployment_deleted(
            &key.deployment,
            last.unwrap_or_else(blank),
            context,
        ));
    }
    events
}

fn about_gateways(state: &State, routed: &Routed, context: &Context, rules: &Rules) -> Vec<Event> {
    let mut events = Vec::new();
    let mut ports = Ports::new(state, rules);
    if let Some((kind, name)) = &routed.installed {
        let tags =
            ["marshaller:configuration".to_owned(), format!("type:{kind}"), format!("name:{name}")];
        events.push(notice(&tags.each_ref().map(String::as_str), blank(), context));
    }
    for (name, stored) in state.published_gateways() {
        let deployed = routed.served.contains(name);
        let reason = routed.refused.get(name);
        let internal = GatewayName::parse(name).is_some_and(GatewayName::is_internal);
        if internal && !stored.was_deployed && routed.ports_taken.contains(name) {
            // Nobody was told this port yet, so another one does.
            events.push(ports.assign(name, context));
        }
        events.extend(routes_disabled(name, stored, routed.disabled.get(name), context));
        if stored.deployed == deployed && stored.reason.as_ref() == reason {
            continue;
        }
        let fact = GatewayFact::DeployedChanged { deployed, reason: reason.cloned() };
        let mut event = match (deployed, reason) {
            (true, _) => gateway_event(name, &["deployed"], blank(), fact, context),
            (false, None) => gateway_event(name, &["undeployed"], blank(), fact, context),
            (false, Some(reason)) => {
                let tags = ["undeployed", "failed", "info", "gateway_driver:ERROR"];
                gateway_event(name, &tags, notification(reason), fact, context)
            }
        };
        if deployed || reason.is_none() {
            let mut after = state.clone();
            foresee(&mut after, &event, context);
            let key = ArtifactKey::new(Kind::Gateway, name);
            let shown = dsl::representation(&after, &key, &rules.gateway_host);
            event.value = shown.unwrap_or_else(blank);
        }
        events.push(event);
    }
    events.extend(released(state, routed, context));
    events
}

/// Routes of a gateway that were disabled, or are no more; one event for each that is new.
fn routes_disabled(
    name: &str,
    stored: &StoredGateway,
    disabled: Option<&BTreeMap<String, String>>,
    context: &Context,
) -> Vec<Event> {
    let disabled = disabled.cloned().unwrap_or_default();
    if disabled == stored.disabled {
        return Vec::new();
    }
    let fact = || GatewayFact::RoutesDisabled(disabled.clone());
    let new = disabled.iter().filter(|(path, reason)| stored.disabled.get(*path) != Some(reason));
    let mut events: Vec<Event> = new
        .map(|(path, reason)| {
            let text = format!("route '{path}' of gateway '{name}' gets no traffic: {reason}");
            let route = format!("routes:{path}");
            let tags = [route.as_str(), "failed", "info", "gateway_driver:ERROR"];
            gateway_event(name, &tags, notification(&text), fact(), context)
        })
        .collect();
    if events.is_empty() {
        events.push(gateway_event(name, &["restored"], blank(), fact(), context));
    }
    events
}

fn released(state: &State, routed: &Routed, context: &Context) -> Vec<Event> {
    let mut by_service: BTreeMap<&ServiceKey, BTreeSet<&str>> = BTreeMap::new();
    for (key, instance) in &routed.released {
        by_service.entry(key).or_default().insert(instance);
    }
    let mut events = Vec::new();
    for (key, names) in by_service {
        let Some(service) = state
            .deployment(&key.deployment)
            .and_then(|found| found.service(&key.cluster, &key.service))
        else {
            continue;
        };
        let mut instances = service.instances.clone();
        for instance in &mut instances {
            if names.contains(instance.name.as_str()) && instance.leaving == Leaving::Draining {
                instance.leaving = Leaving::Released;
            }
        }
        if instances != service.instances {
            events.push(instances_event(key, instances, context));
        }
    }
    events
}

fn synchronisation(
    key: &ServiceKey,
    what: &str,
    value: serde_json::Value,
    fact: DeploymentFact,
    context: &Context,
) -> Event {
    let tags = [format!("synchronisation:{what}"), format!("synchronization:{what}")];
    archive::service(
        "synchronisation",
        key,
        &tags.each_ref().map(String::as_str),
        value,
        fact,
        context,
    )
}

fn failure(key: &ServiceKey, words: &str, phase: Phase, context: &Context) -> Event {
    let tags = ["failed", "info", "container_driver:ERROR"];
    archive::service("event", key, &tags, notification(words), phase_fact(key, phase), context)
}

fn phase_event(
    key: &ServiceKey,
    name: PhaseName,
    notification: Option<String>,
    context: &Context,
) -> Event {
    let phase = Phase { name, since: context.now, notification };
    let tag = format!("phase:{}", name.as_str());
    archive::service("deployment", key, &[&tag], blank(), phase_fact(key, phase), context)
}

fn phase_fact(key: &ServiceKey, phase: Phase) -> DeploymentFact {
    DeploymentFact::PhaseChanged {
        cluster: key.cluster.clone(),
        service: key.service.clone(),
        phase,
    }
}
