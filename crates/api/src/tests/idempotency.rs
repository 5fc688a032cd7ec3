//! Writes with an `Idempotency-Key`.

use super::Running;
use super::client::Reply;
use serde_json::{Value, json};

async fn send(segue: &Running, method: &str, path: &str, key: &str, body: &str) -> Reply {
    segue.client.send(method, path, &[("Idempotency-Key", key)], body).await
}

fn parts(reply: &Reply) -> (u16, Option<&String>, &str) {
    (reply.status, reply.headers.get("etag"), &reply.body)
}

#[tokio::test]
async fn a_repeated_event_is_answered_as_the_first_and_stored_once() {
    let segue = Running::start().await;
    let event = "{tags: [a], value: 1}";
    let first = send(&segue, "POST", "/api/v1/events", "k-1", event).await;
    assert_eq!(first.status, 201);
    let again = send(&segue, "POST", "/api/v1/events", "k-1", event).await;
    assert_eq!(parts(&again), parts(&first));
    let other = send(&segue, "POST", "/api/v1/events", "k-2", event).await;
    assert_ne!(other.json()["id"], first.json()["id"]);
    assert_eq!(segue.get("/api/v1/events?tag=a").await.headers["x-total-count"], "2");
    let taken = send(&segue, "POST", "/api/v1/events", "k-1", "{tags: [a], value: 2}").await;
    assert_eq!(taken.problem(), (422, "idempotency-key-reused".to_owned()));
    let elsewhere = send(&segue, "POST", "/api/v1/events?x=y", "k-1", event).await;
    assert_eq!(elsewhere.status, 422);
    for key in ["", &"k".repeat(256)] {
        let refused = send(&segue, "POST", "/api/v1/events", key, event).await;
        assert_eq!(refused.problem(), (400, "invalid-parameter".to_owned()), "{key:?}");
    }
    let directory = segue.stop().await;
    let segue = Running::start_with(directory, vec![]).await;
    let late = send(&segue, "POST", "/api/v1/events", "k-1", event).await;
    assert_eq!(parts(&late), parts(&first), "also after a restart");
    assert_eq!(segue.get("/api/v1/events?tag=a").await.headers["x-total-count"], "2");
    segue.stop().await;
}

#[tokio::test]
async fn repeated_writes_of_artifacts_are_answered_as_the_first() {
    let segue = Running::start().await;
    let breed = |image: &str| format!("{{name: 'web:1', deployable: {image}}}");
    let created = send(&segue, "POST", "/api/v1/breeds", "create", &breed("a")).await;
    assert_eq!(created.status, 201, "{created:?}");
    let updated = segue.put("/api/v1/breeds/web:1", &breed("b")).await;
    assert_eq!(updated.status, 200);
    let again = send(&segue, "POST", "/api/v1/breeds", "create", &breed("a")).await;
    assert_eq!(parts(&again), parts(&created), "with what it was then");
    let now = segue.get("/api/v1/breeds/web:1").await.json();
    assert_eq!(now["deployable"]["definition"], "b", "and nothing happened");

    // A delete that removed nothing removes nothing later either.
    let gone = send(&segue, "DELETE", "/api/v1/breeds/web:2", "delete", "").await;
    segue.post("/api/v1/breeds", "{name: 'web:2', deployable: a}").await;
    let again = send(&segue, "DELETE", "/api/v1/breeds/web:2", "delete", "").await;
    assert_eq!((gone.status, again.status), (204, 204));
    assert_eq!(segue.get("/api/v1/breeds/web:2").await.status, 200);

    // Answers that are no documents are kept, too.
    let compose = "services: {web: {image: acme/web}}";
    let path = "/api/v1/docker-compose?name=composed";
    let made = send(&segue, "POST", path, "compose", compose).await;
    let again = send(&segue, "POST", path, "compose", compose).await;
    assert!(made.status == 201 && made.body.contains("acme/web"), "{made:?}");
    assert_eq!(parts(&again), parts(&made));
    assert_eq!(again.headers["content-type"], made.headers["content-type"]);

    // What was refused is decided anew.
    let refused = send(&segue, "PUT", "/api/v1/breeds/web:3", "put", "{deployable: a}").await;
    assert_eq!(refused.status, 404);
    segue.post("/api/v1/breeds", "{name: 'web:3', deployable: b}").await;
    assert_eq!(
        send(&segue, "PUT", "/api/v1/breeds/web:3", "put", "{deployable: a}").await.status,
        200
    );

    // Only what is stored is kept.
    let validated = "/api/v1/scales?validate_only=true";
    let scale = "{name: small, cpu: 1, memory: 64MB, instances: 1}";
    assert_eq!(send(&segue, "POST", validated, "scale", scale).await.status, 201);
    assert_eq!(send(&segue, "POST", "/api/v1/scales", "scale", scale).await.status, 201);
    assert_eq!(segue.get("/api/v1/scales/small").await.status, 200);
    segue.stop().await;
}

#[tokio::test]
async fn a_deployment_is_posted_once() {
    let segue = Running::start().await;
    let blueprint =
        "{name: shop, clusters: {web: {services: [{breed: {name: 'web:1', deployable: a}}]}}}";
    let first = send(&segue, "POST", "/api/v1/deployments", "deploy", blueprint).await;
    assert_eq!(first.status, 202, "{first:?}");
    let again = send(&segue, "POST", "/api/v1/deployments", "deploy", blueprint).await;
    assert_eq!(parts(&again), parts(&first), "with the same generated name");
    let name = first.json()["name"].as_str().unwrap().to_owned();
    let scale = format!("/api/v1/deployments/{name}/clusters/web/services/web:1/scale");
    let body = "{cpu: 1, memory: 64MB, instances: 2}";
    let scaled = send(&segue, "PUT", &scale, "scale", body).await;
    assert_eq!(parts(&send(&segue, "PUT", &scale, "scale", body).await), parts(&scaled));
    let documents =
        "{kind: breed, name: x, deployable: a}\n---\n{kind: breed, name: y, deployable: a}";
    let several = send(&segue, "POST", "/api/v1", "several", documents).await;
    assert_eq!(several.status, 202);
    assert_eq!(
        parts(&send(&segue, "POST", "/api/v1", "several", documents).await),
        parts(&several)
    );
    segue.stop().await;
}

/// Sixteen at once with one key: one is carried out, all get its answer.
#[tokio::test]
async fn requests_at_once_with_one_key_are_one() {
    let segue = Running::start().await;
    let sent = (0..16).map(|_| send(&segue, "POST", "/api/v1/events", "at-once", "{tags: [once]}"));
    let replies = futures::future::join_all(sent).await;
    let ids: Vec<Value> = replies.iter().map(|reply| reply.json()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let found = segue.get("/api/v1/events?tag=once").await.json();
    assert_eq!(json!([found[0]["id"]]), json!([ids[0]]));
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    segue.stop().await;
}
