//! The WebSocket API: requests and answers of the REST API as messages, and streams beside them (wire, section 13).
//!
//! A socket reads requests, lets each be answered by [`Inside`], and has one writer. Nothing is dropped: when the
//! client does not read, the writer waits, then the answers, then the reading of requests; after a while the socket
//! is closed.

mod inbound;
mod message;
mod streams;

use crate::inside::Inside;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use crate::service::Service;
use actix_web::http::header;
use actix_web::{HttpResponse, rt, web};
use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, ProtocolError, Session,
};
use inbound::Unread;
use message::Wish;
use std::sync::Arc;
use std::time::Duration;
use streams::Streams;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;

/// How long requests under way may take when the service stops.
const FINISH: Duration = Duration::from_secs(4);
/// How many messages may wait to be written; whoever has one more waits.
const WAITING_MAX: usize = 8;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/websocket").unnegotiated().unread().get(open).done());
}

async fn open(mut request: Request) -> Answer {
    let service = request.service.clone();
    let permit = Arc::clone(&service.sockets).try_acquire_owned().map_err(|_| {
        let limit = service.config.settings.api.websocket.sockets_max;
        let detail = format!("{limit} sockets are open already");
        let hint = "close one, or raise api.websocket.sockets_max";
        Failure::too_many(detail, hint, super::stream::RETRY_AFTER_SECONDS)
    })?;
    let bytes_max = service.config.settings.api.max_body.0;
    let (payload, unread) =
        inbound::limited(request.take_payload()?, request.http(), bytes_max).await?;
    let (response, session, messages) = actix_ws::handle(request.http(), payload)
        .map_err(|error| Failure::parameter(format!("no WebSocket handshake: {error}")))?;
    let inside = request.http().app_data::<Inside>().cloned();
    let inside = inside.ok_or_else(|| Failure::internal("the routes are not reachable inside"))?;
    let settings = &service.config.settings.api;
    let messages = messages.max_frame_size(bytes_max).aggregate_continuations();
    let messages = messages.max_continuation_size(bytes_max);
    let (sender, outgoing) = mpsc::channel(WAITING_MAX);
    rt::spawn(write(session, outgoing, settings.sse.write_timeout.0));
    let requests_max = settings.websocket.requests_max.get();
    let socket = Socket {
        caller: Caller { inside, host: request.http().headers().get(header::HOST).cloned() },
        under_way: Arc::new(Semaphore::new(requests_max)),
        requests_max,
        streams: Streams::new(service.clone(), sender.clone()),
        unread,
        sender,
        service,
        _permit: permit,
    };
    rt::spawn(socket.run(messages));
    Ok(response)
}

/// What is written to the client.
enum Outgoing {
    Text(String),
    Ping,
    Pong(web::Bytes),
    Close(CloseReason),
}

/// Asks the REST API in the name of one client.
#[derive(Clone)]
struct Caller {
    inside: Inside,
    /// The host that the client knows the service by.
    host: Option<header::HeaderValue>,
}

/// One client.
struct Socket {
    caller: Caller,
    /// One permit for each request that may be under way.
    under_way: Arc<Semaphore>,
    requests_max: usize,
    streams: Streams,
    unread: Unread,
    sender: mpsc::Sender<Outgoing>,
    service: web::Data<Service>,
    /// Gives the place among the sockets back.
    _permit: OwnedSemaphorePermit,
}

impl Socket {
    /// Reads requests until one side ends.
    async fn run(mut self, mut messages: AggregatedMessageStream) {
        let settings = &self.service.config.settings.api;
        let (idle, keep_alive) = (settings.websocket.idle_timeout.0, settings.sse.keep_alive.0);
        let mut stopping = self.service.stopping.subscribe();
        let mut heard = Instant::now();
        let closing = loop {
            tokio::select! {
                message = messages.recv() => {
                    heard = Instant::now();
                    self.unread.forget();
                    match message {
                        Some(Ok(message)) => match self.take(message).await {
                            Ok(()) => {}
                            Err(reason) => break reason,
                        },
                        Some(Err(_)) if self.unread.is_too_much() => break Some(too_large()),
                        Some(Err(error)) => break Some(refused(&error)),
                        None => break None,
                    }
                }
                () = tokio::time::sleep(keep_alive.min(idle)) => {
                    if self.is_busy() {
                        if self.sender.send(Outgoing::Ping).await.is_err() {
                            break None;
                        }
                    } else if heard.elapsed() >= idle {
                        break Some((CloseCode::Normal, "no request for a while").into());
                    }
                }
                // What it gives is a lock, which nobody is to hold while it waits.
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
                    self.finish().await;
                    break Some((CloseCode::Away, "the service stops").into());
                }
                () = self.sender.closed() => break None,
            }
        };
        self.streams.end();
        if let Some(reason) = closing {
            // An error says that the client is gone already.
            let _ = self.sender.send(Outgoing::Close(reason)).await;
        }
    }

    /// Waits until all requests under way are answered.
    async fn finish(&self) {
        let all = u32::try_from(self.requests_max).unwrap_or(u32::MAX);
        if tokio::time::timeout(FINISH, self.under_way.acquire_many(all)).await.is_err() {
            tracing::warn!("a socket is closed before all of its requests are answered");
        }
    }

    fn is_busy(&self) -> bool {
        self.streams.are_open() || self.under_way.available_permits() < self.requests_max
    }

    /// Acts on one message; an error ends the socket.
    async fn take(&mut self, message: AggregatedMessage) -> Result<(), Option<CloseReason>> {
        match message {
            AggregatedMessage::Text(text) => {
                for wish in message::read(&text) {
                    match wish {
                        Ok(wish) => self.answer(wish).await?,
                        Err(reason) => self.send(message::unreadable(&reason)).await?,
                    }
                }
                Ok(())
            }
            AggregatedMessage::Ping(bytes) => {
                self.sender.send(Outgoing::Pong(bytes)).await.map_err(|_| None)
            }
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Binary(_) => {
                Err(Some((CloseCode::Unsupported, "only text is read").into()))
            }
            AggregatedMessage::Close(_) => Err(Some(CloseCode::Normal.into())),
        }
    }

    /// Has one request answered, beside others; waits while too many are under way.
    async fn answer(&mut self, wish: Wish) -> Result<(), Option<CloseReason>> {
        if let Some(refusal) = self.streams.open(&wish).await {
            return match refusal {
                Ok(()) => Ok(()),
                Err(failure) => self.send(wish.refuse(&failure, &self.service.request_id())).await,
            };
        }
        let permit = Arc::clone(&self.under_way).acquire_owned().await.map_err(|_| None)?;
        let (caller, sender) = (self.caller.clone(), self.sender.clone());
        let service = self.service.clone();
        rt::spawn(async move {
            let answer = match caller.call(&wish).await {
                Ok(response) => wish.answer(response).await,
                Err(failure) => Err(failure),
            };
            let answer =
                answer.unwrap_or_else(|failure| wish.refuse(&failure, &service.request_id()));
            // An error says that the client is gone.
            let _ = sender.send(Outgoing::Text(answer)).await;
            drop(permit);
        });
        Ok(())
    }

    async fn send(&self, text: String) -> Result<(), Option<CloseReason>> {
        self.sender.send(Outgoing::Text(text)).await.map_err(|_| None)
    }
}

impl Caller {
    async fn call(&self, wish: &Wish) -> Result<HttpResponse, Failure> {
        let mut request = wish.request()?;
        if let Some(host) = &self.host {
            request.headers_mut().insert(header::HOST, host.clone());
        }
        let answered = self.inside.call(request).await;
        answered.ok_or_else(|| Failure::internal("the routes did not answer"))
    }
}

/// Writes until the socket ends, or the client does not read for too long.
async fn write(mut session: Session, mut outgoing: mpsc::Receiver<Outgoing>, patience: Duration) {
    while let Some(message) = outgoing.recv().await {
        let written = async {
            match message {
                Outgoing::Text(text) => session.text(text).await,
                Outgoing::Ping => session.ping(b"").await,
                Outgoing::Pong(bytes) => session.pong(&bytes).await,
                Outgoing::Close(reason) => {
                    // The session is not needed any more, and its clones are closed with it.
                    let _ = session.clone().close(Some(reason)).await;
                    Err(actix_ws::Closed)
                }
            }
        };
        match tokio::time::timeout(patience, written).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                tracing::info!("a socket is closed: its client does not read");
                return;
            }
        }
    }
}

fn refused(error: &ProtocolError) -> CloseReason {
    match error {
        ProtocolError::Overflow => too_large(),
        error => (CloseCode::Protocol, error.to_string()).into(),
    }
}

fn too_large() -> CloseReason {
    (CloseCode::Size, "a message is larger than `api.max_body`").into()
}
