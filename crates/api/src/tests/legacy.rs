//! `api.legacy_clients`: what it switches, topic by topic (wire, section 15).

use super::Running;
use serde_json::json;

const BLUEPRINT: &str =
    "{name: p, clusters: {c: {services: [{breed: b}]}}, metadata: {x: {ref: y}}}";

async fn both() -> [(bool, Running); 2] {
    [
        (false, Running::start().await),
        (true, Running::with(&[("api.legacy_clients", json!(true))]).await),
    ]
}

/// Shows: D4
#[tokio::test]
async fn put_creates_with_it_and_is_404_without() {
    for (legacy, segue) in both().await {
        let expected = if legacy { 200 } else { 404 };
        let check = async |path: &str, body: &str| {
            let answer = segue.put(path, body).await;
            assert_eq!(answer.status, expected, "{path}: {answer:?}");
        };
        check("/api/v1/breeds/b?validate_only=true", "{deployable: x}").await;
        assert_eq!(segue.get("/api/v1/breeds/b").await.status, 404);
        check("/api/v1/breeds/b", "{deployable: x}").await;
        check("/api/v1/scales", "{name: s, cpu: 1, memory: 1GB, instances: 1}").await;
        check("/api/v1/gateways/g", "{port: 9050, routes: {'[127.0.0.1:1]': {}}}").await;
        // The general endpoint creates anyway.
        assert_eq!(segue.put("/api/v1", "{kind: breed, name: c, deployable: x}").await.status, 202);
        segue.stop().await;
    }
}

/// Shows: D9
#[tokio::test]
async fn names_of_deployments_are_not_checked_with_it() {
    let body = |name: &str| {
        format!(
            "{{name: {name}, clusters: {{web: {{services: [{{breed: {{name: 'web:1', deployable: a}}}}]}}}}}}"
        )
    };
    for (legacy, segue) in both().await {
        assert_eq!(segue.put("/api/v1/deployments/shop", &body("other")).await.status, 202);
        let again = segue.put("/api/v1/deployments/shop", &body("other")).await;
        assert_eq!(again.status, if legacy { 202 } else { 400 }, "{again:?}");
        if !legacy {
            assert_eq!(again.problem().1, "inconsistent-artifact-name");
        }
        for accepted in [format!("{{kind: blueprint, {}", &body("other")[1..]), body("shop")] {
            assert_eq!(
                segue.put("/api/v1/deployments/shop", &accepted).await.status,
                202,
                "{accepted}"
            );
        }
        segue.stop().await;
    }
}

/// Shows: D11, D12
#[tokio::test]
async fn references_are_printed_twice_with_it() {
    for (legacy, segue) in both().await {
        for breed in ["b", "{ref: b}", "{reference: b}", "{ref: b, reference: b}"] {
            let body = BLUEPRINT.replace("breed: b", &format!("breed: {breed}"));
            let created = segue.post("/api/v1/blueprints", &body).await;
            let expected =
                if legacy { json!({"ref": "b", "reference": "b"}) } else { json!({"ref": "b"}) };
            for answer in [created, segue.get("/api/v1/blueprints/p").await] {
                let printed = answer.json();
                assert_eq!(printed["clusters"]["c"]["services"][0]["breed"], expected, "{breed}");
                assert_eq!(printed["metadata"], json!({"x": {"ref": "y"}}));
            }
            let listed = segue.get("/api/v1/blueprints").await.json();
            assert_eq!(listed[0]["clusters"]["c"]["services"][0]["breed"], expected);
            // What is printed can be sent back.
            let printed = segue.get("/api/v1/blueprints/p").await;
            let tag =
                segue.put("/api/v1/blueprints/p", &printed.body).await.headers["etag"].clone();
            assert_eq!(tag, printed.headers["etag"]);
        }
        segue.stop().await;
    }
}

/// Shows: D28
#[tokio::test]
async fn settings_are_spelled_twice_with_it() {
    for (legacy, segue) in both().await {
        let flat = segue.get("/api/v1/config?flatten=true").await.json();
        assert_eq!(flat["gateway_driver.host"], "127.0.0.1");
        assert_eq!(flat.get("vamp.gateway-driver.host").is_some(), legacy);
        assert_eq!(flat.get("vamp.namespace").is_some(), legacy);
        assert_eq!(segue.get("/api/v1/config").await.json().get("vamp.namespace"), None);
        segue.stop().await;
    }
}

/// Shows: D16
#[tokio::test]
async fn pages_hold_at_most_30_items_with_it() {
    for (legacy, segue) in both().await {
        let breeds: Vec<String> =
            (10..50).map(|n| format!("{{name: b{n}, deployable: d}}")).collect();
        segue.post("/api/v1/breeds", &format!("[{}]", breeds.join(", "))).await;
        let page = segue.get("/api/v1/breeds?per_page=100").await;
        let (count, per_page) = if legacy { (30, 30) } else { (40, 100) };
        assert_eq!(page.json().as_array().map(Vec::len), Some(count));
        assert!(
            page.headers["link"].contains(&format!("per_page={per_page}&page=1>; rel=first")),
            "{page:?}"
        );
        segue.stop().await;
    }
}
