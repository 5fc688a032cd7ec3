//! Acts on events that ask for escalation, whoever appended them: each once, in the order of their positions (runtime,
//! section 13.2).
//!
//! What an event leads to is decided with the command that reports it; this worker only finds the events. How far it
//! came is in the state, so that nothing is done twice or left out when the service is killed in between.

use crate::driver::Error;
use crate::turn::{Turn, Worker};
use async_trait::async_trait;
use segue_domain::command::{DEESCALATE, ESCALATE, EscalationEvent, Report};
use segue_domain::event::{Position, Query, Tags};
use segue_domain::log::ReadError;
use segue_domain::state::State;
use segue_domain::store::Store;
use std::collections::BTreeMap;
use std::time::Duration;
use time::OffsetDateTime;

/// How many events are remembered ahead.
const AHEAD_MAX: usize = 1000;
/// How many records are read at once.
const CHUNK_RECORDS: usize = 1000;

/// The worker that acts on escalation events.
pub struct EscalationWorker {
    store: Store,
    /// Up to where the log was searched; none before the first turn.
    searched: Option<Position>,
    /// Events found there that are not acted on yet, by position.
    found: BTreeMap<Position, EscalationEvent>,
}

impl EscalationWorker {
    /// A worker that looks for events in the log of `store`.
    pub fn new(store: Store) -> Self {
        Self { store, searched: None, found: BTreeMap::new() }
    }

    /// Finds the events after those that were acted on.
    fn search(&mut self, state: &State) -> Result<(), ReadError> {
        let (done, last) = (state.escalated(), state.position());
        self.found = self.found.split_off(&done.next());
        let mut at = match self.searched {
            Some(searched) => searched.max(done),
            None => self.look_up(done, last)?,
        };
        while at < last && self.found.len() < AHEAD_MAX {
            let records = self.store.log().read(at, CHUNK_RECORDS)?;
            let Some(newest) = records.last().map(|record| record.position) else { break };
            for record in &records {
                let event = EscalationEvent::of_record(record);
                self.found.extend(event.map(|event| (record.position, event)));
            }
            at = newest;
        }
        self.searched = Some(at);
        Ok(())
    }

    /// Finds the events after `done` and up to `last` by their tags, which is quicker than reading everything. Gives
    /// the position up to which none is missing.
    fn look_up(&mut self, done: Position, last: Position) -> Result<Position, ReadError> {
        let mut complete = last;
        for tag in [ESCALATE, DEESCALATE] {
            let query = Query { tags: vec![tag.to_owned()], ..Query::default() };
            for page in 1.. {
                let records = self.store.query(&query, page, CHUNK_RECORDS as u64)?.records;
                for record in &records {
                    let is_new = record.position > done && record.position <= complete;
                    let event = EscalationEvent::of_record(record);
                    if let Some(event) = event.filter(|_| is_new) {
                        self.found.insert(record.position, event);
                    }
                    if self.found.len() > AHEAD_MAX {
                        self.found.pop_last();
                        // What comes after those that are kept is read later.
                        complete = self.found.keys().last().copied().unwrap_or(done);
                    }
                }
                if records.len() < CHUNK_RECORDS {
                    break;
                }
            }
        }
        Ok(complete)
    }
}

/// Whether the event with `tags` asks for escalation.
pub fn concerns(tags: &Tags) -> bool {
    tags.contains(ESCALATE) || tags.contains(DEESCALATE)
}

#[async_trait]
impl Worker for EscalationWorker {
    fn actor(&self) -> String {
        "worker:escalation".to_owned()
    }

    /// Acts on one event, since each is a cause of its own; then the next turn follows at once.
    async fn turn(&mut self, state: &State, _now: OffsetDateTime) -> Result<Turn, Error> {
        self.search(state).map_err(|error| Error::Transient(format!("the log: {error}")))?;
        let Some((position, event)) = self.found.first_key_value() else {
            return Ok(Turn::default());
        };
        let mut turn = Turn {
            reports: vec![Report::Escalation(event.clone())],
            cause: Some(*position),
            ..Turn::default()
        };
        turn.look_again(Duration::ZERO);
        Ok(turn)
    }
}
