//! The stream of events (wire, section 11.2).
//!
//! The client pulls: nothing is queued for it beyond what its connection takes, and a connection that takes nothing
//! is closed by the operating system after `api.sse.write_timeout`.

use super::{Frames, events};
use crate::parameters::Parameters;
use crate::problem::Failure;
use crate::relay;
use crate::request::{Answer, Request};
use crate::service::Service;
use actix_web::HttpResponse;
use actix_web::http::header;
use actix_web::web::Bytes;
use futures::{FutureExt, Stream, StreamExt, stream};
use segue_domain::event::{Position, Query, Record, TimeRange};
use segue_domain::log::Subscription;
use segue_domain::store::Store;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};

const LAST_EVENT_ID: header::HeaderName = header::HeaderName::from_static("last-event-id");

/// How much is sent at once when more is ready.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a client that found all places taken may wait before it tries again, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u32 = 5;

/// A comment, which says that the stream is alive.
pub(super) const KEEP_ALIVE: Bytes = Bytes::from_static(b": \n\n");

/// The events that one client asked for.
pub(super) struct Events {
    records: Subscription,
    query: Query,
}

impl Events {
    /// Events that match `body`, or else `parameters`, after the position `from`; without it those to come.
    pub(super) fn open(
        store: &Store,
        body: &str,
        parameters: &Parameters,
        from: Option<&str>,
    ) -> Result<Self, Failure> {
        let query = events::query(body, parameters)?.query;
        let query = Query { time: TimeRange::default(), ..query };
        let last = store.log().last();
        let after = match from.or(parameters.first("from")) {
            Some(text) => position(text)?.min(last),
            None => last,
        };
        Ok(Self { records: store.subscribe_through(&relay::here(store), after), query })
    }

    /// The next of them; `None` when there will be none, which is logged. May be dropped while it waits.
    pub(super) async fn next(&mut self) -> Option<Arc<Record>> {
        loop {
            match self.records.next().await? {
                Ok(record) if self.query.matches(&record.event) => return Some(record),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!("an event stream ends: {error}");
                    return None;
                }
            }
        }
    }
}

/// An answer that goes on.
pub(super) fn respond(frames: impl Stream<Item = io::Result<Bytes>> + 'static) -> HttpResponse {
    HttpResponse::Ok()
        .content_type("text/event-stream")
        // Says to the compression that there is none; taken away again before the answer leaves.
        .insert_header(header::ContentEncoding::Identity)
        .streaming(frames)
}

/// A place among the streams.
pub(super) fn permit(service: &Service) -> Result<OwnedSemaphorePermit, Failure> {
    Arc::clone(&service.streams).try_acquire_owned().map_err(|_| {
        let limit = service.config.settings.api.sse.streams_max;
        let detail = format!("{limit} streams are open already");
        Failure::too_many(detail, "close one, or raise api.sse.streams_max", RETRY_AFTER_SECONDS)
    })
}

pub(super) async fn events(request: Request) -> Answer {
    let from = request.header(&LAST_EVENT_ID)?;
    let store = &request.running()?.store;
    let events = Events::open(store, &request.body, &request.parameters, from)?;
    let service = &request.service;
    let frames = Sent {
        events,
        keep_alive: service.config.settings.api.sse.keep_alive.0,
        stopping: service.stopping.subscribe(),
        frames: Arc::clone(&service.frames),
        _permit: permit(service)?,
    };
    Ok(respond(frames.into_stream()))
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
    events: Events,
    keep_alive: Duration,
    stopping: watch::Receiver<bool>,
    /// Made once for all streams.
    frames: Arc<Frames>,
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
        let first = tokio::select! {
            record = self.events.next() => record,
            () = tokio::time::sleep(self.keep_alive) => return Some(Ok(KEEP_ALIVE)),
            _ = self.stopping.wait_for(|stopping| *stopping) => return None,
        };
        Some(match first {
            Some(record) => Ok(self.with_ready(self.frames.of(&record))),
            None => Err(io::Error::other("the log cannot be read")),
        })
    }

    /// What need not be waited for goes out in one write.
    fn with_ready(&mut self, first: Bytes) -> Bytes {
        let mut chunk = Vec::new();
        while first.len() + chunk.len() < CHUNK_BYTES
            && let Some(Some(record)) = self.events.next().now_or_never()
        {
            chunk.extend_from_slice(&self.frames.of(&record));
        }
        // One event alone is the same bytes for all streams.
        if chunk.is_empty() { first } else { [&first[..], &chunk].concat().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::StatusCode;
    use segue_domain::command::Rules;
    use segue_domain::event::TAGS_MAX;

    #[test]
    fn a_stream_has_so_many_tags_and_no_more() {
        let store = Store::in_memory(Rules::default()).unwrap();
        let tags = |parameter: &str, count: usize| vec![parameter; count].join("&");
        for parameters in [tags("tag=a", TAGS_MAX + 1), tags("tag=a&tags=b", TAGS_MAX)] {
            let parameters = Parameters::parse(&parameters).unwrap();
            let refused = Events::open(&store, "", &parameters, None).err().unwrap();
            assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        }
        let body = format!("tags: [{}]", vec!["a"; TAGS_MAX + 1].join(", "));
        let refused = Events::open(&store, &body, &Parameters::default(), None).err().unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    }

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
