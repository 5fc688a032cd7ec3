//! An append that waits for the disk, and the ways to wait for it.

use super::error::AppendError;
use super::relay::Relay;
use super::sequencer::Outcome;
use crate::event::Record;
use std::sync::Arc;
use tokio::sync::oneshot;

/// An append that has its positions and is on its way to the disk. It gets there whether or not anybody waits.
#[derive(Debug)]
#[must_use = "the records are not durable before this resolves"]
pub struct Pending {
    records: Vec<Arc<Record>>,
    outcome: oneshot::Receiver<Outcome>,
}

impl Pending {
    pub(super) fn new(records: Vec<Arc<Record>>, outcome: oneshot::Receiver<Outcome>) -> Self {
        Self { records, outcome }
    }

    /// The records, which are not durable yet.
    pub fn records(&self) -> &[Arc<Record>] {
        &self.records
    }

    /// Waits until the records are durable.
    pub async fn durable(self) -> Result<Vec<Arc<Record>>, AppendError> {
        let outcome = self.outcome.await;
        settle(self.records, outcome)
    }

    /// The same for one of many who wait on the thread that `relay` belongs to.
    pub async fn durable_through(self, relay: &Relay) -> Result<Vec<Arc<Record>>, AppendError> {
        match self.records.last().map(|record| record.position) {
            Some(last) if relay.reached(last).await => Ok(self.records),
            // Without records, or with a reason to tell.
            _ => self.durable().await,
        }
    }

    /// The same for a thread that may block. Panics inside of an asynchronous task.
    pub fn durable_blocking(self) -> Result<Vec<Arc<Record>>, AppendError> {
        let outcome = self.outcome.blocking_recv();
        settle(self.records, outcome)
    }
}

fn settle(
    records: Vec<Arc<Record>>,
    outcome: Result<Outcome, oneshot::error::RecvError>,
) -> Result<Vec<Arc<Record>>, AppendError> {
    let outcome = outcome.unwrap_or_else(|_| Err("its writer failed unexpectedly".to_owned()));
    outcome.map(|()| records).map_err(AppendError::Stopped)
}
