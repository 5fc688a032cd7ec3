//! Gateways, routes and weights.

use super::{node, options, problems};
use crate::artifact::RoutePath;
use crate::dsl::{GatewayView, TargetView, complete_weights, read_gateway, rewrite, write_gateway};
use serde_json::{Value as Json, json};

fn check(fields: &str, pointer: &str, expected: &Json) {
    let gateway = read_gateway(&node(&format!("name: g\n{fields}")), &options());
    let gateway = gateway.unwrap_or_else(|problems| panic!("{fields}\n{problems}"));
    let written = write_gateway(&gateway, &GatewayView::default());
    assert_eq!(written.pointer(pointer), Some(expected), "{fields}");
}

fn refuse(fields: &str, expected: &[&str]) {
    assert_eq!(
        problems(&read_gateway(&node(&format!("name: g\n{fields}")), &options())),
        expected,
        "{fields}"
    );
}

#[test]
fn the_example_of_the_reference() {
    let text = "name: edge\nport: 8088/http\nsticky: Route\nvirtual_hosts: shop.example\nroutes:\n  \
        shop:1/web/http: {weight: 70%}\n  \"[10.1.2.3:9000]\": {weight: 30%}\n";
    let gateway = read_gateway(&node(text), &options()).unwrap();
    let external = RoutePath::parse("[10.1.2.3:9000]").unwrap();
    let view = GatewayView {
        internal: false,
        deployed: true,
        service: Some(("h".to_owned(), 8088)),
        targets: [(external, vec![TargetView::Url("10.1.2.3:9000".to_owned())])]
            .into_iter()
            .collect(),
    };
    insta::assert_snapshot!(serde_json::to_string_pretty(&write_gateway(&gateway, &view)).unwrap());
}

#[test]
fn names_and_ports() {
    for name in ["g", "d/p", "d/c/p", "a/b/c/d", "a:b.c*"] {
        assert_eq!(read_gateway(&node(&format!("name: {name}")), &options()).unwrap().name, name);
    }
    for name in ["a/b/c/d/e", "a//b", "/a", "a b", "'a[b'", "''"] {
        let result = read_gateway(&node(&format!("name: {name}")), &options());
        assert_eq!(problems(&result), ["unsupported-gateway-name /name 1:7"], "{name}");
    }
    check("", "/port", &json!("0/http"));
    check("port: 80", "/port", &json!("80"));
    check("port: 80/TCP", "/port", &json!("80/TCP"));
    check("port: any", "/port", &json!("any"));
    refuse("port: 80.5", &["unexpected-type /port 2:7"]);
    refuse("port: yes", &["unexpected-type /port 2:7"]);
    refuse("port: x/tcp", &["unexpected-type /port 2:7"]);
    refuse("port: 70000", &["invalid-gateway-port /port 2:7"]);
    refuse("port: -1", &["invalid-gateway-port /port 2:7"]);
    refuse("port: 80/udp", &["unsupported-protocol /port 2:7"]);
}

#[test]
fn fields() {
    check("sticky: Instance", "/sticky", &json!("instance"));
    check("sticky: ~", "/sticky", &Json::Null);
    check("sticky: None", "/sticky", &Json::Null);
    check("sticky: none\nport: 80/tcp", "/sticky", &Json::Null);
    refuse("sticky: cookie", &["illegal-gateway-sticky-value /sticky 2:9"]);
    refuse("sticky: [route]", &["illegal-gateway-sticky-value /sticky 2:9"]);
    refuse("sticky: route\nport: 80/tcp", &["sticky-port-type /sticky 2:1"]);
    check("virtual_hosts: a.b", "/virtual_hosts", &json!(["a.b"]));
    check("virtual_hosts: [a, b]", "/virtual_hosts", &json!(["a", "b"]));
    refuse("virtual_hosts: [1]", &["illegal-gateway-virtual-hosts /virtual_hosts 2:16"]);
    refuse("virtual_hosts: {}", &["illegal-gateway-virtual-hosts /virtual_hosts 2:16"]);
    check(
        "service: {host: h, port: 1}\ndeployed: true\ninternal: false\nproxy: x\nlookup_name: y",
        "/deployed",
        &json!(false),
    );
    for key in ["selector", "filters", "endpoints"] {
        refuse(&format!("{key}: 1"), &[&format!("unexpected-element /{key} 2:1")]);
    }
}

#[test]
fn routes() {
    let paths = |routes: &str, expected: &[&str]| {
        let gateway = read_gateway(&node(&format!("name: g\nroutes: {routes}")), &options());
        let gateway = gateway.unwrap_or_else(|problems| panic!("{routes}\n{problems}"));
        assert_eq!(
            gateway.routes.keys().map(RoutePath::as_str).collect::<Vec<_>>(),
            expected,
            "{routes}"
        );
    };
    paths("a/b", &["a/b"]);
    paths("[a, {b: {weight: 40%}, c: {weight: 60%}}, d]", &["a", "b", "c", "d"]);
    paths("{a: {}, b: {}}", &["a", "b"]);
    paths("{}", &[]);
    paths("~", &[]);
    paths("/a//b/", &["a/b"]);
    paths("'[host:80]'", &["[host:80]"]);
    paths("{[10.0.0.1:80]: {}, '[host/a/b]': {}}", &["[10.0.0.1:80]", "[host/a/b]"]);
    paths("a/b/c/d", &["a/b/c/d"]);
    for route in ["other", "{ref: other}", "{reference: other, name: ignored}"] {
        check(&format!("routes: {{a: {route}}}"), "/routes/a", &json!({"ref": "other"}));
    }
    check("routes: {a: '[10.0.0.1:80]'}", "/routes/a", &json!({"ref": "[10.0.0.1:80]"}));
    refuse("routes: {a: b/c}", &["illegal-name /routes/a 2:13"]);
    refuse("routes: {a: {ref: b, weight: 5%}}", &["unexpected-element /routes/a/weight 2:22"]);
    refuse("routes: {a: ~}", &["missing-path-value /routes/a 2:10"]);
    refuse("routes: {a: 5}", &["unexpected-type /routes/a 2:13"]);
    refuse("routes: []", &["unexpected-type /routes 2:9"]);
    refuse("routes: [5]", &["unexpected-type /routes/0 2:10"]);
    refuse("routes: 5", &["unexpected-type /routes 2:9"]);
    refuse("routes: [[a]]", &["unexpected-type /routes/0 2:10"]);
    refuse("routes: a/b/c/d/e", &["unsupported-route-path /routes 2:1"]);
    refuse("routes: {'//': {}}", &["unsupported-route-path /routes/~1~1 2:10"]);
    refuse("routes: [a, {a: {}}]", &["duplicate-key /routes/1/a 2:17"]);
}

#[test]
fn fields_of_routes() {
    let refuse =
        |route: &str, expected: &[&str]| refuse(&format!("routes: {{a: {route}}}"), expected);
    for route in [
        "{condition: ~}",
        "{condition: ''}",
        "{condition: {condition: ''}}",
        "{condition: '', condition_strength: 50%}",
        "{condition_strength: 0%}",
        "{lookup_name: x, targets: [1], balance: roundrobin, metadata: {a: 1}}",
        "{rewrites: ~}",
        "{rewrites: []}",
    ] {
        refuse(route, &[]);
    }
    let expected = json!({"lookup_name": crate::artifact::lookup_name(crate::artifact::LookupClass::Gateway, "g/*/*/*/a/*/*/*"),
        "weight": null, "balance": "default", "condition": null, "condition_strength": null, "rewrites": []});
    check("routes: a", "/routes/a", &expected);
    check(
        "routes: {a: {rewrites: {path: 'x if y IF { z }'}}}",
        "/routes/a/rewrites",
        &json!([{"path": "x if y if { z }"}]),
    );
    check(
        "routes: {a: {rewrites: [x, {ref: y}, {reference: z, name: w}]}}",
        "/routes/a/rewrites",
        &json!([{"ref": "x"}, {"ref": "y"}, {"ref": "z"}]),
    );
    refuse("{weight: 50}", &["unexpected-type /routes/a/weight 2:22"]);
    refuse("{weight: 101%}", &["unexpected-type /routes/a/weight 2:22"]);
    refuse("{rewrites: [5]}", &["unexpected-type /routes/a/rewrites/0 2:25"]);
    refuse("{rewrites: [a b]}", &["illegal-name /routes/a/rewrites/0 2:25"]);
    refuse("{rewrites: x}", &["unexpected-type /routes/a/rewrites 2:24"]);
    refuse("{rewrites: {path: x}}", &["unsupported-path-rewrite /routes/a/rewrites/path 2:31"]);
    refuse("{name: x}", &["either-reference-or-anonymous /routes/a/name 2:20"]);
    for key in ["filters", "conditions", "filter_strength", "path"] {
        refuse(&format!("{{{key}: x}}"), &[&format!("unexpected-element /routes/a/{key} 2:14")]);
    }
    assert!(rewrite(" if x").is_none() && rewrite("x if ").is_none() && rewrite("xifx").is_none());
}

/// Shows: D34
#[test]
fn weights() {
    let complete = |routes: &str| {
        let result = read_gateway(&node(&format!("name: g\nroutes: {routes}")), &options());
        result.ok().map(|mut gateway| {
            complete_weights(&mut gateway.routes).unwrap();
            gateway.routes.values().map(|route| route.weight.unwrap().value()).collect::<Vec<_>>()
        })
    };
    let check = |routes: &str, expected: Option<&[u8]>| {
        assert_eq!(complete(routes).as_deref(), expected, "{routes}");
    };
    check("{a: {}, b: {}}", Some(&[50, 50]));
    check("{a: {}, b: {}, c: {}}", Some(&[33, 33, 34]));
    check("{a: {weight: 60%}, b: {}}", Some(&[60, 40]));
    check("{a: {weight: 100%}, b: {}}", Some(&[100, 0]));
    check("{a: {weight: 0%}, b: {}}", Some(&[0, 100]));
    check("{a: {weight: 0%}, b: {weight: 0%}}", Some(&[0, 0]));
    check("{a: {weight: 60%}, b: {weight: 40%}}", Some(&[60, 40]));
    check("{}", Some(&[]));
    check("{a: {weight: 60%}, b: {weight: 30%}}", None);
    check("{a: {weight: 60%}, b: {weight: 60%}}", None);
    check("{a: {weight: 60%}, b: {weight: 60%}, c: {}}", None);
    refuse("routes: {a: {weight: 10%}}", &["gateway-route-weight /routes 2:1"]);
}
