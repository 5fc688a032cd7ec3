//! Conditions from the API to what clients get.

use segue_tests::load;
use segue_tests::service::Service;
use segue_tests::shop;
use segue_tests::wait::{LIMIT, wait_until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How often each version answered requests with this user agent.
fn versions(port: u16, requests: usize, agent: &str) -> BTreeMap<String, usize> {
    let client = load::client(true);
    let mut counts = BTreeMap::new();
    for _ in 0..requests {
        let answer = load::ask_as(&client, port, agent).expect("the gateway answers");
        let version = answer["version"].as_str().expect("a version is text").to_owned();
        *counts.entry(version).or_default() += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(version, count)| ((*version).to_owned(), *count)).collect()
}

/// Shows: D44
#[test]
fn a_condition_splits_traffic_and_a_bad_one_harms_no_other_gateway() {
    let mut service = Service::start();
    let (port, other) = (service.ports.one(), service.ports.one());
    let api = &service.api;
    for version in ["1", "2"] {
        api.put(shop::SHOP, &shop::version(version, 1)).expect(202);
        shop::wait_done(api, "shop", &format!("web:{version}"), 1);
    }
    let condition = json!({"name": "fox", "condition": "user-agent = Firefox"});
    assert_eq!(api.post("/api/v1/conditions", &condition).expect(201)["kind"], "condition");
    let bad = json!({"name": "bad", "condition": "user-agent Firefox"});
    let refused = api.post("/api/v1/conditions", &bad).expect(400);
    assert!(
        refused["type"].as_str().is_some_and(|kind| kind.contains("condition-syntax")),
        "{refused}"
    );
    assert_eq!(refused["errors"][0]["line"], 1);
    let path = |version: &str| format!("shop/web/web:{version}/http");
    let edge = |condition: Value| {
        json!({"name": "edge", "port": format!("{port}/http"), "routes": {
            (path("1")): {"weight": "80%"},
            (path("2")): {"weight": "20%", "condition": condition, "condition_strength": "50%"}}})
    };
    let stored = api.post("/api/v1/gateways", &edge(json!({"ref": "fox"}))).expect(201);
    let route = &stored["routes"][path("2")];
    assert_eq!(route["condition"], json!({"condition": "user-agent = Firefox"}));
    api.post("/api/v1/gateways", &shop::edge("other", other)).expect(201);
    shop::wait_gateway(api, "edge");
    shop::wait_gateway(api, "other");
    assert_eq!(versions(port, 50, "Mozilla Firefox/1"), counts(&[("1", 20), ("2", 30)]));
    assert_eq!(versions(port, 50, "curl"), counts(&[("1", 40), ("2", 10)]));

    api.put("/api/v1/gateways/edge", &edge(json!("< nonsense x >"))).expect(200);
    let tags = ["gateways:edge", "failed", "gateway_driver:ERROR"];
    api.wait_event(&tags, |event| {
        let words = event["value"]["notification"].as_str().unwrap_or_default();
        words.contains("gets no traffic") && words.contains("nonsense")
    });
    assert_eq!(versions(port, 10, "curl"), counts(&[("1", 10)]), "the route is disabled");
    let client = load::client(false);
    wait_until("the other gateway answers", LIMIT, || load::ask(&client, other));
    api.put("/api/v1/gateways/edge", &edge(json!("host != nowhere"))).expect(200);
    api.wait_event(&["gateways:edge", "restored"], |_| true);
    assert_eq!(versions(port, 50, "curl"), counts(&[("1", 20), ("2", 30)]));
}
