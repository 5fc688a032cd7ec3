//! Data directories of every format, written once by the release that had it, what is in them, and what damage to them
//! is called. A new format adds a directory with [`write`]; none is ever written again.

use super::*;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The hash of the log in every golden directory: it does not depend on the format.
const HASH: &str = "f4e4421e77a2cdf8215aa7b9f620bd5795c7af221cf4f9c6828c92ad3aa14551";

/// What the golden directories hold, whatever their format.
pub(in crate::log) fn check_records(records: &[Arc<Record>]) {
    let found = records.iter().fold(String::new(), |mut lines, record| {
        writeln!(lines, "{}", line(record)).unwrap();
        lines
    });
    assert_eq!(found, include_str!("../../../tests/fixtures/records.jsonl"));
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

/// `metrics` before the twentieth record.
fn expiries() -> [Expiry; 1] {
    let before = datetime!(2026-11-20 12:00:20 UTC);
    [Expiry { kind: "metrics".into(), before }]
}

#[test]
fn a_store_of_format_2_is_opened_with_all_that_it_holds() {
    let directory = fixture("format-2");
    let log = Log::open(directory.path()).unwrap();
    check_records(&all(&log));
    assert_eq!(log.head().1.to_string(), HASH);
    log.verify().unwrap();
}

#[test]
fn a_store_of_format_2_with_gaps_is_opened_with_all_that_is_left() {
    let whole = fixture("format-2");
    let log = Log::open(whole.path()).unwrap();
    let mut expected = all(&log);
    expected.retain(|record| record.event.kind != "metrics" || record.time >= expiries()[0].before);
    let directory = fixture("format-2-gaps");
    let gaps = Log::open(directory.path()).unwrap();
    assert_eq!(all(&gaps), expected);
    assert_eq!(gaps.head(), log.head());
    let verified = gaps.verify().unwrap();
    assert_eq!((verified.records, verified.dropped), (21, 9));
    assert_eq!(gaps.drop_expired(&expiries(), None).unwrap().records, 0);
}

/// Some damage to the golden directories, and the sentence that an operator reads.
#[test]
fn damage_to_golden_directories_is_named() {
    let check = |name: &str, extension: &str, damage: &dyn Fn(&mut Vec<u8>), sentence: &str| {
        let directory = fixture(name);
        let files = std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<PathBuf> =
            files.filter(|path| path.to_string_lossy().contains(extension)).collect();
        files.sort();
        let path = files.pop().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let opened = migrate(directory.path()).and_then(|_| Log::open(directory.path()));
        let refused = opened.expect_err(sentence).to_string();
        assert!(refused.contains(sentence), "{name}, {extension}: {refused}");
    };
    for name in ["format-1", "format-2"] {
        let cut = |bytes: &mut Vec<u8>| bytes.truncate(bytes.len() - 10);
        check(name, ".log", &cut, "records up to 30 were acknowledged, but it ends at 29");
        check(name, ".log", &|bytes| bytes[40] ^= 1, "is damaged: Corruption");
        check(name, "MANIFEST", &|bytes| bytes[60] ^= 1, "is damaged: Corruption");
        check(name, "CURRENT", &|bytes| bytes[3] ^= 1, "restore the directory from a backup");
        check(name, ".sst", &|bytes| bytes.truncate(100), "restore the directory from a backup");
    }
}

/// Writes the golden directories of the present format, once in its life, to the directory that `SEGUE_GOLDEN` names:
/// `SEGUE_GOLDEN=… cargo test -p segue-domain --lib golden::write`.
#[test]
fn write() {
    let Some(target) = std::env::var_os("SEGUE_GOLDEN").map(PathBuf::from) else { return };
    let keep = |directory: &Path, name: &str| {
        let target = target.join(name);
        std::fs::create_dir_all(&target).unwrap();
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            // RocksDB's own notes, and snapshots, which another release does not take.
            if !["LOG", "LOCK", "OPTIONS", "snapshots"].iter().any(|own| name.starts_with(own)) {
                std::fs::copy(&path, target.join(name)).unwrap();
            }
        }
    };
    let records = {
        let directory = fixture("format-1");
        migrate(directory.path()).unwrap();
        all(&Log::open(directory.path()).unwrap())
    };
    let directory = tempfile::tempdir().unwrap();
    for part in records.chunks(10) {
        let log = Log::open(directory.path()).unwrap();
        for record in part {
            let Record { time, provenance, event, .. } = Record::clone(record);
            append(&log, vec![Draft { time, provenance, event }]);
        }
    }
    keep(directory.path(), "format-2");
    drop(Log::open(directory.path()).unwrap());
    let log = Log::open(directory.path()).unwrap();
    println!("{}", log.head().1);
    log.drop_expired(&expiries(), None).unwrap();
    drop(log);
    keep(directory.path(), "format-2-gaps");
}
