//! Revisions: every write tells one, and may presume one (wire, section 5).

use super::Running;
use super::client::Client;
use serde_json::{Value, json};

/// Documents of all kinds that are stored as they are sent: where, one form, another one.
const STATICS: [(&str, &str, &str); 4] = [
    ("breeds/b", "{name: b, deployable: one}", "{name: b, deployable: two}"),
    (
        "scales/s",
        "{name: s, cpu: 1, memory: 1GB, instances: 1}",
        "{name: s, cpu: 2, memory: 1GB, instances: 1}",
    ),
    (
        "blueprints/p",
        "{name: p, clusters: {c: {services: [{breed: {name: x, deployable: y}}]}}}",
        "{name: p, clusters: {d: {services: [{breed: {name: x, deployable: y}}]}}}",
    ),
    (
        "gateways/g/1",
        "{name: g/1, port: 9050, routes: {'[127.0.0.1:1]': {}}}",
        "{name: g/1, port: 9051, routes: {'[127.0.0.1:1]': {}}}",
    ),
];

#[tokio::test]
async fn a_write_may_presume_a_revision() {
    let mut segue = Running::start().await;
    for (place, one, two) in STATICS {
        let path = format!("/api/v1/{place}");
        let collection = format!("/api/v1/{}", place.split('/').next().unwrap());
        let created = segue.post(&collection, one).await;
        assert_eq!(created.status, 201, "{created:?}");
        let first = created.headers["etag"].clone();
        assert_eq!(segue.get(&path).await.headers["etag"], first);
        // What changes nothing leaves the revision; what is only validated tells none.
        assert_eq!(segue.put(&path, one).await.headers["etag"], first);
        let validated = segue.put(&format!("{path}?validate_only=true"), two).await;
        assert_eq!((validated.status, validated.headers.get("etag")), (200, None), "{validated:?}");
        assert_eq!(segue.get(&path).await.headers["etag"], first);

        let write = async |client: &Client, method: &str, body: &str, tag: &str| {
            client.send(method, &path, &[("If-Match", tag)], body).await.status
        };
        let client = &segue.client;
        assert_eq!(write(client, "PUT", two, "\"0\"").await, 412);
        assert_eq!(write(client, "DELETE", "", "\"0\"").await, 412);
        assert_eq!(write(client, "PUT", two, "first").await, 400);
        assert_eq!(write(client, "PUT", two, &format!("\"x\", {first}")).await, 200);
        assert_eq!(write(client, "PUT", one, &first).await, 412);
        let second = segue.get(&path).await;
        assert_ne!(second.headers["etag"], first);
        let posted = segue.client.send("POST", &collection, &[("If-Match", &first)], one).await;
        assert_eq!(posted.problem(), (412, "precondition-failed".to_owned()));

        // The revision outlives the service.
        let directory = segue.stop().await;
        segue = Running::start_with(directory, vec![]).await;
        let after = segue.get(&path).await;
        assert_eq!(
            (&after.headers["etag"], after.json()),
            (&second.headers["etag"], second.json())
        );
        let client = &segue.client;
        assert_eq!(write(client, "PUT", one, "*").await, 200);
        let tag = segue.get(&path).await.headers["etag"].clone();
        assert_eq!(write(&segue.client, "DELETE", "", &tag).await, 204);
        assert_eq!(write(&segue.client, "PUT", one, "*").await, 412);
    }
    segue.stop().await;
}

#[tokio::test]
async fn several_documents_are_written_when_all_are_as_presumed() {
    let segue = Running::start().await;
    let (one, two) =
        ("{name: a, deployable: x}", "[{name: a, deployable: y}, {name: b, deployable: y}]");
    let tag = segue.post("/api/v1/breeds", one).await.headers["etag"].clone();
    let refused = segue
        .client
        .send(
            "PUT",
            "/api/v1",
            &[("If-Match", &tag)],
            "[{kind: breed, name: a, deployable: y}, {kind: breed, name: b, deployable: y}]",
        )
        .await;
    assert_eq!(refused.problem(), (412, "precondition-failed".to_owned()));
    let refused = segue.client.send("POST", "/api/v1/breeds", &[("If-Match", &tag)], two).await;
    assert_eq!(refused.status, 412);
    assert_eq!(segue.get("/api/v1/breeds/a").await.headers["etag"], tag);
    segue.stop().await;
}

#[tokio::test]
async fn deployments_have_revisions_of_what_users_want() {
    let segue = Running::start().await;
    let blueprint = "{name: shop, gateways: {9080: web/http}, clusters: {web: {services: [{breed: {name: 'web:1', deployable: a, ports: {http: 8000/http}}, scale: {cpu: 1, memory: 1GB, instances: 1}}]}}}";
    let path = "/api/v1/deployments/shop";
    let created = segue.put(path, blueprint).await.headers["etag"].clone();
    let done = segue
        .wait(path, |answer| {
            answer.json()["clusters"]["web"]["services"][0]["status"]["phase"]["name"] == "Done"
        })
        .await;
    assert_eq!(
        done.headers["etag"], created,
        "status and instances are no change of what is wanted"
    );
    // The port that is given to the internal gateway is no change, either.
    let gateway = segue
        .wait("/api/v1/gateways/shop/web/http", |answer| {
            answer.status == 200 && answer.json()["deployed"] == json!(true)
        })
        .await;
    assert!(gateway.headers.contains_key("etag"));
    assert_eq!(segue.get(path).await.headers["etag"], created);

    let scale = format!("{path}/clusters/web/services/web:1/scale");
    assert_eq!(segue.get(&scale).await.headers["etag"], created);
    let two = "{cpu: 1, memory: 1GB, instances: 2}";
    assert_eq!(segue.client.send("PUT", &scale, &[("If-Match", "\"0\"")], two).await.status, 412);
    let scaled = segue.client.send("PUT", &scale, &[("If-Match", &created)], two).await;
    assert_eq!(scaled.status, 202);
    assert_ne!(scaled.headers["etag"], created);
    assert_eq!(segue.get(path).await.headers["etag"], scaled.headers["etag"]);
    let outdated = [("If-Match", &created[..])];
    assert_eq!(segue.client.send("PUT", path, &outdated, blueprint).await.status, 412);
    assert_eq!(segue.client.send("DELETE", path, &outdated, blueprint).await.status, 412);
    // Also when nothing is to be taken away.
    assert_eq!(segue.client.send("DELETE", path, &outdated, "").await.status, 412);
    let current = [("If-Match", &scaled.headers["etag"][..])];
    assert_eq!(segue.client.send("DELETE", path, &current, " ").await.status, 202);
    let validated = segue.delete(&format!("{path}?validate_only=perhaps"), "").await;
    assert_eq!(validated.problem(), (400, "invalid-parameter".to_owned()));
    assert_eq!(segue.get(path).await.headers["etag"], scaled.headers["etag"]);
    let removed = segue
        .client
        .send("DELETE", path, &[("If-Match", &scaled.headers["etag"])], blueprint)
        .await;
    assert_eq!(removed.status, 202);
    assert_ne!(removed.headers["etag"], scaled.headers["etag"]);
    segue.stop().await;
}

/// Many clients count in one artifact; each presumes what it read, and tries again when it was too late.
#[tokio::test]
async fn two_writers_at_once_lose_no_update() {
    const WRITERS: usize = 16;
    const UPDATES: usize = 8;
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", "{name: c, deployable: x, metadata: {count: 0}}").await;
    let address = segue.client.address();
    let writer = move || async move {
        let client = Client::new(address);
        let mut updated = 0;
        while updated < UPDATES {
            let read = client.send("GET", "/api/v1/breeds/c", &[], "").await;
            let mut breed = read.json();
            breed["metadata"]["count"] = json!(breed["metadata"]["count"].as_u64().unwrap() + 1);
            let presumed = [("If-Match", &read.headers["etag"][..])];
            let written =
                client.send("PUT", "/api/v1/breeds/c", &presumed, &breed.to_string()).await;
            match written.status {
                200 => updated += 1,
                412 => {}
                other => panic!("{other}: {written:?}"),
            }
        }
    };
    let writers: Vec<_> = (0..WRITERS).map(|_| tokio::spawn(writer())).collect();
    for writer in writers {
        writer.await.unwrap();
    }
    let counted = segue.get("/api/v1/breeds/c").await.json()["metadata"]["count"].clone();
    assert_eq!(counted, Value::from(WRITERS * UPDATES));
    segue.stop().await;
}
