//! What browsers ask before pages of other origins may use the API (wire, section 1).
//!
//! Every origin may, and is echoed, since credentials are not allowed together with `*`. Requests without an origin
//! pass unchanged; that, and the answer to a preflight request, is why no library stands here.

use actix_web::HttpResponse;
use actix_web::http::header::{self, HeaderMap, HeaderValue};

const METHODS: HeaderValue = HeaderValue::from_static("GET, POST, HEAD, OPTIONS, DELETE, PUT");
const EXPOSED: HeaderValue = HeaderValue::from_static("Link, X-Total-Count, ETag");
/// How long a browser may remember the answer, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("1800");

/// The answer to a preflight request.
pub fn preflight(origin: &HeaderValue, asked: &HeaderMap) -> HttpResponse {
    let mut response = HttpResponse::Ok().finish();
    let headers = response.headers_mut();
    allow(origin, headers);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    response
}

/// Lets a page of `origin` read the answer with `headers`.
pub fn augment(origin: &HeaderValue, headers: &mut HeaderMap) {
    allow(origin, headers);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
}

fn allow(origin: &HeaderValue, headers: &mut HeaderMap) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}
