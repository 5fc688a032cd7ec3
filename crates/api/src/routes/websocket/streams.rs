//! Streams of events and of log lines on a socket: one of each at a time, a new one in place of the earlier.

use super::Outgoing;
use super::message::Wish;
use crate::logs::Lines;
use crate::parameters::Parameters;
use crate::problem::Failure;
use crate::routes::{events, log, stream};
use crate::service::Service;
use actix_web::http::Method;
use actix_web::{rt, web};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

/// The streams of one socket.
pub(super) struct Streams {
    service: web::Data<Service>,
    sender: mpsc::Sender<Outgoing>,
    events: Option<JoinHandle<()>>,
    lines: Option<JoinHandle<()>>,
}

impl Streams {
    pub(super) fn new(service: web::Data<Service>, sender: mpsc::Sender<Outgoing>) -> Self {
        Self { service, sender, events: None, lines: None }
    }

    /// Opens the stream that `wish` asks for; `None` when it asks for something else.
    pub(super) async fn open(&mut self, wish: &Wish) -> Option<Result<(), Failure>> {
        if wish.method() != Method::GET {
            return None;
        }
        match wish.place() {
            "events/stream" => Some(self.open_events(wish).await),
            "log" | "logs" => Some(self.open_lines(wish).await),
            _ => None,
        }
    }

    pub(super) fn are_open(&self) -> bool {
        [&self.events, &self.lines]
            .into_iter()
            .any(|stream| stream.as_ref().is_some_and(|stream| !stream.is_finished()))
    }

    pub(super) fn end(&mut self) {
        for stream in [self.events.take(), self.lines.take()].into_iter().flatten() {
            stream.abort();
        }
    }

    async fn open_events(&mut self, wish: &Wish) -> Result<(), Failure> {
        let running = self.service.running().ok_or_else(crate::request::not_ready)?;
        let parameters = Parameters::parse(&wish.query())?;
        let events = stream::Events::open(&running.store, wish.body(), &parameters, None)?;
        // The earlier one gives its place to this one.
        end(&mut self.events).await;
        let permit = stream::permit(&self.service)?;
        let pump = pump_events(events, wish.clone(), self.sender.clone(), permit);
        self.events = Some(rt::spawn(pump));
        Ok(())
    }

    async fn open_lines(&mut self, wish: &Wish) -> Result<(), Failure> {
        let lines = log::listen(&Parameters::parse(&wish.query())?)?;
        end(&mut self.lines).await;
        let permit = stream::permit(&self.service)?;
        let pump = pump_lines(lines, wish.clone(), self.sender.clone(), permit);
        self.lines = Some(rt::spawn(pump));
        Ok(())
    }
}

/// Ends a stream; afterwards its place among all streams is free.
async fn end(stream: &mut Option<JoinHandle<()>>) {
    if let Some(stream) = stream.take() {
        stream.abort();
        // An error says that it was aborted.
        let _ = stream.await;
    }
}

/// Sends event after event; a client that does not read is not sent to, and nothing is read for it.
async fn pump_events(
    mut events: stream::Events,
    wish: Wish,
    sender: mpsc::Sender<Outgoing>,
    _permit: OwnedSemaphorePermit,
) {
    while let Some(record) = events.next().await {
        let text = wish.format().write(&events::document(&record));
        if sender.send(Outgoing::Text(wish.item(Value::String(text)))).await.is_err() {
            return;
        }
    }
    let failure = Failure::internal("the log cannot be read");
    let _ = sender.send(Outgoing::Text(wish.refuse(&failure, ""))).await;
}

async fn pump_lines(
    mut lines: Lines,
    wish: Wish,
    sender: mpsc::Sender<Outgoing>,
    _permit: OwnedSemaphorePermit,
) {
    while let Some(line) = lines.next().await {
        if sender.send(Outgoing::Text(wish.item(log::document(&line)))).await.is_err() {
            return;
        }
    }
    let failure = Failure::parameter("log lines were lost, since they are not read fast enough");
    let _ = sender.send(Outgoing::Text(wish.refuse(&failure, ""))).await;
}
