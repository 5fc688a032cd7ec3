//! Streams of events: live, resumed, many at once, and readers that are too slow.

use super::Running;
use crate::config::Setting;
use serde_json::json;
use std::time::{Duration, Instant};

/// How many subscribers a normal run has; `cargo xtask bench events` has a thousand.
const SUBSCRIBERS: usize = 100;
/// No wait takes as long as this.
const LIMIT: Duration = Duration::from_secs(30);

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

/// Shows: D24
#[tokio::test]
async fn a_body_filters_a_stream_and_a_position_beyond_the_end_is_live() {
    let segue = Running::start().await;
    let path = "/api/v1/events/stream?from=999999999&tag=ignored";
    let body = "{tags: [a, b], type: mine, timestamp: {lt: '2000-01-01T00:00:00Z'}}";
    let mut live = segue.client.open("GET", path, &[], body).await;
    for event in
        ["{tags: a, type: mine}", "{tags: [a, b]}", "{tags: [b, a], type: mine, value: hit}"]
    {
        segue.post("/api/v1/events", event).await;
    }
    let data = live.field("data: ").await.expect("the stream is live");
    assert!(data.contains("\"value\":\"hit\""), "{data}");
    let refused = segue.client.send("GET", "/api/v1/events/stream", &[], "{tag: a}").await;
    assert_eq!(refused.problem(), (400, "unexpected-element".to_owned()));
    segue.stop().await;
}

/// Half of them from the start, half live: each gets every event once, in order.
#[tokio::test]
async fn many_subscribers_get_every_event_once() {
    let segue = Running::start().await;
    let mut streams = Vec::new();
    for number in 0..SUBSCRIBERS {
        let from = if number % 2 == 0 { "&from=0" } else { "" };
        let path = format!("/api/v1/events/stream?tag=many{from}");
        streams.push(segue.client.open("GET", &path, &[], "").await);
    }
    for value in 0..50 {
        segue.post("/api/v1/events", &format!("{{tags: many, value: {value}}}")).await;
    }
    for stream in &mut streams {
        for value in 0..50 {
            let data = stream.field("data: ").await.expect("a stream goes on");
            assert!(data.contains(&format!("\"value\":{value},")), "{data}");
        }
    }
    segue.stop().await;
}

/// The service keeps nothing for a client that does not read: it is disconnected, and goes on where it was.
#[tokio::test]
async fn a_slow_reader_is_disconnected_and_resumes() {
    let settings = vec![
        Setting::flag("api.sse.write_timeout", json!("3 s")),
        Setting::flag("api.sse.streams_max", json!(1)),
        // That a client of a silent stream has gone is noticed when a comment is sent.
        Setting::flag("api.sse.keep_alive", json!("100 ms")),
    ];
    let segue = Running::start_with(tempfile::tempdir().unwrap(), settings).await;
    let path = "/api/v1/events/stream?tag=large&from=0";
    let mut slow = segue.client.open("GET", path, &[], "").await;
    let large = "x".repeat(1 << 20);
    let mut posted = Vec::new();
    for number in 0..24 {
        let event = json!({"tags": ["large"], "value": format!("{number} {large}")});
        let event = segue.post("/api/v1/events", &event.to_string()).await.json();
        posted.push(event["id"].as_str().unwrap().to_owned());
    }
    // Its place is free once it is disconnected.
    let started = Instant::now();
    let other = loop {
        let mut other = segue.client.open("GET", "/api/v1/events/stream?tag=nosuch", &[], "").await;
        if other.headers["status"] == "200" {
            break other;
        }
        assert!(started.elapsed() < LIMIT, "{:?}", other.headers);
        other.line().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mut seen = Vec::new();
    while let Some((id, true)) = slow.whole_event().await {
        seen.push(id);
    }
    assert!(seen.len() < posted.len() && posted.starts_with(&seen), "{seen:?}");
    other.close();
    let last = seen.last().cloned().unwrap_or_else(|| "0".to_owned());
    let mut resumed = loop {
        let resumed = segue.client.open("GET", path, &[("Last-Event-ID", &last)], "").await;
        if resumed.headers["status"] == "200" {
            break resumed;
        }
        assert!(started.elapsed() < LIMIT, "{:?}", resumed.headers);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    while seen.len() < posted.len() {
        let (id, is_whole) = resumed.whole_event().await.expect("the stream goes on");
        assert!(is_whole);
        seen.push(id);
    }
    assert_eq!(seen, posted, "nothing is missing, nothing twice");
    drop(resumed);
    segue.stop().await;
}
