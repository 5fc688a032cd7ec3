//! Rules of the interface that hold for all kinds, one test for each chapter.

use super::Running;
use serde_json::{Value, json};

/// A collection, the word for one of its kind, and a document.
const COLLECTIONS: [(&str, &str, &str); 10] = [
    ("blueprints", "blueprint", "{name: x, clusters: {c: b}}"),
    ("breeds", "breed", "{name: x, deployable: d}"),
    ("conditions", "condition", "{name: x, condition: has cookie beta}"),
    ("escalations", "escalation", "{name: x, type: pager}"),
    ("scales", "scale", "{name: x, cpu: 1, memory: 64MB}"),
    ("slas", "sla", "{name: x, type: escalation_only}"),
    ("gateways", "gateway", "{name: x, port: 9050, routes: {'[127.0.0.1:1]': {}}}"),
    ("rewrites", "rewrite", "{name: x, path: /a if path_beg /b}"),
    ("routes", "route", "{name: x, weight: 50%}"),
    ("templates", "template", "{name: x, definition: {a: 1}}"),
];

/// An artifact without what Segue finds out about it meanwhile.
fn declared(artifact: &Value) -> Value {
    let mut artifact = artifact.clone();
    if let Some(members) = artifact.as_object_mut() {
        members.remove("service");
        members.remove("deployed");
    }
    if let Some(routes) = artifact["routes"].as_object_mut() {
        for route in routes.values_mut().filter_map(Value::as_object_mut) {
            route.remove("targets");
        }
    }
    artifact
}

/// Shows: I1-store, I1-kinds, I2.1-name-kind, I4.2-list, I4.2-get, I4.2-create, I4.2-update, I4.2-delete
/// Shows: I4.2-validate-only, I4.2-no-parameters, D10
#[tokio::test]
async fn every_collection_has_the_same_operations() {
    let segue = Running::start().await;
    for (collection, kind, document) in COLLECTIONS {
        let all = format!("/api/v1/{collection}");
        let one = format!("{all}/x");
        let only = |path: &str| format!("{path}?validate_only=true");
        let validated = segue.post(&only(&all), document).await;
        assert_eq!(
            (validated.status, &validated.json()["name"]),
            (201, &json!("x")),
            "{collection}"
        );
        assert_eq!(segue.get(&one).await.status, 404, "{collection}: it was not stored");

        let created = segue.post(&all, document).await;
        assert_eq!(created.status, 201, "{collection}: {created:?}");
        assert_eq!((&created.json()["name"], &created.json()["kind"]), (&json!("x"), &json!(kind)));
        assert_eq!(segue.get(&all).await.json()[0]["name"], "x", "{collection}");
        assert_eq!(
            declared(&segue.get(&one).await.json()),
            declared(&created.json()),
            "{collection}"
        );
        if !matches!(kind, "blueprint" | "breed") {
            let ignored =
                segue.get(&format!("{one}?expand_references=true&only_references=true")).await;
            assert_eq!(ignored.status, 200, "{collection}");
            assert_eq!(declared(&ignored.json()), declared(&created.json()), "{collection}");
        }

        let tag = created.headers["etag"].clone();
        let changed = document.replace("{name: x", "{name: x, metadata: {a: 1}");
        assert_eq!(segue.put(&only(&one), &changed).await.status, 200, "{collection}");
        assert_eq!(segue.get(&one).await.headers["etag"], tag, "{collection}: it was not stored");
        let updated = segue.put(&one, &changed).await;
        assert_eq!(
            (updated.status, &updated.json()["metadata"]),
            (200, &json!({"a": 1})),
            "{collection}"
        );

        assert_eq!(segue.delete(&only(&one), "").await.status, 204, "{collection}");
        assert_eq!(segue.get(&one).await.status, 200, "{collection}: it was not deleted");
        let deleted = segue.delete(&one, "").await;
        assert_eq!((deleted.status, &deleted.body[..]), (204, ""), "{collection}");
        assert_eq!(segue.get(&one).await.status, 404, "{collection}");
    }
    segue.stop().await;
}

/// Shows: I4.1-validate-only-yaml, I4.1-validate-only
#[tokio::test]
async fn what_would_be_can_be_seen_as_yaml() {
    let segue = Running::start().await;
    let accept = [("Accept", "application/x-yaml")];
    let path = "/api/v1/breeds?validate_only=true";
    let validated = segue.client.send("POST", path, &accept, "{name: x, deployable: d}").await;
    assert_eq!(validated.status, 201);
    assert!(validated.body.starts_with("name: x\nkind: breed\n"), "{validated:?}");
    assert_eq!(segue.get("/api/v1/breeds").await.json(), json!([]));
    segue.stop().await;
}

/// Shows: I4.1-pagination, I6.5-page-size, I8-per-page, I8-first-page, I8-event-page
#[tokio::test]
async fn pages_have_thirty_items_and_begin_with_one() {
    let segue = Running::start().await;
    let breeds: Vec<String> = (10..41).map(|n| format!("{{name: b{n}, deployable: d}}")).collect();
    segue.post("/api/v1/breeds", &format!("[{}]", breeds.join(", "))).await;
    for (path, total) in [("/api/v1/breeds", "31"), ("/api/v1/events?tag=breeds", "31")] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let first = segue.get(path).await;
        assert_eq!(first.headers["x-total-count"], total, "{path}");
        assert_eq!(first.json().as_array().map(Vec::len), Some(30), "{path}");
        let one = segue.get(&format!("{path}{separator}page=1")).await;
        assert_eq!(one.json(), first.json(), "{path}");
        let second = segue.get(&format!("{path}{separator}page=2")).await;
        assert_eq!(second.json().as_array().map(Vec::len), Some(1), "{path}");
    }
    segue.stop().await;
}

/// Shows: I4.3-list, I4.3-as-blueprint, I4.3-as-blueprint-yaml, I4.3-expand, I4.3-only, I4.3-validate-only
/// Shows: I4.4-scale-no-delete, I4.3-delete-4
#[tokio::test]
async fn deployments_are_exported_and_validated() {
    let segue = Running::start().await;
    let blueprint = "{name: shop, clusters: {web: {services: [{breed: {name: web:1, deployable: d, ports: {http: 80}}}]}}}";
    let path = "/api/v1/deployments/shop";
    let only = "/api/v1/deployments/shop?validate_only=true";
    assert_eq!(segue.put(only, blueprint).await.status, 202);
    assert_eq!(segue.get(path).await.status, 404, "nothing was deployed");
    assert_eq!(segue.post(path, blueprint).await.status, 202);
    assert_eq!(segue.put(only, "{name: shop, clusters: {web: web:7}}").await.status, 400);

    let full = segue.get(path).await.json();
    for parameter in ["expand_references", "only_references"] {
        let read = segue.get(&format!("{path}?{parameter}=true")).await.json();
        assert_eq!(read["clusters"]["web"]["services"][0]["breed"]["name"], "web:1", "{parameter}");
        assert_eq!(read["kind"], full["kind"]);
    }
    let list = segue.get("/api/v1/deployments?as_blueprint=true&only_references=true").await.json();
    assert_eq!((&list[0]["kind"], &list[0]["name"]), (&json!("blueprint"), &json!("shop")));
    assert_eq!(list[0]["clusters"]["web"]["services"][0]["breed"], json!({"ref": "web:1"}));
    let accept = [("Accept", "application/x-yaml")];
    let export = segue.client.send("GET", &format!("{path}?as_blueprint=true"), &accept, "").await;
    assert!(export.body.starts_with("name: shop\nkind: blueprint\n"), "{export:?}");
    let stored = export.body.replacen("name: shop", "name: stored", 1);
    assert_eq!(segue.post("/api/v1/blueprints", &stored).await.status, 201, "{stored}");

    let scale = format!("{path}/clusters/web/services/web:1/scale");
    let refused = segue.delete(&scale, "").await;
    assert_eq!((refused.status, &refused.headers["allow"][..]), (405, "GET, HEAD, POST, PUT"));
    assert_eq!(segue.delete(only, &full.to_string()).await.status, 202);
    let service = &segue.get(path).await.json()["clusters"]["web"]["services"][0];
    assert_eq!(service["status"]["intention"], "Deployment", "nothing was deleted");
    assert_eq!(segue.delete(path, &full.to_string()).await.status, 202);
    segue.stop().await;
}

/// Shows: I2.3-timestamp, I2.3-value, I6.1-value, I6.1-inclusive, I6.2-produced, I6.2-custom
#[tokio::test]
async fn events_keep_what_they_are_given() {
    let segue = Running::start().await;
    let at = "2030-01-10T15:33:49.766Z";
    for value in ["{a: [1, ~]}", "5", "text", "[1, 2]", "true"] {
        let body = format!("{{tags: [kept], timestamp: '{at}', value: {value}}}");
        let posted = segue.post("/api/v1/events", &body).await.json();
        let expected: Value = serde_yaml::from_str(value).unwrap();
        assert_eq!((&posted["value"], &posted["timestamp"]), (&expected, &json!(at)), "{value}");
    }
    let between = |from: &str, to: &str| {
        format!("{{tags: [kept], timestamp: {{gte: '{from}', lte: '{to}'}}}}")
    };
    let find = async |body: String| {
        segue.client.send("GET", "/api/v1/events", &[], &body).await.headers["x-total-count"]
            .clone()
    };
    assert_eq!(find(between(at, at)).await, "5", "both ends are inclusive");
    assert_eq!(find(between("2030-01-10T15:33:49.767Z", "2031-01-01T00:00:00Z")).await, "0");
    let searched = segue.client.send("GET", "/api/v1/events", &[], "{value: 5}").await;
    assert_eq!(searched.problem(), (400, "unexpected-element".to_owned()));

    let now = segue.post("/api/v1/events", "{tags: [now]}").await.json();
    let recent = "{tags: [now], timestamp: {gte: now-1m, lte: now+1m}}".to_owned();
    assert_eq!(find(recent).await, "1", "{now}");
    for kind in ["health", "metrics", "allocation", "workflow", "my-Type_1"] {
        segue.post("/api/v1/events", &format!("{{tags: [typed], type: {kind}}}")).await;
        let found = segue.get(&format!("/api/v1/events?tag=typed&type={kind}")).await;
        assert_eq!(found.json()[0]["type"], kind);
        assert_eq!(found.headers["x-total-count"], "1");
    }
    segue.stop().await;
}

/// Shows: I9-prefix, I9-version
#[tokio::test]
async fn the_release_is_told_below_the_prefix() {
    let segue = Running::start().await;
    let info = segue.get("/api/v1/info").await.json();
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    for path in ["/breeds", "/deployments", "/events", "/info"] {
        assert_eq!(segue.get(&format!("/api/v1{path}")).await.status, 200, "{path}");
        assert_eq!(segue.get(path).await.status, 404, "{path}");
    }
    segue.stop().await;
}
