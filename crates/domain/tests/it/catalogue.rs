//! Every type of problem, provoked: where it is said to be, and that it says what to write instead.

use crate::world::{World, delete, deploy, store, submission, undeploy};
use segue_domain::artifact::Kind;
use segue_domain::command::Verb;
use segue_domain::dsl::{self, Node, Options};
use segue_domain::problem::{Place, Problem, ProblemKind, Problems};
use std::collections::BTreeSet;

/// What is done with a document.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Store(Kind),
    /// Under this name in the path.
    Put(&'static str),
    Delete(Kind, &'static str),
    Deploy(&'static str),
    Undeploy(&'static str),
    Compose,
}

/// Types that other tests provoke: those of events and of the wire, and those of kinds with tests of their own.
const ELSEWHERE: &[&str] = &[
    "no-tag-event",
    "event-type",
    "event-timestamp",
    "event-query-time",
    "invalid-configuration-template",
    "unsupported-aggregator",
    "idempotency-key-reused",
    "condition-syntax",
    "condition-port-type",
    "unresolved-scale-escalation-target-cluster",
    "not-supported",
    "invalid-parameter",
    "not-found",
    "method-not-allowed",
    "not-acceptable",
    "unsupported-media-type",
    "revision-conflict",
    "precondition-failed",
    "payload-too-large",
    "too-many-requests",
    "internal",
    "bad-gateway",
    "not-ready",
    "timeout",
];

/// What is done, the document with `»` before the place of the problem, its type, its pointer, and part of its hint.
type Row = (Wish, &'static str, &'static str, &'static str, &'static str);

const BREED: Wish = Wish::Store(Kind::Breed);
const BLUEPRINT: Wish = Wish::Store(Kind::Blueprint);
const GATEWAY: Wish = Wish::Store(Kind::Gateway);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (BREED, "a: »!foo 1", "yaml-parsing", "", "tag"),
    (BREED, "name: a\n»name: b", "duplicate-key", "/name", "keep one"),
    (BREED, "»name: b", "missing-path-value", "/deployable", "add 'deployable'"),
    (BREED, "name: b\ndeployable: »[x]", "unexpected-type", "/deployable", "text or a map"),
    (Wish::Deploy("d"), "clusters: {c: {services: [{breed: b, status: »5}]}}", "unexpected-inner-element", "/clusters/c/services/0/status", "a map"),
    (BREED, "name: b\ndeployable: d\n»prots: {}", "unexpected-element", "/prots", "'ports'"),
    (BLUEPRINT, "name: p\nclusters: {c: {breed: x, scale: {name: »s, cpu: 1, memory: 1MB}}}", "either-reference-or-anonymous", "/clusters/c/scale/name", "{ref: NAME}"),
    (BLUEPRINT, "name: p\nclusters: {c: x}\ngateways: {80: {name: »x}}", "not-anonymous", "/gateways/80/name", "leave the name out"),
    (BREED, "name: »a b\ndeployable: d", "illegal-name", "/name", "no white space"),
    (BREED, "name: b\ndeployable: d\nports: {»a.b: 80}", "illegal-strict-name", "/ports/a.b", "'.'"),
    (Wish::Put("other"), "name: »b\ndeployable: d", "inconsistent-artifact-name", "/name", "leave the name out"),
    (BREED, "name: b\ndeployable: d\nkind: »gateway", "inconsistent-artifact-kind", "/kind", "'breed'"),
    (BREED, "name: b\ndeployable: d\nmetadata: »5", "unsupported-metadata", "/metadata", "metadata: {KEY: VALUE}"),
    (BREED, "name: b\ndeployable: d\nenv: {»A: b$}", "value-syntax", "/env/A", "'$$'"),
    (BREED, "name: b\ndeployable: d\nports: {a: »[1]}", "malformed-trait", "/ports/a", "a: VALUE"),
    (BREED, "name: b\ndeployable: d\nports: {»a: ~}", "missing-port-value", "/ports/a", "a: 8080/http"),
    (BREED, "name: b\ndeployable: d\nconstants: {»a: ~}", "missing-constant-value", "/constants/a", "a: VALUE"),
    (BREED, "name: b\ndeployable: d\nports: {a: »70000}", "invalid-port", "/ports/a", "0 to 65535"),
    (BREED, "name: b\ndeployable: d\ndependencies: {»x: b}", "recursive-dependencies", "/dependencies/x", "take one"),
    (BREED, "name: b\ndeployable: d\nenv: {»A: $db.host}", "unresolved-dependency-in-trait-value", "/env/A", "declare it"),
    (BREED, "name: b\ndeployable: d\narguments: »a=b", "invalid-argument", "/arguments", "- key: value"),
    (BREED, "name: b\ndeployable: d\narguments: [»{privileged: 5}]", "invalid-argument-value", "/arguments/0", "privileged: true"),
    (BREED, "name: b\ndeployable: d\nhealth_checks: {»port: x, initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1}", "unresolved-port-reference", "/health_checks/port", "name of a port"),
    (BREED, "name: b\ndeployable: d\nports: {w: 1}\nhealth_checks: {port: w, initial_delay: 1s, timeout: 1s, interval: 1s, »failures: -1}", "negative-failures-number", "/health_checks/failures", "0 or more"),
    (BREED, "name: b\ndeployable: d\nports: {a: »80/udp}", "unsupported-protocol", "/ports/a", "http and tcp"),
    (BREED, "name: b\nimport: »''\ndeployable: d", "empty-import", "/import", "a template"),
    (BREED, "name: b\nimport: [»a/b/c]\ndeployable: d", "import-definition", "/import/0", "KINDS/NAME"),
    (BREED, "name: b\nimport: »{a: b}\ndeployable: d", "import-definition", "/import", "KINDS/NAME"),
    (BREED, "name: b\nimport: [base, »nosuch]\ndeployable: d", "import-reference", "/import/1", "store it first"),
    (BREED, "name: b\nimport: »nosuch/x\ndeployable: d", "unexpected-artifact", "/import", "breeds"),
    (GATEWAY, "name: »a//b", "unsupported-gateway-name", "/name", "one to four names"),
    (GATEWAY, "name: g\nport: »70000", "invalid-gateway-port", "/port", "0 to 65535"),
    (GATEWAY, "name: g\nsticky: »x", "illegal-gateway-sticky-value", "/sticky", "no stickiness"),
    (GATEWAY, "name: g\nvirtual_hosts: »{}", "illegal-gateway-virtual-hosts", "/virtual_hosts", "[shop.example]"),
    (GATEWAY, "name: g\n»sticky: route\nport: 80/tcp", "sticky-port-type", "/sticky", "http"),
    (GATEWAY, "name: g\nroutes: {»a/b/c/d/e: {}}", "unsupported-route-path", "/routes/a~1b~1c~1d~1e", "one to four"),
    (GATEWAY, "name: g\n»routes: {a: {weight: 10%}}", "gateway-route-weight", "/routes", "gets the rest"),
    (GATEWAY, "name: g\nroutes: {a: {rewrites: {path: »x}}}", "unsupported-path-rewrite", "/routes/a/rewrites/path", "NEW_PATH if CONDITION"),
    (GATEWAY, "name: g\n»port: 8088", "unavailable-gateway-port", "/port", "another port"),
    (GATEWAY, "»name: nosuch/web/http", "internal-gateway-create", "/name", "one or two segments"),
    (GATEWAY, "name: shop/web/http\n»routes: {other: {}}", "internal-gateway-update", "/routes", "through the deployment"),
    (Wish::Delete(Kind::Gateway, "shop/web/http"), "", "internal-gateway-remove", "", "remove its services"),
    (GATEWAY, "name: g\nroutes: {»a: nosuch}", "artifact-not-found", "/routes/a", "store the route"),
    (GATEWAY, "name: g\nroutes: {a: {rewrites: [{path: a if b}, »nosuch]}}", "artifact-not-found", "/routes/a/rewrites/1", "store the rewrite"),
    (BLUEPRINT, "name: p\nclusters: {c: b}\ngateways: {»80: x/web}", "unresolved-gateway-port", "/gateways/80", "CLUSTER/PORT"),
    (BLUEPRINT, "name: p\nclusters: {c: b}\nenv: {»x.A: 1}", "unresolved-environment-variable", "/env/x.A", "CLUSTER.NAME"),
    (BLUEPRINT, "name: p\nclusters: {c: [b, »b]}", "non-unique-blueprint-breed-reference", "/clusters/c/1", "another name"),
    (BLUEPRINT, "name: p\nclusters: {c: {name: b, deployable: d, dependencies: {»x: y}}}", "unresolved-breed-dependency", "/clusters/c/dependencies/x", "add a cluster"),
    (BLUEPRINT, "name: p\nclusters: {c: {services: b, gateways: {routes: {»x: {}}}}}", "unresolved-service-route", "/clusters/c/gateways/routes/x", "breed name"),
    (BLUEPRINT, "name: p\n»clusters: {c: ~}", "no-service", "/clusters", "clusters: {NAME: BREED}"),
    (BLUEPRINT, "name: p\nclusters: {c: {breed: {name: b, deployable: d, env: {A: 1}}, env: {»A: ~}}}", "missing-environment-variable", "/clusters/c/env/A", "give it a value"),
    (BLUEPRINT, "name: p\nclusters: {c: b}\ngateways: {80: c/web, »x: {port: 80}}", "duplicate-gateway-port", "/gateways/x", "another port"),
    (BLUEPRINT, "name: p\nclusters: {c: {services: {name: b, deployable: d, ports: {a: 1, e: 2}}, »gateways: {routes: {b: {}}}}}", "illegal-anonymous-routing-port-mapping", "/clusters/c/gateways", "name of the port"),
    (Wish::Deploy("d"), "clusters: {c: {services: [{breed: b, status: {intention: »deployed}}]}}", "undefined-state-intention", "/clusters/c/services/0/status/intention", "Deployment or Undeployment"),
    (Wish::Deploy("d"), "clusters: {c: {services: [{breed: b, status: {phase: {name: »done}}}]}}", "undefined-state-step", "/clusters/c/services/0/status/phase/name", "Done"),
    (Wish::Deploy("d"), "clusters: {c: {services: [{»breed: nosuch}]}}", "artifact-not-found", "/clusters/c/services/0/breed", "store the breed"),
    (Wish::Deploy("d"), "clusters: {c: {services: [»{breed: {name: n, deployable: d, dependencies: {x: nosuch}}}]}}", "unresolved-dependency", "/clusters/c/services/0", "add a cluster"),
    (Wish::Deploy("d"), "clusters: {c: {services: [»{breed: {name: n, deployable: d, env: {A: ~}}}]}}", "unresolved-variable-value", "/clusters/c/services/0", "'c.A'"),
    (Wish::Deploy("shop"), "clusters: {other: {services: [»{breed: web:1}]}}", "non-unique-breed-reference", "/clusters/other/services/0", "another name"),
    (Wish::Deploy("d"), "clusters: {c: {services: [{breed: {name: n, deployable: d, ports: {http: 80}}}], gateways: {http: {»routes: {n: half}}}}}", "unsupported-route-weight", "/clusters/c/gateways/http/routes", "gets the rest"),
    (Wish::Undeploy("shop"), "clusters: {»web: {services: [{breed: web:1}]}}", "invalid-route-weight", "/clusters/web", "first set the weights"),
    (Wish::Compose, "services: {»web: {command: x}}", "missing-path-value", "/services/web/image", "add 'image'"),
    (Wish::Compose, "services: {web: {image: i, ports: [»'80/udp']}}", "unsupported-protocol", "/services/web/ports/0", "http and tcp"),
    (Wish::Compose, "»services: {}", "no-service", "/services", "services: {NAME"),
];

/// Shows: D30, D31
#[test]
fn every_type_of_problem_is_provoked_and_says_where_it_is_and_what_to_write() {
    let world = world();
    let mut wrong = Vec::new();
    for (wish, marked, kind, pointer, hint) in ROWS {
        let text = marked.replace('»', "");
        let expected = format!("{kind} {pointer} {}", shown(place(marked)));
        let found = match refusal(&world, *wish, &text) {
            None => "nothing".to_owned(),
            Some(problems) => {
                let first = problems.first();
                let says = first.hint.as_ref().is_some_and(|text| text.contains(hint));
                let problem =
                    if says { String::new() } else { format!(" with the hint {:?}", first.hint) };
                format!("{} {} {}{problem}", first.kind.name(), first.pointer, shown(first.place))
            }
        };
        if found != expected {
            wrong.push(format!("{marked}\n  expected {expected} ({hint})\n  found    {found}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_type_of_problem_is_forgotten() {
    let provoked: BTreeSet<&str> = ROWS.iter().map(|row| row.2).collect();
    for kind in ProblemKind::ALL {
        let is_known = provoked.contains(kind.name()) || ELSEWHERE.contains(&kind.name());
        assert!(is_known, "nothing provokes {}", kind.name());
    }
}

#[test]
fn problems_of_one_stage_come_together_in_document_order() {
    let text = "name: a b\nports: {a: [1]}\ndeployable: [x]\nzzz: 1\n";
    let problems = dsl::read_breed(&dsl::document(text).unwrap(), &Options::default()).unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| problem.kind.name()).collect();
    assert_eq!(found, ["illegal-name", "malformed-trait", "unexpected-type"]);
}

/// A shop with two versions that share the traffic, an entry, and something to refer to.
fn world() -> World {
    let mut world = World::new();
    let version = |number: u32| {
        format!(
            "clusters: {{web: {{services: [{{breed: {{name: web:{number}, deployable: d, ports: {{http: 80}}}}}}]}}}}"
        )
    };
    world.must(&deploy("shop", &version(1)).unwrap());
    world.run("shop", "web", "web:1");
    world.must(&deploy("shop", &version(2)).unwrap());
    world.run("shop", "web", "web:2");
    for (kind, text) in [
        (Kind::Gateway, "{name: edge, port: 8088}"),
        (Kind::Route, "{name: half, weight: 50%}"),
        (Kind::Template, "{name: base, definition: {}}"),
    ] {
        world.must(&store(kind, text).unwrap());
    }
    world
}

/// Why `wish` is refused, with places as a client sees them.
fn refusal(world: &World, wish: Wish, text: &str) -> Option<Problems> {
    let node = match dsl::document(text) {
        Ok(node) => node,
        Err(problems) if text.is_empty() => return decided(world, wish, None, problems),
        Err(problems) => return Some(problems),
    };
    decided(world, wish, Some(&node), Problem::new(ProblemKind::Internal, "", "").into())
}

fn decided(
    world: &World,
    wish: Wish,
    node: Option<&Node>,
    otherwise: Problems,
) -> Option<Problems> {
    let state = world.state();
    let text = node.map(|node| dsl::import(node, &state)).transpose();
    let imported = match text {
        Ok(imported) => imported,
        Err(problems) => return Some(problems),
    };
    let options = Options::default();
    let command = match (wish, imported) {
        (Wish::Delete(kind, name), _) => Ok(delete(kind, name)),
        (_, None) => return Some(otherwise),
        (Wish::Put(name), Some(node)) => {
            let options = Options { name: Some(name.to_owned()), ..options };
            return dsl::read_breed(&node, &options).err();
        }
        (Wish::Compose, Some(node)) => return dsl::read_compose(&node, "p").err(),
        (Wish::Store(kind), Some(node)) => crate::world::store_node(kind, &node),
        (Wish::Deploy(name), Some(node)) => {
            dsl::read_deployment_body(&node, &options).map(|body| {
                segue_domain::command::Command::Deploy {
                    name: name.to_owned(),
                    body: Box::new(body),
                    submission: submission(Verb::Update),
                }
            })
        }
        (Wish::Undeploy(name), Some(node)) => undeploy(name, &node.to_json().to_string()),
    };
    let command = match command {
        Ok(command) => command,
        Err(problems) => return Some(problems),
    };
    let problems = world.store.validate(&command, &world.context()).err()?;
    Some(problems.map(|problem| {
        let place = node.and_then(|node| nearest(node, &problem.pointer));
        let place = problem.place.or(place.filter(|_| !problem.pointer.is_empty()));
        problem.at(place)
    }))
}

fn nearest(node: &Node, pointer: &str) -> Option<Place> {
    let mut pointer = pointer;
    loop {
        if let Some(place) = node.locate(pointer) {
            return Some(place);
        }
        pointer = pointer.rsplit_once('/')?.0;
    }
}

/// Where the mark is.
fn place(marked: &str) -> Option<Place> {
    let before = &marked[..marked.find('»')?];
    let line_begin = before.rfind('\n').map_or(0, |end| end + 1);
    Some(Place {
        line: before.matches('\n').count() + 1,
        column: before[line_begin..].chars().count() + 1,
    })
}

fn shown(place: Option<Place>) -> String {
    place.map_or_else(|| "nowhere".to_owned(), |place| format!("{}:{}", place.line, place.column))
}
