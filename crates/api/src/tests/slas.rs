//! SLAs and escalations over HTTP: stored, in blueprints, and of running clusters.

use super::Running;
use serde_json::json;

const SLA: &str = "{name: gold, type: response_time_sliding_window, threshold: {upper: 800, lower: 90}, \
    window: {interval: 120, cooldown: 300}, escalations: [pager]}";
const BLUEPRINT: &str = "
clusters:
  web:
    sla: gold
    services: {breed: {name: web:1, deployable: acme/web:1, ports: {http: 8000/http}}}
";
const PATH: &str = "/api/v1/deployments/shop/clusters/web/sla";

/// Shows: D1, D12, I4.4-sla-get, I4.4-sla-set, I4.4-sla-delete
#[tokio::test]
async fn the_sla_of_a_running_cluster_is_read_set_and_taken_away() {
    let segue = Running::start().await;
    let missing = segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    assert_eq!(missing.problem(), (400, "artifact-not-found".to_owned()));
    assert_eq!(missing.json()["errors"][0]["line"], 4, "{missing:?}");
    assert_eq!(segue.post("/api/v1/slas", SLA).await.status, 201);
    let missing = segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    assert_eq!(missing.problem(), (400, "artifact-not-found".to_owned()));
    let pager = segue.post("/api/v1/escalations", "{name: pager, type: page, to: [me]}").await;
    assert_eq!(
        pager.json(),
        json!({"name": "pager", "kind": "escalation", "metadata": {}, "type": "page", "parameters": {"to": ["me"]}})
    );
    let created = segue.put("/api/v1/deployments/shop", BLUEPRINT).await;
    assert_eq!(created.status, 202, "{created:?}");
    let inline = &created.json()["clusters"]["web"]["sla"];
    assert_eq!(inline["escalations"], json!([{"type": "page", "parameters": {"to": ["me"]}}]));

    let read = segue.get(PATH).await;
    assert_eq!((read.status, &read.json()["name"]), (200, &json!("gold")));
    assert_eq!(segue.put(PATH, &read.body).await.json(), read.json());
    let whole = segue.get("/api/v1/deployments/shop").await;
    assert_eq!(segue.put("/api/v1/deployments/shop", &whole.body).await.status, 202);
    assert_eq!(segue.get(PATH).await.headers["etag"], read.headers["etag"]);

    let wrong = "{type: escalation_only, escalations: {type: scale_cpu, target: no, minimum: 1, maximum: 2, scale_by: 1}}";
    let refused = segue.put(PATH, wrong).await;
    assert_eq!(refused.problem(), (400, "unresolved-scale-escalation-target-cluster".to_owned()));
    let set = segue.post(PATH, &wrong.replace("target: no", "target: web")).await;
    assert_eq!((set.status, &set.json()["type"]), (202, &json!("escalation_only")));
    assert_eq!((set.json().get("name"), set.json().get("kind")), (None, None));
    assert_ne!(set.headers["etag"], read.headers["etag"]);
    assert_eq!(segue.delete(&format!("{PATH}?validate_only=true"), "").await.status, 202);
    for _ in 0..2 {
        assert_eq!(segue.delete(PATH, "").await.status, 202);
        assert_eq!(segue.get(PATH).await.status, 404);
    }
    let archived = segue.get("/api/v1/events?tag=deployments:shop&tag=archive:update").await;
    assert_eq!(archived.headers["x-total-count"], "5", "{archived:?}");
    let other = PATH.replace("web", "nosuch");
    for refused in [segue.put(&other, SLA).await, segue.delete(&other, "").await] {
        assert_eq!(refused.problem(), (404, "not-found".to_owned()));
    }
    segue.stop().await;
}
