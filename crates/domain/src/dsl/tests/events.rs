//! Posted events and event queries.

use super::{node, problems};
use crate::dsl::{document, read_event_query, read_plain_event, read_posted_event};
use crate::event::{Aggregator, Function, TAGS_MAX};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
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
fn events_and_queries_have_so_many_tags_and_no_more() {
    let now = datetime!(2030-01-10 12:00 UTC);
    let tags = |count: usize| {
        let tags: Vec<String> = (0..count).map(|number| format!("group-{number}:a")).collect();
        node(&json!({ "tags": tags }).to_string())
    };
    // The groups that are added to an event do not count.
    assert_eq!(read_posted_event(&tags(TAGS_MAX)).unwrap().tags.len(), TAGS_MAX);
    assert_eq!(read_event_query(&tags(TAGS_MAX), now).unwrap().query.tags.len(), TAGS_MAX);
    let refused = read_posted_event(&tags(TAGS_MAX + 1));
    assert_eq!(problems(&refused), ["yaml-parsing /tags 1:9"]);
    let said = refused.unwrap_err().to_string();
    assert_eq!(said, "an event has at most 1000 tags, this one has 1001");
    let said = read_event_query(&tags(TAGS_MAX + 5), now).unwrap_err().to_string();
    assert_eq!(said, "a query has at most 1000 tags, this one has 1005");
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

#[test]
fn plain_events_are_read_the_short_way() {
    let check = |text: &str, is_plain: bool| {
        assert_eq!(read_plain_event(text).is_some(), is_plain, "{text}");
    };
    check(r#"{"tags":["gateways:front","metrics:rate"],"type":"metrics","value":12.5}"#, true);
    check(r#"{ "tags": ["größe"], "timestamp": "2030-01-10T15:33:49.766Z", "value": "x" }"#, true);
    check(r#"{"tags":["a"],"value":-3}"#, true);
    check(r#"{"tags":["a"]}"#, true);
    for other in [
        r#"{"tags":["a"],"value":{}}"#,
        r#"{"tags":["a"],"value":null}"#,
        r#"{"tags":["a"],"value":18446744073709551616}"#,
        r#"{"tags":["a"],"value":-0.0}"#,
        r#"{"tags":["\u0041"]}"#,
        r#"{"tags":["a"],"tags":["b"]}"#,
        r#"{"tags":["a"],"kind":"event"}"#,
        r#"{"tags":["a"],"type":null}"#,
        r#"{"tags":["a"],"type":"a b"}"#,
        r#"{"tags":["a"],"timestamp":"soon"}"#,
        r#"{"tags":[1]}"#,
        r#"{"tags":"a"}"#,
        r#"{"tags":[]}"#,
        "{\"tags\":[\"a\u{2028}b\"]}",
        "tags: [a]",
        "",
    ] {
        check(other, false);
    }
}

/// A member of an event as JSON, more often right than not.
fn member() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        4 => "[a-z:/]{0,8}".prop_map(|text| json!(text).to_string()),
        1 => ".{0,6}".prop_map(|text| json!(text).to_string()),
        1 => "\\PC{0,6}".prop_map(|text| format!("\"{text}\"")),
    ];
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| json!(number).to_string()),
        (any::<i64>(), any::<u8>(), -400..400)
            .prop_map(|(whole, part, exponent)| format!("{whole}.{part}e{exponent}")),
        select(vec![
            "-0",
            "0.0",
            "1E5",
            "1.0",
            "9007199254740993",
            "1e400",
            "1e-400",
            "0x1F",
            "01",
            "1_0"
        ])
        .prop_map(str::to_owned),
    ];
    let tags = vec(text.clone(), 0..4).prop_map(|tags| format!("[{}]", tags.join(",")));
    let other =
        select(vec!["null", "true", "false", "yes", "{}", "[]", "~"]).prop_map(str::to_owned);
    let value = prop_oneof![6 => text.clone(), 6 => number, 1 => tags.clone(), 1 => other];
    let name = |name: &'static str| move |value: String| format!("\"{name}\":{value}");
    prop_oneof![
        6 => tags.prop_map(name("tags")),
        4 => value.clone().prop_map(name("value")),
        2 => "[a-z0-9_-]{0,6}".prop_map(|text| format!("\"type\": \"{text}\"")),
        1 => text.prop_map(name("type")),
        2 => select(vec!["\"2030-01-10T15:33:49.766Z\"", "\"2030-01-10\"", "\"now\"", "1"]).prop_map(str::to_owned).prop_map(name("timestamp")),
        1 => value.prop_map(name("more")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    /// What is read the short way is what the reader of documents reads.
    #[test]
    fn both_ways_lead_to_the_same_event(
        mut members in vec(member(), 0..4),
        tag in "[a-z]{1,3}",
        (before, between) in (select(vec!["", " ", "\n"]), select(vec![",", ", ", ",\n", ",,"])),
    ) {
        members.push(format!("\"tags\":[\"{tag}\"]"));
        members.dedup_by(|left, right| left.starts_with("\"tags") && right.starts_with("\"tags"));
        let text = format!("{before}{{{}}}", members.join(between));
        if let Some(event) = read_plain_event(&text) {
            let read = document(&text).and_then(|node| read_posted_event(&node));
            prop_assert_eq!(read, Ok(event), "{}", text);
        }
    }
}
