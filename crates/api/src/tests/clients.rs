//! What existing clients rely on, row by row, without `api.legacy_clients` (wire, section 14).

use super::Running;
use serde_json::{Value, json};

const BLUEPRINT: &str = "
name: shop
gateways: {9080: web/http}
clusters:
  web:
    services:
    - breed: {name: web:1, deployable: acme/web:1, ports: {http: 8000/http}}
      scale: {cpu: 0.2, memory: 64MB, instances: 1}
";
const ACCEPT: (&str, &str) = ("Accept", "application/json, text/plain, */*");
const TOKEN: (&str, &str) = ("Authorization", "token abc");

fn is_done(answer: &super::Reply) -> bool {
    answer.json()["clusters"]["web"]["services"][0]["status"]["phase"]["name"] == "Done"
}

#[tokio::test]
async fn headers_prefixes_and_parameters_that_clients_send() {
    let segue = Running::start().await;
    let json = [ACCEPT, TOKEN, ("Content-Type", "application/json; charset=UTF-8")];
    let created = segue
        .client
        .send("PUT", "/default/api/v1/", &json, "---\nkind: breed\nname: web:1\ndeployable: a\n")
        .await;
    assert_eq!((created.status, &created.headers["content-type"][..]), (202, "application/json"));
    for path in [
        "/default/api/v1/breeds/web:1?page=1",
        "/api/v1/deployments/?page=1",
        "/api/v1/events?timestamp=x&only_reference=true",
        "/api/v1/info?page=1",
    ] {
        assert_eq!(
            segue.client.send("GET", path, &[ACCEPT, TOKEN], "").await.status,
            200,
            "{path}"
        );
    }
    assert_eq!(
        segue.client.send("DELETE", "/api/v1/breeds/web:1", &[ACCEPT], "").await.status,
        204
    );
    assert_eq!(segue.get("/api/v1/breeds?page=2").await.json(), json!([]));
    segue.stop().await;
}

#[tokio::test]
async fn clients_send_back_what_they_read() {
    let segue = Running::start().await;
    // A blueprint is stored, read, and deployed under another name, or by its name alone.
    assert_eq!(segue.post("/api/v1/blueprints", BLUEPRINT).await.status, 201);
    let blueprint = segue.get("/api/v1/blueprints/shop").await;
    assert_eq!(blueprint.json()["kind"], "blueprint");
    assert_eq!(segue.put("/api/v1/deployments/other", &blueprint.body).await.status, 202);
    assert_eq!(segue.put("/api/v1/deployments/other", &blueprint.body).await.status, 202);
    let done = segue.wait("/api/v1/deployments/other", is_done).await;
    // Gateways come back complete, with a weight changed.
    let path = "/api/v1/gateways/other/web/http";
    let read = segue
        .wait(path, |answer| answer.status == 200 && answer.json()["deployed"] == json!(true))
        .await;
    let mut gateway = read.json();
    for field in [
        "name",
        "port",
        "internal",
        "deployed",
        "service",
        "sticky",
        "virtual_hosts",
        "routes",
        "lookup_name",
    ] {
        assert!(gateway.get(field).is_some(), "{field}: {gateway}");
    }
    assert!(
        gateway["service"]["port"].is_string() && gateway["service"]["host"].is_string(),
        "{gateway}"
    );
    gateway["sticky"] = json!("route");
    let changed = segue.put(path, &gateway.to_string()).await;
    assert_eq!((changed.status, &changed.json()["sticky"]), (200, &json!("route")), "{changed:?}");
    for field in ["lookup_name", "weight", "condition", "condition_strength", "targets"] {
        let routes = gateway["routes"].as_object().unwrap();
        assert!(routes.values().all(|route| route.get(field).is_some()), "{field}: {gateway}");
    }
    // Whole deployments and exports are bodies of a removal.
    let export = segue.get("/api/v1/deployments/other?as_blueprint=true").await;
    let validate = "/api/v1/deployments/other?validate_only=true";
    for body in [&done.body, &export.body] {
        assert_eq!(segue.delete(validate, body).await.status, 202, "{body}");
    }
    assert_eq!(segue.delete("/api/v1/deployments/other", &done.body).await.status, 202);
    segue.wait("/api/v1/deployments/other", |answer| answer.status == 404).await;
    segue.stop().await;
}

#[tokio::test]
async fn fields_of_deployments_that_clients_read() {
    let segue = Running::start().await;
    segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    let deployment = segue.wait("/api/v1/deployments/shop", is_done).await.json();
    let service = &deployment["clusters"]["web"]["services"][0];
    for pointer in [
        "/status/phase/name",
        "/status/intention",
        "/breed/name",
        "/breed/ports",
        "/scale",
        "/instances/0/name",
        "/instances/0/host",
        "/instances/0/ports/http",
        "/environment_variables",
        "/instances/0/deployed",
    ] {
        assert!(service.pointer(pointer).is_some(), "{pointer}: {service}");
    }
    assert_eq!(
        (&service["status"]["intention"], &service["status"]["phase"]["name"]),
        (&json!("Deployment"), &json!("Done"))
    );
    assert!(
        deployment["ports"]["web.http"].is_string() && deployment["hosts"]["web"].is_string(),
        "{deployment}"
    );
    let scale =
        segue.get("/api/v1/deployments/shop/clusters/web/services/web:1/scale").await.json();
    assert_eq!(scale, json!({"cpu": 0.2, "memory": "64.00MB", "instances": 1}));
    segue.stop().await;
}

/// Shows: D1, D3
#[tokio::test]
async fn one_event_carries_all_the_tags_that_clients_wait_for() {
    let segue = Running::start().await;
    segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    segue.wait("/api/v1/deployments/shop", is_done).await;
    segue
        .put(
            "/api/v1/deployments/shop/clusters/web/services/web:1/scale",
            "{cpu: 0.2, memory: 64MB, instances: 2}",
        )
        .await;
    segue
        .wait("/api/v1/gateways/shop/9080", |answer| {
            answer.status == 200 && answer.json()["deployed"] == json!(true)
        })
        .await;
    segue.delete("/api/v1/deployments/shop", BLUEPRINT).await;
    segue.wait("/api/v1/deployments/shop", |answer| answer.status == 404).await;
    segue.delete("/api/v1/breeds/web:1", "").await;
    let groups: [&[&str]; 9] = [
        &["synchronization:deployed", "deployments:shop", "clusters:web", "services:web:1"],
        &["synchronization:undeployed", "deployments:shop"],
        &["gateways:shop/9080", "deployed"],
        &["gateways:shop/9080", "undeployed"],
        &["archive:update", "deployments:shop"],
        &["archive:delete", "breeds"],
        &["archiving:delete", "deployments:shop"],
        &["breeds:web:1", "archive:update"],
        &["deployment-service-scales:shop/web/web:1"],
    ];
    for tags in groups {
        let query: Vec<String> =
            tags.iter().map(|tag| format!("tag={}", tag.replace('/', "%2F"))).collect();
        let path = format!("/api/v1/events?{}", query.join("&"));
        let found = segue.wait(&path, |answer| answer.headers["x-total-count"] != "0").await.json();
        let event: &Value = &found[0];
        for field in ["id", "tags", "value", "timestamp", "type"] {
            assert!(event.get(field).is_some(), "{tags:?}: {event}");
        }
    }
    segue.stop().await;
}

#[tokio::test]
async fn clients_validate_and_read_why_not() {
    let segue = Running::start().await;
    let refused = segue.post("/api/v1/breeds?validate_only=true", "{name: x, deployabl: y}").await;
    let document = refused.json();
    assert_eq!((refused.status, &document["message"]), (400, &document["detail"]));
    assert!(document["message"].as_str().is_some_and(|text| !text.is_empty()));
    assert_eq!(segue.delete("/api/v1/breeds/x", "").await.status, 204);
    assert_eq!(segue.get("/api/v1/breeds/x").await.status, 404);
    // They post what they measured, and ask for it with encoded names.
    segue
        .post(
            "/api/v1/events",
            "{tags: ['gateways:a/b/c', 'routes:a/b/d/c', 'metrics:rate'], value: 5, type: metrics}",
        )
        .await;
    let rate = segue.get("/api/v1/metrics/gateways/a%2Fb%2Fc/routes/a%2Fb%2Fd%2Fc/rate").await;
    assert_eq!((rate.status, &rate.json()["value"]), (200, &json!(5)));
    segue.stop().await;
}
