//! The stream of events (wire, section 11.2).
//!
//! The client pulls: nothing is queued for it beyond what its connection takes, and a connection that takes nothing
//! is closed by the operating system after `api.sse.write_timeout`.

use super::{Frames, events};
use crate::problem::Failure;
use crate::request::{Answer, Request};
use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use segue_domain::event::{Position, Query, Record, TimeRange};
use segue_domain::log::{ReadError, Subscription};
use segue_domain::problem::ProblemKind;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

const LAST_EVENT_ID: header::HeaderName = header::HeaderName::from_static("last-event-id");

/// A comment, which says that the stream is alive.
const KEEP_ALIVE: Bytes = Bytes::from_static(b": \n\n");
/// How much is sent at once when more is ready.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a client that was refused may wait before it tries again, in seconds.
const RETRY_AFTER_SECONDS: &str = "5";

pub(super) async fn events(request: Request) -> Answer {
    let query = events::query(&request.body, &request.parameters)?.query;
    let query = Query { time: TimeRange::default(), ..query };
    let store = &request.running()?.store;
    let last = store.log().last();
    let after = match request.header(&LAST_EVENT_ID)?.or(request.parameters.first("from")) {
        Some(text) => position(text)?.min(last),
        None => last,
    };
    let service = &request.service;
    let permit = Arc::clone(&service.streams).try_acquire_owned().map_err(|_| {
        let limit = service.config.settings.api.sse.streams_max;
        let failure = Failure::new(
            ProblemKind::TooManyRequests,
            format!("{limit} event streams are open already"),
        );
        failure
            .hint("close one, or raise api.sse.streams_max")
            .header(header::RETRY_AFTER, RETRY_AFTER_SECONDS)
    })?;
    let frames = Sent {
        records: store.subscribe(after),
        query,
        keep_alive: service.config.settings.api.sse.keep_alive.0,
        stopping: service.stopping.subscribe(),
        frames: Arc::clone(&service.frames),
        failed: false,
        _permit: permit,
    };
    Ok(HttpResponse::Ok()
        .content_type("text/event-stream")
        // Says to the compression that there is none; taken away again before the answer leaves.
        .insert_header(header::ContentEncoding::Identity)
        .streaming(frames.into_stream()))
}

fn position(text: &str) -> Result<Position, Failure> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        let failure =
            Failure::parameter(format!("'{text}' is no position in the stream of events"));
        return Err(failure.hint("give the id of the last event seen, or 0 for all"));
    }
    Ok(Position(text.parse().unwrap_or(u64::MAX)))
}

/// What is sent to one client.
struct Sent {
    records: Subscription,
    query: Query,
    keep_alive: Duration,
    stopping: watch::Receiver<bool>,
    /// Made once for all streams.
    frames: Arc<Frames>,
    failed: bool,
    /// Gives the place among the streams back when the client is gone.
    _permit: OwnedSemaphorePermit,
}

impl Sent {
    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::unfold(self, |mut sent| async {
            let chunk = sent.next().await?;
            Some((chunk, sent))
        })
    }

    /// The next matching event and those that are ready behind it, or a comment after a while without one; the end
    /// when the service stops.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let silence_ends = Instant::now() + self.keep_alive;
        while !self.failed {
            let record = tokio::select! {
                record = self.records.next() => record?,
                () = tokio::time::sleep_until(silence_ends) => return Some(Ok(KEEP_ALIVE)),
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
            };
            if let Some(frame) = self.frame(record) {
                return Some(Ok(self.with_ready(frame)));
            }
        }
        Some(Err(io::Error::other("the log cannot be read")))
    }

    /// What need not be waited for goes out in one write.
    fn with_ready(&mut self, first: Bytes) -> Bytes {
        let mut chunk = Vec::new();
        while first.len() + chunk.len() < CHUNK_BYTES
            && !self.failed
            && let Some(Some(record)) = self.records.next().now_or_never()
        {
            if let Some(frame) = self.frame(record) {
                chunk.extend_from_slice(&frame);
            }
        }
        // One event alone is the same bytes for all streams.
        if chunk.is_empty() { first } else { [&first[..], &chunk].concat().into() }
    }

    /// The frame of a record that matches.
    fn frame(&mut self, record: Result<Arc<Record>, ReadError>) -> Option<Bytes> {
        match record {
            Ok(record) => self.query.matches(&record.event).then(|| self.frames.of(&record)),
            Err(error) => {
                tracing::error!("an event stream ends: {error}");
                self.failed = true;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(position(text).ok(), expected.map(Position), "{text}");
        };
        check("0", Some(0));
        check("4711", Some(4711));
        check("99999999999999999999999", Some(u64::MAX));
        check("", None);
        check("-1", None);
        check("+1", None);
        check("x", None);
    }
}
