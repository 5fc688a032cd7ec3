//! The façade that keeps log and state in step: decide, append, apply.
//!
//! Commands are decided one after another on the newest state, so that rules across artifacts hold. Appends are
//! durable together: while one batch is being synced, the next commands are decided on what it will have made. What
//! others see is only ever durable.

use crate::command::{Command, Context, Rules, decide};
use crate::event::{
    Aggregate, Aggregator, Draft, Origin, Page, Position, Provenance, Query, Record,
};
use crate::log::{AppendError, Expect, Log, OpenError, ReadError, Subscription};
use crate::problem::Problems;
use crate::state::State;
use arc_swap::ArcSwap;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// How many records are read at a time when the log is replayed.
const REPLAY_RECORDS_MAX: usize = 4096;

mod once;

pub use once::{Once, RequestKey};

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
    /// The states after appends that were not durable when last looked at, oldest first.
    sequenced: Mutex<VecDeque<Arc<State>>>,
    /// A fold of what is durable; [`Store::state`] brings it up to date. Nothing depends on the caller of `execute`
    /// staying to hear its answer.
    durable: ArcSwap<State>,
    /// Requests with a key that are on their way to the disk.
    once: once::UnderWay,
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
    /// What the log keeps of earlier requests cannot be read; nothing was stored.
    #[error(transparent)]
    Read(#[from] ReadError),
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
        let sequenced = Mutex::default();
        Ok(Self {
            shared: Arc::new(Shared {
                log,
                rules,
                head: Mutex::new(state),
                sequenced,
                durable,
                once: once::UnderWay::default(),
            }),
        })
    }

    /// Decides `command`, appends its events as one atomic batch and answers once they are durable.
    pub async fn execute(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Executed, ExecuteError> {
        let (pending, state) = {
            let mut head = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner);
            let events = decide(&head, command, context, &self.shared.rules)?;
            if events.is_empty() {
                return Ok(Executed { records: Vec::new(), state: self.state() });
            }
            let drafts = events.into_iter().map(|event| draft(event, command, context)).collect();
            // Held over the append, so that whoever sees its records also finds the state that they make.
            let mut sequenced =
                self.shared.sequenced.lock().unwrap_or_else(PoisonError::into_inner);
            let pending = self.shared.log.append(drafts, &Expect::Any)?;
            for record in pending.records() {
                head.apply(record);
            }
            let state = Arc::new(head.clone());
            sequenced.push_back(Arc::clone(&state));
            (pending, state)
        };
        let records = pending.durable().await?;
        self.state();
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
        let last = self.shared.log.last();
        if self.shared.durable.load().position() < last {
            let mut sequenced =
                self.shared.sequenced.lock().unwrap_or_else(PoisonError::into_inner);
            let mut newest = None;
            while sequenced.front().is_some_and(|state| state.position() <= last) {
                newest = sequenced.pop_front();
            }
            if let Some(newest) = newest {
                self.shared.durable.store(newest);
            }
        }
        self.shared.durable.load_full()
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

    /// What `aggregator` makes of the records that match `query`.
    pub fn aggregate(
        &self,
        query: &Query,
        aggregator: &Aggregator,
    ) -> Result<Aggregate, ReadError> {
        self.shared.log.aggregate(query, aggregator)
    }

    /// The log itself.
    pub fn log(&self) -> &Log {
        &self.shared.log
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
    let origin =
        if matches!(command, Command::Post(_)) { Origin::External } else { Origin::Service };
    let provenance = Provenance {
        actor: context.actor.clone(),
        cause: context.cause,
        correlation: context.correlation.clone(),
        origin,
    };
    Draft { time: context.now, provenance, event }
}
