//! The turn that all workers share: look at the state, do something about it, report what was done.
//!
//! Time enters as data, so that a test can let a day pass in milliseconds. What wakes a worker is the business of
//! the supervisor.

use crate::driver::Error;
use async_trait::async_trait;
use segue_domain::command::{Command, Context, Report};
use segue_domain::event::Position;
use segue_domain::state::State;
use segue_domain::store::{ExecuteError, Store};
use std::time::Duration;
use time::OffsetDateTime;

/// Something that brings the outside in line with the state. It holds no truth.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Who reports, as records say it: `worker:gateways`.
    fn actor(&self) -> String;

    /// One round: observe, plan, act. What it did is in the result; an error is a driver's.
    async fn turn(&mut self, state: &State, now: OffsetDateTime) -> Result<Turn, Error>;

    /// What the last round reported is not in the log. Who remembers what was told forgets it here.
    fn unrecorded(&mut self) {}
}

/// What one round did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turn {
    /// What was found and done.
    pub reports: Vec<Report>,
    /// The record that led to the reports, when that is another one than the one that woke the worker.
    pub cause: Option<Position>,
    /// Whether no record led to the reports, but what happened outside.
    pub without_cause: bool,
    /// When to look again, if nothing else happens.
    pub again_after: Option<Duration>,
}

/// Whether what workers plan from is the same in both states: gateways, deployments, and what configurations are made
/// from.
pub(crate) fn is_same(left: &State, right: &State) -> bool {
    left.gateways().ptr_eq(right.gateways())
        && left.deployments().ptr_eq(right.deployments())
        && left.configuration_templates().ptr_eq(right.configuration_templates())
}

/// Why a round came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The outside did not do what it was asked; try again after a pause.
    #[error(transparent)]
    Driver(#[from] Error),
    /// What was done could not be recorded; the log stopped.
    #[error(transparent)]
    Store(#[from] ExecuteError),
}

/// Takes one turn of `worker` and records its reports; `cause` is the record that led to it. Most turns have nothing to
/// report, so `correlation` is asked for one when it is needed.
pub async fn take(
    store: &Store,
    worker: &mut dyn Worker,
    now: OffsetDateTime,
    cause: Position,
    correlation: impl FnOnce() -> String + Send,
) -> Result<Turn, TurnError> {
    let state = store.state();
    let turn = worker.turn(&state, now).await?;
    if !turn.reports.is_empty() {
        let context = Context {
            now,
            actor: worker.actor(),
            cause: (!turn.without_cause).then(|| turn.cause.unwrap_or(cause)),
            correlation: correlation(),
        };
        let commands = turn.reports.iter().cloned().map(Command::Report).collect();
        if let Err(error) = store.execute(&Command::All(commands), &context).await {
            worker.unrecorded();
            return Err(error.into());
        }
    }
    Ok(turn)
}

impl Turn {
    /// Looks again after `pause`, or sooner.
    pub fn look_again(&mut self, pause: Duration) {
        self.again_after = Some(self.again_after.map_or(pause, |earlier| earlier.min(pause)));
    }
}
