//! What a client of a socket sends, with a limit on what is kept until it is a whole message.
//!
//! The library looks at the size of a frame when all of it has come, so that one that declares any length would be kept
//! as long as its client goes on.

use crate::problem::Failure;
use actix_web::error::PayloadError;
use actix_web::web::{Bytes, Payload};
use actix_web::{FromRequest, HttpRequest, dev};
use futures::StreamExt;
use std::cell::Cell;
use std::rc::Rc;

/// What comes beside the text of a message: heads of its frames, and what was sent behind it already.
const MORE_BYTES: usize = 128 * 1024;

/// How much came since the last whole message.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Rc<Cell<usize>>,
    bytes_max: usize,
}

/// `payload`, which ends with an error once more came than a message of `bytes_max` and a frame beside it take.
pub(super) async fn limited(
    payload: Payload,
    http: &HttpRequest,
    bytes_max: usize,
) -> Result<(Payload, Unread), Failure> {
    let bytes_max = bytes_max.saturating_mul(2).saturating_add(MORE_BYTES);
    let unread = Unread { bytes: Rc::default(), bytes_max };
    let counted = unread.clone();
    let chunks = payload.map(move |chunk: Result<Bytes, PayloadError>| {
        let chunk = chunk?;
        counted.add(chunk.len());
        if counted.is_too_much() { Err(PayloadError::Overflow) } else { Ok(chunk) }
    });
    let mut payload = dev::Payload::Stream { payload: chunks.boxed_local() };
    let limited = Payload::from_request(http, &mut payload).await;
    limited.map(|payload| (payload, unread)).map_err(|error| Failure::internal(error.to_string()))
}

impl Unread {
    /// A message is whole.
    pub(super) fn forget(&self) {
        if !self.is_too_much() {
            self.bytes.set(0);
        }
    }

    pub(super) fn is_too_much(&self) -> bool {
        self.bytes.get() > self.bytes_max
    }

    fn add(&self, bytes: usize) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }
}
