//! A stream of records from any position: first those that exist, then those that come, each once and in order.
//!
//! Subscribers pull. What they share with the writer is the last durable position; each reads from its own place on,
//! out of memory when it keeps up and from disk when it is behind. So there is no queue per subscriber that could grow
//! or lose records, and the writer never waits for one.

use super::error::ReadError;
use super::{Condition, Progress, Shared};
use crate::event::{Position, Record};
use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt};
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::watch;

/// How many records, and roughly how many bytes of them, a subscriber that is behind reads at once.
const CHUNK_RECORDS_MAX: usize = 256;
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// Records as they become durable. Ends when the log is closed, or after an error, and stays at its end.
///
/// It keeps the files of the log open until it is dropped.
pub struct Subscription(BoxStream<'static, Result<Arc<Record>, ReadError>>);

struct Place {
    shared: Arc<Shared>,
    progress: watch::Receiver<Progress>,
    after: Position,
    chunk: VecDeque<Arc<Record>>,
    /// Whether others had their turn since the last chunk was read.
    rested: bool,
    failed: bool,
}

impl Subscription {
    /// From the record after `after` on.
    pub(super) fn new(
        shared: Arc<Shared>,
        progress: watch::Receiver<Progress>,
        after: Position,
    ) -> Self {
        let place =
            Place { shared, progress, after, chunk: VecDeque::new(), rested: true, failed: false };
        let records =
            stream::unfold(place, |mut place| async { Some((place.next().await?, place)) });
        // What was made by unfolding panics when it is asked once more after its end.
        Self(records.fuse().boxed())
    }
}

impl Stream for Subscription {
    type Item = Result<Arc<Record>, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").finish_non_exhaustive()
    }
}

impl Place {
    async fn next(&mut self) -> Option<Result<Arc<Record>, ReadError>> {
        loop {
            if let Some(record) = self.chunk.pop_front() {
                self.after = record.position;
                return Some(Ok(record));
            }
            if self.failed {
                return None;
            }
            let progress = *self.progress.borrow_and_update();
            if progress.last > self.after {
                if !std::mem::take(&mut self.rested) {
                    pause().await;
                }
                match self.shared.read(self.after, CHUNK_RECORDS_MAX, CHUNK_BYTES_MAX) {
                    Ok(records) => self.chunk = records.into(),
                    Err(error) => {
                        self.failed = true;
                        return Some(Err(error));
                    }
                }
            } else if progress.condition == Condition::Closed
                || self.progress.changed().await.is_err()
            {
                return None;
            } else {
                self.rested = true;
            }
        }
    }
}

/// Lets others on this thread have their turn: whoever is far behind reads for long.
async fn pause() {
    let mut paused = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
