//! What happens to every request before it is routed and to every answer before it leaves: path prefixes, a trailing
//! slash, the number of requests under way, and headers that all answers share.

use crate::cors;
use crate::problem::Failure;
use crate::request::{OriginalPath, RETRY_AFTER_SECONDS, refusal};
use crate::service::Service;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderValue};
use actix_web::http::uri::{PathAndQuery, Uri};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, HttpResponse, web};

/// Where the API is.
pub const API: &str = "/api/v1";
/// Where the proxy is; what follows its targets is passed on as it is.
const PROXY: &str = "/proxy/";
/// Roots that are also reachable below the namespace.
const ROOTS: [&str; 5] = ["api", "websocket", "proxy", "livez", "readyz"];
/// Roots that answer however many requests there are, since whoever supervises the service asks them.
const PROBES: [&str; 4] = ["/livez", "/readyz", "/api/v1/livez", "/api/v1/readyz"];

/// Brings the path into its plain form, remembers how it was, and finishes the headers of the answer.
pub async fn pass<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let service = request.app_data::<web::Data<Service>>();
    let dropped = service.map_or(0, |service| service.config.settings.api.strip_path_segments);
    pass_without(dropped, request, next).await
}

/// The same for a request that is made inside, where no segments stand before what is meant.
pub async fn pass_inside<B: MessageBody + 'static>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    pass_without(0, request, next).await
}

async fn pass_without<B: MessageBody + 'static>(
    dropped: usize,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let Some(service) = request.app_data::<web::Data<Service>>().cloned() else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    plain_path(&mut request, &service, dropped);
    let is_api = is_below(request.path(), API);
    let origin = if is_api { request.headers().get(header::ORIGIN).cloned() } else { None };
    let mut response = match enter(&request, &service, origin.as_ref()) {
        Ok(_under_way) => next.call(request).await?.map_into_left_body(),
        Err(response) => request.into_response(response).map_into_right_body(),
    };
    let headers = response.headers_mut();
    if is_api {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    }
    if let Some(origin) = origin
        && !headers.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)
    {
        cors::augment(&origin, headers);
    }
    // Streams say that they are not encoded, to be left alone by the compression; clients need not see that.
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding == "identity") {
        headers.remove(header::CONTENT_ENCODING);
    }
    Ok(response)
}

/// Whether `path` is `root` or below it.
fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Lets the request in, or answers it at once.
#[expect(clippy::result_large_err, reason = "the answer is given once, and at once")]
fn enter<'a>(
    request: &ServiceRequest,
    service: &'a Service,
    origin: Option<&HeaderValue>,
) -> Result<Option<crate::service::UnderWay<'a>>, HttpResponse> {
    if let Some(origin) = origin
        && request.method() == Method::OPTIONS
    {
        return Err(cors::preflight(origin, request.headers()));
    }
    let path = request.path();
    // What is encoded was sent by somebody who thought of UTF-8; anything else names nothing.
    if path.contains('%') && percent_encoding::percent_decode_str(path).decode_utf8().is_err() {
        let failure = Failure::parameter("the path is not UTF-8");
        return Err(refusal(request.request(), &failure));
    }
    if PROBES.contains(&path) {
        return Ok(None);
    }
    let max = service.config.settings.api.requests_max;
    service.enter(max).map(Some).ok_or_else(|| {
        let detail = format!("{max} requests are under way already");
        let hint = "wait a moment, or raise api.requests_max";
        refusal(request.request(), &Failure::too_many(detail, hint, RETRY_AFTER_SECONDS))
    })
}

fn plain_path(request: &mut ServiceRequest, service: &Service, dropped: usize) {
    let raw = request.uri().path();
    let plain = plain(raw, &service.config.settings.namespace, dropped);
    if plain.len() == raw.len() {
        return;
    }
    let (raw, plain) = (raw.to_owned(), plain.to_owned());
    replace_path(request, &plain);
    request.extensions_mut().insert(OriginalPath(raw));
}

/// `path` without dropped segments, namespace and one trailing slash.
fn plain<'a>(path: &'a str, namespace: &str, dropped: usize) -> &'a str {
    let mut plain = path;
    for _ in 0..dropped {
        let rest = plain.strip_prefix('/').unwrap_or(plain);
        plain = rest.find('/').map_or("/", |slash| &rest[slash..]);
    }
    let below =
        plain.strip_prefix('/').and_then(|rest| rest.strip_prefix(namespace)).filter(|below| {
            let root =
                below.strip_prefix('/').map(|rest| rest.split('/').next().unwrap_or_default());
            root.is_some_and(|root| ROOTS.contains(&root))
        });
    plain = below.unwrap_or(plain);
    match plain.strip_suffix('/') {
        Some("") | None => plain,
        Some(_) if plain.starts_with(PROXY) => plain,
        Some(shorter) => shorter,
    }
}

fn replace_path(request: &mut ServiceRequest, path: &str) {
    let uri = request.uri();
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    // A part of a legal path is a legal path, so these cannot fail; if they do the path stays as it is.
    let Ok(path_and_query) = PathAndQuery::from_maybe_shared(text.into_bytes()) else { return };
    parts.path_and_query = Some(path_and_query);
    let Ok(uri) = Uri::from_parts(parts) else { return };
    request.match_info_mut().get_mut().update(&uri);
    request.head_mut().uri = uri;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths() {
        let check = |path: &str, dropped: usize, expected: &str| {
            assert_eq!(plain(path, "default", dropped), expected, "{path}");
        };
        check("/", 0, "/");
        check("/api/v1/breeds", 0, "/api/v1/breeds");
        check("/api/v1/breeds/", 0, "/api/v1/breeds");
        check("/api/v1/breeds//", 0, "/api/v1/breeds/");
        check("/api/v1/", 0, "/api/v1");
        check("/default/api/v1/breeds", 0, "/api/v1/breeds");
        check("/default/websocket", 0, "/websocket");
        check("/default/proxy/gateways/a/", 0, "/proxy/gateways/a/");
        check("/other/api/v1/breeds", 0, "/other/api/v1/breeds");
        check("/default", 0, "/default");
        check("/defaultapi/v1", 0, "/defaultapi/v1");
        check("/a/b/api/v1", 2, "/api/v1");
        check("/a/default/api/v1", 1, "/api/v1");
        check("/a", 2, "/");
        check("/api/v1/gateways/shop%2Fweb", 0, "/api/v1/gateways/shop%2Fweb");
    }

    #[test]
    fn what_is_below_the_api() {
        let check =
            |path: &str, expected: bool| assert_eq!(is_below(path, API), expected, "{path}");
        check("/api/v1", true);
        check("/api/v1/breeds", true);
        check("/api/v12", false);
        check("/proxy/host/api/v1", false);
    }
}
