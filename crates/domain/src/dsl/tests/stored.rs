//! Stored routes, rewrites and templates.

use super::{node, options, problems};
use crate::dsl::{
    read_rewrite, read_route, read_template, write_rewrite, write_route, write_template,
};
use serde_json::json;

/// Shows: D11, D12
#[test]
fn routes() {
    let text = "name: canary\nmetadata: {owner: me}\nweight: 10%\nrewrites: strip\n";
    assert_eq!(
        problems(&read_route(&node(text), &options())),
        ["unexpected-type /rewrites 4:11"],
        "a single text is no list"
    );
    let text = text.replace("strip", "[strip, {path: /a if b}]");
    let route = read_route(&node(&text), &options()).unwrap();
    let expected = json!({
        "name": "canary", "kind": "route", "metadata": {"owner": "me"},
        "lookup_name": crate::artifact::lookup_name(crate::artifact::LookupClass::Route, "canary"),
        "weight": "10%", "balance": "default", "condition": null, "condition_strength": null,
        "rewrites": [{"ref": "strip"}, {"path": "/a if b"}],
    });
    assert_eq!(write_route(&route).to_string(), expected.to_string());
    for name in ["r", "'[10.0.0.1:80]'", "'[host/a/b]'", "5"] {
        let route = read_route(&node(&format!("name: {name}")), &options());
        assert_eq!(route.unwrap().name, name.trim_matches('\''));
    }
    let refuse = |fields: &str, expected: &[&str]| {
        let result = read_route(&node(&format!("name: r\n{fields}")), &options());
        assert_eq!(problems(&result), expected, "{fields}");
    };
    refuse("ref: other", &["unexpected-element /ref 2:1"]);
    refuse("filters: []", &["unexpected-element /filters 2:1"]);
    refuse("weight: 10", &["unexpected-type /weight 2:9"]);
    refuse("kind: gateway", &["inconsistent-artifact-kind /kind 2:7"]);
    for name in ["a/b", "'[]'", "'[a'", "a b"] {
        let result = read_route(&node(&format!("name: {name}")), &options());
        assert_eq!(problems(&result), ["illegal-name /name 1:7"], "{name}");
    }
    assert_eq!(
        problems(&read_route(&node("weight: 5%"), &options())),
        ["missing-path-value /name 1:1"]
    );
}

#[test]
fn rewrites() {
    let rewrite = read_rewrite(&node("name: strip\npath: /a IF b if { c }"), &options()).unwrap();
    assert_eq!(
        write_rewrite(&rewrite).to_string(),
        json!({"name": "strip", "kind": "rewrite", "metadata": {}, "path": "/a IF b if { c }"})
            .to_string()
    );
    let refuse = |text: &str, expected: &[&str]| {
        assert_eq!(problems(&read_rewrite(&node(text), &options())), expected, "{text}");
    };
    refuse("{name: x}", &["missing-path-value /path 1:1"]);
    refuse("{path: a if b}", &["missing-path-value /name 1:1"]);
    refuse("{name: x, path: a}", &["unsupported-path-rewrite /path 1:17"]);
    refuse("{name: x, path: [a]}", &["unexpected-type /path 1:17"]);
    refuse("{name: x, path: a if b, to: c}", &["unexpected-element /to 1:25"]);
}

#[test]
fn templates() {
    for key in ["definition", "def"] {
        let text = format!("{{name: base, {key}: {{scale: small, a: [1, ~]}}}}");
        let template = read_template(&node(&text), &options()).unwrap();
        let expected = json!({"name": "base", "kind": "template", "metadata": {},
            "definition": {"scale": "small", "a": [1, null]}});
        assert_eq!(write_template(&template).to_string(), expected.to_string());
    }
    let refuse = |text: &str, expected: &[&str]| {
        assert_eq!(problems(&read_template(&node(text), &options())), expected, "{text}");
    };
    refuse("{name: x}", &["missing-path-value /definition 1:1"]);
    refuse("{name: x, def: [1]}", &["unexpected-type /def 1:16"]);
    refuse("{name: x, definition: text}", &["unexpected-type /definition 1:23"]);
    refuse("{name: x, definition: {}, def: {}}", &["unexpected-element /def 1:27"]);
}
