//! The worker of a deployment against simulated containers, with a clock that only the test moves.

use super::*;
use crate::containers::SimulatedContainers;
use crate::containers::simulated::Operation;
use crate::gateways::simulated::SimulatedGateways;
use crate::routing::GatewaysWorker;
use crate::turn;
use futures::executor::block_on;
use segue_domain::artifact::{Phase, PhaseName};
use segue_domain::command::{Command, Context, Rules, Submission, Verb};
use segue_domain::dsl::{self, Options};
use segue_domain::event::Position;
use segue_domain::store::Store;
use std::collections::{BTreeMap, BTreeSet};

const START: OffsetDateTime = time::macros::datetime!(2030-01-10 12:00 UTC);
const SHOP: &str = "clusters: {web: {name: 'web:1', deployable: {type: process, definition: a}}}";

struct World {
    store: Store,
    containers: SimulatedContainers,
    deployments: DeploymentWorker,
    gateways: GatewaysWorker,
    proxy: Arc<SimulatedGateways>,
}

impl World {
    /// A deployment that was asked for at the start.
    fn new() -> Self {
        let store = Store::in_memory(Rules::default()).unwrap();
        let containers = SimulatedContainers::new();
        let mut number = 0;
        let suffixes = Box::new(move || {
            number += 1;
            number.to_string()
        });
        let settings = Settings::default();
        let drivers: Vec<Arc<dyn ContainerDriver>> = vec![Arc::new(containers.clone())];
        let name = "shop".to_owned();
        let proxy = Arc::new(SimulatedGateways::default());
        let world = Self {
            deployments: DeploymentWorker::new(name, drivers, settings.clone(), suffixes),
            gateways: GatewaysWorker::new(proxy.clone(), settings),
            proxy,
            containers,
            store,
        };
        world.deploy(SHOP);
        world
    }

    /// Asks for what `text` says.
    fn deploy(&self, text: &str) {
        let body = dsl::read_deployment_body(&dsl::document(text).unwrap(), &Options::default());
        self.ask(&Command::Deploy {
            name: "shop".to_owned(),
            body: Box::new(body.unwrap()),
            submission: Submission { verb: Verb::Update, representation: serde_json::json!("") },
        });
    }

    /// Asks for what `text` names to go.
    fn undeploy(&self, text: &str) {
        let body = dsl::read_removal_body(&dsl::document(text).unwrap(), &Options::default());
        self.ask(&Command::Undeploy {
            name: "shop".to_owned(),
            body: Box::new(body.unwrap()),
            submission: Submission { verb: Verb::Delete, representation: serde_json::json!("") },
        });
    }

    fn ask(&self, command: &Command) {
        let context = Context {
            now: START,
            actor: "user".to_owned(),
            cause: None,
            correlation: "request".to_owned(),
        };
        block_on(self.store.execute(command, &context)).unwrap();
    }

    /// Whether some record says these words.
    fn was_told(&self, words: &str) -> bool {
        let records = self.store.log().read(Position::START, usize::MAX).unwrap();
        records.iter().any(|record| record.event.value.to_string().contains(words))
    }

    /// Lets time pass, a minute at a time from `minute` on, until all is done.
    fn settle(&mut self, minute: i64) {
        let mut minutes = minute..minute + 10;
        let done = minutes.any(|minute| self.phase_at(minute * 60).name == PhaseName::Done);
        assert!(done, "not done after ten minutes");
    }

    /// The names of what runs.
    fn instances(&self) -> BTreeSet<String> {
        self.containers.instances().into_iter().map(|instance| instance.name).collect()
    }

    /// The phase after one turn of each worker, which may fail.
    fn tries(&mut self, second: i64) -> Phase {
        let now = START + time::Duration::seconds(second);
        let Self { store, containers, deployments, gateways, .. } = self;
        containers.advance(now);
        let workers: [&mut dyn Worker; 2] = [deployments, gateways];
        for worker in workers {
            drop(block_on(turn::take(store, worker, now, store.log().last(), || {
                "turn".to_owned()
            })));
        }
        let state = store.state();
        state.deployment("shop").unwrap().clusters["web"].services[0].status.phase.clone()
    }

    /// The phase of the service once nothing happens any more, so many seconds after the start.
    fn phase_at(&mut self, second: i64) -> Phase {
        let now = START + time::Duration::seconds(second);
        let Self { store, containers, deployments, gateways, .. } = self;
        let mut quiet_rounds = 0;
        for _ in 0..100 {
            let before = store.log().last();
            containers.advance(now);
            let workers: [&mut dyn Worker; 2] = [deployments, gateways];
            for worker in workers {
                block_on(turn::take(store, worker, now, store.log().last(), || "turn".to_owned()))
                    .unwrap();
            }
            quiet_rounds = if store.log().last() == before { quiet_rounds + 1 } else { 0 };
            if quiet_rounds == 3 {
                let state = store.state();
                let shop = state.deployment("shop").unwrap();
                return shop.clusters["web"].services[0].status.phase.clone();
            }
        }
        panic!("it never settles");
    }
}

/// Shows: D36, D37
#[test]
fn a_time_out_counts_from_the_phase_and_tells_the_drivers_words() {
    let mut world = World::new();
    assert_eq!(world.phase_at(0).name, PhaseName::Done);
    // Long after the service was asked for, what runs is lost and cannot be replaced.
    let instance = world.containers.instances()[0].name.clone();
    let error = Error::Transient("no room on this host".to_owned());
    world.containers.fail(Operation::Start, 10_000, &error);
    assert!(world.containers.vanish(&instance));
    let lost = 10_000;
    assert_eq!(world.phase_at(lost).name, PhaseName::Updating);
    assert_eq!(world.phase_at(lost + 599).name, PhaseName::Updating);
    let failed = world.phase_at(lost + 600);
    assert_eq!(failed.name, PhaseName::Failed);
    let words = failed.notification.unwrap_or_default();
    assert!(words.contains("600 s") && words.contains("no room on this host"), "{words}");
}

/// Shows: D38
#[test]
fn whatever_makes_a_service_differ_rolls_it() {
    let web = |breed: &str, service: &str| {
        format!(
            "clusters: {{web: {{services: [{{breed: {{name: 'web:1', {breed}}}, {service}}}]}}}}"
        )
    };
    let image = "deployable: {type: process, definition: a}";
    let scale = "scale: {cpu: 1, memory: 1GB, instances: 2}";
    let first = web(image, scale);
    let with = |more: &str| web(&format!("{image}, {more}"), scale);
    let rolling = [
        ("image", web("deployable: {type: process, definition: b}", scale)),
        ("ports", with("ports: {http: 8080/http}")),
        ("environment", with("environment_variables: {GREETING: hello}")),
        ("breed's arguments", with("arguments: [{a: b}]")),
        ("arguments", web(image, &format!("{scale}, arguments: [{{a: b}}]"))),
        ("network", web(image, &format!("{scale}, network: host"))),
        ("dialects", web(image, &format!("{scale}, dialects: {{simulated: {{a: b}}}}"))),
        ("cpu", web(image, "scale: {cpu: 2, memory: 1GB, instances: 2}")),
        ("memory", web(image, "scale: {cpu: 1, memory: 2GB, instances: 2}")),
        (
            "health checks",
            web(
                &format!("{image}, ports: {{http: 8080/http}}"),
                &format!(
                    "{scale}, health_checks: [{{path: /, port: http, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}}]"
                ),
            ),
        ),
    ];
    for (what, changed) in rolling {
        let mut world = World::new();
        world.deploy(&first);
        world.settle(0);
        let before = world.instances();
        world.deploy(&changed);
        world.settle(10);
        let after = world.instances();
        assert_eq!((before.len(), after.len()), (2, 2), "{what}");
        assert!(before.is_disjoint(&after), "{what} did not roll the service: {after:?}");
    }
    // The number of instances concerns those only that come or go, and the same again nobody.
    let mut world = World::new();
    world.deploy(&first);
    world.settle(0);
    let two = world.instances();
    world.deploy(&first);
    world.settle(10);
    assert_eq!(world.instances(), two);
    world.deploy(&web(image, "scale: {cpu: 1, memory: 1GB, instances: 3}"));
    world.settle(20);
    let three = world.instances();
    assert!(three.len() == 3 && three.is_superset(&two), "{two:?} {three:?}");
}

#[test]
fn of_too_many_instances_those_that_run_stay() {
    let results = Arc::new(Results::default());
    let World { store, containers, deployments, gateways, proxy } = World::new();
    let deployments = deployments.held_back_by(Arc::clone(&results));
    let mut world = World { store, containers, deployments, gateways, proxy };
    let web = |instances: u32| {
        format!(
            "clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: {{type: process, definition: a}}, ports: {{http: 8080/http}}, health_checks: [{{path: /, port: http, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}}]}}, scale: {{cpu: 1, memory: 1GB, instances: {instances}}}}}]}}}}"
        )
    };
    world.deploy(&web(3));
    world.phase_at(0);
    let checks = crate::checks::checks(&world.store.state());
    results.expect(&checks);
    let newest = world.containers.instances().into_iter().max_by_key(|found| found.created);
    let newest = newest.unwrap().name;
    results.note(checks.iter().find(|check| check.instance == newest).unwrap(), Ok(()));
    assert_eq!(world.phase_at(1).name, PhaseName::Updating);
    world.deploy(&web(1));
    for second in 2..5 {
        world.phase_at(second);
    }
    assert_eq!(world.instances(), BTreeSet::from([newest]));
}

#[test]
fn an_instance_that_was_started_again_in_its_place_passes_its_checks_anew() {
    let results = Arc::new(Results::default());
    let World { store, containers, deployments, gateways, proxy } = World::new();
    let deployments = deployments.held_back_by(Arc::clone(&results));
    let mut world = World { store, containers, deployments, gateways, proxy };
    world.deploy(
        "clusters: {web: {services: [{breed: {name: 'web:1', deployable: {type: process, definition: a}, ports: {http: 8080/http}, health_checks: [{path: /, port: http, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}]}, scale: {cpu: 1, memory: 1GB, instances: 1}}]}}",
    );
    world.phase_at(0);
    let checks = crate::checks::checks(&world.store.state());
    results.expect(&checks);
    let pass = || results.note(&checks[0], Ok(()));
    pass();
    world.phase_at(1);
    let name = checks[0].instance.clone();
    assert!(targets(&world)[&name]);
    assert!(world.containers.turn(&name, Condition::Restarting("it crashed".to_owned())));
    world.phase_at(2);
    assert!(world.containers.turn(&name, Condition::Running));
    world.phase_at(3);
    assert!(!targets(&world)[&name]);
    pass();
    world.phase_at(4);
    assert!(targets(&world)[&name]);
}

/// Two instances of `command`, which run after `delay` seconds.
fn two(command: &str, delay: u32) -> String {
    format!(
        "clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: {{type: process, definition: {command}}}}}, scale: {{cpu: 1, memory: 1GB, instances: 2}}, dialects: {{simulated: {{delay: {delay}}}}}}}]}}}}"
    )
}

/// Whether each instance that the state knows is a target, by name.
fn targets(world: &World) -> BTreeMap<String, bool> {
    let state = world.store.state();
    let service = &state.deployment("shop").unwrap().clusters["web"].services[0];
    service.instances.iter().map(|found| (found.name.clone(), found.deployed)).collect()
}

/// What serves goes on, whatever becomes of it while the service is Failed.
#[test]
fn what_served_stays_when_a_change_failed() {
    let mut world = World::new();
    world.deploy(&two("a", 0));
    world.settle(0);
    let before = world.instances();
    let error = Error::Transient("no room on this host".to_owned());
    world.containers.fail(Operation::Start, 10_000, &error);
    world.deploy(&two("a", 0).replace("instances: 2", "instances: 3"));
    world.phase_at(600);
    assert_eq!(world.phase_at(1201).name, PhaseName::Failed);
    let first = before.first().unwrap();
    assert!(world.containers.turn(first, Condition::Restarting("it crashed".to_owned())));
    world.phase_at(1202);
    assert_eq!((world.instances(), targets(&world)[first]), (before.clone(), false));
    assert!(world.containers.turn(first, Condition::Running));
    assert_eq!(world.phase_at(1203).name, PhaseName::Failed);
    assert!(world.instances() == before && targets(&world).values().all(|target| *target));
}

#[test]
fn an_unfinished_change_never_serves() {
    for abandoned in [false, true] {
        let mut world = World::new();
        world.deploy(&two("a", 0));
        world.settle(0);
        let before = world.instances();
        // Of the next definition one instance comes to run.
        world.deploy(&two("b", 9000));
        world.phase_at(600);
        let new: Vec<String> = world.instances().difference(&before).cloned().collect();
        assert_eq!(new.len(), 2);
        assert!(world.containers.turn(&new[0], Condition::Running));
        assert_eq!(world.phase_at(601).name, PhaseName::Updating);
        if abandoned {
            world.deploy(&two("c", 9000));
            world.phase_at(602);
            world.phase_at(603);
            assert!(new.iter().all(|name| !world.instances().contains(name)), "b was given up");
        } else {
            assert_eq!(world.phase_at(1201).name, PhaseName::Failed);
            world.phase_at(1202);
            assert_eq!(world.instances(), before, "the unfinished ones are removed");
        }
        let targets = targets(&world);
        assert!(targets.iter().all(|(name, target)| *target == before.contains(name)));
        assert!(before.iter().all(|name| targets.contains_key(name)));
    }
}

/// What never served does not keep what is wanted now from serving.
#[test]
fn a_first_wish_that_never_worked_is_in_nobodys_way() {
    let mut world = World::new();
    world.deploy(&two("a", 9000));
    world.phase_at(0);
    let old = world.instances();
    assert!(old.iter().all(|name| world.containers.turn(name, Condition::Restarting("no".into()))));
    world.deploy(&two("b", 9000));
    world.phase_at(1);
    world.phase_at(2);
    let new = world.instances();
    assert!(new.len() == 2 && new.is_disjoint(&old), "{new:?}");
    let first = new.first().unwrap();
    assert!(world.containers.turn(first, Condition::Running));
    world.phase_at(3);
    assert!(targets(&world)[first]);
}

/// The driver cannot be asked until it is too late; then everything of the new definition runs.
#[test]
fn a_change_that_is_ready_after_its_time_out_is_taken() {
    let mut world = World::new();
    world.deploy(&two("a", 0));
    world.settle(0);
    let before = world.instances();
    world.deploy(&two("b", 9000));
    world.phase_at(600);
    let new: Vec<String> = world.instances().difference(&before).cloned().collect();
    let error = Error::Transient("the daemon is away".to_owned());
    world.containers.fail(Operation::Observe, 200, &error);
    assert!(new.iter().all(|name| world.containers.turn(name, Condition::Running)));
    let failed = (1201..1300).any(|second| world.tries(second).name == PhaseName::Failed);
    assert!(failed);
    for second in 1300..1600 {
        world.tries(second);
    }
    let serving: BTreeSet<String> =
        targets(&world).into_iter().filter(|(_, target)| *target).map(|(name, _)| name).collect();
    assert_eq!(serving, new.into_iter().collect::<BTreeSet<_>>(), "{serving:?}");
}

#[test]
fn what_an_earlier_wish_came_to_fails_no_later_one() {
    let mut world = World::new();
    world.deploy(&two("a", 9000));
    world.phase_at(0);
    let old = world.instances();
    assert_eq!(old.len(), 2);
    world.deploy(&two("b", 9000));
    world.phase_at(1);
    let refused = || Condition::Refused("image not found: a".to_owned());
    assert!(old.iter().all(|name| world.containers.turn(name, refused())));
    let phase = world.phase_at(2);
    assert_eq!((phase.name, phase.notification), (PhaseName::Updating, None));
    let new = world.instances();
    assert!(new.len() == 2 && new.is_disjoint(&old), "{new:?}");
    let refused = || Condition::Refused("image not found: b".to_owned());
    assert!(new.iter().all(|name| world.containers.turn(name, refused())));
    let phase = world.phase_at(3);
    assert_eq!(phase.name, PhaseName::Failed);
    assert_eq!(phase.notification.as_deref(), Some("image not found: b"));
}

#[test]
fn checks_that_ask_the_same_are_one() {
    let results = Arc::new(Results::default());
    let World { store, containers, deployments, gateways, proxy } = World::new();
    let deployments = deployments.held_back_by(Arc::clone(&results));
    let mut world = World { store, containers, deployments, gateways, proxy };
    let check = "{path: /, port: http, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}";
    world.deploy(&format!(
        "clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: {{type: process, definition: a}}, ports: {{http: 8080/http}}, health_checks: [{check}, {check}]}}}}]}}}}"
    ));
    assert_eq!(world.phase_at(0).name, PhaseName::Updating);
    let checks = crate::checks::checks(&world.store.state());
    results.expect(&checks);
    assert_eq!(checks.len(), 1);
    results.note(&checks[0], Ok(()));
    assert_eq!(world.phase_at(1).name, PhaseName::Done);
}

#[test]
fn what_was_applied_is_told_although_nobody_knows_what_is_busy() {
    let shop = |instances: u8, more: &str| {
        format!(
            "{{clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: {{type: process, definition: a}}, ports: {{http: 80}}}}, scale: {{cpu: 1, memory: 1MB, instances: {instances}}}}}]}}}}{more}}}"
        )
    };
    let mut world = World::new();
    world.deploy(&shop(2, ""));
    world.settle(0);
    assert_eq!(world.instances().len(), 2);
    let error = Error::Transient("the proxy does not say".to_owned());
    world.proxy.behave(|behaviour| behaviour.busy_error = Some(error));
    world.deploy(&shop(1, ", gateways: {9050: web/http}"));
    (0..3).for_each(|_| drop(world.tries(1200)));
    assert!(world.store.state().gateways()["shop/9050"].deployed);
    assert!(world.was_told("does not say"), "the reason is told");
    // What drains had its time, whatever it carries.
    assert_eq!(world.instances().len(), 2);
    world.settle(25);
    assert_eq!(world.instances().len(), 1);
}

#[test]
fn what_drains_for_ever_says_who_does_not_release_it() {
    for removed in [false, true] {
        let mut world = World::new();
        let shop = two("a", 0).replace("definition: a}", "definition: a}, ports: {http: 80}");
        world.deploy(&shop);
        world.settle(0);
        let before = world.instances();
        let error = Error::Transient("the proxy hangs".to_owned());
        world.proxy.behave(|behaviour| behaviour.error = Some(error));
        if removed {
            world.undeploy(&shop);
        } else {
            world.deploy(&shop.replace("instances: 2", "instances: 1"));
        }
        (0..3).for_each(|_| drop(world.tries(700)));
        (0..2).for_each(|_| drop(world.tries(1300)));
        let failed = world.tries(1300);
        assert_eq!((failed.name, world.instances()), (PhaseName::Failed, before.clone()));
        let words = failed.notification.unwrap_or_default();
        // Nobody waits for those that stay.
        let waits = if removed { before.len() } else { 1 };
        let named = before.iter().filter(|name| words.contains(&format!("'{name}'")));
        assert_eq!(named.count(), waits, "{words}");
        assert!(words.contains("waits for the gateways to release '"), "{words}");
    }
}

/// The driver that ran it was taken out of the configuration.
#[test]
fn what_no_driver_runs_any_more_fails_and_can_be_removed() {
    let shop = two("a", 0).replace("type: process", "type: docker");
    let mut world = World::new();
    world.deploy(&shop);
    world.settle(0);
    let before = world.instances();
    let directory = tempfile::tempdir().unwrap();
    let settings = crate::containers::process::Settings::new(directory.path());
    let process = crate::containers::ProcessDriver::new(settings).unwrap();
    let drivers: Vec<Arc<dyn ContainerDriver>> = vec![Arc::new(process)];
    let suffixes: Suffixes = Box::new(|| "none".to_owned());
    let (name, settings) = ("shop".to_owned(), Settings::default());
    world.deployments = DeploymentWorker::new(name, drivers, settings, suffixes);
    let phase = world.phase_at(700);
    let words = "Unsupported deployable type 'docker', supported: 'process'";
    assert_eq!((phase.name, phase.notification.as_deref()), (PhaseName::Updating, Some(words)));
    let phase = world.phase_at(1300);
    assert_eq!(phase.name, PhaseName::Failed);
    assert!(phase.notification.is_some_and(|told| told.ends_with(words)));
    world.undeploy(&shop);
    let now = START + time::Duration::seconds(1301);
    let World { store, deployments, .. } = &mut world;
    block_on(turn::take(store, deployments, now, store.log().last(), || "turn".to_owned()))
        .unwrap();
    assert!(store.state().deployment("shop").is_none(), "it comes to an end");
    assert_eq!(world.instances(), before);
    let names: Vec<String> = before.iter().map(|name| format!("'{name}'")).collect();
    assert!(world.was_told(&format!("what may still run: {}", names.join(", "))));
}

#[test]
fn what_ended_is_started_again_after_its_pause_only() {
    let mut world = World::new();
    world.deploy(&two("a", 9000));
    world.phase_at(0);
    let first = world.instances().first().unwrap().clone();
    assert!(world.containers.crash(&first, "it crashed"));
    let now = START + time::Duration::seconds(1);
    let state = world.store.state();
    let turn = block_on(world.deployments.turn(&state, now)).unwrap();
    assert_eq!(world.containers.started(), 2, "not in the turn in which that is seen");
    assert_eq!(turn.again_after, Some(Duration::from_secs(1)));
    world.phase_at(1);
    assert_eq!(world.containers.started(), 2, "not before the pause is over");
    world.phase_at(2);
    assert_eq!((world.containers.started(), world.instances().contains(&first)), (3, false));
}
