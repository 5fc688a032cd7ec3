//! Queries and aggregations of a whole log, before and after it was opened again; and receipts.

use super::*;
use crate::event::{Aggregate, Aggregator, Function};
use serde_json::{Value, json};

/// Values of all kinds: numbers, texts, maps, and maps with more members than the index keeps.
fn value() -> impl Strategy<Value = Value> {
    let number = || (-40i32..40).prop_map(|n| json!(f64::from(n) / 4.0));
    let many = (-40i32..40).prop_map(|n| {
        let members = (0..20).map(|index| (format!("m{index}"), json!(n + index)));
        Value::Object(members.chain([("x".to_owned(), json!(n))]).collect())
    });
    prop_oneof![
        3 => number(),
        1 => (-40i32..40).prop_map(|n| json!(n.to_string())),
        1 => Just(json!("")),
        2 => number().prop_map(|n| json!({"x": n, "y": "text"})),
        1 => many,
    ]
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// By definition: over all records that match.
fn aggregated(records: &[Arc<Record>], query: &Query, aggregator: &Aggregator) -> Aggregate {
    let matching: Vec<_> = records.iter().filter(|record| query.matches(&record.event)).collect();
    let of = |record: &Record| match (&aggregator.field[..], &record.event) {
        ("value", event) => number(&event.value),
        ("test", event) if event.kind == "test" => number(&event.value),
        ("test", _) => None,
        (member, event) => number(event.value.get(member)?),
    };
    let numbers: Vec<f64> = matching.iter().filter_map(|record| of(record)).collect();
    let (sum, count) = (numbers.iter().sum::<f64>(), u32::try_from(numbers.len()).unwrap());
    Aggregate::Number(match aggregator.function {
        Function::Count => return Aggregate::Count(matching.len() as u64),
        Function::Sum => Some(sum),
        Function::Average => (count > 0).then(|| sum / f64::from(count)),
        Function::Min => numbers.iter().copied().reduce(f64::min),
        Function::Max => numbers.iter().copied().reduce(f64::max),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// Shows: D17, D22
    #[test]
    fn answers_are_those_of_a_scan_also_after_reopening(
        events in prop::collection::vec((0..4usize, -5..6i64, value()), 1..60), tag in 0..4usize, from in -3..9i64,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let drafts = events.iter().map(|(number, shift, value)| {
            let mut draft = draft(*number);
            draft.event.timestamp += time::Duration::days(*shift);
            draft.event.value = value.clone();
            draft
        });
        let log = Log::open(directory.path()).unwrap();
        let records = append(&log, drafts.collect());
        drop(log);
        let from = Some(Bound { at: NOON + time::Duration::days(from), inclusive: true });
        let queries = [
            Query::default(),
            Query { tags: vec!["number".to_owned(), format!("number:{tag}")], ..Query::default() },
            Query { kind: Some("test".to_owned()), time: TimeRange { from, to: None }, ..Query::default() },
        ];
        let log = Log::open(directory.path()).unwrap();
        for query in queries {
            let mut matching: Vec<_> = records.iter().filter(|record| query.matches(&record.event)).cloned().collect();
            matching.sort_by_key(|record| std::cmp::Reverse((record.event.timestamp, record.position)));
            let found = log.query(&query, 2, 7).unwrap();
            prop_assert_eq!(found.total, matching.len() as u64);
            prop_assert_eq!(found.records, matching.into_iter().skip(7).take(7).collect::<Vec<_>>());
            for function in Function::ALL {
                for field in ["value", "test", "health", "x", "m3", "nosuch"] {
                    let aggregator = Aggregator { function, field: field.to_owned() };
                    let expected = match (field, function) {
                        // No event has the type `health`.
                        ("health", Function::Average | Function::Min | Function::Max) => Aggregate::Number(None),
                        ("health", Function::Sum) => Aggregate::Number(Some(0.0)),
                        _ => aggregated(&records, &query, &aggregator),
                    };
                    prop_assert_eq!(log.aggregate(&query, &aggregator).unwrap(), expected, "{:?}", aggregator);
                }
            }
        }
    }
}

#[test]
fn receipts_are_durable_with_their_records_and_alone() {
    let directory = tempfile::tempdir().unwrap();
    let receipt =
        |key: u8, content: &[u8]| Some(Receipt { key: [key; 32], content: content.into() });
    let log = Log::open(directory.path()).unwrap();
    let pending = log.append_with(vec![draft(1)], &Expect::Any, receipt(1, b"one")).unwrap();
    pending.durable_blocking().unwrap();
    let pending = log.append_with(vec![], &Expect::Any, receipt(2, b"two")).unwrap();
    assert_eq!(pending.durable_blocking().unwrap(), []);
    assert_eq!((log.last(), log.next()), (Position(1), Position(2)), "a receipt has no position");
    let refused = log.append_with(
        vec![draft(1)],
        &Expect::Revisions(vec![(web(), Some(Position(9)))]),
        receipt(3, b"three"),
    );
    assert!(matches!(refused, Err(AppendError::Conflict { .. })));
    drop(log);
    let log = Log::open(directory.path()).unwrap();
    assert_eq!(log.receipt(&[1; 32]).unwrap().as_deref(), Some(&b"one"[..]));
    assert_eq!(log.receipt(&[2; 32]).unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(log.receipt(&[3; 32]).unwrap(), None);
}
