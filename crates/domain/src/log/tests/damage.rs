//! What happens to files: torn ends, changed bytes, missing records, newer formats.

use super::*;
use crate::log::format::{GAP_FORMAT, Gap, RECORD_FORMAT};
use crate::log::storage::Batch;
use std::path::PathBuf;

/// The newest file that ends in `extension`.
fn newest(directory: &Path, extension: &str) -> PathBuf {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|own| own == extension)).max().unwrap()
}

fn change(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(file).unwrap();
    change(&mut bytes);
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn a_killed_log_opens_with_all_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    fill(&log, 20);
    let copy = copy(directory.path());
    assert_eq!(all(&Log::open(copy.path()).unwrap()), all(&log));
}

/// The last entry was never acknowledged: the mark does not know it.
#[test]
fn a_torn_end_costs_only_what_was_not_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    fill(&log, 19);
    let mark = std::fs::read(directory.path().join("acknowledged")).unwrap();
    fill(&log, 1);
    for cut in [1, 2, 7, 30, 100] {
        let copy = copy(directory.path());
        change(&newest(copy.path(), "log"), |bytes| bytes.truncate(bytes.len() - cut));
        let lost = Log::open(copy.path()).unwrap_err().to_string();
        assert!(lost.contains("records up to 20 were acknowledged, but it ends at 19"), "{lost}");
        std::fs::write(copy.path().join("acknowledged"), &mark).unwrap();
        let torn = Log::open(copy.path()).unwrap();
        assert_eq!(all(&torn), all(&log)[..19]);
        assert_eq!(append(&torn, vec![draft(1)])[0].position, Position(20));
    }
}

/// Whatever byte of the write-ahead log changes, no acknowledged record is lost without a word.
#[test]
fn a_changed_byte_in_the_write_ahead_log_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    fill(&log, 3);
    let length = std::fs::metadata(newest(directory.path(), "log")).unwrap().len();
    for place in (0..usize::try_from(length).unwrap()).step_by(5) {
        let copy = copy(directory.path());
        change(&newest(copy.path(), "log"), |bytes| bytes[place] ^= 0x40);
        let refused = Log::open(copy.path()).expect_err("a changed byte is noticed");
        assert!(matches!(refused, OpenError::Damaged { .. }), "at {place}: {refused}");
    }
}

#[test]
fn a_changed_byte_in_a_table_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let log = Log::open(directory.path()).unwrap();
    fill(&log, 50);
    drop(log);
    // Opening replays the write-ahead log into tables.
    drop(Log::open(directory.path()).unwrap());
    let table = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let table = table.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
    let table = table.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    change(&table, |bytes| bytes[100] ^= 1);
    let refused = Log::open(directory.path()).unwrap_err().to_string();
    assert!(refused.contains("position 1 is damaged") && refused.contains("restore"), "{refused}");
}

/// Writes with RocksDB alone what the log never writes.
fn meddle(directory: &Path, meddle: impl FnOnce(&Storage, &mut Batch)) -> OpenError {
    fill(&Log::open(directory).unwrap(), 3);
    let storage = Storage::open(directory).unwrap();
    let mut batch = Batch::default();
    meddle(&storage, &mut batch);
    storage.commit(batch).unwrap();
    drop(storage);
    Log::open(directory).unwrap_err()
}

#[test]
fn what_the_log_never_writes_is_refused_with_a_sentence_that_helps() {
    let check = |change: &dyn Fn(&Storage, &mut Batch), sentence: &str| {
        let directory = tempfile::tempdir().unwrap();
        let refused = meddle(directory.path(), change).to_string();
        let refused = refused.replace(&directory.path().display().to_string(), "DIR");
        assert_eq!(refused, sentence);
    };
    check(
        &|storage, batch| {
            let gap = Gap { first: Position(5), hash: ChainHash::START };
            storage.put_record(batch, Position(5), &gap.seal(Position(5)));
        },
        "the log in DIR cannot be opened: the record at position 4 is missing; restore the log from a backup",
    );
    check(
        &|storage, batch| storage.put_record(batch, Position(4), &[GAP_FORMAT + 1, 0, 0, 0, 0]),
        "the log in DIR cannot be opened: the record at position 4 has format 4, this release knows formats up to 3: \
         run a newer release of Segue",
    );
    check(
        &|storage, batch| {
            storage.put_record(batch, Position(2), &[RECORD_FORMAT, 0, 0, 0, 0, 1, 2, 3]);
        },
        "the log in DIR cannot be opened: the record at position 2 is damaged: its checksum does not match; \
         restore the log from a backup",
    );
    check(
        &|storage, batch| storage.put_revision(batch, &web(), Some(Position(9))),
        "the log in DIR is damaged: its last record is 3, but gateways:web was changed by record 9; \
         restore the directory from a backup",
    );
    check(
        &|storage, batch| storage.put_format(batch, 7),
        "the log in DIR has format 7, this release knows formats up to 2: run a newer release of Segue on it; \
         nothing was changed",
    );
}

#[test]
fn a_store_without_its_table_of_contents_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    drop(Log::open(directory.path()).unwrap());
    std::fs::remove_file(directory.path().join("CURRENT")).unwrap();
    let refused = Log::open(directory.path()).unwrap_err();
    assert!(refused.to_string().contains("no file CURRENT"), "{refused}");
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(matches!(Log::open(file.path()), Err(OpenError::Directory { .. })));
}
