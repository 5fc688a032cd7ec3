//! Requests that are carried out once, however often they are sent.
//!
//! A client names its request with a key. What the request is answered with is kept in the log as a receipt, durable
//! together with its records, so that a repeated request is answered as the first one was, whatever happened since,
//! also after a restart. Refused requests leave no receipt: they are decided anew.

use super::{ExecuteError, Executed, Store, draft};
use crate::command::{Command, Context, decide};
use crate::event::{Draft, Position, Record};
use crate::log::{AppendError, Expect, Receipt};
use crate::problem::{Problem, ProblemKind, Problems};
use crate::state::State;
use futures::future::{BoxFuture, FutureExt, Shared};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Frozen: one byte of version, the fingerprint of the request, and what it was answered with.
const VERSION: u8 = 1;
const FINGERPRINT_BYTES: usize = 32;

/// The key of a request, and what tells the request from others that are given the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestKey {
    key: [u8; 32],
    fingerprint: [u8; FINGERPRINT_BYTES],
}

/// What became of a request with a key.
#[derive(Clone, Debug)]
pub enum Once {
    /// It was carried out now.
    Now(Executed),
    /// It was carried out before; this is what was kept of it.
    Before(Vec<u8>),
}

/// Receipts that are not durable yet, oldest first: no more than the log lets wait for the disk.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<VecDeque<Waiting>>);

struct Waiting {
    receipt: Receipt,
    durable: Durable,
}

/// Resolves once something is durable, or never will be.
type Durable = Shared<BoxFuture<'static, Result<(), AppendError>>>;

impl RequestKey {
    /// The key `key` of a request that consists of `parts`.
    pub fn new(key: &str, parts: &[&str]) -> Self {
        let mut fingerprint = Sha256::new();
        for part in parts {
            fingerprint.update((part.len() as u64).to_le_bytes());
            fingerprint.update(part.as_bytes());
        }
        Self {
            key: Sha256::digest(key.as_bytes()).into(),
            fingerprint: fingerprint.finalize().into(),
        }
    }

    fn receipt(&self, answer: &[u8]) -> Receipt {
        let mut content = vec![VERSION];
        content.extend_from_slice(&self.fingerprint);
        content.extend_from_slice(answer);
        Receipt { key: self.key, content }
    }

    /// The answer in a receipt of this key; refused when it was given to another request.
    fn answer(&self, content: &[u8]) -> Result<Vec<u8>, Problems> {
        let parts = content.strip_prefix(&[VERSION]);
        let parts = parts.and_then(|rest| rest.split_at_checked(FINGERPRINT_BYTES));
        match parts {
            Some((fingerprint, answer)) if *fingerprint == self.fingerprint => Ok(answer.to_vec()),
            _ => {
                let detail = "the idempotency key was given to another request before";
                let problem = Problem::new(ProblemKind::IdempotencyKeyReused, "", detail);
                Err(problem.hint("repeat that request unchanged, or take a new key").into())
            }
        }
    }
}

impl Store {
    /// Does what [`Store::execute`] does, unless a request with this key was carried out before: then nothing is
    /// done, and what was kept of it is given back once it is durable. `answer` makes what is kept of what was done;
    /// when it makes nothing, nothing is kept.
    pub async fn execute_once(
        &self,
        command: &Command,
        context: &Context,
        key: &RequestKey,
        answer: impl FnOnce(&Executed) -> Option<Vec<u8>>,
    ) -> Result<Once, ExecuteError> {
        let (outcome, durable) = self.begin_once(command, context, key, answer)?;
        // A refusal waits, too: what it was decided on may still be lost.
        durable.await?;
        self.state();
        Ok(outcome?)
    }

    /// What the request comes to, and when that may be told.
    fn begin_once(
        &self,
        command: &Command,
        context: &Context,
        key: &RequestKey,
        answer: impl FnOnce(&Executed) -> Option<Vec<u8>>,
    ) -> Result<(Result<Once, Problems>, Durable), ExecuteError> {
        let mut head = self.shared.head.lock().unwrap_or_else(PoisonError::into_inner);
        let mut under_way = self.shared.once.0.lock().unwrap_or_else(PoisonError::into_inner);
        // They become durable in order.
        while under_way.front().is_some_and(|first| first.durable.clone().now_or_never().is_some())
        {
            under_way.pop_front();
        }
        if let Some(first) = under_way.iter().find(|other| other.receipt.key == key.key) {
            let answered = key.answer(&first.receipt.content).map(Once::Before);
            return Ok((answered, first.durable.clone()));
        }
        let log = &self.shared.log;
        if let Some(content) = log.receipt(&key.key)? {
            let answered = key.answer(&content).map(Once::Before);
            return Ok((answered, self.durable_up_to(Position::START)));
        }
        let events = match decide(&head, command, context, &self.shared.rules) {
            Ok(events) => events,
            Err(problems) => return Ok((Err(problems), self.durable_up_to(head.position()))),
        };
        let drafts: Vec<Draft> =
            events.into_iter().map(|event| draft(event, command, context)).collect();
        let executed = self.foresee(&head, &drafts);
        let receipt = answer(&executed).map(|answer| key.receipt(&answer));
        if executed.records.is_empty() && receipt.is_none() {
            return Ok((Ok(Once::Now(executed)), self.durable_up_to(head.position())));
        }
        let mut sequenced = self.shared.states.sequenced();
        let pending = log.append_with(drafts, &Expect::Any, receipt.clone())?;
        if !executed.records.is_empty() {
            *head = State::clone(&executed.state);
            sequenced.push_back(Arc::clone(&executed.state));
        }
        let durable = pending.durable().map(|outcome| outcome.map(|_| ())).boxed().shared();
        if let Some(receipt) = receipt {
            under_way.push_back(Waiting { receipt, durable: durable.clone() });
        }
        Ok((Ok(Once::Now(executed)), durable))
    }

    /// Resolves once everything up to `position` is durable.
    fn durable_up_to(&self, position: Position) -> Durable {
        let log = self.shared.log.clone();
        async move { log.wait_for(position).await }.boxed().shared()
    }

    /// What was kept of the request with this key, when that is durable.
    pub fn answered(&self, key: &RequestKey) -> Result<Option<Vec<u8>>, ExecuteError> {
        let content = self.shared.log.receipt(&key.key)?;
        Ok(content.map(|content| key.answer(&content)).transpose()?)
    }

    /// The records that `drafts` will be when they are appended next, and the state that they make.
    fn foresee(&self, head: &State, drafts: &[Draft]) -> Executed {
        let mut state = head.clone();
        let mut position = self.shared.log.next();
        let mut records = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let record: Record = draft.clone().at(position);
            state.apply(&record);
            records.push(Arc::new(record));
            position = position.next();
        }
        Executed { records, state: Arc::new(state) }
    }
}
