//! Posted events and event queries.

use super::{node, problems};
use crate::dsl::{read_event_query, read_posted_event};
use serde_json::{Value as Json, json};
use time::macros::datetime;

#[test]
fn posted_events() {
    let event = read_posted_event(&node("tags: [a:b, c, a:b]\nvalue: {x: [1, 2.5, ~]}\ntype: my-type_1\ntimestamp: 2030-01-10T15:33:49.766Z")).unwrap();
    assert_eq!(event.tags, ["a:b", "c"]);
    assert_eq!(event.value, json!({"x": [1, 2.5, null]}));
    assert_eq!(event.kind, "my-type_1");
    assert_eq!(event.timestamp, Some(datetime!(2030-01-10 15:33:49.766 UTC)));
    let check = |value: &str, expected: Json| {
        let event = read_posted_event(&node(&format!("tags: a\n{value}"))).unwrap();
        assert_eq!(
            (event.value, event.kind.as_str(), event.timestamp),
            (expected, "event", None),
            "{value}"
        );
    };
    check("", json!(""));
    check("value: ~", json!(""));
    check("value: 1", json!(1));
    check("value: text", json!("text"));
    check("value: false", json!(false));
}

#[test]
fn refused_events() {
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read_posted_event(&node(text))), [expected], "{text}");
    };
    refuse("value: 1", "missing-path-value /tags 1:1");
    refuse("tags: []", "no-tag-event /tags 1:7");
    refuse("tags: {}", "unexpected-type /tags 1:7");
    refuse("tags: [[a]]", "unexpected-type /tags/0 1:8");
    refuse("tags: a\ntype: a b", "event-type /type 2:7");
    refuse("tags: a\ntimestamp: now", "event-timestamp /timestamp 2:12");
    refuse("tags: a\ntimestamp: 2030-01-10", "event-timestamp /timestamp 2:12");
    refuse("tags: a\ntag: b", "unexpected-element /tag 2:1");
    refuse("a", "unexpected-type  1:1");
}

#[test]
fn queries() {
    let now = datetime!(2030-01-10 12:00 UTC);
    let query =
        read_event_query(&node("{tags: [a, b], type: x, timestamp: {gte: now-10m, lt: now}}"), now)
            .unwrap();
    assert_eq!(query.tags, ["a", "b"]);
    assert_eq!(query.kind.as_deref(), Some("x"));
    let from = query.time.from.unwrap();
    assert_eq!((from.at, from.inclusive), (datetime!(2030-01-10 11:50 UTC), true));
    let to = query.time.to.unwrap();
    assert_eq!((to.at, to.inclusive), (now, false));
    assert_eq!(read_event_query(&node("{}"), now).unwrap(), crate::event::Query::default());
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read_event_query(&node(text), now)), [expected], "{text}");
    };
    refuse("timestamp: now", "unexpected-inner-element /timestamp 1:12");
    refuse("timestamp: {lt: now, lte: now}", "event-query-time /timestamp/lte 1:27");
    refuse("timestamp: {lt: soon}", "event-timestamp /timestamp/lt 1:17");
    refuse("timestamp: {from: now}", "unexpected-element /timestamp/from 1:13");
    refuse("aggregator: {type: count}", "not-supported /aggregator 1:13");
    refuse("tag: a", "unexpected-element /tag 1:1");
}
