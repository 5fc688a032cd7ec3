//! The thread that writes snapshots: now and then while records come, and once more when the log is closed.
//!
//! It reads what it needs from durable records and from folds that others keep, and writes files of its own; the
//! writer only tells it how far the log is. It does not know what is in a fold.

use super::Shared;
use super::chain::Place;
use super::snapshot::{Fold, Payload, Taken};
use crate::event::Position;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};

/// After so many records a snapshot is due; a long log takes one after a sixteenth of its length, so that writing
/// snapshots costs a bounded share of writing records.
const INTERVAL_RECORDS_MIN: u64 = 65_536;
const INTERVAL_SHARE: u64 = 16;
/// Closing takes a snapshot when at least so many records came since the last one.
const CLOSING_RECORDS_MIN: u64 = 4_096;

/// Where a fold comes from, and the position that it is of.
pub(super) type Source = Box<dyn Fn(Position) -> Option<(Position, Box<dyn Payload>)> + Send>;

/// What the thread and the log share.
#[derive(Default)]
pub(super) struct Keeper {
    thread: OnceLock<Thread>,
    closed: AtomicBool,
    /// The position from which on the next snapshots are due.
    due: AtomicU64,
    kept: Mutex<Vec<Kept>>,
    /// Held while snapshots are written or records dropped, so that neither disturbs the other.
    pub maintenance: Mutex<()>,
}

/// A fold whose snapshots are written.
struct Kept {
    fold: Fold,
    source: Source,
    /// The position of its newest snapshot.
    newest: Position,
}

/// Starts the thread; it ends when [`Keeper::close`] was called.
pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
    let of_log = Arc::clone(&shared);
    let handle =
        std::thread::Builder::new().name("segue-snapshots".to_owned()).spawn(move || {
            let keeper = &shared.keeper;
            loop {
                let closed = keeper.closed.load(Ordering::Acquire);
                let last = shared.progress.borrow().last;
                if closed {
                    write_all(&shared, last, CLOSING_RECORDS_MIN);
                    return;
                }
                if last.0 >= keeper.due.load(Ordering::Acquire) {
                    write_all(&shared, last, 1);
                    keeper.due_after(last);
                } else {
                    std::thread::park();
                }
            }
        })?;
    of_log.keeper.thread.get_or_init(|| handle.thread().clone());
    Ok(handle)
}

impl Keeper {
    /// From now on, snapshots of `fold` are written; the newest that there is, is at `newest`.
    pub fn keep(&self, fold: Fold, newest: Position, source: Source) {
        self.kept().push(Kept { fold, source, newest });
    }

    /// The log is as far as `last`: the writer says so, and does not wait.
    pub fn reached(&self, last: Position) {
        if last.0 >= self.due.load(Ordering::Acquire) {
            self.wake();
        }
    }

    /// The next snapshots are due an interval after `last`.
    pub fn due_after(&self, last: Position) {
        let interval = INTERVAL_RECORDS_MIN.max(last.0 / INTERVAL_SHARE);
        self.due.store(last.0.saturating_add(interval), Ordering::Release);
    }

    /// Asks the thread to write the last snapshots and to end.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the snapshot of every fold whose newest one is at least `records_min` behind.
fn write_all(shared: &Shared, last: Position, records_min: u64) {
    let _maintenance = shared.keeper.maintenance.lock().unwrap_or_else(PoisonError::into_inner);
    write_due(shared, last, records_min);
}

/// The same for who does maintenance already; with 0, also those that are as new as can be are written again.
pub(super) fn write_due(shared: &Shared, last: Position, records_min: u64) {
    for kept in shared.keeper.kept().iter_mut() {
        if last.0 < kept.newest.0.saturating_add(records_min) {
            continue;
        }
        let Some((position, payload)) = (kept.source)(last) else { continue };
        if position <= kept.newest && records_min > 0 {
            continue;
        }
        match write(shared, &kept.fold, position, &*payload) {
            Ok(()) => kept.newest = position,
            Err(reason) => shared.snapshots.notice(format!(
                "no snapshot of {} at position {position} was written: {reason}; opening the log takes longer",
                kept.fold.name
            )),
        }
    }
}

fn write(
    shared: &Shared,
    fold: &Fold,
    position: Position,
    payload: &dyn Payload,
) -> Result<(), String> {
    let hash = shared.storage.hash_at(position).map_err(|error| error.to_string())?;
    let hash = hash.ok_or_else(|| "its record was dropped".to_owned())?;
    let generation = shared.storage.generation().map_err(|error| error.to_string())?;
    let taken = Taken { place: Place { position, hash }, generation };
    shared.snapshots.write(fold, taken, payload).map_err(|error| error.to_string())
}
