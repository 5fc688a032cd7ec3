//! Deployments over HTTP, from the request to what runs, simulated.

use super::Running;
use super::client::Reply;
use serde_json::{Value, json};

const BLUEPRINT: &str = "
name: shop
gateways: {9080: web/http}
clusters:
  web:
    services:
    - breed: {name: web:1, deployable: acme/web:1, ports: {http: 8000/http}}
      scale: {cpu: 0.2, memory: 64MB, instances: 2}
";

/// Shows: D9, I3-status, I3-asynchronous, I4.1-deployments, I4.3-get, I4.3-create-named
/// Shows: I4.3-update-name, I4.3-delete, I4.3-delete-2, I4.3-delete-4, I4.3-delete-5
/// Shows: I4.3-as-blueprint, I4.3-only, I4.3-missing, I4.4-scale-get, I4.4-scale-set
/// Shows: I7-delete-empty, I7-name-differs
#[tokio::test]
async fn a_deployment_is_made_scaled_and_taken_away() {
    let segue = Running::start().await;
    let filter = "/api/v1/events/stream?tag=deployments:shop&tag=synchronisation:deployed&from=0";
    let mut deployed = segue.client.open("GET", filter, &[], "").await;
    let created = segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    assert_eq!(created.status, 202, "{created:?}");
    assert!(created.headers.contains_key("etag"));
    deployed.field("data: ").await.expect("the service is deployed");
    let read = segue.get("/api/v1/deployments/shop").await.json();
    let service = &read["clusters"]["web"]["services"][0];
    assert_eq!(service["status"]["phase"]["name"], "Done");
    assert_eq!(service["instances"].as_array().map(Vec::len), Some(2));
    let breeds = segue.get("/api/v1/breeds/web:1").await;
    assert_eq!(breeds.status, 200);

    let instance = service["instances"][0]["name"].as_str().unwrap();
    let output = |service: &str, rest: &str| {
        let service = format!("/api/v1/deployments/shop/clusters/web/services/{service}");
        format!("{service}/instances/{instance}/output{rest}")
    };
    assert_eq!(
        segue.get(&output("web:1", "")).await.json(),
        json!({"name": instance, "lines": []})
    );
    assert_eq!(segue.get(&output("web:2", "")).await.problem(), (404, "not-found".to_owned()));
    assert_eq!(segue.get(&output("web:1", "?lines=0")).await.status, 400);
    assert_eq!(segue.get(&output("web:1", "?lines=1001")).await.status, 400);

    let scale = "/api/v1/deployments/shop/clusters/web/services/web:1/scale";
    assert_eq!(
        segue.get(scale).await.json(),
        json!({"cpu": 0.2, "memory": "64.00MB", "instances": 2})
    );
    let scaled = segue.put(scale, "{cpu: 0.2, memory: 64MB, instances: 3}").await;
    assert_eq!((scaled.status, &scaled.json()["instances"]), (202, &json!(3)));
    deployed.field("data: ").await.expect("the service is scaled");
    let missing = "/api/v1/deployments/shop/clusters/web/services/web:2/scale";
    assert_eq!(segue.get(missing).await.status, 404);
    assert_eq!(segue.put(missing, "{cpu: 1, memory: 1GB}").await.status, 404);
    assert_eq!(segue.put(scale, "nosuch").await.problem(), (400, "artifact-not-found".to_owned()));

    let other = BLUEPRINT.replace("name: shop", "name: other");
    assert_eq!(
        segue.put("/api/v1/deployments/shop", &other).await.problem().1,
        "inconsistent-artifact-name"
    );
    let blueprint = format!("kind: blueprint{other}");
    assert_eq!(segue.put("/api/v1/deployments/shop", &blueprint).await.status, 202);

    assert_eq!(segue.delete("/api/v1/deployments/shop", "").await.status, 202);
    assert_eq!(segue.get("/api/v1/deployments/shop").await.status, 200);
    let gone = "/api/v1/events/stream?tag=archiving:delete&tag=deployments:shop&from=0";
    let mut gone = segue.client.open("GET", gone, &[], "").await;
    let export = segue.get("/api/v1/deployments/shop?as_blueprint=true").await;
    assert_eq!(export.json()["kind"], "blueprint");
    let references =
        segue.get("/api/v1/deployments/shop?as_blueprint=true&only_references=true").await.json();
    assert_eq!(references["clusters"]["web"]["services"][0]["breed"], json!({"ref": "web:1"}));
    let deleted = segue.delete("/api/v1/deployments/shop", &export.body).await;
    assert_eq!((deleted.status, &deleted.body[..]), (202, ""), "{deleted:?}");
    gone.field("data: ").await.expect("the deployment is gone");
    assert_eq!(segue.get("/api/v1/deployments/shop").await.status, 404);
    segue.stop().await;
}

/// Shows: D9, D10, I4.3-create, I4.3-list
#[tokio::test]
async fn posted_deployments_get_names() {
    let segue = Running::start().await;
    let validated = segue.post("/api/v1/deployments?validate_only=true", BLUEPRINT).await;
    assert_eq!(validated.status, 201, "{validated:?}");
    assert_eq!(segue.get("/api/v1/deployments").await.json(), json!([]));
    let created = segue.post("/api/v1/deployments", BLUEPRINT).await;
    assert_eq!(created.status, 202);
    let name = created.json()["name"].as_str().unwrap().to_owned();
    assert_eq!(name.len(), 36, "{name}");
    let list = segue.get("/api/v1/deployments").await;
    assert_eq!(
        (&list.json()[0]["name"], &list.headers["x-total-count"][..]),
        (&Value::from(name), "1")
    );
    let taken = segue.post("/api/v1/deployments", BLUEPRINT).await;
    assert_eq!(taken.problem().1, "unavailable-gateway-port");
    let none = segue.get("/api/v1/deployments/shop/clusters/web/sla").await;
    assert_eq!(none.problem(), (404, "not-found".to_owned()));
    let missing = segue.put("/api/v1/deployments/x", "{ref: nosuch}").await;
    assert_eq!(missing.problem().1, "artifact-not-found");
    segue.stop().await;
}

/// Where gateways are reached, and what their routes lead to (runtime, 8 and 9.3).
#[tokio::test]
async fn gateways_tell_their_host_and_their_instances() {
    let segue = Running::with(&[("gateway_driver.host", json!("10.0.0.9"))]).await;
    assert_eq!(segue.put("/api/v1/deployments/shop", BLUEPRINT).await.status, 202);
    let edge = "{name: edge, port: 9081, routes: {'[127.0.0.1:1]': {}}}";
    assert_eq!(segue.post("/api/v1/gateways", edge).await.status, 201);
    for gateway in ["edge", "shop/9080", "shop/web/http"] {
        let path = format!("/api/v1/gateways/{gateway}");
        let deployed = |answer: &Reply| answer.status == 200 && answer.json()["deployed"] == true;
        let read = segue.wait(&path, deployed).await.json();
        assert_eq!(read["service"]["host"], "10.0.0.9", "{gateway}");
    }
    let service = segue.get("/api/v1/deployments/shop").await.json();
    let instances = service["clusters"]["web"]["services"][0]["instances"].clone();
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let gateway = segue.get("/api/v1/gateways/shop/web/http").await.json();
    let targets = &gateway["routes"]["shop/web/web:1/http"]["targets"];
    assert_eq!((names(targets), names(targets).len()), (names(&instances), 2), "{gateway}");
    segue.stop().await;
}
