//! What documents refer to and build on: stored routes and rewrites, imports, expansion, and compositions.

use crate::world::{HOST, World, delete, deploy, store, store_node};
use segue_domain::artifact::{ArtifactKey, Kind};
use segue_domain::dsl::{self, References};
use segue_domain::problem::Problems;
use serde_json::{Value, json};

/// A world with these artifacts.
fn world(artifacts: &[(Kind, &str)]) -> World {
    let mut world = World::new();
    for (kind, text) in artifacts {
        world.must(&store(*kind, text).unwrap_or_else(|problems| panic!("{text}\n{problems:?}")));
    }
    world
}

fn shown(world: &World, kind: Kind, name: &str, references: References) -> Value {
    let key = ArtifactKey::new(kind, name);
    let shown = dsl::representation_with(&world.state(), &key, references, HOST);
    shown.unwrap_or_else(|problems| panic!("{problems:?}")).unwrap()
}

fn refused(result: Result<impl std::fmt::Debug, Problems>) -> Vec<String> {
    let problems = result.unwrap_err();
    problems
        .iter()
        .map(|problem| format!("{} {}: {}", problem.kind.name(), problem.pointer, problem.detail))
        .collect()
}

const PARTS: &[(Kind, &str)] = &[
    (Kind::Rewrite, "{name: strip, path: /a if path_beg /b}"),
    (Kind::Route, "{name: canary, weight: 10%, balance: leastconn, rewrites: [strip]}"),
    (Kind::Route, "{name: '[10.0.0.1:80]', weight: 90%}"),
];

/// Shows: D12, D34
#[test]
fn gateways_take_their_routes_from_stored_ones() {
    let mut world = world(PARTS);
    let gateway = "{name: edge, port: 8088, routes: {old: {ref: '[10.0.0.1:80]'}, new: canary}}";
    world.must(&store(Kind::Gateway, gateway).unwrap());
    let edge = shown(&world, Kind::Gateway, "edge", References::AsWritten);
    let new = &edge["routes"]["new"];
    assert_eq!((&new["weight"], &new["balance"]), (&json!("10%"), &json!("leastconn")));
    assert_eq!(new["rewrites"], json!([{"path": "/a if path_beg /b"}]));
    assert_eq!(edge["routes"]["old"]["weight"], json!("90%"));
    // What is stored later changes nothing that was stored before.
    world.must(&store(Kind::Route, "{name: canary, weight: 50%}").unwrap());
    assert_eq!(shown(&world, Kind::Gateway, "edge", References::AsWritten), edge);
    let uneven = store(Kind::Gateway, gateway).unwrap();
    let problems = refused(world.execute(&uneven));
    assert!(problems[0].starts_with("gateway-route-weight /routes"), "{problems:?}");
    let missing = "{name: g, routes: {a: nosuch, b: nobody, c: {rewrites: [gone]}}}";
    let problems = refused(world.execute(&store(Kind::Gateway, missing).unwrap()));
    assert_eq!(
        problems,
        [
            "artifact-not-found /routes/a: there is no route 'nosuch'",
            "artifact-not-found /routes/b: there is no route 'nobody'",
            "artifact-not-found /routes/c/rewrites/0: there is no rewrite 'gone'",
        ]
    );
}

#[test]
fn deployments_take_their_routes_from_stored_ones() {
    let mut world = world(PARTS);
    let body = "
clusters:
  web:
    services:
    - {name: web:1, deployable: d, ports: {http: 80}}
    - {name: web:2, deployable: d, ports: {http: 80}}
    gateways: {routes: {web:1: {}, web:2: canary}}
gateways: {9080: {routes: {web/http: '[10.0.0.1:80]'}}}";
    let problems = refused(world.execute(&deploy("shop", body).unwrap()));
    assert!(problems[0].starts_with("gateway-route-weight /gateways/9080/routes"), "{problems:?}");
    world.must(&store(Kind::Route, "{name: '[10.0.0.1:80]', balance: source}").unwrap());
    world.must(&deploy("shop", body).unwrap());
    let state = world.state();
    let weights: Vec<_> = state
        .gateway("shop/web/http")
        .unwrap()
        .routes
        .values()
        .map(|route| (route.reference.clone(), route.weight.unwrap().value()))
        .collect();
    assert_eq!(weights, [(None, 90), (None, 10)]);
    let entry = &state.gateway("shop/9080").unwrap().routes[0];
    assert_eq!((&entry.balance.0[..], entry.weight.unwrap().value()), ("source", 100));
}

#[test]
fn a_blueprint_keeps_its_references_until_it_is_deployed() {
    let blueprint = "{name: plan, clusters: {web: {services: web:1, gateways: {http: {routes: {web:1: canary}}}}}}";
    let mut world = world(&[(Kind::Blueprint, blueprint)]);
    let plan = shown(&world, Kind::Blueprint, "plan", References::AsWritten);
    let route = &plan["clusters"]["web"]["gateways"]["http"]["routes"]["web:1"];
    assert_eq!(*route, json!({"ref": "canary"}));
    for (kind, text) in PARTS {
        world.must(&store(*kind, text).unwrap());
    }
    world.must(&store(Kind::Breed, "{name: web:1, deployable: d, ports: {http: 80}}").unwrap());
    let plan = shown(&world, Kind::Blueprint, "plan", References::Expanded);
    let route = &plan["clusters"]["web"]["gateways"]["http"]["routes"]["web:1"];
    assert_eq!(route["rewrites"], json!([{"path": "/a if path_beg /b"}]));
}

/// Shows: D14
#[test]
fn slas_escalations_and_conditions_are_expanded_too() {
    let blueprint = "{name: plan, clusters: {web: {sla: gold, services: [{breed: {name: 'web:1', deployable: d, \
        ports: {http: 80}}}], gateways: {http: {routes: {'web:1': {condition: {ref: beta}}}}}}}}";
    let mut world = world(&[
        (Kind::Escalation, "{name: pager, type: page, to: me}"),
        (Kind::Sla, "{name: gold, type: escalation_only, escalations: [pager]}"),
        (Kind::Condition, "{name: beta, condition: has cookie beta}"),
        (Kind::Blueprint, blueprint),
    ]);
    let plan = shown(&world, Kind::Blueprint, "plan", References::Expanded);
    let web = &plan["clusters"]["web"];
    let escalations = json!([{"type": "page", "parameters": {"to": "me"}}]);
    assert_eq!(web["sla"], json!({"type": "escalation_only", "escalations": escalations}));
    let condition = &web["gateways"]["http"]["routes"]["web:1"]["condition"];
    assert_eq!(*condition, json!({"condition": "has cookie beta"}));
    world.must(&delete(Kind::Condition, "beta"));
    world.must(&delete(Kind::Escalation, "pager"));
    let key = ArtifactKey::new(Kind::Blueprint, "plan");
    assert_eq!(
        refused(dsl::representation_with(&world.state(), &key, References::Expanded, HOST)),
        [
            "artifact-not-found /clusters/web/sla: there is no escalation 'pager'",
            "artifact-not-found /clusters/web/gateways/http/routes/web:1/condition: there is no condition 'beta'"
        ]
    );
}

/// Shows: D14, I2.1-expand, I2.1-only
#[test]
fn references_are_expanded_recursively_or_put_in_place() {
    let mut world = world(&[
        (Kind::Breed, "{name: a, deployable: d, dependencies: {b: b, any: 'c*'}}"),
        (Kind::Breed, "{name: b, deployable: d, dependencies: {c: {ref: c}}}"),
        (Kind::Breed, "{name: c, deployable: d}"),
        (Kind::Scale, "{name: small, cpu: 0.1, memory: 64MB}"),
        (Kind::Blueprint, "{name: plan, clusters: {x: {breed: a, scale: small}}}"),
    ]);
    let a = shown(&world, Kind::Breed, "a", References::Expanded);
    assert_eq!(a["dependencies"]["b"]["dependencies"]["c"]["name"], json!("c"));
    assert_eq!(a["dependencies"]["any"], json!({"ref": "c*"}));
    let plan = shown(&world, Kind::Blueprint, "plan", References::Expanded);
    let service = &plan["clusters"]["x"]["services"][0];
    assert_eq!(service["breed"], a);
    assert_eq!(service["scale"], json!({"cpu": 0.1, "memory": "64.00MB", "instances": 1}));
    assert_eq!(
        shown(&world, Kind::Breed, "a", References::of(true, true)),
        shown(&world, Kind::Breed, "a", References::AsWritten)
    );
    world.must(
        &store(Kind::Blueprint, "{name: full, clusters: {x: {name: e, deployable: d}}}").unwrap(),
    );
    let full = shown(&world, Kind::Blueprint, "full", References::Only);
    assert_eq!(full["clusters"]["x"]["services"][0]["breed"], json!({"ref": "e"}));
    let inline = "{name: f, deployable: d, dependencies: {x: {name: e, deployable: d}}}";
    world.must(&store(Kind::Breed, inline).unwrap());
    let only = shown(&world, Kind::Breed, "f", References::Only);
    assert_eq!(only["dependencies"]["x"], json!({"ref": "e"}));

    let expand = |world: &World, kind, name| {
        let key = ArtifactKey::new(kind, name);
        refused(dsl::representation_with(&world.state(), &key, References::Expanded, HOST))
    };
    world.must(&store(Kind::Breed, "{name: c, deployable: d, dependencies: {x: gone}}").unwrap());
    assert_eq!(
        expand(&world, Kind::Breed, "a"),
        [
            "artifact-not-found /dependencies/b/dependencies/c/dependencies/x: there is no breed 'gone'"
        ]
    );
    world.must(&store(Kind::Breed, "{name: c, deployable: d, dependencies: {x: a}}").unwrap());
    assert_eq!(
        expand(&world, Kind::Blueprint, "plan"),
        [
            "recursive-dependencies /clusters/x/services/0/breed/dependencies/b/dependencies/c/dependencies/x: 'a' depends on itself: a -> b -> c -> a"
        ]
    );
}

/// Breeds that each depend twice on the next stand for more than anybody can hold.
#[test]
fn expansion_has_a_limit() {
    let mut world = World::new();
    for n in 0..40 {
        let text = format!(
            "{{name: b{n}, deployable: d, dependencies: {{x: b{next}, y: b{next}}}}}",
            next = n + 1
        );
        world.must(&store(Kind::Breed, &text).unwrap());
    }
    world.must(&store(Kind::Breed, "{name: b40, deployable: d}").unwrap());
    let key = ArtifactKey::new(Kind::Breed, "b0");
    let problems =
        refused(dsl::representation_with(&world.state(), &key, References::Expanded, HOST));
    assert!(problems[0].starts_with("invalid-parameter"), "{problems:?}");
}

#[test]
fn imports_are_merged_in_order_and_the_document_wins() {
    let world = world(&[
        (
            Kind::Template,
            "{name: base, definition: {deployable: old, env: {A: 1, B: 2}, arguments: [{x: 1}, {y: 1}]}}",
        ),
        (Kind::Template, "{name: more, def: {env: {B: 3}, metadata: {owner: me}}}"),
        (Kind::Breed, "{name: c:1, deployable: d, constants: {k: 1}, dependencies: {e: e}}"),
        (Kind::Breed, "{name: e, deployable: d}"),
    ]);
    let text = "name: web\nimport: [base, more, breeds/c:1]\ndeployable: new\nenv: {C: 4, A: ~}\narguments: [{y: 1}, {z: 1}]";
    let node = dsl::document(text).unwrap();
    let imported = dsl::import(&node, &world.state()).unwrap();
    let breed = dsl::read_breed(&imported, &dsl::Options::default());
    let breed = dsl::write_breed(&breed.unwrap_or_else(|problems| panic!("{problems:#?}")));
    assert_eq!(breed["environment_variables"], json!({"A": "1", "B": "3", "C": "4"}));
    assert_eq!(breed["name"], json!("web"));
    assert_eq!(breed["deployable"]["definition"], json!("new"));
    assert_eq!(breed["constants"], json!({"k": "1"}));
    assert_eq!(breed["metadata"], json!({"owner": "me"}));
    assert_eq!(breed["arguments"], json!([{"x": "1"}, {"y": "1"}, {"z": "1"}]));
    assert_eq!(breed["dependencies"]["e"]["name"], json!("e"), "references are expanded");
    // A problem in what is imported is said to stand where it is imported.
    let wrong = dsl::document("name: x\ncpu: 1\nmemory: 1MB\nimport: more").unwrap();
    let imported = dsl::import(&wrong, &world.state()).unwrap();
    let problems = store_node(Kind::Scale, &imported).unwrap_err();
    let place = problems.first().place.map(|place| (place.line, place.column));
    assert_eq!((problems.first().kind.name(), place), ("unexpected-element", Some((4, 9))));
    let plain = dsl::document("{name: x}").unwrap();
    assert_eq!(*dsl::import(&plain, &world.state()).unwrap(), plain);
}

/// Large imports, which took minutes when each item was compared with all others.
#[test]
fn what_is_imported_is_merged_in_time_and_within_limits() {
    let list = |from: usize, to: usize| {
        let items: Vec<String> =
            (from..to).map(|n| format!("{{a: {n}, b: {{c: {n}, d: x}}}}")).collect();
        items.join(", ")
    };
    let map = (0..20_000).map(|n| format!("k{n}: {n}")).collect::<Vec<_>>().join(", ");
    let large = format!("{{name: large, definition: {{x: [{}], y: {{{map}}}}}}}", list(0, 15_000));
    let small =
        "{name: small, definition: {x: [{b: {d: x, c: 7}, a: 7}, {a: -1}], y: {k7: seven}}}";
    let world = world(&[(Kind::Template, &large), (Kind::Template, small)]);
    let started = std::time::Instant::now();
    let many = ", small".repeat(98);
    let node = dsl::document(&format!(
        "{{import: [large{many}], x: [{}], y: {{k8: eight, z: 1}}}}",
        list(14_000, 16_000)
    ));
    let merged = dsl::import(&node.unwrap(), &world.state()).unwrap().to_json();
    let items = merged["x"].as_array().unwrap();
    assert_eq!((items.len(), &items[15_000]), (16_001, &json!({"a": -1})));
    assert_eq!(merged["y"].as_object().unwrap().len(), 20_001);
    assert_eq!((&merged["y"]["k7"], &merged["y"]["k8"]), (&json!("seven"), &json!("eight")));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());

    let node = dsl::document("import: [small, large, large, large, large]").unwrap();
    let problems = refused(dsl::import(&node, &world.state()));
    assert_eq!(
        problems,
        [
            "import-definition /import/3: with what it imports the document has more than 200000 elements"
        ]
    );
}

const COMPOSITION: &str = "
version: '3.1'
services:
  web:
    image: acme/web:2
    command: [serve, --fast]
    depends_on: [cache]
    ports: ['8080:80', 9000-9005, 127.0.0.1:443:8443/tcp]
    environment:
    - DB=db:5432
    - MODE=fast
    - SECRET
    networks: [front]
  db: {image: postgres, environment: {PRICE: 5$}}
  cache: {image: redis}
volumes: {data: ~}
";

#[test]
fn a_composition_becomes_a_blueprint() {
    let composed = dsl::read_compose(&dsl::document(COMPOSITION).unwrap(), "shop").unwrap();
    let blueprint = dsl::write_blueprint(&composed.blueprint);
    let service = |cluster: &str| blueprint["clusters"][cluster]["services"][0].clone();
    let web = service("web");
    assert_eq!(web["breed"]["name"], json!("web:1.0.0"));
    assert_eq!(
        web["breed"]["deployable"],
        json!({"type": "container/docker", "definition": "acme/web:2"})
    );
    assert_eq!(
        web["breed"]["ports"],
        json!({"port_80": "80", "port_9000": "9000", "port_8443": "8443/tcp"})
    );
    assert_eq!(
        web["breed"]["environment_variables"],
        json!({"DB": "$db.host:$db.ports.port_5432", "MODE": "fast", "SECRET": null})
    );
    assert_eq!(
        web["breed"]["dependencies"],
        json!({"cache": {"ref": "cache:1.0.0"}, "db": {"ref": "db:1.0.0"}})
    );
    assert_eq!(web["dialects"], json!({"docker": {"command": "serve --fast"}}));
    assert_eq!(service("db")["breed"]["ports"], json!({"port_5432": "5432"}));
    assert_eq!(service("db")["breed"]["environment_variables"], json!({"PRICE": "5$$"}));
    assert_eq!(
        composed.notes,
        [
            "compose version: 3.1",
            "service 'web': '8080' before port 80 is ignored",
            "service 'web': of the range '9000-9005' only 9000 is used",
            "service 'web': '127.0.0.1:443' before port 8443 is ignored",
            "service 'web': unsupported: networks",
            "unsupported: volumes",
            "service 'web': DB refers to db.port_5432",
            "service 'db': the '$' in PRICE stands for itself",
            "service 'db': port port_5432 is added",
        ]
    );
}
