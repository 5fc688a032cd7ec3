//! From an HTTP request to a function of the service and back: what every route has in common.
//!
//! A route is a function from [`Request`] to an answer or a [`Failure`]. Negotiation, limits, time limit, request id
//! and the log line are applied here, once.

use crate::negotiation::{Format, check_content_type};
use crate::paging::Paging;
use crate::parameters::{self, Parameters};
use crate::problem::Failure;
use crate::service::{Running, Service};
use crate::table;
use actix_web::http::{Method, StatusCode, header};
use actix_web::{
    HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder, Resource, guard, web,
};
use futures::{FutureExt, StreamExt};
use segue_domain::command::{Context, RevisionMatch};
use segue_domain::event::Position;
use segue_domain::problem::ProblemKind;
use serde_json::Value;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;
use time::OffsetDateTime;
use uuid::Uuid;

/// The header that names a request in answers and in the service's log.
const REQUEST_ID: &str = "x-request-id";

/// The path that was asked for, before the namespace and dropped segments were taken away.
#[derive(Clone, Debug)]
pub struct OriginalPath(pub String);

/// A request, read.
pub struct Request {
    /// What all requests share.
    pub service: web::Data<Service>,
    /// Names the request.
    pub id: String,
    /// The form of the answer.
    pub format: Format,
    /// The query.
    pub parameters: Parameters,
    /// The body; empty when it is white space only.
    pub body: String,
    http: HttpRequest,
    running: Option<Arc<Running>>,
}

/// What a route answers.
pub type Answer = Result<HttpResponse, Failure>;

impl Request {
    /// Store, workers and drivers, once they are there.
    pub fn running(&self) -> Result<&Running, Failure> {
        self.running.as_deref().ok_or_else(|| {
            Failure::new(ProblemKind::NotReady, "the log is being replayed")
                .hint("try again in a moment")
        })
    }

    /// A parameter of the path, percent-decoded.
    pub fn path(&self, name: &str) -> Result<String, Failure> {
        let raw = self.http.match_info().get(name).unwrap_or_default();
        // The router decodes all but slashes, percent and plus signs; those are what is left here.
        let text = percent_encoding::percent_decode_str(raw).decode_utf8();
        text.map(Into::into).map_err(|_| Failure::not_found("the path is not UTF-8"))
    }

    /// The path as it was asked for.
    pub fn original_path(&self) -> String {
        let extensions = self.http.extensions();
        let original = extensions.get::<OriginalPath>().map(|path| path.0.clone());
        original.unwrap_or_else(|| self.http.path().to_owned())
    }

    /// The text of a header.
    pub fn header(&self, name: &header::HeaderName) -> Result<Option<&str>, Failure> {
        parameters::header(&self.http, name)
    }

    /// The revision that `If-Match` asks for.
    pub fn if_match(&self, current: Option<Position>) -> Result<Option<RevisionMatch>, Failure> {
        parameters::if_match(self.header(&header::IF_MATCH)?, current)
    }

    /// Whether nothing is to be stored.
    pub fn validate_only(&self) -> Result<bool, Failure> {
        self.parameters.boolean("validate_only")
    }

    /// The circumstances of a command that this request makes.
    pub fn context(&self) -> Context {
        Context {
            now: OffsetDateTime::now_utc(),
            actor: "api".to_owned(),
            cause: None,
            correlation: self.id.clone(),
        }
    }

    /// An answer with a document.
    pub fn document(
        &self,
        status: StatusCode,
        revision: Option<Position>,
        document: &Value,
    ) -> HttpResponse {
        let mut response = HttpResponseBuilder::new(status);
        if let Some(revision) = revision {
            response.insert_header((header::ETAG, parameters::entity_tag(revision)));
        }
        response.content_type(self.format.media_type()).body(self.format.write(document))
    }

    /// An answer with a page of a list of `total` items.
    pub fn page(&self, paging: Paging, items: Vec<Value>, total: u64) -> HttpResponse {
        let address = {
            let connection = self.http.connection_info();
            let extensions = self.http.extensions();
            let path =
                extensions.get::<OriginalPath>().map_or_else(|| self.http.path(), |path| &path.0);
            format!("{}://{}{path}", connection.scheme(), connection.host())
        };
        let links = paging.links(&address, self.http.query_string(), total);
        HttpResponse::Ok()
            .insert_header(("X-Total-Count", total.to_string()))
            .insert_header((header::LINK, links))
            .content_type(self.format.media_type())
            .body(self.format.write(&Value::Array(items)))
    }

    async fn read(
        http: HttpRequest,
        service: web::Data<Service>,
        id: String,
        format: Format,
        payload: web::Payload,
    ) -> Result<Self, Failure> {
        if matches!(*http.method(), Method::POST | Method::PUT) {
            check_content_type(parameters::header(&http, &header::CONTENT_TYPE)?)?;
        }
        let parameters = Parameters::parse(http.query_string())?;
        let body = read_body(payload, service.config.settings.api.max_body.0).await?;
        let running = service.running();
        Ok(Self { service, id, format, parameters, body, http, running })
    }
}

/// A path and the methods that it knows.
pub struct Route {
    path: String,
    resource: Resource,
    methods: Vec<Method>,
    negotiated: bool,
    gated: bool,
}

impl Route {
    /// The path `path`, without methods yet.
    pub fn at(path: &str) -> Self {
        let resource = web::resource(path);
        Self { path: path.to_owned(), resource, methods: Vec::new(), negotiated: true, gated: true }
    }

    /// Answers have a type of their own, so `Accept` is not looked at.
    #[must_use]
    pub fn unnegotiated(mut self) -> Self {
        self.negotiated = false;
        self
    }

    /// Answers also before the log is replayed.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.gated = false;
        self
    }

    /// GET, and HEAD with it.
    #[must_use]
    pub fn get<F: Future<Output = Answer> + 'static>(self, route: fn(Request) -> F) -> Self {
        let guard = guard::Any(guard::Get()).or(guard::Head());
        self.on(&[Method::GET, Method::HEAD], web::route().guard(guard), route)
    }

    /// POST.
    #[must_use]
    pub fn post<F: Future<Output = Answer> + 'static>(self, route: fn(Request) -> F) -> Self {
        self.on(&[Method::POST], web::post(), route)
    }

    /// PUT.
    #[must_use]
    pub fn put<F: Future<Output = Answer> + 'static>(self, route: fn(Request) -> F) -> Self {
        self.on(&[Method::PUT], web::put(), route)
    }

    /// DELETE.
    #[must_use]
    pub fn delete<F: Future<Output = Answer> + 'static>(self, route: fn(Request) -> F) -> Self {
        self.on(&[Method::DELETE], web::delete(), route)
    }

    /// The path with its methods; all others are refused.
    pub fn done(self) -> Resource {
        table::note(&self.path, &self.methods);
        let names: Vec<&str> = self.methods.iter().map(Method::as_str).collect();
        let allowed = names.join(", ");
        self.resource.default_service(web::to(move |http: HttpRequest| {
            let detail = format!("{} is not known at {}", http.method(), http.path());
            let failure =
                Failure::new(ProblemKind::MethodNotAllowed, detail).hint(&format!("use {allowed}"));
            refuse(http, failure.header(header::ALLOW, allowed.clone()))
        }))
    }

    fn on<F: Future<Output = Answer> + 'static>(
        mut self,
        methods: &[Method],
        matching: actix_web::Route,
        route: fn(Request) -> F,
    ) -> Self {
        let (negotiated, gated) = (self.negotiated, self.gated);
        let answer =
            move |http: HttpRequest, service: web::Data<Service>, payload: web::Payload| {
                answer(http, service, payload, (negotiated, gated), route)
            };
        self.methods.extend_from_slice(methods);
        self.resource = self.resource.route(matching.to(answer));
        self
    }
}

/// Answers with `failure`, for paths and methods that are not known.
pub async fn refuse(http: HttpRequest, failure: Failure) -> HttpResponse {
    let format = accepted(&http).unwrap_or_default();
    failure.respond(format, &new_id())
}

async fn answer<F: Future<Output = Answer>>(
    http: HttpRequest,
    service: web::Data<Service>,
    payload: web::Payload,
    (negotiated, gated): (bool, bool),
    route: fn(Request) -> F,
) -> HttpResponse {
    let started = Instant::now();
    let id = new_id();
    let described = format!("{} {}", http.method(), http.uri());
    let format = accepted(&http);
    let limit = service.config.settings.api.response_timeout.0;
    let answered = async {
        let format = if negotiated { format.clone()? } else { Format::Json };
        let request = Request::read(http, service.clone(), id.clone(), format, payload).await?;
        if gated {
            request.running()?;
        }
        route(request).await
    };
    let answered = AssertUnwindSafe(tokio::time::timeout(limit, answered)).catch_unwind().await;
    let answered = match answered {
        Ok(Ok(answered)) => answered,
        Ok(Err(_)) => {
            let detail = format!(
                "no answer within {} s; it is not known whether the request was carried out",
                limit.as_secs()
            );
            Err(Failure::new(ProblemKind::Timeout, detail))
        }
        Err(_) => Err(Failure::internal("a panic, see above")),
    };
    let mut response = answered.unwrap_or_else(|failure| {
        if let Some(inside) = failure.inside() {
            tracing::error!(request = id, "{described} failed: {inside}");
        }
        failure.respond(format.unwrap_or_default(), &id)
    });
    if let Ok(value) = header::HeaderValue::from_str(&id) {
        response.headers_mut().insert(header::HeaderName::from_static(REQUEST_ID), value);
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    tracing::debug!(request = id, status = response.status().as_u16(), milliseconds, "{described}");
    response
}

fn accepted(http: &HttpRequest) -> Result<Format, Failure> {
    Format::accepted(parameters::header(http, &header::ACCEPT)?)
}

fn new_id() -> String {
    Uuid::now_v7().to_string()
}

async fn read_body(mut payload: web::Payload, max: usize) -> Result<String, Failure> {
    let too_large = || {
        let detail = format!("the body is larger than {max} bytes");
        Failure::new(ProblemKind::PayloadTooLarge, detail)
            .hint("send less at once, or raise api.max_body")
    };
    let mut body = Vec::new();
    while let Some(chunk) = payload.next().await {
        let chunk = chunk
            .map_err(|error| Failure::parameter(format!("the body cannot be read: {error}")))?;
        if body.len() + chunk.len() > max {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    let body = String::from_utf8(body).map_err(|error| {
        let detail =
            format!("the body is not UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        Failure::new(ProblemKind::YamlParsing, detail)
    })?;
    Ok(if body.trim().is_empty() { String::new() } else { body })
}
