//! What is printed can be sent back and changes nothing.

use crate::generate::steps;
use crate::laws::content;
use crate::world::{HOST, World, deploy, store};
use proptest::prelude::*;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::dsl;
use segue_domain::state::State;
use serde_json::Value;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_can_be_sent_back(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            let Some(command) = step.command(&world.state(), &[]) else { continue };
            drop(world.execute(&command));
        }
        for key in keys(&world.state()) {
            let state = world.state();
            if refers_to_what_is_gone(&state, &key) {
                continue;
            }
            let text = dsl::representation(&state, &key, HOST).expect("it is there").to_string();
            let command = match key.kind {
                Kind::Deployment => deploy(&key.name, &text),
                _ => store(key.kind, &text),
            };
            // A breed that changed later may not fit the blueprint that shows it.
            let changed = key.kind == Kind::Blueprint
                && state.blueprint(&key.name).as_ref() != Some(&*state.blueprints()[&key.name].artifact);
            let command = match command {
                Err(_) if changed => continue,
                command => command.map_err(|problems| {
                    TestCaseError::fail(format!("{key}: {problems:?}\n{text}"))
                })?,
            };
            let before = printed(&world.state(), &key);
            let outcome = world.execute(&command);
            prop_assert!(outcome.is_ok(), "{} is refused: {:?}\n{}", key, outcome, text);
            let after = printed(&world.state(), &key);
            prop_assert_eq!(after, before, "{} changes\n{}", key, text);
        }
    }

    /// Shows: D15
    #[test]
    fn an_export_can_be_deployed_under_another_name(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            let Some(command) = step.command(&world.state(), &[]) else { continue };
            drop(world.execute(&command));
        }
        let state = world.state();
        for (name, stored) in state.deployments() {
            let deployment = &stored.artifact;
            if deployment.services().any(|(_, service)| service.is_undeploying()) {
                continue;
            }
            let mut export = dsl::representation_as_blueprint(&state, name).unwrap();
            // The ports of the original are used.
            for entries in ["gateways", "endpoints"] {
                export.as_object_mut().unwrap().remove(entries);
            }
            let command = deploy("copy", &export.to_string())
                .map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{export:#}")))?;
            let foreseen = world.store.validate(&command, &world.context());
            let foreseen = foreseen.map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{export:#}")))?;
            let copy = foreseen.deployment("copy").unwrap();
            for ((cluster, service), (_, copied)) in deployment.services().zip(copy.services()) {
                prop_assert_eq!(&copied.breed, &service.breed);
                prop_assert_eq!(copied.scale, service.scale);
                prop_assert_eq!(&copied.arguments, &service.arguments, "{}\n{:#}", cluster, export);
            }
        }
    }
}

fn keys(state: &State) -> Vec<ArtifactKey> {
    let gateways = state.published_gateways().map(|(name, _)| (Kind::Gateway, name));
    let deployments = state.deployments().keys().map(|name| (Kind::Deployment, name));
    let breeds = state.breeds().keys().map(|name| (Kind::Breed, name));
    let scales = state.scales().keys().map(|name| (Kind::Scale, name));
    let blueprints = state.blueprints().keys().map(|name| (Kind::Blueprint, name));
    let conditions = state.conditions().keys().map(|name| (Kind::Condition, name));
    let rewrites = state.rewrites().keys().map(|name| (Kind::Rewrite, name));
    let routes = state.routes().keys().map(|name| (Kind::Route, name));
    let templates = state.templates().keys().map(|name| (Kind::Template, name));
    let names = gateways.chain(deployments).chain(breeds).chain(scales).chain(blueprints);
    let names = names.chain(conditions).chain(rewrites).chain(routes).chain(templates);
    names.map(|(kind, name)| ArtifactKey::new(kind, name)).collect()
}

/// What a write of `key` may touch. Breeds that stand in a document are stored, too.
fn printed(state: &State, key: &ArtifactKey) -> Value {
    let content = content(state);
    match key.kind {
        Kind::Deployment => serde_json::json!([content["deployments"], content["gateways"]]),
        Kind::Blueprint => content["blueprints"][&key.name]["artifact"].clone(),
        Kind::Breed
        | Kind::Condition
        | Kind::Escalation
        | Kind::Scale
        | Kind::Sla
        | Kind::Gateway
        | Kind::Rewrite
        | Kind::Route
        | Kind::Template => content,
    }
}

/// Services on their way out would be wanted again, and those that failed be tried again: that is what sending them
/// means.
fn refers_to_what_is_gone(state: &State, key: &ArtifactKey) -> bool {
    use segue_domain::artifact::PhaseName;
    key.kind == Kind::Deployment
        && state.deployment(&key.name).is_some_and(|deployment| {
            deployment.services().any(|(_, service)| {
                service.is_undeploying() || service.status.phase.name == PhaseName::Failed
            })
        })
}
