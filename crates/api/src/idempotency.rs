//! Writes with an `Idempotency-Key`: a repeated one is answered as the first was, and does nothing.
//!
//! What was answered is kept in the log, durable together with what was done. Only writes that succeeded leave a trace;
//! a refused one is decided anew. See docs/decisions/0009.

use crate::parameters;
use crate::problem::Failure;
use crate::relay;
use crate::request::{Answer, Request};
use actix_web::HttpResponse;
use actix_web::http::{Method, StatusCode, header};
use segue_domain::command::Command;
use segue_domain::event::Position;
use segue_domain::store::{ExecuteError, Executed, Once, RequestKey};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

const IDEMPOTENCY_KEY: header::HeaderName = header::HeaderName::from_static("idempotency-key");
/// The media type of answers that are no documents.
pub const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// How long a key may be.
pub const KEY_BYTES_MAX: usize = 255;

/// What a write is answered with, in no form yet. Kept in the log as JSON: members may be added, never changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Reply {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Position>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Box<RawValue>>,
    /// Plain text instead of a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

impl Reply {
    /// With a document.
    pub fn document(
        status: StatusCode,
        revision: Option<Position>,
        document: &impl Serialize,
    ) -> Result<Self, Failure> {
        let document = serde_json::value::to_raw_value(document);
        let document = document.map_err(|error| Failure::internal(error.to_string()))?;
        Ok(Self { status: status.as_u16(), revision, document: Some(document), text: None })
    }

    /// With plain text.
    pub fn text(status: StatusCode, text: impl Into<String>) -> Self {
        let text = Some(text.into());
        Self { status: status.as_u16(), revision: None, document: None, text }
    }

    /// Without one.
    pub fn empty(status: StatusCode) -> Self {
        Self::revised(status, None)
    }

    /// Without one, for an artifact that has a revision now.
    pub fn revised(status: StatusCode, revision: Option<Position>) -> Self {
        Self { status: status.as_u16(), revision, document: None, text: None }
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Failure> {
        serde_json::from_slice(bytes)
            .map_err(|error| Failure::internal(format!("a kept answer cannot be read: {error}")))
    }
}

impl Request {
    /// The answer that `reply` stands for.
    pub fn reply(&self, reply: &Reply) -> HttpResponse {
        let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
        if let Some(document) = &reply.document {
            self.document(status, reply.revision, document)
        } else if let Some(text) = &reply.text {
            HttpResponse::build(status).content_type(PLAIN_TEXT).body(text.clone())
        } else {
            let mut response = HttpResponse::build(status);
            if let Some(revision) = reply.revision {
                response.insert_header((header::ETAG, parameters::entity_tag(revision)));
            }
            response.finish()
        }
    }

    /// Executes `command`, once when the request has a key, and answers with what `reply` makes of it.
    pub async fn carry_out(
        &self,
        command: &Command,
        refused: impl Fn(ExecuteError) -> Failure,
        reply: impl Fn(&Executed) -> Result<Reply, Failure>,
    ) -> Answer {
        let (store, context) = (&self.running()?.store, self.context());
        let Some(key) = self.key()? else {
            let executed = store
                .execute_through(&relay::here(store), command, &context)
                .await
                .map_err(refused)?;
            return Ok(self.reply(&reply(&executed)?));
        };
        let kept = |executed: &Executed| serde_json::to_vec(&reply(executed).ok()?).ok();
        let reply =
            match store.execute_once(command, &context, &key, kept).await.map_err(refused)? {
                Once::Now(executed) => reply(&executed)?,
                Once::Before(bytes) => Reply::from_bytes(&bytes)?,
            };
        Ok(self.reply(&reply))
    }

    /// The answer to a request that was carried out before.
    pub fn repeated(&self) -> Result<Option<HttpResponse>, Failure> {
        let Some(key) = self.key()? else { return Ok(None) };
        let kept = self.running()?.store.answered(&key)?;
        kept.map(|bytes| Ok(self.reply(&Reply::from_bytes(&bytes)?))).transpose()
    }

    /// The key of a write that is to be done once.
    fn key(&self) -> Result<Option<RequestKey>, Failure> {
        let http = self.http();
        let is_write = matches!(*http.method(), Method::POST | Method::PUT | Method::DELETE);
        let Some(key) = parameters::header(http, &IDEMPOTENCY_KEY)?.filter(|_| is_write) else {
            return Ok(None);
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            let detail =
                format!("header '{IDEMPOTENCY_KEY}' takes 1 to {KEY_BYTES_MAX} characters");
            return Err(Failure::parameter(detail).hint("a UUID is a good key"));
        }
        if self.validate_only()? {
            return Ok(None);
        }
        let parts = [http.method().as_str(), http.path(), http.query_string(), &self.body];
        Ok(Some(RequestKey::new(key, &parts)))
    }
}
