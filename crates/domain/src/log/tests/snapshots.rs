//! Opening with and without snapshots: the same log, the same answers; and what is dropped when it does not belong.

use super::*;
use crate::store::{self, Store};
use std::path::PathBuf;

/// More records than closing needs to write snapshots.
const RECORDS: usize = 5_000;

fn filled(directory: &Path, records: usize) {
    let store = Store::open(directory, crate::command::Rules::default()).unwrap();
    let log = store.log();
    for first in (1..=records).step_by(500) {
        let drafts = (first..first + 500).map(|number| match number % 100 {
            0 => scale_stored(&format!("scale-{number}")),
            _ => draft(number),
        });
        append(log, drafts.collect());
    }
}

fn snapshots(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory.join("snapshots"));
    let mut files: Vec<_> = files.into_iter().flatten().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Everything that one can ask a log for.
fn answers(log: &Log) -> (Vec<u64>, u64, String, ChainHash) {
    let query = Query { tags: vec!["number:4999".into()], ..Query::default() };
    let found = positions(&log.query(&query, 1, 10).unwrap().records);
    let total = log.query(&Query::default(), 1, 1).unwrap().total;
    (found, total, store::replay(log).unwrap().hash(), log.head().1)
}

#[test]
fn a_snapshot_and_the_tail_make_what_the_whole_log_makes() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), RECORDS);
    let names: Vec<_> = snapshots(directory.path())
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    // Appending past the store leaves its state behind, and its snapshot with it.
    assert_eq!(names, ["index-00000000000000005000.snapshot"]);
    let log = Log::open(directory.path()).unwrap();
    assert_eq!(log.shared().indexed, Position(5_000));
    append(&log, vec![draft(1), scale_stored("tail"), draft(3)]);
    drop(log);
    let with = Log::open(directory.path()).unwrap();
    assert_eq!(with.shared().indexed, Position(5_000), "so few records need no new snapshot");
    let expected = answers(&with);
    assert_eq!(expected.1, 5_003);
    drop(with);
    std::fs::remove_dir_all(directory.path().join("snapshots")).unwrap();
    let without = Log::open(directory.path()).unwrap();
    assert_eq!(without.shared().indexed, Position::START);
    assert_eq!(answers(&without), expected);
}

#[test]
fn a_state_starts_from_its_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), RECORDS);
    let expected = {
        let store = Store::open(directory.path(), crate::command::Rules::default()).unwrap();
        append(store.log(), (1..=RECORDS).map(draft).collect());
        // The state that was opened is of position 5,000; that is what is written when it closes.
        store.state().hash()
    };
    assert_eq!(snapshots(directory.path()).len(), 3);
    let log = Log::open(directory.path()).unwrap();
    let mut state = store::snapshot(&log).unwrap();
    assert_eq!((state.position(), state.hash()), (Position(5_000), expected));
    store::fold(&log, &mut state).unwrap();
    assert_eq!(state.hash(), store::replay(&log).unwrap().hash());
    assert_eq!(state.position(), Position(10_000));
}

#[test]
fn a_snapshot_that_does_not_belong_is_dropped_with_a_notice() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path(), RECORDS);
    let expected = answers(&Log::open(directory.path()).unwrap());
    let snapshot = snapshots(directory.path()).remove(0);
    let bytes = std::fs::read(&snapshot).unwrap();
    let check = |bytes: &[u8], reason: &str| {
        std::fs::write(&snapshot, bytes).unwrap();
        let log = Log::open(directory.path()).unwrap();
        let notices = log.take_notices();
        assert!(notices.len() == 1 && notices[0].contains(reason), "{notices:?}");
        assert_eq!(answers(&log), expected);
        assert_eq!(log.shared().indexed, Position::START);
    };
    check(&bytes[..bytes.len() - 1], "its checksum does not match");
    let other = tempfile::tempdir().unwrap();
    let log = Log::open(other.path()).unwrap();
    append(&log, (0..RECORDS).map(draft).collect());
    drop(log);
    let foreign = std::fs::read(snapshots(other.path()).remove(0)).unwrap();
    check(&foreign, "it is of another log");
    std::fs::write(&snapshot, &bytes).unwrap();
    let log = Log::open(directory.path()).unwrap();
    assert_eq!(log.take_notices(), [""; 0]);
    assert_eq!(log.shared().indexed, Position(5_000));
}

/// On a full disk it may be all the room that there is, and nobody knows whether another one is ever written.
#[test]
fn what_was_not_finished_goes_when_the_log_is_opened() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    let inside = directory.path().join("snapshots");
    std::fs::create_dir_all(&inside).unwrap();
    let unfinished = inside.join("index-00000000000000000007.unfinished");
    std::fs::write(&unfinished, "half").unwrap();
    assert!(matches!(Log::open(directory.path()), Err(OpenError::InUse { .. })));
    assert!(unfinished.exists(), "whoever has the log open may be writing it");
    drop(log);
    drop(Log::open(directory.path()).unwrap());
    assert!(!unfinished.exists());
}

/// The thread that writes snapshots is woken by the writer once the interval is over.
#[test]
fn snapshots_are_written_while_records_come() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    for _ in 0..8 {
        append(&log, (0..10_000).map(draft).collect());
    }
    let deadline = std::time::Duration::from_mins(1);
    let mut waited = std::time::Duration::ZERO;
    let step = std::time::Duration::from_millis(10);
    while snapshots(directory.path()).iter().all(|path| path.extension().unwrap() != "snapshot") {
        assert!(waited < deadline, "no snapshot was written");
        std::thread::sleep(step);
        waited += step;
    }
    let copy = copy(directory.path());
    let killed = Log::open(copy.path()).unwrap();
    assert!(killed.shared().indexed >= Position(65_536), "{:?}", killed.shared().indexed);
    assert_eq!(answers(&killed), answers(&log));
}
