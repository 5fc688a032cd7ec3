//! Events over HTTP: posting, querying, streaming.

use super::Running;
use serde_json::json;

/// Shows: D18, I2.3-tags, I2.3-combined, I2.3-type, I2.3-complete, I4.5-create, I4.5-list, I4.5-minimum, I6.2-event
/// Shows: I2.3-tags, I2.3-value, I4.5-filter-tag, I4.5-filter-type, I4.5-filter-body, I6.1-third-parties, I6.2-custom
/// Shows: I6.3-1, I6.3-3, I6.3-4, I6.5-tags, D21
#[tokio::test]
async fn events_are_posted_and_queried() {
    let segue = Running::start().await;
    let posted =
        segue.post("/api/v1/events", "{tags: ['a:b', c], value: {n: 1}, type: mine}").await;
    assert_eq!(posted.status, 201, "{posted:?}");
    let event = posted.json();
    assert_eq!(event["tags"], json!(["a:b", "a", "c"]));
    assert_eq!((&event["value"], &event["type"]), (&json!({"n": 1}), &json!("mine")));
    assert!(
        event["timestamp"].as_str().is_some_and(|text| text.len() == 24 && text.ends_with('Z')),
        "{event}"
    );
    segue.post("/api/v1/events", "{tags: a}").await;

    let all = segue.get("/api/v1/events?tag=a").await;
    assert_eq!(all.headers["x-total-count"], "2");
    assert_eq!((&all.json()[0]["value"], &all.json()[0]["type"]), (&json!(""), &json!("event")));
    assert_eq!(segue.get("/api/v1/events?tag=a&tags=c").await.json(), json!([event]));
    assert_eq!(segue.get("/api/v1/events?type=mine&timestamp=x").await.json(), json!([event]));
    let body = "{tags: ['a:b'], timestamp: {lte: now}}";
    assert_eq!(
        segue.client.send("GET", "/api/v1/events?tag=nosuch", &[], body).await.json(),
        json!([event])
    );

    let check = async |body: &str, kind: &str| {
        assert_eq!(
            segue.post("/api/v1/events", body).await.problem(),
            (400, kind.to_owned()),
            "{body}"
        );
    };
    check("{value: 1}", "missing-path-value").await;
    check("{tags: []}", "no-tag-event").await;
    check("{tags: [a], type: 'a b'}", "event-type").await;
    check("{tags: [a], timestamp: soon}", "event-timestamp").await;
    check("", "unexpected-type").await;
    segue.stop().await;
}

/// Shows: D1, I6.4-tags, I6.4-value, I6.4-search
/// Shows: I6.4-archived, I6.2-archive
#[tokio::test]
async fn the_archive_holds_what_was_sent() {
    let segue = Running::start().await;
    let text = "{name: web:1, deployable: a}";
    segue.post("/api/v1/breeds", text).await;
    segue.delete("/api/v1/breeds/web:1", "").await;
    let created = segue.get("/api/v1/events?tag=breeds:web:1&tag=archiving:create").await.json();
    assert_eq!((&created[0]["value"], &created[0]["type"]), (&json!(text), &json!("archive")));
    let deleted = segue.get("/api/v1/events?tag=archive:delete").await.json();
    assert_eq!(deleted[0]["value"]["name"], "web:1");
    segue.stop().await;
}

/// Shows: D17, D21, I2.3-timestamp
/// Shows: D19, D24, I4.5-stream, I4.5-stream-filter
#[tokio::test]
async fn the_newest_come_first_whatever_the_order_of_posting() {
    let segue = Running::start().await;
    let posted = [
        (1, "2030-01-10T15:33:49.766Z"),
        (2, "2020-01-01T00:00:00Z"),
        (3, "2030-01-10T17:33:49.766+02:00"),
        (4, "2025-06-01T12:00:00.5Z"),
    ];
    for (value, timestamp) in posted {
        let event = format!("{{tags: [order], value: {value}, timestamp: '{timestamp}'}}");
        assert_eq!(segue.post("/api/v1/events", &event).await.status, 201);
    }
    segue.post("/api/v1/events", "{tags: order, value: 5}").await;
    let check = async |body: &str, path: &str, total: &str, expected: serde_json::Value| {
        let path = format!("/api/v1/events?tag=order{path}");
        let found = segue.client.send("GET", &path, &[], body).await;
        let values: Vec<_> =
            found.json().as_array().unwrap().iter().map(|e| e["value"].clone()).collect();
        assert_eq!(
            (json!(values), &found.headers["x-total-count"][..]),
            (expected, total),
            "{body} {path}"
        );
    };
    check("", "", "5", json!([3, 1, 5, 4, 2])).await;
    check("", "&per_page=2&page=2", "5", json!([5, 4])).await;
    check("", "&per_page=2&page=9", "5", json!([])).await;
    check("{tags: order, timestamp: {gt: now}}", "", "2", json!([3, 1])).await;
    check("{tags: order, timestamp: {lt: now+1d, gte: now-1d/d}}", "", "1", json!([5])).await;
    check("{timestamp: {lte: '2030-01-10T15:33:49.766Z', gte: '2025-06-01T12:00:00.5Z||'}, tags: [order]}", "", "4", json!([3, 1, 5, 4])).await;
    check("{tags: order, timestamp: {gt: '2019-12-31T00:00:00Z||+1M/M', lt: '2025-06-01T12:00:00.5Z'}}", "", "0", json!([])).await;
    check("{tags: order, timestamp: {gte: '2019-12-31T00:00:00Z||+1d', lt: '2025-06-01T12:00:00.5Z'}}", "", "1", json!([2])).await;
    // The same after the log was read anew.
    let directory = segue.stop().await;
    let segue = Running::start_with(directory, vec![]).await;
    let values = segue.get("/api/v1/events?tags=order&timestamp=1&unknown=x").await.json();
    assert_eq!(values[0]["timestamp"], "2030-01-10T15:33:49.766Z");
    assert_eq!(values[4]["value"], 2);
    segue.stop().await;
}

/// Shows: D22, I6.5-aggregation
#[tokio::test]
async fn numbers_are_aggregated() {
    let segue = Running::start().await;
    for (value, kind) in [
        ("4", "metrics"),
        ("'2.5'", "metrics"),
        ("none", "metrics"),
        ("{x: 7, y: '3'}", "mine"),
        ("{x: a}", "mine"),
    ] {
        let event =
            format!("{{tags: ['gateways:front', 'metrics:rate'], value: {value}, type: {kind}}}");
        assert_eq!(segue.post("/api/v1/events", &event).await.status, 201);
    }
    let check = async |aggregator: &str, expected: serde_json::Value| {
        let body = format!(
            "{{tags: ['gateways:front', 'metrics:rate'], timestamp: {{gte: now-5m}}, aggregator: {aggregator}}}"
        );
        let answer = segue.client.send("GET", "/api/v1/events", &[], &body).await;
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"value": expected})),
            "{aggregator}"
        );
        assert!(
            !answer.headers.contains_key("link") && !answer.headers.contains_key("x-total-count")
        );
    };
    check("{type: count}", json!(5)).await;
    check("{type: average}", json!(3.25)).await;
    check("{type: SUM, field: metrics}", json!(6.5)).await;
    check("{type: max, field: x}", json!(7)).await;
    check("{type: min, field: y}", json!(3)).await;
    check("{type: average, field: mine}", json!(null)).await;
    check("{type: sum, field: nosuch}", json!(0)).await;
    let none = "{tags: [nosuch], aggregator: {type: average}}";
    assert_eq!(
        segue.client.send("GET", "/api/v1/events", &[], none).await.json(),
        json!({"value": null})
    );
    let none = "{tags: [nosuch], aggregator: {type: count}}";
    assert_eq!(
        segue.client.send("GET", "/api/v1/events", &[], none).await.json(),
        json!({"value": 0})
    );
    let refused =
        segue.client.send("GET", "/api/v1/events", &[], "{aggregator: {type: median}}").await;
    assert_eq!(refused.problem(), (400, "unsupported-aggregator".to_owned()));
    segue.stop().await;
}

/// Shows: D20, I6.1-third-parties
#[tokio::test]
async fn forged_events_move_no_artifact() {
    let segue = Running::start().await;
    segue.post("/api/v1/breeds", "{name: 'web:1', deployable: a}").await;
    segue.post("/api/v1/scales", "{name: small, cpu: 1, memory: 64MB, instances: 1}").await;
    let blueprint =
        "{name: shop, clusters: {web: {services: [{breed: {ref: 'web:1'}, scale: {ref: small}}]}}}";
    let mut deployed = segue
        .client
        .open("GET", "/api/v1/events/stream?tag=synchronisation:deployed&from=0", &[], "")
        .await;
    assert_eq!(segue.put("/api/v1/deployments/shop", blueprint).await.status, 202);
    deployed.field("data: ").await.expect("the deployment runs");
    let everything = async |segue: &Running| {
        let mut all = Vec::new();
        for collection in ["breeds", "scales", "blueprints", "gateways", "deployments"] {
            all.push(segue.get(&format!("/api/v1/{collection}")).await.body);
        }
        all.push(segue.get("/api/v1/breeds/web:1").await.headers["etag"].clone());
        all
    };
    let before = everything(&segue).await;
    let forged = [
        "{type: archive, tags: ['breeds:web:1', 'archiving:delete', 'archive:delete'], value: {name: 'web:1'}}",
        "{type: archive, tags: ['breeds:web:2', 'archiving:create', 'archive:create'], value: 'name: web:2\ndeployable: b'}",
        "{type: archive, tags: ['deployments:shop', 'archiving:delete', 'archive:delete'], value: {fact: {deployment: {name: shop, fact: deleted}}}}",
        "{type: synchronisation, tags: ['deployments:shop', 'clusters:web', 'services:web:1', 'synchronisation:undeployed', 'synchronization:undeployed']}",
        "{type: deployment, tags: ['deployments:shop', 'clusters:web', 'services:web:1'], value: {instances: []}}",
        "{type: gateway, tags: ['gateways:shop/web/http', undeployed], value: {deployed: false}}",
        "{type: event, tags: [failed, info, 'deployments:shop', 'container_driver:ERROR'], value: {notification: x}}",
    ];
    for event in forged {
        let posted = segue.post("/api/v1/events", event).await;
        assert_eq!(posted.status, 201, "{event}: {posted:?}");
    }
    // Whatever their type, they are kept, found and streamed.
    assert_eq!(
        segue.get("/api/v1/events?tag=breeds:web:2&type=archive").await.headers["x-total-count"],
        "1"
    );
    assert_eq!(
        segue.get("/api/v1/events?tag=synchronisation:undeployed").await.headers["x-total-count"],
        "1"
    );
    segue.get("/api/v1/sync").await;
    assert_eq!(everything(&segue).await, before);
    assert_eq!(segue.get("/api/v1/breeds/web:2").await.status, 404);
    let directory = segue.stop().await;
    let segue = Running::start_with(directory, vec![]).await;
    let mut after = everything(&segue).await;
    let mut before = before;
    // What runs in memory ended with the service; what was wanted is still wanted.
    for list in [&mut after[4], &mut before[4]] {
        let deployment: serde_json::Value = serde_json::from_str(list).unwrap();
        let service = &deployment[0]["clusters"]["web"]["services"][0];
        let intention = &service["status"]["intention"];
        *list = format!("{} {} {intention}", service["breed"], service["scale"]);
    }
    assert_eq!(after, before, "also when the log is folded anew");
    segue.stop().await;
}

/// Shows: D20
#[tokio::test]
async fn anyone_may_post_escalations() {
    let segue = Running::start().await;
    let event = "{tags: ['deployments:shop', 'clusters:web', 'sla:response', escalate], type: escalation, value: escalate}";
    let posted = segue.post("/api/v1/events", event).await;
    assert_eq!((posted.status, posted.json()["type"].clone()), (201, json!("escalation")));
    let found = segue.get("/api/v1/events?tag=deployments:shop&tag=sla&type=escalation").await;
    assert_eq!(found.json(), json!([posted.json()]));
    segue.stop().await;
}

/// Shows: D24
#[tokio::test]
async fn validating_an_event_stores_nothing() {
    let segue = Running::start().await;
    let validated =
        segue.post("/api/v1/events?validate_only=true", "{tags: 'a:b', value: 1}").await;
    let event = validated.json();
    assert_eq!(
        (validated.status, &event["tags"], &event["type"]),
        (201, &json!(["a:b", "a"]), &json!("event"))
    );
    assert_eq!(segue.post("/api/v1/events?validate_only=true", "{tags: []}").await.status, 400);
    assert_eq!(segue.get("/api/v1/events?tag=a").await.json(), json!([]));
    segue.stop().await;
}
