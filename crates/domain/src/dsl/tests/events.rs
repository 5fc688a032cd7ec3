//! Posted events and event queries.

use super::{node, problems};
use crate::dsl::{read_event_query, read_posted_event};
use crate::event::{Aggregator, Function};
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

/// Shows: D21
#[test]
fn queries() {
    let now = datetime!(2030-01-10 12:00 UTC);
    let read = |text: &str| read_event_query(&node(text), now);
    let query = read("{tags: [a, b], type: x, timestamp: {gte: now-10m, lt: now}}").unwrap().query;
    assert_eq!(query.tags, ["a", "b"]);
    assert_eq!(query.kind.as_deref(), Some("x"));
    let from = query.time.from.unwrap();
    assert_eq!((from.at, from.inclusive), (datetime!(2030-01-10 11:50 UTC), true));
    let to = query.time.to.unwrap();
    assert_eq!((to.at, to.inclusive), (now, false));
    assert_eq!(read("{tags: a, timestamp: {}}").unwrap().query.tags, ["a"]);
    assert_eq!(read("{}").unwrap(), crate::dsl::EventQuery::default());
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read(text)), [expected], "{text}");
    };
    refuse("timestamp: now", "unexpected-inner-element /timestamp 1:12");
    refuse("timestamp: [now]", "unexpected-inner-element /timestamp 1:12");
    refuse("timestamp: {lt: now, lte: now}", "event-query-time /timestamp/lte 1:27");
    refuse("timestamp: {gte: now, gt: now}", "event-query-time /timestamp/gte 1:18");
    refuse("timestamp: {lt: soon}", "event-timestamp /timestamp/lt 1:17");
    refuse("timestamp: {from: now}", "unexpected-element /timestamp/from 1:13");
    refuse("tag: a", "unexpected-element /tag 1:1");
    refuse("type: [a]", "unexpected-type /type 1:7");
    refuse("[a]", "unexpected-type  1:1");
}

/// Shows: D22
#[test]
fn aggregators() {
    let now = datetime!(2030-01-10 12:00 UTC);
    let read = |text: &str| read_event_query(&node(text), now);
    let check = |text: &str, function: Function, field: &str| {
        let expected = Aggregator { function, field: field.to_owned() };
        assert_eq!(read(text).unwrap().aggregator, Some(expected), "{text}");
    };
    check("aggregator: {type: average}", Function::Average, "value");
    check("aggregator: {type: MIN, field: metrics}", Function::Min, "metrics");
    check("aggregator: {type: Max}", Function::Max, "value");
    check("aggregator: {type: sum, field: 5}", Function::Sum, "5");
    check("aggregator: {type: count}", Function::Count, "value");
    assert_eq!(read("aggregator: ~").unwrap().aggregator, None);
    let refuse = |text: &str, expected: &str| {
        assert_eq!(problems(&read(text)), [expected], "{text}");
    };
    refuse("aggregator: {type: median}", "unsupported-aggregator /aggregator/type 1:20");
    refuse("aggregator: {field: x}", "missing-path-value /aggregator/type 1:1");
    refuse("aggregator: average", "unexpected-inner-element /aggregator 1:13");
    refuse("aggregator: {type: min, of: x}", "unexpected-element /aggregator/of 1:25");
    refuse("aggregator: {type: min, field: [x]}", "unexpected-type /aggregator/field 1:32");
}
