//! Conditions of routes, from documents to what is stored; and what the page about them says.

use crate::world::{HOST, World, deploy, store};
use segue_domain::artifact::condition::Condition;
use segue_domain::artifact::value::ConfigurationValues;
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::command::{Command, Report, Routed, Rules};
use segue_domain::dsl;
use segue_domain::problem::Problems;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn printed(world: &World, kind: Kind, name: &str) -> Value {
    dsl::representation(&world.state(), &ArtifactKey::new(kind, name), HOST).unwrap()
}

fn refusal(result: Result<impl Sized, Problems>) -> String {
    let problems = result.err().expect("it is refused");
    let first = problems.first();
    format!("{} {}", first.kind.name(), first.pointer)
}

#[test]
fn a_stored_gateway_holds_the_condition_itself() {
    let mut world = World::new();
    let gateway = "{name: edge, routes: {'[a:1]': {}, '[b:1]': {condition: {ref: ff}}}}";
    let gateway = store(Kind::Gateway, gateway).unwrap();
    let missing = world.execute(&gateway);
    assert_eq!(refusal(missing), "artifact-not-found /routes/[b:1]/condition");
    world.must(&store(Kind::Condition, "{name: ff, condition: user-agent = Firefox}").unwrap());
    world.must(&gateway);
    let stored = printed(&world, Kind::Gateway, "edge");
    let route = &stored["routes"]["[b:1]"];
    assert_eq!(route["condition"], json!({"condition": "user-agent = Firefox"}));
    assert_eq!(route["condition_strength"], "100%");
    assert_eq!(stored["routes"]["[a:1]"]["condition_strength"], "0%");
    // What is stored later changes nothing of it, and its own form is no change.
    world.must(&store(Kind::Condition, "{name: ff, condition: host = a}").unwrap());
    let revision = world.state().revision(&ArtifactKey::new(Kind::Gateway, "edge"));
    world.must(&store(Kind::Gateway, &stored.to_string()).unwrap());
    assert_eq!(printed(&world, Kind::Gateway, "edge"), stored);
    assert_eq!(world.state().revision(&ArtifactKey::new(Kind::Gateway, "edge")), revision);
    world.must(&store(Kind::Gateway, "{name: tcp, port: 9/tcp, routes: '[a:1]'}").unwrap());
    let tcp = "{name: tcp, port: 9/tcp, routes: {'[a:1]': {condition: {ref: ff}}}}";
    let refused = world.execute(&store(Kind::Gateway, tcp).unwrap());
    assert_eq!(refusal(refused), "condition-port-type /routes/[a:1]/condition");
}

#[test]
fn deployments_resolve_conditions_and_keep_them() {
    let mut world = World::new();
    let blueprint = "name: shop\n\
        gateways: {9050: {routes: {web/http: {condition: {ref: ff}}}}}\n\
        clusters:\n  web:\n    \
        gateways: {http: {routes: {'web:1': {weight: 100%}, 'web:2': {weight: 0%, condition: {ref: ff}, condition_strength: 50%}}}}\n    \
        services: [{breed: {name: 'web:1', deployable: x, ports: {http: 80}}}, {breed: {name: 'web:2', deployable: x, ports: {http: 80}}}]\n";
    world.must(&store(Kind::Blueprint, blueprint).unwrap());
    let stored = printed(&world, Kind::Blueprint, "shop");
    let route = &stored["clusters"]["web"]["gateways"]["http"]["routes"]["web:2"];
    assert_eq!(route["condition"], json!({"ref": "ff"}));
    let refused = world.execute(&deploy("shop", blueprint).unwrap());
    assert_eq!(
        refusal(refused),
        "artifact-not-found /clusters/web/gateways/http/routes/web:2/condition"
    );
    world.must(&store(Kind::Condition, "{name: ff, condition: user-agent = Firefox}").unwrap());
    world.must(&deploy("shop", blueprint).unwrap());
    let inline = json!({"condition": "user-agent = Firefox"});
    let deployed = printed(&world, Kind::Deployment, "shop");
    let routes = &deployed["clusters"]["web"]["gateways"]["http"]["routes"];
    assert_eq!(routes["web:2"]["condition"], inline);
    assert_eq!(routes["web:2"]["condition_strength"], "50%");
    assert_eq!(routes["web:1"]["condition"], Value::Null);
    assert_eq!(routes["web:1"]["condition_strength"], "0%");
    let export = dsl::representation_as_blueprint(&world.state(), "shop").unwrap();
    let outer = &export["gateways"]["9050"]["routes"]["web/http"];
    assert_eq!((&outer["condition"], &outer["condition_strength"]), (&inline, &json!("100%")));
    // A merge that says nothing of gateways keeps them; what was printed changes nothing.
    let third = "{name: shop, clusters: {web: {services: {breed: {name: 'web:3', deployable: x, ports: {http: 80}}}}}}";
    world.must(&deploy("shop", third).unwrap());
    world.must(&deploy("shop", &deployed.to_string()).unwrap());
    let again = printed(&world, Kind::Deployment, "shop");
    let routes = &again["clusters"]["web"]["gateways"]["http"]["routes"];
    assert_eq!(routes["web:2"]["condition"], inline);
    assert_eq!(routes["web:3"]["condition"], Value::Null);
}

#[test]
fn tcp_ports_have_no_conditions() {
    let mut world = World::new();
    world.must(&store(Kind::Condition, "{name: ff, condition: host = a}").unwrap());
    let blueprint = "{name: db, clusters: {db: {gateways: {sql: {routes: {'db:1': {condition: {ref: ff}}}}}, \
        services: {breed: {name: 'db:1', deployable: x, ports: {sql: 90/tcp}}}}}}";
    let refused = world.execute(&deploy("db", blueprint).unwrap());
    assert_eq!(
        refusal(refused),
        "condition-port-type /clusters/db/gateways/sql/routes/db:1/condition"
    );
}

#[test]
fn a_disabled_route_is_told_once() {
    let mut world = World::new();
    world.must(&store(Kind::Gateway, "{name: edge, routes: ['[a:1]', '[b:1]']}").unwrap());
    let mut route = |reason: Option<&str>| {
        let paths = reason.map(|reason| ("[b:1]".to_owned(), reason.to_owned()));
        let paths: BTreeMap<String, String> = paths.into_iter().collect();
        let disabled =
            [("edge".to_owned(), paths)].into_iter().filter(|(_, paths)| !paths.is_empty());
        let served = ["edge".to_owned()].into();
        let routed = Routed { served, disabled: disabled.collect(), ..Routed::default() };
        let records = world.must(&Command::Report(Report::Routed(routed)));
        let mine = records.iter().filter(|record| {
            let tags = record.event.tags.as_slice();
            tags.iter().any(|tag| tag == "gateway_driver:ERROR" || tag == "restored")
        });
        mine.map(|record| record.event.value.clone()).collect::<Vec<_>>()
    };
    let told = json!({"notification": "route '[b:1]' of gateway 'edge' gets no traffic: no"});
    assert_eq!(route(Some("no")), [told]);
    assert_eq!(route(Some("no")), [Value::Null; 0]);
    assert_eq!(route(Some("still no")).len(), 1);
    assert_eq!(route(None), [json!("")]);
    assert_eq!(route(None), [Value::Null; 0]);
}

#[test]
fn values_read_the_configuration() {
    let values = [("gateway_driver.host".to_owned(), "10.0.0.9".to_owned())];
    let rules = Rules { configuration: ConfigurationValues::new(values), ..crate::world::rules() };
    let mut world = World::with(rules);
    let blueprint = "{name: shop, clusters: {web: {services: {breed: {name: 'web:1', deployable: x, \
        environment_variables: {A: '$conf://vamp.gateway-driver.host', B: 'x${config://gateway_driver.host}y', C: '$other://a', D: '$conf://no.such'}}}}}}";
    world.must(&deploy("shop", blueprint).unwrap());
    world.run("shop", "web", "web:1");
    let state = world.state();
    let service = state.deployment("shop").unwrap().service("web", "web:1").unwrap();
    let environment = service.environment.as_ref().unwrap();
    let of = |name: &str| environment[name].as_str();
    assert_eq!([of("A"), of("B"), of("C"), of("D")], ["10.0.0.9", "x10.0.0.9y", "", ""]);
}

/// Every example of the page is what the page says that it is.
#[test]
fn the_page_tells_the_truth() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/conditions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = |kind: &str| {
        let begin = format!("```{kind}\n");
        let blocks = page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap());
        let lines = blocks.flat_map(str::lines).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    let (good, bad) = (blocks("conditions"), blocks("refused"));
    assert!(good.len() > 10 && bad.len() > 5);
    for text in good {
        assert!(Condition::parse(&text).is_ok(), "{text}: {:?}", Condition::parse(&text));
    }
    for text in bad {
        assert!(Condition::parse(&text).is_err(), "{text}");
    }
    for yaml in page.split("```yaml\n").skip(1) {
        let yaml = yaml.split("```").next().unwrap();
        let command = store(Kind::Gateway, yaml).unwrap();
        World::new().must(&command);
    }
}
