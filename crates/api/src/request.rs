//! From an HTTP request to a function of the service and back: what every route has in common.
//!
//! A route is a function from [`Request`] to an answer or a [`Failure`]. Negotiation, limits, time limit, request id
//! and the log line are applied here, once.

use crate::negotiation::{Format, check_content_type};
use crate::paging::{PER_PAGE_DEFAULT, PER_PAGE_MAX, Paging};
use crate::parameters::{self, Parameters};
use crate::problem::Failure;
use crate::service::{BodyBytes, Running, Service};
use crate::table;
use actix_web::body::{BodySize, BoxBody, MessageBody, None as NoBody};
use actix_web::http::{Method, StatusCode, header};
use actix_web::{
    HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder, Resource, guard, web,
};
use futures::{FutureExt, StreamExt};
use segue_domain::command::{Context, RevisionMatch};
use segue_domain::event::Position;
use segue_domain::problem::ProblemKind;
use serde::Serialize;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// The header that names a request in answers and in the service's log.
const REQUEST_ID: &str = "x-request-id";

/// How long a client that was refused may wait before it tries again, in seconds.
pub const RETRY_AFTER_SECONDS: u32 = 1;

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
    payload: Option<web::Payload>,
    /// Held as long as the body is.
    body_bytes: BodyBytes,
    running: Option<Arc<Running>>,
}

/// What a route answers.
pub type Answer = Result<HttpResponse, Failure>;

impl Request {
    /// Store, workers and drivers, once they are there.
    pub fn running(&self) -> Result<&Running, Failure> {
        self.running.as_deref().ok_or_else(not_ready)
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
        document: &impl Serialize,
    ) -> HttpResponse {
        let mut response = HttpResponseBuilder::new(status);
        if let Some(revision) = revision {
            response.insert_header((header::ETAG, parameters::entity_tag(revision)));
        }
        response.content_type(self.format.media_type()).body(self.format.write(document))
    }

    /// Which page of a list is asked for.
    pub fn paging(&self) -> Result<Paging, Failure> {
        let max = if self.is_legacy() { PER_PAGE_DEFAULT } else { PER_PAGE_MAX };
        Paging::read(&self.parameters, max)
    }

    /// Whether clients of the predecessor are to find what the interface forbids.
    pub fn is_legacy(&self) -> bool {
        self.service.config.settings.api.legacy_clients
    }

    /// The request as the server sees it.
    pub fn http(&self) -> &HttpRequest {
        &self.http
    }

    /// An answer with a page of a list of `total` items.
    pub fn page(&self, paging: Paging, items: &impl Serialize, total: u64) -> HttpResponse {
        let links = paging.links(&address(&self.http), self.http.query_string(), total);
        HttpResponse::Ok()
            .insert_header(("X-Total-Count", total.to_string()))
            .insert_header((header::LINK, links))
            .content_type(self.format.media_type())
            .body(self.format.write(items))
    }

    /// The body of a request that is not read beforehand, once.
    pub fn take_payload(&mut self) -> Result<web::Payload, Failure> {
        self.payload.take().ok_or_else(|| Failure::internal("the body was read already"))
    }

    /// The body is larger than allowed.
    pub fn too_large(&self) -> Failure {
        too_large(self.service.config.settings.api.max_body.0)
    }

    async fn read_body(&mut self, mut payload: web::Payload) -> Result<(), Failure> {
        let settings = &self.service.config.settings.api;
        let max = settings.max_body.0;
        let mut body = Vec::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk
                .map_err(|error| Failure::parameter(format!("the body cannot be read: {error}")))?;
            if body.len() + chunk.len() > max {
                return Err(too_large(max));
            }
            if !self.body_bytes.grow(chunk.len()) {
                let detail = "the bodies of all requests under way are too large together";
                let hint = "wait a moment, or raise api.bodies_max";
                return Err(Failure::too_many(detail, hint, RETRY_AFTER_SECONDS));
            }
            body.extend_from_slice(&chunk);
        }
        let body = String::from_utf8(body).map_err(|error| {
            let from = error.utf8_error().valid_up_to();
            let detail = format!("the body is not UTF-8 from byte {from} on");
            Failure::new(ProblemKind::YamlParsing, detail)
        })?;
        self.body = if body.trim().is_empty() { String::new() } else { body };
        Ok(())
    }

    fn new(
        http: HttpRequest,
        service: web::Data<Service>,
        id: String,
        format: Format,
    ) -> Result<Self, Failure> {
        let parameters = Parameters::parse(http.query_string())?;
        let running = service.running();
        let (body, payload, body_bytes) = (String::new(), None, BodyBytes::new(service.clone()));
        Ok(Self { service, id, format, parameters, body, http, payload, body_bytes, running })
    }
}

/// A path and the methods that it knows.
pub struct Route {
    path: String,
    resource: Resource,
    methods: Vec<Method>,
    manner: Manner,
}

/// What is checked before a route is asked.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a route, each named")]
struct Manner {
    /// Whether `Accept` has to allow JSON or YAML.
    negotiated: bool,
    /// Whether a body has to be JSON or YAML.
    documents: bool,
    /// Whether the log has to be replayed.
    gated: bool,
    /// Whether the body is read beforehand.
    read: bool,
    /// Whether answers to GET depend on nothing but the state and the configuration.
    remembered: bool,
}

impl Route {
    /// The path `path`, without methods yet.
    pub fn at(path: &str) -> Self {
        let manner = Manner {
            negotiated: true,
            documents: true,
            gated: true,
            read: true,
            remembered: false,
        };
        Self { path: path.to_owned(), resource: web::resource(path), methods: Vec::new(), manner }
    }

    /// Answers have a type of their own, so `Accept` is not looked at.
    #[must_use]
    pub fn unnegotiated(mut self) -> Self {
        self.manner.negotiated = false;
        self
    }

    /// Bodies are any text, so `Content-Type` is not looked at.
    #[must_use]
    pub fn raw(mut self) -> Self {
        self.manner.documents = false;
        self
    }

    /// Answers also before the log is replayed.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.manner.gated = false;
        self
    }

    /// The route reads the body by itself.
    #[must_use]
    pub fn unread(mut self) -> Self {
        self.manner.read = false;
        self
    }

    /// Answers to GET depend on nothing but the state and the configuration, and so are made once for each state.
    #[must_use]
    pub fn remembered(mut self) -> Self {
        self.manner.remembered = true;
        self
    }

    /// Every method.
    #[must_use]
    pub fn any<F: Future<Output = Answer> + 'static>(self, route: fn(Request) -> F) -> Self {
        self.on(&[], web::route(), route)
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
        let manner = self.manner;
        let answer =
            move |http: HttpRequest, service: web::Data<Service>, payload: web::Payload| {
                answer(http, service, payload, manner, route)
            };
        self.methods.extend_from_slice(methods);
        self.resource = self.resource.route(matching.to(answer));
        self
    }
}

/// Answers with `failure`, for paths and methods that are not known.
pub async fn refuse(http: HttpRequest, failure: Failure) -> HttpResponse {
    let service = http.app_data::<web::Data<Service>>();
    if service.is_some_and(|service| service.running().is_none()) {
        return refusal(&http, &not_ready());
    }
    refusal(&http, &failure)
}

/// The answer that says `failure` to a request that reaches no route.
pub fn refusal(http: &HttpRequest, failure: &Failure) -> HttpResponse {
    let id = http.app_data::<web::Data<Service>>().map(|service| service.request_id());
    let id = id.unwrap_or_default();
    identified(failure.respond(accepted(http).unwrap_or_default(), &id), &id)
}

/// The absolute address that was asked for, without its query.
fn address(http: &HttpRequest) -> String {
    // Whoever ends TLS in front of the service says so.
    let secure = http.headers().get(header::X_FORWARDED_PROTO).is_some_and(|name| name == "https");
    let host = http.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or_else(|| http.app_config().host());
    let extensions = http.extensions();
    let path = match extensions.get::<OriginalPath>() {
        Some(path) => &path.0,
        None => http.uri().path(),
    };
    format!("{}://{host}{path}", if secure { "https" } else { "http" })
}

async fn answer<F: Future<Output = Answer>>(
    http: HttpRequest,
    service: web::Data<Service>,
    payload: web::Payload,
    manner: Manner,
    route: fn(Request) -> F,
) -> HttpResponse {
    let started = Instant::now();
    let id = service.request_id();
    let asked = http.clone();
    let format = accepted(&http);
    let limit = service.config.settings.api.response_timeout.0;
    let answered = async {
        if manner.gated && service.running().is_none() {
            return Err(not_ready());
        }
        let format =
            if manner.negotiated { format.clone()? } else { format.clone().unwrap_or_default() };
        let question = Question::ask(&http, &service, manner, format);
        if let Some(found) = question.as_ref().and_then(|question| question.answer(&service)) {
            return Ok(found);
        }
        if manner.documents && matches!(*http.method(), Method::POST | Method::PUT) {
            check_content_type(parameters::header(&http, &header::CONTENT_TYPE)?)?;
        }
        let mut request = Request::new(http, service.clone(), id.clone(), format)?;
        if manner.read {
            request.read_body(payload).await?;
        } else {
            request.payload = Some(payload);
        }
        // What is handed on is the business of whom it is handed to.
        if manner.read
            && let Some(answer) = request.repeated()?
        {
            return Ok(answer);
        }
        let answer = route(request).await?;
        Ok(match question {
            Some(question) if answer.status() == StatusCode::OK => {
                service.memo.keep(question.text, question.position, answer)
            }
            _ => answer,
        })
    };
    let answered = AssertUnwindSafe(tokio::time::timeout(limit, answered)).catch_unwind().await;
    let answered = match answered {
        Ok(Ok(answered)) => answered,
        Ok(Err(_)) => Err(too_late(limit)),
        Err(_) => Err(Failure::internal("a panic, see above")),
    };
    let mut response = answered.unwrap_or_else(|failure| {
        if let Some(inside) = failure.inside() {
            let (method, uri) = (asked.method(), asked.uri());
            tracing::error!(request = id, "{method} {uri} failed: {inside}");
        }
        failure.respond(format.unwrap_or_default(), &id)
    });
    // Nobody would read the stream, and so it would never end.
    if asked.method() == Method::HEAD && response.body().size() == BodySize::Stream {
        response = response.set_body(BoxBody::new(NoBody::new()));
    }
    let status = response.status().as_u16();
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    tracing::debug!(request = id, status, milliseconds, "{} {}", asked.method(), asked.uri());
    identified(response, &id)
}

/// A GET whose answer is remembered: all that the answer depends on.
struct Question {
    text: String,
    position: Position,
}

impl Question {
    fn ask(http: &HttpRequest, service: &Service, manner: Manner, format: Format) -> Option<Self> {
        if !manner.remembered || !matches!(*http.method(), Method::GET | Method::HEAD) {
            return None;
        }
        // Before the answer is made: it may become older than it is, never younger.
        let position = service.running()?.store.state().position();
        let address = address(http);
        let query = http.query_string();
        Some(Self { text: format!("{format:?} {address}?{query}"), position })
    }

    fn answer(&self, service: &Service) -> Option<HttpResponse> {
        service.memo.find(&self.text, self.position)
    }
}

/// The answer with the name of its request, unless whoever it was passed on to gave it one.
fn identified(mut response: HttpResponse, id: &str) -> HttpResponse {
    if !response.headers().contains_key(REQUEST_ID)
        && let Ok(value) = header::HeaderValue::from_str(id)
    {
        response.headers_mut().insert(header::HeaderName::from_static(REQUEST_ID), value);
    }
    response
}

/// The log is not replayed yet.
pub fn not_ready() -> Failure {
    Failure::new(ProblemKind::NotReady, "the log is being replayed").hint("try again in a moment")
}

fn too_late(limit: Duration) -> Failure {
    let detail = format!(
        "no answer within {} s; it is not known whether the request was carried out",
        limit.as_secs_f64()
    );
    Failure::new(ProblemKind::Timeout, detail)
}

/// The form that all `Accept` lines together ask for.
fn accepted(http: &HttpRequest) -> Result<Format, Failure> {
    let mut lines = http.headers().get_all(header::ACCEPT);
    let (first, more) = (lines.next(), lines.next().is_some());
    if !more {
        return match first {
            Some(_) => Format::accepted(parameters::header(http, &header::ACCEPT)?),
            None => Ok(Format::Json),
        };
    }
    let lines = http.headers().get_all(header::ACCEPT).filter_map(|line| line.to_str().ok());
    Format::accepted(Some(&lines.collect::<Vec<_>>().join(",")))
}

fn too_large(max: usize) -> Failure {
    let detail = format!("the body is larger than {max} bytes");
    Failure::new(ProblemKind::PayloadTooLarge, detail)
        .hint("send less at once, or raise api.max_body")
}
