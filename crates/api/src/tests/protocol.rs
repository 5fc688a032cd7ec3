//! What holds for all resources: negotiation, limits, methods, prefixes, probes, system resources.

use super::Running;
use crate::config::Setting;
use serde_json::json;

#[tokio::test]
async fn answers_are_json_or_yaml() {
    let segue = Running::start().await;
    let yaml =
        [("Accept", "application/x-yaml"), ("Content-Type", "application/json; charset=utf-8")];
    let created =
        segue.client.send("POST", "/api/v1/breeds", &yaml, "name: web:1\ndeployable: a\n").await;
    assert_eq!(created.status, 201);
    assert!(created.body.starts_with("name: web:1\nkind: breed\n"), "{created:?}");
    let problem = segue.client.send("GET", "/api/v1/breeds/nosuch", &yaml, "").await;
    assert!(problem.status == 404 && problem.body.starts_with("type: not-found\n"), "{problem:?}");
    let foreign = segue.client.send("GET", "/api/v1/breeds", &[("Accept", "text/html")], "").await;
    assert_eq!(foreign.problem(), (406, "not-acceptable".to_owned()));
    assert_eq!(foreign.headers["content-type"], "application/problem+json");
    let foreign =
        segue.client.send("POST", "/api/v1/breeds", &[("Content-Type", "text/plain")], "a").await;
    assert_eq!(foreign.problem(), (415, "unsupported-media-type".to_owned()));
    let compressed =
        segue.client.send("GET", "/api/v1/info", &[("Accept-Encoding", "gzip")], "").await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    segue.stop().await;
}

#[tokio::test]
async fn bodies_are_limited() {
    let settings = vec![Setting::flag("api.max_body", json!("1 KiB"))];
    let segue = Running::start_with(tempfile::tempdir().unwrap(), settings).await;
    let refused =
        segue.post("/api/v1/events", &format!("{{tags: [a], value: {}}}", "x".repeat(1024))).await;
    assert_eq!(refused.problem(), (413, "payload-too-large".to_owned()));
    segue.stop().await;
}

#[tokio::test]
async fn paths_and_methods() {
    let segue = Running::start().await;
    for path in ["/api/v1/nosuch", "/api/v1/breeds/a/b", "/api/v1/"] {
        let answer = segue.get(path).await;
        let expected = if path == "/api/v1/" { 405 } else { 404 };
        assert_eq!(answer.status, expected, "{path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    for path in ["/nosuch", "/", "/other/api/v1/breeds", "/api/v12"] {
        let answer = segue.get(path).await;
        assert_eq!(
            (answer.status, &answer.headers["content-type"][..]),
            (404, "text/plain; charset=utf-8")
        );
    }
    let refused = segue.post("/api/v1/breeds/x", "").await;
    assert_eq!((refused.status, &refused.headers["allow"][..]), (405, "GET, HEAD, PUT, DELETE"));
    let refused = segue.delete("/api/v1/deployments", "").await;
    assert_eq!((refused.status, &refused.headers["allow"][..]), (405, "GET, HEAD, POST"));
    let head = segue.client.send("HEAD", "/api/v1/breeds", &[], "").await;
    assert_eq!((head.status, &head.body[..]), (200, ""));
    assert_eq!(head.headers["x-total-count"], "0");
    for path in ["/api/v1/slas", "/api/v1/escalations/x", "/api/v1/breeds?expand_references=true"] {
        assert_eq!(segue.get(path).await.problem(), (400, "not-supported".to_owned()), "{path}");
    }
    assert!(segue.get("/api/v1/breeds").await.headers.contains_key("x-request-id"));
    segue.stop().await;
}

#[tokio::test]
async fn browsers_of_every_origin_may_ask() {
    let segue = Running::start().await;
    let origin = ("Origin", "http://ui.test");
    let asked = segue.client.send("GET", "/api/v1/breeds", &[origin], "").await;
    assert_eq!(asked.headers["access-control-allow-origin"], "http://ui.test");
    assert_eq!(asked.headers["access-control-allow-credentials"], "true");
    let headers = [
        origin,
        ("Access-Control-Request-Method", "PUT"),
        ("Access-Control-Request-Headers", "x-mine"),
    ];
    let preflight = segue.client.send("OPTIONS", "/api/v1/breeds/x", &headers, "").await;
    assert_eq!((preflight.status, &preflight.body[..]), (200, ""), "{preflight:?}");
    assert!(preflight.headers["access-control-allow-methods"].contains("PUT"));
    assert_eq!(preflight.headers["access-control-max-age"], "1800");
    segue.stop().await;
}

#[tokio::test]
async fn the_service_tells_of_itself() {
    let segue = Running::start().await;
    for path in ["/livez", "/readyz", "/api/v1/readyz"] {
        assert_eq!(segue.get(path).await.status, 200, "{path}");
    }
    let info = segue.get("/api/v1/info").await.json();
    assert_eq!(info["persistence"]["database"]["artifacts"]["breeds"]["count"], 0);
    assert_eq!(info["container_driver"]["type"], "simulated");
    assert!(info["jvm"]["memory"]["heap"]["used"].as_u64().is_some_and(|used| used > 0));
    let some = segue.get("/api/v1/info?on=PULSE&on=nosuch").await.json();
    assert_eq!((some.get("jvm"), some["pulse"].is_object()), (None, true));
    let config = segue.get("/api/v1/config").await.json();
    assert_eq!(config["api"]["response_timeout"], "10 s");
    assert_eq!(segue.get("/api/v1/config?flatten=true").await.json()["api.max_body"], "8 MiB");
    let one = segue.get("/api/v1/config/vamp.gateway-driver.host").await.json();
    assert_eq!(one, json!({"gateway_driver.host": "127.0.0.1"}));
    assert_eq!(segue.get("/api/v1/sync").await.status, 202);
    for path in ["/api/v1/haproxy/2.6", "/api/v1/vga/haproxy/2.6/configuration"] {
        let text = segue.get(path).await;
        assert!(
            text.status == 200 && text.headers["content-type"].starts_with("text/plain"),
            "{text:?}"
        );
    }
    assert_eq!(segue.get("/api/v1/haproxy/1.0").await.status, 404);
    assert_eq!(segue.get("/api/v1/haproxy").await.status, 400);
    segue.stop().await;
}
