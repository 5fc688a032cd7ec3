//! Breeds and scales.

use super::{node, options, problems, report};
use crate::artifact::ScaleReference;
use crate::dsl::{
    Options, read_breed, read_inline_scale, read_scale, write_breed, write_inline_scale,
    write_scale,
};
use serde_json::json;

/// Checks what a breed with `fields` beside name and deployable is printed as, at `pointer`.
fn check(fields: &str, pointer: &str, expected: &serde_json::Value) {
    let text = format!("name: b\ndeployable: d\n{fields}\n");
    let breed = read_breed(&node(&text), &options())
        .unwrap_or_else(|problems| panic!("{fields}\n{problems}"));
    assert_eq!(write_breed(&breed).pointer(pointer), Some(expected), "{fields}");
}

/// Checks what is wrong with a breed with `fields`, which begin in line 3.
fn refuse(fields: &str, expected: &[&str]) {
    let text = format!("name: b\ndeployable: d\n{fields}\n");
    assert_eq!(problems(&read_breed(&node(&text), &options())), expected, "{fields}");
}

/// Shows: I2.2-breed, D11
#[test]
fn the_example_of_the_reference() {
    let text = r#"
name: shop:2.1
deployable: registry.local/shop:2.1
ports: {web: 8080/http, admin: 9000/tcp}
env:
  DB: $store.host:$store.ports.sql
  "heap[JAVA_HEAP]": 512
  SECRET: ~
constants: {schema: shop}
arguments: {ulimit: 1024}
dependencies: {store: pg:9.6}
"#;
    let breed = read_breed(&node(text), &options()).unwrap();
    let expected = json!({
        "name": "shop:2.1", "kind": "breed", "metadata": {},
        "deployable": {"type": "container/docker", "definition": "registry.local/shop:2.1"},
        "ports": {"web": "8080/http", "admin": "9000/tcp"},
        "environment_variables": {"DB": "$store.host:$store.ports.sql", "heap[JAVA_HEAP]": "512", "SECRET": null},
        "constants": {"schema": "shop"},
        "arguments": [{"ulimit": "1024"}],
        "dependencies": {"store": {"ref": "pg:9.6"}},
    });
    assert_eq!(
        serde_json::to_string(&write_breed(&breed)).unwrap(),
        serde_json::to_string(&expected).unwrap()
    );
}

/// Shows: D13, I2.2-deployable
#[test]
fn deployables() {
    let check = |deployable: &str, kind: &str, definition: &str| {
        let breed =
            read_breed(&node(&format!("name: b\ndeployable: {deployable}")), &options()).unwrap();
        assert_eq!(
            (breed.deployable.kind.as_str(), breed.deployable.definition.as_str()),
            (kind, definition)
        );
    };
    check("img:1", "container/docker", "img:1");
    check("1.0", "container/docker", "1.0");
    check("''", "container/docker", "");
    check("{definition: x}", "container/docker", "x");
    check("{type: process, definition: sh -c x}", "process", "sh -c x");
    let refuse = |deployable: &str, expected: &str| {
        let text = format!("name: b\ndeployable: {deployable}");
        assert_eq!(problems(&read_breed(&node(&text), &options())), [expected], "{deployable}");
    };
    refuse("~", "missing-path-value /deployable 1:1");
    refuse("[x]", "unexpected-type /deployable 2:13");
    refuse("{type: process}", "missing-path-value /deployable/definition 2:1");
    refuse("{definition: [x]}", "unexpected-type /deployable/definition 2:26");
    refuse("{definition: x, typ: y}", "unexpected-element /deployable/typ 2:29");
}

#[test]
fn traits_keep_their_spelling() {
    check(
        "constants: {a: 1.50, b: yes, c: 0x1F, d: '', e: 010}",
        "/constants",
        &json!({
            "a": "1.50", "b": "true", "c": "0x1F", "d": "", "e": "010"
        }),
    );
    check("env: {a: ~}", "/environment_variables", &json!({"a": null}));
    check("environment_variables: {'a[B]': 1}", "/environment_variables", &json!({"a[B]": "1"}));
    check("constants: {'a[B]': 1}", "/constants", &json!({"a": "1"}));
    check("env: ~\nenvironment_variables: {a: 1}", "/environment_variables", &json!({"a": "1"}));
    refuse("constants: {a: [1]}", &["malformed-trait /constants/a 3:16"]);
    refuse("constants: text", &["unexpected-type /constants 3:12"]);
    refuse("env: [a]", &["unexpected-type /env 3:6"]);
    refuse("env: {a: 1}\nenvironment_variables: {a: 1}", &["unexpected-element /env 3:1"]);
}

/// Shows: I2.2-breed-ports
#[test]
fn ports() {
    for text in
        ["8080", "8080/http", "8080/TCP", "0", "65535", "abc", "$db.ports.web", "$conf://web.port"]
    {
        let text = format!("dependencies: {{db: x}}\nports: {{web: {text}}}");
        check(&text, "/ports/web", &json!(text[35..text.len() - 1]));
    }
    refuse("ports: {web: abc/http}", &["unexpected-type /ports/web 3:14"]);
    refuse("ports: {web: 100/udp}", &["unsupported-protocol /ports/web 3:14"]);
    refuse("ports: {web: 65536}", &["invalid-port /ports/web 3:14"]);
    refuse("ports: {web: -1}", &["invalid-port /ports/web 3:14"]);
    refuse("ports: {web: 99999999999999999999/tcp}", &["invalid-port /ports/web 3:14"]);
    refuse("ports: {web: ~}", &["missing-port-value /ports/web 3:9"]);
    check("ports: {a: 80, b: 80}", "/ports", &json!({"a": "80", "b": "80"}));
}

/// Shows: I2.2-arguments
#[test]
fn arguments() {
    check("arguments: {a: 1, b: 2}", "/arguments", &json!([{"a": "1"}, {"b": "2"}]));
    check("arguments: [{a: 1}, {a: x}]", "/arguments", &json!([{"a": "1"}, {"a": "x"}]));
    check("arguments: ~", "/arguments", &json!([]));
    check("arguments: {privileged: yes}", "/arguments", &json!([{"privileged": "true"}]));
    check("arguments: {privileged: 'TRUE'}", "/arguments", &json!([{"privileged": "TRUE"}]));
    refuse("arguments: a=b", &["invalid-argument /arguments 3:12"]);
    refuse("arguments: [a=b]", &["invalid-argument /arguments/0 3:13"]);
    refuse("arguments: [{a: 1, b: 2}]", &["invalid-argument /arguments/0 3:13"]);
    refuse("arguments: [{a: ~}]", &["invalid-argument /arguments/0/a 3:14"]);
    refuse(
        "arguments: [{a: [1]}, {b: {}}]",
        &["invalid-argument /arguments/0/a 3:17", "invalid-argument /arguments/1/b 3:27"],
    );
    refuse("arguments: [{privileged: 'yes'}]", &["invalid-argument-value /arguments/0 3:13"]);
    refuse("arguments: {privileged: 1}", &["invalid-argument-value /arguments/privileged 3:13"]);
}

/// Shows: D12, I2.1-breed-reference, I2.2-dependencies
#[test]
fn dependencies() {
    for text in [
        "mysql:5",
        "{ref: mysql:5}",
        "{reference: mysql:5}",
        "{breed: mysql:5}",
        "{breed: {ref: mysql:5}}",
        "{ref: a, reference: a}",
    ] {
        let expected = if text.contains("ref: a") { "a" } else { "mysql:5" };
        check(
            &format!("dependencies: {{db: {text}}}"),
            "/dependencies/db",
            &json!({"ref": expected}),
        );
    }
    check("dependencies: {db: 'my*'}", "/dependencies/db", &json!({"ref": "my*"}));
    for text in ["{name: x, deployable: y}", "{breed: {name: x, deployable: y}}"] {
        check(&format!("dependencies: {{db: {text}}}"), "/dependencies/db/name", &json!("x"));
    }
    refuse("dependencies: {db: ~}", &["unexpected-type /dependencies/db 3:16"]);
    refuse("dependencies: {db: 5}", &["unexpected-type /dependencies/db 3:20"]);
    refuse("dependencies: [a]", &["unexpected-type /dependencies 3:15"]);
    refuse("dependencies: a", &["unexpected-type /dependencies 3:15"]);
    refuse(
        "dependencies: {db: {ref: x, name: y}}",
        &["unexpected-element /dependencies/db/name 3:29"],
    );
    refuse(
        "dependencies: {db: {ref: a, reference: b}}",
        &["unexpected-element /dependencies/db/reference 3:40"],
    );
    refuse(
        "dependencies: {db: {name: x}}",
        &["missing-path-value /dependencies/db/deployable 3:16"],
    );
    refuse("dependencies: {db: a/b}", &["illegal-name /dependencies/db 3:20"]);
}

#[test]
fn health_checks() {
    let base = "initial_delay: 10s, timeout: 1m, interval: 2hours, failures: 3";
    let expected = json!([{"path": "/", "port": "web", "initial_delay": "10s", "timeout": "60s", "interval": "7200s",
        "failures": 3, "protocol": "HTTP"}]);
    check(
        &format!("ports: {{web: 1}}\nhealth_checks: {{port: web, {base}}}"),
        "/health_checks",
        &expected,
    );
    check(
        &format!("ports: {{web: 1}}\nhealth_checks: [{{port: web, {base}}}]"),
        "/health_checks",
        &expected,
    );
    check("health_checks: []", "/health_checks", &json!([]));
    let refuse = |check: &str, expected: &str| {
        let text = format!("name: b\ndeployable: d\nports: {{web: 1}}\nhealth_checks: {check}");
        assert_eq!(problems(&read_breed(&node(&text), &options())), [expected], "{check}");
    };
    refuse(&format!("{{port: x, {base}}}"), "unresolved-port-reference /health_checks/port 4:17");
    refuse(
        &format!("[{{port: x, {base}}}]"),
        "unresolved-port-reference /health_checks/0/port 4:18",
    );
    refuse("text", "unexpected-type /health_checks 4:16");
    refuse(&format!("{{{base}}}"), "missing-path-value /health_checks/port 4:1");
    let negative = base.replace("failures: 3", "failures: -3");
    refuse(
        &format!("{{port: web, {negative}}}"),
        "negative-failures-number /health_checks/failures 4:79",
    );
    for duration in ["1S", "10 s", "10", "5d", "-5s", "99999999999s", "4294967295h"] {
        let wrong = base.replace("10s", duration);
        refuse(
            &format!("{{port: web, {wrong}}}"),
            "unexpected-type /health_checks/initial_delay 4:43",
        );
    }
}

#[test]
fn rules_in_their_order() {
    refuse("ports: {a.b: 1}", &["illegal-strict-name /ports/a.b 3:9"]);
    refuse("env: {'a[]': 1}", &["illegal-strict-name /env/a[] 3:7"]);
    refuse("ports: {a.b: ~, c: ~}", &["illegal-strict-name /ports/a.b 3:9"]);
    refuse("constants: {c: ~}\nports: {a: ~}", &["missing-port-value /ports/a 4:9"]);
    refuse("constants: {c: ~}", &["missing-constant-value /constants/c 3:13"]);
    refuse("env: {A: $db.host}", &["unresolved-dependency-in-trait-value /env/A 3:7"]);
    refuse(
        "env: {A: '$db.host:$db.ports.x'}",
        &["unresolved-dependency-in-trait-value /env/A 3:7"],
    );
    check("env: {A: $x, B: '$conf://a.b'}", "/environment_variables/A", &json!("$x"));
    let inline = "dependencies: {db: {name: d, deployable: x, ports: {sql: 1}, constants: {c: 1}, env: {'E[F]': 1}}}\n";
    for good in ["$db.ports.sql", "$db.constants.c", "$db.environment_variables.E", "$db.host"] {
        check(&format!("{inline}env: {{A: {good}}}"), "/environment_variables/A", &json!(good));
    }
    for bad in ["$db.ports.x", "$db.hosts.host", "$db.other.sql"] {
        refuse(
            &format!("{inline}env: {{A: {bad}}}"),
            &["unresolved-dependency-in-trait-value /env/A 4:7"],
        );
    }
    check(
        "dependencies: {db: x}\nenv: {A: $db.other.x}",
        "/environment_variables/A",
        &json!("$db.other.x"),
    );
    refuse("env: {A: 'b$'}", &["value-syntax /env/A 3:7"]);
    refuse("dependencies: {a: b}", &["recursive-dependencies /dependencies/a 3:16"]);
    refuse(
        "dependencies: {a: {name: c, deployable: x, dependencies: {d: b}}}",
        &["recursive-dependencies /dependencies/a/dependencies/d 3:59"],
    );
    refuse(
        "dependencies: {a: {name: c, deployable: x, constants: {d: ~}}}\nconstants: {a.b: 1}",
        &["missing-constant-value /dependencies/a/constants/d 3:56"],
    );
}

#[test]
fn stages() {
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(problems(&read_breed(&node(text), &options())), expected, "{text}");
    };
    check("{}", &["missing-path-value /name 1:1", "missing-path-value /deployable 1:1"]);
    check("text", &["unexpected-type  1:1"]);
    check("[a]", &["unexpected-type  1:1"]);
    check(
        "zzz: 1\nname: a/b\nports: [1]\nkind: gateway",
        &[
            "missing-path-value /deployable 1:1",
            "illegal-name /name 2:7",
            "unexpected-type /ports 3:8",
        ],
    );
    check(
        "zzz: 1\nname: b\ndeployable: d\nkind: gateway\nports: {a: ~}",
        &["missing-port-value /ports/a 5:9"],
    );
    check(
        "zzz: 1\nname: b\ndeployable: d\nkind: gateway",
        &["inconsistent-artifact-kind /kind 4:7"],
    );
    check(
        "zzz: 1\nname: b\ndeployable: d\nyyy: 1\nxxx: ~",
        &["unexpected-element /zzz 1:1", "unexpected-element /yyy 4:1"],
    );
    check("name: b\ndeployable: d\nmetadata: 5", &["unsupported-metadata /metadata 3:11"]);
    check("name: b\ndeployable: d\nimport: x", &["unexpected-element /import 3:1"]);
    check("name: b\ndeployable: d\nlookup_name: x\nkind: breed\nmetadata: {a: [1, ~]}", &[]);
}

#[test]
fn names_of_the_path() {
    let named = |name: &str| Options { name: Some(name.to_owned()), ..options() };
    assert_eq!(read_breed(&node("deployable: d"), &named("b")).unwrap().name, "b");
    assert_eq!(read_breed(&node("name: b\ndeployable: d"), &named("b")).unwrap().name, "b");
    let other = read_breed(&node("name: c\ndeployable: d"), &named("b"));
    assert_eq!(problems(&other), ["inconsistent-artifact-name /name 1:7"]);
    let nested = "deployable: d\ndependencies: {x: {name: y, deployable: z}}";
    assert_eq!(read_breed(&node(nested), &named("b")).unwrap().dependencies["x"].name(), "y");
    assert_eq!(problems(&read_breed(&node("deployable: d"), &named("a b"))), ["illegal-name  1:1"]);
    assert_eq!(read_breed(&node("name: 1.0\ndeployable: d"), &options()).unwrap().name, "1.0");
}

#[test]
fn words_of_the_problems() {
    let text = "nam: b\ndeployable: {definitoin: x}\nports: {web: 70000}\n";
    insta::assert_snapshot!(report(&read_breed(&node(text), &options())));
    let text =
        "name: b\ndeployable: d\nenviroment_variables: {A: 1}\nport: {web: 80}\nsomething: 1\n";
    insta::assert_snapshot!(report(&read_breed(&node(text), &options())));
}

#[test]
fn scales() {
    let check = |fields: &str, expected: serde_json::Value| {
        let scale = read_scale(&node(&format!("name: s\n{fields}")), &options()).unwrap();
        assert_eq!(write_inline_scale(&scale.scale), expected, "{fields}");
    };
    check("cpu: 2\nmemory: 64MB", json!({"cpu": 2.0, "memory": "64.00MB", "instances": 1}));
    check(
        "cpu: '0.5'\nmemory: 1.5 gb\ninstances: 0",
        json!({"cpu": 0.5, "memory": "1536.00MB", "instances": 0}),
    );
    check("cpu: .5\nmemory: .5GB", json!({"cpu": 0.5, "memory": "512.00MB", "instances": 1}));
    check("cpu: 250m\nmemory: 64Mi", json!({"cpu": 0.25, "memory": "64.00MB", "instances": 1}));
    let refuse = |fields: &str, expected: &[&str]| {
        assert_eq!(
            problems(&read_scale(&node(&format!("name: s\n{fields}")), &options())),
            expected,
            "{fields}"
        );
    };
    refuse("cpu: 1", &["missing-path-value /memory 1:1"]);
    for memory in ["64", "64KB", "1TB", "1Gi", "-1MB", "'1,5GB'", "[]"] {
        refuse(&format!("cpu: 1\nmemory: {memory}"), &["unexpected-type /memory 3:9"]);
    }
    for cpu in ["-1", "x", "yes", ".inf", "{}"] {
        refuse(&format!("cpu: {cpu}\nmemory: 1MB"), &["unexpected-type /cpu 2:6"]);
    }
    for instances in ["'2'", "2.0", "-1", "99999999999"] {
        refuse(
            &format!("cpu: 1\nmemory: 1MB\ninstances: {instances}"),
            &["unexpected-type /instances 4:12"],
        );
    }
    let stored =
        read_scale(&node("name: s\ncpu: 1\nmemory: 1MB\nmetadata: {a: 1}"), &options()).unwrap();
    let expected = r#"{"name":"s","kind":"scale","metadata":{"a":1},"cpu":1.0,"memory":"1.00MB","instances":1}"#;
    assert_eq!(write_scale(&stored).to_string(), expected);
}

#[test]
fn scales_of_running_services() {
    let check = |text: &str| read_inline_scale(&node(text), &options()).unwrap();
    assert_eq!(check("small"), ScaleReference::Reference("small".to_owned()));
    assert_eq!(check("{ref: small}"), ScaleReference::Reference("small".to_owned()));
    assert!(matches!(
        check("{cpu: 1, memory: 1MB, name: x, kind: scale, metadata: {}}"),
        ScaleReference::Inline(_)
    ));
    assert_eq!(problems(&read_inline_scale(&node("5"), &options())), ["unexpected-type  1:1"]);
}
