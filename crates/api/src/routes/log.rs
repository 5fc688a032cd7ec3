//! The service's log lines as a stream (wire, section 11.3).

use super::{events, stream};
use crate::logs::{Line, Lines};
use crate::parameters::Parameters;
use crate::problem::Failure;
use crate::request::{Answer, Request, Route};
use actix_web::web;
use actix_web::web::Bytes;
use futures::Stream;
use serde_json::Value;
use std::io;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tracing::level_filters::LevelFilter;

pub(super) fn configure(config: &mut web::ServiceConfig) {
    config.service(Route::at("/{path:log|logs}").unnegotiated().get(lines).done());
}

/// The lines that the parameters ask for.
pub(super) fn listen(parameters: &Parameters) -> Result<Lines, Failure> {
    let level = parameters.first("level").unwrap_or("INFO");
    let level: LevelFilter = match &level.to_ascii_uppercase()[..] {
        "TRACE" => LevelFilter::TRACE,
        "DEBUG" => LevelFilter::DEBUG,
        "INFO" => LevelFilter::INFO,
        "WARN" => LevelFilter::WARN,
        "ERROR" => LevelFilter::ERROR,
        "OFF" => LevelFilter::OFF,
        _ => {
            let failure = Failure::parameter(format!("parameter 'level' cannot be '{level}'"));
            return Err(failure.hint("give TRACE, DEBUG, INFO, WARN, ERROR or OFF"));
        }
    };
    Ok(Lines::listen(level, parameters.first("logger").unwrap_or_default()))
}

/// The form that a line has for clients.
pub(super) fn document(line: &Line) -> Value {
    line.document(&events::timestamp(line.timestamp))
}

async fn lines(request: Request) -> Answer {
    let lines = listen(&request.parameters)?;
    let service = &request.service;
    let frames = Frames {
        lines,
        keep_alive: service.config.settings.api.sse.keep_alive.0,
        stopping: service.stopping.subscribe(),
        _permit: stream::permit(service)?,
    };
    Ok(stream::respond(frames.into_stream()))
}

/// What is sent to one client.
struct Frames {
    lines: Lines,
    keep_alive: Duration,
    stopping: watch::Receiver<bool>,
    /// Gives the place among the streams back when the client is gone.
    _permit: OwnedSemaphorePermit,
}

impl Frames {
    fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> {
        futures::stream::unfold(self, |mut frames| async {
            let frame = frames.next().await?;
            Some((frame, frames))
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        tokio::select! {
            line = self.lines.next() => match line {
                Some(line) => {
                    Some(Ok(Bytes::from(format!("event: log\ndata: {}\n\n", document(&line)))))
                }
                None => Some(Err(io::Error::other("the client reads too slowly"))),
            },
            () = tokio::time::sleep(self.keep_alive) => Some(Ok(stream::KEEP_ALIVE)),
            _ = self.stopping.wait_for(|stopping| *stopping) => None,
        }
    }
}
