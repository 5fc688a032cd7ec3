//! Messages: from text to a request of the REST API, and from its answer back to text.

use crate::documents;
use crate::negotiation::Format;
use crate::problem::Failure;
use actix_http::Request;
use actix_web::HttpResponse;
use actix_web::body::{BodySize, MessageBody, to_bytes};
use actix_web::dev::Payload;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode, Uri};
use actix_web::web::Bytes;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, utf8_percent_encode};
use segue_domain::dsl::{self, Limits, Node};
use serde_json::{Map, Value, json};

/// What cannot stand in a path as it is.
const NOT_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'`')
    .add(b'{')
    .add(b'}')
    .add(b'\\')
    .add(b'^')
    .add(b'|')
    .add(b'#');

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    path: String,
    action: String,
    method: Method,
    accept: Type,
    content: Type,
    transaction: String,
    data: Option<String>,
    parameters: Vec<(String, String)>,
}

/// The types of bodies that messages know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Json,
    Yaml,
    PlainText,
    Javascript,
}

/// The requests in one text, or why one of them cannot be read.
pub(super) fn read(text: &str) -> Vec<Result<Wish, String>> {
    let mut nodes = match dsl::parse(text, &Limits::default()) {
        Ok(nodes) => nodes,
        Err(problems) => return vec![Err(problems.to_string())],
    };
    let is_list = matches!(&nodes[..], [Node { value: dsl::Value::Sequence(_), .. }]);
    if is_list && let Some(Node { value: dsl::Value::Sequence(items), .. }) = nodes.pop() {
        nodes = items;
    }
    if nodes.is_empty() {
        return vec![Err("the message holds no request".to_owned())];
    }
    nodes.iter().map(Wish::read).collect()
}

/// The answer to a request that cannot be read.
pub(super) fn unreadable(reason: &str) -> String {
    json!({ "status": "ERROR", "error": reason }).to_string()
}

impl Wish {
    fn read(node: &Node) -> Result<Self, String> {
        let Value::Object(members) = node.to_json() else {
            return Err(format!("a map is expected, found {}", node.describe()));
        };
        let required = |name: &str| {
            let present = members.get(name).is_some_and(|value| !value.is_null());
            let text = documents::member(node, name).filter(|_| present);
            text.ok_or_else(|| format!("'{name}' is missing"))
        };
        let api = required("api")?;
        if api != "v1" {
            return Err(format!("'api' cannot be '{api}', only v1 is known"));
        }
        let (path, action) = (required("path")?, required("action")?);
        let method = method(&action, &path)?;
        let Some(Value::Object(parameters)) = members.get("parameters") else {
            return Err("'parameters' is missing, a map that may be empty".to_owned());
        };
        let data = members.get("data").filter(|data| !data.is_null()).map(text);
        Ok(Self {
            accept: Type::read("accept", &required("accept")?)?,
            content: Type::read("content", &required("content")?)?,
            transaction: required("transaction")?,
            parameters: parameters.iter().flat_map(|(key, value)| pairs(key, value)).collect(),
            data,
            path,
            action,
            method,
        })
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn body(&self) -> &str {
        self.data.as_deref().map(str::trim).unwrap_or_default()
    }

    /// The form of documents in answers.
    pub(super) fn format(&self) -> Format {
        if self.accept == Type::Yaml { Format::Yaml } else { Format::Json }
    }

    /// The path without slashes around it and without its query.
    pub(super) fn place(&self) -> &str {
        place(&self.path)
    }

    /// The query of the path, and the parameters.
    pub(super) fn query(&self) -> String {
        let own = self.path.split_once('?').map(|(_, query)| query.to_owned());
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs =
            self.parameters.iter().map(|(key, value)| format!("{}={}", encode(key), encode(value)));
        own.into_iter().filter(|own| !own.is_empty()).chain(pairs).collect::<Vec<_>>().join("&")
    }

    /// The request of the REST API that this is.
    pub(super) fn request(&self) -> Result<Request, Failure> {
        let path = self.path.split('?').next().unwrap_or_default();
        let path = utf8_percent_encode(path.trim_start_matches('/'), NOT_IN_PATHS).to_string();
        let query = self.query();
        let query = utf8_percent_encode(&query, NOT_IN_PATHS);
        let uri: Uri = format!("{}/{path}?{query}", crate::front::API)
            .parse()
            .map_err(|error| Failure::parameter(format!("the path cannot be read: {error}")))?;
        let body = Bytes::from(self.data.clone().unwrap_or_default());
        let mut request = Request::with_payload(Payload::from(body));
        let head = request.head_mut();
        head.uri = uri;
        head.method = self.method.clone();
        head.headers.insert(header::ACCEPT, self.accept.media_type());
        head.headers.insert(header::CONTENT_TYPE, self.content.media_type());
        Ok(request)
    }

    /// The text of an answer.
    pub(super) async fn answer(&self, response: HttpResponse) -> Result<String, Failure> {
        if response.body().size() == BodySize::Stream {
            return Err(Failure::parameter("this stream cannot be asked for here")
                .hint("spell its path as /events/stream or /log"));
        }
        let status = match response.status() {
            StatusCode::OK | StatusCode::CREATED => "OK",
            StatusCode::ACCEPTED => "ACCEPTED",
            StatusCode::NO_CONTENT => "NOCONTENT",
            _ => "ERROR",
        };
        let mut headers: Map<String, Value> = Map::new();
        for (name, value) in response.headers() {
            let text = String::from_utf8_lossy(value.as_bytes());
            let joined = match headers.get(&spelled(name)).and_then(Value::as_str) {
                Some(others) => format!("{others}, {text}"),
                None => text.into_owned(),
            };
            headers.insert(spelled(name), json!(joined));
        }
        let body = to_bytes(response.into_body()).await;
        let body = body.map_err(|error| Failure::internal(error.to_string()))?;
        let body = String::from_utf8_lossy(&body);
        let data = (!body.is_empty()).then(|| json!(body));
        Ok(self.envelope(status, data, headers))
    }

    /// The text of one item of a stream.
    pub(super) fn item(&self, data: Value) -> String {
        self.envelope("OK", Some(data), Map::new())
    }

    /// The text that says why there is no answer.
    pub(super) fn refuse(&self, failure: &Failure, request_id: &str) -> String {
        let document = self.format().write(&failure.document(request_id));
        self.envelope("ERROR", Some(json!(document)), Map::new())
    }

    fn envelope(
        &self,
        status: &str,
        data: Option<Value>,
        parameters: Map<String, Value>,
    ) -> String {
        let mut answer = Map::new();
        let mut set = |key: &str, value: Value| answer.insert(key.to_owned(), value);
        set("api", json!("v1"));
        set("path", json!(self.path));
        set("action", json!(self.action));
        set("status", json!(status));
        set("content", json!(self.accept.name()));
        set("transaction", json!(self.transaction));
        if let Some(data) = data {
            set("data", data);
        }
        set("parameters", Value::Object(parameters));
        Value::Object(answer).to_string()
    }
}

impl Type {
    fn read(key: &str, text: &str) -> Result<Self, String> {
        let all = [Self::Json, Self::Yaml, Self::PlainText, Self::Javascript];
        let found = all.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| {
            format!("'{key}' cannot be '{text}': JSON, YAML, PLAINTEXT or JAVASCRIPT is expected")
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Yaml => "YAML",
            Self::PlainText => "PLAINTEXT",
            Self::Javascript => "JAVASCRIPT",
        }
    }

    fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Json => "application/json",
            Self::Yaml => "application/x-yaml",
            Self::PlainText => "text/plain",
            Self::Javascript => "application/javascript",
        })
    }
}

/// The HTTP method of an action: what is put at a path of one segment is posted.
fn method(action: &str, path: &str) -> Result<Method, String> {
    let place = place(path);
    match &action.to_ascii_uppercase()[..] {
        "PEEK" => Ok(Method::GET),
        "REMOVE" => Ok(Method::DELETE),
        "PUT" if place.is_empty() || place.contains('/') => Ok(Method::PUT),
        "PUT" => Ok(Method::POST),
        _ => Err(format!("'action' cannot be '{action}': PEEK, PUT or REMOVE is expected")),
    }
}

fn place(path: &str) -> &str {
    path.split('?').next().unwrap_or_default().trim_matches('/')
}

fn pairs(key: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Null => Vec::new(),
        Value::Array(items) => {
            let items = items.iter().filter(|item| !item.is_null());
            items.map(|item| (key.to_owned(), text(item))).collect()
        }
        value => vec![(key.to_owned(), text(value))],
    }
}

/// A text as it is, anything else as JSON.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// The name of a header as people write it.
fn spelled(name: &HeaderName) -> String {
    if *name == header::ETAG {
        return "ETag".to_owned();
    }
    let words = name.as_str().split('-').map(|word| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
    });
    words.collect::<Vec<String>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<Wish, String> {
        read(text).remove(0)
    }

    #[test]
    fn actions_become_methods() {
        let check = |action: &str, path: &str, expected: Option<Method>| {
            assert_eq!(method(action, path).ok(), expected, "{action} {path}");
        };
        check("PEEK", "/breeds", Some(Method::GET));
        check("remove", "/breeds/x", Some(Method::DELETE));
        check("PUT", "/breeds", Some(Method::POST));
        check("put", "breeds?validate_only=true", Some(Method::POST));
        check("Put", "/breeds/x", Some(Method::PUT));
        check("PUT", "/", Some(Method::PUT));
        check("POST", "/breeds", None);
    }

    #[test]
    fn requests_become_those_of_the_rest_api() {
        let check = |path: &str, parameters: &str, expected: &str| {
            let text = format!(
                "{{api: v1, path: '{path}', action: PEEK, accept: json, content: YAML, transaction: 7, parameters: {parameters}}}"
            );
            let request = one(&text).unwrap().request().unwrap();
            assert_eq!(request.uri().to_string(), expected);
        };
        check("/breeds", "{}", "/api/v1/breeds?");
        check("breeds", "{page: 2, x: null}", "/api/v1/breeds?page=2");
        check("/events?type=a", "{tag: [a, 'b:c']}", "/api/v1/events?type=a&tag=a&tag=b%3Ac");
        check("/", "{}", "/api/v1/?");
        check("/breeds/a b/é", "{}", "/api/v1/breeds/a%20b/%C3%A9?");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let check = |text: &str, expected: &str| {
            let reason = one(text).unwrap_err();
            assert!(reason.contains(expected), "{text}: {reason}");
        };
        check("{", "");
        check("", "no request");
        check("text", "a map is expected");
        check("{api: v2}", "only v1");
        check("{path: /}", "'api' is missing");
        let all = "api: v1, path: /breeds, accept: JSON, content: JSON, transaction: 1";
        check(&format!("{{{all}, parameters: {{}}}}"), "'action' is missing");
        check(&format!("{{{all}, action: GET, parameters: {{}}}}"), "'action' cannot be 'GET'");
        check(&format!("{{{all}, action: PEEK}}"), "'parameters' is missing");
    }

    #[test]
    fn several_requests_come_in_one_message() {
        let one = "{api: v1, path: /breeds, action: PEEK, accept: JSON, content: JSON, transaction: x, parameters: {}}";
        assert_eq!(read(&format!("[{one}, {one}]")).len(), 2);
        assert_eq!(read(&format!("{one}\n---\n{one}\n---\n{one}")).len(), 3);
    }

    #[test]
    fn headers_are_spelled_as_usual() {
        let check = |name: &'static str, expected: &str| {
            assert_eq!(spelled(&HeaderName::from_static(name)), expected);
        };
        check("x-total-count", "X-Total-Count");
        check("link", "Link");
        check("etag", "ETag");
    }
}
