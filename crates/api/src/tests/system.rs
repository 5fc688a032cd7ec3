//! The service about itself, and log lines as a stream (wire, sections 11.3 and 12).

use super::Running;
use crate::config::Config;
use crate::logs;
use serde_json::{Value, json};

/// Shows: D29, I4.8-info, I4.8-info-on, I9-version
#[tokio::test]
async fn information_has_sections() {
    let segue = Running::start().await;
    let info = segue.get("/api/v1/info").await.json();
    let members: Vec<_> = info.as_object().unwrap().keys().map(String::as_str).collect();
    let all = [
        "message",
        "version",
        "uuid",
        "running_since",
        "jvm",
        "persistence",
        "key_value",
        "pulse",
        "gateway_driver",
        "container_driver",
        "workflow_driver",
    ];
    assert_eq!(members, all);
    for pointer in [
        "/jvm/operating_system/system_load_average",
        "/jvm/operating_system/available_processors",
        "/jvm/runtime/start_time",
        "/jvm/runtime/up_time",
        "/jvm/memory/heap/max",
        "/jvm/memory/heap/used",
        "/jvm/memory/non_heap/max",
        "/jvm/threads/count",
        "/persistence/database/artifacts/breeds/count",
    ] {
        assert!(info.pointer(pointer).is_some_and(Value::is_number), "{pointer}");
    }
    for pointer in [
        "/persistence/database/type",
        "/pulse/type",
        "/key_value/type",
        "/container_driver/type",
        "/gateway_driver/marshallers/2.6/type",
    ] {
        assert!(info.pointer(pointer).is_some_and(Value::is_string), "{pointer}");
    }
    let check = async |query: &str, expected: &[&str]| {
        let info = segue.get(&format!("/api/v1/information?{query}")).await.json();
        let members: Vec<_> = info.as_object().unwrap().keys().cloned().collect();
        assert_eq!(members[4..], *expected, "{query}");
    };
    check("on=JVM", &["jvm"]).await;
    check("on=pulse&on=Key_Value", &["key_value", "pulse"]).await;
    check("on=nosuch", &[]).await;
    let uuid = info["uuid"].clone();
    let directory = segue.stop().await;
    let segue = Running::start_with(directory, vec![]).await;
    assert_ne!(segue.get("/api/v1/info").await.json()["uuid"], uuid);
    segue.stop().await;
}

/// Shows: D28, I4.8-config
#[tokio::test]
async fn the_configuration_is_nested_or_flat() {
    let segue = Running::with(&[("namespace", json!("shop"))]).await;
    let check = async |path: &str, expected: Option<Value>| {
        for root in ["config", "configuration"] {
            let answer = segue.get(&format!("/api/v1/{root}{path}")).await;
            assert_eq!((answer.status == 200).then(|| answer.json()), expected, "{root}{path}");
        }
    };
    let nested = segue.get("/api/v1/config").await.json();
    assert_eq!(nested["api"]["sse"]["keep_alive"], "15 s");
    assert_eq!(nested["operation"]["deployment"]["arguments"], json!([]));
    let flat = segue.get("/api/v1/config?flatten=true").await.json();
    assert_eq!((&flat["api.sse.keep_alive"], &flat["namespace"]), (&json!("15 s"), &json!("shop")));
    assert!(flat.as_object().unwrap().values().all(|value| !value.is_object()), "{flat}");
    check("/namespace", Some(json!({"namespace": "shop"}))).await;
    check("/vamp.gateway-driver.host", Some(json!({"gateway_driver.host": "127.0.0.1"}))).await;
    check("/segue.api.max_body", Some(json!({"api.max_body": "8 MiB"}))).await;
    check("/api.ui", Some(json!({"api.ui": {"directory": null, "index": "index.html"}}))).await;
    check(
        "/api.ui?flatten=true",
        Some(json!({"api.ui.directory": null, "api.ui.index": "index.html"})),
    )
    .await;
    check("/nosuch", None).await;
    check("/api.nosuch", None).await;
    let layer = async |kind: &str| segue.get(&format!("/api/v1/config?type={kind}")).await.json();
    assert_eq!(layer("applied").await, nested);
    assert_eq!(layer("nosuch").await, nested);
    assert_eq!(layer("reference").await["namespace"], "default");
    assert_eq!(layer("system").await["namespace"], "shop");
    assert_eq!(layer("dynamic").await, json!({}));
    assert_eq!(layer("application").await, json!({}));
    assert_eq!(layer("environment").await, json!({}));
    segue.stop().await;
}

/// Shows: D26, D27, I4.8-haproxy, I4.8-sync
#[tokio::test]
async fn cycles_run_at_once_and_configurations_are_told() {
    let segue = Running::start().await;
    for path in ["sync", "sla", "escalation"] {
        let answer = segue.get(&format!("/api/v1/{path}")).await;
        assert_eq!((answer.status, &answer.body[..]), (202, ""), "{path}");
    }
    let check = async |path: &str, status: u16, empty: bool| {
        let headers = [("Accept", "text/html")];
        let answer = segue.client.send("GET", &format!("/api/v1/{path}"), &headers, "").await;
        assert_eq!(answer.status, status, "{path}");
        if status == 200 {
            assert!(answer.headers["content-type"].starts_with("text/plain"), "{path}");
            assert_eq!(answer.body.is_empty(), empty, "{path}");
        }
    };
    segue.post("/api/v1/gateways", "{name: g, port: 9050, routes: {'[127.0.0.1:1]': {}}}").await;
    segue.wait("/api/v1/haproxy/2.6", |answer| answer.body.contains("9050")).await;
    check("haproxy/2.6", 200, false).await;
    check("haproxy/1.0", 404, false).await;
    check("haproxy", 400, false).await;
    check("vga/haproxy/2.6/configuration", 200, false).await;
    check("vga/haproxy/2.6/config", 200, false).await;
    check("vga/haproxy/1.0/configuration", 200, true).await;
    check("vga/nginx/1/configuration", 200, true).await;
    check("vga/haproxy/2.6/template", 200, false).await;
    check("vga/nginx/1/template", 200, true).await;
    segue.stop().await;
}

#[tokio::test]
async fn templates_of_configurations_are_replaced_and_restored() {
    const PATH: &str = "/api/v1/vga/haproxy/2.6/template";
    let segue = Running::start().await;
    let ours = segue.get(PATH).await.body;
    let validated = segue.put(&format!("{PATH}?validate_only=true"), "# theirs").await;
    assert_eq!((validated.status, &validated.body[..]), (202, "# theirs"));
    assert_eq!(segue.get(PATH).await.body, ours);
    for _ in 0..2 {
        let stored = segue.put(PATH, "# theirs").await;
        assert_eq!((stored.status, &stored.body[..]), (202, "# theirs"), "{stored:?}");
        assert_eq!(segue.get(PATH).await.body, "# theirs");
    }
    let configuration = segue.get("/api/v1/haproxy/2.6").await;
    assert_eq!(configuration.status, 200);
    assert_eq!(segue.post(PATH, "\n").await.status, 202);
    assert_eq!(segue.get(PATH).await.body, ours);
    let written = "/api/v1/events?tag=marshaller:template&tag=type:haproxy&tag=name:2.6";
    assert_eq!(segue.get(written).await.json().as_array().map(Vec::len), Some(2));
    let other = segue.put("/api/v1/vga/haproxy/1.0/template", "x").await;
    assert_eq!(other.problem(), (404, "not-found".to_owned()));
    segue.stop().await;
}

#[tokio::test]
async fn statistics_count_artifacts_and_occasions() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", "[{name: a, deployable: x}, {name: b, deployable: x}]").await;
    segue.put("/api/v1/breeds/a", "{deployable: y}").await;
    segue.delete("/api/v1/breeds/b", "").await;
    segue.post("/api/v1/events", "{tags: ['sla:escalate']}").await;
    segue.put("/api/v1/deployments/d", "{clusters: {c: {services: [{breed: a}]}}}").await;
    let deployed = |answer: &super::Reply| answer.json()["pulse"]["deployed-services"] == json!(1);
    let stats = segue.wait("/api/v1/stats", deployed).await.json();
    assert_eq!(
        stats["persistence"]["breeds"],
        json!({"count": 1, "created": 2, "updated": 1, "deleted": 1})
    );
    assert_eq!(
        stats["persistence"]["deployments"],
        json!({"count": 1, "clusters": 1, "services": 1})
    );
    assert_eq!(stats["pulse"]["escalation-count"], 1);
    assert_eq!(stats["pulse"]["de-escalation-count"], 0);
    for member in ["jvm", "system"] {
        assert!(stats[member].is_object(), "{stats}");
    }
    assert_eq!(segue.get("/api/v1/statistics").await.status, 200);
    segue.stop().await;
}

#[tokio::test]
async fn log_lines_are_streamed() {
    // Somebody else may write log lines already, in which case they are these.
    let _ = logs::start(&Config::load(None, [], []).unwrap().settings.log);
    let segue = Running::with(&[("api.sse.keep_alive", json!("200 ms"))]).await;
    let mut lines = segue
        .client
        .open(
            "GET",
            "/api/v1/log?level=debug&logger=segue_api::request",
            &[("Accept-Encoding", "gzip")],
            "",
        )
        .await;
    assert_eq!(lines.headers["content-type"], "text/event-stream");
    assert!(!lines.headers.contains_key("content-encoding"));
    segue.get("/api/v1/breeds/nosuch").await;
    let line = loop {
        let data = lines.field("data: ").await.expect("a line");
        let line: Value = serde_json::from_str(&data).unwrap();
        if line["message"].as_str().unwrap().contains("/api/v1/breeds/nosuch") {
            break line;
        }
    };
    assert_eq!((&line["level"], &line["logger"]), (&json!("DEBUG"), &json!("segue_api::request")));
    assert!(line["timestamp"].as_str().is_some_and(|at| at.ends_with('Z')));
    let mut silent = segue.client.open("GET", "/api/v1/logs?level=OFF", &[], "").await;
    assert_eq!(silent.field(":").await.as_deref(), Some(""));
    let refused = segue.get("/api/v1/log?level=loud").await;
    assert_eq!(refused.problem(), (400, "invalid-parameter".to_owned()));
    segue.stop().await;
}
