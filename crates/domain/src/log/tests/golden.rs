//! Data directories of every format, written once by the release that had it, and what is in them.

use super::*;

/// What the golden directories hold, whatever their format.
pub(in crate::log) fn check_records(records: &[Arc<Record>]) {
    let expected = include_str!("../../../tests/fixtures/records.jsonl");
    let found: String = records.iter().map(|record| format!("{}\n", line(record))).collect();
    assert_eq!(found, expected);
}

fn line(record: &Record) -> serde_json::Value {
    let event = &record.event;
    serde_json::json!({
        "position": record.position,
        "time": record.time.unix_timestamp_nanos().to_string(),
        "provenance": record.provenance,
        "type": event.kind,
        "tags": event.tags,
        "timestamp": event.timestamp.unix_timestamp_nanos().to_string(),
        "value": event.value,
        "fact": event.fact,
    })
}
