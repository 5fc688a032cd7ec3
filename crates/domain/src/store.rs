//! The façade that keeps log and state in step: decide, append, apply.
//!
//! Commands are decided one after another on the newest state, so that rules across artifacts hold. Appends are
//! durable together: while one batch is being synced, the next commands are decided on what it will have made. What
//! others see is only ever durable.

use crate::command::{Command, Context, Rules, decide};
use crate::event::{Draft, Origin, Page, Position, Provenance, Query, Record};
use crate::log::{AppendError, Expect, Log, OpenError, ReadError, Subscription};
use crate::problem::Problems;
use crate::state::State;
use arc_swap::ArcSwap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// How many records are read at a time when the log is replayed.
const REPLAY_RECORDS_MAX: usize = 4096;

/// Log and state, in step.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    log: Log,
    rules: Rules,
    /// The fold of everything that has a position, durable or not.
    head: Mutex<State>,
    /// The fold of what is durable.
    durable: ArcSwap<State>,
    /// The position of [`Shared::durable`].
    reached: watch::Sender<Position>,
}

/// What a command did.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The records appended; none when there was nothing to do.
    pub records: Vec<Arc<Record>>,
    /// The state right after them.
    pub state: Arc<State>,
}

/// Why a command was not executed.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// It was refused; nothing was stored. Change the request.
    #[error(transparent)]
    Rejected(#[from] Problems),
    /// It could not be stored; whether it was is not known. The log stopped, see its reason.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Store {
    /// Opens the log in `directory` and replays it.
    pub fn open(directory: &Path, rules: Rules) -> Result<Self, OpenStoreError> {
        Self::new(Log::open(directory)?, rules)
    }

    /// An empty store in memory, for tests.
    pub fn in_memory(rules: Rules) -> Result<Self, OpenStoreError> {
        Self::new(Log::in_memory()?, rules)
    }

    /// Replays `log`.
    pub fn new(log: Log, rules: Rules) -> Result<Self, OpenStoreError> {
        let state = replay(&log)?;
        let durable = ArcSwap::from_pointee(state.clone());
        let reached = watch::Sender::new(state.position());
        Ok(Self { shared: Arc::new(Shared { log, rules, head: Mutex::new(state), durable, reached }) })
    }

    /// Decides `command`, appends its events as one atomic batch and answers once they are durable.
    pub async fn execute(&self, command: &Command, context: &Context) -> Result<Executed, ExecuteError> {
        let (pending, state) = {
            let mut head = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner);
            let events = decide(&head, command, context, &self.shared.rules)?;
            if events.is_empty() {
                return Ok(Executed { records: Vec::new(), state: self.state() });
            }
            let drafts = events.into_iter().map(|event| draft(event, command, context)).collect();
            let pending = self.shared.log.append(drafts, &Expect::Any)?;
            for record in pending.records() {
                head.apply(record);
            }
            (pending, Arc::new(head.clone()))
        };
        let records = pending.durable().await?;
        self.publish(&state);
        Ok(Executed { records, state })
    }

    /// Decides `command` and answers with the state that it would make, without storing anything.
    pub fn validate(&self, command: &Command, context: &Context) -> Result<State, Problems> {
        let mut state = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for event in decide(&state, command, context, &self.shared.rules)? {
            let position = state.position().next();
            state.apply(&draft(event, command, context).at(position));
        }
        Ok(state)
    }

    /// The state that everything durable makes.
    pub fn state(&self) -> Arc<State> {
        self.shared.durable.load_full()
    }

    /// Waits until [`Store::state`] holds everything up to `position`.
    pub async fn reached(&self, position: Position) {
        let mut reached = self.shared.reached.subscribe();
        reached.wait_for(|reached| *reached >= position).await.expect("the sender lives as long as the store");
    }

    /// The rules that commands are decided by.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// The records after `after`, gap-free, then new ones as they become durable.
    pub fn subscribe(&self, after: Position) -> Subscription {
        self.shared.log.subscribe(after)
    }

    /// The records that match `query`; `page` counts from 1.
    pub fn query(&self, query: &Query, page: u64, per_page: u64) -> Result<Page, ReadError> {
        self.shared.log.query(query, page, per_page)
    }

    /// The log itself.
    pub fn log(&self) -> &Log {
        &self.shared.log
    }

    /// Shows `state` to others unless they see a later one already.
    fn publish(&self, state: &Arc<State>) {
        self.shared.durable.rcu(|current| {
            if current.position() < state.position() { Arc::clone(state) } else { Arc::clone(current) }
        });
        self.shared.reached.send_if_modified(|reached| {
            let later = *reached < state.position();
            *reached = state.position().max(*reached);
            later
        });
    }
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// The log does not open.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log does not read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Folds the whole of `log`.
pub fn replay(log: &Log) -> Result<State, ReadError> {
    let mut state = State::default();
    loop {
        let records = log.read(state.position(), REPLAY_RECORDS_MAX)?;
        if records.is_empty() {
            return Ok(state);
        }
        for record in records {
            state.apply(&record);
        }
    }
}

fn draft(event: crate::event::Event, command: &Command, context: &Context) -> Draft {
    let origin = if matches!(command, Command::Post(_)) { Origin::External } else { Origin::Service };
    let provenance = Provenance {
        actor: context.actor.clone(),
        cause: context.cause,
        correlation: context.correlation.clone(),
        origin,
    };
    Draft { time: context.now, provenance, event }
}
