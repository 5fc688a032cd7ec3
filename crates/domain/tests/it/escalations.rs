//! Escalations, as transcripts: given a running cluster with an SLA, when an event asks for escalation, then these
//! scales and this account of it.

use crate::world::{World, deploy, post, undeploy};
use segue_domain::command::{Command, EscalationEvent, Report};
use segue_domain::event::Record;
use segue_domain::problem::ProblemKind;
use std::sync::Arc;

/// Two clusters of one service each, with two instances; the web has the SLA.
fn shop(escalations: &str) -> World {
    let mut world = World::new();
    let body = format!(
        "
clusters:
  web:
    sla: {{type: escalation_only, escalations: {escalations}}}
    services: [{{breed: {{name: web:1, deployable: w, ports: {{http: 80}}}}, scale: {{cpu: 0.5, memory: 512MB, instances: 2}}}}]
  store:
    services: [{{breed: {{name: store:1, deployable: s, ports: {{api: 81}}}}, scale: {{cpu: 1, memory: 1GB, instances: 2}}}}]"
    );
    world.must(&deploy("shop", &body).unwrap());
    world.run("shop", "web", "web:1");
    world.run("shop", "store", "store:1");
    world
}

const WEB: [&str; 2] = ["deployments:shop", "clusters:web"];

/// Somebody posts an event with `tags`, and the worker acts on it.
fn ask(world: &mut World, tags: &[&str]) -> Vec<Arc<Record>> {
    let posted = world.must(&post("anything", tags));
    let event = EscalationEvent::of(posted[0].position, &posted[0].event.tags).unwrap();
    world.must(&Command::Report(Report::Escalation(event)))
}

fn escalate(world: &mut World) -> Vec<Arc<Record>> {
    ask(world, &["sla:escalate", WEB[0], WEB[1]])
}

fn deescalate(world: &mut World) -> Vec<Arc<Record>> {
    ask(world, &["sla:deescalate", WEB[0], WEB[1]])
}

/// Instances of web and store, cpu of the web.
fn scales(world: &World) -> (u32, u32, f64) {
    let state = world.state();
    let shop = state.deployment("shop").unwrap();
    let scale = |cluster: &str| shop.clusters[cluster].services[0].scale;
    (scale("web").instances, scale("store").instances, scale("web").cpu.cores())
}

const WEB_INSTANCES: &str = "{type: scale_instances, minimum: 1, maximum: 3, scale_by: 1}";
const STORE_INSTANCES: &str =
    "{type: scale_instances, target: store, minimum: 2, maximum: 3, scale_by: 1}";
const WEB_CPU: &str = "{type: scale_cpu, minimum: 0.5, maximum: 1, scale_by: 0.25}";
const PAGER: &str = "{type: pager, who: me}";

/// Shows: D41
#[test]
fn groups_and_steps() {
    /// `+` escalates and `-` de-escalates; then web, store and the web's cpu are as given.
    fn check(escalations: &str, steps: &str, expected: (u32, u32, f64)) {
        let mut world = shop(escalations);
        for step in steps.chars() {
            if step == '+' {
                escalate(&mut world)
            } else {
                deescalate(&mut world)
            };
        }
        assert_eq!(scales(&world), expected, "{escalations} {steps}");
    }
    check(&format!("[{WEB_INSTANCES}]"), "+", (3, 2, 0.5));
    check(&format!("[{WEB_INSTANCES}]"), "++", (3, 2, 0.5));
    check(&format!("[{WEB_INSTANCES}]"), "++--", (1, 2, 0.5));
    check(&format!("[{WEB_INSTANCES}]"), "---", (1, 2, 0.5));
    check("[]", "+", (2, 2, 0.5));
    check(PAGER, "+", (2, 2, 0.5));
    // The first that changes something; in reverse order when de-escalating.
    let one = format!("[{{to_one: [{WEB_INSTANCES}, {PAGER}, {STORE_INSTANCES}]}}]");
    check(&one, "+", (3, 2, 0.5));
    check(&one, "++", (3, 3, 0.5));
    check(&one, "+++", (3, 3, 0.5));
    check(&one, "++-", (3, 2, 0.5));
    check(&one, "++--", (2, 2, 0.5));
    // All of them; what is at its bound stays there.
    let all = format!("[{{to_all: [{WEB_INSTANCES}, {STORE_INSTANCES}, {WEB_CPU}]}}]");
    check(&all, "+", (3, 3, 0.75));
    check(&all, "++", (3, 3, 1.0));
    check(&all, "++-", (2, 2, 0.75));
    // Each sees what the one before made: three steps of one, up to the bound.
    let twice = format!("[{{to_all: [{STORE_INSTANCES}, {STORE_INSTANCES}]}}]");
    check(&twice, "+", (2, 3, 0.5));
    // A list of an SLA is one `to_all`, and a group is changed when one of its members is.
    check(&format!("[{WEB_INSTANCES}, {STORE_INSTANCES}]"), "+", (3, 3, 0.5));
    let nested =
        format!("[{{to_one: [{{to_all: [{PAGER}, {WEB_INSTANCES}]}}, {STORE_INSTANCES}]}}]");
    check(&nested, "++", (3, 3, 0.5));
}

/// A cluster that is to be scaled by another one cannot go alone, and what went does not keep others from being merged.
#[test]
fn targets_stay_as_long_as_what_scales_them() {
    let mut world = shop(&format!("[{STORE_INSTANCES}]"));
    let named = |cluster: &str| {
        format!("{{clusters: {{{cluster}: {{services: [{{breed: {cluster}:1}}]}}}}}}")
    };
    let problems = world.execute(&undeploy("shop", &named("store")).unwrap()).unwrap_err();
    let problem = problems.first();
    assert_eq!(problem.kind, ProblemKind::UnresolvedScaleEscalationTargetCluster);
    assert_eq!(problem.pointer, "/clusters/web/sla/escalations/0/target");
    world.must(&undeploy("shop", &named("web")).unwrap());
    // The target may go with it.
    world.must(&undeploy("shop", &named("store")).unwrap());
    let new = "{clusters: {new: {services: [{breed: {name: new:1, deployable: n}}]}}}";
    world.must(&deploy("shop", new).unwrap());
}

#[test]
fn an_escalation_is_no_write_of_a_user_and_says_what_it_did() {
    let mut world = shop(&format!("[{WEB_INSTANCES}]"));
    let records = escalate(&mut world);
    let told: Vec<(&str, &[String])> = records
        .iter()
        .map(|record| (record.event.kind.as_str(), record.event.tags.as_slice()))
        .collect();
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].0, "deployment");
    assert!(
        told[0].1.contains(&"scale".to_owned()) && told[0].1.contains(&"services:web:1".to_owned())
    );
    assert_eq!(told[1].0, "escalation");
    assert!(told[1].1.contains(&"escalation:applied".to_owned()));
    let value = &records[1].event.value;
    assert_eq!(value["scaled"][0]["from"]["instances"], 2);
    assert_eq!(value["scaled"][0]["to"]["instances"], 3);
    let state = world.state();
    let service = state.deployment("shop").unwrap().service("web", "web:1").unwrap();
    assert_eq!(service.status.phase.name.as_str(), "Initiated");
    // Neither this account nor the scale is a verdict of an SLA, which would begin its pause anew.
    assert!(records.iter().all(|record| !record.event.tags.contains("sla")));
}

/// Shows: D20
#[test]
fn an_event_is_acted_on_once_and_never_after_a_later_one() {
    let mut world = shop(&format!("[{WEB_CPU}]"));
    let first = world.must(&post("event", &["sla:escalate", WEB[0], WEB[1]]));
    let second = world.must(&post("event", &["sla:escalate", WEB[0], WEB[1]]));
    let report = |record: &Record| {
        let event = EscalationEvent::of(record.position, &record.event.tags).unwrap();
        Command::Report(Report::Escalation(event))
    };
    assert_eq!(world.must(&report(&second[0])).len(), 2);
    assert_eq!(world.state().escalated(), second[0].position);
    assert_eq!(world.must(&report(&second[0])), []);
    assert_eq!(world.must(&report(&first[0])), []);
    assert_eq!(scales(&world), (2, 2, 0.75));
}

#[test]
fn what_cannot_be_acted_on_is_told_and_done_with() {
    let check = |tags: &[&str], reason: &str| {
        let mut world = shop(&format!("[{WEB_INSTANCES}]"));
        let records = ask(&mut world, tags);
        assert_eq!(records.len(), 1, "{tags:?}");
        assert!(records[0].event.tags.contains("escalation:ignored"), "{tags:?}");
        assert_eq!(records[0].event.value["reason"], reason, "{tags:?}");
        assert_eq!(scales(&world), (2, 2, 0.5));
        assert!(world.state().escalated() > segue_domain::event::Position::START);
    };
    check(&["sla:escalate"], "the event names no deployment or no cluster");
    check(&["sla:escalate", "deployments:shop"], "the event names no deployment or no cluster");
    check(&["sla:escalate", "deployments:x", "clusters:web"], "there is no deployment 'x'");
    check(&["sla:escalate", "deployments:shop", "clusters:x"], "there is no cluster 'x'");
    check(&["sla:escalate", "deployments:shop", "clusters:store"], "cluster 'store' has no SLA");
    let mut world = shop("[]");
    let records = escalate(&mut world);
    assert_eq!(
        records[0].event.value["reason"],
        "no escalation changes anything within its bounds"
    );
}
