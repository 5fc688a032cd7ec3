//! How refusals and failures become answers: problem documents of RFC 9457 (wire, section 3).

use crate::negotiation::Format;
use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, HttpResponseBuilder};
use segue_domain::log::{AppendError, ReadError};
use segue_domain::problem::{Problem, ProblemKind, Problems};
use segue_domain::store::ExecuteError;
use serde_json::{Map, Value, json};

/// Why a request is not answered as wished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    kind: ProblemKind,
    detail: String,
    errors: Vec<Problem>,
    headers: Vec<(header::HeaderName, String)>,
    /// What is logged, and never shown.
    inside: Option<String>,
}

impl Failure {
    /// A failure of `kind`; `detail` is for the client.
    pub fn new(kind: ProblemKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), errors: Vec::new(), headers: Vec::new(), inside: None }
    }

    /// More is asked for at once than is allowed; the client may come back in `seconds`.
    pub fn too_many(detail: impl Into<String>, hint: &str, seconds: u32) -> Self {
        Self::new(ProblemKind::TooManyRequests, detail)
            .hint(hint)
            .header(header::RETRY_AFTER, seconds.to_string())
    }

    /// Nothing is there.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::NotFound, detail)
    }

    /// A parameter or header that cannot be read.
    pub fn parameter(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::InvalidParameter, detail)
    }

    /// Something unexpected: `inside` is logged, the client gets the request's id.
    pub fn internal(inside: impl Into<String>) -> Self {
        Self {
            inside: Some(inside.into()),
            ..Self::new(ProblemKind::Internal, "unexpected failure")
        }
    }

    /// The same failure with a hint.
    #[must_use]
    pub fn hint(mut self, hint: &str) -> Self {
        self.detail = format!("{}: {hint}", self.detail);
        self
    }

    /// The same failure with a header beside the document.
    #[must_use]
    pub fn header(mut self, name: header::HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// What is logged, when the client is not told.
    pub fn inside(&self) -> Option<&str> {
        self.inside.as_deref()
    }

    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        status(self.kind)
    }

    /// The problem document.
    pub fn document(&self, request_id: &str) -> Value {
        let mut detail = self.detail.clone();
        let mut document = Map::new();
        document.insert("type".to_owned(), json!(self.kind.name()));
        document.insert("title".to_owned(), json!(self.kind.title()));
        document.insert("status".to_owned(), json!(self.status().as_u16()));
        if self.kind == ProblemKind::Internal {
            detail = format!("{detail}; the service's log says more under request {request_id}");
            document.insert("request_id".to_owned(), json!(request_id));
        }
        document.insert("detail".to_owned(), json!(detail));
        document.insert("message".to_owned(), json!(detail));
        document.insert("errors".to_owned(), self.errors.iter().map(member).collect());
        Value::Object(document)
    }

    /// The answer.
    pub fn respond(&self, format: Format, request_id: &str) -> HttpResponse {
        let mut response = HttpResponseBuilder::new(self.status());
        for (name, value) in &self.headers {
            response.insert_header((name.clone(), value.as_str()));
        }
        response.content_type(format.problem_type()).body(format.write(&self.document(request_id)))
    }
}

/// The status that a type of problem has.
pub fn status(kind: ProblemKind) -> StatusCode {
    match kind {
        ProblemKind::NotFound => StatusCode::NOT_FOUND,
        ProblemKind::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ProblemKind::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        ProblemKind::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ProblemKind::RevisionConflict => StatusCode::CONFLICT,
        ProblemKind::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
        ProblemKind::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ProblemKind::IdempotencyKeyReused => StatusCode::UNPROCESSABLE_ENTITY,
        ProblemKind::TooManyRequests => StatusCode::TOO_MANY_REQUESTS,
        ProblemKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        ProblemKind::BadGateway => StatusCode::BAD_GATEWAY,
        ProblemKind::NotReady | ProblemKind::Timeout => StatusCode::SERVICE_UNAVAILABLE,
        // All others say that a body or a parameter is malformed or invalid.
        _ => StatusCode::BAD_REQUEST,
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        let errors: Vec<Problem> = problems.iter().cloned().collect();
        let first = problems.first();
        let mut detail = match location(first) {
            "" => first.detail.clone(),
            location => format!("{location}: {}", first.detail),
        };
        if let Some(hint) = &first.hint {
            detail = format!("{detail}; {hint}");
        }
        if errors.len() > 1 {
            detail = format!("{detail} (and {} more)", errors.len() - 1);
        }
        // Where nothing can be pointed at the detail says it all.
        let errors = errors
            .into_iter()
            .filter(|problem| !problem.pointer.is_empty() || problem.place.is_some());
        Self { errors: errors.collect(), ..Self::new(first.kind, detail) }
    }
}

impl From<ExecuteError> for Failure {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Rejected(problems) => problems.into(),
            ExecuteError::Append(error) => error.into(),
            ExecuteError::Read(error) => error.into(),
        }
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let text = error.to_string();
        match error {
            AppendError::Conflict { .. } => {
                Self::new(ProblemKind::RevisionConflict, text).hint("repeat the request")
            }
            AppendError::TooLarge { .. } => Self::new(ProblemKind::PayloadTooLarge, text),
            AppendError::Full { .. } => {
                Self::new(ProblemKind::NotReady, text).header(header::RETRY_AFTER, "1")
            }
            AppendError::Stopped(_) => Self::new(ProblemKind::NotReady, text),
            AppendError::Unwritable { .. } => Self::new(ProblemKind::YamlParsing, text)
                .hint("nest it less deep, or refer to parts that are stored by themselves"),
        }
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::PageTooHeavy { fits, .. } => Self::parameter(error.to_string())
                .hint(&format!("ask for pages of {fits} with the parameter 'per_page'")),
            error => Self::internal(error.to_string()),
        }
    }
}

/// Where a problem is, for people: an unknown key is a problem of the map that it stands in.
fn location(problem: &Problem) -> &str {
    let pointer = match problem.kind {
        ProblemKind::UnexpectedElement => {
            problem.pointer.rsplit_once('/').map_or("", |(parent, _)| parent)
        }
        _ => &problem.pointer,
    };
    pointer.trim_start_matches('/')
}

fn member(problem: &Problem) -> Value {
    let mut member = Map::new();
    member.insert("pointer".to_owned(), json!(problem.pointer));
    if let Some(place) = problem.place {
        member.insert("line".to_owned(), json!(place.line));
        member.insert("column".to_owned(), json!(place.column));
    }
    member.insert("detail".to_owned(), json!(problem.detail));
    if let Some(hint) = &problem.hint {
        member.insert("hint".to_owned(), json!(hint));
    }
    Value::Object(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use segue_domain::problem::Place;

    /// The page that lists all types.
    const PAGE: &str = include_str!("../../../docs/reference/problems.md");

    #[test]
    fn every_type_stands_in_the_page_with_its_status() {
        let known = |kind: &ProblemKind| (kind.name(), status(*kind).as_u16());
        let mut known: Vec<(&str, u16)> = ProblemKind::ALL.iter().map(known).collect();
        let row = |line: &'static str| {
            let (name, rest) = line.strip_prefix("| `")?.split_once("` | ")?;
            Some((name, rest.split(' ').next()?.parse::<u16>().ok()?))
        };
        let mut listed: Vec<(&str, u16)> = PAGE.lines().filter_map(row).collect();
        known.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_type_has_its_status() {
        let check = |kind: ProblemKind, code: u16| {
            assert_eq!(status(kind).as_u16(), code, "{}", kind.name());
        };
        check(ProblemKind::UnexpectedElement, 400);
        check(ProblemKind::ArtifactNotFound, 400);
        check(ProblemKind::NotSupported, 400);
        check(ProblemKind::NotFound, 404);
        check(ProblemKind::MethodNotAllowed, 405);
        check(ProblemKind::NotAcceptable, 406);
        check(ProblemKind::RevisionConflict, 409);
        check(ProblemKind::PreconditionFailed, 412);
        check(ProblemKind::PayloadTooLarge, 413);
        check(ProblemKind::UnsupportedMediaType, 415);
        check(ProblemKind::IdempotencyKeyReused, 422);
        check(ProblemKind::TooManyRequests, 429);
        check(ProblemKind::Internal, 500);
        check(ProblemKind::BadGateway, 502);
        check(ProblemKind::NotReady, 503);
        check(ProblemKind::Timeout, 503);
        assert!(ProblemKind::ALL.iter().all(|kind| status(*kind).as_u16() >= 400));
    }

    #[test]
    fn a_refusal_as_a_document() {
        let pointer = "/clusters/web/services/0/scala";
        let problem =
            Problem::new(ProblemKind::UnexpectedElement, pointer, "'scala' is not known here");
        let problem = problem.at(Some(Place { line: 6, column: 7 })).hint("did you mean 'scale'?");
        let failure = Failure::from(Problems::from(problem));
        let detail = "clusters/web/services/0: 'scala' is not known here; did you mean 'scale'?";
        let expected = json!({
            "type": "unexpected-element", "title": "Unknown key", "status": 400, "detail": detail, "message": detail,
            "errors": [{"pointer": pointer, "line": 6, "column": 7, "detail": "'scala' is not known here",
                "hint": "did you mean 'scale'?"}],
        });
        assert_eq!(failure.document("1"), expected);
    }

    #[test]
    fn what_happens_inside_stays_inside() {
        let failure = Failure::internal("the disk is on fire");
        let document = failure.document("42").to_string();
        assert!(!document.contains("fire") && document.contains("42"), "{document}");
    }

    #[test]
    fn a_stopped_log_is_not_ready() {
        let failure = Failure::from(AppendError::Stopped("no space left".to_owned()));
        assert_eq!(failure.status().as_u16(), 503);
        assert!(failure.document("1")["detail"].as_str().unwrap().contains("no space left"));
    }
}
