//! Brings stores of older formats up to date: step by step, each step in batches that are atomic, so that it can be
//! interrupted at any moment and taken up again.
//!
//! | from | to | what changes |
//! |---|---|---|
//! | 1 | 2 | every record gets its hash, see [`super::chain`] |
//!
//! The first batch marks the store as being migrated: from then on neither the older release nor [`super::Log::open`]
//! of this one takes it, but another migration does, and goes on where the first one stopped. A damaged record ends it
//! with its position; nothing is left out. A migration knows the bytes of records, not what they mean.

use super::chain::Place;
use super::error::{OpenError, ReadError};
use super::format::{Encoded, record_position};
use super::storage::{Batch, Format, STORE_FORMAT, Storage};
use crate::event::Position;
use std::ops::ControlFlow;
use std::path::Path;

/// How many records one batch rewrites at most, and roughly how many bytes.
const BATCH_RECORDS_MAX: usize = 4_096;
const BATCH_BYTES_MAX: usize = 8 << 20;

/// What a migration did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// The format that the store had, at the beginning of the first attempt.
    pub from: u32,
    /// The format that it has.
    pub to: u32,
    /// The position of its last record.
    pub last: Position,
}

/// Brings the store in `directory` to the format of this release; one that has it is left as it is.
pub fn migrate(directory: &Path) -> Result<Migrated, OpenError> {
    let storage = Storage::open_any(directory)?;
    let (Format::Is(from) | Format::Migrating { from, .. }) = storage.format()?;
    let last = storage.last().map_err(|error| storage.unopened(error))?;
    let last = last.map_or(Position::START, |(position, _)| position);
    storage.check_length(last)?;
    while step(&storage)? != Format::Is(STORE_FORMAT) {}
    Ok(Migrated { from, to: STORE_FORMAT, last })
}

/// Writes the next batch and says what the store is then.
fn step(storage: &Storage) -> Result<Format, OpenError> {
    step_of(storage, BATCH_RECORDS_MAX)
}

/// The same with a limit of its own.
fn step_of(storage: &Storage, records_max: usize) -> Result<Format, OpenError> {
    let (from, done) = match storage.format()? {
        Format::Is(STORE_FORMAT) => return Ok(Format::Is(STORE_FORMAT)),
        Format::Is(from) => (from, Position::START),
        Format::Migrating { from, done } => (from, done),
    };
    let mut batch = Batch::default();
    let rewritten = match from {
        1 => {
            let added = add_hashes(storage, &mut batch, done, records_max);
            added.map_err(|error| storage.unopened(error))?
        }
        from => return Err(storage.damaged(format!("a migration from format {from} is unknown"))),
    };
    storage.put_format(&mut batch, from + 1);
    storage.put_migration(&mut batch, rewritten.map(|done| (from, done)));
    storage.commit(batch).map_err(|reason| storage.unwritable(reason))?;
    storage.format()
}

/// From 1 to 2: adds records after `done` with their hashes to `batch`. The answer is the last of them, or `None`
/// when there are no more.
fn add_hashes(
    storage: &Storage,
    batch: &mut Batch,
    done: Position,
    records_max: usize,
) -> Result<Option<Position>, ReadError> {
    let missing = ReadError::Missing { position: done };
    let mut place = Place { position: done, hash: storage.hash_at(done)?.ok_or(missing)? };
    let (mut records, mut bytes) = (0, 0);
    storage.each(done, |key, value| {
        let position = place.position.next();
        if record_position(key) != Some(position) {
            return Err(ReadError::Missing { position });
        }
        let (value, hash) = Encoded::from_format_1(position, value)?.seal(position, place.hash);
        storage.put_record(batch, position, &value);
        (records, bytes) = (records + 1, bytes + value.len());
        place = Place { position, hash };
        let full = records == records_max || bytes >= BATCH_BYTES_MAX;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((records > 0).then_some(place.position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::log::tests::{all, copy, fixture};

    #[test]
    fn a_store_of_format_1_is_migrated_with_all_that_it_holds() {
        let directory = fixture("format-1");
        let refused = Log::open(directory.path()).unwrap_err();
        assert_eq!(
            refused,
            OpenError::OlderStore { directory: directory.path().to_owned(), found: 1, known: 2 }
        );
        assert!(refused.to_string().contains("run `segue migrate`"), "{refused}");
        let migrated = migrate(directory.path()).unwrap();
        assert_eq!(migrated, Migrated { from: 1, to: 2, last: Position(30) });
        let log = Log::open(directory.path()).unwrap();
        crate::log::tests::golden::check_records(&all(&log));
        let head = log.head();
        drop(log);
        let again = migrate(directory.path()).unwrap();
        assert_eq!(again, Migrated { from: 2, ..migrated });
        assert_eq!(Log::open(directory.path()).unwrap().head(), head);
    }

    /// Whatever batch it stops after, another attempt goes on, and nobody takes the store meanwhile.
    #[test]
    fn an_interrupted_migration_is_taken_up_again() {
        let whole = fixture("format-1");
        migrate(whole.path()).unwrap();
        let head = Log::open(whole.path()).unwrap().head();
        let directory = fixture("format-1");
        let storage = Storage::open_any(directory.path()).unwrap();
        let mut steps = 0;
        loop {
            let format = step_of(&storage, 7).unwrap();
            steps += 1;
            let copy = copy(directory.path());
            if format == Format::Is(STORE_FORMAT) {
                break;
            }
            let refused = Log::open(copy.path()).unwrap_err();
            assert!(matches!(refused, OpenError::OlderStore { found: 1, .. }), "{refused}");
            migrate(copy.path()).unwrap();
            assert_eq!(Log::open(copy.path()).unwrap().head(), head, "after {steps} batches");
        }
        assert_eq!(steps, 6, "30 records in batches of 7, and the end");
    }

    #[test]
    fn a_damaged_record_ends_a_migration_with_its_position() {
        let directory = fixture("format-1");
        let storage = Storage::open_any(directory.path()).unwrap();
        let mut batch = Batch::default();
        storage.put_record(&mut batch, Position(17), &[1, 2, 3, 4, 5, 6, 7]);
        storage.commit(batch).unwrap();
        drop(storage);
        let refused = migrate(directory.path()).unwrap_err().to_string();
        assert!(refused.contains("the record at position 17 is damaged"), "{refused}");
    }
}
