//! Decides writes to artifacts that only users change, and the removal of any artifact but deployments.

use super::archive::{archived, gateway_undeployed};
use super::{Artifact, Context, Rules, Store, Submission, Verb};
use crate::artifact::{ArtifactKey, Blueprint, Breed, GatewayName, Kind};
use crate::dsl;
use crate::event::{Event, Fact, GatewayFact, StaticFact};
use crate::problem::{Problem, ProblemKind, Result};
use crate::state::State;

/// Stores what has no rules of its own; a blueprint with its breeds. A write that changes nothing is archived all the same.
pub(super) fn store(state: &State, store: &Store, context: &Context) -> Vec<Event> {
    let submission = &store.submission;
    match &store.artifact {
        Artifact::Blueprint(blueprint) => store_blueprint(state, blueprint, submission, context),
        Artifact::Breed(breed) => vec![store_breed(state, breed, submission, context)],
        Artifact::Scale(scale) => {
            let fact = StaticFact::ScaleStored(scale.clone());
            let same =
                state.scales().get(&scale.name).is_some_and(|stored| *stored.artifact == *scale);
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Condition(condition) => {
            let fact = StaticFact::ConditionStored(condition.clone());
            let stored = state.conditions().get(&condition.name);
            let same = stored.is_some_and(|stored| *stored.artifact == *condition);
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Rewrite(rewrite) => {
            let fact = StaticFact::RewriteStored(rewrite.clone());
            let stored = state.rewrites().get(&rewrite.name);
            let same = stored.is_some_and(|stored| *stored.artifact == *rewrite);
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Route(route) => {
            let fact = StaticFact::RouteStored(route.clone());
            let stored = state.routes().get(&route.name);
            let same = stored.is_some_and(|stored| *stored.artifact == **route);
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Template(template) => {
            let fact = StaticFact::TemplateStored(template.clone());
            let stored = state.templates().get(&template.name);
            let same = stored.is_some_and(|stored| *stored.artifact == *template);
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Escalation(escalation) => {
            let stored = state.escalations().get(&escalation.name);
            let same = stored.is_some_and(|stored| *stored.artifact == **escalation);
            let fact = StaticFact::EscalationStored(escalation.clone());
            vec![static_event(fact, same, submission, context)]
        }
        Artifact::Sla(sla) => {
            let stored = state.slas().get(&sla.name);
            let same = stored.is_some_and(|stored| *stored.artifact == **sla);
            vec![static_event(StaticFact::SlaStored(sla.clone()), same, submission, context)]
        }
        Artifact::Gateway(_) => {
            unreachable!("gateways have rules of their own, see gateways::store")
        }
    }
}

/// Removes an artifact. A removal that removed nothing archives nothing.
pub(super) fn delete(
    state: &State,
    key: &ArtifactKey,
    context: &Context,
    rules: &Rules,
) -> Result<Vec<Event>> {
    let representation = dsl::representation(state, key, &rules.gateway_host);
    let Some(representation) = representation else { return Ok(Vec::new()) };
    let submission = Submission { verb: Verb::Delete, representation };
    let fact = match key.kind {
        Kind::Gateway => {
            check_gateway_removal(state, &key.name)?;
            Fact::Gateway { name: key.name.clone(), fact: GatewayFact::Deleted }
        }
        Kind::Deployment => {
            let detail = "a deployment is removed by naming its services";
            return Err(Problem::new(ProblemKind::NotSupported, "", detail).into());
        }
        Kind::Blueprint
        | Kind::Breed
        | Kind::Condition
        | Kind::Escalation
        | Kind::Rewrite
        | Kind::Route
        | Kind::Scale
        | Kind::Sla
        | Kind::Template => Fact::Static(StaticFact::Deleted(key.clone())),
    };
    let mut events = vec![archived(key, &submission, Some(fact), context)];
    let gateway = state.gateways().get(&key.name).filter(|_| key.kind == Kind::Gateway);
    if gateway.is_some_and(|stored| stored.deployed) {
        events.push(gateway_undeployed(&key.name, submission.representation, None, context));
    }
    Ok(events)
}

/// The archive events of the breeds that stand in `breeds`, written in place by somebody.
pub(super) fn store_inline_breeds<'a>(
    state: &State,
    breeds: impl IntoIterator<Item = &'a Breed>,
    verb: Verb,
    context: &Context,
) -> Vec<Event> {
    let store = |breed: &Breed| {
        let submission = Submission { verb, representation: dsl::write_breed(breed) };
        store_breed(state, breed, &submission, context)
    };
    breeds.into_iter().map(store).collect()
}

fn store_blueprint(
    state: &State,
    blueprint: &Blueprint,
    submission: &Submission,
    context: &Context,
) -> Vec<Event> {
    let services = blueprint.clusters.values().flat_map(|cluster| &cluster.services);
    let inline = services.filter_map(|service| service.breed.inline());
    let mut events = store_inline_breeds(state, inline, submission.verb, context);
    // As it was written, or as it is printed with the breeds of today.
    let same = state.blueprints().get(&blueprint.name).is_some_and(|stored| {
        *stored.artifact == *blueprint || state.with_current_breeds(&stored.artifact) == *blueprint
    });
    let fact = StaticFact::BlueprintStored(Box::new(blueprint.clone()));
    events.push(static_event(fact, same, submission, context));
    events
}

fn store_breed(state: &State, breed: &Breed, submission: &Submission, context: &Context) -> Event {
    let same = state.breeds().get(&breed.name).is_some_and(|stored| *stored.artifact == *breed);
    static_event(StaticFact::BreedStored(Box::new(breed.clone())), same, submission, context)
}

fn static_event(fact: StaticFact, same: bool, submission: &Submission, context: &Context) -> Event {
    let key = fact.key();
    archived(&key, submission, (!same).then_some(Fact::Static(fact)), context)
}

/// Internal gateways go with their deployment (documents, 6.2).
fn check_gateway_removal(state: &State, name: &str) -> Result<()> {
    match GatewayName::parse(name) {
        Some(GatewayName::Internal { deployment, .. })
            if state.deployment(deployment).is_some() =>
        {
            let detail = format!("gateway '{name}' belongs to deployment '{deployment}'");
            let hint = format!(
                "remove its services from deployment '{deployment}'; the gateway goes with them"
            );
            Err(Problem::new(ProblemKind::InternalGatewayRemove, "", detail).hint(hint).into())
        }
        _ => Ok(()),
    }
}
