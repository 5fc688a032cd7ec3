//! Conditions in documents: stored ones, and those of routes in gateways and blueprints.

use super::{node, options, problems, report};
use crate::dsl::{
    GatewayView, Options, read_blueprint, read_condition, read_gateway, write_blueprint,
    write_condition, write_gateway,
};
use serde_json::{Value, json};

/// Shows: D44
#[test]
fn stored_conditions() {
    let refuse = |text: &str, expected: &[&str]| {
        assert_eq!(problems(&read_condition(&node(text), &options())), expected, "{text}");
    };
    let check = |text: &str, expected: Value| {
        let read = read_condition(&node(text), &options()).unwrap();
        assert_eq!(write_condition(&read), expected, "{text}");
    };
    let plain = json!({"name": "ff", "kind": "condition", "metadata": {}, "condition": "user-agent = Firefox"});
    check("{name: ff, condition: user-agent = Firefox}", plain.clone());
    check(&plain.to_string(), plain);
    let expected = json!({"name": "x", "kind": "condition", "metadata": {"a": 1}, "condition": "< method GET >"});
    check("{condition: '< method GET >', metadata: {a: 1}, name: x}", expected);
    // The text stays as it was written.
    check(
        "{name: x, condition: 'HOST  is a | host=b'}",
        json!({"name": "x", "kind": "condition", "metadata": {}, "condition": "HOST  is a | host=b"}),
    );
    refuse("{name: x}", &["missing-path-value /condition 1:1"]);
    refuse("{condition: host = a}", &["missing-path-value /name 1:1"]);
    refuse("{ref: x}", &["missing-path-value /name 1:1", "missing-path-value /condition 1:1"]);
    refuse("{name: x, condition: host = a, ref: y}", &["unexpected-element /ref 1:32"]);
    refuse("{name: x/y, condition: host = a}", &["illegal-name /name 1:8"]);
    refuse("{name: x, condition: [a]}", &["unexpected-type /condition 1:22"]);
    refuse("{name: x, condition: {condition: host = a}}", &["unexpected-type /condition 1:22"]);
    refuse(
        "{name: x, kind: route, condition: host = a}",
        &["inconsistent-artifact-kind /kind 1:17"],
    );
    refuse("{name: x, condition: ''}", &["condition-syntax /condition 1:23"]);
    refuse("{name: x, condition: 5}", &["condition-syntax /condition 1:22"]);
    refuse("{name: x, condition: host = a and}", &["condition-syntax /condition 1:34"]);
    refuse(
        "name: x\ncondition: |\n  host = a\n  an host = b",
        &["condition-syntax /condition 4:3"],
    );
    refuse(
        "{\"name\": \"x\", \"condition\": \"host = \\u00fc host\"}",
        &["condition-syntax /condition 1:43"],
    );
}

#[test]
fn the_words_of_a_problem() {
    let read = read_condition(&node("name: x\ncondition: host = a adn host = b"), &options());
    assert_eq!(
        report(&read),
        "2:21 condition-syntax /condition: 'adn' does not fit here (expected 'and', or 'or', or the end)\n"
    );
}

/// Shows: D44
#[test]
fn old_clients_store_raw_acls() {
    let legacy = Options { legacy_clients: true, ..options() };
    let read = |text: &str| read_condition(&node(text), &legacy);
    let raw = read("{name: x, condition: hdr_sub(user-agent) Chrome}").unwrap();
    assert_eq!(write_condition(&raw)["condition"], "hdr_sub(user-agent) Chrome");
    assert_eq!(raw.condition.expression().to_string(), "< hdr_sub(user-agent) Chrome >");
    let parsed = read("{name: x, condition: host = a}").unwrap();
    assert_eq!(parsed.condition.expression().to_string(), "host = a");
    assert_eq!(
        problems(&read("name: x\ncondition: |\n  a\n  b")),
        ["condition-syntax /condition 3:3"]
    );
}

#[test]
fn conditions_of_routes() {
    let gateway = |condition: &str| {
        read_gateway(
            &node(&format!("name: g\nroutes: {{a: {{condition: {condition}}}}}")),
            &options(),
        )
    };
    let check = |condition: &str, expected: Value| {
        let printed = write_gateway(&gateway(condition).unwrap(), &GatewayView::default());
        assert_eq!(printed["routes"]["a"]["condition"], expected, "{condition}");
        assert_eq!(gateway(&printed["routes"]["a"]["condition"].to_string()), gateway(condition));
    };
    let refuse = |condition: &str, expected: &[&str]| {
        assert_eq!(problems(&gateway(condition)), expected, "{condition}");
    };
    check("user-agent = Firefox", json!({"condition": "user-agent = Firefox"}));
    check("{condition: user-agent = Firefox}", json!({"condition": "user-agent = Firefox"}));
    check("{condition: host = a, kind: condition, metadata: {}}", json!({"condition": "host = a"}));
    check("{ref: x}", json!({"ref": "x"}));
    check("{reference: x}", json!({"ref": "x"}));
    check("{ref: x, name: y}", json!({"ref": "x"}));
    check("''", Value::Null);
    check("' '", Value::Null);
    check("{condition: ''}", Value::Null);
    check("~", Value::Null);
    refuse("{}", &["missing-path-value /routes/a/condition/condition 2:14"]);
    refuse("5", &["unexpected-type /routes/a/condition 2:25"]);
    refuse("[a]", &["unexpected-type /routes/a/condition 2:25"]);
    refuse(
        "{ref: x, condition: host = a}",
        &["unexpected-element /routes/a/condition/condition 2:34"],
    );
    refuse(
        "{name: x, condition: host = a}",
        &["either-reference-or-anonymous /routes/a/condition/name 2:32"],
    );
    refuse("'Firefox'", &["condition-syntax /routes/a/condition 2:26"]);
    refuse("{condition: host is}", &["condition-syntax /routes/a/condition/condition 2:44"]);
}

#[test]
fn tcp_gateways_have_no_conditions() {
    let gateway = |port: &str, condition: &str| {
        let text = format!("{{name: g, port: {port}, routes: {{a: {{condition: {condition}}}}}}}");
        problems(&read_gateway(&node(&text), &options()))
    };
    assert_eq!(gateway("9000/tcp", "host = a"), ["condition-port-type /routes/a/condition 1:40"]);
    assert_eq!(gateway("9000/http", "host = a"), [""; 0]);
    // Whether a reference leads to something is known when the gateway is stored.
    assert_eq!(gateway("9000/tcp", "{ref: a}"), [""; 0]);

    let blueprint = |gateways: &str, inner: &str, condition: &str| {
        let text = format!(
            "name: b\ngateways: {gateways}\nclusters:\n  c:\n    gateways: {{{inner}: {{routes: {{b: {{condition: {condition}}}}}}}}}\n    \
             services: {{breed: {{name: b, deployable: x, ports: {{web: 80, sql: 90/tcp}}}}}}\n"
        );
        let read = read_blueprint(&node(&text), &options());
        if let Ok(blueprint) = &read {
            let printed = write_blueprint(blueprint).to_string();
            assert_eq!(read_blueprint(&node(&printed), &options()).as_ref(), Ok(blueprint));
        }
        problems(&read)
    };
    assert_eq!(blueprint("{}", "web", "host = a"), [""; 0]);
    assert_eq!(blueprint("{}", "sql", "{ref: x}"), [""; 0]);
    assert_eq!(
        blueprint("{}", "sql", "host = a"),
        ["condition-port-type /clusters/c/gateways/sql/routes/b/condition 5:35"]
    );
    assert_eq!(
        blueprint("{9000/tcp: {routes: {c/sql: {condition: host = a}}}}", "web", "host = a"),
        ["condition-port-type /gateways/9000~1tcp/routes/c~1sql/condition 2:40"]
    );
    assert_eq!(
        blueprint("{9000/tcp: {routes: {c/sql: {condition: {ref: x}}}}}", "web", "host = a"),
        [""; 0]
    );
}
