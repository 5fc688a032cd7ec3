//! The façade that keeps log and state in step: decide, append, apply.
//!
//! Commands are decided one after another on the newest state, so that rules across artifacts hold. Appends are
//! durable together: while one batch is being synced, the next commands are decided on what it will have made. What
//! others see is only ever durable. Opening starts from the newest snapshot of the state that belongs to the log.

mod once;

pub use once::{Once, RequestKey};

use crate::command::{Command, Context, Rules, decide};
use crate::event::{
    Aggregate, Aggregator, Draft, Origin, Page, Position, Provenance, Query, Record,
};
use crate::log::{
    AppendError, Expect, Log, OpenError, Pending, Prepared, ReadError, Relay, Subscription,
};
use crate::problem::Problems;
use crate::state::State;
use arc_swap::ArcSwap;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the snapshots of the state are called in the log.
pub const STATE_FOLD: &str = "state";
/// Changes whenever `State::apply` or what a state consists of changes; another release builds its own anyway.
const STATE_VERSION: u32 = 5;

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
    states: Arc<States>,
    /// Requests with a key that are on their way to the disk.
    once: once::UnderWay,
}

/// The states that others see, and those that they will see. Knows no log, so that the log may hold it.
struct States {
    /// The states after appends that were not durable when last looked at, oldest first.
    sequenced: Mutex<VecDeque<Arc<State>>>,
    /// A fold of what is durable; [`States::at`] brings it up to date. Nothing depends on the caller of `execute`
    /// staying to hear its answer.
    durable: ArcSwap<State>,
}

/// What a command did.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The records appended; none when there was nothing to do.
    pub records: Vec<Arc<Record>>,
    /// The state right after them.
    pub state: Arc<State>,
}

/// What a command is about to do.
enum Submitted {
    /// Its records are on their way to the disk, and this is the state right after them.
    Appended(Pending, Arc<State>),
    /// There is nothing to do once everything up to here is durable.
    NothingAfter(Position),
    /// It is refused once everything up to here is durable.
    RefusedAfter(Position, Problems),
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

    /// Replays `log` from the newest snapshot on, and has snapshots of the state written from now on.
    pub fn new(log: Log, rules: Rules) -> Result<Self, OpenStoreError> {
        let mut state = snapshot(&log).unwrap_or_default();
        let newest = state.position();
        fold(&log, &mut state)?;
        let durable = ArcSwap::from_pointee(state.clone());
        let states = Arc::new(States { sequenced: Mutex::default(), durable });
        let source = Arc::clone(&states);
        log.keep_snapshots(STATE_FOLD, &state_version(), newest, move |last| {
            let state = source.at(last);
            Some((state.position(), to_bytes(&state)))
        });
        let (head, once) = (Mutex::new(state), once::UnderWay::default());
        Ok(Self { shared: Arc::new(Shared { log, rules, head, states, once }) })
    }

    /// Decides `command`, appends its events as one atomic batch and answers once they are durable.
    pub async fn execute(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Executed, ExecuteError> {
        match self.submit(command, context)? {
            Submitted::Appended(pending, state) => {
                Ok(self.executed(pending.durable().await?, state))
            }
            Submitted::NothingAfter(position) => self.nothing_after(position).await,
            Submitted::RefusedAfter(position, problems) => {
                Err(self.refused_after(position, problems).await)
            }
        }
    }

    /// The same for one of many who wait on the thread that `relay` belongs to.
    pub async fn execute_through(
        &self,
        relay: &Relay,
        command: &Command,
        context: &Context,
    ) -> Result<Executed, ExecuteError> {
        match self.submit(command, context)? {
            Submitted::Appended(pending, state) => {
                Ok(self.executed(pending.durable_through(relay).await?, state))
            }
            Submitted::NothingAfter(position) => self.nothing_after(position).await,
            Submitted::RefusedAfter(position, problems) => {
                Err(self.refused_after(position, problems).await)
            }
        }
    }

    /// What was executed, once it is durable: others see it from now on.
    fn executed(&self, records: Vec<Arc<Record>>, state: Arc<State>) -> Executed {
        self.state();
        Executed { records, state }
    }

    /// A command that finds its work done may have found it in records that still wait for the disk: as long as they
    /// do, it is not done.
    async fn nothing_after(&self, position: Position) -> Result<Executed, ExecuteError> {
        self.shared.log.wait_for(position).await?;
        Ok(Executed { records: Vec::new(), state: self.state() })
    }

    /// Neither is a command refused before that: should such records be lost, nobody else ever sees why.
    async fn refused_after(&self, position: Position, problems: Problems) -> ExecuteError {
        match self.shared.log.wait_for(position).await {
            Ok(()) => ExecuteError::Rejected(problems),
            Err(error) => error.into(),
        }
    }

    /// Decides `command` and appends its events as one atomic batch, which is not durable yet.
    fn submit(&self, command: &Command, context: &Context) -> Result<Submitted, ExecuteError> {
        // Events of others depend on no state, so that all but their order is settled without holding anybody up.
        let posted = match command {
            Command::Post(_) => Some(self.prepare(&self.state(), command, context)?),
            _ => None,
        };
        let mut head = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner);
        let prepared = match posted {
            Some(posted) => posted,
            None => match self.prepare(&head, command, context) {
                Err(ExecuteError::Rejected(problems)) => {
                    return Ok(Submitted::RefusedAfter(head.position(), problems));
                }
                prepared => prepared?,
            },
        };
        if prepared.is_empty() {
            return Ok(Submitted::NothingAfter(head.position()));
        }
        // Held over the append, so that whoever sees its records also finds the state that they make.
        let mut sequenced = self.shared.states.sequenced();
        let pending = self.shared.log.append_prepared(prepared, &Expect::Any, None)?;
        for record in pending.records() {
            head.apply(record);
        }
        let state = Arc::new(head.clone());
        sequenced.push_back(Arc::clone(&state));
        Ok(Submitted::Appended(pending, state))
    }

    /// Decides `command` on `state`.
    fn prepare(
        &self,
        state: &State,
        command: &Command,
        context: &Context,
    ) -> Result<Prepared, ExecuteError> {
        let events = decide(state, command, context, &self.shared.rules)?;
        let drafts = events.into_iter().map(|event| draft(event, command, context)).collect();
        Ok(self.shared.log.prepare(drafts)?)
    }

    /// Decides `command` on what is durable, and answers with the state that it would make, without storing anything.
    pub fn validate(&self, command: &Command, context: &Context) -> Result<State, Problems> {
        let mut state = State::clone(&self.state());
        for event in decide(&state, command, context, &self.shared.rules)? {
            let position = state.position().next();
            state.apply(&draft(event, command, context).at(position));
        }
        Ok(state)
    }

    /// The state that everything durable makes.
    pub fn state(&self) -> Arc<State> {
        self.shared.states.at(self.shared.log.last())
    }

    /// The rules that commands are decided by.
    pub fn rules(&self) -> &Rules {
        &self.shared.rules
    }

    /// The records after `after`, gap-free, then new ones as they become durable.
    pub fn subscribe(&self, after: Position) -> Subscription {
        self.shared.log.subscribe(after)
    }

    /// The same for one of many subscribers on the thread that `relay` belongs to.
    pub fn subscribe_through(&self, relay: &Relay, after: Position) -> Subscription {
        self.shared.log.subscribe_through(relay, after)
    }

    /// The records that match `query`; `page` counts from 1.
    pub fn query(&self, query: &Query, page: u64, per_page: u64) -> Result<Page, ReadError> {
        self.shared.log.query(query, page, per_page)
    }

    /// The same, unless the records of the page take more than `bytes_max` on disk.
    pub fn query_within(
        &self,
        query: &Query,
        page: u64,
        per_page: u64,
        bytes_max: usize,
    ) -> Result<Page, ReadError> {
        self.shared.log.query_within(query, page, per_page, bytes_max)
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

impl States {
    /// The state when everything up to `last` is durable.
    fn at(&self, last: Position) -> Arc<State> {
        if self.durable.load().position() < last {
            let mut sequenced = self.sequenced();
            let mut newest = None;
            while sequenced.front().is_some_and(|state| state.position() <= last) {
                newest = sequenced.pop_front();
            }
            if let Some(newest) = newest {
                self.durable.store(newest);
            }
        }
        self.durable.load_full()
    }

    fn sequenced(&self) -> MutexGuard<'_, VecDeque<Arc<State>>> {
        self.sequenced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Folds the whole of `log`, without any snapshot.
pub fn replay(log: &Log) -> Result<State, ReadError> {
    let mut state = State::default();
    fold(log, &mut state)?;
    Ok(state)
}

/// The newest snapshot of the state that belongs to `log`: a state that somebody saw when the log ended there.
pub fn snapshot(log: &Log) -> Option<State> {
    log.snapshot(STATE_FOLD, &state_version(), |position, bytes| {
        let state: State = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        let fits = state.position() == position;
        fits.then_some(state).ok_or_else(|| "it is of another position".to_owned())
    })
}

/// Applies what is in `log` after the position of `state`.
pub fn fold(log: &Log, state: &mut State) -> Result<(), ReadError> {
    let last = log.facts(state.position(), |record| state.apply(record))?;
    state.pass(last);
    Ok(())
}

fn to_bytes(state: &State) -> Vec<u8> {
    serde_json::to_vec(state).expect("a state has text keys only and memory takes all bytes")
}

fn state_version() -> String {
    format!("{STATE_VERSION}-{}", env!("CARGO_PKG_VERSION"))
}

/// An event on its way into the log. Its timestamp is as exact as answers and queries tell it, in milliseconds, so that
/// what is shown is what is compared and sorted.
fn draft(mut event: crate::event::Event, command: &Command, context: &Context) -> Draft {
    event.timestamp = event.timestamp.truncate_to_millisecond();
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
