//! The published schemas say what the readers do: on examples, on everything that is printed, and on documents that
//! were changed somewhere. What they cannot say is listed, here and in `docs/reference/schemas.md`.

use super::{generate, options};
use crate::dsl::schema;
use crate::dsl::{
    GatewayView, document, read_blueprint, read_breed, read_condition, read_deployment_body,
    read_escalation, read_event_query, read_gateway, read_posted_event, read_rewrite, read_route,
    read_scale, read_sla, read_template, write_blueprint, write_breed, write_gateway,
    write_rewrite, write_route, write_scale, write_template,
};
use crate::problem::{ProblemKind, Problems};
use jsonschema::Validator;
use proptest::{prelude::*, sample::select};
use serde_json::{Value as Json, json};
use std::{collections::BTreeMap, sync::LazyLock};
use time::macros::datetime;

/// Rules that only a reader knows: a document with nothing but such problems passes its schema.
const BEYOND: &[ProblemKind] = &[
    ProblemKind::ValueSyntax,
    ProblemKind::ConditionSyntax,
    ProblemKind::ConditionPortType,
    ProblemKind::InvalidPort,
    ProblemKind::InvalidGatewayPort,
    ProblemKind::MissingPortValue,
    ProblemKind::DuplicateKey,
    ProblemKind::RecursiveDependencies,
    ProblemKind::UnresolvedDependencyInTraitValue,
    ProblemKind::UnresolvedBreedDependency,
    ProblemKind::UnresolvedPortReference,
    ProblemKind::UnresolvedGatewayPort,
    ProblemKind::UnresolvedEnvironmentVariable,
    ProblemKind::UnresolvedServiceRoute,
    ProblemKind::UnresolvedScaleEscalationTargetCluster,
    ProblemKind::NonUniqueBlueprintBreedReference,
    ProblemKind::MissingEnvironmentVariable,
    ProblemKind::GatewayRouteWeight,
    ProblemKind::StickyPortType,
    ProblemKind::DuplicateGatewayPort,
    ProblemKind::IllegalAnonymousRoutingPortMapping,
    ProblemKind::NoService,
    ProblemKind::UnsupportedRoutePath,
    ProblemKind::UnsupportedProtocol,
    ProblemKind::EventTimestamp,
];

static VALIDATORS: LazyLock<BTreeMap<&str, Validator>> = LazyLock::new(|| {
    let validator = |kind| jsonschema::draft202012::new(&schema::of(kind).unwrap()).unwrap();
    schema::PUBLISHED.into_iter().map(|kind| (kind, validator(kind))).collect()
});

/// What the reader of `kind` says; `None` when there is no reader of documents of that kind alone.
fn read(kind: &str, text: &str) -> Option<Result<(), Problems>> {
    let node = match document(text) {
        Ok(node) => node,
        Err(problems) => return Some(Err(problems)),
    };
    let options = options();
    Some(match kind {
        "blueprint" => read_blueprint(&node, &options).map(drop),
        "breed" => read_breed(&node, &options).map(drop),
        "condition" => read_condition(&node, &options).map(drop),
        "deployment" => read_deployment_body(&node, &options).map(drop),
        "escalation" => read_escalation(&node, &options).map(drop),
        "sla" => read_sla(&node, &options).map(drop),
        "event" => read_posted_event(&node).map(drop),
        "gateway" => read_gateway(&node, &options).map(drop),
        "rewrite" => read_rewrite(&node, &options).map(drop),
        "route" => read_route(&node, &options).map(drop),
        "scale" => read_scale(&node, &options).map(drop),
        "template" => read_template(&node, &options).map(drop),
        _ => return None,
    })
}

/// Says where reader and schema differ about `text`; `None` when they agree, as far as a schema can.
fn difference(kind: &str, text: &str) -> Option<String> {
    let read = read(kind, text)?;
    let json = document(text).ok()?.to_json();
    let validator = &VALIDATORS[kind];
    match &read {
        Ok(()) => {
            let accepted = validator.is_valid(&json) || validator.is_valid(&without_nulls(&json));
            let errors = validator.iter_errors(&json).map(|error| error.to_string());
            (!accepted).then(|| {
                format!("only the reader accepts {text}: {:?}", errors.collect::<Vec<_>>())
            })
        }
        Err(problems) => {
            let is_beyond = |kind| BEYOND.contains(&kind) || kind == ProblemKind::NotSupported;
            let is_known = problems.iter().all(|problem| is_beyond(problem.kind));
            (validator.is_valid(&json) && !is_known)
                .then(|| format!("only the schema accepts {text}: {problems:#?}"))
        }
    }
}

fn agree(kind: &str, text: &str) {
    assert_eq!(difference(kind, text), None);
}

/// The document without the keys whose value is null, which equal absent ones.
fn without_nulls(json: &Json) -> Json {
    match json {
        Json::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            Json::Object(members.map(|(key, value)| (key.clone(), without_nulls(value))).collect())
        }
        Json::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

#[test]
fn schemas_are_schemas() {
    for kind in schema::PUBLISHED {
        let schema = schema::of(kind).unwrap();
        jsonschema::draft202012::meta::validate(&schema).unwrap_or_else(|e| panic!("{kind}: {e}"));
        assert!(VALIDATORS.contains_key(kind));
    }
    assert_eq!(schema::of("nosuch"), None);
    let all = Json::Object(schema::all("#/components/schemas/")).to_string();
    assert!(all.contains("\"#/components/schemas/inline_breed\"") && !all.contains("#/$defs"));
}

#[test]
fn every_definition_is_used() {
    let published = schema::PUBLISHED.map(|kind| schema::of(kind).unwrap().to_string()).concat();
    let parts = ["event_query", "service_scale", "service_sla"];
    let extended = include_str!("../schema/definitions.yaml");
    for name in schema::all("#/").keys().filter(|name| !parts.contains(&name.as_str())) {
        let is_used = published.contains(&format!("/{name}\""))
            || schema::PUBLISHED.contains(&name.as_str())
            || extended.lines().any(|line| {
                line.split_once("extends: [").is_some_and(|(_, rest)| {
                    let list = rest.split(']').next().unwrap_or_default();
                    list.split(", ").any(|base| base == name)
                })
            });
        assert!(is_used, "{name}");
    }
}

#[test]
fn the_page_lists_what_schemas_cannot_say() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/schemas.md");
    let page = std::fs::read_to_string(page).unwrap();
    for kind in BEYOND {
        assert!(page.contains(&format!("`{}`", kind.name())), "{} is not listed", kind.name());
    }
    for kind in schema::PUBLISHED {
        assert!(page.contains(&format!("`{kind}`")), "{kind} is not listed");
    }
}

#[test]
fn examples() {
    for text in [
        "{name: b, deployable: d}",
        "{name: b, deployable: {type: docker, definition: d}, ports: {web: 80/http, x: 90/TCP, y: abc}}",
        "{name: b, deployable: d, ports: {web: 100/udp}}",
        "{name: b, deployable: d, ports: {web: ~}}",
        "{name: b, deployable: d, ports: {'a.b': 1}}",
        "{name: b, deployable: d, ports: [80]}",
        "{name: b, deployable: d, env: {'A[B]': 1, C: ~}}",
        "{name: b, deployable: d, env: {A: 1}, environment_variables: {B: 2}}",
        "{name: b, deployable: d, env: {A: [1]}}",
        "{name: b, deployable: d, constants: {a: ~}}",
        "{name: b, deployable: d, arguments: {a: 1, privileged: true}}",
        "{name: b, deployable: d, arguments: [{a: 1}, {a: 2}]}",
        "{name: b, deployable: d, arguments: [{a: 1, b: 2}]}",
        "{name: b, deployable: d, arguments: [{privileged: 'yes'}]}",
        "{name: b, deployable: d, arguments: a=b}",
        "{name: b, deployable: d, dependencies: {a: b, c: {ref: d}, e: {breed: f}, g: {breed: {name: h, deployable: i}}}}",
        "{name: b, deployable: d, dependencies: {a: 5}}",
        "{name: b, deployable: d, dependencies: {a: {ref: x, name: y}}}",
        "{name: b, deployable: d, ports: {w: 1}, health_checks: {port: w, initial_delay: 1s, timeout: 5m, interval: 1h, failures: 3}}",
        "{name: b, deployable: d, ports: {w: 1}, health_checks: [{port: w, initial_delay: 10, timeout: 5m, interval: 1h, failures: 3}]}",
        "{name: b, deployable: d, metadata: 5}",
        "{name: b, deployable: d, kind: gateway}",
        "{name: a b, deployable: d}",
        "{name: [b], deployable: d}",
        "{deployable: d}",
        "name",
        "{name: b, deployable: d, prots: {}}",
    ] {
        agree("breed", text);
    }
    for scale in [
        "cpu: 1, memory: 1GB",
        "cpu: .5, memory: .5 gb, instances: 0",
        "cpu: 250m, memory: 64.MB",
        "cpu: -1, memory: 1GB",
        "cpu: '1,5', memory: 1GB",
        "cpu: 1, memory: 1024",
        "cpu: 1, memory: 1KB",
        "cpu: 1, memory: 1Gi",
        "cpu: 1, memory: 1e3MB",
        "cpu: 1, memory: 1GB, instances: '2'",
        "cpu: 1, memory: 1GB, instances: 1.5",
        "cpu: 1, memory: 1GB, instances: -1",
        "cpu: 1",
    ] {
        agree("scale", &format!("{{name: s, {scale}}}"));
    }
    for text in [
        "{tags: a}",
        "{tags: [a, 'b:c'], value: {x: 1}, type: my-type, timestamp: '2030-01-10T15:33:49Z'}",
        "{tags: []}",
        "{tags: [a], type: 'a b'}",
        "{tags: [a], x: 1}",
        "{value: 1}",
        "{tags: {a: 1}}",
    ] {
        agree("event", text);
    }
}

#[test]
fn examples_of_gateways() {
    for fields in [
        "port: 80",
        "port: '80/HTTP'",
        "port: 80/udp",
        "port: 80.5",
        "port: 70000",
        "sticky: Route",
        "sticky: 5",
        "virtual_hosts: a",
        "virtual_hosts: [a, b]",
        "virtual_hosts: {a: b}",
        "routes: a/b",
        "routes: [a, {b: {weight: 40%}, c: {weight: 60%}}]",
        "routes: {a: ~}",
        "routes: {a: 5}",
        "routes: []",
        "routes: [5]",
        "routes: {}",
        "routes: {'[10.0.0.1:80]': {}}",
        "routes: {a/b/c/d/e: {}}",
        "routes: {a: {weight: 50}}",
        "routes: {a: {weight: 101%}}",
        "routes: {a: {filters: []}}",
        "routes: {a: {name: b}}",
        "routes: {a: {rewrites: [{path: a if b}]}}",
        "routes: {a: {rewrites: [{path: a}]}}",
        "routes: {a: other}",
        "routes: {a: {ref: other, name: x}}",
        "routes: {a: {ref: other, weight: 5%}}",
        "routes: {a: '[10.0.0.1:80]'}",
        "routes: {a: b/c}",
        "selector: x",
        "service: {host: a}, deployed: 5",
    ] {
        agree("gateway", &format!("{{name: g, {fields}}}"));
    }
}

#[test]
fn examples_of_stored_parts() {
    for text in [
        "{name: r, path: /a if b}",
        "{name: r, path: /a}",
        "{name: r, path: 5}",
        "{name: r, path: a if b, ref: x}",
        "{path: a if b}",
    ] {
        agree("rewrite", text);
    }
    for text in [
        "{name: a, weight: 50%, balance: roundrobin}",
        "{name: a, rewrites: [x, {ref: y}, {path: a if b}]}",
        "{name: a, rewrites: {ref: y}}",
        "{name: a, rewrites: [5]}",
        "{name: '[10.0.0.1:80]'}",
        "{name: a/b}",
        "{name: a, weight: 50}",
        "{name: a, ref: b}",
        "{weight: 50%}",
    ] {
        agree("route", text);
    }
    for text in [
        "{name: t, definition: {a: 1}}",
        "{name: t, def: {}}",
        "{name: t, def: [1]}",
        "{name: t, definition: {}, def: {}}",
        "{name: t}",
    ] {
        agree("template", text);
    }
    for text in ["a/b", "a//b", "a/b/c/d/e", "/a", "'a b'", "5"] {
        agree("gateway", &format!("{{name: {text}}}"));
    }
}

#[test]
fn examples_of_clusters() {
    for cluster in [
        "br",
        "[br, {breed: b2, scale: s}]",
        "{services: br}",
        "{services: {breed: br}}",
        "{services: [br], network: n, dialects: {a: 1}, metadata: {a: 1}}",
        "{services: [{ref: br, scale: s}]}",
        "{services: [{name: br, deployable: d}]}",
        "{services: [{name: br, deployable: d, scale: s}]}",
        "{breed: br, env: {A: 1}, network: n}",
        "{name: br, deployable: d, ports: {w: 80}, gateways: {routes: {br: {}}}}",
        "{ref: br, metadata: {}}",
        "5",
        "{services: [5]}",
        "{services: [[br]]}",
        "{services: br, arguments: {a: 1}}",
        "{services: [{breed: br, metadata: {}}]}",
        "{services: [{breed: br, scale: {cpu: 1, memory: 1GB, name: x}}]}",
        "{services: [{breed: br, scale: {ref: s, name: x}}]}",
        "{services: br, gateways: {web: {routes: {br: {weight: 100%}}}}}",
        "{services: br, gateways: {web: {port: 80}}}",
        "{services: br, gateways: {web: {name: x}}}",
        "{services: br, gateways: {web: ~}}",
        "{services: br, health_checks: {port: w}}",
    ] {
        let text = format!("{{name: b, clusters: {{c: {cluster}, other: {{services: o}}}}}}");
        agree("blueprint", &text);
        agree("deployment", &text);
    }
}

#[test]
fn examples_of_blueprints_and_deployments() {
    for rest in [
        "gateways: {8080: c/web, 9000/tcp: {routes: c/web}, x: {port: 5, routes: c/web}}",
        "gateways: {8080: [c/web]}",
        "gateways: {8080: ~}",
        "gateways: {8080: {name: x}}",
        "gateways: {my entry: c/web}",
        "gateways: {a/b: {port: 5, routes: c/web}, 9001/http: c/web}",
        "endpoints: {c.web: 9050}",
        "endpoints: {c.web: 9050/tcp, c.tcp: entry}",
        "endpoints: {c.web: my entry}",
        "endpoints: {cweb: 9050}",
        "env: {c.A: 1}",
        "hosts: {c: x}",
        "dialects: x",
        "kind: deployment",
        "kind: gateway",
    ] {
        let text = format!("{{name: b, clusters: {{c: br}}, {rest}}}");
        agree("blueprint", &text);
        agree("deployment", &text);
    }
    for text in [
        "shop",
        "{name: shop}",
        "{ref: shop, kind: deployment}",
        "{reference: shop}",
        "{ref: shop, name: x}",
        "{name: d, clusters: {c: {services: [{breed: b, status: {intention: Deployment, phase: {name: Done}}, instances: []}]}}}",
        "{name: d, clusters: {c: {services: [{breed: b, status: {intention: deployment}}]}}}",
        "{name: d, clusters: {c: {services: [{breed: b, status: {phase: {name: done}}}]}}}",
        "{clusters: {c: b}, ports: {}, hosts: {}, lookup_name: x}",
        "5",
    ] {
        agree("deployment", text);
    }
}

/// Kinds that have no reader alone, by example.
#[test]
fn examples_of_the_other_kinds() {
    let check = |kind: &str, text: &str, expected: bool| {
        let json = document(text).unwrap().to_json();
        let errors: Vec<String> =
            VALIDATORS[kind].iter_errors(&json).map(|error| error.to_string()).collect();
        assert_eq!(errors.is_empty(), expected, "{kind} {text}: {errors:?}");
    };
    check("condition", "{name: c, condition: user-agent = Firefox}", true);
    check("condition", "{name: c}", false);
    check("condition", "{ref: c}", false);
    check("route", "{name: a, weight: 50%, condition: {ref: c}}", true);
    let bounds = "minimum: 1, maximum: 4, scale_by: 1";
    check("escalation", &format!("{{name: e, type: scale_instances, {bounds}, target: c}}"), true);
    check("escalation", "{name: e, type: scale_instances, minimum: 1}", false);
    check("escalation", &format!("{{name: e, type: scale_cpu, {bounds}, x: 1}}"), false);
    check(
        "escalation",
        "{name: e, type: scale_memory, minimum: 1GB, maximum: 2, scale_by: 1}",
        false,
    );
    check("escalation", "{name: e, type: to_all, escalations: [a, {type: page, who: me}]}", true);
    check("escalation", "{name: e, to_one: [a, {to_all: [b]}]}", true);
    check("escalation", "{name: e, to_one: [a], x: 1}", false);
    check("escalation", "{name: e, type: page, who: me}", true);
    let window = "type: response_time_sliding_window, window: {interval: 60, cooldown: 5}";
    let sla = format!("name: s, {window}, threshold: {{upper: 800, lower: 90}}");
    check("sla", &format!("{{{sla}}}"), true);
    check("sla", &format!("{{{sla}, escalations: [a, b]}}"), true);
    check("sla", &format!("{{{sla}, escalations: a}}"), true);
    check("sla", &format!("{{{sla}, x: 1}}"), false);
    check("sla", &format!("{{name: s, {window}}}"), false);
    check("sla", "{name: s, type: escalation_only, escalations: []}", true);
    check("sla", "{name: s, type: mine, a: 1}", true);
    check("sla", "{name: s}", false);
    let cluster = |sla: &str| format!("{{name: b, clusters: {{c: {{services: x, sla: {sla}}}}}}}");
    check("blueprint", &cluster("gold"), true);
    check("blueprint", &cluster("{ref: gold, escalations: [a]}"), true);
    check("blueprint", &cluster("{type: escalation_only}"), true);
    check("blueprint", &cluster("{type: escalation_only, name: x}"), false);
    check("blueprint", &cluster("5"), false);
    let route = |route: &str| format!("{{name: g, routes: {{a: {route}}}}}");
    check("gateway", &route("{condition: has cookie beta, condition_strength: 50%}"), true);
    check("gateway", &route("{condition: {condition: has cookie beta}}"), true);
    check("gateway", &route("{condition: [a]}"), false);
}

/// How a document is changed somewhere.
#[derive(Clone, Debug)]
enum Change {
    Replace(Json),
    Remove,
    Rename(&'static str),
    Add(&'static str, Json),
}

fn change() -> impl Strategy<Value = Change> {
    let values = [
        json!(null),
        json!(true),
        json!(5),
        json!(-5),
        json!(1.5),
        json!(""),
        json!("text"),
        json!("a b"),
        json!("80/http"),
        json!("50%"),
        json!("10s"),
        json!("1GB"),
        json!([]),
        json!({}),
        json!(["x"]),
        json!({"x": "y"}),
        json!({"ref": "x"}),
        json!({"name": "x", "deployable": "y"}),
        json!([{"a": 1}]),
        json!({"a": null}),
    ];
    let keys = [
        "name",
        "kind",
        "ref",
        "env",
        "port",
        "ports",
        "breed",
        "services",
        "scale",
        "routes",
        "sticky",
        "weight",
        "gateways",
        "unknown",
        "metadata",
        "dialects",
        "health_checks",
        "privileged",
        "a b",
        "a.b",
        "a/b",
        "",
    ];
    prop_oneof![
        select(values.to_vec()).prop_map(Change::Replace),
        Just(Change::Remove),
        select(keys.to_vec()).prop_map(Change::Rename),
        (select(keys.to_vec()), select(values.to_vec()))
            .prop_map(|(key, value)| Change::Add(key, value)),
    ]
}

/// Applies `change` at the `at`th part of `json`, counted in document order; counts `at` down.
fn apply(json: &mut Json, at: &mut usize, change: &Change) -> bool {
    if let Json::Object(members) = json {
        let keys: Vec<String> = members.keys().cloned().collect();
        for key in keys {
            if *at == 0 {
                match change {
                    Change::Replace(value) => members[&key] = value.clone(),
                    Change::Remove => drop(members.shift_remove(&key)),
                    Change::Rename(name) => {
                        let value = members.shift_remove(&key).unwrap_or_default();
                        members.insert((*name).to_owned(), value);
                    }
                    Change::Add(name, value) => {
                        members.insert((*name).to_owned(), value.clone());
                    }
                }
                return true;
            }
            *at -= 1;
            if apply(&mut members[&key], at, change) {
                return true;
            }
        }
    } else if let Json::Array(items) = json {
        for item in items {
            if *at == 0 && matches!(change, Change::Replace(_)) {
                if let Change::Replace(value) = change {
                    *item = value.clone();
                }
                return true;
            }
            *at = at.saturating_sub(1);
            if apply(item, at, change) {
                return true;
            }
        }
    }
    false
}

fn size(json: &Json) -> usize {
    match json {
        Json::Object(members) => members.values().map(|value| 1 + size(value)).sum(),
        Json::Array(items) => items.iter().map(|value| 1 + size(value)).sum(),
        _ => 0,
    }
}

/// Generated artifacts as they are printed, each with its kind.
fn printed() -> impl Strategy<Value = (&'static str, Json)> {
    prop_oneof![
        generate::breed().prop_map(|breed| ("breed", write_breed(&breed))),
        generate::scale().prop_map(|scale| ("scale", write_scale(&scale))),
        generate::named_route().prop_map(|route| ("route", write_route(&route))),
        generate::named_rewrite().prop_map(|rewrite| ("rewrite", write_rewrite(&rewrite))),
        generate::template().prop_map(|template| ("template", write_template(&template))),
        generate::gateway()
            .prop_map(|gateway| ("gateway", write_gateway(&gateway, &GatewayView::default()))),
        generate::blueprint().prop_map(|blueprint| ("blueprint", write_blueprint(&blueprint))),
        generate::blueprint().prop_map(|blueprint| ("deployment", write_blueprint(&blueprint))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_fits_its_schema((kind, json) in printed()) {
        let errors: Vec<String> = VALIDATORS[kind].iter_errors(&json).map(|error| error.to_string()).collect();
        prop_assert!(errors.is_empty(), "{kind} {json}: {errors:?}");
    }

    #[test]
    fn reader_and_schema_agree_on_changed_documents(
        (kind, json) in printed(), changes in proptest::collection::vec((any::<prop::sample::Index>(), change()), 1..3),
    ) {
        let mut json = json;
        for (at, change) in changes {
            let size = size(&json);
            if size > 0 {
                apply(&mut json, &mut at.index(size), &change);
            }
        }
        prop_assert_eq!(difference(kind, &json.to_string()), None);
    }
}

#[test]
fn queries_have_a_schema() {
    let now = datetime!(2030-01-10 15:33:49 UTC);
    let mut schema = json!({"$ref": "#/$defs/event_query"});
    schema["$defs"] = Json::Object(schema::all("#/$defs/"));
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    for text in [
        "{tags: [a], timestamp: {lte: now}}",
        "{tags: a, type: b}",
        "{}",
        "{tags: {a: 1}}",
        "{timestamp: now}",
        "{timestamp: {lt: now, lte: now}}",
        "{x: 1}",
    ] {
        let node = document(text).unwrap();
        let read = read_event_query(&node, now).is_ok();
        assert_eq!(validator.is_valid(&node.to_json()), read, "{text}");
    }
}
