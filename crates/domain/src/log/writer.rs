//! The one thread that writes: it commits whatever waits as one synced batch, then makes it visible, then answers.
//!
//! While one commit waits for the disk, the next appends gather; so many writers share one fdatasync without any
//! of them being delayed on purpose. After a failed commit nothing is written any more: what the disk holds is not known
//! until the log is opened again.

use super::chain::{ChainHash, Place};
use super::format::{Header, record_key};
use super::index::Numbers;
use super::sequencer::{Entry, Local, revision};
use super::storage::Batch;
use super::{Condition, Shared};
use crate::event::{Position, Record};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Starts the thread; it ends when the sequencer is closed and nothing waits.
pub(super) fn start(shared: Arc<Shared>, sequencer: Arc<Local>) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("segue-log".to_owned()).spawn(move || {
        let ending = Ending { shared: &shared, sequencer: &sequencer };
        let mut hash = shared.progress.borrow().hash;
        while let Some(entries) = sequencer.take() {
            hash = commit(&shared, &sequencer, entries, hash);
        }
        drop(ending);
    })
}

/// Tells those who wait that no more records come, also when the thread panics.
struct Ending<'a> {
    shared: &'a Shared,
    sequencer: &'a Local,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.sequencer.stop("its writer failed unexpectedly; see the program's error output");
        }
        self.shared.progress.send_modify(|progress| progress.condition = Condition::Closed);
    }
}

/// Writes `entries` as one batch and answers each. From `hash` before them to the hash after them.
fn commit(
    shared: &Shared,
    sequencer: &Local,
    entries: Vec<Entry>,
    mut hash: ChainHash,
) -> ChainHash {
    let records = entries.iter().map(|entry| entry.records.len()).sum();
    let mut batch = Batch::with_room(records, entries.iter().map(|entry| entry.bytes).sum());
    let (mut written, mut waiting) =
        (Vec::with_capacity(records), Vec::with_capacity(entries.len()));
    for entry in entries {
        for (record, encoded) in entry.records.into_iter().zip(entry.encoded) {
            let value;
            (value, hash) = encoded.seal(record.position, hash);
            shared.storage.put_record(&mut batch, record.position, &value);
            if let Some((artifact, revision)) = revision(&record) {
                shared.storage.put_revision(&mut batch, &artifact, revision);
            }
            let bytes = record_key(record.position).len() + value.len();
            written.push((record, bytes));
        }
        if let Some(receipt) = &entry.receipt {
            shared.storage.put_receipt(&mut batch, receipt);
        }
        waiting.push(entry.done);
    }
    let first = written.first().map_or(Position::START, |(record, _)| record.position);
    let outcome = shared.storage.commit(batch).map_err(|reason| {
        format!(
            "writing from position {first} to {} failed: {reason}",
            shared.storage.directory().display()
        )
    });
    match &outcome {
        Ok(()) => publish(shared, written, hash),
        Err(reason) => {
            // First the queue, so that nobody who reads the answers below can append once more.
            sequencer.stop(reason);
            shared.progress.send_modify(|progress| progress.condition = Condition::Stopped);
        }
    }
    for done in waiting {
        // Who appended may not want to know.
        _ = done.send(outcome.clone());
    }
    hash
}

/// Makes durable records visible, all at once: whoever finds one of them finds the log, and the state, to be that far.
fn publish(shared: &Shared, written: Vec<(Arc<Record>, usize)>, hash: ChainHash) {
    let Some(last) = written.last().map(|(record, _)| record.position) else { return };
    shared.storage.acknowledge(Place { position: last, hash });
    {
        let mut index = shared.index_mut();
        for (record, _) in &written {
            index.insert(&header(record));
        }
        let mut recent = shared.recent_mut();
        for (record, bytes) in written {
            recent.push(record, bytes);
        }
        drop(recent);
        shared.progress.send_modify(|progress| {
            progress.last = last;
            progress.hash = hash;
        });
    }
    shared.keeper.reached(last);
}

fn header(record: &Record) -> Header<'_> {
    Header {
        timestamp: record.event.timestamp.unix_timestamp_nanos(),
        kind: &record.event.kind,
        tags: record.event.tags.as_slice().iter().map(String::as_str).collect(),
        numbers: Numbers::of(&record.event.value),
    }
}
