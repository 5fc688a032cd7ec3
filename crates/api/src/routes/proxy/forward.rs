//! Passes one request on to one target, and what it answers back: bytes as they are, upgraded connections included.

use super::Target;
use crate::problem::Failure;
use crate::request::{Answer, Request};
use crate::routes::stream;
use actix_web::body::{BodyStream, None as NoBody, SizedStream};
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::web::{Bytes, Payload};
use actix_web::{HttpResponse, HttpResponseBuilder, rt};
use futures::{Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use segue_domain::problem::ProblemKind;
use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadHalf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// How long a target may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much is read at once from an upgraded connection.
const CHUNK_BYTES: usize = 16 * 1024;
/// What belongs to one connection, and so is never passed on.
const HOP_BY_HOP: [HeaderName; 7] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
];

type Body = std::pin::Pin<Box<dyn hyper::body::Body<Data = Bytes, Error = io::Error>>>;

/// Passes `request` on to `target`.
pub(super) async fn forward(mut request: Request, target: Target) -> Answer {
    let address = format!("{}:{}", target.host, target.port);
    let failed = |reason: String| {
        Failure::new(ProblemKind::BadGateway, format!("{address} is not available: {reason}"))
    };
    let connection = TcpStream::connect((target.host.as_str(), target.port));
    let connection = tokio::time::timeout(CONNECT_TIMEOUT, connection)
        .await
        .map_err(|_| failed(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    let upgrade = upgrade(request.http().headers());
    // Held as long as the answer goes on.
    let permit = stream::permit(&request.service)?;
    let (payload, too_large) = (request.take_payload()?, Rc::new(Cell::new(false)));
    let (inbound, body) = if upgrade.is_some() {
        (Some(payload), empty())
    } else {
        (None, limited(&request, payload, Rc::clone(&too_large))?)
    };
    let (mut sender, connection) = http1::handshake::<_, Body>(TokioIo::new(connection))
        .await
        .map_err(|error| failed(error.to_string()))?;
    let connection = connection.with_upgrades();
    rt::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("a proxied connection ended badly: {error}");
        }
    });
    let asked = asked(&request, &target, &address, body, upgrade)?;
    let answer = sender.send_request(asked).await.map_err(|error| {
        if too_large.get() { request.too_large() } else { failed(error.to_string()) }
    })?;
    match inbound {
        Some(inbound) if answer.status() == hyper::StatusCode::SWITCHING_PROTOCOLS => {
            tunnel(answer, inbound, Hold::new(&request, permit)).await
        }
        _ => Ok(respond(answer, Hold::new(&request, permit))),
    }
}

/// What an answer that goes on holds until it ends.
struct Hold {
    stopping: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
}

impl Hold {
    fn new(request: &Request, permit: OwnedSemaphorePermit) -> Self {
        Self { stopping: request.service.stopping.subscribe(), _permit: permit }
    }
}

/// The protocol that the client wants to change to, when that is `websocket`. Other wishes, such as for HTTP/2, are
/// not passed on, which a client has to be content with.
fn upgrade(headers: &HeaderMap) -> Option<HeaderValue> {
    let connection = headers.get(header::CONNECTION)?.to_str().ok()?.to_ascii_lowercase();
    let wanted = connection.split(',').any(|word| word.trim() == "upgrade");
    let is_known = |name: &&HeaderValue| name.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.get(header::UPGRADE).filter(|_| wanted).filter(is_known).cloned()
}

/// The request as the target gets it: everything but what belongs to the client's own connection.
fn asked(
    request: &Request,
    target: &Target,
    address: &str,
    body: Body,
    upgrade: Option<HeaderValue>,
) -> Result<hyper::Request<Body>, Failure> {
    let http = request.http();
    let path = match http.uri().query() {
        Some(query) => format!("{}?{query}", target.path),
        None => target.path.clone(),
    };
    let mut asked = hyper::Request::builder().method(http.method().as_str()).uri(path);
    let own = connection_headers(http.headers());
    for (name, value) in http.headers() {
        let of_connection = HOP_BY_HOP.contains(name) || own.contains(name);
        if !of_connection && name != header::UPGRADE {
            asked = asked.header(name.as_str(), value.as_bytes());
        }
    }
    if http.headers().contains_key(header::TRANSFER_ENCODING) && !body.is_end_stream() {
        // Said again, since a GET would lose its body otherwise.
        asked = asked.header("transfer-encoding", "chunked");
    }
    if let Some(upgrade) = upgrade {
        asked = asked.header("connection", "upgrade").header("upgrade", upgrade.as_bytes());
    }
    if !http.headers().contains_key(header::HOST) {
        asked = asked.header("host", address);
    }
    asked.body(body).map_err(|error| Failure::parameter(format!("it cannot be passed on: {error}")))
}

/// Headers that `Connection` declares to belong to the connection.
fn connection_headers(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(header::CONNECTION).filter_map(|value| value.to_str().ok());
    let names = values.flat_map(|value| value.split(','));
    names.filter_map(|name| HeaderName::try_from(name.trim()).ok()).collect()
}

fn empty() -> Body {
    Box::pin(http_body_util::Empty::new().map_err(|never| match never {}))
}

/// The client's body, up to `api.max_body`.
fn limited(
    request: &Request,
    payload: Payload,
    too_large: Rc<Cell<bool>>,
) -> Result<Body, Failure> {
    let headers = request.http().headers();
    let has_body = headers.contains_key(header::CONTENT_LENGTH)
        || headers.contains_key(header::TRANSFER_ENCODING);
    if !has_body {
        return Ok(empty());
    }
    let max = request.service.config.settings.api.max_body.0;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if length.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > max) {
        return Err(request.too_large());
    }
    let mut left = max;
    let frames = payload.map(move |chunk| {
        let chunk = chunk.map_err(io::Error::other)?;
        if let Some(rest) = left.checked_sub(chunk.len()) {
            left = rest;
        } else {
            too_large.set(true);
            return Err(io::Error::other("the body is too large"));
        }
        Ok(Frame::data(chunk))
    });
    Ok(Box::pin(StreamBody::new(frames)))
}

/// The head of the answer, without what belongs to the target's own connection.
fn head(answer: &hyper::Response<Incoming>) -> HttpResponseBuilder {
    let status = StatusCode::from_u16(answer.status().as_u16());
    let mut response = HttpResponseBuilder::new(status.unwrap_or(StatusCode::BAD_GATEWAY));
    for (name, value) in answer.headers() {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        let value = HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value)
            && !HOP_BY_HOP.contains(&name)
        {
            response.append_header((name, value));
        }
    }
    if !answer.headers().contains_key("content-encoding") {
        // Says to the compression that there is none; taken away again before the answer leaves.
        response.insert_header(header::ContentEncoding::Identity);
    }
    response
}

fn respond(answer: hyper::Response<Incoming>, hold: Hold) -> HttpResponse {
    let mut response = head(&answer);
    if matches!(answer.status().as_u16(), 204 | 304) {
        // There is no body, whatever length is told.
        return response.body(NoBody::new());
    }
    let length = answer.headers().get("content-length").and_then(|length| length.to_str().ok());
    let length = length.and_then(|length| length.parse().ok());
    let body = futures::stream::unfold((answer.into_body(), hold), |(mut body, hold)| async move {
        let chunk = loop {
            match body.frame().await? {
                Ok(frame) => {
                    // Trailers belong to the target's own connection.
                    if let Ok(data) = frame.into_data() {
                        break Ok(data);
                    }
                }
                Err(error) => break Err(io::Error::other(error)),
            }
        };
        Some((chunk, (body, hold)))
    });
    match length {
        Some(length) => response.body(SizedStream::new(length, body)),
        None => response.body(BodyStream::new(body)),
    }
}

/// Bytes both ways until one side ends.
async fn tunnel(mut answer: hyper::Response<Incoming>, inbound: Payload, hold: Hold) -> Answer {
    let upgraded = hyper::upgrade::on(&mut answer).await.map_err(|error| {
        Failure::new(ProblemKind::BadGateway, format!("the target does not change over: {error}"))
    })?;
    let protocol = answer.headers().get("upgrade").and_then(|name| name.to_str().ok());
    let mut response = head(&answer);
    response.upgrade(protocol.unwrap_or("websocket"));
    let (read, mut write) = tokio::io::split(TokioIo::new(upgraded));
    let mut stopping = hold.stopping.clone();
    rt::spawn(async move {
        let mut inbound = inbound;
        let pass = async {
            while let Some(Ok(chunk)) = inbound.next().await {
                if write.write_all(&chunk).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = pass => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
        // The target may be gone already.
        let _ = write.shutdown().await;
    });
    Ok(response.streaming(outbound(read, hold)))
}

/// What the target says on a connection that was changed over.
fn outbound<S: AsyncRead>(read: ReadHalf<S>, hold: Hold) -> impl Stream<Item = io::Result<Bytes>> {
    futures::stream::unfold((read, hold), |(mut read, mut hold)| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        let count = tokio::select! {
            count = read.read(&mut chunk) => count,
            _ = hold.stopping.wait_for(|stopping| *stopping) => return None,
        };
        match count {
            Ok(0) => None,
            Ok(count) => {
                chunk.truncate(count);
                Some((Ok(Bytes::from(chunk)), (read, hold)))
            }
            Err(error) => Some((Err(error), (read, hold))),
        }
    })
}
