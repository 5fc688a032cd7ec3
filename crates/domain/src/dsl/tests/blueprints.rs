//! Blueprints, their short forms and their rules.

use super::{node, options, problems, report};
use crate::dsl::{read_blueprint, write_blueprint};
use serde_json::{Value as Json, json};

fn written(text: &str) -> Json {
    let blueprint = read_blueprint(&node(text), &options())
        .unwrap_or_else(|problems| panic!("{text}\n{problems}"));
    write_blueprint(&blueprint)
}

/// Checks the names of the breeds and the scales of the services of cluster `c`.
fn services(cluster: &str, expected: &[&str]) {
    let written = written(&format!("name: b\nclusters:\n  c: {cluster}\n  other: o"));
    let services = written.pointer("/clusters/c/services").and_then(Json::as_array).unwrap().iter();
    let names = services.map(|service| {
        let name = service.pointer("/breed/ref").or_else(|| service.pointer("/breed/name"));
        let scale =
            service.pointer("/scale/ref").and_then(Json::as_str).map(|scale| format!(" {scale}"));
        format!("{}{}", name.and_then(Json::as_str).unwrap(), scale.unwrap_or_default())
    });
    assert_eq!(names.collect::<Vec<_>>(), expected, "{cluster}");
}

fn refuse(text: &str, expected: &[&str]) {
    assert_eq!(
        problems(&read_blueprint(&node(&format!("name: b\n{text}")), &options())),
        expected,
        "{text}"
    );
}

const BREED: &str = "{name: br, deployable: d, ports: {web: 80, tcp: 90/tcp}, env: {V: 1, 'W[X]': 1}, constants: {k: 1}}";

#[test]
fn the_example_of_the_reference() {
    let text = "
name: shop:1.0
gateways:
  8080: front/web
clusters:
  front:
    gateways: {routes: {front:1: {weight: 90%}, front:2: {weight: 10%}}}
    services: [{breed: front:1, scale: small}, {breed: front:2, scale: {cpu: 0.2, memory: 128MB}}]
  store: pg:9.6
";
    insta::assert_snapshot!(serde_json::to_string_pretty(&written(text)).unwrap());
}

#[test]
fn short_forms_of_clusters_and_services() {
    services("br", &["br"]);
    services("[br1, {breed: br2, scale: s}]", &["br1", "br2 s"]);
    services("{services: br}", &["br"]);
    services("{services: {breed: br, scale: s}}", &["br s"]);
    services("{services: [br]}", &["br"]);
    services("{services: [{ref: br, scale: s}]}", &["br s"]);
    services("{services: {reference: br}}", &["br"]);
    services("{services: [{name: br, deployable: d}]}", &["br"]);
    services("{name: br, deployable: d}", &["br"]);
    services("{breed: br, scale: s}", &["br s"]);
    services("{ref: br, scale: {ref: s}}", &["br s"]);
    services(
        "{breed: {ref: br}, scale: {ref: s, name: x}, kind: service, health: {staged: 1}}",
        &["br s"],
    );
    services("{services: []}", &[]);
    services("{services: ~}", &[]);
    let written = written(
        "name: b\nclusters: {c: ~, d: {breed: x, network: n, arguments: {a: 1}, env: {'A[B]': 1}}}",
    );
    assert_eq!(written.pointer("/clusters/c"), None);
    assert_eq!(written.pointer("/clusters/d/network"), None);
    assert_eq!(written.pointer("/clusters/d/services/0/network"), Some(&json!("n")));
    assert_eq!(written.pointer("/clusters/d/services/0/arguments"), Some(&json!([{"a": "1"}])));
    assert_eq!(
        written.pointer("/clusters/d/services/0/environment_variables"),
        Some(&json!({"A": "1"}))
    );
}

#[test]
fn what_is_no_cluster_or_service() {
    refuse("clusters: {c: 5}", &["unexpected-type /clusters/c 2:15"]);
    refuse("clusters: {c: [5]}", &["unexpected-type /clusters/c/0 2:16"]);
    refuse("clusters: {c: [[a]]}", &["unexpected-type /clusters/c/0 2:16"]);
    refuse(
        "clusters: {c: {breed: x, metadata: {}}}",
        &["unexpected-element /clusters/c/metadata 2:26"],
    );
    refuse(
        "clusters: {c: {name: x, deployable: d, scale: s}}",
        &["unexpected-element /clusters/c/scale 2:40"],
    );
    refuse(
        "clusters: {c: {services: br, env: {A: 1}, arguments: []}}",
        &[
            "unexpected-element /clusters/c/env 2:30",
            "unexpected-element /clusters/c/arguments 2:43",
        ],
    );
    refuse(
        "clusters: {c: {services: [{breed: x, name: y}]}}",
        &["unexpected-element /clusters/c/services/0/name 2:38"],
    );
    refuse(
        "clusters: {c: {services: [{scale: y}]}}",
        &["missing-path-value /clusters/c/services/0/breed 2:27"],
    );
    refuse(
        "clusters: {c: {breed: x, scale: {name: s, cpu: 1, memory: 1MB}}}",
        &["either-reference-or-anonymous /clusters/c/scale/name 2:40"],
    );
    refuse(
        "clusters: {c: {breed: x, scale: {ref: s, cpu: 1}}}",
        &["unexpected-element /clusters/c/scale/cpu 2:42"],
    );
    refuse("clusters: {c: {breed: x, scale: 5}}", &["unexpected-type /clusters/c/scale 2:33"]);
    refuse("clusters: {'a b': x}", &["illegal-name /clusters/a b 2:12"]);
    refuse("clusters: [x]", &["unexpected-type /clusters 2:11"]);
    refuse(
        "clusters: {c: x}\nhosts: {}\nports: {}",
        &["unexpected-element /hosts 3:1", "unexpected-element /ports 4:1"],
    );
}

#[test]
fn both_spellings_of_a_reference_say_the_same() {
    services("{services: [{ref: br, reference: br, scale: s}]}", &["br s"]);
    services("{ref: br, reference: br}", &["br"]);
    refuse(
        "clusters: {c: {ref: x, reference: y}}",
        &["unexpected-element /clusters/c/reference 2:35"],
    );
}

#[test]
fn external_gateways() {
    let gateways = |gateways: &str, expected: Json| {
        let written = written(&format!("name: b\n{gateways}\nclusters: {{c: {BREED}}}"));
        let shown = written.get("gateways").and_then(Json::as_object).unwrap().iter().map(
            |(key, gateway)| {
                let routes: Vec<_> =
                    gateway["routes"].as_object().unwrap().keys().cloned().collect();
                (key.clone(), json!([gateway["port"], routes]))
            },
        );
        assert_eq!(Json::Object(shown.collect()), expected, "{gateways}");
    };
    gateways("gateways: {8080: c/web}", json!({"8080": ["8080", ["c/web"]]}));
    gateways("gateways: {8080/tcp: c/web}", json!({"8080": ["8080/tcp", ["c/web"]]}));
    gateways("gateways: {web: c/web}", json!({"web": ["web", ["c/web"]]}));
    gateways("gateways: {web: {port: 90, routes: c/web}}", json!({"web": ["90", ["c/web"]]}));
    gateways("gateways: {8080: {port: 90, routes: c/web}}", json!({"8080": ["90", ["c/web"]]}));
    gateways("gateways: {a.b: {port: 90, metadata: {x: 1}}}", json!({"a.b": ["90", []]}));
    gateways(
        "endpoints: {c.web: '9050', c.tcp: 9050}",
        json!({"9050": ["9050", ["c/web", "c/tcp"]]}),
    );
    gateways(
        "endpoints: {c.web: 1, c.tcp: 2/tcp}",
        json!({"1": ["1", ["c/web"]], "2": ["2/tcp", ["c/tcp"]]}),
    );
    gateways("endpoints: {c.web: 1}\ngateways: {}", json!({}));
    let refuse = |gateways: &str, expected: &[&str]| {
        refuse(&format!("{gateways}\nclusters: {{c: {BREED}}}"), expected);
    };
    refuse("gateways: [a]", &["unexpected-type /gateways 2:11"]);
    refuse("gateways: {80: [c/web]}", &["unexpected-type /gateways/80 2:16"]);
    refuse("gateways: {80: 5}", &["unexpected-type /gateways/80 2:16"]);
    refuse("gateways: {80: ~}", &["missing-path-value /gateways/80 2:12"]);
    refuse("gateways: {80: {name: x}}", &["not-anonymous /gateways/80/name 2:23"]);
    refuse(
        "gateways: {80: {lookup_name: x}}",
        &["unexpected-element /gateways/80/lookup_name 2:17"],
    );
    refuse("gateways: {70000: c/web}", &["invalid-gateway-port /gateways/70000 2:19"]);
    refuse("gateways: {my entry: c/web}", &["unsupported-gateway-name /gateways/my entry 2:12"]);
    refuse(
        "gateways: {a/b: {port: 90, routes: c/web}, '': {port: 91}, '[a]': {port: 92}}",
        &[
            "unsupported-gateway-name /gateways/a~1b 2:12",
            "unsupported-gateway-name /gateways/ 2:44",
            "unsupported-gateway-name /gateways/[a] 2:60",
        ],
    );
    refuse("endpoints: {c.web: my entry}", &["unsupported-gateway-name /endpoints/c.web 2:13"]);
    refuse("gateways: {80: x/web}", &["unresolved-gateway-port /gateways/80 2:12"]);
    refuse(
        "gateways: {80: {routes: {c/x: {}}}}",
        &["unresolved-gateway-port /gateways/80/routes/c~1x 2:26"],
    );
    refuse("gateways: {80: web}", &["unresolved-gateway-port /gateways/80 2:12"]);
    refuse("endpoints: {c.x: 80}", &["unresolved-gateway-port /endpoints/c.x 2:13"]);
    refuse("endpoints: {c: 80}", &["unexpected-type /endpoints/c 2:13"]);
    refuse(
        "gateways: {80: c/web, x: {port: 80/tcp}}",
        &["duplicate-gateway-port /gateways/x 2:23"],
    );
    refuse(
        "gateways: {80/tcp: {sticky: route, routes: c/web}}",
        &["sticky-port-type /gateways/80~1tcp/sticky 2:21"],
    );
    refuse(
        "gateways: {80: {routes: {c/web: {weight: 50%}}}}",
        &["gateway-route-weight /gateways/80/routes 2:17"],
    );
}

#[test]
fn internal_gateways() {
    let one_port = "{name: one, deployable: d, ports: {http: 80}}";
    let ports = |cluster: &str, expected: &[&str]| {
        let written = written(&format!("name: b\nclusters: {{c: {cluster}}}"));
        let gateways = written.pointer("/clusters/c/gateways").and_then(Json::as_object).unwrap();
        assert_eq!(gateways.keys().collect::<Vec<_>>(), expected, "{cluster}");
    };
    ports(&format!("{{services: {one_port}, gateways: {{routes: one}}}}"), &["http"]);
    ports(&format!("{{services: {one_port}, gateways: {{'': {{sticky: route}}}}}}"), &["http"]);
    ports(
        &format!("{{services: {one_port}, gateways: {{http: {{virtual_hosts: x}}}}}}"),
        &["http"],
    );
    ports("{services: one, gateways: {sticky: route}}", &[""]);
    ports("{breed: one, gateways: {web: {routes: one}}}", &["web"]);
    let refuse = |gateways: &str, expected: &[&str]| {
        refuse(&format!("clusters:\n c:\n  gateways: {gateways}\n  services: {BREED}"), expected);
    };
    refuse("{web: {port: 80}}", &["unexpected-element /clusters/c/gateways/web/port 4:20"]);
    refuse("{web: {name: x}}", &["not-anonymous /clusters/c/gateways/web/name 4:26"]);
    refuse("{virtual_hosts: x}", &["unexpected-type /clusters/c/gateways/virtual_hosts 4:29"]);
    refuse(
        "{web: {routes: {x: {}}}}",
        &["unresolved-service-route /clusters/c/gateways/web/routes/x 4:29"],
    );
    refuse(
        "{web: {routes: {br: {weight: 10%}}}}",
        &["gateway-route-weight /clusters/c/gateways/web/routes 4:20"],
    );
    refuse("{tcp: {sticky: route}}", &["sticky-port-type /clusters/c/gateways/tcp/sticky 4:20"]);
    refuse("{x: {}}", &["unresolved-gateway-port /clusters/c/gateways/x 4:14"]);
    refuse("{routes: br}", &["illegal-anonymous-routing-port-mapping /clusters/c/gateways 4:3"]);
    refuse("[x]", &["unexpected-type /clusters/c/gateways 4:13"]);
    refuse("{web: ~}", &["missing-path-value /clusters/c/gateways/web 4:14"]);
}

#[test]
fn variables() {
    let refuse = |variables: &str, expected: &[&str]| {
        refuse(
            &format!("environment_variables: {variables}\nclusters: {{c: {BREED}, r: x}}"),
            expected,
        );
    };
    refuse("{c.V: 1, c.W: ~, r.anything: 1}", &[]);
    refuse("{'c.W[Y]': 1}", &[]);
    for key in ["V", "x.V", "c.V.V", "c.k", "c.web", "c.none"] {
        refuse(
            &format!("{{{key}: 1}}"),
            &[&format!("unresolved-environment-variable /environment_variables/{key} 2:25")],
        );
    }
    refuse("{r.X: $c.constants.k}", &[]);
    refuse(
        "{r.X: $c.constants.none}",
        &["unresolved-environment-variable /environment_variables/r.X 2:25"],
    );
    refuse("{r.X: '$ x'}", &["value-syntax /environment_variables/r.X 2:25"]);
    refuse("{r.X: [1]}", &["malformed-trait /environment_variables/r.X 2:30"]);
}

#[test]
fn rules() {
    refuse("clusters: {}", &["no-service /clusters 2:1"]);
    refuse("dialects: {}", &["no-service  1:1"]);
    refuse("clusters: {c: {services: []}}", &["no-service /clusters 2:1"]);
    refuse(
        "clusters: {c: [x, y], d: x}",
        &["non-unique-blueprint-breed-reference /clusters/d 2:23"],
    );
    refuse(
        "clusters: {c: {breed: x, arguments: {privileged: 1}}}",
        &["invalid-argument-value /clusters/c/arguments/privileged 2:38"],
    );
    let inline =
        |service: &str| format!("clusters:\n c:\n  services:\n  - {service}\n    breed: {BREED}");
    refuse(
        &inline("env: {V: ~}"),
        &["missing-environment-variable /clusters/c/services/0/env/V 5:11"],
    );
    refuse(
        &inline("env: {N: 1}"),
        &["unresolved-dependency-in-trait-value /clusters/c/services/0/env/N 5:11"],
    );
    refuse(&inline("env: {V: '$'}"), &["value-syntax /clusters/c/services/0/env/V 5:11"]);
    refuse(&inline("env: {V: 1, W: 2}"), &[]);
    let check = "initial_delay: 1s, timeout: 1s, interval: 1s, failures: 1";
    refuse(
        &inline(&format!("health_checks: {{port: x, {check}}}")),
        &["unresolved-port-reference /clusters/c/services/0/health_checks/port 5:21"],
    );
    refuse(&format!("clusters: {{c: {{services: x, health_checks: {{port: x, {check}}}}}}}"), &[]);
    let dependent = |name: &str, on: &str| {
        format!("{{name: {name}, deployable: d, dependencies: {{a: {on}}}}}")
    };
    refuse(
        &format!("clusters: {{c: {}}}", dependent("x", "y")),
        &["unresolved-breed-dependency /clusters/c/dependencies/a 2:55"],
    );
    refuse(&format!("clusters: {{c: {}, d: 'y'}}", dependent("x", "y")), &[]);
    refuse(&format!("clusters: {{c: {}, d: 'y:1'}}", dependent("x", "'y:*'")), &[]);
    refuse(
        &format!("clusters: {{c: {}, d: 'z:1'}}", dependent("x", "'y:*'")),
        &["unresolved-breed-dependency /clusters/c/dependencies/a 2:55"],
    );
    refuse(
        &format!("clusters: {{c: {}, d: {}}}", dependent("x", "w"), dependent("w", "x")),
        &["recursive-dependencies /clusters/d/dependencies/a 2:106"],
    );
    refuse(
        "clusters: {c: {breed: {name: x, deployable: d, ports: {a: ~}}}}",
        &["missing-port-value /clusters/c/breed/ports/a 2:56"],
    );
    refuse(
        "clusters: {c: {breed: x, dialects: {a: 1}, dialect: {b: 1}}}",
        &["unexpected-element /clusters/c/dialect 2:44"],
    );
    refuse(
        "clusters: {c: {breed: x, dialects: 5}}",
        &["unexpected-type /clusters/c/dialects 2:36"],
    );
}

#[test]
fn words_of_the_problems() {
    let text = "name: b\nclusters:\n  web:\n    services:\n    - breed: x\n      scala: small\n    gatways: {}\nendpoint: {}\n";
    insta::assert_snapshot!(report(&read_blueprint(&node(text), &options())));
    let text = "name: b\ngateways: {8080: web/http, 9090: {routes: {web/x: {weight: 200%}}}}\nclusters: {web: {breed: 5}}\n";
    insta::assert_snapshot!(report(&read_blueprint(&node(text), &options())));
}
