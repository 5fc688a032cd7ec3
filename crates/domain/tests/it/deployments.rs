//! Merging and taking away, as transcripts: given commands, when a command, then these events or this problem.

use crate::world::{World, delete, deploy, store, undeploy};
use segue_domain::artifact::{Instance, Kind, Leaving};
use segue_domain::command::{Command, Report, Routed, ServiceReport};
use segue_domain::dsl::{self, DeploymentBody};
use segue_domain::event::Record;
use std::collections::BTreeSet;
use std::sync::Arc;

const SHOP: &str = "
clusters:
  web:
    services: [{breed: {name: web:1, deployable: acme/web:1, ports: {http: 8000/http}}}]
gateways: {9080: web/http}";

const WEB_2: &str = "{clusters: {web: {services: [{breed: {name: web:2, deployable: acme/web:2, ports: {http: 8000/http}}}]}}}";
const NAMED_WEB_1: &str = "{clusters: {web: {services: [{breed: web:1}]}}}";
const NAMED_BOTH: &str = "{clusters: {web: {services: [{breed: web:1}, {breed: web:2}]}}}";

const LAYERED: &str = "
clusters:
  web:
    services:
    - breed: {name: web:1, deployable: w, ports: {http: 80}, dependencies: {db: store:*},
        environment_variables: {DB: $db.host:$db.ports.api}}
  store:
    services: [{breed: {name: store:1, deployable: s, ports: {api: 81}}}]
gateways: {9080: web/http, 9081: store/api}";

/// The shop, running.
fn shop() -> World {
    let mut world = World::new();
    world.must(&deploy("shop", SHOP).unwrap());
    world.run("shop", "web", "web:1");
    world
}

/// The shop with a second version beside the first, both running, with these weights.
fn canary(first: u8, second: u8) -> World {
    let mut world = shop();
    world.must(&deploy("shop", WEB_2).unwrap());
    world.run("shop", "web", "web:2");
    shift(&mut world, first, second);
    world
}

fn shift(world: &mut World, first: u8, second: u8) {
    let gateway = format!(
        "{{name: shop/web/http, port: 0, routes: {{web:1: {{weight: {first}%}}, web:2: {{weight: {second}%}}}}}}"
    );
    world.must(&store(Kind::Gateway, &gateway).unwrap());
}

fn weights(world: &World, gateway: &str) -> Vec<(String, u8)> {
    let state = world.state();
    let Some(gateway) = state.gateway(gateway) else { return Vec::new() };
    let weight =
        |(path, route): (&segue_domain::artifact::RoutePath, &segue_domain::artifact::Route)| {
            (
                path.as_str().to_owned(),
                route.weight.map_or(255, segue_domain::artifact::Percentage::value),
            )
        };
    gateway.routes.iter().map(weight).collect()
}

fn gateways(world: &World) -> Vec<String> {
    world.state().gateways().keys().cloned().collect()
}

/// How a service is, as `Deployment/Done`; empty when there is none.
fn status(world: &World, deployment: &str, cluster: &str, service: &str) -> String {
    let state = world.state();
    let found = state.deployment(deployment).and_then(|found| found.service(cluster, service));
    found.map_or(String::new(), |service| {
        format!("{:?}/{:?}", service.status.intention, service.status.phase.name)
    })
}

/// The events of `command`, each with its type and what tells it from others.
fn events(world: &mut World, command: &Command) -> Vec<String> {
    let told = |tags: &[String]| {
        const PREFIXES: [&str; 6] =
            ["breeds:", "deployments:", "gateways:", "services:", "archiving:", "synchronisation:"];
        let kept = tags.iter().filter(|tag| PREFIXES.iter().any(|prefix| tag.starts_with(prefix)));
        kept.cloned().collect::<Vec<_>>().join(" ")
    };
    let records = world.must(command);
    records
        .iter()
        .map(|record| format!("{} {}", record.event.kind, told(record.event.tags.as_slice())))
        .collect()
}

/// `command` is refused with exactly these problems, each as `type pointer`.
#[track_caller]
fn refused(world: &mut World, command: &Command, expected: &[&str]) {
    let before = world.state();
    let problems = world.execute(command).expect_err("it is to be refused");
    let found: Vec<String> = problems
        .iter()
        .map(|problem| format!("{} {}", problem.kind.name(), problem.pointer))
        .collect();
    assert_eq!(found, expected, "{problems:#?}");
    assert_eq!(*world.state(), *before, "a refusal leaves no trace");
}

#[track_caller]
fn deploy_refused(body: &str, expected: &[&str]) {
    refused(&mut World::new(), &deploy("shop", body).unwrap(), expected);
}

#[test]
fn a_new_deployment() {
    let mut world = World::new();
    assert_eq!(
        events(&mut world, &deploy("shop", SHOP).unwrap()),
        [
            "archive breeds:web:1 archiving:update",
            "archive deployments:shop archiving:update",
            "gateway gateways:shop/web/http deployments:shop",
            "gateway gateways:shop/9080 deployments:shop",
        ]
    );
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Initiated");
    assert_eq!(weights(&world, "shop/web/http"), [("shop/web/web:1/http".to_owned(), 100)]);
    let published: Vec<String> =
        world.state().published_gateways().map(|(name, _)| name.clone()).collect();
    assert_eq!(published, ["shop/9080"], "internal gateways wait for their first service");
}

/// Shows: D35
#[test]
fn the_first_ready_service_publishes_the_gateways_of_its_cluster() {
    let world = shop();
    let state = world.state();
    let stored = &state.gateways()["shop/web/http"];
    assert!(stored.published && stored.deployed);
    assert_eq!(stored.gateway.port.number, 20_000);
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Done");
}

/// Shows: D34, I4.3-update
#[test]
fn a_service_merged_into_a_running_cluster_gets_nothing() {
    let mut world = shop();
    assert_eq!(
        events(&mut world, &deploy("shop", WEB_2).unwrap()),
        [
            "archive breeds:web:2 archiving:update",
            "archive deployments:shop archiving:update",
            "gateway gateways:shop/web/http deployments:shop",
        ]
    );
    let expected = [("shop/web/web:1/http".to_owned(), 100), ("shop/web/web:2/http".to_owned(), 0)];
    assert_eq!(weights(&world, "shop/web/http"), expected);
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Done", "it is not touched");
    assert_eq!(world.state().gateway("shop/web/http").unwrap().port.number, 20_000);
}

#[test]
fn a_gateway_in_the_body_has_its_weights_completed() {
    let mut world = shop();
    let body = "{clusters: {web: {
        services: [{breed: web:1}, {breed: {name: web:2, deployable: w, ports: {http: 8000/http}}}],
        gateways: {routes: {web:1: {weight: 90%}, web:2: {}}}}}}";
    world.must(&deploy("shop", body).unwrap());
    let expected = [("shop/web/web:1/http".to_owned(), 90), ("shop/web/web:2/http".to_owned(), 10)];
    assert_eq!(weights(&world, "shop/web/http"), expected);
}

/// Shows: D2
#[test]
fn a_merge_that_changes_nothing_appends_only_archive_events() {
    let mut world = shop();
    let before =
        world.state().revision(&segue_domain::artifact::ArtifactKey::new(Kind::Deployment, "shop"));
    assert_eq!(
        events(&mut world, &deploy("shop", SHOP).unwrap()),
        ["archive breeds:web:1 archiving:update", "archive deployments:shop archiving:update"]
    );
    let after =
        world.state().revision(&segue_domain::artifact::ArtifactKey::new(Kind::Deployment, "shop"));
    assert_eq!(after, before);
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Done");
}

#[test]
fn a_changed_definition_is_stated_anew_and_keeps_its_instances() {
    let mut world = shop();
    world.must(&deploy("shop", &SHOP.replace("acme/web:1", "acme/web:1.1")).unwrap());
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Initiated");
    let state = world.state();
    let service = state.deployment("shop").unwrap().service("web", "web:1").unwrap();
    assert_eq!((service.instances.len(), &service.environment), (1, &None));
    assert_eq!(weights(&world, "shop/web/http"), [("shop/web/web:1/http".to_owned(), 100)]);
}

#[test]
fn arguments_of_the_service_outlive_a_new_breed() {
    let mut world = World::new();
    let body = |image: &str, arguments: &str| {
        format!(
            "{{clusters: {{web: {{services: [{{breed: {{name: b, deployable: {image}, arguments: [{{x: {image}}}]}}{arguments}}}]}}}}}}"
        )
    };
    world.must(&deploy("shop", &body("one", ", arguments: [{own: 1}]")).unwrap());
    world.must(&deploy("shop", &body("two", "")).unwrap());
    let state = world.state();
    let arguments = &state.deployment("shop").unwrap().service("web", "b").unwrap().arguments;
    let arguments: Vec<String> =
        arguments.iter().map(|argument| format!("{}={}", argument.key, argument.value)).collect();
    assert_eq!(arguments, ["privileged=false", "log=json", "x=two", "own=1"]);
}

#[test]
fn a_changed_port_takes_its_gateway_along() {
    let mut world = shop();
    world.must(&deploy("shop", "{clusters: {web: {services: [{breed: {name: web:1, deployable: w, ports: {api: 1}}}]}}}").unwrap());
    assert_eq!(gateways(&world), ["shop/web/api"], "what led to the old port goes, too");
}

#[test]
fn a_failed_service_is_tried_again_when_it_is_named() {
    let mut world = World::new();
    world.must(&deploy("shop", SHOP).unwrap());
    let failed = || ServiceReport::Failed("no such image".to_owned());
    // What fails before it is taken up is what was wished for before.
    assert!(world.report("shop", "web", "web:1", failed()).is_empty());
    world.report("shop", "web", "web:1", ServiceReport::TakenUp);
    world.report("shop", "web", "web:1", failed());
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Failed");
    for report in
        [ServiceReport::TakenUp, ServiceReport::Done, ServiceReport::Failed(String::new())]
    {
        assert!(world.report("shop", "web", "web:1", report).is_empty(), "nothing brings it back");
    }
    world.must(&deploy("shop", SHOP).unwrap());
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Initiated");
}

#[test]
fn an_entry_replaces_one_of_the_same_port() {
    let mut world = shop();
    let body = format!("{SHOP}\nenvironment_variables: {{}}")
        .replace("9080: web/http", "main: {port: 9080, routes: web/http}");
    if let Ok(command) = deploy("shop", &body) {
        world.must(&command);
        assert_eq!(gateways(&world), ["shop/main", "shop/web/http"]);
    }
}

#[test]
fn a_body_is_refused() {
    let service =
        |breed: &str| format!("{{clusters: {{web: {{services: [{{breed: {breed}}}]}}}}}}");
    deploy_refused(&service("web:1"), &["artifact-not-found /clusters/web/services/0/breed"]);
    deploy_refused(
        "{clusters: {web: {services: [{breed: web:1}, {breed: web:2}]}, store: {services: [{breed: store:1}]}}}",
        &[
            "artifact-not-found /clusters/web/services/0/breed",
            "artifact-not-found /clusters/web/services/1/breed",
            "artifact-not-found /clusters/store/services/0/breed",
        ],
    );
    deploy_refused(
        "{clusters: {web: {services: [{breed: {name: b, deployable: d}, scale: huge}]}}}",
        &["artifact-not-found /clusters/web/services/0/scale"],
    );
    deploy_refused("{name: plan}", &["artifact-not-found "]);
    deploy_refused(
        &service("{name: b, deployable: d, environment_variables: {A: ~}}"),
        &["unresolved-variable-value /clusters/web/services/0"],
    );
    deploy_refused(
        &service("{name: b, deployable: d, dependencies: {db: store:1}}"),
        &["unresolved-dependency /clusters/web/services/0"],
    );
    let mut world = World::new();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let breed = format!("{{name: {name}, deployable: d, dependencies: {{x: {other}}}}}");
        world.must(&store(Kind::Breed, &breed).unwrap());
    }
    let cycle = "{clusters: {a: {services: [{breed: a}]}, b: {services: [{breed: b}]}}}";
    let cycle = deploy("shop", cycle).unwrap();
    refused(
        &mut world,
        &cycle,
        &[
            "recursive-dependencies /clusters/a/services/0",
            "recursive-dependencies /clusters/b/services/0",
        ],
    );
    let name = deploy("a b", SHOP).unwrap();
    refused(&mut World::new(), &name, &["illegal-name /name"]);
}

#[test]
fn a_body_that_does_not_fit_what_runs_is_refused() {
    let mut world = shop();
    let elsewhere = "{clusters: {other: {services: [{breed: {name: web:1, deployable: d}}]}}}";
    refused(
        &mut world,
        &deploy("shop", elsewhere).unwrap(),
        &["non-unique-breed-reference /clusters/other/services/0"],
    );
    refused(
        &mut world,
        &deploy("blog", SHOP).unwrap(),
        &["unavailable-gateway-port /gateways/9080"],
    );
    let internal = SHOP.replace("9080", "20000");
    refused(
        &mut world,
        &deploy("shop", &internal).unwrap(),
        &["unavailable-gateway-port /gateways/20000"],
    );
    let sticky = "{clusters: {web: {
        services: [{breed: {name: web:2, deployable: d, ports: {raw: 1/tcp}}}],
        gateways: {raw: {sticky: route, routes: {}}}}}}";
    match deploy("shop", sticky) {
        Ok(command) => {
            refused(&mut world, &command, &["sticky-port-type /clusters/web/gateways/raw/sticky"]);
        }
        Err(problems) => {
            assert_eq!(problems.iter().next().unwrap().kind.name(), "sticky-port-type");
        }
    }
}

#[test]
fn of_a_pair_none_goes_before_the_other_has_everything() {
    let mut world = canary(80, 20);
    let pointer = ["invalid-route-weight /clusters/web"];
    refused(&mut world, &undeploy("shop", NAMED_WEB_1).unwrap(), &pointer);
    refused(
        &mut world,
        &undeploy("shop", &NAMED_WEB_1.replace("web:1", "web:2")).unwrap(),
        &pointer,
    );
    shift(&mut world, 0, 100);
    assert_eq!(
        events(&mut world, &undeploy("shop", NAMED_WEB_1).unwrap()),
        [
            "archive deployments:shop archiving:update",
            "gateway gateways:shop/web/http deployments:shop",
        ]
    );
    assert_eq!(status(&world, "shop", "web", "web:1"), "Undeployment/Initiated");
    assert_eq!(weights(&world, "shop/web/http"), [("shop/web/web:2/http".to_owned(), 100)]);
    assert_eq!(world.state().gateway("shop/web/http").unwrap().port.number, 20_000, "it stays");
}

#[test]
fn both_of_a_pair_can_go_together() {
    let mut world = canary(80, 20);
    assert_eq!(
        events(&mut world, &undeploy("shop", NAMED_BOTH).unwrap()),
        [
            "archive deployments:shop archiving:update",
            "event gateways:shop/web/http deployments:shop",
            "event gateways:shop/9080 deployments:shop",
        ]
    );
    assert_eq!(gateways(&world), Vec::<String>::new());
    assert_eq!(
        world.report("shop", "web", "web:1", ServiceReport::Gone).len(),
        1,
        "the other one is still there"
    );
    let gone = world.report("shop", "web", "web:2", ServiceReport::Gone);
    assert!(gone[1].event.tags.as_slice().contains(&"archiving:delete".to_owned()));
    assert!(world.state().deployments().is_empty());
}

/// Shows: D2
#[test]
fn what_does_not_exist_is_taken_away_without_a_trace() {
    let mut world = shop();
    for command in
        [undeploy("blog", NAMED_WEB_1), undeploy("shop", &NAMED_WEB_1.replace("web:1", "web:7"))]
    {
        assert!(world.must(&command.unwrap()).is_empty());
    }
    world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    assert!(world.must(&undeploy("shop", NAMED_WEB_1).unwrap()).is_empty(), "a repeat is harmless");
}

#[test]
fn what_others_depend_on_stays() {
    let mut world = World::new();
    world.must(&deploy("shop", LAYERED).unwrap());
    refused(
        &mut world,
        &undeploy("shop", "{clusters: {store: {services: [{breed: store:1}]}}}").unwrap(),
        &["unresolved-dependency /clusters/web/services/0"],
    );
    let web = NAMED_WEB_1;
    world.must(&undeploy("shop", web).unwrap());
    assert_eq!(gateways(&world), ["shop/9081", "shop/store/api"], "the entry of the web went");
}

#[test]
fn an_entry_that_loses_a_route_gives_its_share_to_the_others() {
    let mut world = World::new();
    let entries = "gateways: {9080: {routes: {web/http: {weight: 30%}, store/api: {weight: 70%}}}}";
    let body = LAYERED.replace("gateways: {9080: web/http, 9081: store/api}", entries);
    world.must(&deploy("shop", &body).unwrap());
    world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    assert_eq!(weights(&world, "shop/9080"), [("shop/store/api".to_owned(), 100)]);
}

#[test]
fn a_name_can_be_used_again_while_the_old_instances_go() {
    let mut world = shop();
    world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    world.must(&deploy("shop", SHOP).unwrap());
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Initiated");
    let state = world.state();
    let service = state.deployment("shop").unwrap().service("web", "web:1").unwrap();
    assert_eq!(service.instances[0].leaving, Leaving::Draining, "what went goes on going");
    assert!(world.report("shop", "web", "web:1", ServiceReport::Gone).is_empty(), "a late report");
    assert_eq!(weights(&world, "shop/web/http"), [("shop/web/web:1/http".to_owned(), 100)]);
}

#[test]
fn a_scale_that_changes_nothing_is_archived_only() {
    let mut world = shop();
    let mut scale = |instances: u32| {
        let state = world.state();
        let current = state.deployment("shop").unwrap().service("web", "web:1").unwrap().scale;
        events(
            &mut world,
            &Command::Scale {
                deployment: "shop".to_owned(),
                cluster: "web".to_owned(),
                service: "web:1".to_owned(),
                scale: segue_domain::artifact::Scale { instances, ..current },
                submission: crate::world::submission(segue_domain::command::Verb::Update),
            },
        )
    };
    let archived = ["archive archiving:update deployments:shop"];
    assert_eq!(scale(1), archived);
    assert_eq!(scale(2), archived);
    assert_eq!(status(&world, "shop", "web", "web:1"), "Deployment/Initiated");
}

#[test]
fn gateways_without_a_port_get_one_when_one_is_free() {
    let mut world = World::new();
    for name in ["a", "b", "c", "d", "e"] {
        world.must(
            &store(Kind::Gateway, &format!("{{name: {name}, port: 0, routes: {{}}}}")).unwrap(),
        );
    }
    world.must(&deploy("shop", SHOP).unwrap());
    world.run("shop", "web", "web:1");
    assert_eq!(world.state().gateway("shop/web/http").unwrap().port.number, 0, "the pool is empty");
    world.must(&crate::world::delete(Kind::Gateway, "c"));
    assert_eq!(world.state().gateway("shop/web/http").unwrap().port.number, 20_002);
}

#[test]
fn an_instance_that_leaves_is_released_and_never_comes_back() {
    let mut world = shop();
    world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    let key = crate::world::service_key("shop", "web", "web:1");
    let released = vec![(key, "web:1-0".to_owned())];
    world.must(&Command::Report(Report::Routed(Routed { released, ..Routed::default() })));
    let instance = |world: &World| -> Instance {
        world.state().deployment("shop").unwrap().service("web", "web:1").unwrap().instances[0]
            .clone()
    };
    assert_eq!(instance(&world).leaving, Leaving::Released);
    let stale = Instance { leaving: Leaving::No, ..instance(&world) };
    world.report("shop", "web", "web:1", ServiceReport::Instances(vec![stale]));
    assert_eq!(instance(&world).leaving, Leaving::Released, "an observation from before says less");
}

#[test]
fn late_reports_about_what_changed_meanwhile_make_no_events() {
    let mut world = shop();
    let served: BTreeSet<String> = gateways(&world).into_iter().collect();
    world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    for report in
        [ServiceReport::Done, ServiceReport::Differs(String::new()), ServiceReport::EnvironmentDue]
    {
        assert!(world.report("shop", "web", "web:1", report).is_empty());
    }
    let stale = Report::Routed(Routed { served, ..Routed::default() });
    assert!(world.must(&Command::Report(stale)).is_empty(), "these gateways are gone");
    world.report("shop", "web", "web:1", ServiceReport::Gone);
    assert!(world.report("shop", "web", "web:1", ServiceReport::TakenUp).is_empty());
}

/// The events that say that a gateway takes no traffic any more, by type and by the name in their value.
fn undeployed(records: &[Arc<Record>], gateway: &str) -> Vec<(String, String)> {
    let tags = [format!("gateways:{gateway}"), "undeployed".to_owned()];
    let events = records.iter().map(|record| &record.event);
    let told = events.filter(|event| tags.iter().all(|tag| event.tags.contains(tag)));
    told.map(|event| {
        (event.kind.clone(), event.value["name"].as_str().unwrap_or_default().to_owned())
    })
    .collect()
}

#[test]
fn a_gateway_that_goes_is_told_as_it_was() {
    let mut world = shop();
    world.must(&store(Kind::Gateway, "{name: edge, port: 9050, routes: shop/web/http}").unwrap());
    world.must(&store(Kind::Gateway, "{name: late, port: 9051, routes: shop/web/http}").unwrap());
    let told = |name: &str| vec![("event".to_owned(), name.to_owned())];
    // One that takes no traffic yet leaves nothing.
    let removed = world.must(&delete(Kind::Gateway, "late"));
    assert_eq!(undeployed(&removed, "late"), []);
    world.route();
    let removed = world.must(&delete(Kind::Gateway, "edge"));
    assert_eq!(undeployed(&removed, "edge"), told("edge"));
    let removed = world.must(&undeploy("shop", NAMED_WEB_1).unwrap());
    for gateway in ["shop/9080", "shop/web/http"] {
        assert_eq!(undeployed(&removed, gateway), told(gateway));
    }
}

/// Blueprints that were stored long ago may hold keys that are refused today.
#[test]
fn the_key_of_an_entry_makes_the_name_of_an_external_gateway() {
    for key in ["my entry", "web/http", ""] {
        let mut command = deploy("shop", SHOP).unwrap();
        let Command::Deploy { body, .. } = &mut command else { unreachable!() };
        let DeploymentBody::Blueprint(blueprint) = &mut **body else { unreachable!() };
        key.clone_into(&mut blueprint.gateways[0].key);
        let problems = World::new().execute(&command).unwrap_err();
        assert_eq!(problems.first().kind.name(), "unsupported-gateway-name", "{key}");
        assert!(problems.first().pointer.starts_with("/gateways/"), "{key}");
    }
}

/// Shows: I4.3-delete-5
#[test]
fn an_export_of_which_only_what_goes_is_left_takes_that_away() {
    const PINNED: &str = "
clusters:
  web:
    services:
    - breed: {name: web:1, deployable: w, ports: {http: 80}, env: {A: 1}}
    - breed: {name: web:2, deployable: w, ports: {http: 80}, env: {A: 1}}
    gateways: {http: {routes: {web:1: {weight: 100%}, web:2: {weight: 0%}}}}
  store: {name: store:1, deployable: s, ports: {api: 81}, env: {B: 1}}
environment_variables: {web.A: 2, store.B: 2}
gateways: {9080: web/http, 9081: store/api}";
    let mut world = World::new();
    world.must(&deploy("shop", PINNED).unwrap());
    let keep = |cluster: &str, service: &str| {
        let mut export = dsl::representation_as_blueprint(&world.state(), "shop").unwrap();
        export["clusters"].as_object_mut().unwrap().retain(|name, _| name == cluster);
        let services = export["clusters"][cluster]["services"].as_array_mut().unwrap();
        services.retain(|found| found["breed"]["name"] == service);
        export.to_string()
    };
    let (second, store) = (keep("web", "web:2"), keep("store", "store:1"));
    // The same is no body of a merge.
    assert!(deploy("shop", &second).is_err());
    world.must(&undeploy("shop", &second).unwrap());
    world.must(&undeploy("shop", &store).unwrap());
    let state = world.state();
    let services = state.deployment("shop").unwrap().services();
    let staying = services.filter(|(_, service)| !service.is_undeploying());
    let staying: Vec<_> = staying.map(|(_, service)| service.breed.name.as_str()).collect();
    assert_eq!(staying, ["web:1"]);
    let refused = undeploy("shop", "{clusters: {}}").unwrap_err();
    assert_eq!(refused.first().kind.name(), "no-service");
}
