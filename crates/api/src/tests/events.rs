//! Events over HTTP: posting, querying, streaming.

use super::Running;
use crate::config::Setting;
use serde_json::json;

/// Shows: D18, D21, I4.5-list, I4.5-create, I4.5-filter-tag, I4.5-filter-type, I4.5-filter-body, I4.5-minimum, I2.3-complete
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

/// Shows: D19, D24, I4.5-stream, I4.5-stream-filter
#[tokio::test]
async fn a_stream_goes_on_where_it_was_left() {
    let segue = Running::start().await;
    let mut live = segue
        .client
        .open("GET", "/api/v1/events/stream?tag=a", &[("Accept-Encoding", "gzip")], "")
        .await;
    assert_eq!(live.headers["content-type"], "text/event-stream");
    assert!(!live.headers.contains_key("content-encoding"), "{:?}", live.headers);
    let first = segue.post("/api/v1/events", "{tags: [a], value: 1, type: mine}").await.json();
    segue.post("/api/v1/events", "{tags: [b]}").await;
    let second = segue.post("/api/v1/events", "{tags: [a], value: 2}").await.json();
    assert_eq!(live.field("id: ").await.as_deref(), first["id"].as_str());
    assert_eq!(live.field("event: ").await.as_deref(), Some("mine"));
    assert_eq!(live.field("data: ").await, Some(first.to_string()));
    assert_eq!(live.field("data: ").await, Some(second.to_string()));

    let last_seen = first["id"].as_str().unwrap();
    let path = "/api/v1/events/stream?tag=a&from=0";
    let mut resumed = segue.client.open("GET", path, &[("Last-Event-ID", last_seen)], "").await;
    assert_eq!(resumed.field("data: ").await, Some(second.to_string()));
    let mut replayed = segue.client.open("GET", path, &[], "").await;
    assert_eq!(replayed.field("data: ").await, Some(first.to_string()));
    let refused = segue.get("/api/v1/events/stream?from=x").await;
    assert_eq!(refused.problem(), (400, "invalid-parameter".to_owned()));

    // A service that stops ends its streams.
    segue.stop().await;
    assert_eq!(live.field("data: ").await, None);
}

/// Shows: D24
#[tokio::test]
async fn silent_streams_are_kept_alive_and_their_number_is_limited() {
    let settings = vec![
        Setting::flag("api.sse.keep_alive", json!("50 ms")),
        Setting::flag("api.sse.streams_max", json!(1)),
    ];
    let segue = Running::start_with(tempfile::tempdir().unwrap(), settings).await;
    let path = "/api/v1/events/stream?tag=nosuch";
    let mut silent = segue.client.open("GET", path, &[], "").await;
    assert_eq!(silent.field(":").await.as_deref(), Some(""));
    let refused = segue.get(path).await;
    assert_eq!(refused.problem(), (429, "too-many-requests".to_owned()));
    assert!(refused.headers.contains_key("retry-after"));
    segue.stop().await;
}
